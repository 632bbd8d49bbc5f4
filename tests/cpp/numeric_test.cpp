#include "csrc/common/numeric.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

#include "tests/cpp/oracle.hpp"

namespace pmpp {
namespace {

using test::decode;
using test::encode;
using test::kBrain;
using test::kHalf;
using test::SmallFloat;

static_assert(std::is_same_v<AccumulatorOf<Float16>, float>);
static_assert(std::is_same_v<AccumulatorOf<BFloat16>, float>);
static_assert(std::is_same_v<AccumulatorOf<float>, float>);
static_assert(std::is_same_v<AccumulatorOf<double>, double>);
static_assert(std::is_same_v<AccumulatorOf<Complex<double>>, Complex<double>>);
static_assert(sizeof(AccumulatorOf<std::int8_t>) >= 4 && sizeof(AccumulatorOf<std::uint8_t>) >= 4);
static_assert(sizeof(AccumulatorOf<std::int16_t>) >= 4 && sizeof(AccumulatorOf<std::int64_t>) == 8);
static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);
static_assert(sizeof(Complex<float>) == 8 && sizeof(Complex<double>) == 16);

// The oracle's own landmarks, from the definitions of the formats.
TEST(Oracle, KnowsTheLandmarksOfBothFormats) {
  EXPECT_EQ(decode(0x3c00, kHalf), 1.0);
  EXPECT_EQ(decode(0xc000, kHalf), -2.0);
  EXPECT_EQ(decode(0x7bff, kHalf), 65504.0);
  EXPECT_EQ(decode(0x0400, kHalf), std::ldexp(1.0, -14));
  EXPECT_EQ(decode(0x0001, kHalf), std::ldexp(1.0, -24));
  EXPECT_EQ(decode(0x3f80, kBrain), 1.0);
  EXPECT_EQ(decode(0x7f7f, kBrain), std::ldexp(255.0, 120));
  EXPECT_EQ(decode(0x0001, kBrain), std::ldexp(1.0, -133));
  EXPECT_EQ(encode(65519.996L, kHalf), 0x7bff);
  EXPECT_EQ(encode(65520.0L, kHalf), 0x7c00);
  EXPECT_EQ(encode(1.0L + std::ldexp(1.0L, -11), kHalf), 0x3c00);  // a tie, to even
  EXPECT_EQ(encode(1.0L + std::ldexp(3.0L, -11), kHalf), 0x3c02);
}

template <class T>
constexpr SmallFloat format_of() {
  return std::is_same_v<T, Float16> ? kHalf : kBrain;
}

template <class T>
class SmallFloats : public ::testing::Test {};
using SmallFloatTypes = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(SmallFloats, SmallFloatTypes);

bool same_float(float x, double y) {
  return std::isnan(y) ? std::isnan(x) : (static_cast<double>(x) == y && std::signbit(x) == std::signbit(y));
}

TYPED_TEST(SmallFloats, EveryPatternWidensExactly) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const TypeParam value{static_cast<std::uint16_t>(bits)};
    ASSERT_TRUE(same_float(value.to_float(), decode(value.bits, format_of<TypeParam>()))) << std::hex << bits;
    ASSERT_TRUE(same_float(widen(value), decode(value.bits, format_of<TypeParam>()))) << std::hex << bits;
  }
}

TYPED_TEST(SmallFloats, EveryPatternSurvivesTheRoundTrip) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const TypeParam value{static_cast<std::uint16_t>(bits)};
    const float wide = value.to_float();
    const std::uint16_t back = TypeParam::from_float(wide).bits;
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(decode(back, format_of<TypeParam>()))) << std::hex << bits;
      ASSERT_EQ(back & 0x8000u, bits & 0x8000u) << std::hex << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// At, just below and just above the midpoint between each value and the next, which covers ties in both directions,
// subnormals, the step into the normals and the step to infinity.
TYPED_TEST(SmallFloats, RoundToNearestEvenAroundEveryMidpoint) {
  const SmallFloat format = format_of<TypeParam>();
  for (unsigned bits = 0; bits < format.infinity(); ++bits) {
    const double low = decode(static_cast<std::uint16_t>(bits), format);
    const bool last = bits + 1 == format.infinity();
    const double high =
        last ? std::ldexp(1.0, format.bias() + 1) : decode(static_cast<std::uint16_t>(bits + 1), format);
    const float midpoint = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(midpoint), (low + high) / 2) << "float32 holds every midpoint";
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    const float below = std::nextafter(midpoint, 0.0f);
    const float above = std::nextafter(midpoint, std::numeric_limits<float>::infinity());
    ASSERT_EQ(TypeParam::from_float(midpoint).bits, even) << std::hex << bits;
    ASSERT_EQ(TypeParam::from_float(below).bits, bits) << std::hex << bits;
    ASSERT_EQ(TypeParam::from_float(above).bits, bits + 1) << std::hex << bits;
    ASSERT_EQ(TypeParam::from_float(-midpoint).bits, even | 0x8000u) << std::hex << bits;
    ASSERT_EQ(TypeParam::from_float(-above).bits, (bits + 1) | 0x8000u) << std::hex << bits;
  }
}

