// blocked on the CPU: the blocking of GotoBLAS. A task owns a block of the result (and, where k is split, a range of
// k). For each slice of k it packs a panel of b that the second-level cache holds; a few rows of a, which the
// first-level cache holds, meet all of that panel before the next rows, so that tiles of the result that follow each
// other lie beside each other. On a Xeon of the third generation (Ice Lake) that order is 8 % faster at 1024 x 1024 x
// 1024 than tiles below each other, whose rows all lie in other pages. Operands that small caches hold anyway, and rows
// of a, are not packed where the micro-kernel can read them. Included once for each instruction set.
#pragma once

#include "csrc/tiled_matmul/cpu/micro_kernel.hpp"
#include "csrc/tiled_matmul/cpu/micro_tile.hpp"
#include "csrc/tiled_matmul/cpu/pack.hpp"
#include "csrc/tiled_matmul/cpu/run.hpp"
#include "csrc/tiled_matmul/cpu/vector_products.hpp"

namespace pmpp::PMPP_ISA {

using matmul::Arguments;
using matmul::Plan;
using matmul::Problem;
using matmul::TaskRange;

PMPP_INLINE std::int64_t smaller(std::int64_t x, std::int64_t y) { return x < y ? x : y; }

template <class T>
inline constexpr int kParts = kIsComplex<T> ? 2 : 1;

// Elements of the micro-kernel's tile.
template <class T>
inline constexpr int kTileCols = SumsOf<T>::kVectors* kVectorBytes / kUnitBytes<T>;
template <class T>
inline constexpr int kTileRows = (kVectorBytes == 64 ? 9 : 6) / kParts<T>;

// ---- from sums to elements of the result ---------------------------------------------------------------------------

// A row of finished sums into contiguous elements.
template <class T>
PMPP_INLINE void narrow_row(const NumberOf<T>* sums, T* row, int count) {
  int j = 0;
  if constexpr (std::is_same_v<T, BFloat16>) {
    constexpr int kCount = kVectorBytes / 4;
    using Bits = Vector<std::uint32_t>;
    for (; j + kCount <= count; j += kCount) {
      const auto bits = load_vector<Bits>(sums + j);
      const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      const Bits nan = bits >> 16 | 0x40;
      const Bits result = (bits & 0x7fffffff) > 0x7f800000 ? nan : rounded;
      store_vector(row + j, __builtin_convertvector(result, Vector<std::uint16_t, kVectorBytes / 2>));
    }
  }
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Float16>) {
    for (; j + 8 <= count; j += 8) {
      store_vector(row + j, _mm256_cvtps_ph(load_vector<__m256>(sums + j), _MM_FROUND_TO_NEAREST_INT));
    }
  }
#endif
  for (; j < count; ++j) {
    AccumulatorOf<T> sum;
    std::memcpy(&sum, sums + j, sizeof(sum));
    store(row + j, narrow<T>(sum));
  }
}

// One element of a tile whose rows lie `pitch` numbers apart. For complex numbers the four sums are joined.
template <class T>
PMPP_INLINE AccumulatorOf<T> sum_at(const NumberOf<T>* tile, std::int64_t pitch, int i, int j) {
  if constexpr (kIsComplex<T>) {
    const NumberOf<T>* const re = tile + 2 * i * pitch + 2 * j;
    const NumberOf<T>* const im = re + pitch;
    return {re[0] - im[1], re[1] + im[0]};
  } else {
    return static_cast<AccumulatorOf<T>>(tile[i * pitch + j]);
  }
}

// The same for a row of contiguous complex elements, a register at a time: re*re and re*im, plus im*im and im*re with
// their places and the sign of the first exchanged.
template <class R, std::size_t... kIndex>
PMPP_INLINE Vector<R> join_parts(Vector<R> re, Vector<R> im, std::index_sequence<kIndex...>) {
  using Bits = Vector<std::conditional_t<sizeof(R) == 4, std::uint32_t, std::uint64_t>>;
  const auto swapped = shuffle(bit_cast<Bits>(im), bit_cast<Bits>(im), Bits{(kIndex ^ 1)...});
  const Bits sign = {(kIndex % 2 == 0 ? std::uint64_t{1} << 63 >> (64 - 8 * sizeof(R)) : 0)...};
  return re + bit_cast<Vector<R>>(swapped ^ sign);
}

