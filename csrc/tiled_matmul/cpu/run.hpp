// tiled_matmul on the CPU. Threads belong to the layer above: it hands out ranges of tasks.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Runs tasks [task_begin, task_end) of plan.tasks. A task owns its outputs alone and sums them in a fixed order, so any
// division among threads gives the same bits.
void run_cpu(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end);

void run_naive(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end);
void run_blocked(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end);

// The outputs of one task: rows [row, row_end) and columns [col, col_end) of matrix `batch`.
struct TaskRange {
  std::int64_t batch, row, row_end, col, col_end;
};

TaskRange task_range(const Plan& plan, const Problem& problem, std::int64_t task);

}  // namespace pmpp::matmul
