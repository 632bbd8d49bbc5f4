// Checks of a matmul kernel against the oracle, shared by the CPU and the CUDA tests. Each takes an Execute, which
// runs one kernel on host buffers (through the device's memory where it must) and leaves the result in data.d.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "csrc/tiled_matmul/problem.hpp"
#include "tests/cpp/oracle.hpp"

namespace pmpp::test {

using matmul::Scalar;

enum class Fill : std::uint8_t {
  kSmallIntegers,     // -4..4: every product and sum here is exact in every accumulator
  kPositiveIntegers,  // 1..5: sums pass 2048 (float16) and 256 (bfloat16), so a 16-bit accumulator is caught
  kReal,              // uniform in [-1, 1); full range for integers
};

struct MatmulCase {
  DType dtype;
  std::int64_t m, n, k, batch = 1;
  Layout a = Layout::kRowMajor, b = Layout::kRowMajor, d = Layout::kRowMajor;
  std::optional<Layout> c = std::nullopt;
  Scalar alpha = matmul::scalar(1), beta = matmul::scalar(0);
  Fill fill = Fill::kSmallIntegers;
  BatchLayout a_batch = BatchLayout::kPacked, b_batch = BatchLayout::kPacked, c_batch = BatchLayout::kPacked,
              d_batch = BatchLayout::kPacked;
  int guard = 3;                        // elements on either side of d
  int odd_offset = 0;                   // elements in front of a, b and c, which take their base off its alignment
  int a_offset = 0, b_offset = 0;       // more of them, in front of a and b alone
  int a_pad = 0, b_pad = 0, d_pad = 0;  // elements between the lines of a, b and d
  matmul::Float32Precision precision = matmul::Float32Precision::kIeee;
};

// The same view with lines further apart.
inline Strided with_pad(Strided view, int pad) {
  std::int64_t& pitch = std::abs(view.row_stride) >= std::abs(view.col_stride) ? view.row_stride : view.col_stride;
  pitch += pitch < 0 ? -pad : pad;
  view.batch_stride += (view.batch_stride < 0 ? -pad : pad) * std::max(view.rows, view.cols);
  return view;
}

inline Buffer random_buffer(const MatmulCase& spec, const Strided& view, std::mt19937_64& random, int offset = 0) {
  Buffer buffer(element_size(spec.dtype), view, spec.odd_offset + offset, Buffer::kPoison);
  const auto real = [&] {
    switch (spec.fill) {
      case Fill::kSmallIntegers:
        return static_cast<double>(static_cast<std::int64_t>(random() % 9) - 4);
      case Fill::kPositiveIntegers:
        return static_cast<double>(random() % 5 + 1);
      case Fill::kReal:
        break;
    }
    return std::ldexp(static_cast<double>(random() >> 11), -52) - 1.0;
  };
  buffer.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
    Value value;
    if (is_integer(spec.dtype) && spec.fill == Fill::kReal) {
      value.integer = static_cast<std::int64_t>(random());
    } else {
      value.re = real();
      value.im = is_complex(spec.dtype) ? real() : 0;
      value.integer = static_cast<std::int64_t>(value.re);
    }
    store(spec.dtype, buffer.address(b, i, j), value);
  });
  return buffer;
}

struct MatmulData {
  MatmulCase spec;
  Buffer a, b, c, d;

  explicit MatmulData(const MatmulCase& asked) : spec(asked) {
    std::mt19937_64 random(static_cast<std::uint64_t>(1000003 * spec.m + 1009 * spec.n + spec.k));
    a = random_buffer(spec, with_pad(strided(spec.a, spec.m, spec.k, spec.batch, spec.a_batch), spec.a_pad), random,
                      spec.a_offset);
    b = random_buffer(spec, with_pad(strided(spec.b, spec.k, spec.n, spec.batch, spec.b_batch), spec.b_pad), random,
                      spec.b_offset);
    if (spec.c) {
      c = random_buffer(spec, strided(*spec.c, spec.m, spec.n, spec.batch, spec.c_batch), random);
    }
    d = Buffer(element_size(spec.dtype),
               with_pad(strided(spec.d, spec.m, spec.n, spec.batch, spec.d_batch), spec.d_pad), spec.guard,
               Buffer::kGuard);
  }

