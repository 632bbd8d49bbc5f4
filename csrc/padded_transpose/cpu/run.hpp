// padded_transpose on the CPU. Threads belong to the layer above: it hands out ranges of tasks.
#pragma once

#include <cstdint>

#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::transposition {

// Runs tasks [task_begin, task_end) of plan.tasks. A task owns its part of the output alone.
void run_cpu(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end);

}  // namespace pmpp::transposition
