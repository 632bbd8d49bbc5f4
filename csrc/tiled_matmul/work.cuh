// Which tile a block works on: batches x pieces of k x tiles in one line, over which blocks stride.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/index.cuh"

namespace pmpp::matmul {

// Within a batch and a piece of k, this many rows of tiles are walked column by column, so that the operands of blocks
// that run together stay in L2.
inline constexpr int kGroupRows = 8;

struct Work {
  std::int64_t batch, split, row, col;  // first row and column of the tile
};

template <int kM, int kN>
__device__ __forceinline__ Work work_at(std::int64_t item, std::int64_t tiles_m, std::int64_t tiles_n, int splits) {
  const std::int64_t tiles = tiles_m * tiles_n;
  const std::int64_t outer = divide(item, tiles);
  const std::int64_t tile = item - outer * tiles;
  const std::int64_t batch = divide(outer, splits);
  const std::int64_t group = divide(tile, tiles_n * kGroupRows);
  const std::int64_t in_group = tile - group * tiles_n * kGroupRows;
  const std::int64_t left = tiles_m - group * kGroupRows;
  const std::int64_t rows = left < kGroupRows ? left : kGroupRows;
  const std::int64_t tile_col = divide(in_group, rows);
  const std::int64_t tile_row = group * kGroupRows + (in_group - tile_col * rows);
  return {batch, outer - batch * splits, tile_row * kM, tile_col * kN};
}

__device__ __forceinline__ int at_most(std::int64_t value, int limit) {
  return value < limit ? static_cast<int>(value) : limit;
}

}  // namespace pmpp::matmul
