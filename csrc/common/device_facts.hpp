// What selection has to know of a device. Filled in once a device by the layer above and passed by value, so that
// selection stays a pure function that can be tested for any device on any machine.
#pragma once

#include <cstdint>
#include <limits>

#include "csrc/common/cpu_isa.hpp"

namespace pmpp {

struct DeviceFacts {
  bool is_cuda = false;
  int compute_capability = 0;       // major * 10 + minor; 90 on an H200
  int sm_count = 0;                 // streaming multiprocessors
  int shared_memory_per_block = 0;  // bytes a block gets without opting in to more
  int shared_memory_opt_in = 0;     // bytes a block gets at most
  int max_threads_per_block = 0;
  int cpu_threads = 1;  // CPU: threads that the caller will use
  CpuIsa cpu_isa = CpuIsa::kPortable;
  // CPU: bytes from which a transposed result is written past the caches.
  std::int64_t cpu_stream_bytes = std::numeric_limits<std::int64_t>::max();
};

constexpr DeviceFacts cpu_facts(int threads, CpuIsa isa = CpuIsa::kPortable,
                                std::int64_t stream_bytes = std::numeric_limits<std::int64_t>::max()) {
  DeviceFacts facts;
  facts.cpu_threads = threads;
  facts.cpu_isa = isa;
  facts.cpu_stream_bytes = stream_bytes;
  return facts;
}

// NVIDIA H200 SXM, as cudaGetDeviceProperties reports it.
constexpr DeviceFacts h200_facts() {
  DeviceFacts facts;
  facts.is_cuda = true;
  facts.compute_capability = 90;
  facts.sm_count = 132;
  facts.shared_memory_per_block = 48 * 1024;
  facts.shared_memory_opt_in = 227 * 1024;
  facts.max_threads_per_block = 1024;
  return facts;
}

// Blocks of a launch along x, and along y or z, on every compute capability since 3.0. Kernels stride over the rest, so
// no size is refused.
inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYZ = 65535;

}  // namespace pmpp
