// naive walks along source rows and writes with a stride: every element written touches another cache line. blocked
// moves tiles through a small padded buffer, so that whole runs are read and whole runs written.
#include "csrc/padded_transpose/cpu/run.hpp"

#include <algorithm>
#include <type_traits>

#include "csrc/common/int_math.hpp"
#include "csrc/common/numeric.hpp"
#include "csrc/padded_transpose/config.hpp"

namespace pmpp::transposition {
namespace {

// Part of one matrix: source rows [i, i_end), source columns [j, j_end).
struct Range {
  std::int64_t batch, i, i_end, j, j_end;
};

Range task_range(const Plan& plan, const Problem& problem, std::int64_t task) {
  const std::int64_t i_tiles = ceil_div(problem.m, plan.tile_m);
  const std::int64_t j_tiles = ceil_div(problem.n, plan.tile_n);
  Range range;
  range.batch = task / (i_tiles * j_tiles);
  range.j = task / i_tiles % j_tiles * plan.tile_n;
  range.i = task % i_tiles * plan.tile_m;
  range.j_end = std::min(range.j + plan.tile_n, problem.n);
  range.i_end = std::min(range.i + plan.tile_m, problem.m);
  return range;
}

template <class E>
void move_naive(const Arguments<E>& p, const Range& range) {
  const E* in = p.in + range.batch * p.in_batch;
  E* out = p.out + range.batch * p.out_batch;
  for (std::int64_t i = range.i; i < range.i_end; ++i) {
    for (std::int64_t j = range.j; j < range.j_end; ++j) {
      store(out + j * p.out_row + i * p.out_col, load(in + i * p.in_row + j * p.in_col));
    }
  }
}

// Stride and Size are integral constants for whole tiles of contiguous rows, which lets the compiler vectorise, and
// integers for the rest.
template <class E, class Stride, class Size>
void move_tile(const E* in, std::int64_t in_row, Stride in_col, E* out, std::int64_t out_row, Stride out_col, Size rows,
               Size cols) {
  // Staged in a buffer of its own with one element of padding: with a pitch that is a power of two, all rows of a tile
  // fall into the same few sets of the cache, and every line would be fetched again for each of its elements.
  E tile[kCpuTile][kCpuTile + 1];
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) tile[i][j] = load(in + i * in_row + j * in_col);
  }
  for (int j = 0; j < cols; ++j) {
    for (int i = 0; i < rows; ++i) store(out + j * out_row + i * out_col, tile[i][j]);
  }
}

template <class E>
void move_blocked(const Arguments<E>& p, const Range& range) {
  const E* in = p.in + range.batch * p.in_batch;
  E* out = p.out + range.batch * p.out_batch;
  // A transposed view: source and destination run along the same direction, and nothing needs to change places.
  if (p.in_row < p.in_col) {
    for (std::int64_t j = range.j; j < range.j_end; ++j) {
      for (std::int64_t i = range.i; i < range.i_end; ++i) {
        store(out + j * p.out_row + i * p.out_col, load(in + i * p.in_row + j * p.in_col));
      }
    }
    return;
  }
  const int cols = static_cast<int>(range.j_end - range.j);
  for (std::int64_t i = range.i; i < range.i_end; i += kCpuTile) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kCpuTile, range.i_end - i));
    const E* const tile_in = in + i * p.in_row + range.j * p.in_col;
    E* const tile_out = out + range.j * p.out_row + i * p.out_col;
    const std::integral_constant<int, kCpuTile> full;
    if (rows == kCpuTile && cols == kCpuTile && p.in_col == 1 && p.out_col == 1) {
      const std::integral_constant<int, 1> unit;
      move_tile(tile_in, p.in_row, unit, tile_out, p.out_row, unit, full, full);
    } else {
      move_tile(tile_in, p.in_row, p.in_col, tile_out, p.out_row, p.out_col, rows, cols);
    }
  }
}

}  // namespace

void run_cpu(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end) {
  visit_element_size(problem.element_size, [&]<class E>() {
    const Arguments<E> arguments = make_arguments<E>(problem);
    for (std::int64_t task = task_begin; task < task_end; ++task) {
      const Range range = task_range(plan, problem, task);
      if (plan.algorithm == Algorithm::kNaive) {
        move_naive(arguments, range);
      } else {
        move_blocked(arguments, range);
      }
    }
  });
}

}  // namespace pmpp::transposition
