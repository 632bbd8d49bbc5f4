// tiled_dynamic: as tiled.cuh, but the width of the tile (8, 16 or 32) is chosen at run time from what the device
// offers a block, and both tiles live in one buffer of dynamic shared memory: 8 FLOP/B in float32 at width 32.
//
// The second half of the buffer starts width * width *elements* after the first; adding that count to a byte pointer
// would overlap the halves for every type wider than a byte.
// The kernel holds one body a width, because a loop over a width that the compiler does not know reads the row of a
// element by element: 6.5 instead of 8.1 TFLOP/s (H200, float32, 4096^3).
// Preconditions: blockDim = (width, width), and dynamic_tile_bytes(width, sizeof(T)) bytes of dynamic shared memory.
#pragma once

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/tile_product.cuh"

namespace pmpp::matmul {

template <class T>
__global__ void __launch_bounds__(kMaxDynamicTileWidth* kMaxDynamicTileWidth)
    tiled_matmul_tiled_dynamic_kernel(const Arguments<T> p) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const unsigned width = blockDim.x;
  T* const a_tile = reinterpret_cast<T*>(shared_bytes);
  T* const b_tile = a_tile + width * width;
  if (width == 32) {
    multiply_tiles<32>(p, a_tile, b_tile);
  } else if (width == 16) {
    multiply_tiles<16>(p, a_tile, b_tile);
  } else {
    multiply_tiles<8>(p, a_tile, b_tile);
  }
}

}  // namespace pmpp::matmul
