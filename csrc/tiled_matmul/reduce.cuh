// reduce: the sum over the splits of k, and the epilogue. Bound by the bytes of the partial sums.
//
// Tiling: the results of all batches are one line of batch * m * n elements. A block has kGroups groups of
// kReduceThreads / kGroups threads, of which each adds up its share of the splits; the block owns kReduceElements, 16
// bytes of sums, for each thread of a group. They are neighbours where every split starts at a multiple of 16 bytes
// (kVector): then each is one 16-byte read a split, and one write where they lie so in d. Otherwise they are as far
// apart as a group has threads, so that the reads of a warp are still whole lines. Several groups where there are many
// splits, which are then few elements: one thread for all would wait for memory once for every kReduceInFlight splits.
//
// Barrier: after every group has left its sums in shared memory; then the first adds those up.
// Order: a thread adds its splits one after another, then those of the groups, the same in every run. Reads of
// kReduceInFlight splits leave before the first is added.
// Preconditions: blockDim.x = kReduceThreads, one block for each piece of the line.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/index.cuh"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

inline constexpr int kReduceThreads = 128;
template <class Acc>
inline constexpr int kReduceElements = 16 / static_cast<int>(sizeof(Acc));
inline constexpr int kReduceInFlight = 8;
inline constexpr int kReduceGroups = 8;  // from kManySplits on
inline constexpr int kManySplits = 16;

struct Place {
  std::int64_t batch, row, col;
};

template <class T>
__device__ __forceinline__ Place place_of(const Arguments<T>& p, std::int64_t index) {
  const std::int64_t line = divide(index, p.n);
  const std::int64_t batch = divide(line, p.m);
  return {batch, line - batch * p.m, index - line * p.n};
}

template <class T, bool kVector, int kGroups>
__global__ void __launch_bounds__(kReduceThreads)
    tiled_matmul_reduce_kernel(const Arguments<T> p, const AccumulatorOf<T>* __restrict__ partial, int splits) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
#endif
  using Acc = AccumulatorOf<T>;
  constexpr int kElements = kReduceElements<Acc>;
  constexpr int kLanes = kReduceThreads / kGroups;
  constexpr int kStep = kVector ? 1 : kLanes;
  const std::int64_t total = p.batch * p.m * p.n;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * (kLanes * kElements) + lane * (kVector ? kElements : 1);
  const int share = (splits + kGroups - 1) / kGroups;
  const int end = min((group + 1) * share, splits);
  Acc sum[kElements] = {};
  for (int split0 = group * share; split0 < end; split0 += kReduceInFlight) {
    Acc term[kReduceInFlight][kElements];
#pragma unroll
    for (int s = 0; s < kReduceInFlight; ++s) {
      const Acc* const at = partial + (split0 + s) * total + first;
      const bool present = split0 + s < end;
      if constexpr (kVector) {
        if (present && first < total) {
          const uint4 value = __ldcs(reinterpret_cast<const uint4*>(at));
          memcpy(term[s], &value, sizeof(value));
        }
      } else {
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          if (present && first + i * kStep < total) term[s][i] = at[i * kStep];
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kReduceInFlight; ++s) {
      if (split0 + s < end) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) sum[i] = add(sum[i], term[s][i]);
      }
    }
  }

  if constexpr (kGroups > 1) {
    __shared__ Acc sums[kGroups][kElements][kLanes];
#pragma unroll
    for (int i = 0; i < kElements; ++i) sums[group][i][lane] = sum[i];
    __syncthreads();
    if (group > 0) return;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
#pragma unroll
      for (int g = 1; g < kGroups; ++g) sum[i] = add(sum[i], sums[g][i][lane]);
    }
  }
  if constexpr (kVector) {
    if (first >= total) return;
    constexpr int kBytes = kElements * static_cast<int>(sizeof(T));
    const Place place = place_of(p, first);
    T* const d = p.d_at(place.batch, place.row, place.col);
    const bool together = p.n % kElements == 0 && p.d_col == 1 && reinterpret_cast<std::uintptr_t>(d) % kBytes == 0;
    if (together) {
      T result[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        result[i] = p.finish(place.batch, place.row, place.col + i, sum[i]);
      }
      using Word = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, unsigned>>;
      Word word;
      static_assert(sizeof(word) == sizeof(result));
      memcpy(&word, result, sizeof(word));
      *reinterpret_cast<Word*>(d) = word;
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::int64_t index = first + i * kStep;
    if (index < total) {
      const Place place = place_of(p, index);
      p.store(place.batch, place.row, place.col, sum[i]);
    }
  }
}

}  // namespace pmpp::matmul
