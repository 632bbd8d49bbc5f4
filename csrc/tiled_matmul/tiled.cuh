// tiled: 16 x 16 threads a block and two 16 x 16 tiles in static shared memory, which raises the intensity from 0.25 to
// 4 FLOP/B in float32. Barriers, bounds and grid: see tile_product.cuh.
#pragma once

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/tile_product.cuh"

namespace pmpp::matmul {

template <class T>
__global__ void __launch_bounds__(kTileWidth* kTileWidth) tiled_matmul_tiled_kernel(const Arguments<T> p) {
  // 16-byte alignment lets a thread read its row of a in 16-byte pieces.
  __shared__ __align__(16) T a_tile[kTileWidth * kTileWidth];
  __shared__ __align__(16) T b_tile[kTileWidth * kTileWidth];
  multiply_tiles<kTileWidth>(p, a_tile, b_tile);
}

}  // namespace pmpp::matmul
