#define PMPP_ISA avx512
#include "csrc/tiled_matmul/cpu/blocked.hpp"

namespace pmpp::matmul {

void run_blocked_avx512(const Plan& plan, const Problem& problem, void* scratch, void* partials, std::int64_t begin,
                        std::int64_t end) {
  avx512::run_tasks(plan, problem, scratch, partials, begin, end);
}

void add_partials_avx512(const Plan& plan, const Problem& problem, void* partials) {
  avx512::run_sums(plan, problem, partials);
}

}  // namespace pmpp::matmul