template <class T>
PMPP_INLINE void join_row(const NumberOf<T>* tile, std::int64_t pitch, T* row, int count, bool accumulate = false) {
  using R = NumberOf<T>;
  constexpr int kPerVector = kVectorBytes / sizeof(T);
  constexpr auto kIndices = std::make_index_sequence<kVectorBytes / sizeof(R)>();
  int j = 0;
  for (; j + kPerVector <= count; j += kPerVector) {
    const auto re = load_vector<Vector<R>>(tile + 2 * j), im = load_vector<Vector<R>>(tile + pitch + 2 * j);
    const Vector<R> sums = join_parts<R>(re, im, kIndices);
    store_vector(row + j, accumulate ? load_vector<Vector<R>>(row + j) + sums : sums);
  }
  for (; j < count; ++j) {
    const T sum = sum_at<T>(tile, pitch, 0, j);
    store(row + j, accumulate ? add(load(row + j), sum) : sum);
  }
}

template <class T>
PMPP_INLINE bool stores_plainly(const Arguments<T>& p) {
  return p.d_col == 1 && !p.scaled && p.c == nullptr;
}

template <class T>
void finish_tile(const Arguments<T>& p, std::int64_t batch, std::int64_t row, std::int64_t col, int rows, int cols,
                 const NumberOf<T>* tile, std::int64_t pitch) {
  if (stores_plainly(p)) {
    for (int i = 0; i < rows; ++i) {
      T* const target = p.d + batch * p.d_batch + (row + i) * p.d_row + col;
      if constexpr (kIsComplex<T>) {
        join_row<T>(tile + 2 * i * pitch, pitch, target, cols);
      } else {
        narrow_row<T>(tile + i * pitch, target, cols);
      }
    }
  } else {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) p.store(batch, row + i, col + j, sum_at<T>(tile, pitch, i, j));
    }
  }
}

// ---- one task ------------------------------------------------------------------------------------------------------

template <class T>
class Task {
 public:
  using Number = NumberOf<T>;
  using Sums = SumsOf<T>;

  PMPP_INLINE Task(const Plan& plan, const Arguments<T>& p, const TaskRange& range, void* scratch, void* partial)
      : plan_(plan), p_(p), range_(range) {
    auto* const memory = static_cast<std::uint8_t*>(scratch);
    packed_a_ = reinterpret_cast<Number*>(memory);
    packed_b_ = reinterpret_cast<Number*>(memory + plan.packed_a_bytes);
    sums_ = partial != nullptr ? static_cast<Number*>(partial)
                               : reinterpret_cast<Number*>(memory + plan.packed_a_bytes + plan.packed_b_bytes);
    split_ = partial != nullptr;
  }

  void run() {
    if constexpr (kHasVectorProducts<T>) {
      if (plan_.by_vectors) return run_vectors();
    }
    // Rows of a that are packed as a whole serve all columns. Sums that are not kept in the result have room for
    // block_n columns alone, and where b is not packed, block_n columns of the result stay in the caches.
    if (plan_.sum_bytes == 0 && plan_.pack_b) {
      for (std::int64_t k = range_.k; k < range_.k_end; k += plan_.tile_k) {
        for (std::int64_t col = range_.col; col < range_.col_end; col += plan_.block_n) multiply_slice(col, k);
      }
    } else {
      for (std::int64_t col = range_.col; col < range_.col_end; col += plan_.block_n) {
        for (std::int64_t k = range_.k; k < range_.k_end; k += plan_.tile_k) multiply_slice(col, k);
      }
    }
  }

