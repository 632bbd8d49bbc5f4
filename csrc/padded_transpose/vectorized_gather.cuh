// vectorized, gather: elements of 2, 4 and 8 bytes, any base, pitch and size. Source rows are staged in shared memory
// as they lie, in aligned chunks; a thread then gathers the V elements of a destination chunk from V staged rows, from
// wherever they are, and writes the chunk where it is aligned. Nothing is shifted, and one barrier is all.
//
// Tiling: a block owns kDestBytes / element size source rows by kSourceBytes / element size columns, and reads kHalo
// bytes worth of rows before its own, since a destination row starts up to that far behind a boundary of kHalo bytes:
// it writes from the last boundary before its first element on. With 32 no two blocks share a sector. Row tiles first.
// A warp writes kLanes chunks of each of 32 / kLanes destination rows. A thread keeps to columns at a distance at which
// destination rows repeat their position relative to a boundary, so that the addresses of its V elements are computed
// once, and from column to column differ by a constant.
//
// Shared memory: V rows, at a pitch of one chunk more than they are wide, are a group, and each group is followed by
// one chunk: groups then lie an odd number of chunks apart, and eight lanes that read eight groups hit eight
// different groups of banks.
//
// Barrier, after staging: all threads arrive and wait. Each block owns one tile.
//
// Of the first and the last chunk of rows only what belongs to the matrix is touched.
// Precondition: unit stride along source and destination rows.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <int kElementSize, int kSourceBytes, int kDestBytes, int kHalo>
struct GatherTile {
  static constexpr int V = kChunkBytes / kElementSize;
  static constexpr int kCols = kSourceBytes / kElementSize;
  static constexpr int kRows = kDestBytes / kElementSize;
  static constexpr int kHaloRows = kHalo / kElementSize;
  static constexpr int kPitch = kSourceBytes + kChunkBytes;
  static constexpr int kGroupBytes = V * kPitch + kChunkBytes;
  static constexpr int kSharedBytes = (kRows + kHaloRows) / V * kGroupBytes;

  // Where staged row `row` begins.
  static __device__ __forceinline__ int at(int row) { return row / V * kGroupBytes + row % V * kPitch; }
};

template <class E, int kSourceBytes, int kDestBytes, int kThreads, int kLanes, int kHalo>
__global__ void __launch_bounds__(kThreads)
    padded_transpose_gather_kernel(const Arguments<E> p, const unsigned row_tiles) {
  constexpr int kElementSize = sizeof(E);
  using Tile = GatherTile<kElementSize, kSourceBytes, kDestBytes, kHalo>;
  constexpr int V = Tile::V;
  extern __shared__ __align__(128) uint4 shared[];
  char* const staged = reinterpret_cast<char*>(shared);

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const unsigned col_tile = blockIdx.x / row_tiles;
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.x - col_tile * row_tiles) * Tile::kRows;
  const std::int64_t j0 = static_cast<std::int64_t>(col_tile) * Tile::kCols;
  const std::int64_t first_row = i0 - Tile::kHaloRows;
  const std::int64_t pitch = p.in_row * kElementSize;
  const std::uintptr_t origin = address_of(p.in + z * p.in_batch + first_row * p.in_row + j0);
  const unsigned origin_low = static_cast<unsigned>(origin);
  const unsigned pitch_low = static_cast<unsigned>(pitch);

  // All but the blocks along the edges stage without looking at each chunk.
  constexpr int kAllRows = Tile::kRows + Tile::kHaloRows;
  constexpr int kChunks = kSourceBytes / kChunkBytes;
  constexpr int kStageStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kStageStep % V == 0, "a thread stays at one place within a group");
  const bool interior = first_row >= 0 && i0 + Tile::kRows <= p.m && j0 >= V && j0 + Tile::kCols + V <= p.n;
  if (interior) {
    const int chunk = threadIdx.x % kChunks;
    const auto row_start = [&](int row) { return (origin + row * pitch) & ~std::uintptr_t{15}; };
    stage_chunks<(kAllRows + kStageStep - 1) / kStageStep>(
        threadIdx.x / kChunks, kStageStep, kAllRows, [&](int row) { return row_start(row) + chunk * kChunkBytes; },
        [&](int row) { return staged + Tile::at(row) + chunk * kChunkBytes; });
    // A row that starts off a boundary ends in one chunk more.
    if (((origin_low | pitch_low) & 15) != 0) {
      stage_chunks<1>(
          threadIdx.x, kThreads, kAllRows, [&](int row) { return row_start(row) + kSourceBytes; },
          [&](int row) { return staged + Tile::at(row) + kSourceBytes; });
    }
  } else {
    for (int index = threadIdx.x; index < kAllRows * (kChunks + 1); index += kThreads) {
      const int row = index / (kChunks + 1);
      const int chunk = index % (kChunks + 1);
      if (first_row + row < 0 || first_row + row >= p.m) continue;
      const std::uintptr_t start = origin + row * pitch;
      const std::uintptr_t begin = start - j0 * kElementSize;
      stage_checked<E, 16>(staged + Tile::at(row) + chunk * kChunkBytes,
                           (start & ~std::uintptr_t{15}) + chunk * kChunkBytes, begin, begin + p.n * kElementSize);
    }
  }
  wait_for_staged();
  __syncthreads();

  constexpr int kRuns = kDestBytes / (kChunkBytes * kLanes);  // that warps write side by side along a destination row
  constexpr int kColStep = 32 / kLanes * (kThreads / 32 / kRuns);
  static_assert(kRuns > 0 && kThreads / 32 % kRuns == 0);
  static_assert(kColStep * kElementSize % (kHalo > 0 ? kHalo : 1) == 0, "destination rows of a thread lie alike");
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int chunk = warp % kRuns * kLanes + lane % kLanes;
  const int col0 = warp / kRuns * (32 / kLanes) + lane / kLanes;
  char* out = reinterpret_cast<char*>(p.out + z * p.out_batch + (j0 + col0) * p.out_row + i0);
  const int shift = kHalo > 0 ? static_cast<int>(address_of(out) & (kHalo - 1)) / kElementSize : 0;
  const int row = Tile::kHaloRows + chunk * V - shift;
  const char* from[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    from[v] = staged + Tile::at(row + v) + ((origin_low + (row + v) * pitch_low) & 15) + col0 * kElementSize;
  }
  out += (chunk * V - shift) * kElementSize;
  const int cols = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(Tile::kCols))) - col0;
  const std::int64_t first = first_row + row;  // the source row of the chunk's first element
  const std::int64_t out_step = kColStep * p.out_row * kElementSize;
  constexpr int kSteps = (Tile::kCols + kColStep - 1) / kColStep;
  if (first >= 0 && first + V <= p.m) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k * kColStep < cols) {
        E element[V];
#pragma unroll
        for (int v = 0; v < V; ++v) element[v] = *reinterpret_cast<const E*>(from[v] + k * kColStep * kElementSize);
        store_chunk(out, chunk_of(element));
      }
      out += out_step;
    }
  } else {
    for (int k = 0; k * kColStep < cols; ++k) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v >= 0 && first + v < p.m) {
          reinterpret_cast<E*>(out)[v] = *reinterpret_cast<const E*>(from[v] + k * kColStep * kElementSize);
        }
      }
      out += out_step;
    }
  }
}

}  // namespace pmpp::transposition
