// tiled_dynamic: as tiled.cuh, but the width of the tile (8, 16 or 32) is chosen at run time from what the device offers
// a block, and both tiles live in one buffer of dynamic shared memory: 8 FLOP/B in float32 at width 32.
//
// The second half of the buffer starts width * width *elements* after the first; adding that count to a byte pointer
// would overlap the halves for every type wider than a byte.
// Barriers, bounds and grid as in tiled.cuh. Preconditions: blockDim = (width, width), width a multiple of 8, and
// dynamic_tile_bytes(width, sizeof(T)) bytes of dynamic shared memory.
#pragma once

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

template <class T>
__global__ void __launch_bounds__(kMaxDynamicTileWidth* kMaxDynamicTileWidth)
    tiled_matmul_tiled_dynamic_kernel(const Arguments<T> p) {
  using Acc = AccumulatorOf<T>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];

  const int width = blockDim.x;
  T* const a_tile = reinterpret_cast<T*>(shared_bytes);
  T* const b_tile = a_tile + width * width;

  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * width;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * width;

  // Loop bounds depend on the block alone, never on the thread: every thread meets every barrier.
  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * width; row0 < p.m; row0 += row_step) {
      for (std::int64_t col0 = static_cast<std::int64_t>(blockIdx.y) * width; col0 < p.n; col0 += col_step) {
        const std::int64_t row = row0 + ty;
        const std::int64_t col = col0 + tx;
        const bool row_inside = row < p.m;
        const bool col_inside = col < p.n;
        const T* __restrict__ a = p.a + z * p.a_batch + row * p.a_row + tx * p.a_col;
        const T* __restrict__ b = p.b + z * p.b_batch + ty * p.b_row + col * p.b_col;
        const T* const a_row = a_tile + ty * width;
        Acc sum{};
        for (std::int64_t k0 = 0; k0 < p.k; k0 += width) {
          a_tile[ty * width + tx] = row_inside && k0 + tx < p.k ? *a : T{};
          b_tile[ty * width + tx] = col_inside && k0 + ty < p.k ? *b : T{};
          a += width * p.a_col;
          b += width * p.b_row;
          __syncthreads();
          if (row_inside && col_inside) {
            // Every width is a multiple of 8, so the unrolled body needs no remainder.
            const T* b_col = b_tile + tx;
            for (int i = 0; i < width; i += 8) {
#pragma unroll
              for (int j = 0; j < 8; ++j) {
                sum = multiply_add(sum, widen(a_row[i + j]), widen(*b_col));
                b_col += width;
              }
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
