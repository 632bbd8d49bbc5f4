// Chunks of 16 bytes: read, staged in shared memory, put together in registers, written. A chunk of a destination row
// is V = 16 / element size elements of one source column.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <cstring>

#include "csrc/padded_transpose/config.hpp"

namespace pmpp::transposition {

template <class E>
inline constexpr int kPerChunk = kChunkBytes / static_cast<int>(sizeof(E));

__device__ __forceinline__ std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// As one 16-byte store. A plain assignment is split into four by the compiler wherever another branch writes the same
// elements one by one, which halves the speed.
__device__ __forceinline__ void store_chunk(void* address, uint4 value) {
  __stwb(reinterpret_cast<uint4*>(address), value);
}

// There are two ways into shared memory. cp.async leaves everything on its way at once, but fetches a 32-byte sector
// twice, once for each of its chunks, unless they lie there as they do in global memory, modulo 32 (seen with Nsight
// Compute: up to 1.9 times the bytes, a tenth of the speed). By way of registers places are free.

// By registers: copies the chunks of indices first, first + step, ... below `count`, kInFlight at a time.
// from_of(index) is the address of a chunk, to_of(index) its place.
template <int kInFlight, class From, class To>
__device__ __forceinline__ void stage_chunks(int first, int step, int count, const From& from_of, const To& to_of) {
  for (int index0 = first; index0 < count; index0 += kInFlight * step) {
    uint4 chunk[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int index = index0 + k * step;
      if (index < count) chunk[k] = *reinterpret_cast<const uint4*>(from_of(index));
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int index = index0 + k * step;
      if (index < count) *reinterpret_cast<uint4*>(to_of(index)) = chunk[k];
    }
  }
}

// For cp.async: how many bytes before `start` a line is to be staged from, to lie alike at `to`, modulo kAlignment. The
// line takes up to kStagePadding bytes more than it has.
template <int kAlignment>
__device__ __forceinline__ unsigned stage_offset(unsigned start, unsigned to) {
  return (start - to) & (kAlignment - 1);
}

// By cp.async: copies a piece of kBytes (4, 8 or 16) at `from`, a multiple of kBytes. Of a piece that is not wholly
// within [begin, end) only the elements inside are touched; those are loaded all at once, because one after another
// each would wait for memory.
template <class E, int kBytes>
__device__ __forceinline__ void stage_checked(char* to, std::uintptr_t from, std::uintptr_t begin, std::uintptr_t end) {
  if (from >= begin && from + kBytes <= end) {
    __pipeline_memcpy_async(to, reinterpret_cast<const void*>(from), kBytes);
    return;
  }
  constexpr int kElements = kBytes / static_cast<int>(sizeof(E));
  E element[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uintptr_t at = from + i * sizeof(E);
    if (at >= begin && at < end) element[i] = *reinterpret_cast<const E*>(at);
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uintptr_t at = from + i * sizeof(E);
    if (at >= begin && at < end) reinterpret_cast<E*>(to)[i] = element[i];
  }
}

// Waits for the pieces that this thread has not waited for; a barrier then makes all of them visible to all threads.
__device__ __forceinline__ void wait_for_staged() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// Elements in the order in which they lie in memory.
template <class E>
__device__ __forceinline__ uint4 chunk_of(const E (&element)[kPerChunk<E>]) {
  uint4 chunk;
  if constexpr (sizeof(E) == 1) {
    std::uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t low = __byte_perm(element[4 * w], element[4 * w + 1], 0x0040);
      const std::uint32_t high = __byte_perm(element[4 * w + 2], element[4 * w + 3], 0x0040);
      word[w] = __byte_perm(low, high, 0x5410);
    }
    chunk = make_uint4(word[0], word[1], word[2], word[3]);
  } else if constexpr (sizeof(E) == 2) {
    chunk = make_uint4(__byte_perm(element[0], element[1], 0x5410), __byte_perm(element[2], element[3], 0x5410),
                       __byte_perm(element[4], element[5], 0x5410), __byte_perm(element[6], element[7], 0x5410));
  } else {
    memcpy(&chunk, element, sizeof(chunk));
  }
  return chunk;
}

