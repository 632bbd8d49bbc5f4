// vectorized, staged: 1-byte elements, any base, pitch and size. Source rows are staged in shared memory as they lie;
// read from there in words, shifted into place, 16 rows by 4 columns at a time, and transposed in registers; passed
// through shared memory once more as chunks of destination rows; and shifted again into chunks that are aligned where
// they are written.
//
// Tiling: a block owns kDestBytes source rows by kSourceBytes columns. A destination row starts up to 15 bytes behind a
// 16-byte boundary, differently for each row: the block reads 16 more source rows before its own, the halo, and writes
// from the last boundary before its first element on. Where all destination rows start on boundaries, kHalo is 0. Row
// tiles first, as in the aligned kernel. A thread transposes one unit of 16 x 4; the first warps also those of the
// halo.
//
// Shared memory: first the source rows, each from a sector boundary on, at a pitch of a sector more than they are wide,
// the halo last; then, over all but the halo, destination rows with an odd pitch in chunks, the columns of a word
// kLanes rows apart, so that eight lanes that share an access hit eight different groups of banks.
//
// Barriers: 1, after staging, then words are read; 2, after the last word outside the halo is read, then the tile is
// written; 3, after that, then destination rows are read. All threads arrive and wait at each. Each block owns one
// tile.
//
// Of the first and the last chunk of rows only what belongs to the matrix is touched.
// Precondition: unit stride along source and destination rows.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <int kSourceBytes, int kDestBytes, int kThreads, int kHalo>
struct StagedTile {
  static constexpr int kRows = kDestBytes + kHalo;             // source rows that a block reads
  static constexpr int kPitch = kSourceBytes + kStagePadding;  // of a staged row
  static constexpr int kLanes = kSourceBytes / 4;              // words of a source row
  static constexpr int kTilePitch = kRows / kChunkBytes | 1;   // chunks of a destination row
  static constexpr int kTileBytes = kSourceBytes * kTilePitch * kChunkBytes;
  static constexpr int kSharedBytes = kRows * kPitch;
  static_assert(kTileBytes <= kDestBytes * kPitch, "the halo is read after the tile is begun");
  static_assert(kPitch % 32 == 0, "rows lie alike in shared and in global memory");
  static constexpr int kUnits = kLanes * (kDestBytes / kChunkBytes);
  static constexpr bool kThreadsForHalo = kThreads >= kUnits + kLanes;
  static_assert(kUnits <= kThreads, "one unit a thread");

  // Index of the first chunk of destination row `col` of the tile.
  static __device__ __forceinline__ int at(int col) { return (col % 4 * kLanes + col / 4) * kTilePitch; }
};