  matmul::Problem problem() {
    const auto operand = [](const Buffer& x) {
      return matmul::Operand{x.data(), x.view.row_stride, x.view.col_stride, x.view.batch_stride};
    };
    matmul::Problem p{};
    p.dtype = spec.dtype;
    p.precision = spec.precision;
    p.m = spec.m, p.n = spec.n, p.k = spec.k, p.batch = spec.batch;
    p.a = operand(a), p.b = operand(b), p.c = operand(c);
    p.d = {d.data(), d.view.row_stride, d.view.col_stride, d.view.batch_stride};
    p.alpha = spec.alpha, p.beta = spec.beta;
    return p;
  }
};

using Execute = std::function<void(MatmulData&)>;

// alpha * a @ b + beta * c of one element, and the sum of the magnitudes of its terms.
struct Expected {
  Value value;
  long double magnitude = 0;
};

inline Value times(const Value& x, const Value& y, bool complex) {
  Value product;
  product.integer =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(x.integer) * static_cast<std::uint64_t>(y.integer));
  product.re = x.re * y.re;
  if (complex) {
    product.re -= x.im * y.im;
    product.im = x.re * y.im + x.im * y.re;
  }
  return product;
}

inline void add(Value& sum, const Value& x) {
  sum.re += x.re;
  sum.im += x.im;
  sum.integer =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(sum.integer) + static_cast<std::uint64_t>(x.integer));
}

inline long double size_of(const Value& x) { return std::fabs(x.re) + std::fabs(x.im); }

// The operands' values, read once: rows of a and columns of b, each along k.
struct Decoded {
  std::vector<Value> a, b;

  explicit Decoded(const MatmulData& data, std::int64_t batch) {
    const MatmulCase& spec = data.spec;
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t l = 0; l < spec.k; ++l) a.push_back(load(spec.dtype, data.a.address(batch, i, l)));
    }
    for (std::int64_t j = 0; j < spec.n; ++j) {
      for (std::int64_t l = 0; l < spec.k; ++l) b.push_back(load(spec.dtype, data.b.address(batch, l, j)));
    }
  }
};

inline Expected expected_at(const MatmulData& data, const Decoded& values, std::int64_t batch, std::int64_t i,
                            std::int64_t j) {
  const DType dtype = data.spec.dtype;
  const bool complex = is_complex(dtype);
  const auto value_of = [](const Scalar& s) { return Value{s.re, s.im, s.integer}; };
  // A real factor scales both parts on their own: 1 * infinity is infinity, in complex numbers too.
  const auto scaled = [&](const Value& factor, const Value& x) {
    Value product = times(factor, x, complex && factor.im != 0);
    product.im = complex && factor.im == 0 ? factor.re * x.im : product.im;
    return product;
  };
  Expected expected;
  const Value* x = values.a.data() + i * data.spec.k;
  const Value* y = values.b.data() + j * data.spec.k;
  for (std::int64_t l = 0; l < data.spec.k; ++l) {
    add(expected.value, times(x[l], y[l], complex));
    expected.magnitude += size_of(x[l]) * size_of(y[l]);
  }
  const Value alpha = value_of(data.spec.alpha);
  const Value beta = value_of(data.spec.beta);
  expected.value = scaled(alpha, expected.value);
  expected.magnitude *= size_of(alpha);
  const bool beta_is_zero = is_integer(dtype) ? beta.integer == 0 : (beta.re == 0 && beta.im == 0);
  if (data.spec.c && !beta_is_zero) {
    const Value c = load(dtype, data.c.address(batch, i, j));
    add(expected.value, scaled(beta, c));
    expected.magnitude += size_of(beta) * size_of(c);
  }
  return expected;
}

