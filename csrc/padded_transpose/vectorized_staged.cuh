// vectorized, staged: 1-byte elements, any base, pitch and size. Source rows are staged in shared memory as they lie;
// read from there in words, shifted into place, 16 rows by 4 columns at a time, and transposed in registers; passed
// through shared memory once more as chunks of destination rows; and shifted again into chunks that are aligned where
// they are written.
//
// Tiling: a block owns kDestBytes source rows by kSourceBytes columns. A destination row starts up to kHalo - 1 bytes
// behind a boundary of kHalo bytes, differently for each row: the block reads kHalo more source rows before its own,
// the halo, and writes from the last boundary before its first element on. Where all destination rows start on 16-byte
// boundaries, kHalo is 0. A thread transposes kUnits units of 16 x 4, whole sectors of rows apart, so that rows lie
// alike in all of them and places are computed once. Its warp writes destination rows that are 16 apart, which are all
// shifted by the same number of bytes: words are then chosen by one branch.
//
// Shared memory: first the source rows, each from a sector boundary on, at a pitch of a sector more than they are wide;
// then, over them, destination rows with an odd pitch in chunks, the columns of a word kLanes rows apart, so that eight
// lanes that share an access hit eight different groups of banks.
//
// Barriers: 1, after staging, then words are read; 2, after the last word is read, then the tile is written; 3, after
// that, then destination rows are read. All threads arrive and wait at each. Each block owns one tile.
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
  static constexpr int kGroups = kRows / kChunkBytes;          // of 16 source rows: chunks of a destination row
  static constexpr int kTilePitch = kGroups | 1;
  static constexpr int kSharedBytes = kRows * kPitch;
  static_assert(kSourceBytes * kTilePitch * kChunkBytes <= kSharedBytes, "the tile lies over the staged rows");
  static_assert(kPitch % 32 == 0 && kRows % kChunkBytes == 0, "rows lie alike in shared and in global memory");
  static constexpr int kGroupStep = kThreads / kLanes;
  static constexpr int kUnits = (kGroups + kGroupStep - 1) / kGroupStep;
  // Blocks of a multiprocessor that registers leave room for: 32 warps.
  static constexpr int kBlocks = 1024 / kThreads;
  static_assert(kThreads % kLanes == 0 && kGroupStep % 2 == 0, "units of a thread lie alike, modulo a sector");

  // Index of the first chunk of destination row `col` of the tile.
  static __device__ __forceinline__ int at(int col) { return (col % 4 * kLanes + col / 4) * kTilePitch; }
};

// Bytes [4 kWords + bits / 8, + 16) of low, high.
template <int kWords>
__device__ __forceinline__ uint4 shift_words(uint4 low, uint4 high, unsigned bits) {
  const std::uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  return make_uint4(__funnelshift_r(word[kWords], word[kWords + 1], bits),
                    __funnelshift_r(word[kWords + 1], word[kWords + 2], bits),
                    __funnelshift_r(word[kWords + 2], word[kWords + 3], bits),
                    __funnelshift_r(word[kWords + 3], word[kWords + 4], bits));
}

template <int kSourceBytes, int kDestBytes, int kThreads, int kHalo>
__global__ void __launch_bounds__(kThreads, StagedTile<kSourceBytes, kDestBytes, kThreads, kHalo>::kBlocks)
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
  const std::int64_t first_row = i0 - kHalo;
  const std::uintptr_t matrix = address_of(p.in + z * p.in_batch);
  const std::uintptr_t origin = matrix + first_row * p.in_row + j0;

  // All but the blocks along the edges stage without looking at each chunk. Where rows follow each other without a gap,
  // what lies beside a row belongs to the matrix as well.
  constexpr int kLineChunks = kSourceBytes / kChunkBytes;
  const bool dense = p.in_row == p.n;
  const bool rows_inside = first_row >= 0 && i0 + kDestBytes <= p.m;
  const bool cols_inside = dense ? origin >= matrix + kStagePadding &&
                                       origin + (Tile::kRows - 1) * p.in_row + Tile::kPitch <= matrix + p.m * p.n
                                 : j0 >= kStagePadding && j0 + kSourceBytes + kStagePadding <= p.n;
  if (rows_inside && cols_inside) {
    constexpr int kStageStep = kThreads / kLineChunks;
    constexpr int kAlike = kStageStep < 32 ? 32 / kStageStep : 1;  // steps after which rows lie alike
    static_assert(kThreads % kLineChunks == 0 && (kStageStep * kAlike) % 32 == 0);
    const auto row_start = [&](int row) { return (origin + row * p.in_row) & ~std::uintptr_t{31}; };
    const int row0 = threadIdx.x / kLineChunks;
    const int byte = threadIdx.x % kLineChunks * kChunkBytes;
    const std::int64_t step = kStageStep * kAlike * p.in_row;
#pragma unroll
    for (int a = 0; a < kAlike; ++a) {
      std::uintptr_t from = row_start(row0 + a * kStageStep) + byte;
#pragma unroll
      for (int row = a * kStageStep; row < Tile::kRows; row += kStageStep * kAlike) {
        if (row + kStageStep <= Tile::kRows || row0 + row < Tile::kRows) {
          __pipeline_memcpy_async(staged + (row0 + row) * Tile::kPitch + byte, reinterpret_cast<const void*>(from), 16);
        }
        from += step;
      }
    }
    // Rows end in the sector behind.
    for (int tail = threadIdx.x; tail < 2 * Tile::kRows; tail += kThreads) {
      const int behind = kSourceBytes + tail % 2 * kChunkBytes;
      __pipeline_memcpy_async(staged + tail / 2 * Tile::kPitch + behind,
                              reinterpret_cast<const void*>(row_start(tail / 2) + behind), 16);
    }
  } else {
    constexpr int kRowChunks = Tile::kPitch / kChunkBytes;
    for (int chunk = threadIdx.x; chunk < Tile::kRows * kRowChunks; chunk += kThreads) {
      const int row = chunk / kRowChunks;
      if (first_row + row < 0 || first_row + row >= p.m) continue;
      const std::uintptr_t start = origin + row * p.in_row;
      stage_checked<std::uint8_t, 16>(staged + chunk * kChunkBytes,
                                      (start & ~std::uintptr_t{31}) + chunk % kRowChunks * kChunkBytes, start - j0,
                                      start - j0 + p.n);
    }
  }
  wait_for_staged();
  __syncthreads();

  // Of each unit four chunks, of four destination rows, from 16 staged rows.
  const int lane = threadIdx.x % Tile::kLanes;
  const int group0 = threadIdx.x / Tile::kLanes;
  const unsigned pitch_low = static_cast<unsigned>(p.in_row);
  const unsigned start = static_cast<unsigned>(origin) + group0 * V * pitch_low;
  const char* const from = staged + group0 * V * Tile::kPitch + lane * 4;
  const auto has_unit = [&](int u) {
    return (u + 1) * Tile::kGroupStep <= Tile::kGroups || group0 + u * Tile::kGroupStep < Tile::kGroups;
  };
  std::uint32_t word[Tile::kUnits][V];
