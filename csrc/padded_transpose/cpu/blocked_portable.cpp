#define PMPP_ISA portable
#include "csrc/padded_transpose/cpu/blocked.hpp"

namespace pmpp::transposition {

void run_blocked_portable(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end) {
  portable::run_tasks(plan, problem, begin, end);
}

}  // namespace pmpp::transposition
