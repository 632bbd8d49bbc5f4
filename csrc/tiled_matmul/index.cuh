// Index arithmetic of the product kernels.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"

namespace pmpp::matmul {

// value / divisor for value >= 0 and divisor > 0. A 64-bit division costs about a hundred instructions; all but
// enormous problems do with 32 bits.
PMPP_HOST_DEVICE std::int64_t divide(std::int64_t value, std::int64_t divisor) {
  if (((value | divisor) >> 32) == 0) return static_cast<std::uint32_t>(value) / static_cast<std::uint32_t>(divisor);
  return value / divisor;
}

}  // namespace pmpp::matmul
