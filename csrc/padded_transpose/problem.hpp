// What is to be transposed: out[batch][j][i] = in[batch][i][j] for 0 <= i < m, 0 <= j < n. Elements are moved bit for
// bit, so only their size matters. On a GPU both pointers have to be multiples of half the element size, or of the
// element size below 4 bytes.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/common/numeric.hpp"

namespace pmpp::transposition {

// Strides are in elements. An input may have any (0 when expanded); the elements of an output must be distinct.
struct Problem {
  int element_size = 0;  // bytes: 1, 2, 4, 8 or 16
  std::int64_t m = 0, n = 0, batch = 1;
  const void* in = nullptr;
  std::int64_t in_row_stride = 0, in_col_stride = 0, in_batch_stride = 0;  // row: a step of i; col: a step of j
  void* out = nullptr;
  std::int64_t out_row_stride = 0, out_col_stride = 0, out_batch_stride = 0;  // row: a step of j; col: a step of i
};

// The same movement with unused strides set to 0 and, where that makes destination rows contiguous, with the roles of m
// and n exchanged: out[j][i] = in[i][j] says the same as in^T[j][i] = out^T[i][j]. So a vector becomes one destination
// row, and writing to a column-major output a copy.
Problem normalized(const Problem& problem);

// One line, for messages.
std::string to_string(const Problem& problem);

constexpr bool is_element_size(std::int64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// An element in two halves: what a complex number is, and 16 bytes, which no built-in type of standard C++ covers. It
// may start at a multiple of a half.
template <class Half>
struct Pair {
  Half low, high;
};

// 16 bytes that start at a multiple of 16, which a GPU moves in one access.
struct alignas(16) Bytes16 {
  std::uint64_t low, high;
};

// The problem with its element type resolved, as kernels take it (by value: it is a kernel parameter).
template <class E>
struct Arguments {
  std::int64_t m, n, batch;
  const E* in;
  E* out;
  std::int64_t in_row, in_col, in_batch, out_row, out_col, out_batch;
};

template <class E>
PMPP_INLINE Arguments<E> make_arguments(const Problem& p) {
  return {p.m,
          p.n,
          p.batch,
          static_cast<const E*>(p.in),
          static_cast<E*>(p.out),
          p.in_row_stride,
          p.in_col_stride,
          p.in_batch_stride,
          p.out_row_stride,
          p.out_col_stride,
          p.out_batch_stride};
}

// Calls visitor.operator()<E>() with a type of that size, which is_element_size() has accepted.
template <class Visitor>
PMPP_INLINE auto visit_element_size(int bytes, Visitor&& visitor) {
  switch (bytes) {
    case 1:
      return visitor.template operator()<std::uint8_t>();
    case 2:
      return visitor.template operator()<std::uint16_t>();
    case 4:
      return visitor.template operator()<std::uint32_t>();
    case 8:
      return visitor.template operator()<std::uint64_t>();
    default:
      return visitor.template operator()<Pair<std::uint64_t>>();
  }
}

}  // namespace pmpp::transposition
