#include "csrc/padded_transpose/problem.hpp"

#include <sstream>

namespace pmpp::transposition {

std::string to_string(const Problem& p) {
  std::ostringstream out;
  out << p.element_size << "-byte elements m=" << p.m << " n=" << p.n << " batch=" << p.batch << ", in strides ("
      << p.in_batch_stride << ", " << p.in_row_stride << ", " << p.in_col_stride << "), out strides ("
      << p.out_batch_stride << ", " << p.out_row_stride << ", " << p.out_col_stride << ")";
  return out.str();
}

}  // namespace pmpp::transposition
