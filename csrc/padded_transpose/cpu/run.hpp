// padded_transpose on the CPU. Threads belong to the layer above: it hands out ranges of tasks.
#pragma once

#include <cstdint>

#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::transposition {

// Runs tasks [begin, end) of plan.tasks. A task owns its part of the output alone.
void run_cpu(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end);

void run_blocked_portable(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end);
void run_blocked_avx2(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end);
void run_blocked_avx512(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end);

// The part of one task: source rows [i, i_end) and columns [j, j_end) of matrix `batch`.
struct TaskRange {
  std::int64_t batch, i, i_end, j, j_end;
};

TaskRange task_range(const Plan& plan, const Problem& problem, std::int64_t task);

}  // namespace pmpp::transposition
