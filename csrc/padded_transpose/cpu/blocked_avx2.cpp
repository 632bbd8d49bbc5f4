#define PMPP_ISA avx2
#include "csrc/padded_transpose/cpu/blocked.hpp"

namespace pmpp::transposition {

void run_blocked_avx2(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end) {
  avx2::run_tasks(plan, problem, begin, end);
}

}  // namespace pmpp::transposition
