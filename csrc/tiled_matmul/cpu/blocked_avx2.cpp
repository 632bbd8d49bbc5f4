#define PMPP_ISA avx2
#include "csrc/tiled_matmul/cpu/blocked.hpp"

namespace pmpp::matmul {

void run_blocked_avx2(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin,
                      std::int64_t end) {
  avx2::run_tasks(plan, problem, scratch, partials, begin, end);
}

void add_partials_avx2(const Plan& plan, const Problem& problem, void* partials) {
  avx2::run_sums(plan, problem, partials);
}

}  // namespace pmpp::matmul
