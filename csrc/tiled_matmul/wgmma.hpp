// Tiles of the wgmma kernel and the shared memory that they need, for the host and the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/common/divisor.hpp"

namespace pmpp::matmul {

// An output tile of m x n, 64 of k at a time through `stages` buffers. `cluster` blocks, one below the other, share
// each tile of b. `per_sm` blocks are meant to be resident on a
// multiprocessor. Where cluster is 0 it is the plan's: its blocks work on pieces of k of one tile, and add up their
// sums through each other's shared memory. Where it `realigns`, two warpgroups load by way of registers what TMA cannot
// address (wgmma_realign.cuh). Tiles of fewer than 64 columns are for problems with a short side, which becomes n.
struct WgmmaTile {
  int m, n, stages, cluster, per_sm;
  bool realigns = false;
  bool feeds_a = false;  // not of the table: feeding_a()
};
inline constexpr int kMaxKCluster = 8;  // the largest cluster that every GPU of sm_90 runs

inline constexpr int kWgmmaK = 64;  // of 16-bit elements

// Elements of a step of k: a line of it is 128 bytes, the width of the swizzle.
constexpr int wgmma_step(int element_bytes) { return kWgmmaK * 2 / element_bytes; }

// Largest first. What separates them is measured beside kWgmmaCosts (select_wgmma.cpp).
inline constexpr WgmmaTile kWgmmaTiles[] = {
    {128, 256, 4, 2, 1},      // 0
    {128, 256, 4, 1, 1},      // 1
    {128, 192, 5, 1, 1},      // 2
    {128, 128, 6, 2, 1},      // 3
    {128, 128, 6, 1, 1},      // 4
    {64, 256, 4, 1, 1},       // 5
    {128, 64, 8, 1, 1},       // 6
    {64, 128, 4, 1, 2},       // 7
    {64, 64, 6, 1, 2},        // 8
    {128, 64, 8, 0, 1},       // 9
    {64, 128, 6, 0, 1},       // 10
    {64, 64, 6, 0, 2},        // 11
    {64, 64, 5, 1, 2, true},  // 12
    {64, 128, 8, 2, 1},       // 13
    {64, 32, 13, 1, 1},       // 14
    {64, 16, 13, 1, 1},       // 15
    {64, 64, 2, 1, 4},        // 16
    {64, 128, 2, 1, 3},       // 17
    {192, 192, 4, 2, 1},      // 18
    {192, 192, 4, 1, 1},      // 19
    {64, 32, 6, 0, 2},        // 20
    {64, 16, 6, 0, 2},        // 21
};
inline constexpr int kWgmmaTileCount = sizeof(kWgmmaTiles) / sizeof(kWgmmaTiles[0]);

// The tile as it works on a float32 a that lies along m: wgmma takes such operands along k alone from shared memory,
// but from registers in any order. TMA lays a out as it lies, and the multiplying threads read their elements of it.
constexpr WgmmaTile feeding_a(WgmmaTile tile) {
  tile.feeds_a = true;
  return tile;
}
// Whether there are registers for it: the elements of two steps take 32.
constexpr bool wgmma_can_feed_a(const WgmmaTile& tile) {
  return !tile.realigns && tile.m < 192 && tile.per_sm <= (tile.cluster == 0 ? 1 : 2);
}
// Each warpgroup of 128 threads multiplies 64 rows.
constexpr int wgmma_consumers(const WgmmaTile& tile) { return tile.m / 64; }
// Whether the kernel exists for operands that lie so: only 16-bit ones are realigned, only those of float32 fed, and
// with a along m and b along n the largest shared tile would spill.
constexpr bool wgmma_takes(const WgmmaTile& tile, int element_bytes, bool is_a_mn_major, bool is_b_mn_major) {
  if (element_bytes == 4) return is_a_mn_major ? wgmma_can_feed_a(tile) : !tile.realigns;
  return !(is_a_mn_major && is_b_mn_major && wgmma_consumers(tile) == 3 && tile.cluster > 1);
}
constexpr WgmmaTile wgmma_tile(int config, int element_bytes, bool is_a_mn_major) {
  return element_bytes == 4 && is_a_mn_major ? feeding_a(kWgmmaTiles[config]) : kWgmmaTiles[config];
}
// Elements between its lines in shared memory: 8 more than a line has, so that the four lines and eight elements that a
// warp reads at once lie in different banks.
constexpr int wgmma_fed_pitch(const WgmmaTile& tile) { return tile.m + 8; }

// Threads that tell the loading ones that a stage has been read: a wgmma that has ended has read it for its whole
// warpgroup, but of an a that lies along m each warp reads its own part, before its wgmma.
constexpr int wgmma_releasing_threads(const WgmmaTile& tile) { return tile.feeds_a ? 4 : 1; }
// Registers go from the loading to the multiplying threads, a warpgroup as a whole, where a block has the
// multiprocessor to itself and several warpgroups multiply.
constexpr bool wgmma_moves_registers(const WgmmaTile& tile) {
  return wgmma_consumers(tile) >= 2 && tile.per_sm == 1 && !tile.realigns;
}
constexpr int wgmma_loading_threads(const WgmmaTile& tile) {
  return tile.realigns ? 256 : wgmma_moves_registers(tile) ? 128 : 32;
}
constexpr int wgmma_threads(const WgmmaTile& tile) { return 128 * wgmma_consumers(tile) + wgmma_loading_threads(tile); }
constexpr bool splits_in_cluster(const WgmmaTile& tile) { return tile.cluster == 0; }
// Whether the kernel can work on its last tiles in pieces of k. Small tiles are for short products, which the code
// alone makes longer: H200, bfloat16, CUDA graphs, with it and divisions in full, and without either: 128 x 128 x
// 128 2.35 and 2.12 us, 512 x 512 x 512 3.81 and 3.60, 768 x 768 x 768 5.64 and 4.83, 1024 x 1024 x 1024 6.84 and 5.74.
constexpr bool wgmma_has_tail(const WgmmaTile& tile) {
  return !splits_in_cluster(tile) && tile.m * tile.n >= 128 * 128;
}
// Blocks that share a tile of b.
constexpr int wgmma_sharers(const WgmmaTile& tile) { return splits_in_cluster(tile) ? 1 : tile.cluster; }
// A tile of b that lies along n is loaded in whole boxes of 64.
constexpr int wgmma_box_columns(const WgmmaTile& tile) { return tile.n < 64 ? 64 : tile.n; }
constexpr int wgmma_stage_bytes_of_a(const WgmmaTile& tile) {
  return (tile.feeds_a ? wgmma_fed_pitch(tile) : tile.m) * kWgmmaK * 2;
}
constexpr int wgmma_stage_bytes(const WgmmaTile& tile) {
  return wgmma_stage_bytes_of_a(tile) + (tile.feeds_a ? tile.n : wgmma_box_columns(tile)) * kWgmmaK * 2;
}
// Whether the tile takes a displaced a: large ones that share a tile of b have no register left for it.
constexpr bool wgmma_displaces(const WgmmaTile& tile) {
  return !tile.realigns && !(tile.n >= 192 && wgmma_sharers(tile) > 1);
}
// Where the problem is mostly an exchanged one, d lies column by column, and so do then the sums of pieces of k, that
// the second pass may write d as it reads them.
template <class T>
constexpr bool sums_may_lie_along_m(const WgmmaTile& tile) {
  return sizeof(T) == 4 || tile.n < 64;
}
// Columns that the epilogue stages, and boxes of 64 that it has room for: two are in turn stored and written.
constexpr int wgmma_staged_columns(const WgmmaTile& tile) {
  return tile.n % 128 == 0 ? 128 : tile.n < 64 ? tile.n : 64;
}
constexpr int wgmma_staged_boxes(const WgmmaTile& tile) { return tile.n % 128 == 0 ? 2 : 1; }
// A fed tile has no room for a second box, nor, being one of float32, for row ends.
constexpr int wgmma_staging_bytes(const WgmmaTile& tile) {
  return tile.m * (tile.feeds_a ? 1 : wgmma_staged_boxes(tile)) * 64 * 2;
}
// A chunk of 16 bytes for each row, where a tile is stored in several parts.
constexpr int wgmma_row_end_bytes(const WgmmaTile& tile) {
  return !tile.feeds_a && tile.n > wgmma_staged_columns(tile) ? tile.m * 16 : 0;
}
constexpr int wgmma_shared_bytes(const WgmmaTile& tile) {
  return tile.stages * wgmma_stage_bytes(tile) + wgmma_staging_bytes(tile) + wgmma_row_end_bytes(tile) +
         2 * tile.stages * 8 + 4 * wgmma_consumers(tile);
}

// Floats between rows of the sums that the blocks of a cluster exchange: 8 more than a row has, so that the 8 rows that
// a warp writes at once lie in different banks.
constexpr int exchange_pitch(const WgmmaTile& tile) { return tile.n + 8; }

// 227 KiB are there for a block of sm_90, and 1 KiB of the 228 of a multiprocessor is taken for each block.
constexpr bool wgmma_fits(const WgmmaTile& tile) {
  return wgmma_shared_bytes(tile) <= 227 * 1024 && tile.per_sm * (wgmma_shared_bytes(tile) + 1024) <= 228 * 1024 &&
         tile.m * exchange_pitch(tile) * 4 <= tile.stages * wgmma_stage_bytes(tile);
}
static_assert([] {
  for (const WgmmaTile& tile : kWgmmaTiles) {
    if (!wgmma_fits(tile) || !wgmma_fits(feeding_a(tile))) return false;
  }
  return true;
}());

// Rows of tiles that are walked together, so that their operands stay in L2. H200, 8192 x 8192 x 8192: 16 rows .86-.97
// of cuBLAS, 8 rows the same within the noise.
inline constexpr int kWgmmaGroup = 8;

// What all blocks share of a launch. Work items are numbered tile first, then piece of k, then matrix of the batch.
struct WgmmaSchedule {
  std::int32_t row_tiles = 0, col_tiles = 0;  // row_tiles is a multiple of the blocks that share b
  Divisor tiles, group_tiles, last_rows;  // of a matrix; of kWgmmaGroup rows of tiles; rows of tiles of the last group
  Divisor splits;
  std::int32_t batch = 1;
  std::int32_t items = 0;  // all of them; a constant, since the warpgroups have no register left for the product
  // The items from `whole` on are pieces of k of the last tiles, `tail_blocks` steps each: numbered piece first, then
  // tile, of `tail_tiles`. Without a tail `whole` is `items`.
  std::int32_t whole = 0, tail_blocks = 0, tail_splits = 1;
  Divisor tail_tiles;
  float* tail_sums = nullptr;              // [item of the tail], as the accumulators lie in the registers
  unsigned long long* arrivals = nullptr;  // [tile of the tail][warpgroup]: this launch's tag plus pieces that are done
  unsigned long long launch_tag = 0;
  std::int32_t k_blocks = 0, split_blocks = 0;  // steps of 64 of k: all, and of one piece
  std::int32_t store_by_tma = 0;
  std::int32_t a_realigned = 0, b_realigned = 0;
  std::int32_t a_batched = 0, b_batched = 0;  // 0: one matrix for the whole batch
  // Where a is displaced: elements from one matrix of the batch to the next, and from the map's start to the first.
  std::int32_t a_displaced = 0, a_apart = 0, a_start = 0;
  float* partial = nullptr;          // with splits > 1: float32 sums [split][batch][m][n]
  std::int32_t partial_along_m = 0;  // [split][batch][n][m] instead

  void set_tiles(std::int64_t rows, std::int64_t cols) {
    row_tiles = static_cast<std::int32_t>(rows);
    col_tiles = static_cast<std::int32_t>(cols);
    tiles = Divisor(row_tiles * col_tiles);
    // A group of which there is none may have more tiles than the range of a divisor, and than all the tiles.
    group_tiles = Divisor(static_cast<std::int32_t>(std::min(kWgmmaGroup * cols, rows * cols)));
    last_rows = Divisor((row_tiles - 1) % kWgmmaGroup + 1);
  }
};

}  // namespace pmpp::matmul
