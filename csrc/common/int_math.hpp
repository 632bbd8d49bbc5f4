// Integer arithmetic on sizes. Everything is 64-bit: an operand may have more than 2^31 elements.
#pragma once

#include <cstdint>

namespace pmpp {

// Smallest q with q * divisor >= value, for value >= 0 and divisor > 0. Written without value + divisor - 1, which
// overflows for sizes near the top of the range.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// Smallest multiple of `multiple` that is >= value, for value >= 0 and multiple > 0.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

// Whether an address is a multiple of `bytes`.
inline bool is_aligned(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace pmpp
