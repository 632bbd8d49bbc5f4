#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstddef>

#include "csrc/tiled_matmul/cpu/run.hpp"
#include "ops/device_facts.h"
#include "ops/tiled_matmul.h"

namespace pmpp::ops {
namespace {

// Multiply-adds below which a thread costs more to wake than it saves: 32,768 take about 10 us in `naive`. Tasks of
// `blocked` are as many as there is work for.
constexpr std::int64_t kWorkPerThread = 32768;

DeviceFacts facts(const c10::Device&) { return cpu_device_facts(); }

// PyTorch's allocator aligns to 64 bytes, and reports when there is no memory.
at::DataPtr allocate(std::int64_t bytes) {
  return bytes > 0 ? c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(bytes)) : at::DataPtr();
}

void run(const matmul::Plan& plan, const matmul::Problem& problem, const c10::Device&) {
  std::int64_t grain = 1;
  if (plan.algorithm == matmul::Algorithm::kNaive) {
    const std::int64_t task_work = std::min<std::int64_t>(plan.tile_n, problem.n) * problem.k;
    grain = std::max<std::int64_t>(1, kWorkPerThread / std::max<std::int64_t>(1, task_work));
  }
  const at::DataPtr partials = allocate(plan.workspace_bytes);
  at::parallel_for(0, plan.tasks, grain, [&](std::int64_t begin, std::int64_t end) {
    const at::DataPtr scratch = allocate(plan.scratch_bytes);
    matmul::run_cpu(plan, problem, scratch.get(), partials.get(), begin, end);
  });
  matmul::finish_cpu(plan, problem, partials.get());
}

}  // namespace

const MatmulBackend kMatmulCpu = {facts, run};

}  // namespace pmpp::ops
