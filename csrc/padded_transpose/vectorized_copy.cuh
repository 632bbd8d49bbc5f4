// vectorized, copy: the input is a transposed view (unit stride along its columns), so a destination row is a run of
// the source and nothing changes places. Contiguous on both sides it is one copy of the driver; this kernel serves rows
// with a pitch.
//
// Tiling: kCopyThreads threads are `lanes` lanes along a row by kCopyThreads / lanes rows. A thread has kCopyInFlight
// chunks in flight, of one row where rows are long (across), else of as many rows. It writes aligned chunks, and reads
// the one or two aligned chunks of the source that they lie in. All are read before the first is shifted, or each would
// wait for the one before (bfloat16, 1024 x 50,257 on an H200: 143 us, where a copy takes 55). The ends of a row go
// element by element, for the same reason all read before the first is written. Rows on grid.x, chunks of a row on y, batch on z; each axis strides on where the grid was clamped.
//
// Of the first and the last chunk of rows only what belongs to the matrix is touched.
// Precondition: unit stride along rows on both sides (in_row = out_col = 1).
#pragma once

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

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
        uint4 low[kCopyInFlight];
        uint4 high[kCopyInFlight];
        std::int64_t first[kCopyInFlight];
        bool whole[kCopyInFlight];  // the chunk, and the aligned ones that it lies in, belong to the row
#pragma unroll
        for (int k = 0; k < kCopyInFlight; ++k) {
          const E* const in = in0 + k * row_step * p.in_col;
          const E* const out = out0 + k * row_step * p.out_row;
          const int shift = static_cast<int>(address_of(out) & 15) / static_cast<int>(sizeof(E));
          // Behind the last row there is nothing to do.
          first[k] = row0 + k * row_step < p.n ? (chunk0 + k * chunk_step) * V - shift : p.m;
          const std::uintptr_t from = address_of(in + first[k]);
          const unsigned offset = static_cast<unsigned>(from & 15);
          whole[k] = first[k] >= 0 && first[k] + V <= p.m &&
                     (offset == 0 || (from - offset >= address_of(in) && from - offset + 32 <= address_of(in + p.m)));
          if (whole[k]) low[k] = *reinterpret_cast<const uint4*>(from - offset);
          if (whole[k] && offset != 0) high[k] = *reinterpret_cast<const uint4*>(from - offset + 16);
        }
#pragma unroll
        for (int k = 0; k < kCopyInFlight; ++k) {
          const E* const in = in0 + k * row_step * p.in_col + first[k];
          E* const out = out0 + k * row_step * p.out_row + first[k];
          if (whole[k]) {
            const unsigned offset = static_cast<unsigned>(address_of(in) & 15);
            store_chunk(out, offset == 0 ? low[k] : shift_chunks<sizeof(E)>(low[k], high[k], offset));
          } else {
            E element[V];
            const std::int64_t left = p.m - first[k];
#pragma unroll
            for (int v = 0; v < V; ++v) {
              if (first[k] + v >= 0 && v < left) element[v] = in[v];
            }
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
