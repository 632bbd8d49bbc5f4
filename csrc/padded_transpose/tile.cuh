// shared, padded, padded16: a tile goes through shared memory, so that both the reads and the writes of global memory
// run along rows. The three differ in the width of the tile and in its padding only.
//
// shared, 32 x 32: a column of 4-byte elements lies in one bank, so a warp's read takes 32 turns. Kept to show that.
//
// padded, 32 x 33: one element of padding spreads a column over all 32 banks.
//
// padded16, 16 x 17: the same with a quarter of the shared memory.
//
// Tiling: a block of kWidth x kTileRows threads owns kWidth x kWidth elements. Rows on grid.x, columns on y, batch on
// z; each axis strides on where the grid was clamped.
//
// Barrier 1, after loading: all threads arrive and wait, then columns of the tile may be read. Barrier 2, after
// storing: all arrive and wait, then the tile may be overwritten.
//
// No precondition on sizes, strides or alignment beyond that of the element.
#pragma once

#include "csrc/padded_transpose/config.hpp"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <class E, int kWidth, int kPad>
__global__ void __launch_bounds__(kWidth* kTileRows) padded_transpose_tile_kernel(const Arguments<E> p) {
  static_assert(kWidth % kTileRows == 0, "every thread moves the same number of rows");
  constexpr int kRowsPerThread = kWidth / kTileRows;
  __shared__ E tile[kWidth][kWidth + kPad];

  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * kWidth;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * kWidth;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kWidth;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.y) * kWidth;

  // Loop bounds depend on the block alone, never on the thread: every thread meets every barrier.
  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row0 = first_row; row0 < p.m; row0 += row_step) {
      for (std::int64_t col0 = first_col; col0 < p.n; col0 += col_step) {
        // All loads before the first store to the tile: four in flight for each thread.
        E moved[kRowsPerThread];
        const E* __restrict__ in = p.in + z * p.in_batch + (row0 + ty) * p.in_row + (col0 + tx) * p.in_col;
#pragma unroll
        for (int r = 0; r < kRowsPerThread; ++r) {
          if (row0 + ty + r * kTileRows < p.m && col0 + tx < p.n) moved[r] = in[r * kTileRows * p.in_row];
        }
#pragma unroll
        for (int r = 0; r < kRowsPerThread; ++r) {
          if (row0 + ty + r * kTileRows < p.m && col0 + tx < p.n) tile[ty + r * kTileRows][tx] = moved[r];
        }
        __syncthreads();
        E* __restrict__ out = p.out + z * p.out_batch + (col0 + ty) * p.out_row + (row0 + tx) * p.out_col;
#pragma unroll
        for (int r = 0; r < kRowsPerThread; ++r) {
          if (col0 + ty + r * kTileRows < p.n && row0 + tx < p.m) {
            out[r * kTileRows * p.out_row] = tile[tx][ty + r * kTileRows];
          }
        }
        __syncthreads();
      }
    }
  }
}

}  // namespace pmpp::transposition
