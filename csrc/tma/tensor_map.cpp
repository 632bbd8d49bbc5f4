#include "csrc/tma/tensor_map.hpp"

#include <array>
#include <sstream>

#include "csrc/common/int_math.hpp"

namespace pmpp::tma {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Through the runtime, so that nothing links against the driver and the library loads on machines without one.
Encode driver_encode() {
  static const Encode function = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(address) : nullptr;
  }();
  return function;
}

cudaError_t encode_new(CUtensorMap* map, const MatrixMap& matrix) {
  const Encode function = driver_encode();
  if (function == nullptr) return cudaErrorNotSupported;
  const auto bytes = static_cast<cuuint64_t>(element_size(matrix.dtype));
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(matrix.length), static_cast<cuuint64_t>(matrix.lines),
                               static_cast<cuuint64_t>(matrix.batch)};
  const cuuint64_t pitches[2] = {static_cast<cuuint64_t>(matrix.pitch) * bytes,
                                 static_cast<cuuint64_t>(matrix.batch_pitch) * bytes};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(matrix.box_length), static_cast<cuuint32_t>(matrix.box_lines), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (matrix.dtype == DType::kFloat16) type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (matrix.dtype == DType::kFloat32) type = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  // Lines of a box that lie in two of the cache each would bring four along. H200, bfloat16, 4104 x 4104 x 4104: 270
  // us, and 231 so.
  constexpr std::int64_t kLine = 128;
  const bool is_on_lines = matrix.pitch * element_size(matrix.dtype) % kLine == 0 &&
                           matrix.batch_pitch * element_size(matrix.dtype) % kLine == 0 &&
                           is_aligned(matrix.data, kLine);
  const CUresult result =
      function(map, type, 3, const_cast<void*>(matrix.data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               matrix.is_swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
               is_on_lines ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// A map depends on nothing but the description, so an entry never goes stale.
struct Entry {
  MatrixMap matrix;
  CUtensorMap map;
};

std::size_t slot(const MatrixMap& matrix, std::size_t slots) {
  auto mixed = reinterpret_cast<std::uintptr_t>(matrix.data) / 16;
  for (const std::int64_t value : {matrix.length, matrix.lines, matrix.pitch, std::int64_t{matrix.box_lines}}) {
    mixed = (mixed ^ static_cast<std::uintptr_t>(value)) * 0x9e3779b97f4a7c15u;
  }
  return (mixed >> 32) % slots;
}

}  // namespace

std::string to_string(const MatrixMap& matrix) {
  std::ostringstream out;
  out << "tensor map of " << dtype_name(matrix.dtype) << " at " << matrix.data << ": " << matrix.batch << " x "
      << matrix.lines << " x " << matrix.length << ", pitches " << matrix.batch_pitch << " and " << matrix.pitch
      << ", box " << matrix.box_lines << " x " << matrix.box_length << (matrix.is_swizzled ? "" : ", not swizzled");
  return out.str();
}

cudaError_t encode(CUtensorMap* map, const MatrixMap& matrix) {
  static thread_local std::array<Entry, 64> recent;
  Entry& entry = recent[slot(matrix, recent.size())];
  if (matrix.data == nullptr || !(entry.matrix == matrix)) {
    entry.matrix = {};
    if (const cudaError_t error = encode_new(&entry.map, matrix); error != cudaSuccess) return error;
    entry.matrix = matrix;
  }
  *map = entry.map;
  return cudaSuccess;
}

}  // namespace pmpp::tma
