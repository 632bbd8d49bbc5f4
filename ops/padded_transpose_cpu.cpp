#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "csrc/padded_transpose/cpu/run.hpp"
#include "ops/device_facts.h"
#include "ops/padded_transpose.h"

namespace pmpp::ops {
namespace {

// Elements below which a thread costs more to wake than it saves: the grain that PyTorch uses for element-wise work.
constexpr std::int64_t kElementsPerThread = 32768;

DeviceFacts facts(const c10::Device&) { return cpu_device_facts(); }

void run(const transposition::Plan& plan, const transposition::Problem& problem, const c10::Device&) {
  const std::int64_t task_elements =
      std::min<std::int64_t>(plan.tile_m, problem.m) * std::min<std::int64_t>(plan.tile_n, problem.n);
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerThread / std::max<std::int64_t>(1, task_elements));
  at::parallel_for(0, plan.tasks, grain,
                   [&](std::int64_t begin, std::int64_t end) { transposition::run_cpu(plan, problem, begin, end); });
}

}  // namespace

const TransposeBackend kTransposeCpu = {facts, run};

}  // namespace pmpp::ops
