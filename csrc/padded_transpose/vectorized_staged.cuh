// vectorized, staged: 1-byte elements, any base, pitch and size. Source rows are staged in shared memory as they lie,
// in aligned chunks; read from there in words, shifted into place, 16 rows by 4 columns at a time, and transposed in
// registers; passed through shared memory once more as chunks of destination rows; and shifted again into chunks that
// are aligned where they are written.
//
// Tiling: a block owns kDestBytes source rows by kSourceBytes columns. A destination row starts up to 15 bytes behind a
// 16-byte boundary, differently for each row: the block reads 16 more source rows before its own and writes from the
// last boundary before its first element on. Row tiles first, as in the aligned kernel.
//
// Shared memory: first the source rows at a pitch of one chunk more than they are wide; then, over them, destination
// rows with an odd pitch in chunks, the columns of a word kLanes rows apart, so that eight lanes that share an access
// hit eight different groups of banks.
//
// Barriers: 1, after staging, then words are read; 2, after the last word is read, then the tile is overwritten; 3,
// after that, then destination rows are read. All threads arrive and wait at each. Each block owns one tile.
//
// Of the first and the last chunk of rows only what belongs to the matrix is touched.
// Precondition: unit stride along source and destination rows.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <int kSourceBytes, int kDestBytes, int kThreads>
struct StagedTile {
  static constexpr int kRows = kDestBytes + kStagedHalo;     // source rows that a block reads
  static constexpr int kPitch = kSourceBytes + kChunkBytes;  // of a staged row
  static constexpr int kChunks = kPitch / kChunkBytes;
  static constexpr int kLanes = kSourceBytes / 4;  // words of a source row
  static constexpr int kGroups = kRows / kChunkBytes;
  static constexpr int kUnits = kLanes * kGroups;
  static constexpr int kUnitsPerThread = (kUnits + kThreads - 1) / kThreads;
  static constexpr int kTilePitch = kGroups | 1;  // chunks of a destination row
  static constexpr int kStagedBytes = kRows * kPitch;
  static constexpr int kTileBytes = kSourceBytes * kTilePitch * kChunkBytes;
  static constexpr int kSharedBytes = kStagedBytes > kTileBytes ? kStagedBytes : kTileBytes;

  // Index of the first chunk of destination row `col` of the tile.
  static __device__ __forceinline__ int at(int col) { return (col % 4 * kLanes + col / 4) * kTilePitch; }
};

// At most 40 registers a thread, so that three blocks of the larger tile fit a multiprocessor.
template <int kSourceBytes, int kDestBytes, int kThreads>
__global__ void __launch_bounds__(kThreads, 1632 / kThreads)
    padded_transpose_staged_kernel(const Arguments<std::uint8_t> p, const unsigned row_tiles) {
  using Tile = StagedTile<kSourceBytes, kDestBytes, kThreads>;
  constexpr int V = kChunkBytes;
  extern __shared__ uint4 tile[];
  char* const staged = reinterpret_cast<char*>(tile);

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const unsigned col_tile = blockIdx.x / row_tiles;
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.x - col_tile * row_tiles) * kDestBytes;
  const std::int64_t j0 = static_cast<std::int64_t>(col_tile) * kSourceBytes;
  const std::int64_t first_row = i0 - kStagedHalo;
  const std::uintptr_t origin = address_of(p.in + z * p.in_batch + first_row * p.in_row + j0);

  // All but the blocks along the edges stage without looking at each chunk.
  const bool interior = first_row >= 0 && i0 + kDestBytes <= p.m && j0 >= V && j0 + kSourceBytes + V <= p.n;
  constexpr int kStagedChunks = Tile::kRows * Tile::kChunks;
  if (interior) {
#pragma unroll
    for (int k = 0; k < (kStagedChunks + kThreads - 1) / kThreads; ++k) {
      const int index = k * kThreads + threadIdx.x;
      const int row = index / Tile::kChunks;
      if ((k + 1) * kThreads <= kStagedChunks || row < Tile::kRows) {
        const std::uintptr_t start = (origin + row * p.in_row) & ~std::uintptr_t{15};
        __pipeline_memcpy_async(staged + index * kChunkBytes,
                                reinterpret_cast<const char*>(start) + index % Tile::kChunks * kChunkBytes, 16);
      }
    }
  } else {
    for (int index = threadIdx.x; index < kStagedChunks; index += kThreads) {
      const int row = index / Tile::kChunks;
      if (first_row + row < 0 || first_row + row >= p.m) continue;
      const std::uintptr_t start = origin + row * p.in_row;
      stage_checked<std::uint8_t, 16>(staged + index * kChunkBytes,
                                      (start & ~std::uintptr_t{15}) + index % Tile::kChunks * kChunkBytes, start - j0,
                                      start - j0 + p.n);
    }
  }
  wait_for_staged();
  __syncthreads();

  // Rows that are 16 apart start at the same distance from a boundary, so the offsets of 16 rows serve every group.
  const unsigned origin_low = static_cast<unsigned>(origin);
  const unsigned pitch_low = static_cast<unsigned>(p.in_row);
  uint4 column[Tile::kUnitsPerThread][4];
