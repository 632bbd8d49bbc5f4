// naive: one thread an element. A warp reads 32 neighbours of a source row, which is coalesced, and writes them to 32
// different destination rows, which is not: each write touches a 32-byte sector of its own.
//
// Tiling: a block of 32 x 8 threads owns 8 source rows of 32 columns. Rows on grid.x, columns on y, batch on z; each
// axis strides on where the grid was clamped. No precondition on sizes, strides or alignment beyond that of the
// element.
#pragma once

#include "csrc/padded_transpose/config.hpp"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

template <class E>
__global__ void __launch_bounds__(kNaiveCols* kNaiveRows) padded_transpose_naive_kernel(const Arguments<E> p) {
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * kNaiveRows;
  const std::int64_t col_step = static_cast<std::int64_t>(gridDim.y) * kNaiveCols;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kNaiveRows + threadIdx.y;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.y) * kNaiveCols + threadIdx.x;

  for (std::int64_t z = blockIdx.z; z < p.batch; z += gridDim.z) {
    for (std::int64_t i = first_row; i < p.m; i += row_step) {
      for (std::int64_t j = first_col; j < p.n; j += col_step) {
        p.out[z * p.out_batch + j * p.out_row + i * p.out_col] = p.in[z * p.in_batch + i * p.in_row + j * p.in_col];
      }
    }
  }
}

}  // namespace pmpp::transposition