 private:
  static constexpr int kPart = kParts<T>;
  static constexpr int kWidth = kVectorBytes / sizeof(Number);
  // Sums in the result itself may be of a part of a register, which is read and written with a mask.
  static constexpr bool kMasks = !kIsComplex<T> && sizeof(T) == sizeof(Number);

  // All rows times block_n columns from `col`, tile_k steps from `k`.
  PMPP_INLINE void multiply_slice(std::int64_t col, std::int64_t k) {
    const std::int64_t col_end = smaller(col + plan_.block_n, range_.col_end);
    depth_ = smaller(plan_.tile_k, range_.k_end - k);
    first_ = k == range_.k;
    last_ = k + depth_ == range_.k_end;
    pack_b(col, col_end, k);
    for (std::int64_t row = range_.row; row < range_.row_end; row += plan_.block_m) {
      const std::int64_t row_end = smaller(row + plan_.block_m, range_.row_end);
      if (row != packed_row_ || k != packed_k_) {
        // Tiles of equal height: a few rows left over would wait for each other's sums.
        const std::int64_t tiles = (row_end - row + kTileRows<T> - 1) / kTileRows<T>;
        tile_rows_ = static_cast<int>((row_end - row + tiles - 1) / tiles);
        pack_a(row, row_end, k);
        packed_row_ = row, packed_k_ = k;
      }
      panels_.a = a_;
      for (std::int64_t i = row; i < row_end; i += tile_rows_, panels_.a += a_tile_) {
        const int rows = static_cast<int>(smaller(tile_rows_, row_end - i));
        // Along the rows of the result, which lie together.
        for (std::int64_t j = col; j < col_end; j += kTileCols<T>) {
          const int cols = static_cast<int>(smaller(kTileCols<T>, col_end - j));
          set_b(j, j - col, cols, k);
          tile(i, j, j - col, rows, cols);
        }
      }
    }
  }

  // A group of columns of b at a time, whose sums the first-level cache holds.
  void run_vectors() {
    const std::int64_t depth = range_.k_end - range_.k;
    const T* const a = p_.a + range_.batch * p_.a_batch + range_.row * p_.a_row + range_.k * p_.a_col;
    const auto rows = static_cast<int>(range_.row_end - range_.row);
    const Number* x = packed_a_;
    std::int64_t x_pitch = depth;
    if (std::is_same_v<T, Number> && p_.a_col == 1) {
      x = reinterpret_cast<const Number*>(a);
      x_pitch = p_.a_row;
    } else {
      pack_rows_anyhow(Source<T>{a, p_.a_row, p_.a_col, rows, depth});
    }
    for (std::int64_t col = range_.col; col < range_.col_end; col += plan_.block_n) {
      const auto cols = static_cast<int>(smaller(plan_.block_n, range_.col_end - col));
      const T* const b = p_.b + range_.batch * p_.b_batch + range_.k * p_.b_row + col * p_.b_col;
      Number* const sums = split_ ? sums_ + (col - range_.col) : packed_b_;
      const std::int64_t pitch = plan_.block_n;
      if (p_.b_row == 1) {
        dot_rows(x, x_pitch, rows, b, p_.b_col, depth, cols, sums, pitch);
      } else {
        weigh_rows(x, x_pitch, rows, b, p_.b_row, depth, cols, sums, pitch);
      }
      if (!split_) finish_tile(p_, range_.batch, range_.row, col, rows, cols, sums, pitch);
    }
  }

  PMPP_INLINE void pack_rows_anyhow(const Source<T>& source) {
    if (source.k_stride == 1) return pack_rows(source, packed_a_, source.depth);
    for (int i = 0; i < source.width; ++i) {
      for (std::int64_t k = 0; k < source.depth; ++k) packed_a_[i * source.depth + k] = widen(load(source.at(i, k)));
    }
  }

