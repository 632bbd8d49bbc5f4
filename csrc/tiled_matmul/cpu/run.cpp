#include "csrc/tiled_matmul/cpu/run.hpp"

#include <algorithm>

#include "csrc/common/int_math.hpp"

namespace pmpp::matmul {

TaskRange task_range(const Plan& plan, const Problem& problem, std::int64_t task) {
  const std::int64_t col_tiles = ceil_div(problem.n, plan.tile_n);
  const std::int64_t row_tiles = ceil_div(problem.m, plan.tile_m);
  const std::int64_t split = task % plan.splits;
  task /= plan.splits;
  TaskRange range;
  range.batch = task / (row_tiles * col_tiles);
  range.row = task / col_tiles % row_tiles * plan.tile_m;
  range.col = task % col_tiles * plan.tile_n;
  range.row_end = std::min(range.row + plan.tile_m, problem.m);
  range.col_end = std::min(range.col + plan.tile_n, problem.n);
  range.k = std::min(split * plan.split_k, problem.k);
  range.k_end = plan.splits == 1 ? problem.k : std::min(range.k + plan.split_k, problem.k);
  return range;
}

void run_cpu(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin,
             std::int64_t end) {
  if (plan.algorithm == Algorithm::kNaive || problem.k == 0) return run_naive(plan, problem, begin, end);
  const Problem p = plan.exchanged ? exchanged(problem) : problem;
#if defined(__x86_64__)
  if (plan.isa == CpuIsa::kAvx512) return run_blocked_avx512(plan, p, scratch, partials, begin, end);
  if (plan.isa == CpuIsa::kAvx2) return run_blocked_avx2(plan, p, scratch, partials, begin, end);
#endif
  run_blocked_portable(plan, p, scratch, partials, begin, end);
}

void finish_cpu(const Plan& plan, const Problem& problem, void* partials) {
  if (plan.splits == 1) return;
  const Problem p = plan.exchanged ? exchanged(problem) : problem;
#if defined(__x86_64__)
  if (plan.isa == CpuIsa::kAvx512) return add_partials_avx512(plan, p, partials);
  if (plan.isa == CpuIsa::kAvx2) return add_partials_avx2(plan, p, partials);
#endif
  add_partials_portable(plan, p, partials);
}

}  // namespace pmpp::matmul