// Three blocks of the larger tile on a multiprocessor: 40 registers a thread.
template <int kSourceBytes, int kDestBytes, int kThreads, int kHalo>
__global__ void __launch_bounds__(kThreads, 1536 / kThreads)
    padded_transpose_staged_kernel(const Arguments<std::uint8_t> p, const unsigned row_tiles) {
  using Tile = StagedTile<kSourceBytes, kDestBytes, kThreads, kHalo>;
  constexpr int V = kChunkBytes;
  extern __shared__ __align__(128) uint4 tile[];
  char* const staged = reinterpret_cast<char*>(tile);

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const unsigned col_tile = blockIdx.x / row_tiles;
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.x - col_tile * row_tiles) * kDestBytes;
  const std::int64_t j0 = static_cast<std::int64_t>(col_tile) * kSourceBytes;
  const std::uintptr_t origin = address_of(p.in + z * p.in_batch + i0 * p.in_row + j0);
  // Source row of staged row s, relative to i0: the tile's own, then the halo.
  const auto row_of = [](int s) { return s < kDestBytes ? s : s - Tile::kRows; };

  // All but the blocks along the edges stage without looking at each chunk.
  constexpr int kLineChunks = kSourceBytes / kChunkBytes;
  const bool interior =
      i0 >= kHalo && i0 + kDestBytes <= p.m && j0 >= kStagePadding && j0 + kSourceBytes + kStagePadding <= p.n;
  if (interior) {
    constexpr int kStageStep = kThreads / kLineChunks;
    static_assert(kThreads % kLineChunks == 0 && kDestBytes % kStageStep == 0);
    const auto stage = [&](int s, int byte) {
      const std::uintptr_t from = (origin + row_of(s) * p.in_row) & ~std::uintptr_t{31};
      __pipeline_memcpy_async(staged + s * Tile::kPitch + byte, reinterpret_cast<const char*>(from) + byte, 16);
    };
#pragma unroll
    for (int k = 0; k < kDestBytes / kStageStep; ++k) {
      stage(threadIdx.x / kLineChunks + k * kStageStep, threadIdx.x % kLineChunks * kChunkBytes);
    }
    if (kHalo > 0) {
      for (int index = threadIdx.x; index < kHalo * kLineChunks; index += kThreads) {
        stage(kDestBytes + index / kLineChunks, index % kLineChunks * kChunkBytes);
      }
    }
    // Rows end in the sector behind.
    for (int index = threadIdx.x; index < 2 * Tile::kRows; index += kThreads) {
      stage(index / 2, kSourceBytes + index % 2 * kChunkBytes);
    }
  } else {
    constexpr int kRowChunks = Tile::kPitch / kChunkBytes;
    for (int index = threadIdx.x; index < Tile::kRows * kRowChunks; index += kThreads) {
      const int row = row_of(index / kRowChunks);
      if (i0 + row < 0 || i0 + row >= p.m) continue;
      const std::uintptr_t start = origin + row * p.in_row;
      stage_checked<std::uint8_t, 16>(staged + index * kChunkBytes,
                                      (start & ~std::uintptr_t{31}) + index % kRowChunks * kChunkBytes, start - j0,
                                      start - j0 + p.n);
    }
  }
  wait_for_staged();
  __syncthreads();

  // Four chunks, of four destination rows, from 16 staged rows from `s` on.
  const int lane = threadIdx.x % Tile::kLanes;
  const auto load_unit = [&](int s, uint4(&column)[4]) {
    const char* const from = staged + s * Tile::kPitch + lane * 4;
    const unsigned pitch_low = static_cast<unsigned>(p.in_row);
    const unsigned start = static_cast<unsigned>(origin) + static_cast<unsigned>(row_of(s)) * pitch_low;
    std::uint32_t word[V];
#pragma unroll
    for (int r = 0; r < V; ++r) {
      const unsigned offset = (start + r * pitch_low) & 31;
      const auto* const at = reinterpret_cast<const std::uint32_t*>(from + r * Tile::kPitch + (offset & 28));
      word[r] = __funnelshift_r(at[0], at[1], offset * 8);
    }
    transpose_words<std::uint8_t>(word, column);
  };
  const auto store_unit = [&](int chunk, const uint4(&column)[4]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[(c * Tile::kLanes + lane) * Tile::kTilePitch + chunk] = column[c];
  };
  // The halo is the last group of 16 staged rows, and the first chunk of destination rows.
  constexpr int kGroups = Tile::kRows / V;
  const int group = threadIdx.x / Tile::kLanes;
  const bool has_unit = group < (Tile::kThreadsForHalo ? kGroups : kDestBytes / V);
  uint4 column[4];
  if (has_unit) load_unit(group * V, column);
  __syncthreads();
  if (has_unit) store_unit((group + kHalo / V) % kGroups, column);
  if (kHalo > 0 && !Tile::kThreadsForHalo && group == 0) {
    load_unit(kDestBytes, column);
    store_unit(0, column);
  }
  __syncthreads();

  // Columns of a thread are 16 apart or a multiple of that, so that its destination rows all lie alike.
  constexpr int kStoreLanes = kDestBytes / kChunkBytes;
  constexpr int kStoreStep = kThreads / kStoreLanes;
  static_assert(kThreads % kStoreLanes == 0 && kStoreStep % V == 0 && kSourceBytes % kStoreStep == 0);
  const int chunk = threadIdx.x % kStoreLanes;
  const int col0 = threadIdx.x / kStoreLanes;
  const int cols = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(kSourceBytes))) - col0;
  std::uint8_t* out = p.out + z * p.out_batch + (j0 + col0) * p.out_row + i0;
  const int shift = kHalo > 0 ? static_cast<int>(address_of(out) & 15) : 0;
  const int byte = kHalo - shift + chunk * kChunkBytes;         // of the tile's row, which begins kHalo early
  const std::int64_t first = i0 - shift + chunk * kChunkBytes;  // the source row of the chunk's first element
  const uint4* const from = tile + Tile::at(col0) + byte / kChunkBytes;
  constexpr int kFromStep = kStoreStep / 4 * Tile::kTilePitch;
  const std::int64_t out_step = kStoreStep * p.out_row;
  out += chunk * kChunkBytes - shift;
  if (first >= 0 && first + V <= p.m) {
#pragma unroll
    for (int k = 0; k < kSourceBytes / kStoreStep; ++k) {
      if (k * kStoreStep < cols) {
        uint4 value = from[k * kFromStep];
        if (kHalo > 0 && shift > 0) value = shift_chunks<1>(value, from[k * kFromStep + 1], byte % kChunkBytes);
        store_chunk(out, value);
      }
      out += out_step;
    }
  } else {
    for (int k = 0; k * kStoreStep < cols; ++k) {
      const auto* const element = reinterpret_cast<const std::uint8_t*>(from + k * kFromStep) + byte % kChunkBytes;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v >= 0 && first + v < p.m) out[v] = element[v];
      }
      out += out_step;
    }
  }
}

}  // namespace pmpp::transposition