// Four words of four bytes, parts of four rows, become one word for each column.
__device__ __forceinline__ void transpose_bytes(const std::uint32_t row[4], std::uint32_t column[4]) {
  const std::uint32_t low01 = __byte_perm(row[0], row[1], 0x5140);
  const std::uint32_t low23 = __byte_perm(row[2], row[3], 0x5140);
  const std::uint32_t high01 = __byte_perm(row[0], row[1], 0x7362);
  const std::uint32_t high23 = __byte_perm(row[2], row[3], 0x7362);
  column[0] = __byte_perm(low01, low23, 0x5410);
  column[1] = __byte_perm(low01, low23, 0x7632);
  column[2] = __byte_perm(high01, high23, 0x5410);
  column[3] = __byte_perm(high01, high23, 0x7632);
}

// A word of each of V rows, of 1- or 2-byte elements, become one chunk for each of its columns.
template <class E>
__device__ __forceinline__ void transpose_words(const std::uint32_t (&word)[kPerChunk<E>],
                                                uint4 (&column)[4 / sizeof(E)]) {
  if constexpr (sizeof(E) == 1) {
    std::uint32_t quarter[4][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) transpose_bytes(word + 4 * q, quarter[q]);
#pragma unroll
    for (int c = 0; c < 4; ++c) column[c] = make_uint4(quarter[0][c], quarter[1][c], quarter[2][c], quarter[3][c]);
  } else {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const unsigned half = c == 0 ? 0x5410 : 0x7632;
      column[c] = make_uint4(__byte_perm(word[0], word[1], half), __byte_perm(word[2], word[3], half),
                             __byte_perm(word[4], word[5], half), __byte_perm(word[6], word[7], half));
    }
  }
}

// V chunks, one of each of V rows, become one of each of V columns. Elements of 4 bytes and more only change
// registers; 1- and 2-byte elements cost half an instruction each.
template <class E>
__device__ __forceinline__ void transpose_chunks(uint4 (&chunk)[kPerChunk<E>]) {
  constexpr int V = kPerChunk<E>;
  std::uint32_t in[V][4];
  std::uint32_t out[V][4];
  memcpy(in, chunk, sizeof(in));
  if constexpr (sizeof(E) == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t row[4] = {in[4 * i][j], in[4 * i + 1][j], in[4 * i + 2][j], in[4 * i + 3][j]};
        std::uint32_t column[4];
        transpose_bytes(row, column);
#pragma unroll
        for (int c = 0; c < 4; ++c) out[4 * j + c][i] = column[c];
      }
    }
  } else if constexpr (sizeof(E) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        out[2 * j][i] = __byte_perm(in[2 * i][j], in[2 * i + 1][j], 0x5410);
        out[2 * j + 1][i] = __byte_perm(in[2 * i][j], in[2 * i + 1][j], 0x7632);
      }
    }
  } else {
    constexpr int kWords = static_cast<int>(sizeof(E)) / 4;
#pragma unroll
    for (int i = 0; i < V; ++i) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) out[j][i * kWords + w] = in[i][j * kWords + w];
      }
    }
  }
  memcpy(chunk, out, sizeof(out));
}

// Bytes [bytes, bytes + 16) of the 32 bytes low, high, for a multiple of the element size below 16.
template <int kElementSize>
__device__ __forceinline__ uint4 shift_chunks(uint4 low, uint4 high, unsigned bytes) {
  std::uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  // A barrel shifter, by two words, by one, by bytes: every index is a constant, so all words stay in registers.
  if (bytes & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if constexpr (kElementSize <= 4) {
    if (bytes & 4) {
#pragma unroll
      for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
    }
  }
  if constexpr (kElementSize <= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __funnelshift_r(word[i], word[i + 1], (bytes & 3) * 8);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// The first `count` of the eight 2-byte elements of a chunk, and zeros.
__device__ __forceinline__ uint4 first_elements(uint4 chunk, int count) {
  std::uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (count < 2 * w + 2) word[w] = count == 2 * w + 1 ? word[w] & 0xffffu : 0;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// The matrix of a batch that a block works on; a grid has room for 65,535 on y, the rest lies on z.
__device__ __forceinline__ std::int64_t matrix_index() {
  return static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
}

}  // namespace pmpp::transposition
