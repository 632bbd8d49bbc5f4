// tiled: a block of 16 x 16 threads multiplies through a 16 x 16 tile of a and one of b in static shared memory, so that
// each element is read from global memory once for 16 products: 4 FLOP/B in float32.
//
// Phases: k is walked in steps of 16. Barrier 1, after loading: all 256 threads arrive and wait, then every thread may
// read both tiles. Barrier 2, after computing: all arrive and wait, then the tiles may be overwritten.
// Bounds: a thread whose output lies outside d still loads for its neighbours, so loading and computing are checked on
// their own; what lies outside a or b is filled with zero in both tiles, and 0 * 0 leaves every sum as it was.
// Grid as in naive.cuh. No precondition on sizes, strides or alignment.
#pragma once

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

template <class T>
__global__ void __launch_bounds__(kTileWidth* kTileWidth) tiled_matmul_tiled_kernel(const Arguments<T> p) {
  using Acc = AccumulatorOf<T>;
  __shared__ T a_tile[kTileWidth][kTileWidth];
  __shared__ T b_tile[kTileWidth][kTileWidth];

  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * kTileWidth;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * kTileWidth;

  // Loop bounds depend on the block alone, never on the thread: every thread meets every barrier.
  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kTileWidth; row0 < p.m; row0 += row_step) {
      for (std::int64_t col0 = static_cast<std::int64_t>(blockIdx.y) * kTileWidth; col0 < p.n; col0 += col_step) {
        const std::int64_t row = row0 + ty;
        const std::int64_t col = col0 + tx;
        const bool row_inside = row < p.m;
        const bool col_inside = col < p.n;
        const T* __restrict__ a = p.a + z * p.a_batch + row * p.a_row + tx * p.a_col;
        const T* __restrict__ b = p.b + z * p.b_batch + ty * p.b_row + col * p.b_col;
        Acc sum{};
        for (std::int64_t k0 = 0; k0 < p.k; k0 += kTileWidth) {
          a_tile[ty][tx] = row_inside && k0 + tx < p.k ? *a : T{};
          b_tile[ty][tx] = col_inside && k0 + ty < p.k ? *b : T{};
          a += kTileWidth * p.a_col;
          b += kTileWidth * p.b_row;
          __syncthreads();
          if (row_inside && col_inside) {
#pragma unroll
            for (int i = 0; i < kTileWidth; ++i) sum = multiply_add(sum, widen(a_tile[ty][i]), widen(b_tile[i][tx]));
          }
          __syncthreads();
        }
        if (row_inside && col_inside) p.store(z, row, col, sum);
      }
    }
  }
}

}  // namespace pmpp::matmul
