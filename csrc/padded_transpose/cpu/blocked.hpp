// blocked on the CPU. A tile of source rows is copied into a buffer of the first-level cache, whose pitch keeps its
// rows in different sets whatever the pitch of the matrix is; squares of 16-byte lanes are transposed in registers and
// whole cache lines of the destination written, past the caches where the matrix does not fit them. Included once for
// each instruction set.
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

// Copies up to 64 bytes or a multiple of them, without a call for the short ones.
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

// Past the caches; the address is a multiple of the register's size.
PMPP_INLINE void stream_vector(void* address, Vector<std::uint8_t> value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(address), bit_cast<__m512i>(value));
#elif defined(__AVX2__)
  _mm256_stream_si256(static_cast<__m256i*>(address), bit_cast<__m256i>(value));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(address), bit_cast<__m128i>(value));
#else
  store_vector(address, value);
#endif
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
  PMPP_INLINE void move(const E* in, std::int64_t in_row, E* out, std::int64_t out_row, int rows, int cols,
                        bool stream) {
    if (cols == kCols) {
      for (int i = 0; i < rows; ++i) copy_bytes(buffer_[i], in + i * in_row, kCpuTileBytes);
    } else {
      for (int i = 0; i < rows; ++i) copy_bytes(buffer_[i], in + i * in_row, cols * kSize);
    }
    const bool whole = rows == kRows;
    for (int j = 0; j < cols; j += kPerLane) {
      const int count = cols - j < kPerLane ? cols - j : kPerLane;
      for (int i = 0; i < rows; i += kPerLine) {
        E* const target = out + j * out_row + i;
        if (whole && count == kPerLane && stream) {
          weave_line<true>(i, j, target, out_row);
        } else if (rows - i >= kPerLine && count == kPerLane) {
          weave_line<false>(i, j, target, out_row);
        } else {
          E line[kPerLane * kPerLine];
          weave_line<false>(i, j, line, kPerLine);
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
  template <bool kStream>
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
        auto* const target = reinterpret_cast<std::uint8_t*>(out + r * out_row) + part * kVectorBytes;
        if constexpr (kStream) {
          stream_vector(target, bit_cast<Vector<std::uint8_t>>(rows[r]));
        } else {
          store_vector(target, rows[r]);
        }
      }
    }
  }

  // A pitch of an odd number of lanes keeps rows out of each other's cache sets.
  alignas(64) std::uint8_t buffer_[kRows][kCpuTileBytes + 16] = {};
};

// A few columns or rows, of which a register would stay half empty: element by element, in pieces that the first-level
// cache holds, along the longer side.
template <class E>
PMPP_INLINE void move_narrow(const Arguments<E>& p, const TaskRange& range, const E* in, E* out) {
  constexpr std::int64_t kPiece = 256;
  if (range.j_end - range.j <= range.i_end - range.i) {
    for (std::int64_t i0 = range.i; i0 < range.i_end; i0 += kPiece) {
      const std::int64_t i_end = smaller(i0 + kPiece, range.i_end);
      for (std::int64_t j = range.j; j < range.j_end; ++j) {
        for (std::int64_t i = i0; i < i_end; ++i)
          store(out + j * p.out_row + i * p.out_col, load(in + i * p.in_row + j * p.in_col));
      }
    }
  } else {
    for (std::int64_t j0 = range.j; j0 < range.j_end; j0 += kPiece) {
      const std::int64_t j_end = smaller(j0 + kPiece, range.j_end);
      for (std::int64_t i = range.i; i < range.i_end; ++i) {
        for (std::int64_t j = j0; j < j_end; ++j)
          store(out + j * p.out_row + i * p.out_col, load(in + i * p.in_row + j * p.in_col));
      }
    }
  }
}

// Elements anywhere: squares small enough that both sides stay in the first-level cache.
template <class E>
PMPP_INLINE void move_strided(const Arguments<E>& p, const TaskRange& range, const E* in, E* out) {
  constexpr std::int64_t kSide = 16;
  for (std::int64_t i0 = range.i; i0 < range.i_end; i0 += kSide) {
    const std::int64_t i_end = smaller(i0 + kSide, range.i_end);
    for (std::int64_t j0 = range.j; j0 < range.j_end; j0 += kSide) {
      const std::int64_t j_end = smaller(j0 + kSide, range.j_end);
      for (std::int64_t j = j0; j < j_end; ++j) {
        for (std::int64_t i = i0; i < i_end; ++i)
          store(out + j * p.out_row + i * p.out_col, load(in + i * p.in_row + j * p.in_col));
      }
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
    case transposition::Method::kCpuTiles:
    case transposition::Method::kCpuStream: {
      Tile<E> tile;
      const bool stream = plan.method == transposition::Method::kCpuStream;
      for (std::int64_t j = range.j; j < range.j_end; j += Tile<E>::kCols) {
        const auto cols = static_cast<int>(smaller(Tile<E>::kCols, range.j_end - j));
        for (std::int64_t i = range.i; i < range.i_end; i += Tile<E>::kRows) {
          const auto rows = static_cast<int>(smaller(Tile<E>::kRows, range.i_end - i));
          tile.move(in + i * p.in_row + j, p.in_row, out + j * p.out_row + i, p.out_row, rows, cols, stream);
        }
      }
#if defined(__SSE2__)
      if (stream) _mm_sfence();
#endif
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
