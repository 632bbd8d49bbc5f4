// naive walks along source rows and writes with a stride: every element written touches another cache line. blocked
// stays within tiles whose lines, on both sides, fit the first-level cache.
#include "csrc/padded_transpose/cpu/run.hpp"

#include <algorithm>

#include "csrc/common/int_math.hpp"
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
      out[j * p.out_row + i * p.out_col] = in[i * p.in_row + j * p.in_col];
    }
  }
}

template <class E>
void move_blocked(const Arguments<E>& p, const Range& range) {
  const E* in = p.in + range.batch * p.in_batch;
  E* out = p.out + range.batch * p.out_batch;
  for (std::int64_t i0 = range.i; i0 < range.i_end; i0 += kCpuTile) {
    const std::int64_t i_end = std::min(i0 + kCpuTile, range.i_end);
    for (std::int64_t j = range.j; j < range.j_end; ++j) {
      const E* source = in + j * p.in_col;
      E* destination = out + j * p.out_row;
      for (std::int64_t i = i0; i < i_end; ++i) destination[i * p.out_col] = source[i * p.in_row];
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
