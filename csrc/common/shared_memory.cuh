// Dynamic shared memory beyond the 48 KiB that a block gets without asking.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace pmpp {

// Lets a kernel have kBytes of dynamic shared memory on the current device, once for each device.
template <auto kKernel, int kBytes>
cudaError_t allow_shared_memory() {
  static std::atomic<std::uint64_t> done{0};  // a bit for each of the first 64 devices
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
  if ((done.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error == cudaSuccess) done.fetch_or(bit, std::memory_order_relaxed);
  return error;
}

}  // namespace pmpp
