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

// Plan::config is an index into this. With warps of 64 x 32 real or 32 x 16 complex outputs a lane reads 24 numbers for
// 16 products, which keeps shared memory busy for less than half of their time; larger ones spill. Small tiles are for
// small results.
inline constexpr Mma64Tile kMma64Tiles[] = {
    {128, 128, 2, 4, 4, 1, 1},  // 0
    {128, 128, 4, 4, 4, 1, 1},  // 1
    {128, 64, 4, 2, 4, 2, 1},   // 2
    {64, 64, 2, 2, 4, 2, 1},    // 3
    {64, 64, 4, 2, 4, 2, 1},    // 4
    {32, 32, 2, 2, 4, 4, 1},    // 5
    {64, 64, 4, 4, 3, 1, 2},    // 6
    {64, 32, 4, 2, 3, 2, 2},    // 7
    {32, 32, 2, 2, 3, 3, 2},    // 8
};
inline constexpr int kMma64Configs = sizeof(kMma64Tiles) / sizeof(kMma64Tiles[0]);

constexpr int mma64_planes(DType dtype) { return dtype == DType::kFloat64 ? 1 : dtype == DType::kComplex128 ? 2 : 0; }

constexpr int mma64_stage_bytes(const Mma64Tile& tile) { return tile.planes * kMma64K * (tile.m + tile.n) * 8; }
constexpr int mma64_shared_bytes(const Mma64Tile& tile) { return tile.stages * mma64_stage_bytes(tile); }

// Where (k, mn) of a tile that is `lines` wide lies in a stage, in numbers. The low bits of mn are mixed with k, so that
// the lanes of half a warp meet in no bank, both where they read 4 neighbours of mn for 4 of k and where they write 16
// of k side by side.
#ifdef __CUDACC__
__host__ __device__
#endif
constexpr int mma64_at(int k, int mn, int lines) {
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
