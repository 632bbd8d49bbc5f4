// blocked on the CPU: a task owns a tile of the result. For each slice of k it copies the tile's rows of a and columns
// of b into small contiguous panels, widened to the accumulator's type, and multiplies those out of the cache. Copying
// makes every stride and every 16-bit type run at the speed of contiguous float32.
#include <algorithm>
#include <memory>
#include <new>

#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/cpu/run.hpp"

namespace pmpp::matmul {
namespace {

// Steps of k added to a sum before it goes back to memory: one load and one store of the sum for four products.
constexpr int kUnrollK = 4;

// Panels and sums of one task.
template <class Acc>
struct Scratch {
  using Tile = BlockedTile<Acc>;
  static_assert(Tile::kK % kUnrollK == 0, "a panel holds whole steps of k");

  alignas(64) Acc sum[Tile::kM][Tile::kN];
  alignas(64) Acc a[Tile::kM][Tile::kK];
  alignas(64) Acc b[Tile::kK][Tile::kN];
};

// Copies rows x cols elements of a strided matrix, widened, and walks the source along its smaller stride.
template <class T, class Acc>
void pack(const T* source, std::int64_t row_stride, std::int64_t col_stride, int rows, int cols, Acc* panel,
          int pitch) {
  if (row_stride < col_stride) {
    for (int j = 0; j < cols; ++j) {
      for (int i = 0; i < rows; ++i) panel[i * pitch + j] = widen(load(source + i * row_stride + j * col_stride));
    }
  } else {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) panel[i * pitch + j] = widen(load(source + i * row_stride + j * col_stride));
    }
  }
}

template <class Acc>
void multiply_panels(Scratch<Acc>& s, int rows, int cols, int depth) {
  for (int i = 0; i < rows; ++i) {
    Acc* __restrict__ sum = s.sum[i];
    for (int k = 0; k < depth; k += kUnrollK) {
      const Acc a0 = s.a[i][k], a1 = s.a[i][k + 1], a2 = s.a[i][k + 2], a3 = s.a[i][k + 3];
      const Acc* __restrict__ b0 = s.b[k];
      const Acc* __restrict__ b1 = s.b[k + 1];
      const Acc* __restrict__ b2 = s.b[k + 2];
      const Acc* __restrict__ b3 = s.b[k + 3];
      for (int j = 0; j < cols; ++j) {
        Acc value = multiply_add(sum[j], a0, b0[j]);
        value = multiply_add(value, a1, b1[j]);
        value = multiply_add(value, a2, b2[j]);
        sum[j] = multiply_add(value, a3, b3[j]);
      }
    }
  }
}

template <class T>
void multiply(const Arguments<T>& p, const TaskRange& range, Scratch<AccumulatorOf<T>>& s) {
  using Acc = AccumulatorOf<T>;
  using Tile = BlockedTile<Acc>;
  const int rows = static_cast<int>(range.row_end - range.row);
  const int cols = static_cast<int>(range.col_end - range.col);
  const T* a = p.a + range.batch * p.a_batch + range.row * p.a_row;
  const T* b = p.b + range.batch * p.b_batch + range.col * p.b_col;

  for (int i = 0; i < rows; ++i) std::fill_n(s.sum[i], cols, Acc{});
  for (std::int64_t k0 = 0; k0 < p.k; k0 += Tile::kK) {
    const int depth = static_cast<int>(std::min<std::int64_t>(Tile::kK, p.k - k0));
    const int padded = (depth + kUnrollK - 1) / kUnrollK * kUnrollK;
    pack(a + k0 * p.a_col, p.a_row, p.a_col, rows, depth, &s.a[0][0], Tile::kK);
    pack(b + k0 * p.b_row, p.b_row, p.b_col, depth, cols, &s.b[0][0], Tile::kN);
    // Zeros in both panels: 0 * 0 leaves a sum as it is, whatever else the operands hold.
    for (int k = depth; k < padded; ++k) {
      for (int i = 0; i < rows; ++i) s.a[i][k] = Acc{};
      std::fill_n(s.b[k], cols, Acc{});
    }
    multiply_panels(s, rows, cols, padded);
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) p.store(range.batch, range.row + i, range.col + j, s.sum[i][j]);
  }
}

}  // namespace

void run_blocked(const Plan& plan, const Problem& problem, std::int64_t task_begin, std::int64_t task_end) {
  visit_dtype(problem.dtype, [&]<class T>() {
    const Arguments<T> arguments = make_arguments<T>(problem);
    // On the heap, once a call: threads of the caller may have small stacks.
    const std::unique_ptr<Scratch<AccumulatorOf<T>>> scratch(new (std::nothrow) Scratch<AccumulatorOf<T>>);
    if (scratch == nullptr) return run_naive(plan, problem, task_begin, task_end);
    for (std::int64_t task = task_begin; task < task_end; ++task) {
      multiply(arguments, task_range(plan, problem, task), *scratch);
    }
  });
}

}  // namespace pmpp::matmul
