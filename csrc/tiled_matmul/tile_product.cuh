// The body that tiled and tiled_dynamic share: a block of kWidth x kWidth threads multiplies through one tile of a and
// one of b in shared memory, so that each element is read from global memory once for kWidth products.
//
// Phases: k is walked in steps of kWidth. Barrier 1, after loading: all threads of the block arrive and wait, then
// every thread may read both tiles. Barrier 2, after computing: all arrive and wait, then the tiles may be overwritten.
// Bounds: a thread whose output lies outside d still loads for its neighbours, so loading and computing are checked on
// their own; what lies outside a or b is filled with zero in both tiles, and 0 * 0 leaves every sum as it was.
// Rows on grid.x, columns on y, batch on z; each axis strides on where the grid was clamped. Precondition: blockDim =
// (kWidth, kWidth), and kWidth * kWidth elements of shared memory behind each pointer.
#pragma once

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

template <int kWidth, class T>
__device__ __forceinline__ void multiply_tiles(const Arguments<T>& p, T* a_tile, T* b_tile) {
  using Acc = AccumulatorOf<T>;
  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * kWidth;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * kWidth;

  // Loop bounds depend on the block alone, never on the thread: every thread meets every barrier.
  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kWidth; row0 < p.m; row0 += row_step) {
      for (std::int64_t col0 = static_cast<std::int64_t>(blockIdx.y) * kWidth; col0 < p.n; col0 += col_step) {
        const std::int64_t row = row0 + ty;
        const std::int64_t col = col0 + tx;
        const bool row_inside = row < p.m;
        const bool col_inside = col < p.n;
        const T* __restrict__ a = p.a + z * p.a_batch + row * p.a_row + tx * p.a_col;
        const T* __restrict__ b = p.b + z * p.b_batch + ty * p.b_row + col * p.b_col;
        Acc sum{};
        for (std::int64_t k0 = 0; k0 < p.k; k0 += kWidth) {
          a_tile[ty * kWidth + tx] = row_inside && k0 + tx < p.k ? *a : T{};
          b_tile[ty * kWidth + tx] = col_inside && k0 + ty < p.k ? *b : T{};
          a += kWidth * p.a_col;
          b += kWidth * p.b_row;
          __syncthreads();
          if (row_inside && col_inside) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
              sum = multiply_add(sum, widen(a_tile[ty * kWidth + i]), widen(b_tile[i * kWidth + tx]));
            }
          }
          __syncthreads();
        }
        if (row_inside && col_inside) p.store(z, row, col, sum);
      }
    }
  }
}

}  // namespace pmpp::matmul
