// What is to be multiplied: d = alpha * (a @ b) + beta * c, for each of `batch` independent matrices.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/common/dtype.hpp"
#include "csrc/common/numeric.hpp"

namespace pmpp::matmul {

// Strides are in elements and may be anything: 0 (expanded), larger than the row (sliced), in either order
// (transposed).
struct Operand {
  const void* data = nullptr;
  std::int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
};

struct Result {
  void* data = nullptr;
  std::int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
};

// re and im are read for floating and complex dtypes, integer for integer dtypes.
struct Scalar {
  double re = 0, im = 0;
  std::int64_t integer = 0;
};

constexpr Scalar scalar(std::int64_t value) { return {static_cast<double>(value), 0.0, value}; }

// What float32 products may be computed in: float32 itself or something as accurate, or operands rounded to the 11
// significant bits of tf32. Other dtypes do not look at it.
enum class Float32Precision : std::uint8_t { kIeee, kTf32 };

struct Problem {
  DType dtype = DType::kFloat32;
  Float32Precision precision = Float32Precision::kIeee;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;  // a is m x k, b is k x n, c and d are m x n; 0 is allowed
  Operand a, b, c;  // c: row stride 0 makes it a bias; never read when beta is 0 or data is null
  Result d;
  Scalar alpha = scalar(1), beta = scalar(0);
};

// Bytes of the partial sums, in the type that the products are summed in: [split][batch][m][n], without gaps.
constexpr std::int64_t partial_bytes(const Problem& problem, std::int64_t splits) {
  return std::int64_t{accumulator_size(problem.dtype)} * splits * problem.batch * problem.m * problem.n;
}

// The same products with the roles of a and b exchanged: d^T = b^T a^T.
Problem exchanged(const Problem& problem);

// One line, for messages.
std::string to_string(const Problem& problem);

// The problem with its types resolved, as kernels take it (by value: it is a kernel parameter).
template <class T>
struct Arguments {
  using Acc = AccumulatorOf<T>;

  std::int64_t m, n, k, batch;
  const T* a;
  const T* b;
  const T* c;  // null when there is nothing to add
  T* d;
  std::int64_t a_row, a_col, a_batch, b_row, b_col, b_batch, c_row, c_col, c_batch, d_row, d_col, d_batch;
  Acc alpha, beta;
  bool scaled;  // alpha is not 1

  // The element of the result that a finished sum gives: the only rounding of the whole product.
  PMPP_HOST_DEVICE T finish(std::int64_t batch_index, std::int64_t row, std::int64_t col, Acc sum) const {
    if (scaled) sum = scale(alpha, sum);
    if (c != nullptr) {
      sum = add(sum, scale(beta, widen(load(c + batch_index * c_batch + row * c_row + col * c_col))));
    }
    return narrow<T>(sum);
  }

  PMPP_HOST_DEVICE T* d_at(std::int64_t batch_index, std::int64_t row, std::int64_t col) const {
    return d + batch_index * d_batch + row * d_row + col * d_col;
  }

  PMPP_HOST_DEVICE void store(std::int64_t batch_index, std::int64_t row, std::int64_t col, Acc sum) const {
    pmpp::store(d_at(batch_index, row, col), finish(batch_index, row, col, sum));
  }
};

template <class Acc>
struct ScalarTo {
  static PMPP_INLINE Acc apply(const Scalar& s) { return static_cast<Acc>(s.integer); }
};
template <>
struct ScalarTo<float> {
  static PMPP_INLINE float apply(const Scalar& s) { return static_cast<float>(s.re); }
};
template <>
struct ScalarTo<double> {
  static PMPP_INLINE double apply(const Scalar& s) { return s.re; }
};
template <class R>
struct ScalarTo<Complex<R>> {
  static PMPP_INLINE Complex<R> apply(const Scalar& s) { return {static_cast<R>(s.re), static_cast<R>(s.im)}; }
};

template <class Acc>
PMPP_INLINE bool equals(Acc value, int expected) {
  return value == static_cast<Acc>(expected);
}
template <class R>
PMPP_INLINE bool equals(Complex<R> value, int expected) {
  return value.re == static_cast<R>(expected) && value.im == R(0);
}

template <class T>
PMPP_INLINE Arguments<T> make_arguments(const Problem& p) {
  using Acc = AccumulatorOf<T>;
  Arguments<T> args{};
  args.m = p.m;
  args.n = p.n;
  args.k = p.k;
  args.batch = p.batch;
  args.alpha = ScalarTo<Acc>::apply(p.alpha);
  args.beta = ScalarTo<Acc>::apply(p.beta);
  args.scaled = !equals(args.alpha, 1);
  args.a = static_cast<const T*>(p.a.data);
  args.b = static_cast<const T*>(p.b.data);
  args.c = equals(args.beta, 0) ? nullptr : static_cast<const T*>(p.c.data);
  args.d = static_cast<T*>(p.d.data);
  args.a_row = p.a.row_stride, args.a_col = p.a.col_stride, args.a_batch = p.a.batch_stride;
  args.b_row = p.b.row_stride, args.b_col = p.b.col_stride, args.b_batch = p.b.batch_stride;
  args.c_row = p.c.row_stride, args.c_col = p.c.col_stride, args.c_batch = p.c.batch_stride;
  args.d_row = p.d.row_stride, args.d_col = p.d.col_stride, args.d_batch = p.d.batch_stride;
  return args;
}

// Calls visitor.operator()<T>() with the C++ type of the dtype.
template <class Visitor>
PMPP_INLINE auto visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat16:
      return visitor.template operator()<Float16>();
    case DType::kBFloat16:
      return visitor.template operator()<BFloat16>();
    case DType::kFloat64:
      return visitor.template operator()<double>();
    case DType::kComplex64:
      return visitor.template operator()<Complex<float>>();
    case DType::kComplex128:
      return visitor.template operator()<Complex<double>>();
    case DType::kUInt8:
      return visitor.template operator()<std::uint8_t>();
    case DType::kInt8:
      return visitor.template operator()<std::int8_t>();
    case DType::kInt16:
      return visitor.template operator()<std::int16_t>();
    case DType::kInt32:
      return visitor.template operator()<std::int32_t>();
    case DType::kInt64:
      return visitor.template operator()<std::int64_t>();
    case DType::kFloat32:
      break;
  }
  return visitor.template operator()<float>();
}

}  // namespace pmpp::matmul
