// vectorized, copy: the input is a transposed view (unit stride along its columns), so a destination row is a run of
// the source and nothing changes places. Contiguous on both sides it is one copy of the driver; this kernel serves rows
// with a pitch.
//
// Tiling: kCopyThreads threads are `lanes` lanes along a row by kCopyThreads / lanes rows. A thread has kCopyInFlight
// chunks in flight, of one row where rows are long (across), else of as many rows. It writes aligned chunks, and reads
// the one or two aligned chunks of the source that they lie in. The ends of a row are read and written element by
// element, all read before the first is written, or each would wait for the one before (bfloat16, 4096 rows of 4095 into
// a pitch of 4096 on an H200: 50 us). Rows on grid.x, chunks of a row on y, batch on z; each axis strides on where the grid was clamped.
//
// Of the first and the last chunk of rows only what belongs to the matrix is touched.
// Precondition: unit stride along rows on both sides (in_row = out_col = 1).
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

// V elements from `from` on, which lie within [begin, end); an aligned chunk that does not is not read.
template <class E>
__device__ __forceinline__ uint4 load_shifted(const E* from, const E* begin, const E* end) {
  constexpr int V = kPerChunk<E>;
  const unsigned offset = static_cast<unsigned>(address_of(from) & 15);
  if (offset == 0) return *reinterpret_cast<const uint4*>(from);
  const std::uintptr_t low = address_of(from) - offset;
  if (low >= address_of(begin) && low + 32 <= address_of(end)) {
    const auto* const chunk = reinterpret_cast<const uint4*>(low);
    return shift_chunks<sizeof(E)>(chunk[0], chunk[1], offset);
  }
  E element[V];
#pragma unroll
  for (int v = 0; v < V; ++v) element[v] = from[v];
  return chunk_of(element);
}

template <class E>
__global__ void __launch_bounds__(kCopyThreads)
    padded_transpose_copy_kernel(const Arguments<E> p, const int lanes, const bool across) {
  constexpr int V = kPerChunk<E>;
  const int rows_at_once = kCopyThreads / lanes;
  const int chunk_step = across ? lanes : 0;
  const int row_step = across ? 0 : rows_at_once;
  const std::int64_t block_rows = rows_at_once * (across ? 1 : kCopyInFlight);
  const std::int64_t block_chunks = lanes * (across ? kCopyInFlight : 1);
  const std::int64_t first_row = blockIdx.x * block_rows + threadIdx.x / lanes;
  const std::int64_t first_chunk = blockIdx.y * block_chunks + threadIdx.x % lanes;

  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t row0 = first_row; row0 < p.n; row0 += gridDim.x * block_rows) {
      const E* const in0 = p.in + z * p.in_batch + row0 * p.in_col;
      E* const out0 = p.out + z * p.out_batch + row0 * p.out_row;
      // A row that starts off a boundary touches one chunk more than it fills.
      for (std::int64_t chunk0 = first_chunk; chunk0 * V < p.m + V - 1; chunk0 += gridDim.y * block_chunks) {
        uint4 value[kCopyInFlight];
        std::int64_t first[kCopyInFlight];
#pragma unroll
        for (int k = 0; k < kCopyInFlight; ++k) {
          const E* const in = in0 + k * row_step * p.in_col;
          const E* const out = out0 + k * row_step * p.out_row;
          const int shift = static_cast<int>(address_of(out) & 15) / static_cast<int>(sizeof(E));
          // Behind the last row there is nothing to do.
          first[k] = row0 + k * row_step < p.n ? (chunk0 + k * chunk_step) * V - shift : p.m;
          if (first[k] >= 0 && first[k] + V <= p.m) {
            value[k] = load_shifted(in + first[k], in, in + p.m);
          } else {
            E element[V];
#pragma unroll
            for (int v = 0; v < V; ++v) {
              element[v] = first[k] + v >= 0 && first[k] + v < p.m ? in[first[k] + v] : E{};
            }
            value[k] = chunk_of(element);
          }
        }
#pragma unroll
        for (int k = 0; k < kCopyInFlight; ++k) {
          E* const out = out0 + k * row_step * p.out_row + first[k];
          if (first[k] >= 0 && first[k] + V <= p.m) {
            store_chunk(out, value[k]);
          } else {
            E element[V];
            memcpy(element, &value[k], sizeof(element));
            const std::int64_t left = p.m - first[k];
#pragma unroll
            for (int v = 0; v < V; ++v) {
              if (first[k] + v >= 0 && v < left) out[v] = element[v];
            }
          }
        }
      }
    }
  }
}

}  // namespace pmpp::transposition
