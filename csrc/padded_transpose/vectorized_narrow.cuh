// vectorized, narrow: one side is so short that square tiles would be mostly empty, and the short rows lie one behind
// the other, so that a block's part of them is a contiguous strip, read or written in whole lines. Both kernels stage
// the source in aligned chunks and gather the elements of a destination chunk, as vectorized_gather.cuh does.
//
// Barrier, after staging: all threads arrive and wait. Each block owns one strip.
//
// Of the first and the last chunk of a strip or row only what belongs to the matrix is touched.
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

// The constants of a launch. Divisions by numbers that a launch fixes are multiplications by their reciprocals,
// ceil(2^32 / divisor): exact for dividends below 2^16, and these count chunks of shared memory.
struct NarrowSource {
  int groups;           // of V source rows, that a block owns
  int group_bytes;      // from one group to the next in shared memory
  int chunks;           // that a group is staged in
  int columns_at_once;  // runs of columns that warps work on side by side
  unsigned per_chunks;  // reciprocal of chunks
};

struct NarrowDest {
  int width;            // bytes of a source row that a block owns
  int pitch;            // of a staged row
  int pieces;           // that a staged row consists of
  unsigned per_pieces;  // reciprocal of pieces
  unsigned per_m;       // reciprocal of m
};

__device__ __forceinline__ int divide(int dividend, unsigned reciprocal) {
  return static_cast<int>(__umulhi(static_cast<unsigned>(dividend), reciprocal));
}