#pragma unroll
  for (int r = 0; r < V; ++r) {
    const unsigned offset = start + r * pitch_low;
    const char* const row = from + (offset & 28) + r * Tile::kPitch;
#pragma unroll
    for (int u = 0; u < Tile::kUnits; ++u) {
      if (has_unit(u)) {
        const auto* const at = reinterpret_cast<const std::uint32_t*>(row + u * Tile::kGroupStep * V * Tile::kPitch);
        word[u][r] = __funnelshift_r(at[0], at[1], offset * 8);
      }
    }
  }
  uint4 column[Tile::kUnits][4];
#pragma unroll
  for (int u = 0; u < Tile::kUnits; ++u) {
    if (has_unit(u)) transpose_words<std::uint8_t>(word[u], column[u]);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < Tile::kUnits; ++u) {
    if (has_unit(u)) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        tile[(c * Tile::kLanes + lane) * Tile::kTilePitch + group0 + u * Tile::kGroupStep] = column[u][c];
      }
    }
  }
  __syncthreads();

  // A warp writes kLike destination rows 16 apart at a time, of one or more residues modulo 16.
  constexpr int kChunks = kDestBytes / kChunkBytes;
  constexpr int kStoreLanes = kChunks > 8 ? 16 : kChunks > 4 ? 8 : 4;
  constexpr int kWarpRows = 32 / kStoreLanes;
  constexpr int kAlikeRows = kSourceBytes / V;
  constexpr int kLike = kWarpRows < kAlikeRows ? kWarpRows : kAlikeRows;
  constexpr int kResidues = kThreads / 32 * (kWarpRows / kLike);  // at a time
  static_assert(V % kResidues == 0 && kAlikeRows % kLike == 0);
  const int chunk = threadIdx.x % kStoreLanes;
  const int slot = threadIdx.x % 32 / kStoreLanes;
  const int cols = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(kSourceBytes)));
  if (chunk >= kChunks) return;
#pragma unroll 1
  for (int residue = threadIdx.x / 32 * (kWarpRows / kLike) + slot / kLike; residue < V; residue += kResidues) {
    const int col0 = residue + slot % kLike * V;
    std::uint8_t* out = p.out + z * p.out_batch + (j0 + col0) * p.out_row + i0;
    const int shift = kHalo > 0 ? static_cast<int>(address_of(out) & (kHalo - 1)) : 0;
    const int byte = kHalo - shift + chunk * kChunkBytes;         // of the tile's row, which begins kHalo early
    const std::int64_t first = i0 - shift + chunk * kChunkBytes;  // the source row of the chunk's first element
    const uint4* const chunks = tile + Tile::at(col0) + byte / kChunkBytes;
    constexpr int kFromStep = kLike * V / 4 * Tile::kTilePitch;
    const std::int64_t out_step = kLike * V * p.out_row;
    out += chunk * kChunkBytes - shift;
    if (first >= 0 && first + V <= p.m) {
      const auto store = [&](const auto& chunk_at) {
#pragma unroll
        for (int k = 0; k < kAlikeRows / kLike; ++k) {
          if (col0 + k * kLike * V < cols) store_chunk(out, chunk_at(chunks + k * kFromStep));
          out += out_step;
        }
      };
      const auto store_shifted = [&]<int kWords>() {
        store([&](const uint4* at) { return shift_words<kWords>(at[0], at[1], byte * 8); });
      };
      if (byte % V == 0) {
        store([](const uint4* at) { return at[0]; });
      } else if (byte & 8) {
        byte & 4 ? store_shifted.template operator()<3>() : store_shifted.template operator()<2>();
      } else {
        byte & 4 ? store_shifted.template operator()<1>() : store_shifted.template operator()<0>();
      }
    } else {
      for (int k = 0; k < kAlikeRows / kLike && col0 + k * kLike * V < cols; ++k) {
        const auto* const element = reinterpret_cast<const std::uint8_t*>(chunks + k * kFromStep) + byte % V;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (first + v >= 0 && first + v < p.m) out[v] = element[v];
        }
        out += out_step;
      }
    }
  }
}

}  // namespace pmpp::transposition
