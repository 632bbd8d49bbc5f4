#include "csrc/tiled_matmul/problem.hpp"

#include <sstream>
#include <utility>

namespace pmpp::matmul {
namespace {

void print_strides(std::ostream& out, const char* name, std::int64_t row, std::int64_t col, std::int64_t batch) {
  out << ", " << name << " strides (" << batch << ", " << row << ", " << col << ")";
}

}  // namespace

Problem exchanged(const Problem& problem) {
  Problem p = problem;
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(p.a.row_stride, p.a.col_stride);
  std::swap(p.b.row_stride, p.b.col_stride);
  std::swap(p.c.row_stride, p.c.col_stride);
  std::swap(p.d.row_stride, p.d.col_stride);
  return p;
}

std::string to_string(const Problem& p) {
  std::ostringstream out;
  out << dtype_name(p.dtype) << " m=" << p.m << " n=" << p.n << " k=" << p.k << " batch=" << p.batch;
  print_strides(out, "a", p.a.row_stride, p.a.col_stride, p.a.batch_stride);
  print_strides(out, "b", p.b.row_stride, p.b.col_stride, p.b.batch_stride);
  if (p.c.data != nullptr) print_strides(out, "c", p.c.row_stride, p.c.col_stride, p.c.batch_stride);
  print_strides(out, "d", p.d.row_stride, p.d.col_stride, p.d.batch_stride);
  if (p.dtype == DType::kFloat32 && p.precision == Float32Precision::kTf32) out << ", tf32 allowed";
  return out.str();
}

}  // namespace pmpp::matmul
