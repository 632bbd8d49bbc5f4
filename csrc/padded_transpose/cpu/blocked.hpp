// blocked on the CPU. A tile of source rows is copied into a buffer of the first-level cache, whose pitch keeps its
// rows in different sets whatever the pitch of the matrix is; squares of 16-byte lanes are transposed in registers and
// whole cache lines of the destination written. Not past the caches, not even where a result does not stay there: on an
// EPYC 7003, one thread, 4096 x 8192 elements into memory in use, that moved 7.6, 6.6 and 11.3 GB/s for elements of 4,
// 8 and 16 bytes, against 11.0, 10.2 and 11.4 without. Included once for each instruction set.
#pragma once

#include "csrc/common/cpu/simd.hpp"
#include "csrc/padded_transpose/config.hpp"
#include "csrc/padded_transpose/cpu/run.hpp"

namespace pmpp::PMPP_ISA {

using transposition::Arguments;
using transposition::kCpuLineBytes;
using transposition::kCpuTileBytes;
using transposition::Plan;
using transposition::Problem;
using transposition::TaskRange;

PMPP_INLINE std::int64_t smaller(std::int64_t x, std::int64_t y) { return x < y ? x : y; }

// As memcpy, without a call: tiles' rows are short.
PMPP_INLINE void copy_bytes(void* target, const void* source, std::int64_t bytes) {
  using Word = Vector<std::uint8_t, 16>;
  auto* to = static_cast<std::uint8_t*>(target);
  auto* from = static_cast<const std::uint8_t*>(source);
  std::int64_t at = 0;
  for (; at + 16 <= bytes; at += 16) store_vector(to + at, load_vector<Word>(from + at));
  if (bytes & 8) store_vector(to + at, load_vector<std::uint64_t>(from + at)), at += 8;
  if (bytes & 4) store_vector(to + at, load_vector<std::uint32_t>(from + at)), at += 4;
  if (bytes & 2) store_vector(to + at, load_vector<std::uint16_t>(from + at)), at += 2;
  if (bytes & 1) to[at] = from[at];
}

// The integer that registers are seen as; 16-byte elements fill a lane and are never woven.
template <class E>
struct WordOf {
  using type = E;
};
template <>
struct WordOf<transposition::Pair<std::uint64_t>> {
  using type = std::uint64_t;
};

template <class E>
class Tile {
 public:
  static constexpr int kSize = sizeof(E);
  static constexpr int kRows = transposition::cpu_tile_rows(kSize);
  static constexpr int kCols = kCpuTileBytes / kSize;

  // Source rows [i, i + rows) and columns [j, j + cols), both with unit stride along their rows.
  PMPP_INLINE void move(const E* in, std::int64_t in_row, E* out, std::int64_t out_row, int rows, int cols) {
    if (cols == kCols) {
      for (int i = 0; i < rows; ++i) copy_bytes(buffer_[i], in + i * in_row, kCpuTileBytes);
    } else {
      for (int i = 0; i < rows; ++i) copy_bytes(buffer_[i], in + i * in_row, cols * kSize);
    }
    for (int j = 0; j < cols; j += kPerLane) {
      const int count = cols - j < kPerLane ? cols - j : kPerLane;
      for (int i = 0; i < rows; i += kPerLine) {
        E* const target = out + j * out_row + i;
        if (rows - i >= kPerLine && count == kPerLane) {
          weave_line(i, j, target, out_row);
        } else {
          E line[kPerLane * kPerLine];
          weave_line(i, j, line, kPerLine);
          const int bytes = (rows - i < kPerLine ? rows - i : kPerLine) * kSize;
          for (int c = 0; c < count; ++c) copy_bytes(target + c * out_row, line + c * kPerLine, bytes);
        }
      }
    }
  }

 private:
  static constexpr int kPerLane = 16 / kSize;
  static constexpr int kPerLine = kCpuLineBytes / kSize;

  // One cache line of each of kPerLane destination rows.
  PMPP_INLINE void weave_line(int i, int j, E* out, std::int64_t out_row) const {
    using Word = typename WordOf<E>::type;
#pragma GCC unroll 4
    for (int part = 0; part < kCpuLineBytes / kVectorBytes; ++part) {
      Vector<Word> rows[kPerLane];
#pragma GCC unroll 16
      for (int r = 0; r < kPerLane; ++r) {
        Lane lanes[kLanes];
#pragma GCC unroll 4
        for (int lane = 0; lane < kLanes; ++lane) {
          lanes[lane] = load_vector<Lane>(&buffer_[i + (part * kLanes + lane) * kPerLane + r][j * kSize]);
        }
        rows[r] = bit_cast<Vector<Word>>(join(lanes));
      }
      if constexpr (kPerLane > 1) transpose_lanes<Word>(rows);
#pragma GCC unroll 16
      for (int r = 0; r < kPerLane; ++r) {
        store_vector(reinterpret_cast<std::uint8_t*>(out + r * out_row) + part * kVectorBytes, rows[r]);
      }
    }
  }

