// naive on the CPU: three loops, operands read where they lie.
#include "csrc/tiled_matmul/cpu/run.hpp"

namespace pmpp::matmul {
namespace {

template <class T>
void multiply(const Arguments<T>& p, const TaskRange& range) {
  using Acc = AccumulatorOf<T>;
  for (std::int64_t row = range.row; row < range.row_end; ++row) {
    for (std::int64_t col = range.col; col < range.col_end; ++col) {
      const T* a = p.a + range.batch * p.a_batch + row * p.a_row;
      const T* b = p.b + range.batch * p.b_batch + col * p.b_col;
      Acc sum{};
      for (std::int64_t i = 0; i < p.k; ++i)
        sum = multiply_add(sum, widen(load(a + i * p.a_col)), widen(load(b + i * p.b_row)));
      p.store(range.batch, row, col, sum);
    }
  }
}

}  // namespace

void run_naive(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end) {
  visit_dtype(problem.dtype, [&]<class T>() {
    const Arguments<T> arguments = make_arguments<T>(problem);
    for (std::int64_t task = begin; task < end; ++task) {
      multiply(arguments, task_range(plan, problem, task));
    }
  });
}

}  // namespace pmpp::matmul
