// Products with so few rows that every element of b is used once or a few times: nothing is worth packing but the rows
// of a, and b is read in the order in which it lies. Real floating types. Included once for each instruction set.
#pragma once

#include "csrc/tiled_matmul/cpu/pack.hpp"

namespace pmpp::PMPP_ISA {

template <class T>
inline constexpr bool kHasVectorProducts =
    std::is_same_v<SumsOf<T>, Sum<float>> ? !kIsComplex<T> : std::is_same_v<T, double>;

// Elements as a register of numbers.
template <class T>
PMPP_INLINE Vector<NumberOf<T>> load_numbers(const T* source) {
  return bit_cast<Vector<NumberOf<T>>>(load_units<T, kVectorBytes, true>(source, 0));
}

// kCount sums over k of x times a column of b each, where columns are contiguous. Eight registers of sums in all, since
// an addition waits for the one before it; their numbers are added last, in order.
template <class T, int kCount>
PMPP_INLINE void dot_columns(const NumberOf<T>* x, const T* b, std::int64_t b_col, std::int64_t depth,
                             NumberOf<T>* sums) {
  using Number = NumberOf<T>;
  using Register = Vector<Number>;
  constexpr int kWidth = kVectorBytes / sizeof(Number);
  constexpr int kParallel = 8 / kCount;
  Register part[kCount][kParallel] = {};
  std::int64_t k = 0;
  for (; k + kParallel * kWidth <= depth; k += kParallel * kWidth) {
#pragma GCC unroll 8
    for (int p = 0; p < kParallel; ++p) {
      const Register y = load_vector<Register>(x + k + p * kWidth);
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) part[c][p] += y * load_numbers(b + c * b_col + k + p * kWidth);
    }
  }
  for (int c = 0; c < kCount; ++c) {
    for (int p = 1; p < kParallel; ++p) part[c][0] += part[c][p];
    Number sum = 0;
    for (int i = 0; i < kWidth; ++i) sum += part[c][0][i];
    for (std::int64_t rest = k; rest < depth; ++rest) sum += load(x + rest) * widen(load(b + c * b_col + rest));
    sums[c] = sum;
  }
}

template <class T>
void dot_row(const NumberOf<T>* x, const T* b, std::int64_t b_col, std::int64_t depth, int cols, NumberOf<T>* sums) {
  int j = 0;
  for (; j + 4 <= cols; j += 4) dot_columns<T, 4>(x, b + j * b_col, b_col, depth, sums + j);
  for (; j < cols; ++j) dot_columns<T, 1>(x, b + j * b_col, b_col, depth, sums + j);
}

// sums += x times kRows rows of b, where rows are contiguous.
template <class T, int kRows>
PMPP_INLINE void add_rows(const NumberOf<T>* x, const T* b, std::int64_t b_row, int cols, NumberOf<T>* sums) {
  using Register = Vector<NumberOf<T>>;
  constexpr int kWidth = kVectorBytes / sizeof(NumberOf<T>);
  int j = 0;
  for (; j + kWidth <= cols; j += kWidth) {
    auto sum = load_vector<Register>(sums + j);
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) sum += load(x + k) * load_numbers(b + k * b_row + j);
    store_vector(sums + j, sum);
  }
  for (; j < cols; ++j) {
    for (int k = 0; k < kRows; ++k) sums[j] += load(x + k) * widen(load(b + k * b_row + j));
  }
}

// Rows of sums, `pitch` apart: each a row of x, `x_pitch` apart, times b. A few rows of b at a time, which the
// second-level cache holds for all rows of x.
template <class T>
void weigh_rows(const NumberOf<T>* x, std::int64_t x_pitch, int rows, const T* b, std::int64_t b_row,
                std::int64_t depth, int cols, NumberOf<T>* sums, std::int64_t pitch) {
  constexpr int kTogether = 8;
  for (int i = 0; i < rows; ++i) std::memset(sums + i * pitch, 0, cols * sizeof(*sums));
  std::int64_t k = 0;
  for (; k + kTogether <= depth; k += kTogether) {
    for (int i = 0; i < rows; ++i) {
      add_rows<T, kTogether>(x + i * x_pitch + k, b + k * b_row, b_row, cols, sums + i * pitch);
    }
  }
  for (; k < depth; ++k) {
    for (int i = 0; i < rows; ++i) add_rows<T, 1>(x + i * x_pitch + k, b + k * b_row, b_row, cols, sums + i * pitch);
  }
}

}  // namespace pmpp::PMPP_ISA
