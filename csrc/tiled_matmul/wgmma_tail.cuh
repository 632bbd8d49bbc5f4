// The last tiles of a wgmma product, where they are too few for all multiprocessors: each in pieces of k, worked on by
// several blocks, of which the one that is done last adds up the sums of all and writes the result.
//
// No block waits for another, so that none needs the others to be resident. Pieces are added in the order of k, whoever
// is last, so that the result is the same in every run.
//
// Sums lie in the workspace as in the registers, 16 bytes of a warpgroup's threads side by side. `arrivals` counts the
// pieces of a tile that are done, for each warpgroup by itself. It may hold anything before: a count is one only
// together with the launch's tag. The last clears it, since a CUDA graph repeats a launch with its tag.
#pragma once

#include <cstdint>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"

namespace pmpp::matmul {

// Counts a piece, and says how many were done before.
__device__ __forceinline__ int arrive_at_tail(unsigned long long* arrivals, unsigned long long tag) {
  constexpr unsigned long long kCount = 0xff;
  unsigned long long found = *static_cast<volatile unsigned long long*>(arrivals), expected;
  do {
    expected = (found & ~kCount) == tag ? found : tag;
    const unsigned long long before = found;
    found = atomicCAS(arrivals, before, expected + 1);
    if (found == before) break;
  } while (true);
  return static_cast<int>(expected & kCount);
}

// `in_tail`: the number of this item among those of the tail. Whether the piece was the tile's last: then `sums` are
// those of all pieces. All threads of a warpgroup.
template <WgmmaTile kTile>
__device__ __forceinline__ bool add_pieces_of_tail(float (&sums)[kTile.n / 2], const WgmmaSchedule& s,
                                                   const WgmmaShared<kTile>& shared, int consumer,
                                                   std::int32_t in_tail) {
  constexpr int kConsumers = wgmma_consumers(kTile), kGroups = kTile.n / 8;  // of 4 sums
  constexpr int kInFlight = kTile.per_sm > 2 || kGroups < 8 ? (kGroups < 4 ? kGroups : 4) : kGroups == 32 ? 16 : 8;
  static_assert(kGroups % kInFlight == 0);
  // Unknown to the compiler: what follows from them would be kept in registers through the product.
  unsigned thread_of_block = threadIdx.x;
  asm volatile("" : "+r"(in_tail), "+r"(thread_of_block));
  const std::int32_t own = in_tail / s.tail_tiles, tile = in_tail - own * s.tail_tiles;
  const int thread = static_cast<int>(thread_of_block % kWarpgroup);
  // Of this thread, in the sums of a piece.
  const auto sums_of = [&](std::int32_t piece) {
    const std::int64_t item = std::int64_t{piece} * s.tail_tiles + tile;
    return reinterpret_cast<float4*>(s.tail_sums + item * (kTile.m * kTile.n)) + consumer * (kGroups * kWarpgroup) +
           thread;
  };
  float4* const to = sums_of(own);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    __stcg(to + i * kWarpgroup, make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  }
  __threadfence();
  ptx::bar_sync(1 + consumer, kWarpgroup);
  if (thread == 0) {
    unsigned long long* const arrivals = s.arrivals + tile * kConsumers + consumer;
    const int done = arrive_at_tail(arrivals, s.launch_tag);
    if (done + 1 == s.tail_splits) *arrivals = 0;
    *shared.pieces_done(consumer) = done;
    __threadfence();
  }
  ptx::bar_sync(1 + consumer, kWarpgroup);
  if (*static_cast<volatile int*>(shared.pieces_done(consumer)) + 1 < s.tail_splits) return false;

#pragma unroll
  for (float& sum : sums) sum = 0;
#pragma unroll 1
  for (std::int32_t piece = 0; piece < s.tail_splits; ++piece) {
    const float4* const from = sums_of(piece);
#pragma unroll
    for (int first = 0; first < kGroups; first += kInFlight) {
      float4 terms[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) terms[i] = __ldcg(from + (first + i) * kWarpgroup);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        float* const sum = sums + 4 * (first + i);
        sum[0] += terms[i].x, sum[1] += terms[i].y, sum[2] += terms[i].z, sum[3] += terms[i].w;
      }
      asm volatile("" ::: "memory");  // more loads on their way would not fit the registers
    }
  }
  return true;
}

}  // namespace pmpp::matmul
