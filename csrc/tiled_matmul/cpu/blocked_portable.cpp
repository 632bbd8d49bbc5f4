#define PMPP_ISA portable
#include "csrc/tiled_matmul/cpu/blocked.hpp"

namespace pmpp::matmul {

void run_blocked_portable(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin,
                          std::int64_t end) {
  portable::run_tasks(plan, problem, scratch, partials, begin, end);
}

void add_partials_portable(const Plan& plan, const Problem& problem, void* partials) {
  portable::run_sums(plan, problem, partials);
}

}  // namespace pmpp::matmul
