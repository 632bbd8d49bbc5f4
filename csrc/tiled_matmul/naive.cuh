// naive: one thread an output element; both operands come from global memory for every product, 2 * k reads for
// 2 * k FLOPs, so 0.25 FLOP/B in float32. The first step of the ladder, and the reference of the others.
//
// Tiling: a block of 16 x 16 threads owns 16 x 16 outputs; threadIdx.x walks along n, so that reads of a row-major b
// and writes of d are coalesced. Rows on grid.x, columns on y, batch on z; each axis strides on where the grid was
// clamped.
#pragma once

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

template <class T>
__global__ void __launch_bounds__(kTileWidth* kTileWidth) tiled_matmul_naive_kernel(const Arguments<T> p) {
  using Acc = AccumulatorOf<T>;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * kTileWidth;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * kTileWidth;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kTileWidth + threadIdx.y;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.y) * kTileWidth + threadIdx.x;

  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row = first_row; row < p.m; row += row_step) {
      for (std::int64_t col = first_col; col < p.n; col += col_step) {
        const T* __restrict__ a = p.a + z * p.a_batch + row * p.a_row;
        const T* __restrict__ b = p.b + z * p.b_batch + col * p.b_col;
        Acc sum{};
        for (std::int64_t i = 0; i < p.k; ++i) {
          sum = multiply_add(sum, widen(*a), widen(*b));
          a += p.a_col;
          b += p.b_row;
        }
        p.store(z, row, col, sum);
      }
    }
  }
}

}  // namespace pmpp::matmul
