#include "csrc/common/int_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "csrc/common/device_facts.hpp"
#include "csrc/common/divisor.hpp"
#include "csrc/common/dtype.hpp"

namespace pmpp {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

static_assert(ceil_div(7, 2) == 4, "usable in constant expressions");
static_assert(round_up(7, 8) == 8, "usable in constant expressions");

static_assert(7 / Divisor(2) == 3 && 7 % Divisor(2) == 1, "usable in constant expressions");

// Around every multiple of the divisor that a dividend can be near to: the first, the last, and powers of two between.
void expect_divides(std::int32_t divisor) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const Divisor by(divisor);
  EXPECT_EQ(std::int32_t{by}, divisor);
  const auto expect_near = [&](std::int64_t multiple) {
    for (std::int64_t n = std::max<std::int64_t>(multiple - 1, 0); n <= std::min(multiple + 1, kMost); ++n) {
      const auto value = static_cast<std::int32_t>(n);
      ASSERT_EQ(value / by, value / divisor) << n << " / " << divisor;
      ASSERT_EQ(value % by, value % divisor) << n << " % " << divisor;
    }
  };
  for (std::int64_t times = 1; times * divisor <= kMost; times *= 2) {
    expect_near(times * divisor);
    expect_near((kMost / divisor - times + 1) * divisor);
  }
  expect_near(0);
  expect_near(kMost);
}

TEST(Divisor, DividesAsTheLanguageDoes) {
  for (std::int32_t divisor = 1; divisor <= 5000; ++divisor) expect_divides(divisor);
  for (int shift = 1; shift < 31; ++shift) {
    for (std::int64_t near = -2; near <= 2; ++near) {
      const std::int64_t divisor = (std::int64_t{1} << shift) + near;
      if (divisor >= 1) expect_divides(static_cast<std::int32_t>(divisor));
    }
  }
  for (std::int32_t below = 0; below < 100; ++below) expect_divides(std::numeric_limits<std::int32_t>::max() - below);
  for (std::int32_t divisor = 65537; divisor < std::numeric_limits<std::int32_t>::max() / 3; divisor *= 3) {
    expect_divides(divisor);
  }
  EXPECT_EQ(5 / Divisor(), 5) << "unset, it is 1";
}

TEST(IntMath, CeilDivIsTheSmallestQuotientThatCovers) {
  for (std::int64_t value = 0; value <= 200; ++value) {
    for (std::int64_t divisor = 1; divisor <= 70; ++divisor) {
      const std::int64_t quotient = ceil_div(value, divisor);
      EXPECT_GE(quotient * divisor, value) << value << " / " << divisor;
      EXPECT_LT((quotient - 1) * divisor, value + (value == 0)) << value << " / " << divisor;
    }
  }
}

TEST(IntMath, CeilDivHoldsBeyond32Bits) {
  EXPECT_EQ(ceil_div((std::int64_t{1} << 31) + 1, 16), (std::int64_t{1} << 27) + 1);
  EXPECT_EQ(ceil_div(std::int64_t{1} << 40, 16), std::int64_t{1} << 36);
}

TEST(IntMath, CeilDivDoesNotOverflowAtTheTop) {
  EXPECT_EQ(ceil_div(kLargest, 1), kLargest);
  EXPECT_EQ(ceil_div(kLargest, kLargest), 1);
  EXPECT_EQ(ceil_div(kLargest, 2), kLargest / 2 + 1);
  EXPECT_EQ(ceil_div(kLargest - 1, kLargest), 1);
}

TEST(IntMath, RoundUpIsTheNextMultiple) {
  for (std::int64_t value = 0; value <= 200; ++value) {
    for (std::int64_t multiple = 1; multiple <= 70; ++multiple) {
      const std::int64_t rounded = round_up(value, multiple);
      EXPECT_EQ(rounded % multiple, 0);
      EXPECT_GE(rounded, value);
      EXPECT_LT(rounded - value, multiple);
    }
  }
  EXPECT_EQ(round_up((std::int64_t{1} << 33) + 1, 128), (std::int64_t{1} << 33) + 128);
}

TEST(DTypes, HaveTheirSizesAndNames) {
  const struct {
    DType dtype;
    int size;
    const char* name;
  } expected[] = {
      {DType::kFloat16, 2, "float16"}, {DType::kBFloat16, 2, "bfloat16"},   {DType::kFloat32, 4, "float32"},
      {DType::kFloat64, 8, "float64"}, {DType::kComplex64, 8, "complex64"}, {DType::kComplex128, 16, "complex128"},
      {DType::kUInt8, 1, "uint8"},     {DType::kInt8, 1, "int8"},           {DType::kInt16, 2, "int16"},
      {DType::kInt32, 4, "int32"},     {DType::kInt64, 8, "int64"},
  };
  ASSERT_EQ(std::size(kAllDTypes), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(kAllDTypes[i], expected[i].dtype);
    EXPECT_EQ(element_size(expected[i].dtype), expected[i].size) << expected[i].name;
    EXPECT_STREQ(dtype_name(expected[i].dtype), expected[i].name);
  }
}

TEST(DeviceFactsTest, CpuAndH200) {
  const DeviceFacts cpu = cpu_facts(7);
  EXPECT_FALSE(cpu.is_cuda);
  EXPECT_EQ(cpu.cpu_threads, 7);
  const DeviceFacts h200 = h200_facts();
  EXPECT_TRUE(h200.is_cuda);
  EXPECT_EQ(h200.compute_capability, 90);
  EXPECT_EQ(h200.sm_count, 132);
  EXPECT_EQ(h200.shared_memory_per_block, 49152);
  EXPECT_EQ(h200.shared_memory_opt_in, 232448);
  EXPECT_EQ(h200.max_threads_per_block, 1024);
}

}  // namespace
}  // namespace pmpp
