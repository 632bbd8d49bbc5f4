// The epilogue of the wgmma kernel: accumulators of a warpgroup, scaled and added to c, to d or to partial sums.
//
// By TMA where it can address d. Else by the threads, from the same staging: rows of contiguous elements in chunks of
// 16 bytes, wherever they start. In float32 always so (wgmma_store_float.cuh).
#pragma once

#include <cuda/ptx>

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"

namespace pmpp::matmul {

// Where the accumulators of this thread lie in the matrix.
struct FragmentOrigin {
  std::int64_t row;  // and row + 8
  std::int64_t col;  // of sums[0]; sums[4 i] is 8 i further right
};

// Two neighbours of a row of c, as they are loaded together.
template <class T>
struct NeighboursOfC {
  std::uint32_t word;

  __device__ __forceinline__ void load(const T* at) { word = __ldg(reinterpret_cast<const std::uint32_t*>(at)); }
  __device__ __forceinline__ float first() const { return T{static_cast<std::uint16_t>(word)}.to_float(); }
  __device__ __forceinline__ float second() const { return T{static_cast<std::uint16_t>(word >> 16)}.to_float(); }
};
template <>
struct NeighboursOfC<float> {
  float2 pair;

  __device__ __forceinline__ void load(const float* at) { pair = __ldg(reinterpret_cast<const float2*>(at)); }
  __device__ __forceinline__ float first() const { return pair.x; }
  __device__ __forceinline__ float second() const { return pair.y; }
};

// sums += beta * c where a row of c is contiguous and pairs are aligned; a row that all share is read once. Loads go
// out together, as many as there are registers for: one after another each would wait for the L2 cache.
template <class T, int kCount>
__device__ __forceinline__ void add_pairs_of_c(float (&sums)[kCount], const Arguments<T>& p, const FragmentOrigin& at,
                                               const T* c) {
  constexpr int kPairs = kCount / 4, kMost = sizeof(T) == sizeof(float) ? 4 : 16;
  constexpr int kTogether = kPairs < kMost ? kPairs : kMost;
  const bool is_shared = p.c_row == 0;
#pragma unroll
  for (int first = 0; first < kPairs; first += kTogether) {
    NeighboursOfC<T> pairs[kTogether];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 0 || !is_shared) {
        const bool inside = is_shared || at.row + half * 8 < p.m;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int col = (first + i) * 8;
          pairs[i] = {};
          if (inside && at.col + col < p.n) pairs[i].load(c + half * 8 * p.c_row + col);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        float* const sum = sums + (first + i) * 4 + half * 2;
        sum[0] += p.beta * pairs[i].first();
        sum[1] += p.beta * pairs[i].second();
      }
    }
  }
}

// Brings the part of a row of c that all rows of d share, 128 bytes a thread, into L1 while the tile is multiplied.
// Read only behind it, it came from the L2 cache, while nothing was multiplied: H200, 8192 x 3072 x 768 in
// bfloat16 74.3 us, 62.1 without c.
template <class T>
__device__ __forceinline__ void touch_shared_row_of_c(const Arguments<T>& p, std::int64_t first_col, int columns,
                                                      std::int64_t batch) {
  constexpr int kLine = 128 / sizeof(T);
  const int thread = threadIdx.x % kWarpgroup;
  const std::int64_t col = first_col + thread * kLine;
  if (p.c == nullptr || p.c_row != 0 || p.c_col != 1 || thread * kLine >= columns || col >= p.n) return;
  ptx::load_and_discard(p.c + batch * p.c_batch + col);
}

// sums = alpha * sums + beta * c.
template <class T, int kCount>
__device__ __forceinline__ void apply_scalars(float (&sums)[kCount], const Arguments<T>& p, const FragmentOrigin& at,
                                              std::int64_t batch) {
  if (p.scaled) {
#pragma unroll
    for (float& sum : sums) sum *= p.alpha;
  }
  if (p.c == nullptr) return;
  const T* const c = p.c + batch * p.c_batch + at.row * p.c_row + at.col * p.c_col;
  if (p.c_col == 1 && ((p.c_row | p.c_batch | p.n) & 1) == 0 &&
      reinterpret_cast<std::uintptr_t>(p.c) % (2 * sizeof(T)) == 0) {
    add_pairs_of_c(sums, p, at, c);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    const T* const row = c + half * 8 * p.c_row;
    if (p.c_col == 0) {  // a column that all share, as a shared row is where the problem was exchanged
      const float value = widen(load(row));
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) sums[i / 2 * 4 + half * 2 + i % 2] += p.beta * value;
      continue;
    }
    const int columns = static_cast<int>(min(p.n - at.col, std::int64_t{kCount * 2}));
    const T* from = row;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i, from += 8 * p.c_col) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (i * 8 + j < columns) sums[i * 4 + half * 2 + j] += p.beta * widen(load(from + j * p.c_col));
      }
    }
  }
}

