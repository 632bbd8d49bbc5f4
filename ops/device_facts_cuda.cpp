#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <deque>
#include <mutex>
#include <sstream>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/launch.hpp"
#include "ops/device_facts.h"

namespace pmpp::ops {
namespace {

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, name, index);
  TORCH_CHECK(error == cudaSuccess, "pmpp: reading attribute ", static_cast<int>(name), " of cuda:", index,
              " failed: ", cudaGetErrorString(error));
  return value;
}

DeviceFacts read_facts(int index) {
  DeviceFacts facts;
  facts.is_cuda = true;
  facts.compute_capability =
      attribute(cudaDevAttrComputeCapabilityMajor, index) * 10 + attribute(cudaDevAttrComputeCapabilityMinor, index);
  facts.sm_count = attribute(cudaDevAttrMultiProcessorCount, index);
  facts.shared_memory_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlock, index);
  facts.shared_memory_opt_in = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  facts.max_threads_per_block = attribute(cudaDevAttrMaxThreadsPerBlock, index);
  return facts;
}

struct Entry {
  std::once_flag read;
  DeviceFacts facts;
  std::once_flag searched;
  bool has_kernels = false;
};

int index_of(const c10::Device& device) { return device.has_index() ? device.index() : c10::cuda::current_device(); }

Entry& entry_of(const c10::Device& device) {
  // A deque because a once_flag cannot move; as long as the process has devices.
  static std::deque<Entry> table(c10::cuda::device_count());
  const int index = index_of(device);
  TORCH_CHECK(index >= 0 && index < static_cast<int>(table.size()), "pmpp: device cuda:", index,
              " does not exist; there are ", table.size(), " CUDA devices");
  return table[index];
}

}  // namespace

const DeviceFacts& cuda_device_facts(const c10::Device& device) {
  Entry& entry = entry_of(device);
  std::call_once(entry.read, [&] { entry.facts = read_facts(index_of(device)); });
  return entry.facts;
}

bool cuda_device_has_kernels(const c10::Device& device) {
  Entry& entry = entry_of(device);
  std::call_once(entry.searched, [&] {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index_of(device)));
    entry.has_kernels = transposition::find_kernels() == cudaSuccess;
    // A failed search is no error of the program's next call.
    if (!entry.has_kernels) cudaGetLastError();
  });
  return entry.has_kernels;
}

void check_alignment(const char* op, const char* name, const void* data, std::uintptr_t alignment) {
  TORCH_CHECK(is_aligned(data, alignment), op, ": expected the data of ", name, " to start at a multiple of ",
              alignment, " bytes on a CUDA device, but it starts at ", data);
}

std::string launch_failure(const c10::Device& device, int error) {
  const auto code = static_cast<cudaError_t>(error);
  std::ostringstream text;
  text << cudaGetErrorString(code);
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
    const int capability = cuda_device_facts(device).compute_capability;
    text << "; " << device << " has compute capability " << capability / 10 << "." << capability % 10
         << ", and this build of pmpp has code for " << PMPP_CUDA_ARCHS
         << " (rebuild with PMPP_CUDA_ARCHS=" << capability << ")";
  }
  return text.str();
}

}  // namespace pmpp::ops
