// Splits float32 and complex64 operands into the three bfloat16 planes of emulated.hpp. Bound by bytes: 4 read and 6
// written a real number, 12 where it stands in the planes twice.
//
// Tiling: a thread owns 16 bytes of neighbours of kSplitLines lines of an operand, 2^lane_shift threads of a warp the
// same line, so that short lines do not leave lanes idle. Where a line's elements are neighbours on 16-byte boundaries
// they are read 16 bytes at a time, otherwise one by one, whatever the strides are; each plane is written 8 bytes at a
// time, or 4 where a line of complex numbers becomes two of their parts (split.hpp). The blocks of both operands lie
// behind each other in one grid. A block writes a byte of its own that says whether it saw a subnormal element; one
// barrier before it.
// Preconditions: planes start at multiples of 16 bytes, and pitches are multiples of 8 elements; blockDim.x =
// kSplitThreads; the operands' forms are those of T.
#pragma once

#include <cstdint>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/split.hpp"

namespace pmpp::matmul {

struct SplitArguments {
  SplitOperand operand[2];
  std::uint8_t* subnormal;  // one byte a block, and zeros up to a multiple of kSubnormalWord
};

// `left`: elements from the first of the run to the end of the line.
template <class T>
__device__ __forceinline__ void read_run(float (&run)[kSplitRun], const SplitOperand& p, const float* at,
                                         std::int64_t left) {
  constexpr int kParts = kRealParts<T>;
  if (p.is_vector && left >= kSplitRun / kParts) {
    const float4 value = __ldg(reinterpret_cast<const float4*>(at));
    run[0] = value.x, run[1] = value.y, run[2] = value.z, run[3] = value.w;
    return;
  }
  if (kParts == 2 && p.is_paired) {
#pragma unroll
    for (int i = 0; i < kSplitRun / 2; ++i) {
      const float2 value = i < left ? __ldg(reinterpret_cast<const float2*>(at + i * p.step)) : make_float2(0, 0);
      run[i * 2] = value.x, run[i * 2 + 1] = value.y;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kSplitRun; ++i) {
    run[i] = i / kParts < left ? __ldg(at + i / kParts * p.step + i % kParts) : 0.0f;
  }
}

// The bits of a run in one plane, at their places on one line or two.
template <class T>
__device__ __forceinline__ void write_run(std::uint16_t* to, const SplitOperand& p, const ComplexWords& words) {
  if constexpr (kRealParts<T> == 1) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words.word[0], words.word[1]);
  } else {
    const ComplexWords first = first_line(words, p.form), second = second_line(words, p.form);
    if (p.form == SplitForm::kApart) {
      *reinterpret_cast<std::uint32_t*>(to) = first.word[0];
      *reinterpret_cast<std::uint32_t*>(to + p.pitch) = second.word[0];
      return;
    }
    *reinterpret_cast<uint2*>(to) = make_uint2(first.word[0], first.word[1]);
    if (p.form != SplitForm::kPairs) {
      *reinterpret_cast<uint2*>(to + p.pitch) = make_uint2(second.word[0], second.word[1]);
    }
  }
}

// T: float or Complex<float>.
template <class T>
__global__ void __launch_bounds__(kSplitThreads)
    tiled_matmul_split_kernel(const __grid_constant__ SplitArguments args) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  std::int64_t block = blockIdx.x;
  const bool is_second = block >= args.operand[0].blocks;
  const SplitOperand& p = args.operand[is_second];
  if (is_second) block -= args.operand[0].blocks;
  const SplitPlace place = split_place<kSplitRun / kRealParts<T>>(p, block, static_cast<int>(threadIdx.x));
  const bool inside = place.first < p.length;
  const float* const from = p.data + place.batch * p.batch_stride + place.first * p.step;

  float run[kSplitLines][kSplitRun];
#pragma unroll
  for (int i = 0; i < kSplitLines; ++i) {
    const std::int64_t line = place.line + i * place.step_lines;
    if (inside && line < p.lines) read_run<T>(run[i], p, from + line * p.line_stride, p.length - place.first);
  }
  bool subnormal = false;
#pragma unroll
  for (int i = 0; i < kSplitLines; ++i) {
    const std::int64_t line = place.line + i * place.step_lines;
    if (!inside || line >= p.lines) continue;
    SplitFloat parts[kSplitRun];
#pragma unroll
    for (int j = 0; j < kSplitRun; ++j) {
      parts[j] = split_float(run[i][j]);
      subnormal |= is_subnormal(run[i][j]);
    }
    std::uint16_t* const to = p.planes + split_offset(p, place, line);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const auto pair = [&](int j) {
        return parts[j].plane[plane].bits | static_cast<std::uint32_t>(parts[j + 1].plane[plane].bits) << 16;
      };
      write_run<T>(to + plane * p.plane_stride, p, {{pair(0), pair(2)}});
    }
  }
  const bool any = __syncthreads_or(subnormal) != 0;
  if (threadIdx.x == 0) args.subnormal[blockIdx.x] = any;
  if (blockIdx.x == gridDim.x - 1) {
    const unsigned byte = gridDim.x + threadIdx.x;
    if (threadIdx.x < kSubnormalWord && byte < (gridDim.x + kSubnormalWord - 1) / kSubnormalWord * kSubnormalWord) {
      args.subnormal[byte] = 0;
    }
  }
#endif
}

}  // namespace pmpp::matmul