// Sums of one piece of k, column by column.
template <class T, int kCount>
__device__ __forceinline__ void store_partial_along_m(const float (&sums)[kCount], const Arguments<T>& p,
                                                      float* partial, const FragmentOrigin& at) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t row = at.row + i / 2 % 2 * 8, col = at.col + i / 4 * 8 + i % 2;
    if (row < p.m && col < p.n) partial[col * p.m + row] = sums[i];
  }
}

// Row by row.
template <class T, int kCount>
__device__ __forceinline__ void store_partial(const float (&sums)[kCount], const Arguments<T>& p, float* partial,
                                              const FragmentOrigin& at) {
  const bool paired = p.n % 2 == 0;  // then both columns of a pair are inside or outside, and aligned
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    float* const row = partial + (at.row + half * 8) * p.n + at.col;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const float x = sums[i * 4 + half * 2], y = sums[i * 4 + half * 2 + 1];
      if (paired) {
        if (at.col + i * 8 < p.n) *reinterpret_cast<float2*>(row + i * 8) = make_float2(x, y);
      } else {
        if (at.col + i * 8 < p.n) row[i * 8] = x;
        if (at.col + i * 8 + 1 < p.n) row[i * 8 + 1] = y;
      }
    }
  }
}

// Elements of a float32 d from the accumulators of a warp; those whose bit is set in `skipped` are left alone.
template <int kCount>
__device__ __forceinline__ void store_fragments(const float (&sums)[kCount], const Arguments<float>& p,
                                                const FragmentOrigin& at, std::int64_t batch,
                                                std::uint64_t skipped = 0) {
  const bool paired = p.d_col == 1 && p.d_row % 2 == 0 && p.d_batch % 2 == 0 && p.n % 2 == 0 &&
                      reinterpret_cast<std::uintptr_t>(p.d) % 8 == 0 && skipped == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    float* const d = p.d_at(batch, at.row + half * 8, at.col);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const int x = i * 4 + half * 2;
      if (paired) {
        if (at.col + i * 8 < p.n) *reinterpret_cast<float2*>(d + i * 8) = make_float2(sums[x], sums[x + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const bool is_skipped = x + j < 64 && (skipped >> (x + j) % 64 & 1) != 0;
          if (at.col + i * 8 + j < p.n && !is_skipped) d[(i * 8 + j) * p.d_col] = sums[x + j];
        }
      }
    }
  }
}

template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float x, float y) {
  return static_cast<std::uint32_t>(narrow<T>(x).bits) | static_cast<std::uint32_t>(narrow<T>(y).bits) << 16;
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<Float16>(float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<BFloat16>(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Byte of (row, 16-byte chunk of 8 columns) in the staging of 64 rows.
__device__ __forceinline__ int staged_at(int row, int chunk) {
  return chunk / 8 * kWgmmaBoxBytes + row * 128 + ((chunk ^ row) & 7) * 16;
}

// Rounds kColumns columns, from accumulator `first` on, into the staging.
template <class T, int kColumns, int kFirst, int kCount>
__device__ __forceinline__ void stage(const float (&sums)[kCount], char* staging) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  // Matrices of stmatrix: rows 0-7 and 8-15 of 8 columns, then of the next 8.
  const int row = warp * 16 + lane % 16;
  const std::uint32_t base = ptx::shared_address(staging);
#pragma unroll
  for (int c = 0; c < kColumns / 16; ++c) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pack_pair<T>(sums[kFirst + c * 8 + i * 2], sums[kFirst + c * 8 + i * 2 + 1]);
    }
    ptx::stmatrix_x4(base + staged_at(row, c * 2 + lane / 16), words);
  }
}

// What a part of a tile leaves to the next: the last chunk of its rows, which reaches into the next part's first where
// rows of d do not start on 16 bytes.
struct RowEnds {
  uint4* last;    // of each of the 64 rows
  bool is_first;  // part of the tile: nothing was left
  bool is_last;   // nothing comes behind
};