  PMPP_INLINE void pack_b(std::int64_t col, std::int64_t col_end, std::int64_t k) {
    const std::int64_t width = col_end - col;
    if (!plan_.pack_b && plan_.in_place && kMasks) return;
    // Where b is not packed, columns that do not fill the tile's registers are.
    const std::int64_t whole = plan_.pack_b ? 0 : width / kTileCols<T> * kTileCols<T>;
    const Source<T> source{p_.b + range_.batch * p_.b_batch + k * p_.b_row + (col + whole) * p_.b_col, p_.b_col,
                           p_.b_row, static_cast<int>(width - whole), depth_};
    if (source.width > 0) pack_panels<T, kTileCols<T>>(source, packed_b_);
  }

  PMPP_INLINE void pack_a(std::int64_t row, std::int64_t row_end, std::int64_t k) {
    const Source<T> source{p_.a + range_.batch * p_.a_batch + row * p_.a_row + k * p_.a_col, p_.a_row, p_.a_col,
                           static_cast<int>(row_end - row), depth_};
    panels_.depth = (depth_ + kSteps<T> - 1) / kSteps<T>;
    if (!plan_.pack_a) {
      a_ = reinterpret_cast<const Number*>(source.data);
      panels_.a_row = p_.a_row * kPart;
      panels_.a_step = p_.a_col * kPart;
    } else if (p_.a_col == 1) {
      const std::int64_t pitch = panels_.depth;
      pack_rows(source, packed_a_, pitch);
      a_ = packed_a_;
      panels_.a_row = pitch * kPart;
      panels_.a_step = kPart;
    } else {
      pack_columns(source, tile_rows_, packed_a_);
      a_ = packed_a_;
      panels_.a_row = kPart;
      panels_.a_step = tile_rows_ * kPart;
    }
    // From one tile of rows to the next.
    a_tile_ = plan_.pack_a && p_.a_col != 1 ? panels_.depth * tile_rows_ * kPart : panels_.a_row * tile_rows_;
  }

  PMPP_INLINE void set_b(std::int64_t col, std::int64_t offset, int cols, std::int64_t k) {
    if (!plan_.pack_b && (cols == kTileCols<T> || (plan_.in_place && kMasks))) {
      panels_.b = reinterpret_cast<const Number*>(p_.b + range_.batch * p_.b_batch + k * p_.b_row + col);
      panels_.b_step = p_.b_row * kPart;
    } else {
      panels_.b = packed_b_ + (plan_.pack_b ? offset * panels_.depth * kPart : 0);
      panels_.b_step = kTileCols<T> * kPart;
    }
  }

  // Whole registers, as many as the columns need: what is behind the last column is padding of the packed b, and room
  // of the target's.
  PMPP_INLINE void multiply(int rows, int cols, Number* target, std::int64_t pitch, bool accumulate) {
    micro_kernel_sized<Sums, kIsComplex<T>, kTileRows<T> * kPart, Sums::kVectors>(
        rows * kPart, (cols * kPart + kWidth - 1) / kWidth, panels_, target, pitch, accumulate,
        WholeRegister<typename Sums::Register>());
  }

  // Columns of the result that do not fill the tile's registers.
  PMPP_INLINE void multiply_part(int rows, int cols, Number* target, std::int64_t pitch, bool accumulate) {
    const int whole = (cols - 1) / kWidth;
    micro_kernel_sized<Sums, false, kTileRows<T>, Sums::kVectors>(rows, whole + 1, panels_, target, pitch, accumulate,
                                                                  Part<Number>(cols - whole * kWidth));
  }