#pragma unroll
  for (int k = 0; k < Tile::kUnitsPerThread; ++k) {
    const int unit = k * kThreads + threadIdx.x;
    if ((k + 1) * kThreads > Tile::kUnits && unit >= Tile::kUnits) break;
    const char* const from = staged + unit / Tile::kLanes * (V * Tile::kPitch) + unit % Tile::kLanes * 4;
    std::uint32_t word[V];
#pragma unroll
    for (int r = 0; r < V; ++r) {
      const unsigned offset = (origin_low + r * pitch_low) & 15;
      const auto* const at = reinterpret_cast<const std::uint32_t*>(from + r * Tile::kPitch + (offset & 12));
      word[r] = __funnelshift_r(at[0], at[1], offset * 8);
    }
    std::uint32_t quarter[4][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) transpose_bytes(word + 4 * q, quarter[q]);
#pragma unroll
    for (int c = 0; c < 4; ++c) column[k][c] = make_uint4(quarter[0][c], quarter[1][c], quarter[2][c], quarter[3][c]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Tile::kUnitsPerThread; ++k) {
    const int unit = k * kThreads + threadIdx.x;
    if ((k + 1) * kThreads > Tile::kUnits && unit >= Tile::kUnits) break;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      tile[(c * Tile::kLanes + unit % Tile::kLanes) * Tile::kTilePitch + unit / Tile::kLanes] = column[k][c];
    }
  }
  __syncthreads();

  constexpr int kStoreLanes = kDestBytes / kChunkBytes;
  constexpr int kStoreStep = kThreads / kStoreLanes;
  static_assert(kThreads % kStoreLanes == 0);
  const int lane = threadIdx.x % kStoreLanes;
  const int cols = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(kSourceBytes)));
  std::uint8_t* const out0 = p.out + z * p.out_batch + j0 * p.out_row + i0;
#pragma unroll 4
  for (int k = 0; k < (kSourceBytes + kStoreStep - 1) / kStoreStep; ++k) {
    const int col = threadIdx.x / kStoreLanes + k * kStoreStep;
    if (col >= cols) break;
    std::uint8_t* const out = out0 + col * p.out_row;
    const int shift = static_cast<int>(address_of(out) & 15);
    const int byte = kStagedHalo - shift + lane * kChunkBytes;  // of the tile's row, which begins kStagedHalo early
    const std::int64_t first = first_row + byte;                // the source row of the chunk's first element
    const uint4* const chunk = tile + Tile::at(col) + byte / kChunkBytes;
    if (first >= 0 && first + V <= p.m) {
      uint4 value = chunk[0];
      if (byte % kChunkBytes != 0) value = shift_chunks<1>(value, chunk[1], byte % kChunkBytes);
      store_chunk(out - shift + lane * kChunkBytes, value);
    } else {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(tile + Tile::at(col)) + byte;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v >= 0 && first + v < p.m) (out - shift + lane * kChunkBytes)[v] = from[v];
      }
    }
  }
}

}  // namespace pmpp::transposition
