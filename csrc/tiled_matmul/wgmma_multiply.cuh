// The multiplying warpgroups of the wgmma kernel: from the stages of a tile's k to its sums in registers.
#pragma once

#include <cuda/ptx>

#include "csrc/ptx/hopper.cuh"
#include "csrc/ptx/wgmma.cuh"
#include "csrc/tiled_matmul/wgmma_load.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"

namespace pmpp::matmul {

// Where two warpgroups multiply, the first starts so many steps of k before the second: then one of them multiplies, at
// the rate of both, while the other stores its half of a tile. H200, bfloat16, of cuBLAS without and with, each launch
// waited for: 2048 x 2048 x 2048 1.04 and 1.09, 4096 x 4096 x 64 1.02 and 1.14, 8192 x 8192 x 8192 1.08 and 1.08; 1 and
// 3 steps gain less. Launches behind one another showed no difference.
inline constexpr int kLead = 2;
inline constexpr int kLeadBarrier = 4;  // named barrier
// The tiles that realign have no register left for it.
template <WgmmaTile kTile>
inline constexpr bool kHasLead = wgmma_consumers(kTile) == 2 && !splits_in_cluster(kTile) && !kTile.realigns;

// Tells the loading threads that this warpgroup, or (where it reads a fed a) this warp of it, has read a stage.
template <WgmmaTile kTile>
__device__ __forceinline__ void release(const WgmmaShared<kTile>& shared, int stage) {
  const unsigned thread = threadIdx.x % (kWarpgroup / wgmma_releasing_threads(kTile));
  if constexpr (kTile.cluster <= 1) {
    if (thread == 0) cuda::ptx::mbarrier_arrive(shared.empty(stage));
  } else {
    if (thread < kTile.cluster) ptx::mbarrier_arrive_remote(shared.empty(stage), thread);
  }
}

// Zeros for what of a displaced a is outside its rows, in the 64 rows of this warpgroup of step `block` of k, two
// threads a row.
template <class T>
__device__ __forceinline__ void clear_outside(char* rows, const WgmmaArguments<T>& args, int batch, int block,
                                              int consumer) {
  const int begin = displacement(args.schedule, batch) - block * kWgmmaK;
  const int end = begin + static_cast<int>(args.problem.k);
  if (begin <= 0 && end >= kWgmmaK) return;
  const int row = threadIdx.x % kWarpgroup / 2;
  // Not unrolled: the sums leave few registers.
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const int chunk = threadIdx.x % 2 * 4 + i, first = chunk * 8;
    if (first >= begin && first + 8 <= end) continue;
    auto* const words = reinterpret_cast<std::uint32_t*>(rows + row * 128 + ((chunk ^ row) & 7) * 16);
    const auto is_inside = [&](int element) { return element >= begin && element < end; };
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int at = first + word * 2;
      words[word] &= (is_inside(at) ? 0xffffu : 0) | (is_inside(at + 1) ? 0xffff0000u : 0);
    }
  }
  // wgmma reads through the asynchronous proxy what was written here through the generic one.
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  ptx::bar_sync(1 + consumer, kWarpgroup);
}

// This thread's elements of the four products of a step of an a that lies along m.
struct FedStep {
  std::uint32_t a[kWgmmaK / 16][4];

  // `lines`: 32 of k, at the warp's first row.
  template <WgmmaTile kTile>
  __device__ __forceinline__ void read(const char* lines) {
    constexpr int kPitch = wgmma_fed_pitch(kTile);
    const int lane = threadIdx.x % 32;
    const auto* const at = reinterpret_cast<const std::uint32_t*>(lines) + lane % 4 * kPitch + lane / 4;
#pragma unroll
    for (int product = 0; product < kWgmmaK / 16; ++product) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[product][i] = at[(product * 8 + i / 2 * 4) * kPitch + i % 2 * 8];
    }
  }
};

// Zeros, which the compiler must not know: where it moves them it serialises the wgmma (ptxas C7515).
template <int kCount>
__device__ __forceinline__ void clear(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) {
    sum = 0;
    asm volatile("" : "+f"(sum));
  }
}

// What the steps of a tile have in common once their products are issued. One group stays in flight; the one before has
// read its stage.
template <WgmmaTile kTile>
struct StepsInFlight {
  const WgmmaShared<kTile>& shared;
  Ring<kTile.stages>& ring;
  int lead;  // steps after which the second warpgroup is to begin; 0 where it has, or there is none
  int unreleased = -1;