  // A pitch of an odd number of lanes keeps rows out of each other's cache sets.
  alignas(64) std::uint8_t buffer_[kRows][kCpuTileBytes + 16] = {};
};

// Elements of one piece, along the longer side. Strides come by value: a store of single bytes might change them
// otherwise, as far as the compiler knows.
template <class E>
PMPP_INLINE void move_run(const E* in, std::int64_t in_step, E* out, std::int64_t out_step, std::int64_t count) {
  if (out_step == 1) {
    for (std::int64_t i = 0; i < count; ++i) store(out + i, load(in + i * in_step));
  } else if (in_step == 1) {
    for (std::int64_t i = 0; i < count; ++i) store(out + i * out_step, load(in + i));
  } else {
    for (std::int64_t i = 0; i < count; ++i) store(out + i * out_step, load(in + i * in_step));
  }
}

// A few columns or rows, of which a register would stay half empty: element by element, in pieces that the first-level
// cache holds, along the longer side.
template <class E>
PMPP_INLINE void move_narrow(const Arguments<E>& p, const TaskRange& range, const E* in, E* out) {
  constexpr std::int64_t kPiece = 256;
  if (range.j_end - range.j <= range.i_end - range.i) {
    for (std::int64_t i = range.i; i < range.i_end; i += kPiece) {
      const std::int64_t count = smaller(kPiece, range.i_end - i);
      for (std::int64_t j = range.j; j < range.j_end; ++j) {
        move_run(in + i * p.in_row + j * p.in_col, p.in_row, out + j * p.out_row + i * p.out_col, p.out_col, count);
      }
    }
  } else {
    for (std::int64_t j = range.j; j < range.j_end; j += kPiece) {
      const std::int64_t count = smaller(kPiece, range.j_end - j);
      for (std::int64_t i = range.i; i < range.i_end; ++i) {
        move_run(in + i * p.in_row + j * p.in_col, p.in_col, out + j * p.out_row + i * p.out_col, p.out_row, count);
      }
    }
  }
}

// Elements anywhere: squares small enough that both sides stay in the first-level cache.
template <class E>
PMPP_INLINE void move_strided(const Arguments<E>& p, const TaskRange& range, const E* in, E* out) {
  constexpr std::int64_t kSide = 16;
  for (std::int64_t i = range.i; i < range.i_end; i += kSide) {
    const std::int64_t count = smaller(kSide, range.i_end - i);
    for (std::int64_t j = range.j; j < range.j_end; ++j) {
      move_run(in + i * p.in_row + j * p.in_col, p.in_row, out + j * p.out_row + i * p.out_col, p.out_col, count);
    }
  }
}

template <class E>
void run_task(const Plan& plan, const Arguments<E>& p, const TaskRange& range) {
  const E* const in = p.in + range.batch * p.in_batch;
  E* const out = p.out + range.batch * p.out_batch;
  switch (plan.method) {
    case transposition::Method::kCpuCopy:
      for (std::int64_t j = range.j; j < range.j_end; ++j) {
        std::memcpy(static_cast<void*>(out + j * p.out_row + range.i), in + j * p.in_col + range.i,
                    static_cast<std::size_t>(range.i_end - range.i) * sizeof(E));
      }
      return;
    case transposition::Method::kCpuNarrow:
      return move_narrow(p, range, in, out);
    case transposition::Method::kCpuTiles: {
      Tile<E> tile;
      for (std::int64_t j = range.j; j < range.j_end; j += Tile<E>::kCols) {
        const auto cols = static_cast<int>(smaller(Tile<E>::kCols, range.j_end - j));
        for (std::int64_t i = range.i; i < range.i_end; i += Tile<E>::kRows) {
          const auto rows = static_cast<int>(smaller(Tile<E>::kRows, range.i_end - i));
          tile.move(in + i * p.in_row + j, p.in_row, out + j * p.out_row + i, p.out_row, rows, cols);
        }
      }
      return;
    }
    default:
      return move_strided(p, range, in, out);
  }
}

PMPP_INLINE void run_tasks(const Plan& plan, const Problem& problem, std::int64_t begin, std::int64_t end) {
  transposition::visit_element_size(
      problem.element_size, [&]<class E>() __attribute__((always_inline)) {
        const Arguments<E> p = transposition::make_arguments<E>(problem);
        for (std::int64_t task = begin; task < end; ++task)
          run_task(plan, p, transposition::task_range(plan, problem, task));
      });
}

}  // namespace pmpp::PMPP_ISA
