// vectorized, aligned: both matrices start and have all rows on 16-byte boundaries, and whole chunks for sides. A
// thread reads V chunks of V source rows, transposes the V x V elements in registers, and passes chunks of destination
// rows through shared memory, so that both the reads and the writes of global memory are runs of kSourceBytes and
// kDestBytes in accesses of 16 bytes. About one instruction for each 1-byte element.
//
// Tiling: a block owns kDestBytes / element size source rows by kSourceBytes / element size columns. Row tiles first,
// so that neighbouring blocks walk along destination rows: +1 to +3 % against walking along source rows, which is for
// matrices whose fetches tiles in a row have to share (kFetchBytes).
//
// Shared memory: destination rows of kDestBytes; chunk c of the rows of column group x lies at c ^ (x & 7), so that the
// eight lanes that share an access hit eight different groups of banks, writing (eight x, one c) and reading (one
// row, eight c).
//
// Barrier, after the tile is written: all threads arrive and wait, then rows are read. Each block owns one tile.
//
// Preconditions: unit stride along source and destination rows; both base addresses, pitches, batch strides and m, n
// are multiples of 16 bytes.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <class E, int kSourceBytes, int kDestBytes, int kThreads>
__global__ void __launch_bounds__(kThreads)
    padded_transpose_aligned_kernel(const Arguments<E> p, const unsigned tiles_on_line, const bool along_source) {
  constexpr int V = kPerChunk<E>;
  constexpr int kCols = kSourceBytes / static_cast<int>(sizeof(E));
  constexpr int kRows = kDestBytes / static_cast<int>(sizeof(E));
  constexpr int kX = kSourceBytes / kChunkBytes;  // chunks of a source row
  constexpr int kY = kDestBytes / kChunkBytes;    // of a destination row
  constexpr int kLoadStep = kThreads / kX;
  constexpr int kStoreStep = kThreads / kY;
  constexpr int kUnits = kX * kY / kThreads;
  static_assert(kThreads % kX == 0 && kThreads % kY == 0 && kX * kY % kThreads == 0 && kY >= 8);
  extern __shared__ __align__(128) uint4 tile[];

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const unsigned line = blockIdx.x / tiles_on_line;
  const unsigned on_line = blockIdx.x - line * tiles_on_line;
  const std::int64_t i0 = static_cast<std::int64_t>(along_source ? line : on_line) * kRows;
  const std::int64_t j0 = static_cast<std::int64_t>(along_source ? on_line : line) * kCols;

  const int x = threadIdx.x % kX;
  const int y0 = threadIdx.x / kX;
  const E* const in = p.in + z * p.in_batch + (i0 + y0 * V) * p.in_row + j0 + x * V;
  const bool inside = j0 + x * V < p.n;
  // All loads before the first use: kUnits * V accesses in flight for each thread.
  uint4 chunk[kUnits][V];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (inside && i0 + (y0 + u * kLoadStep) * V < p.m) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        chunk[u][v] = *reinterpret_cast<const uint4*>(in + (u * kLoadStep * V + v) * p.in_row);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    transpose_chunks<E>(chunk[u]);
#pragma unroll
    for (int v = 0; v < V; ++v) tile[(x * V + v) * kY + ((y0 + u * kLoadStep) ^ (x & 7))] = chunk[u][v];
  }
  __syncthreads();

  const int c = threadIdx.x % kY;
  const int col0 = threadIdx.x / kY;
  if (i0 + c * V >= p.m) return;
  const int cols = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(kCols)));
  E* const out = p.out + z * p.out_batch + (j0 + col0) * p.out_row + i0 + c * V;
#pragma unroll
  for (int k = 0; k < kCols / kStoreStep; ++k) {
    const int col = col0 + k * kStoreStep;
    if (col < cols) store_chunk(out + k * kStoreStep * p.out_row, tile[col * kY + (c ^ (col / V & 7))]);
  }
}

}  // namespace pmpp::transposition