// Whole-number data must match to the last bit; real data within the rounding error of a sum of k products.
inline ::testing::AssertionResult close_enough(const MatmulCase& spec, const Expected& expected, const Value& actual) {
  const Value nearest = rounded(spec.dtype, expected.value);
  if (same(nearest, actual)) {
    return ::testing::AssertionSuccess();
  }
  if (spec.fill == Fill::kReal && !is_integer(spec.dtype)) {
    const int precision = precision_of(spec.dtype);
    const long double in_accumulator = std::ldexp(1.0L, -std::max(precision, 24));
    const long double in_result = std::ldexp(1.0L, -precision);
    const long double smallest = spec.dtype == DType::kFloat16 ? std::ldexp(1.0L, -24) : 0.0L;
    const long double terms = static_cast<long double>(spec.k + 4) * (is_complex(spec.dtype) ? 2 : 1);
    const long double bound =
        terms * in_accumulator * expected.magnitude + in_result * size_of(expected.value) + smallest;
    if (std::fabs(actual.re - expected.value.re) <= bound && std::fabs(actual.im - expected.value.im) <= bound) {
      return ::testing::AssertionSuccess();
    }
  }
  return ::testing::AssertionFailure() << "expected " << to_text(nearest) << ", got " << to_text(actual);
}

inline void expect_result(const MatmulData& data, const Buffer& untouched, const std::string& what) {
  const MatmulCase& spec = data.spec;
  for (std::int64_t b = 0; b < spec.batch; ++b) {
    const Decoded values(data, b);
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        const Value actual = load(spec.dtype, data.d.address(b, i, j));
        const auto close = close_enough(spec, expected_at(data, values, b, i, j), actual);
        if (!close) {  // the first wrong element says enough
          ADD_FAILURE() << what << ": d[" << b << "][" << i << "][" << j << "] " << close.message();
          return;
        }
      }
    }
  }
  EXPECT_EQ(untouched.first_stray_write(data.d), -1) << what << ": written outside d";
}

// Runs one case and compares all of d and the memory around it.
inline void check(const Execute& execute, MatmulData& data) {
  const Buffer untouched = data.d;
  execute(data);
  expect_result(data, untouched, to_string(data.problem()));
}

inline void check(const Execute& execute, const MatmulCase& spec) {
  MatmulData data(spec);
  check(execute, data);
}

// Sizes at 0, 1 and around each tile edge.
inline void check_sizes(const Execute& execute, DType dtype, const std::vector<std::int64_t>& tiles) {
  std::vector<std::array<std::int64_t, 3>> sizes = {{0, 5, 3}, {5, 0, 3}, {0, 0, 0}, {1, 1, 1}, {3, 5, 2}};
  for (const std::int64_t t : tiles) {
    sizes.insert(sizes.end(), {{t, t, t},
                               {t - 1, t, t + 1},
                               {t, t + 1, t - 1},
                               {t + 1, t - 1, t},
                               {1, t + 1, t + 1},
                               {t + 1, 1, t},
                               {t + 1, t + 1, 1}});
  }
  int count = 0;
  for (const auto& [m, n, k] : sizes) {
    MatmulCase spec{dtype, m, n, k};
    spec.guard = (count++ % 2) * 3;  // without a guard a stray write leaves the allocation: the sanitizers' half
    check(execute, spec);
  }
}

inline void check_real_values(const Execute& execute, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  MatmulCase spec{dtype, m, n, k};
  spec.fill = Fill::kReal;
  check(execute, spec);
}

inline void check_layouts(const Execute& execute, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr Layout kAll[] = {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced,     Layout::kSlicedColumnMajor,
                             Layout::kReversed, Layout::kSameRow,     Layout::kSameColumn, Layout::kSameElement};
  constexpr Layout kResults[] = {Layout::kRowMajor, Layout::kColumnMajor, Layout::kSliced, Layout::kReversed};
  int count = 0;
  const auto run = [&](Layout a, Layout b) {
    MatmulCase spec{dtype, m, n, k};
    spec.a = a, spec.b = b, spec.d = kResults[count % 4];
    spec.guard = count % 3;
    spec.odd_offset = count % 2;
    ++count;
    check(execute, spec);
  };
  for (const Layout a : {Layout::kRowMajor, Layout::kColumnMajor}) {  // NN, NT, TN, TT
    run(a, Layout::kRowMajor);
    run(a, Layout::kColumnMajor);
  }
  for (std::size_t i = 0; i < std::size(kAll); ++i) {
    run(kAll[i], kAll[(i + 3) % std::size(kAll)]);
  }
}

