// tiled_matmul on the CPU. Threads and memory belong to the layer above: it hands out ranges of tasks.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Runs tasks [begin, end) of plan.tasks. A task owns its outputs alone and sums them in a fixed order, so any division
// among threads gives the same bits. `scratch` has plan.scratch_bytes, which no other call uses at the same time;
// `partials` has plan.workspace_bytes and is shared by all calls. Both start at a multiple of 64 bytes, and are unused
// where they are 0 bytes.
void run_cpu(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin,
             std::int64_t end);

// To be called once after all tasks are done, on the same partials: adds up what was split along k, in its order.
void finish_cpu(const Plan& plan, const Problem& problem, void* partials);

void run_naive(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end);

#define PMPP_DECLARE_BLOCKED(isa)                                                                                     \
  void run_blocked_##isa(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin, \
                         std::int64_t end);                                                                           \
  void add_partials_##isa(const Plan& plan, const Problem& problem, void* partials)
PMPP_DECLARE_BLOCKED(portable);
PMPP_DECLARE_BLOCKED(avx2);
PMPP_DECLARE_BLOCKED(avx512);
#undef PMPP_DECLARE_BLOCKED

// The part of one task: rows [row, row_end) and columns [col, col_end) of matrix `batch`, summed over [k, k_end).
struct TaskRange {
  std::int64_t batch, row, row_end, col, col_end, k, k_end;
};

TaskRange task_range(const Plan& plan, const Problem& problem, std::int64_t task);

}  // namespace pmpp::matmul
