// One element of a product from the original operands, for those that the planes of emulated.hpp cannot give: there an
// infinity times a part that is zero makes a false NaN, and sums may overflow on the way to a finite result.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// Numbers on the way through double.
template <class T>
struct Widened {
  using type = double;
};
template <>
struct Widened<Complex<float>> {
  using type = Complex<double>;
};
template <class T>
using WidenedOf = typename Widened<T>::type;

__device__ __forceinline__ double to_double(float x) { return x; }
__device__ __forceinline__ Complex<double> to_double(Complex<float> x) { return {x.re, x.im}; }
__device__ __forceinline__ float to_float(double x) { return static_cast<float>(x); }
__device__ __forceinline__ Complex<float> to_float(Complex<double> x) {
  return {static_cast<float>(x.re), static_cast<float>(x.im)};
}
__device__ __forceinline__ bool is_finite(float x) { return isfinite(x); }
__device__ __forceinline__ bool is_finite(Complex<float> x) { return isfinite(x.re) && isfinite(x.im); }

// A complex number may start at any multiple of its parts.
__device__ __forceinline__ float read_element(const float* at) { return __ldg(at); }
__device__ __forceinline__ Complex<float> read_element(const Complex<float>* at) {
  return {__ldg(&at->re), __ldg(&at->im)};
}

namespace exact {

__device__ __forceinline__ void set_nan(float& x) { x = __int_as_float(0x7fc00000); }
__device__ __forceinline__ void set_nan(Complex<float>& x) { set_nan(x.re), set_nan(x.im); }

// Whether all of the result is NaN, whatever the lanes of a warp still add.
__device__ __forceinline__ bool is_settled(double sum) { return __any_sync(~0u, isnan(sum)) != 0; }
__device__ __forceinline__ bool is_settled(Complex<double> sum) { return is_settled(sum.re) && is_settled(sum.im); }

__device__ __forceinline__ double from_lane(double sum, int distance) { return __shfl_xor_sync(~0u, sum, distance); }
__device__ __forceinline__ Complex<double> from_lane(Complex<double> sum, int distance) {
  return {from_lane(sum.re, distance), from_lane(sum.im, distance)};
}

}  // namespace exact

// Row `row` of a times column `col` of b, by all lanes of a warp, which get the same result. Products are exact in
// double, sums too where it matters: NaN and infinity come out where IEEE arithmetic puts them (in complex numbers as
// numeric.hpp multiplies them), and what is finite is rounded to float32 once. Lane after lane takes the next step of
// k; the order never changes. Nothing can follow a NaN but a NaN, so a warp stops at the first.
template <class T>
__device__ __forceinline__ T exact_dot(const Arguments<T>& p, std::int64_t batch, std::int64_t row, std::int64_t col) {
  constexpr int kInFlight = 8;
  const int lane = threadIdx.x % 32;
  const T* const a = p.a + batch * p.a_batch + row * p.a_row;
  const T* const b = p.b + batch * p.b_batch + col * p.b_col;
  WidenedOf<T> sum = {};
  for (std::int64_t k0 = 0; k0 < p.k; k0 += 32 * kInFlight) {
    T x[kInFlight], y[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t k = k0 + i * 32 + lane;
      x[i] = k < p.k ? read_element(a + k * p.a_col) : T{};
      y[i] = k < p.k ? read_element(b + k * p.b_row) : T{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum = multiply_add(sum, to_double(x[i]), to_double(y[i]));
    if (exact::is_settled(sum)) {
      T nan;
      exact::set_nan(nan);
      return nan;
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum = add(sum, exact::from_lane(sum, distance));
  return to_float(sum);
}

}  // namespace pmpp::matmul