inline void check_batches(const Execute& execute, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr BatchLayout kAll[] = {BatchLayout::kPacked, BatchLayout::kApart, BatchLayout::kReversed,
                                  BatchLayout::kShared};
  for (int i = 0; i < 4; ++i) {
    MatmulCase spec{dtype, m, n, k, 3};
    spec.a_batch = kAll[i], spec.b_batch = kAll[(i + 1) % 4], spec.c_batch = kAll[(i + 2) % 4];
    spec.d_batch = kAll[i % 3];  // the batches of a result never share memory
    spec.a = i % 2 == 0 ? Layout::kRowMajor : Layout::kColumnMajor;
    spec.d = i % 2 == 0 ? Layout::kSliced : Layout::kRowMajor;
    spec.c = Layout::kRowMajor;
    spec.beta = matmul::scalar(1);
    check(execute, spec);
  }
  MatmulCase none{dtype, m, n, k, 0};
  check(execute, none);
}

inline void check_epilogue(const Execute& execute, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto run = [&](std::optional<Layout> c, Scalar alpha, Scalar beta) {
    MatmulCase spec{dtype, m, n, k};
    spec.c = c, spec.alpha = alpha, spec.beta = beta;
    check(execute, spec);
  };
  const auto whole = [](std::int64_t x) { return matmul::scalar(x); };
  run(std::nullopt, whole(-3), whole(0));
  run(Layout::kRowMajor, whole(1), whole(1));
  run(Layout::kColumnMajor, whole(2), whole(-1));
  run(Layout::kSliced, whole(0), whole(1));
  run(Layout::kSameRow, whole(1), whole(3));  // a bias row
  run(Layout::kSameColumn, whole(-1), whole(2));
  run(Layout::kSameElement, whole(1), whole(-2));
  run(std::nullopt, whole(1), whole(1));  // no c at all: beta has nothing to scale
  if (!is_integer(dtype)) {
    run(Layout::kSameRow, Scalar{0.5, 0, 0}, Scalar{-1.5, 0, 0});
  }
  if (is_complex(dtype)) {
    run(Layout::kRowMajor, Scalar{2, -1, 0}, Scalar{-1, 3, 0});
    run(Layout::kRowMajor, Scalar{0, 1, 0}, Scalar{0, 2, 0});
  }
}

// beta == 0: c is not read, whatever it holds.
inline void check_unread_c(const Execute& execute, DType dtype) {
  for (const std::int64_t k : {0, 5}) {
    MatmulCase spec{dtype, 17, 9, k};
    spec.c = Layout::kRowMajor, spec.alpha = matmul::scalar(2);
    MatmulData data(spec);
    std::fill(data.c.storage.begin(), data.c.storage.end(), std::byte{Buffer::kPoison});
    check(execute, data);
  }
}

// k == 0: zeros, or beta * c.
inline void check_no_inner(const Execute& execute, DType dtype) {
  MatmulCase spec{dtype, 17, 33, 0};
  check(execute, spec);
  spec.c = Layout::kSameRow, spec.beta = matmul::scalar(-2);
  check(execute, spec);
  spec.batch = 2, spec.c = Layout::kRowMajor;
  check(execute, spec);
}

// Sums that a 16-bit accumulator, or a rounding per tile of k, gets wrong.
inline void check_single_rounding(const Execute& execute, DType dtype, std::int64_t k) {
  MatmulCase spec{dtype, 9, 17, k};
  spec.fill = Fill::kPositiveIntegers;
  spec.c = Layout::kRowMajor, spec.beta = matmul::scalar(3);
  check(execute, spec);
}