  __device__ __forceinline__ void end_step(int block) {
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
    if (unreleased >= 0) release<kTile>(shared, unreleased);
    unreleased = ring.stage;
    ring.advance();
    if constexpr (kHasLead<kTile>) {
      if (block + 1 == lead) ptx::bar_arrive(kLeadBarrier, 2 * kWarpgroup);
    }
  }
  template <int kCount>
  __device__ __forceinline__ void end_tile(float (&sums)[kCount]) {
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    if (unreleased >= 0) release<kTile>(shared, unreleased);
  }
};

// A tile's steps of k, where a lies along m. The elements of a step are read while the step before is multiplied.
template <class T, WgmmaTile kTile>
__device__ __forceinline__ void multiply_fed(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared, int consumer,
                                             int blocks, Ring<kTile.stages>& ring, int lead) {
  clear(sums);
  const int first_row = consumer * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  StepsInFlight<kTile> steps = {shared, ring, lead};
  const auto step = [&](int block, FedStep& fed) {
    wait(shared.full(ring.stage), ring.phase);
    fed.read<kTile>(shared.a(ring.stage) + first_row * static_cast<int>(sizeof(T)));
    const std::uint32_t b = ptx::shared_address(shared.b(ring.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int product = 0; product < kWgmmaK / 16; ++product) {
      ptx::Wgmma<T, kTile.n, true, false>::mma(sums, fed.a[product], ptx::wgmma_descriptor(b + product * 32, 16, 1024),
                                               block + product > 0);
    }
    steps.end_step(block);
  };
  // Steps take turns with two sets of registers, without a branch in between: ptxas then sees that none is written that
  // a product still reads, and else serialises the wgmma (C7513). A third set, read a step earlier, did not help: H200,
  // 4096 x 4096 x 4096 366 us instead of 343.
  FedStep even, odd;
  int block = 0;
  for (; block + 1 < blocks; block += 2) {
    step(block, even);
    step(block + 1, odd);
  }
  if (block < blocks) step(block, even);
  steps.end_tile(sums);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void multiply(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared, int consumer,
                                         const WgmmaArguments<T>& args, const WorkPiece& work, Ring<kTile.stages>& ring,
                                         int lead) {
  // Within a box: 16 of k are 32 bytes of each line, or 16 lines where the operand lies the other way.
  constexpr int kStepA = kTransA ? 2048 : 32, kLeadingA = kTransA ? kWgmmaBoxBytes : 16;
  constexpr int kStepB = kTransB ? 2048 : 32, kLeadingB = kTransB ? kWgmmaBoxBytes : 16;
  clear(sums);
  StepsInFlight<kTile> steps = {shared, ring, lead};
  const int blocks = work.end - work.begin;
  for (int block = 0; block < blocks; ++block) {
    wait(shared.full(ring.stage), ring.phase);
    if constexpr (kMayDisplace<T, kTile, kTransA, kTransB>) {
      // The displacement differs between the matrices, the number of steps does not: the last may be all outside.
      if (args.schedule.a_displaced && (block == 0 || block + 2 >= blocks)) {
        clear_outside(shared.a(ring.stage) + consumer * kWgmmaBoxBytes, args, work.item.batch, work.begin + block,
                      consumer);
      }
    }
    const std::uint32_t a = ptx::shared_address(shared.a(ring.stage)) + consumer * kWgmmaBoxBytes;
    const std::uint32_t b = ptx::shared_address(shared.b(ring.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWgmmaK / 16; ++step) {
      ptx::Wgmma<T, kTile.n, kTransA, kTransB>::mma(sums, ptx::wgmma_descriptor(a + step * kStepA, kLeadingA, 1024),
                                                    ptx::wgmma_descriptor(b + step * kStepB, kLeadingB, 1024),
                                                    block + step > 0);
    }
    steps.end_step(block);
  }
  steps.end_tile(sums);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void multiply_tile(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared,
                                              int consumer, const WgmmaArguments<T>& args, const WorkPiece& work,
                                              Ring<kTile.stages>& ring, int lead = 0) {
  if constexpr (kTile.feeds_a) {
    multiply_fed<T, kTile>(sums, shared, consumer, work.end - work.begin, ring, lead);
  } else {
    multiply<T, kTile, kTransA, kTransB>(sums, shared, consumer, args, work, ring, lead);
  }
}

}  // namespace pmpp::matmul
