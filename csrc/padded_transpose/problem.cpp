#include "csrc/padded_transpose/problem.hpp"

#include <sstream>
#include <utility>

namespace pmpp::transposition {

Problem normalized(const Problem& problem) {
  Problem p = problem;
  const bool exchange = p.m == 1 || (p.n != 1 && p.out_col_stride != 1 && p.out_row_stride == 1);
  if (exchange) {
    std::swap(p.m, p.n);
    std::swap(p.in_row_stride, p.in_col_stride);
    std::swap(p.out_row_stride, p.out_col_stride);
  }
  if (p.m == 1) p.in_row_stride = p.out_col_stride = 1;
  if (p.n == 1) p.in_col_stride = p.out_row_stride = 0;
  if (p.batch == 1) p.in_batch_stride = p.out_batch_stride = 0;
  return p;
}

std::string to_string(const Problem& p) {
  std::ostringstream out;
  out << p.element_size << "-byte elements m=" << p.m << " n=" << p.n << " batch=" << p.batch << ", in strides ("
      << p.in_batch_stride << ", " << p.in_row_stride << ", " << p.in_col_stride << "), out strides ("
      << p.out_batch_stride << ", " << p.out_row_stride << ", " << p.out_col_stride << ")";
  return out.str();
}

}  // namespace pmpp::transposition
