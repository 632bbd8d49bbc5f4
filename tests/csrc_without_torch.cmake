# Fails when the kernel library could see a PyTorch header: by its include directories, by what it links, or by an
# #include in its sources.
set(bad "")

string(REPLACE "|" ";" includes "${INCLUDES}")
foreach(dir IN LISTS includes)
  if(dir MATCHES "[Tt]orch/include" OR EXISTS "${dir}/ATen" OR EXISTS "${dir}/c10" OR EXISTS "${dir}/torch")
    string(APPEND bad "include directory ${dir}\n")
  endif()
endforeach()

string(REPLACE "|" ";" libraries "${LIBRARIES}")
foreach(library IN LISTS libraries)
  string(FIND "${library}" "${TORCH_DIR}" in_torch)
  if(library MATCHES "torch|c10" OR NOT in_torch EQUAL -1)
    string(APPEND bad "linked library ${library}\n")
  endif()
endforeach()

file(GLOB_RECURSE files "${SOURCE_DIR}/csrc/*")
if(NOT files)
  string(APPEND bad "${SOURCE_DIR}/csrc has no files\n")
endif()
foreach(file IN LISTS files)
  file(STRINGS "${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"](torch|ATen|c10|caffe2)/")
  foreach(line IN LISTS lines)
    string(APPEND bad "${file}: ${line}\n")
  endforeach()
endforeach()

if(bad)
  message(FATAL_ERROR "csrc/ must not depend on PyTorch:\n${bad}")
endif()
