// Asynchronous copies from global to shared memory (PTX ISA, "cp.async"), sm_80 and later. cuda::ptx has none of them.
#pragma once

#include <cstdint>

#include "csrc/ptx/shared_address.cuh"

namespace pmpp::ptx {

// cp.async.cg.shared.global: 16 bytes, past L1. Both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from))
               : "memory");
}

// The same, but only the first source_bytes of the 16 are read and the rest are zero. With 0 of them `from` need not be
// the address of anything.
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from, int source_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(source_bytes)
               : "memory");
}

// cp.async.ca.shared.global: 4, 8 or 16 bytes, through L1, of which the first source_bytes are read and the rest are
// zero. Both addresses are multiples of kBytes. With source_bytes 0 `from` need not be the address of anything.
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(std::uint32_t to, const void* from, int source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(source_bytes)
               : "memory");
}

// The same, all bytes of which are read.
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "n"(kBytes)
               : "memory");
}

// cp.async.commit_group: the copies since the last one become a group, which may be empty.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group: until at most the kPending youngest groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace pmpp::ptx
