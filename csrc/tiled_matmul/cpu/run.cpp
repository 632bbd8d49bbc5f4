#include "csrc/tiled_matmul/cpu/run.hpp"

#include <algorithm>

#include "csrc/common/int_math.hpp"

namespace pmpp::matmul {

TaskRange task_range(const Plan& plan, const Problem& problem, std::int64_t task) {
  const std::int64_t col_tiles = ceil_div(problem.n, plan.tile_n);
  const std::int64_t row_tiles = ceil_div(problem.m, plan.tile_m);
  TaskRange range;
  range.batch = task / (row_tiles * col_tiles);
  range.row = task / col_tiles % row_tiles * plan.tile_m;
  range.col = task % col_tiles * plan.tile_n;
  range.row_end = std::min(range.row + plan.tile_m, problem.m);
  range.col_end = std::min(range.col + plan.tile_n, problem.n);
  return range;
}

void run_cpu(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end) {
  if (plan.algorithm == Algorithm::kNaive) {
    run_naive(plan, problem, task_begin, task_end);
  } else {
    run_blocked(plan, problem, task_begin, task_end);
  }
}

}  // namespace pmpp::matmul
