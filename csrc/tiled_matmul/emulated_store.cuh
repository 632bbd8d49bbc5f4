// The epilogue of emulated: what is finite goes from the accumulators to d or to the partial sums, the rest is computed
// anew. Accumulators are those of the real product (emulated.hpp): FragmentOrigin counts its columns, and sums[2 i] and
// sums[2 i + 1] are one complex number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/exact_dot.cuh"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/wgmma.cuh"

namespace pmpp::matmul {

// ---- whole words --------------------------------------------------------------------------------------------------

// Most results: two floats at a time, without a look at each. Apart from the other cases, so that the code that is
// executed lies together: a short kernel passes the end of a tile but once or twice and may have to wait for it. `to`
// is where sums[0] goes, rows are row_words apart, and `rows` and `left`, in words, are what is left of the matrix from
// there on.
template <int kCount>
__device__ __forceinline__ void store_words(const float (&sums)[kCount], float2* to, std::int64_t row_words,
                                            std::int64_t rows, std::int64_t left) {
  const int width = static_cast<int>(left < kCount ? left : kCount);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * 8 >= rows) return;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      if (i * 4 < width) to[i * 4] = make_float2(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
    }
    to += 8 * row_words;
  }
}

// ---- complex numbers ----------------------------------------------------------------------------------------------

__device__ __forceinline__ bool is_aligned_pair(const Complex<float>* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
}

// sums = alpha * sums + beta * c. Loads of c go out together, as many as there are registers for.
template <int kCount>
__device__ __forceinline__ void apply_scalars(float (&sums)[kCount], const Arguments<Complex<float>>& p,
                                              const FragmentOrigin& at, std::int64_t batch) {
  constexpr int kTogether = 4;
  if (p.scaled) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const Complex<float> sum = scale(p.alpha, Complex<float>{sums[i], sums[i + 1]});
      sums[i] = sum.re, sums[i + 1] = sum.im;
    }
  }
  if (p.c == nullptr) return;
  const std::int64_t col = at.col / 2;
  const bool aligned = is_aligned_pair(p.c);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    const Complex<float>* const c = p.c + batch * p.c_batch + (at.row + half * 8) * p.c_row + col * p.c_col;
#pragma unroll
    for (int first = 0; first < kCount / 4; first += kTogether) {
      Complex<float> values[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const Complex<float>* const from = c + (first + i) * 4 * p.c_col;
        values[i] = {};
        if (col + (first + i) * 4 >= p.n) continue;
        if (aligned) {
          const float2 pair = __ldg(reinterpret_cast<const float2*>(from));
          values[i] = {pair.x, pair.y};
        } else {
          values[i] = read_element(from);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        float* const sum = sums + (first + i) * 4 + half * 2;
        const Complex<float> total = add(Complex<float>{sum[0], sum[1]}, scale(p.beta, values[i]));
        sum[0] = total.re, sum[1] = total.im;
      }
    }
  }
}

// To an m x n matrix with these strides, but for those whose bit is set in `skipped`.
template <int kCount>
__device__ __forceinline__ void store_pairs(const float (&sums)[kCount], const Arguments<Complex<float>>& p,
                                            Complex<float>* to, std::int64_t row_stride, std::int64_t col_stride,
                                            const FragmentOrigin& at, std::uint64_t skipped) {
  const std::int64_t col = at.col / 2;
  const bool aligned = is_aligned_pair(to);
  if (aligned && col_stride == 1 && skipped == 0) {
    store_words(sums, reinterpret_cast<float2*>(to + at.row * row_stride + col), row_stride, p.m - at.row, p.n - col);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    Complex<float>* const row = to + (at.row + half * 8) * row_stride + col * col_stride;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const int x = i * 4 + half * 2;
      if (col + i * 4 >= p.n || (skipped >> x & 1) != 0) continue;
      Complex<float>* const element = row + i * 4 * col_stride;
      if (aligned) {
        *reinterpret_cast<float2*>(element) = make_float2(sums[x], sums[x + 1]);
      } else {
        *element = {sums[x], sums[x + 1]};
      }
    }
  }
}

template <int kCount>
__device__ __forceinline__ void store_fragments(const float (&sums)[kCount], const Arguments<Complex<float>>& p,
                                                const FragmentOrigin& at, std::int64_t batch, std::uint64_t skipped) {
  store_pairs(sums, p, p.d + batch * p.d_batch, p.d_row, p.d_col, at, skipped);
}

