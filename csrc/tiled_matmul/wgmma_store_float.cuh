// The epilogue of the wgmma kernel in float32: by the threads, from the staging of wgmma_store.cuh, rows of contiguous
// elements in chunks of 16 bytes, or columns likewise.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"
#include "csrc/tiled_matmul/wgmma_store.cuh"

namespace pmpp::matmul {

// How a part of a warpgroup's 64 rows of float32 is staged: lines of kElements that are contiguous in d, rows of it or
// (kAlongM) columns.
template <WgmmaTile kTile, bool kAlongM>
struct FloatStaging {
  static constexpr int kBytes = wgmma_staging_bytes(kTile) / wgmma_consumers(kTile);
  static constexpr int kColumns = kBytes / 256 < kTile.n ? kBytes / 256 : kTile.n;
  static constexpr int kLines = kAlongM ? kColumns : 64, kElements = kAlongM ? 64 : kColumns;
  static constexpr int kChunks = kElements / 4;
  static_assert(kTile.n % kColumns == 0);

  // Chunks of 16 bytes are exchanged, so that what a warp writes at once, 8 rows of 4 pairs of columns, lies in as many
  // banks as there can be.
  static __device__ __forceinline__ int chunk_at(int line, int chunk) {
    constexpr int kTurns = kChunks < 8 ? kChunks / 2 : 4;
    return line * kElements * 4 + (chunk ^ ((kAlongM ? line / 2 : line) % kTurns * 2)) * 16;
  }
  static __device__ __forceinline__ int element_at(int line, int element) {
    return chunk_at(line, element / 4) + element % 4 * 4;
  }
};

// kColumns columns, from accumulator `first` on.
template <class Staging, bool kAlongM, int kFirst, int kCount>
__device__ __forceinline__ void stage_floats(const float (&sums)[kCount], char* staging) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < Staging::kColumns / 8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + half * 8 + lane / 4, col = i * 8 + lane % 4 * 2;
      const float x = sums[kFirst + i * 4 + half * 2], y = sums[kFirst + i * 4 + half * 2 + 1];
      if constexpr (kAlongM) {
        *reinterpret_cast<float*>(staging + Staging::element_at(col, row)) = x;
        *reinterpret_cast<float*>(staging + Staging::element_at(col + 1, row)) = y;
      } else {
        *reinterpret_cast<float2*>(staging + Staging::element_at(row, col)) = make_float2(x, y);
      }
    }
  }
}

template <class Staging, bool kAlongM, int kPart = 0, int kCount>
__device__ __forceinline__ void stage_float_part(const float (&sums)[kCount], char* staging, int part) {
  if (part == kPart) {
    stage_floats<Staging, kAlongM, kPart * Staging::kColumns / 2>(sums, staging);
  } else if constexpr ((kPart + 2) * Staging::kColumns / 2 <= kCount) {
    stage_float_part<Staging, kAlongM, kPart + 1>(sums, staging, part);
  }
}

// `lines` lines of `elements` floats from the staging to `to`, by the 128 threads of a warpgroup. What lies before the
// first boundary of 16 bytes of a line, and behind the last, goes element by element.
template <class Staging>
__device__ __forceinline__ void store_float_lines(float* to, std::int64_t pitch, const char* staging, int lines,
                                                  int elements) {
  constexpr int kChunks = Staging::kChunks, kLinesAtOnce = kWarpgroup / kChunks;
  // Unknown to the compiler: what follows from it would be kept in registers through the product.
  unsigned thread_of_block = threadIdx.x;
  asm volatile("" : "+r"(thread_of_block));
  const int thread = static_cast<int>(thread_of_block % kWarpgroup), chunk = thread % kChunks;
  const auto off_boundary = [](const float* at) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % 16 / 4);
  };
  const auto staged = [&](int line, int at) {
    return *reinterpret_cast<const uint4*>(staging + Staging::chunk_at(line, at));
  };
#pragma unroll 2
  for (int first = 0; first < Staging::kLines; first += kLinesAtOnce) {
    const int line = first + thread / kChunks;
    if (line >= lines) break;
    float* const start = to + line * pitch;
    const int off = off_boundary(start), element = chunk * 4 - off;
    if (element < 0 || element + 4 > elements) continue;
    const uint4 own = staged(line, chunk);
    transposition::store_chunk(
        start + element, off == 0 ? own : transposition::shift_chunks<4>(staged(line, chunk - 1), own, 16 - 4 * off));
  }
  // Two threads a line, one for each end.
  const int line = thread / 2;
  if (line >= min(lines, Staging::kLines)) return;
  float* const start = to + line * pitch;
  const int head = min((4 - off_boundary(start)) % 4, elements);
  const int first = thread % 2 == 0 ? 0 : head + (elements - head) / 4 * 4;
  const int end = thread % 2 == 0 ? head : elements;
#pragma unroll 1
  for (int i = first; i < end; ++i) {
    start[i] = *reinterpret_cast<const float*>(staging + Staging::element_at(line, i));
  }
}

template <WgmmaTile kTile, bool kAlongM>
__device__ __forceinline__ void store_float_parts(const float (&sums)[kTile.n / 2], const Arguments<float>& p,
                                                  const WgmmaShared<kTile>& shared, int consumer,
                                                  const WorkItem& item) {
  using Staging = FloatStaging<kTile, kAlongM>;
  char* const staging = shared.staging(consumer);
  const std::int64_t row0 = std::int64_t{item.row_tile} * kTile.m + consumer * 64;
  const int rows = static_cast<int>(min(p.m - row0, std::int64_t{64}));
#pragma unroll 1
  for (int part = 0; part < kTile.n / Staging::kColumns; ++part) {
    const std::int64_t col0 = std::int64_t{item.col_tile} * kTile.n + part * Staging::kColumns;
    const int columns = static_cast<int>(min(p.n - col0, std::int64_t{Staging::kColumns}));
    if (columns <= 0) break;
    float* const d = p.d + item.batch * p.d_batch + row0 * p.d_row + col0 * p.d_col;
    ptx::bar_sync(1 + consumer, kWarpgroup);  // the staging has been read
    stage_float_part<Staging, kAlongM>(sums, staging, part);
    ptx::bar_sync(1 + consumer, kWarpgroup);
    if constexpr (kAlongM) {
      store_float_lines<Staging>(d, p.d_col, staging, columns, rows);
    } else {
      store_float_lines<Staging>(d, p.d_row, staging, rows, columns);
    }
  }
}

// A d of float32, through the staging where its rows or columns are contiguous.
template <WgmmaTile kTile>
__device__ __forceinline__ void store_float(const float (&sums)[kTile.n / 2], const Arguments<float>& p,
                                            const WgmmaShared<kTile>& shared, int consumer, const WorkItem& item,
                                            const FragmentOrigin& at) {
  if (p.d_col == 1) {
    store_float_parts<kTile, false>(sums, p, shared, consumer, item);
  } else if (p.d_row == 1) {
    store_float_parts<kTile, true>(sums, p, shared, consumer, item);
  } else {
    store_fragments(sums, p, at, item.batch);
  }
}

}  // namespace pmpp::matmul
