// Division by a number that is known before a kernel starts.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"

namespace pmpp {

// A divisor from 1 to 2^31 - 1, whose quotients take a multiplication and a shift: a GPU has no instruction that
// divides, and the two dozen that do it instead take longer than a small product has. Of dividends from 0 to 2^31 - 1.
//
// With 2^(l - 1) < d <= 2^l and m = ceil(2^(31 + l) / d), n m / 2^(31 + l) exceeds n / d by less than 1 / d, so that
// both have the same integer part (Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994).
class Divisor {
 public:
  Divisor() = default;
  explicit constexpr Divisor(std::int32_t value) : value_(value) {
    while ((std::int64_t{1} << shift_) < value) ++shift_;
    const std::int64_t power = std::int64_t{1} << (31 + shift_);
    multiplier_ = static_cast<std::uint32_t>(power / value + (power % value != 0 ? 1 : 0));
  }

  PMPP_HOST_DEVICE constexpr operator std::int32_t() const { return value_; }

  PMPP_HOST_DEVICE friend constexpr std::int32_t operator/(std::int32_t n, const Divisor& d) {
    const std::uint64_t product = std::uint64_t{static_cast<std::uint32_t>(n) * 2} * d.multiplier_;
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(product >> 32) >> d.shift_);
  }
  PMPP_HOST_DEVICE friend constexpr std::int32_t operator%(std::int32_t n, const Divisor& d) {
    return n - n / d * d.value_;
  }

 private:
  std::int32_t value_ = 1;
  std::uint32_t multiplier_ = std::uint32_t{1} << 31;
  std::int32_t shift_ = 0;
};

}  // namespace pmpp
