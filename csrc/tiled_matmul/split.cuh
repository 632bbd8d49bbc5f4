// Splits float32 operands into the three bfloat16 planes of emulated.hpp. Bound by bytes: 4 read and 6 written an
// element.
//
// Tiling: a thread owns 4 neighbours of kSplitLines lines of an operand, 2^lane_shift threads of a warp the same line,
// so that short lines do not leave lanes idle. Where a line's elements are neighbours on 16-byte boundaries they are
// read 16 bytes at a time, otherwise one by one, whatever the strides are; each plane is written 8 bytes at a time. The
// blocks of both operands lie behind each other in one grid. A block writes a byte of its own that says whether it saw
// a subnormal element; one barrier before it.
// Preconditions: planes start at multiples of 16 bytes, and pitches are multiples of 8 elements; blockDim.x =
// kSplitThreads.
#pragma once

#include <cstdint>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/index.cuh"

namespace pmpp::matmul {

// Strides in elements. `planes` holds [plane][batch][line][pitch].
struct SplitOperand {
  const float* data;
  std::uint16_t* planes;
  std::int64_t line_stride, step, batch_stride;  // step: between neighbours of a line
  std::int64_t lines, length, pitch, plane_stride;
  std::int64_t line_blocks, run_blocks, blocks;  // of threads: along the lines of a matrix, along a line, all
  int lane_shift;
  bool is_vector;
};

struct SplitArguments {
  SplitOperand operand[2];
  std::uint8_t* subnormal;  // one byte a block, and zeros up to a multiple of kSubnormalWord
};

__device__ __forceinline__ void read_run(float (&run)[kSplitRun], const SplitOperand& p, const float* at,
                                         std::int64_t left) {
  if (p.is_vector && left >= kSplitRun) {
    const float4 value = __ldg(reinterpret_cast<const float4*>(at));
    run[0] = value.x, run[1] = value.y, run[2] = value.z, run[3] = value.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kSplitRun; ++i) run[i] = i < left ? __ldg(at + i * p.step) : 0.0f;
}

__global__ void __launch_bounds__(kSplitThreads)
    tiled_matmul_split_kernel(const __grid_constant__ SplitArguments args) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  std::int64_t block = blockIdx.x;
  const bool is_second = block >= args.operand[0].blocks;
  const SplitOperand& p = args.operand[is_second];
  if (is_second) block -= args.operand[0].blocks;
  const std::int64_t line_block = divide(block, p.run_blocks);
  const std::int64_t batch = divide(line_block, p.line_blocks);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_lines = 32 >> p.lane_shift, step_lines = warp_lines * (kSplitThreads / 32);
  const std::int64_t first =
      ((block - line_block * p.run_blocks << p.lane_shift) + (lane & ((1 << p.lane_shift) - 1))) * kSplitRun;
  const std::int64_t line0 =
      (line_block - batch * p.line_blocks) * (step_lines * kSplitLines) + warp * warp_lines + (lane >> p.lane_shift);
  const bool inside = first < p.length;
  const float* const from = p.data + batch * p.batch_stride + first * p.step;
  std::uint16_t* const to = p.planes + batch * p.lines * p.pitch + first;

  float run[kSplitLines][kSplitRun];
#pragma unroll
  for (int i = 0; i < kSplitLines; ++i) {
    const std::int64_t line = line0 + i * step_lines;
    if (inside && line < p.lines) read_run(run[i], p, from + line * p.line_stride, p.length - first);
  }
  bool subnormal = false;
#pragma unroll
  for (int i = 0; i < kSplitLines; ++i) {
    const std::int64_t line = line0 + i * step_lines;
    if (!inside || line >= p.lines) continue;
    SplitFloat parts[kSplitRun];
#pragma unroll
    for (int j = 0; j < kSplitRun; ++j) {
      parts[j] = split_float(run[i][j]);
      subnormal |= is_subnormal(run[i][j]);
    }
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const auto pair = [&](int j) {
        return parts[j].plane[plane].bits | static_cast<std::uint32_t>(parts[j + 1].plane[plane].bits) << 16;
      };
      *reinterpret_cast<uint2*>(to + plane * p.plane_stride + line * p.pitch) = make_uint2(pair(0), pair(2));
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
