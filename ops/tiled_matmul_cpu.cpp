#include <ATen/Parallel.h>

#include <algorithm>

#include "csrc/tiled_matmul/cpu/run.hpp"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

// Multiply-adds below which a thread costs more to wake than it saves: 32,768 take about 10 us.
constexpr std::int64_t kWorkPerThread = 32768;

DeviceFacts facts(const c10::Device&) { return cpu_facts(at::get_num_threads()); }

void run(const matmul::Plan& plan, const matmul::Problem& problem, const c10::Device&) {
  const std::int64_t task_work = std::max<std::int64_t>(
      1, std::min<std::int64_t>(plan.tile_m, problem.m) * std::min<std::int64_t>(plan.tile_n, problem.n) * problem.k);
  const std::int64_t grain = std::max<std::int64_t>(1, kWorkPerThread / task_work);
  at::parallel_for(0, plan.tasks, grain,
                   [&](std::int64_t begin, std::int64_t end) { matmul::run_cpu(plan, problem, begin, end); });
}

}  // namespace

const MatmulBackend kMatmulCpu = {facts, run};

}  // namespace pmpp::ops
