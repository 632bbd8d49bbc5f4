// simt: tile shapes, their shared memory, and which of them a dtype has.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// A block's tile of d. Every thread sums thread_m x thread_n of it, the 4 x 8 lanes of a warp lie side by side, and so
// do the warps. With slices > 1 that many groups of warps each sum the whole tile over their own part of a step of k;
// their sums are added at the end.
struct SimtTile {
  int thread_m, thread_n;
  int warps_m, warps_n, slices;
  int k;              // of a step, for all slices
  int stages;         // steps in shared memory at once
  int min_blocks;     // blocks on a multiprocessor that registers must allow
  int words;          // 32-bit words of a sum of the dtypes that have this tile
  bool only_float32;  // pays only where multiply-adds run at full rate

  constexpr int m() const { return 4 * thread_m * warps_m; }
  constexpr int n() const { return 8 * thread_n * warps_n; }
  constexpr int slice_k() const { return k / slices; }
  constexpr int threads() const { return 32 * warps_m * warps_n * slices; }
};

// Plan::config is an index into this.
inline constexpr SimtTile kSimtTiles[] = {
    {16, 8, 2, 2, 1, 8, 4, 2, 1, true},   // 128 x 128, 128 threads
    {16, 8, 2, 2, 1, 16, 3, 2, 1, true},  // 128 x 128, 128 threads
    {16, 8, 2, 4, 1, 8, 4, 1, 1, true},   // 128 x 256, 256 threads
    {8, 8, 4, 2, 1, 8, 4, 2, 1, false},   // 128 x 128, 256 threads
    {8, 8, 2, 1, 4, 32, 3, 2, 1, true},   // 64 x 64, 256 threads
    {8, 8, 1, 1, 8, 64, 3, 2, 1, true},   // 32 x 64, 256 threads
    {4, 4, 2, 1, 4, 32, 3, 3, 1, false},  // 32 x 32, 256 threads
    {4, 8, 1, 1, 4, 32, 3, 4, 1, true},   // 16 x 64, 128 threads
    {8, 8, 2, 2, 1, 8, 3, 2, 2, false},   // 64 x 128, 128 threads
    {4, 4, 2, 1, 4, 32, 3, 2, 2, false},  // 32 x 32, 256 threads
    {4, 4, 2, 2, 1, 8, 3, 2, 4, false},   // 32 x 64, 128 threads
    {4, 2, 1, 2, 4, 32, 3, 2, 4, false},  // 16 x 32, 256 threads
};
inline constexpr int kSimtConfigs = sizeof(kSimtTiles) / sizeof(kSimtTiles[0]);

// How a dtype lies in shared memory: in the type of its sums, the imaginary parts apart from the real ones.
struct SimtElement {
  int real_bytes;  // 4 or 8
  int planes;      // 2: complex
  bool async;      // copied as it is; else through registers, where it is widened
};
constexpr SimtElement simt_element(DType dtype) {
  const int planes = is_complex(dtype) ? 2 : 1;
  // With the addresses of asynchronous copies the largest int32 tile would spill.
  return {accumulator_size(dtype) / planes, planes, element_size(dtype) >= 4 && dtype != DType::kInt32};
}

constexpr bool has_dtype(const SimtTile& tile, DType dtype) {
  return tile.words * 4 == accumulator_size(dtype) && (!tile.only_float32 || dtype == DType::kFloat32);
}

// What goes through registers needs no more than the stage that is read and the one that is written.
constexpr int simt_stages(const SimtTile& tile, SimtElement element) { return element.async ? tile.stages : 2; }

// One k of a tile of m or n lies in a line of shared memory, with 16 bytes behind it: then neighbours in k, which
// threads write side by side where k runs fastest, lie in different banks, and every line starts at a multiple of 16.
constexpr int simt_line_bytes(int mn, SimtElement element) { return mn * element.real_bytes + 16; }

constexpr int simt_stage_bytes(const SimtTile& tile, SimtElement element) {
  return element.planes * tile.k * (simt_line_bytes(tile.m(), element) + simt_line_bytes(tile.n(), element));
}

// Rows of a warp's sums that are written to d at a time, and the shared memory for them.
constexpr int simt_staged_rows(SimtElement element) { return 4 * (16 / element.real_bytes); }
constexpr int simt_staged_bytes(const SimtTile& tile, SimtElement element) {
  return element.planes * simt_staged_rows(element) * simt_line_bytes(8 * tile.thread_n, element);
}

// The stages, and after the last step sums on their way to d: with slices those of all of them.
constexpr int simt_shared_bytes(const SimtTile& tile, SimtElement element) {
  const int stages = simt_stages(tile, element) * simt_stage_bytes(tile, element);
  const int sums = tile.slices > 1 ? tile.slices * element.planes * tile.m() * simt_line_bytes(tile.n(), element)
                                   : tile.threads() / 32 * simt_staged_bytes(tile, element);
  return stages > sums ? stages : sums;
}

constexpr bool is_valid(const SimtTile& tile) {
  const int per_piece = tile.words == 1 ? 4 : 2;  // reals in 16 bytes, where they are widest
  return tile.thread_m % per_piece == 0 && tile.thread_n % per_piece == 0 && tile.slice_k() % 2 == 0 &&
         tile.slice_k() * tile.slices == tile.k && tile.k % 8 == 0 && tile.threads() <= 256;
}
static_assert(kSimtConfigs == 12 && is_valid(kSimtTiles[0]) && is_valid(kSimtTiles[1]) && is_valid(kSimtTiles[2]) &&
              is_valid(kSimtTiles[3]) && is_valid(kSimtTiles[4]) && is_valid(kSimtTiles[5]) &&
              is_valid(kSimtTiles[6]) && is_valid(kSimtTiles[7]) && is_valid(kSimtTiles[8]) &&
              is_valid(kSimtTiles[9]) && is_valid(kSimtTiles[10]) && is_valid(kSimtTiles[11]));

// How float32 tiles come into shared memory, compiled in; other dtypes decide at run time along which the threads lie.
enum class SimtOrder : std::uint8_t {
  kAlongK,   // neighbouring threads along k, whose stride is 1, element by element
  kAlongMN,  // neighbouring threads along m or n, element by element, any strides
  kPieces,   // along m or n, whose stride is 1, in aligned pieces of 16 bytes
};
SimtOrder simt_order(const MmaOperand& operand, std::int64_t batch);

// The problem as the kernel works on it: where d is a single column, or its columns are nearer to contiguous than its
// rows, its transpose.
Problem simt_problem(const Problem& problem);

}  // namespace pmpp::matmul
