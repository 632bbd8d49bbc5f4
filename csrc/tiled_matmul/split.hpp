// The kernel that splits operands into planes (split.cuh): how elements become real numbers, and which of them a thread
// takes, for the host and the device.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"
#include "csrc/tiled_matmul/index.cuh"

namespace pmpp::matmul {

// A thread takes kSplitRun neighbouring real numbers, 16 bytes, of kSplitLines lines of the operand.
inline constexpr int kSplitThreads = 256;
inline constexpr int kSplitLines = 4;      // their loads are under way together
inline constexpr int kSplitRun = 4;        // two complex numbers
inline constexpr int kSubnormalWord = 16;  // bytes of what its blocks report that are read at once

// The lines of the planes that a line of the operand becomes (emulated.hpp has the matrices).
enum class SplitForm : std::uint8_t {
  kReal,    // itself
  kPairs,   // one of (re, im): a complex a along k
  kApart,   // re; im: a along m
  kAlongN,  // (re, im); (-im, re): b along n
  kAlongK,  // (re, -im); (im, re): b along k
};
PMPP_HOST_DEVICE constexpr int split_lines(SplitForm form) {
  return form == SplitForm::kReal || form == SplitForm::kPairs ? 1 : 2;
}
// Numbers on each of them for an element; where that makes four, both parts stand there twice.
PMPP_HOST_DEVICE constexpr int split_width(SplitForm form) {
  return form == SplitForm::kReal || form == SplitForm::kApart ? 1 : 2;
}
constexpr bool is_doubled(SplitForm form) { return split_lines(form) * split_width(form) == 4; }
constexpr int split_run_elements(SplitForm form) { return form == SplitForm::kReal ? kSplitRun : kSplitRun / 2; }

// Lines and length of the operand are in elements, its strides in real numbers. `planes` holds
// [plane][batch][line][pitch].
struct SplitOperand {
  const float* data;
  std::uint16_t* planes;
  std::int64_t line_stride, step, batch_stride;  // step: between neighbours of a line
  std::int64_t lines, length;
  std::int64_t pitch, matrix_stride, plane_stride;
  std::int64_t line_blocks, run_blocks, blocks;  // of threads: along the lines of a matrix, along a line, all
  int lane_shift;
  SplitForm form;
  bool is_vector;  // 16 bytes of neighbours can be read at once
  bool is_paired;  // or both parts of a complex number
};

// What a thread takes: its elements from `first` on, of the lines `line`, `line + step_lines`, ...
struct SplitPlace {
  std::int64_t batch, line, first;
  int step_lines;
};

// kElements of them are a run.
template <int kElements>
PMPP_HOST_DEVICE SplitPlace split_place(const SplitOperand& p, std::int64_t block, int thread) {
  const std::int64_t line_block = divide(block, p.run_blocks);
  const std::int64_t batch = divide(line_block, p.line_blocks);
  const int lane = thread % 32, warp = thread / 32;
  const int warp_lines = 32 >> p.lane_shift, step_lines = warp_lines * (kSplitThreads / 32);
  const std::int64_t first =
      (((block - line_block * p.run_blocks) << p.lane_shift) + (lane & ((1 << p.lane_shift) - 1))) * kElements;
  const std::int64_t line =
      (line_block - batch * p.line_blocks) * (step_lines * kSplitLines) + warp * warp_lines + (lane >> p.lane_shift);
  return {batch, line, first, step_lines};
}

// Where the run of a thread begins in a plane: on the first of the lines that its line becomes.
PMPP_HOST_DEVICE std::int64_t split_offset(const SplitOperand& p, const SplitPlace& at, std::int64_t line) {
  return at.batch * p.matrix_stride + line * split_lines(p.form) * p.pitch + at.first * split_width(p.form);
}

// The bits of one plane of two complex numbers, re in the lower half of a word, im in the upper.
struct ComplexWords {
  std::uint32_t word[2];
};
PMPP_HOST_DEVICE std::uint32_t parts_exchanged(std::uint32_t word) { return word << 16 | word >> 16; }

// As they lie on the first line and on the second; of kApart, whose lines are half as long, the lower word alone
// counts.
PMPP_HOST_DEVICE ComplexWords first_line(const ComplexWords& x, SplitForm form) {
  constexpr std::uint32_t kMinusUpper = 0x80000000u;
  if (form == SplitForm::kApart) return {{(x.word[0] & 0xffffu) | x.word[1] << 16, 0}};
  if (form == SplitForm::kAlongK) return {{x.word[0] ^ kMinusUpper, x.word[1] ^ kMinusUpper}};
  return x;
}
PMPP_HOST_DEVICE ComplexWords second_line(const ComplexWords& x, SplitForm form) {
  if (form == SplitForm::kApart) return {{x.word[0] >> 16 | (x.word[1] & 0xffff0000u), 0}};
  const std::uint32_t minus_lower = form == SplitForm::kAlongN ? 0x8000u : 0u;
  return {{parts_exchanged(x.word[0]) ^ minus_lower, parts_exchanged(x.word[1]) ^ minus_lower}};
}

}  // namespace pmpp::matmul