// `count` < 8 elements at the start of `chunk` to `to`: the end of a row from its last boundary of 16 bytes on, or
// (is_head) its start up to the first. In pieces of 1, 2 and 4 elements, each aligned to its size.
template <class T>
__device__ __forceinline__ void store_row_end(T* to, uint4 chunk, int count, bool is_head) {
#pragma unroll
  for (int size = 1; size <= 4; size *= 2) {
    if ((count & size) == 0) continue;
    const int at = count & (is_head ? size - 1 : 8 - 2 * size);
    const uint4 piece = transposition::shift_chunks<2>(chunk, chunk, 2 * at);
    T* const target = to + at;
    if (size == 1) *reinterpret_cast<std::uint16_t*>(target) = static_cast<std::uint16_t>(piece.x);
    if (size == 2) *reinterpret_cast<std::uint32_t*>(target) = piece.x;
    if (size == 4) *reinterpret_cast<uint2*>(target) = make_uint2(piece.x, piece.y);
  }
}

// A warp's 16 rows of the staging into rows of d that are contiguous but not on 16-byte boundaries: chunks of 16 bytes
// cut out of two of the staging, and what is left at both ends of a row. Ends are what costs most: they are written in
// as few pieces as their alignment allows, and once a tile, not once a part of it. All that is read of the staging is
// read before the first store: the compiler cannot tell that d is not the staging, and one after another each chunk
// would wait for shared memory.
template <class T, int kColumns, int kMostInFlight>
__device__ __forceinline__ void store_rows_by_chunks(T* to, std::int64_t pitch, const char* staging, int rows,
                                                     int columns, const RowEnds& ends) {
  constexpr int kChunk = 8, kRows = 16;  // elements of a chunk; rows of a warp
  constexpr int kLanes = kColumns / kChunk, kRowsAtOnce = 32 / kLanes;
  constexpr int kInFlight = kRows / kRowsAtOnce < kMostInFlight ? 1 : kMostInFlight;
  static_assert(kRows % (kRowsAtOnce * kInFlight) == 0);
  // Unknown to the compiler: what follows from it would be kept in registers through the product.
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  const int lane = static_cast<int>(thread % 32), first_row = static_cast<int>(thread / 32 % 4) * kRows;
  const int chunk = lane % kLanes;
  const auto off_boundary = [](const T* at) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % 16 / 2); };
  // Chunk -1 is the last of the part before.
  const auto staged = [&](int row, int at) {
    return at < 0 ? ends.last[row] : *reinterpret_cast<const uint4*>(staging + staged_at(row, at));
  };
  const int first_chunk = ends.is_first ? 0 : -1;
#pragma unroll 1
  for (int i = 0; i < kRows; i += kRowsAtOnce * kInFlight) {
    uint4 before[kInFlight], own[kInFlight];
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) {
      const int row = first_row + i + f * kRowsAtOnce + lane / kLanes;
      own[f] = staged(row, chunk);
      before[f] = staged(row, max(chunk - 1, first_chunk));
    }
    if (!ends.is_last) {
      __syncwarp();  // the chunks left by the part before have been read
#pragma unroll
      for (int f = 0; f < kInFlight; ++f) {
        if (chunk == kLanes - 1) ends.last[first_row + i + f * kRowsAtOnce + lane / kLanes] = own[f];
      }
    }
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) {
      const int row = first_row + i + f * kRowsAtOnce + lane / kLanes;
      T* const line = to + row * pitch;
      const int off = off_boundary(line), col = chunk * kChunk - off;
      if (row < rows && col >= first_chunk * kChunk && col + kChunk <= columns) {
        transposition::store_chunk(line + col,
                                   off == 0 ? own[f] : transposition::shift_chunks<2>(before[f], own[f], 16 - 2 * off));
      }
    }
  }
  // Two lanes a row, one for each end.
  const bool is_head = lane % 2 == 0;
  const int row = first_row + lane / 2;
  T* const line = to + row * pitch;
  const int off = off_boundary(line), to_boundary = (kChunk - off) % kChunk;
  if (row >= rows) return;
  if (ends.is_first && columns < to_boundary) {  // not even one boundary
    if (is_head) {
      for (int i = 0; i < columns; ++i) line[i] = *reinterpret_cast<const T*>(staging + staged_at(row, 0) + i * 2);
    }
    return;
  }
  const int count = is_head ? (ends.is_first ? to_boundary : 0) : (ends.is_last ? (columns + off) % kChunk : 0);
  if (count == 0) return;
  const int first = is_head ? 0 : columns - count;
  const int at = first >> 3;  // -1 where the end starts in the part before
  const uint4 chunk_of_end =
      transposition::shift_chunks<2>(staged(row, at), staged(row, min(at + 1, kLanes - 1)), 2 * (first & 7));
  store_row_end(line + first, chunk_of_end, count, is_head);
}

