// mma: tile shapes, their shared memory, and how operands are walked.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// A block's tile of d, tile_k of k a step, and the warps that share it out.
struct MmaTile {
  int m, n, k;
  int warps_m, warps_n;
  int stages;      // steps in shared memory at once
  bool async;      // operands come by cp.async in aligned pieces of 16 bytes; else through registers, from anywhere
  int min_blocks;  // blocks on a multiprocessor that registers must allow

  constexpr int warp_m() const { return m / warps_m; }
  constexpr int warp_n() const { return n / warps_n; }
  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr int stage_bytes() const { return (m + n) * k * 2; }
  // Where a warp puts sixteen rows of its sums before they are written to d. With a pitch of 8 modulo 32 floats, the
  // pairs that a half-warp writes lie in different banks.
  constexpr int staged_pitch() const { return warp_n() + 8; }
  constexpr int staged_bytes() const { return 16 * staged_pitch() * 4; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
  // With steps of 64, for all the blocks of a multiprocessor that its registers allow: with one the time would be lost.
  constexpr int wanted_shared_bytes() const {
    return k == 64 && m == 128 ? min_blocks * shared_bytes() : shared_bytes();
  }
};

// Plan::config is an index into this. Large tiles read each operand fewer times and warps of 64 x 64 outputs read the
// least shared memory a product; small ones give more blocks. 96 KiB fit a block on every GPU from sm_80 on; the last
// two wait at a barrier half as often, where there is more. H200, bfloat16, microseconds with steps of 32 and of 64:
// 4096 x 4096 x 4096 356 and 343 (128 x 256), 371 and 350 (128 x 128); 2048 x 2048 x 2048 59.5 and 58.3, 55.1 and 53.3.
inline constexpr MmaTile kMmaTiles[] = {
    {128, 256, 32, 2, 4, 4, true, 1},   //
    {128, 128, 32, 2, 2, 4, true, 2},   //
    {64, 64, 64, 2, 2, 3, true, 3},     //
    {32, 64, 64, 2, 2, 4, true, 3},     //
    {128, 128, 32, 2, 4, 2, false, 1},  //
    {64, 64, 64, 2, 2, 2, false, 2},    //
    {128, 256, 64, 2, 4, 3, true, 1},   //
    {128, 128, 64, 2, 2, 3, true, 2},   //
};
inline constexpr int kMmaConfigs = sizeof(kMmaTiles) / sizeof(kMmaTiles[0]);

constexpr bool is_valid(const MmaTile& tile) {
  return tile.warp_m() % 16 == 0 && tile.warp_n() % 32 == 0 && tile.k % 32 == 0 &&
         tile.threads() / 32 * tile.staged_bytes() <= tile.shared_bytes() && tile.shared_bytes() <= 160 * 1024;
}
static_assert(is_valid(kMmaTiles[0]) && is_valid(kMmaTiles[1]) && is_valid(kMmaTiles[2]) && is_valid(kMmaTiles[3]) &&
              is_valid(kMmaTiles[4]) && is_valid(kMmaTiles[5]) && is_valid(kMmaTiles[6]) && is_valid(kMmaTiles[7]) &&
              kMmaConfigs == 8);

// An operand as the kernel walks it: a by rows, b by columns, each along k.
struct MmaOperand {
  const void* data;
  std::int64_t mn_stride, k_stride, batch_stride;

  // Whether tiles lie in shared memory with k running fastest, as it does, or comes closest to it, in global memory.
  bool along_k() const {
    if (k_stride == 1 || mn_stride == 1) return k_stride == 1;
    return (k_stride < 0 ? -k_stride : k_stride) <= (mn_stride < 0 ? -mn_stride : mn_stride);
  }
  std::int64_t unit_stride() const { return along_k() ? k_stride : mn_stride; }
  std::int64_t pitch() const { return along_k() ? mn_stride : k_stride; }
};

inline MmaOperand mma_a(const Problem& p) { return {p.a.data, p.a.row_stride, p.a.col_stride, p.a.batch_stride}; }
inline MmaOperand mma_b(const Problem& p) { return {p.b.data, p.b.col_stride, p.b.row_stride, p.b.batch_stride}; }

// Whether every piece of 8 elements of the operand lies at a multiple of 16 bytes, as cp.async takes it.
bool is_mma_async(const MmaOperand& operand, std::int64_t batch);

}  // namespace pmpp::matmul
