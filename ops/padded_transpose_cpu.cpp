#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/padded_transpose/cpu/run.hpp"
#include "ops/device_facts.h"
#include "ops/padded_transpose.h"

namespace pmpp::ops {
namespace {

// Elements below which a thread costs more to wake than it saves: the grain that PyTorch uses for element-wise work.
constexpr std::int64_t kElementsPerThread = 32768;

DeviceFacts facts(const c10::Device&) { return cpu_device_facts(); }

// Bytes from which a result is asked to lie in huge pages, as NumPy does: of fresh memory, most of the time would go
// into mapping it page by page.
constexpr std::size_t kHugePageResult = std::size_t{4} << 20;

void advise_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  if (bytes < kHugePageResult) return;
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
}

void run(const transposition::Plan& plan, const transposition::Problem& problem, const c10::Device&) {
  if (problem.batch == 1 && problem.out_row_stride == problem.m && problem.out_col_stride == 1) {
    advise_huge_pages(problem.out, static_cast<std::size_t>(problem.m * problem.n * problem.element_size));
  }
  const std::int64_t task_elements =
      std::min<std::int64_t>(plan.tile_m, problem.m) * std::min<std::int64_t>(plan.tile_n, problem.n);
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerThread / std::max<std::int64_t>(1, task_elements));
  at::parallel_for(0, plan.tasks, grain,
                   [&](std::int64_t begin, std::int64_t end) { transposition::run_cpu(plan, problem, begin, end); });
}

}  // namespace

const TransposeBackend kTransposeCpu = {facts, run};

}  // namespace pmpp::ops