// Few columns: source rows are short. V of them are 16 n bytes, so all groups of V rows start at the same distance from
// a boundary; a group is staged with its neighbours' bytes in its first and last chunk.
//
// Tiling: a block owns groups * V source rows and reads one group before them: it writes destination rows from the last
// boundary before its first element on. A warp writes kNarrowLanes chunks of 32 / kNarrowLanes destination rows.
//
// kAlignedDest: all destination rows start on boundaries, so that a chunk is made of one group. Nothing is read twice
// then, and 1- and 2-byte elements are read in words, of 4 or 2 columns, shifted into place and transposed in
// registers: 2 to 3 instructions an element instead of 9.
//
// Shared memory: groups lie an odd number of chunks apart, so that eight lanes that read eight groups hit eight
// different groups of banks; or, for an even n and wide elements, an odd number of sectors, so that no sector belongs
// to two groups (two lanes then meet in a bank, which costs less).
//
// Preconditions: contiguous source rows (in_col = 1, in_row = n), unit stride along destination rows.
template <class E, bool kAlignedDest>
__global__ void __launch_bounds__(kNarrowThreadsMax, 2)
    padded_transpose_narrow_source_kernel(const Arguments<E> p, const NarrowSource launch) {
  constexpr int kElementSize = sizeof(E);
  constexpr int V = kPerChunk<E>;
  constexpr int kHaloGroups = kAlignedDest ? 0 : 1;
  extern __shared__ __align__(128) uint4 shared[];
  char* const staged = reinterpret_cast<char*>(shared);

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const int n = static_cast<int>(p.n);
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.x) * launch.groups * V;
  const std::int64_t first_row = i0 - kHaloGroups * V;
  const std::uintptr_t begin = address_of(p.in + z * p.in_batch);
  const std::uintptr_t end = begin + p.m * n * kElementSize;
  const std::uintptr_t origin = begin + first_row * n * kElementSize;
  // The first group lies here as it does in global memory, to the chunk.
  char* const first_group = staged + (origin & 16);
  const auto offset_of = [&](int group) {
    return static_cast<int>(
        stage_offset<narrow_alignment(sizeof(E))>(static_cast<unsigned>(origin) + group * n * kChunkBytes,
                                                  static_cast<unsigned>(origin & 16) + group * launch.group_bytes));
  };
  const int groups = launch.groups + kHaloGroups;
  const bool interior = first_row >= 0 && origin >= begin + kStagePadding &&
                        origin + static_cast<std::int64_t>(groups) * n * kChunkBytes + kStagePadding <= end;
  for (int index = threadIdx.x; index < groups * launch.chunks; index += blockDim.x) {
    const int group = divide(index, launch.per_chunks);
    const int chunk = index - group * launch.chunks;
    char* const to = first_group + group * launch.group_bytes + chunk * kChunkBytes;
    const std::uintptr_t from = origin + (group * n + chunk) * kChunkBytes - offset_of(group);
    if (interior) {
      __pipeline_memcpy_async(to, reinterpret_cast<const void*>(from), 16);
    } else {
      stage_checked<E, 16>(to, from, begin, end);
    }
  }
  wait_for_staged();
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int run = warp / launch.columns_at_once;
  const int runs = blockDim.x / 32 / launch.columns_at_once;
  // Columns, or words of them, that a warp works on at a time, and the first of this thread.
  constexpr int kPerWarp = 32 / kNarrowLanes;
  const int first_col = warp % launch.columns_at_once * kPerWarp + lane / kNarrowLanes;
  const int col_step = launch.columns_at_once * kPerWarp;
  const int first_chunk = run * kNarrowLanes + lane % kNarrowLanes;
  const int chunk_step = runs * kNarrowLanes;
  if constexpr (kAlignedDest && kElementSize < 4) {
    constexpr int kWordCols = 4 / kElementSize;
    const int row_bytes = n * kElementSize;
    for (int w = first_col; w * 4 < row_bytes; w += col_step) {
      // Of the first row of a group, in shared memory; eight groups further on, where the loop goes, offsets are the
      // same.
      int at =
          static_cast<int>(first_group - staged) + first_chunk * launch.group_bytes + offset_of(first_chunk) + w * 4;
      char* const out =
          reinterpret_cast<char*>(p.out + z * p.out_batch + static_cast<std::int64_t>(w) * kWordCols * p.out_row + i0);
      for (int chunk = first_chunk; chunk < launch.groups && i0 + chunk * V < p.m; chunk += chunk_step) {
        std::uint32_t word[V];
#pragma unroll
        for (int r = 0; r < V; ++r) {
          const int byte = at + r * row_bytes;
          const auto* const aligned = reinterpret_cast<const std::uint32_t*>(staged + (byte & ~3));
          word[r] = __funnelshift_r(aligned[0], aligned[1], byte * 8);
        }
        uint4 column[kWordCols];
        transpose_words<E>(word, column);
#pragma unroll
        for (int c = 0; c < kWordCols; ++c) {
          if (w * kWordCols + c >= n) break;
          char* const to = out + c * p.out_row * kElementSize + chunk * kChunkBytes;
          if (i0 + chunk * V + V <= p.m) {
            store_chunk(to, column[c]);
          } else {
#pragma unroll
            for (int v = 0; v < V; ++v) {
              if (i0 + chunk * V + v < p.m) {
                reinterpret_cast<E*>(to)[v] =
                    *reinterpret_cast<const E*>(staged + at + v * row_bytes + c * kElementSize);
              }
            }
          }
        }
        at += chunk_step * launch.group_bytes;
      }
    }
  } else {
    for (int j = first_col; j < n; j += col_step) {
      char* const out = reinterpret_cast<char*>(p.out + z * p.out_batch + j * p.out_row + i0);
      const int shift = kAlignedDest ? 0 : static_cast<int>(address_of(out) & 15) / kElementSize;
      const char* from[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        // Eight groups further on, where the loop goes, offsets are the same again.
        const int row = kHaloGroups * V - shift + v;
        const int group = row / V + first_chunk;
        from[v] = first_group + group * launch.group_bytes + offset_of(group) + (row % V * n + j) * kElementSize;
      }
      for (int chunk = first_chunk; chunk < launch.groups; chunk += chunk_step) {
        const std::int64_t first = i0 + chunk * V - shift;  // the source row of the chunk's first element
        char* const to = out + (chunk * V - shift) * kElementSize;
        if (first >= 0 && first + V <= p.m) {
          E element[V];
#pragma unroll
          for (int v = 0; v < V; ++v) element[v] = *reinterpret_cast<const E*>(from[v]);
          store_chunk(to, chunk_of(element));
        } else {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            if (first + v >= 0 && first + v < p.m) reinterpret_cast<E*>(to)[v] = *reinterpret_cast<const E*>(from[v]);
          }
        }
#pragma unroll
        for (int v = 0; v < V; ++v) from[v] += chunk_step * launch.group_bytes;
      }
    }
  }
}