template <int kCount>
__device__ __forceinline__ void store_partial(const float (&sums)[kCount], const Arguments<Complex<float>>& p,
                                              float* partial, const FragmentOrigin& at) {
  store_pairs(sums, p, reinterpret_cast<Complex<float>*>(partial), p.n, 1, at, 0);
}

// ---- what is not finite -------------------------------------------------------------------------------------------

// Whether a sum may be NaN or infinite, also one beyond the edge of the matrix.
template <int kCount>
__device__ __forceinline__ bool any_not_finite(const float (&sums)[kCount]) {
  float zeros[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) zeros[i % 4] = fmaf(sums[i], 0.0f, zeros[i % 4]);
  return zeros[0] + zeros[1] + (zeros[2] + zeros[3]) != 0;  // NaN then
}

// Bit i: sums[i], or the complex number that begins there, belongs to an element of d and is NaN or infinite.
template <class T, int kCount>
__device__ __forceinline__ std::uint64_t not_finite(const float (&sums)[kCount], const Arguments<T>& p,
                                                    const FragmentOrigin& at) {
  static_assert(kCount <= 64);
  constexpr int kParts = kRealParts<T>;
  std::uint64_t found = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += kParts) {
    const bool inside = at.row + i / 2 % 2 * 8 < p.m && at.col / kParts + (i / 4 * 8 + i % 2) / kParts < p.n;
    if (!(isfinite(sums[i]) && isfinite(sums[i + kParts - 1])) && inside) found |= std::uint64_t{1} << i;
  }
  return found;
}

// The elements of `found` of all lanes of a warp, one after another.
template <class T>
__device__ __forceinline__ void store_exact(const Arguments<T>& p, const FragmentOrigin& at, std::int64_t batch,
                                            std::uint64_t found) {
  constexpr int kParts = kRealParts<T>;
  const int lane = threadIdx.x % 32;
  for (int owner = 0; owner < 32; ++owner) {
    const std::int64_t row0 = at.row + owner / 4 - lane / 4, col0 = at.col + (owner % 4 - lane % 4) * 2;
    for (std::uint64_t left = __shfl_sync(~0u, static_cast<unsigned long long>(found), owner); left != 0;
         left &= left - 1) {
      const int i = __ffsll(static_cast<long long>(left)) - 1;
      const std::int64_t row = row0 + i / 2 % 2 * 8, col = (col0 + i / 4 * 8 + i % 2) / kParts;
      const T sum = exact_dot(p, batch, row, col);
      if (lane == owner) p.store(batch, row, col, sum);
    }
  }
}

// ---- results ------------------------------------------------------------------------------------------------------

// Whether a float matrix can be written two columns at a time.
__device__ __forceinline__ bool is_paired(const float* to, std::int64_t row_stride, std::int64_t col_stride,
                                          std::int64_t columns) {
  return col_stride == 1 && row_stride % 2 == 0 && columns % 2 == 0 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
}

// d = alpha * sums + beta * c, and what is not finite anew.
template <class T, int kCount>
__device__ __forceinline__ void store_results(float (&sums)[kCount], const Arguments<T>& p, const FragmentOrigin& at,
                                              std::int64_t batch) {
  std::uint64_t found = 0;
  if (__any_sync(~0u, any_not_finite(sums))) found = not_finite(sums, p, at);
  apply_scalars(sums, p, at, batch);
  const bool is_special = __any_sync(~0u, found != 0) != 0;
  if constexpr (std::is_same_v<T, float>) {
    float* const to = p.d_at(batch, 0, 0);
    if (!is_special && is_paired(to, p.d_row, p.d_col, p.n)) {
      store_words(sums, reinterpret_cast<float2*>(to + at.row * p.d_row + at.col), p.d_row / 2, p.m - at.row,
                  (p.n - at.col) / 2);
      return;
    }
  }
  store_fragments(sums, p, at, batch, found);
  if (is_special) store_exact(p, at, batch, found);
}

// Sums of a piece of k, m x n of them without gaps.
template <class T, int kCount>
__device__ __forceinline__ void store_piece(const float (&sums)[kCount], const Arguments<T>& p, float* partial,
                                            const FragmentOrigin& at) {
  if constexpr (std::is_same_v<T, float>) {
    if (p.n % 2 == 0) {
      store_words(sums, reinterpret_cast<float2*>(partial + at.row * p.n + at.col), p.n / 2, p.m - at.row,
                  (p.n - at.col) / 2);
      return;
    }
  }
  store_partial(sums, p, partial, at);
}

}  // namespace pmpp::matmul
