// blocked on the CPU. A tile of source rows is copied into a buffer of the first-level cache, whose pitch keeps its
// rows in different sets whatever the pitch of the matrix is; squares of 16-byte lanes are transposed in registers and
// whole cache lines of the destination written, of large results past the caches where that is faster (cpu_isa.cpp).
// Included once for each instruction set.
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

// Keeps the compiler from seeing that a loop copies: it would call memcpy, or make it a string instruction, which take
// longer than the few bytes of a tile's row. On a Xeon of the third generation (Ice Lake), AVX-512, one thread, rows of
// 32 bytes took 26 ns each with a string instruction and 10 without.
PMPP_INLINE void hide(std::int64_t& at) { __asm__("" : "+r"(at)); }

// As memcpy, without a call: tiles' rows are short.
PMPP_INLINE void copy_bytes(void* target, const void* source, std::int64_t bytes) {
  using Word = Vector<std::uint8_t, 16>;
  auto* to = static_cast<std::uint8_t*>(target);
  auto* from = static_cast<const std::uint8_t*>(source);
  std::int64_t at = 0;
  for (; at + 16 <= bytes; at += 16) {
    hide(at);
    store_vector(to + at, load_vector<Word>(from + at));
  }
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

  // Source rows [i, i + rows) and columns [j, j + cols); the destination has unit stride along its rows.
  PMPP_INLINE void move(const E* in, std::int64_t in_row, std::int64_t in_col, E* out, std::int64_t out_row, int rows,
                        int cols) {
    read(in, in_row, in_col, rows, cols);
    for (int j = 0; j < cols; j += kPerLane) {
      const int count = cols - j < kPerLane ? cols - j : kPerLane;
      for (int i = 0; i < rows; i += kPerLine) {
        E* const target = out + j * out_row + i;
        if (rows - i >= kPerLine && count == kPerLane) {
          weave_line(i, j, target, out_row * kSize);
        } else {
          E line[kPerLane * kPerLine];
          weave_line(i, j, line, kCpuLineBytes);
          const int bytes = (rows - i < kPerLine ? rows - i : kPerLine) * kSize;
          for (int c = 0; c < count; ++c) copy_bytes(target + c * out_row, line + c * kPerLine, bytes);
        }
      }
    }
  }

 protected:
  static constexpr int kPerLane = 16 / kSize;
  static constexpr int kPerLine = kCpuLineBytes / kSize;

  PMPP_INLINE void read(const E* in, std::int64_t in_row, std::int64_t in_col, int rows, int cols) {
    if (in_col != 1) {
      for (int i = 0; i < rows; ++i) {
        auto* const row = reinterpret_cast<E*>(buffer_[i]);
        for (int j = 0; j < cols; ++j) store(row + j, load(in + i * in_row + j * in_col));
      }
    } else if (cols == kCols) {
      for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
        for (int at = 0; at < kCpuTileBytes; at += kVectorBytes) {
          const auto* const source = reinterpret_cast<const std::uint8_t*>(in + i * in_row);
          store_vector(buffer_[i] + at, load_vector<Vector<std::uint8_t>>(source + at));
        }
      }
    } else {
      const std::int64_t bytes = cols * kSize;
      for (int i = 0; i < rows; ++i) {
        const auto* const source = reinterpret_cast<const std::uint8_t*>(in + i * in_row);
        std::int64_t at = 0;
        for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
          hide(at);
          store_vector(buffer_[i] + at, load_vector<Vector<std::uint8_t>>(source + at));
        }
        copy_bytes(buffer_[i] + at, source + at, bytes - at);
      }
    }
  }

  // One cache line of each of kPerLane destination rows, `pitch` bytes apart.
  template <bool kStreamed = false>
  PMPP_INLINE void weave_line(int i, int j, void* out, std::int64_t pitch) const {
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
        auto* const target = static_cast<std::uint8_t*>(out) + r * pitch + part * kVectorBytes;
        if constexpr (kStreamed) {
          stream_vector(target, bit_cast<Vector<std::uint8_t>>(rows[r]));
        } else {
          store_vector(target, rows[r]);
        }
      }
    }
  }

 private:
  // A pitch of an odd number of lanes keeps rows out of each other's cache sets.
  alignas(64) std::uint8_t buffer_[kRows][kCpuTileBytes + 16] = {};
};

// Tiles below each other, written past the caches. Destination rows begin anywhere within a cache line, so that a tile
// is transposed into lines of its own first; what does not fill a line waits for the next tile.
template <class E>
class StreamedTile : private Tile<E> {
 public:
  using Tile<E>::kSize;
  using Tile<E>::kRows;
  using Tile<E>::kCols;

