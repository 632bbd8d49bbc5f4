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

// Sums over k of kRows rows of x, `x_pitch` apart, times kCount columns of b, where columns are contiguous. At least
// eight registers of sums in all, since an addition waits for the one before it; their numbers are added last, in
// order.
template <class T, int kRows, int kCount>
void dot_tile(const NumberOf<T>* x, std::int64_t x_pitch, const T* b, std::int64_t b_col, std::int64_t depth,
              NumberOf<T>* sums, std::int64_t pitch) {
  using Number = NumberOf<T>;
  using Register = Vector<Number>;
  constexpr int kWidth = kVectorBytes / sizeof(Number);
  constexpr int kParallel = kRows * kCount >= 8 ? 1 : 8 / (kRows * kCount);
  Register part[kRows][kCount][kParallel] = {};
  std::int64_t k = 0;
  for (; k + kParallel * kWidth <= depth; k += kParallel * kWidth) {
#pragma GCC unroll 8
    for (int p = 0; p < kParallel; ++p) {
      Register row[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) row[r] = load_vector<Register>(x + r * x_pitch + k + p * kWidth);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) {
        const Register column = load_numbers(b + c * b_col + k + p * kWidth);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) part[r][c][p] += row[r] * column;
      }
    }
  }
  if constexpr (std::is_same_v<T, Number>) {
    for (; k < depth; k += kWidth) {
      const Part<Number> rest(static_cast<int>(depth - k < kWidth ? depth - k : kWidth));
      Register row[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) row[r] = rest.load(x + r * x_pitch + k);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) {
        const Register column = rest.load(b + c * b_col + k);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) part[r][c][0] += row[r] * column;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) {
      for (int p = 1; p < kParallel; ++p) part[r][c][0] += part[r][c][p];
      Number sum = 0;
      for (int i = 0; i < kWidth; ++i) sum += part[r][c][0][i];
      for (std::int64_t rest = k; rest < depth; ++rest) {
        sum += load(x + r * x_pitch + rest) * widen(load(b + c * b_col + rest));
      }
      sums[r * pitch + c] = sum;
    }
  }
}

// Rows of a tile of sums and of the operand beside them must fit the registers.
inline constexpr int kDotTileRows = kVectorBytes == 64 ? 4 : 3;

template <class T, int kCount>
PMPP_INLINE void dot_column_group(const NumberOf<T>* x, std::int64_t x_pitch, int rows, const T* b, std::int64_t b_col,
                                  std::int64_t depth, NumberOf<T>* sums, std::int64_t pitch) {
  int i = 0;
  for (; i + kDotTileRows <= rows; i += kDotTileRows) {
    dot_tile<T, kDotTileRows, kCount>(x + i * x_pitch, x_pitch, b, b_col, depth, sums + i * pitch, pitch);
  }
  for (; i + 2 <= rows; i += 2) {
    dot_tile<T, 2, kCount>(x + i * x_pitch, x_pitch, b, b_col, depth, sums + i * pitch, pitch);
  }
  for (; i < rows; ++i) {
    dot_tile<T, 1, kCount>(x + i * x_pitch, x_pitch, b, b_col, depth, sums + i * pitch, pitch);
  }
}

// Rows of sums, `pitch` apart: each a row of x times b. A few columns of b at a time, which the first-level cache holds
// for all rows.
template <class T>
void dot_rows(const NumberOf<T>* x, std::int64_t x_pitch, int rows, const T* b, std::int64_t b_col, std::int64_t depth,
              int cols, NumberOf<T>* sums, std::int64_t pitch) {
  int j = 0;
  for (; j + 4 <= cols; j += 4) dot_column_group<T, 4>(x, x_pitch, rows, b + j * b_col, b_col, depth, sums + j, pitch);
  for (; j < cols; ++j) dot_column_group<T, 1>(x, x_pitch, rows, b + j * b_col, b_col, depth, sums + j, pitch);
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