inline void check_wrap_around(const Execute& execute, DType dtype) {
  MatmulCase spec{dtype, 17, 9, 35};
  spec.fill = Fill::kReal;
  spec.c = Layout::kRowMajor;
  spec.alpha = Scalar{0, 0, 0x1234567'89abcdef};
  spec.beta = Scalar{0, 0, -0x7edcba9'87654321};
  check(execute, spec);
}

// NaN and infinities, one at a time, at the corners and inside: they reach the outputs that IEEE arithmetic sends
// them to and no other.
inline void check_specials(const Execute& execute, DType dtype) {
  constexpr std::int64_t m = 18, n = 17, k = 19;
  const long double nan = std::numeric_limits<double>::quiet_NaN();
  const long double infinity = std::numeric_limits<double>::infinity();
  const auto place = [&](long double special, std::int64_t i, std::int64_t j, std::int64_t l) {
    MatmulCase spec{dtype, m, n, k};
    spec.fill = Fill::kPositiveIntegers;
    MatmulData in_a(spec);
    store(dtype, in_a.a.address(0, i, l), {special, 1, 0});
    check(execute, in_a);
    MatmulData in_b(spec);
    store(dtype, in_b.b.address(0, l, j), {special, 0, 0});
    check(execute, in_b);
  };
  place(nan, 0, 0, 0);
  place(nan, 7, 9, 16);
  place(nan, m - 1, n - 1, k - 1);
  place(infinity, m - 1, 3, 5);
  place(-infinity, 2, n - 1, k - 1);
}

// Two runs on the same inputs give the same bits.
inline void check_repeatable(const Execute& execute, DType dtype) {
  MatmulCase spec{dtype, 33, 35, 67};
  spec.fill = Fill::kReal;
  MatmulData first(spec);
  MatmulData second(spec);
  check(execute, first);
  execute(second);
  EXPECT_EQ(first.d.storage, second.d.storage) << to_string(first.problem());
}

// A product whose elements lie 2^32 + 5 apart, so that an offset kept in 32 bits, signed or not, reads or writes the
// wrong one. All of it lies in one allocation of kBytes, of which only the cells listed are ever touched.
struct FarMatmul {
  static constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 5;
  static constexpr std::size_t kBytes = static_cast<std::size_t>(kFar) + 6;
  struct Cell {
    std::int64_t offset;
    std::int8_t value;
  };
  static constexpr Cell kInputs[] = {{0, 2},  {1, 3},  {kFar, -5},     {kFar + 1, 7},   // a
                                     {2, 11}, {3, 13}, {kFar + 2, -1}, {kFar + 3, 4}};  // b
  static constexpr Cell kOutputs[] = {
      {4, 2 * 11 + 3 * -1}, {kFar + 4, 2 * 13 + 3 * 4}, {5, -5 * 11 + 7 * -1}, {kFar + 5, -5 * 13 + 7 * 4}};

  static matmul::Problem problem(std::int8_t* base) {
    matmul::Problem p{};
    p.dtype = DType::kInt8;
    p.m = p.n = p.k = 2;
    p.a = {base, kFar, 1, 0};
    p.b = {base + 2, kFar, 1, 0};
    p.d = {base + 4, 1, kFar, 0};  // transposed: here the column stride is the long one
    return p;
  }
};

// All that holds for every algorithm and dtype; `tiles` are the edges at which the kernel has something to get wrong.
inline void check_everything(const Execute& execute, DType dtype, const std::vector<std::int64_t>& tiles) {
  check_sizes(execute, dtype, tiles);
  check_layouts(execute, dtype, 17, 9, 19);
  check_batches(execute, dtype, 9, 17, 5);
  check_epilogue(execute, dtype, 9, 18, 11);
  check_unread_c(execute, dtype);
  check_no_inner(execute, dtype);
  check_real_values(execute, dtype, 19, 33, 40);
  check_single_rounding(execute, dtype, 601);
  check_repeatable(execute, dtype);
  if (is_integer(dtype)) {
    check_wrap_around(execute, dtype);
  } else {
    check_specials(execute, dtype);
  }
}

}  // namespace pmpp::test
