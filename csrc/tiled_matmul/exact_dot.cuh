// One element of a product from the original operands, for those that the planes of emulated.hpp cannot give: there an
// infinity times a part that is zero makes a false NaN, and sums may overflow on the way to a finite result.
#pragma once

#include <cstdint>

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// Row `row` of a times column `col` of b, by all lanes of a warp, which get the same result. Products are exact in
// double, sums too where it matters: NaN and infinity come out where IEEE arithmetic puts them, and what is finite is
// rounded to float32 once. Lane after lane takes the next step of k; the order never changes. Nothing can follow a NaN
// but a NaN, so a warp stops at the first.
__device__ __forceinline__ float exact_dot(const Arguments<float>& p, std::int64_t batch, std::int64_t row,
                                           std::int64_t col) {
  constexpr int kInFlight = 8;
  const int lane = threadIdx.x % 32;
  const float* const a = p.a + batch * p.a_batch + row * p.a_row;
  const float* const b = p.b + batch * p.b_batch + col * p.b_col;
  double sum = 0;
  for (std::int64_t k0 = 0; k0 < p.k; k0 += 32 * kInFlight) {
    float x[kInFlight], y[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const std::int64_t k = k0 + i * 32 + lane;
      x[i] = k < p.k ? __ldg(a + k * p.a_col) : 0.0f;
      y[i] = k < p.k ? __ldg(b + k * p.b_row) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum = fma(static_cast<double>(x[i]), static_cast<double>(y[i]), sum);
    if (__any_sync(~0u, isnan(sum))) return __int_as_float(0x7fc00000);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return static_cast<float>(sum);
}

}  // namespace pmpp::matmul