TYPED_TEST(SmallFloats, RandomFloatsRoundAsTheOracle) {
  std::mt19937 random(20240601);
  for (int i = 0; i < 1000000; ++i) {
    const float value = float_from_bits(static_cast<std::uint32_t>(random()));
    const std::uint16_t actual = TypeParam::from_float(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decode(actual, format_of<TypeParam>()))) << std::hex << float_bits(value);
    } else {
      ASSERT_EQ(actual, encode(value, format_of<TypeParam>())) << std::hex << float_bits(value);
    }
  }
}

TYPED_TEST(SmallFloats, NanInfinityAndZero) {
  const SmallFloat format = format_of<TypeParam>();
  // NaNs whose payload lies only in the bits that narrowing drops must not turn into infinity.
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0x7f801fffu}) {
    const std::uint16_t narrowed = TypeParam::from_float(float_from_bits(bits)).bits;
    EXPECT_TRUE(std::isnan(decode(narrowed, format))) << std::hex << bits;
    EXPECT_EQ(narrowed >> 15, bits >> 31);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam::from_float(infinity).bits, format.infinity());
  EXPECT_EQ(TypeParam::from_float(-infinity).bits, format.infinity() | 0x8000u);
  EXPECT_EQ(TypeParam::from_float(std::numeric_limits<float>::max()).bits, format.infinity());
  EXPECT_EQ(TypeParam::from_float(0.0f).bits, 0);
  EXPECT_EQ(TypeParam::from_float(-0.0f).bits, 0x8000);
  EXPECT_EQ(TypeParam::from_float(std::numeric_limits<float>::denorm_min()).bits, 0);
}

#ifdef __FLT16_MANT_DIG__
TEST(Float16Test, AgreesWithTheCompilersOwnType) {
  std::mt19937 random(7);
  for (unsigned bits = 0; bits < 65536; ++bits) {
    _Float16 native;
    const auto pattern = static_cast<std::uint16_t>(bits);
    std::memcpy(&native, &pattern, sizeof(native));
    ASSERT_TRUE(same_float(Float16{pattern}.to_float(), static_cast<double>(static_cast<float>(native))));
  }
  for (int i = 0; i < 200000; ++i) {
    // Exponents around float16's range, where the interesting roundings are.
    const float value = std::ldexp(static_cast<float>(random()) - 2147483648.0f, static_cast<int>(random() % 48) - 60);
    const auto native = static_cast<_Float16>(value);
    std::uint16_t pattern;
    std::memcpy(&pattern, &native, sizeof(pattern));
    ASSERT_EQ(Float16::from_float(value).bits, pattern) << value;
  }
}
#endif

TEST(ComplexTest, Arithmetic) {
  const Complex<double> x{2, 3}, y{-5, 7}, sum{11, -13};
  const Complex<double> fused = multiply_add(sum, x, y);
  EXPECT_EQ(fused.re, 11 + (2 * -5 - 3 * 7));
  EXPECT_EQ(fused.im, -13 + (2 * 7 + 3 * -5));
  const Complex<double> total = add(x, y);
  EXPECT_EQ(total.re, -3);
  EXPECT_EQ(total.im, 10);
  const Complex<double> product = scale(x, y);
  EXPECT_EQ(product.re, -31);
  EXPECT_EQ(product.im, -1);
}

TEST(ComplexTest, ARealFactorMakesNoFalseNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Complex<double> scaled = scale(Complex<double>{2, 0}, Complex<double>{infinity, -1});
  EXPECT_EQ(scaled.re, infinity);
  EXPECT_EQ(scaled.im, -2);
}

TEST(Integers, WrapAround) {
  EXPECT_EQ(narrow<std::int8_t>(widen<std::int8_t>(100) + widen<std::int8_t>(100)), -56);
  EXPECT_EQ(narrow<std::uint8_t>(widen<std::uint8_t>(200) * widen<std::uint8_t>(200)), 64);
  EXPECT_EQ(narrow<std::int16_t>(widen<std::int16_t>(-32768) * widen<std::int16_t>(-1)), -32768);
  const std::int32_t lowest32 = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(narrow<std::int32_t>(multiply_add(widen(lowest32), widen(lowest32), widen(std::int32_t{3}))), 0);
  const std::int64_t lowest64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(narrow<std::int64_t>(multiply_add(widen(lowest64), widen(lowest64), widen(std::int64_t{2}))), lowest64);
  EXPECT_EQ(narrow<std::int64_t>(add(widen(std::int64_t{-1}), widen(std::int64_t{1}))), 0);
}

TEST(Narrowing, RoundsOnceAndToEven) {
  EXPECT_EQ(narrow<Float16>(2049.0f).bits, encode(2048.0L, kHalf));
  EXPECT_EQ(narrow<Float16>(2051.0f).bits, encode(2052.0L, kHalf));
  EXPECT_EQ(narrow<BFloat16>(257.0f).bits, encode(256.0L, kBrain));
  EXPECT_EQ(narrow<BFloat16>(259.0f).bits, encode(260.0L, kBrain));
  EXPECT_EQ(narrow<float>(1.5f), 1.5f);
}

}  // namespace
}  // namespace pmpp