  // As Tile::move(). The first tile of the range starts its rows, the last one ends them; `next` is the source of the
  // tile after this one, or null.
  PMPP_INLINE void move(const E* in, std::int64_t in_row, std::int64_t in_col, E* out, std::int64_t out_row, int rows,
                        int cols, const E* next) {
    const bool is_first = !carries_;
    carries_ = next != nullptr;
    this->read(in, in_row, in_col, rows, cols);
    // Lines are written at once: halves of them, a register each, would leave for memory one by one.
    const bool in_place = kVectorBytes == kCpuLineBytes && rows % kPerLine == 0 && cols % kPerLane == 0 &&
                          offset_in_line(out) == 0 && out_row % kPerLine == 0;
    for (int j = 0; j < cols; j += kPerLane) {
      // The next tile is on its way while this one is written.
      if (next != nullptr) ask_for(next, in_row, in_col, j * kRows / cols, (j + kPerLane) * kRows / cols);
      for (int i = 0; i < rows; i += kPerLine) {
        if (in_place) {
          this->template weave_line<true>(i, j, out + j * out_row + i, out_row * kSize);
        } else {
          this->weave_line(i, j, lines_[j] + kCpuLineBytes + i * kSize, sizeof(lines_[0]));
        }
      }
    }
    if (in_place) return;
    for (int c = 0; c < cols; ++c) write(reinterpret_cast<std::uint8_t*>(out + c * out_row), c, rows, is_first);
  }

 private:
  using Tile<E>::kPerLane;
  using Tile<E>::kPerLine;
  static_assert(kRows % kPerLine == 0 && kCols % kPerLane == 0);

  static PMPP_INLINE int offset_in_line(const void* address) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % kCpuLineBytes);
  }

  static PMPP_INLINE void ask_for(const E* next, std::int64_t in_row, std::int64_t in_col, int begin, int end) {
    for (int i = begin; i < end && i < kRows; ++i) {
      for (std::int64_t at = 0; at < kCpuTileBytes * in_col; at += kCpuLineBytes) {
        __builtin_prefetch(reinterpret_cast<const std::uint8_t*>(next + i * in_row) + at, 0, 2);
      }
    }
  }

  // The line of staged row c that `out` lies in begins as many bytes before kCpuLineBytes as it begins before `out`.
  PMPP_INLINE void write(std::uint8_t* out, int c, int rows, bool is_first) {
    std::uint8_t* const line = lines_[c];
    const int before = offset_in_line(out);
    const int end = kCpuLineBytes + rows * kSize;
    int at = kCpuLineBytes - before;
    if (is_first && before != 0) {
      at += kCpuLineBytes;
      copy_bytes(out, line + kCpuLineBytes, (at < end ? at : end) - kCpuLineBytes);
    }
    for (; at + kCpuLineBytes <= end; at += kCpuLineBytes) {
#pragma GCC unroll 4
      for (int part = 0; part < kCpuLineBytes; part += kVectorBytes) {
        stream_vector(out + (at - kCpuLineBytes) + part, load_vector<Vector<std::uint8_t>>(line + at + part));
      }
    }
    if (!carries_) {
      if (at < end) copy_bytes(out + (at - kCpuLineBytes), line + at, end - at);
    } else if (before != 0) {
#pragma GCC unroll 4
      for (int part = 0; part < kCpuLineBytes; part += kVectorBytes) {
        store_vector(line + part, load_vector<Vector<std::uint8_t>>(line + end - kCpuLineBytes + part));
      }
    }
  }

  // In front of each row a line's room for what the tile before left. The pitch as in Tile.
  alignas(64) std::uint8_t lines_[kCols][kCpuLineBytes + kRows * kSize + 16] = {};
  bool carries_ = false;
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
PMPP_INLINE void run_streamed(const Arguments<E>& p, const TaskRange& range, const E* in, E* out) {
  constexpr int kRows = Tile<E>::kRows, kCols = Tile<E>::kCols;
  StreamedTile<E> tile;
  for (std::int64_t j = range.j; j < range.j_end; j += kCols) {
    const auto cols = static_cast<int>(smaller(kCols, range.j_end - j));
    for (std::int64_t i = range.i; i < range.i_end; i += kRows) {
      const auto rows = static_cast<int>(smaller(kRows, range.i_end - i));
      const E* const source = in + i * p.in_row + j * p.in_col;
      tile.move(source, p.in_row, p.in_col, out + j * p.out_row + i, p.out_row, rows, cols,
                i + kRows < range.i_end ? source + kRows * p.in_row : nullptr);
    }
  }
  finish_streaming();
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
      if (plan.is_streamed) return run_streamed(p, range, in, out);
      Tile<E> tile;
      for (std::int64_t j = range.j; j < range.j_end; j += Tile<E>::kCols) {
        const auto cols = static_cast<int>(smaller(Tile<E>::kCols, range.j_end - j));
        for (std::int64_t i = range.i; i < range.i_end; i += Tile<E>::kRows) {
          const auto rows = static_cast<int>(smaller(Tile<E>::kRows, range.i_end - i));
          tile.move(in + i * p.in_row + j * p.in_col, p.in_row, p.in_col, out + j * p.out_row + i, p.out_row, rows,
                    cols);
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