// By TMA, a box of 64 columns at a time: while one is stored the next is staged in the other half of the staging.
template <class T, WgmmaTile kTile, int kBox = 0>
__device__ __forceinline__ void store_boxes(const float (&sums)[kTile.n / 2], const WgmmaArguments<T>& args,
                                            const WgmmaShared<kTile>& shared, int consumer, const WorkItem& item) {
  namespace cp = cuda::ptx;
  constexpr int kBoxes = wgmma_staged_boxes(kTile);
  static_assert(kTile.n / 64 % kBoxes == 0, "every tile starts in the same half");
  char* const staging = shared.staging(consumer) + kBox % kBoxes * kWgmmaBoxBytes;
  const bool leader = threadIdx.x % kWarpgroup == 0;
  if (leader) cp::cp_async_bulk_wait_group_read(cp::n32_t<kBoxes - 1>());
  ptx::bar_sync(1 + consumer, kWarpgroup);
  stage<T, 64, kBox * 32>(sums, staging);
  cp::fence_proxy_async(cp::space_shared);
  ptx::bar_sync(1 + consumer, kWarpgroup);
  if (leader) {
    const int at[3] = {item.col_tile * kTile.n + kBox * 64, item.row_tile * kTile.m + consumer * 64, item.batch};
    cp::cp_async_bulk_tensor(cp::space_global, cp::space_shared, &args.d, at, staging);
    cp::cp_async_bulk_commit_group();
  }
  if constexpr ((kBox + 1) * 64 < kTile.n) store_boxes<T, kTile, kBox + 1>(sums, args, shared, consumer, item);
}

// Part `part` of the columns, kColumns each, into the staging.
template <class T, int kColumns, int kPart = 0, int kCount>
__device__ __forceinline__ void stage_part(const float (&sums)[kCount], char* staging, int part) {
  if (part == kPart) {
    stage<T, kColumns, kPart * kColumns / 2>(sums, staging);
  } else if constexpr ((kPart + 2) * kColumns / 2 <= kCount) {
    stage_part<T, kColumns, kPart + 1>(sums, staging, part);
  }
}

// By the threads, where TMA cannot address d. All parts of a tile go through the same instructions: where another
// kernel ran in between, those have to come from memory first. H200, 2047 x 2047 x 2047, the parts one after another:
// 44.8 us behind cuBLAS, 40.3 behind itself.
template <class T, WgmmaTile kTile>
__device__ __forceinline__ void store_parts(const float (&sums)[kTile.n / 2], const WgmmaArguments<T>& args,
                                            const WgmmaShared<kTile>& shared, int consumer, const WorkItem& item) {
  constexpr int kColumns = wgmma_staged_columns(kTile), kParts = kTile.n / kColumns;
  static_assert(kParts * kColumns == kTile.n);
  const Arguments<T>& p = args.problem;
  char* const staging = shared.staging(consumer);
  const std::int64_t row0 = std::int64_t{item.row_tile} * kTile.m + consumer * 64;
  const int rows = static_cast<int>(min(p.m - row0, std::int64_t{64}));
#pragma unroll 1
  for (int part = 0; part < kParts; ++part) {
    const std::int64_t col0 = std::int64_t{item.col_tile} * kTile.n + part * kColumns;
    const int columns = static_cast<int>(min(p.n - col0, std::int64_t{kColumns}));
    if (columns <= 0) break;
    T* const d = p.d + item.batch * p.d_batch + row0 * p.d_row + col0 * p.d_col;

    ptx::bar_sync(1 + consumer, kWarpgroup);  // the staging has been read
    stage_part<T, kColumns>(sums, staging, part);
    ptx::bar_sync(1 + consumer, kWarpgroup);
    if (p.d_col == 1) {
      const RowEnds ends = {shared.row_ends(consumer), part == 0, part == kParts - 1 || p.n - col0 <= kColumns};
      constexpr int kInFlight = kTile.realigns ? 1 : 2;  // as many as there are registers for
      store_rows_by_chunks<T, kColumns, kInFlight>(d, p.d_row, staging, rows, columns, ends);
    } else {
      // Neighbouring threads have neighbouring rows, which lie next to each other where the problem was exchanged.
      const int row = threadIdx.x % 64;
      if (row < rows) {
#pragma unroll 4
        for (int col = threadIdx.x / 64 % 2; col < columns; col += 2) {
          const char* const staged = staging + staged_at(row, col / 8) + col % 8 * 2;
          pmpp::store(d + row * p.d_row + col * p.d_col, *reinterpret_cast<const T*>(staged));
        }
      }
    }
  }
}

}  // namespace pmpp::matmul
