// Instructions of sm_90 that cuda::ptx lacks, one function each, named as the instruction in the PTX ISA.
#pragma once

#include <cstdint>

#include "csrc/ptx/shared_address.cuh"

namespace pmpp::ptx {

// setmaxnreg: registers a thread of this warpgroup may hold from here on, a multiple of 8. sm_90a.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// mbarrier.arrive at the same barrier of another block of the cluster. cuda::ptx has it with .release.cluster alone,
// which the compiler turns into a fence of the whole GPU before every arrival: 8192 x 8192 x 8192 at .57 of cuBLAS
// instead of .88. What is handed back here was only read, through the asynchronous proxy, so nothing has to be
// released.
__device__ __forceinline__ void mbarrier_arrive_remote(std::uint64_t* barrier, std::uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}

// stmatrix: four 8 x 8 matrices of 16-bit elements, of which lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// griddepcontrol.wait: until the kernel before, which this one may have been started beside, has finished and its
// writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// griddepcontrol.launch_dependents: lets the kernel behind start its blocks as soon as there is room.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// prefetch.tensormap: brings a tensor map that is a kernel parameter to where the loads look it up.
__device__ __forceinline__ void prefetch_tensormap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// bar.sync of `threads` threads of the block; barrier 0 is __syncthreads().
__device__ __forceinline__ void bar_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// bar.arrive: counts this thread in without waiting.
__device__ __forceinline__ void bar_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ld.global.nc of the 2 or 4 bytes at an address, for what it leaves in L1.
template <class T>
__device__ __forceinline__ void load_and_discard(const T* at) {
  if constexpr (sizeof(T) == 2) {
    std::uint16_t ignored;
    asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(ignored) : "l"(__cvta_generic_to_global(at)));
  } else {
    static_assert(sizeof(T) == 4);
    std::uint32_t ignored;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(ignored) : "l"(__cvta_generic_to_global(at)));
  }
}

}  // namespace pmpp::ptx