// Few rows: destination rows are short and lie one behind the other. V of them are m chunks, so chunk c is made up as
// chunk c - m is, V columns further: a thread keeps to one residue of c modulo m, and the addresses of its elements are
// computed once.
//
// Tiling: a block owns launch.width bytes of every source row, and with them a contiguous strip of the destination. The
// two chunks that it shares with its neighbours are written element by element.
//
// Shared memory: rows are staged in pieces of kPiece bytes. Elements of 4 bytes and more are pieces themselves, which
// allows a pitch that spreads a column over all banks; smaller ones are staged in chunks, fewer accesses, and every V
// rows are followed by one chunk.
//
// Preconditions: unit stride along source rows; contiguous destination rows (out_col = 1, out_row = m).
template <class E, int kPiece>
__global__ void __launch_bounds__(kNarrowThreadsMax)
    padded_transpose_narrow_dest_kernel(const Arguments<E> p, const NarrowDest launch) {
  constexpr int kElementSize = sizeof(E);
  constexpr int V = kPerChunk<E>;
  constexpr int kGroupPadding = kPiece > kElementSize ? kChunkBytes : 0;
  extern __shared__ __align__(128) uint4 shared[];
  char* const staged = reinterpret_cast<char*>(shared);

  const std::int64_t z = matrix_index();
  if (z >= p.batch) return;
  const int m = static_cast<int>(p.m);
  const int all_cols = launch.width / kElementSize;
  const std::int64_t j0 = static_cast<std::int64_t>(blockIdx.x) * all_cols;
  const std::int64_t pitch = p.in_row * kElementSize;
  const std::uintptr_t origin = address_of(p.in + z * p.in_batch + j0);
  const unsigned origin_low = static_cast<unsigned>(origin);
  const unsigned pitch_low = static_cast<unsigned>(pitch);
  // Where a row is staged, and how many bytes before its start. Pieces of less than a chunk go through the first-level
  // cache, which fetches a sector once.
  const auto place = [&](int row) { return row * launch.pitch + row / V * kGroupPadding; };
  const auto offset_of = [&](int row) {
    return kPiece == kChunkBytes
               ? static_cast<int>(stage_offset<narrow_alignment(sizeof(E))>(origin_low + row * pitch_low, place(row)))
               : 0;
  };
  constexpr int kMargin = kStagePadding / kElementSize;
  const bool interior = j0 >= kMargin && j0 + all_cols + kMargin <= p.n;
  for (int index = threadIdx.x; index < m * launch.pieces; index += blockDim.x) {
    const int row = divide(index, launch.per_pieces);
    const int piece = index - row * launch.pieces;
    char* const to = staged + place(row) + piece * kPiece;
    const std::uintptr_t start = origin + row * pitch;
    const std::uintptr_t from = start - offset_of(row) + piece * kPiece;
    if (interior) {
      __pipeline_memcpy_async(to, reinterpret_cast<const void*>(from), kPiece);
    } else {
      stage_checked<E, kPiece>(to, from, start - j0 * kElementSize, start + (p.n - j0) * kElementSize);
    }
  }
  wait_for_staged();
  __syncthreads();

  const int periods_at_once = blockDim.x / m;
  const int period = divide(threadIdx.x, launch.per_m);
  if (period >= periods_at_once) return;
  const int residue = threadIdx.x - period * m;
  char* const strip = reinterpret_cast<char*>(p.out + z * p.out_batch + j0 * m);
  const int shift = static_cast<int>(address_of(strip) & 15) / kElementSize;
  const int elements = static_cast<int>(min(p.n - j0, static_cast<std::int64_t>(all_cols))) * m;
  const char* from[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const int element = residue * V - shift + v + m * V;  // one period further, so that it is not negative
    const int col = divide(element, launch.per_m);
    const int row = element - col * m;
    from[v] = staged + place(row) + offset_of(row) + (col - V + period * V) * kElementSize;
  }
  for (int first = (period * m + residue) * V - shift; first < elements; first += periods_at_once * m * V) {
    if (first >= 0 && first + V <= elements) {
      E element[V];
#pragma unroll
      for (int v = 0; v < V; ++v) element[v] = *reinterpret_cast<const E*>(from[v]);
      store_chunk(strip + first * kElementSize, chunk_of(element));
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + v >= 0 && first + v < elements) {
          reinterpret_cast<E*>(strip)[first + v] = *reinterpret_cast<const E*>(from[v]);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) from[v] += periods_at_once * kChunkBytes;
  }
}

}  // namespace pmpp::transposition
