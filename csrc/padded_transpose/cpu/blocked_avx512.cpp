#define PMPP_ISA avx512
#include "csrc/padded_transpose/cpu/blocked.hpp"

namespace pmpp::transposition {

void run_blocked_avx512(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end) {
  avx512::run_tasks(plan, problem, begin, end);
}

}  // namespace pmpp::transposition
