// mma in float64 and complex128: tile shapes and their shared memory.
#pragma once

#include <cstdint>

#include "csrc/common/dtype.hpp"

namespace pmpp::matmul {

// A block's tile of d and the warps that share it out. The real and the imaginary parts of complex128 lie in planes of
// their own.
struct Mma64Tile {
  int m, n;
  int warps_m, warps_n;
  int stages;      // steps in shared memory at once
  int min_blocks;  // blocks on a multiprocessor that registers must allow
  int planes;      // 1: float64; 2: complex128

  constexpr int warp_m() const { return m / warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
  constexpr int threads() const { return 32 * warps_m * warps_n; }
};

inline constexpr int kMma64K = 16;  // of a step

// Plan::config is an index into this. With warps of 64 x 32 outputs a lane reads 24 numbers for 16 products, which
// keeps shared memory busy for less than half of their time. Sixteen warps of 32 x 32 on a tile of 128 x 128 were no
// faster (H200, 4096 x 4096 x 4096: 3.5 ms), and in complex128 no larger tile than 32 x 32 was: 1.55 ms at 2048 x 2048
// x 2048, 1.70 with 64 x 64.
inline constexpr Mma64Tile kMma64Tiles[] = {
    {128, 128, 2, 4, 4, 1, 1},  // 0
    {64, 64, 2, 2, 4, 2, 1},    // 1
    {32, 32, 2, 2, 4, 4, 1},    // 2
    {32, 32, 2, 2, 3, 3, 2},    // 3
};
inline constexpr int kMma64Configs = sizeof(kMma64Tiles) / sizeof(kMma64Tiles[0]);

constexpr int mma64_planes(DType dtype) { return dtype == DType::kFloat64 ? 1 : dtype == DType::kComplex128 ? 2 : 0; }

constexpr int mma64_stage_bytes(const Mma64Tile& tile) { return tile.planes * kMma64K * (tile.m + tile.n) * 8; }
constexpr int mma64_shared_bytes(const Mma64Tile& tile) { return tile.stages * mma64_stage_bytes(tile); }

// Where (k, mn) of a tile that is `lines` wide lies in a stage, in numbers. The low bits of mn are mixed with k, so
// that the lanes of half a warp meet in no bank, both where they read 4 neighbours of mn for 4 of k and where they
// write 16 of k side by side.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr int
    mma64_at(int k, int mn, int lines) {
  return k * lines + (mn ^ ((k & 3) << 2 | (k >> 2 & 3)));
}

static_assert([] {
  for (const Mma64Tile& tile : kMma64Tiles) {
    const bool fits = tile.warp_m() % 16 == 0 && tile.warp_n() % 8 == 0 && tile.m % 16 == 0 && tile.n % 16 == 0;
    // Every thread copies as many elements, along k or along m or n.
    const bool copies = tile.threads() % kMma64K == 0 && tile.m % (tile.threads() / kMma64K) == 0 &&
                        tile.n % (tile.threads() / kMma64K) == 0 && tile.threads() % tile.m == 0 &&
                        tile.threads() % tile.n == 0 && kMma64K % (tile.threads() / tile.m) == 0 &&
                        kMma64K % (tile.threads() / tile.n) == 0;
    if (!fits || !copies || mma64_shared_bytes(tile) * tile.min_blocks > 227 * 1024 - 1024 * tile.min_blocks) {
      return false;
    }
  }
  return true;
}());

}  // namespace pmpp::matmul