  PMPP_INLINE void tile(std::int64_t row, std::int64_t col, std::int64_t offset, int rows, int cols) {
    T* const d = p_.d + range_.batch * p_.d_batch + row * p_.d_row + col;
    if constexpr (kMasks) {
      if (plan_.in_place) {
        auto* const target = reinterpret_cast<Number*>(d);
        if (cols < kTileCols<T>) return multiply_part(rows, cols, target, p_.d_row, !first_);
        return multiply(rows, cols, target, p_.d_row, !first_);
      }
    }
    constexpr std::int64_t kPitch = kTileCols<T> * kPart;
    alignas(64) Number small[kTileRows<T> * kPart * kPitch];
    if constexpr (kIsComplex<T>) {
      if (plan_.in_place) {
        // On their way while the sums are formed.
        for (int i = 0; i < rows; ++i) {
          __builtin_prefetch(d + i * p_.d_row, 1);
          __builtin_prefetch(d + i * p_.d_row + cols - 1, 1);
        }
        multiply(rows, cols, small, kPitch, false);
        for (int i = 0; i < rows; ++i) join_row(small + 2 * i * kPitch, kPitch, d + i * p_.d_row, cols, !first_);
        return;
      }
    }
    if (first_ && last_ && !split_) {
      multiply(rows, cols, small, kPitch, false);
      return finish_tile(p_, range_.batch, row, col, rows, cols, small, kPitch);
    }
    const std::int64_t pitch = plan_.block_n * kPart;
    Number* const sums = sums_ + (row - range_.row) * kPart * pitch + offset * kPart;
    multiply(rows, cols, sums, pitch, !first_);
    if (last_ && !split_) finish_tile(p_, range_.batch, row, col, rows, cols, sums, pitch);
  }

  const Plan& plan_;
  const Arguments<T>& p_;
  const TaskRange& range_;
  Number *packed_a_, *packed_b_, *sums_;
  const Number* a_ = nullptr;
  Panels<Sums, kIsComplex<T>> panels_ = {};
  std::int64_t depth_ = 0, a_tile_ = 0, packed_row_ = -1, packed_k_ = -1;
  int tile_rows_ = kTileRows<T>;
  bool first_ = true, last_ = true, split_;
};

// Adds up, in the order of k, what the tasks of one block of the result left, and stores it.
template <class T>
void add_partials(const Plan& plan, const Arguments<T>& p, const TaskRange& range, std::uint8_t* partials) {
  using Number = NumberOf<T>;
  const std::int64_t pitch = plan.block_n * kParts<T>;
  const auto rows = static_cast<int>(range.row_end - range.row), cols = static_cast<int>(range.col_end - range.col);
  auto* const sums = reinterpret_cast<Number*>(partials);
  for (int i = 0; i < rows * kParts<T>; ++i) {
    for (int split = 1; split < plan.splits; ++split) {
      const auto* const other = reinterpret_cast<const Number*>(partials + split * plan.partial_bytes);
      for (int j = 0; j < cols * kParts<T>; ++j) sums[i * pitch + j] += other[i * pitch + j];
    }
  }
  finish_tile(p, range.batch, range.row, range.col, rows, cols, sums, pitch);
}

PMPP_INLINE void run_tasks(const Plan& plan, const Problem& problem, void* scratch, void* partials,
                           std::int64_t task_begin, std::int64_t task_end) {
  matmul::visit_dtype(
      problem.dtype, [&]<class T>() __attribute__((always_inline)) {
        constexpr int kTypeRows = kTileRows<T>;
        static_assert(kTypeRows > 0);
        const Arguments<T> p = matmul::make_arguments<T>(problem);
        for (std::int64_t task = task_begin; task < task_end; ++task) {
          const TaskRange range = matmul::task_range(plan, problem, task);
          void* const partial =
              plan.splits > 1 ? static_cast<std::uint8_t*>(partials) + task * plan.partial_bytes : nullptr;
          Task<T>(plan, p, range, scratch, partial).run();
        }
      });
}

PMPP_INLINE void run_sums(const Plan& plan, const Problem& problem, void* partials) {
  matmul::visit_dtype(
      problem.dtype, [&]<class T>() __attribute__((always_inline)) {
        const Arguments<T> p = matmul::make_arguments<T>(problem);
        for (std::int64_t task = 0; task < plan.tasks; task += plan.splits) {
          TaskRange range = matmul::task_range(plan, problem, task);
          add_partials(plan, p, range, static_cast<std::uint8_t*>(partials) + task * plan.partial_bytes);
        }
      });
}

}  // namespace pmpp::PMPP_ISA
