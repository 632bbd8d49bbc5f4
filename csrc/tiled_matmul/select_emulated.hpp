// The choice among the tiles of the emulated kernel, and what a launch has to prepare for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/split.hpp"

namespace pmpp::matmul {

// How the planes of an operand of m or n by k lie: lines of k, or (is_mn_major) lines of m or n.
struct PlaneLayout {
  bool is_mn_major = false;
  bool is_batched = false;                                      // otherwise one matrix serves the whole batch
  SplitForm form = SplitForm::kReal;                            // how lines of the operand become lines of the planes
  std::int64_t operand_lines = 0, operand_length = 0;           // elements of the operand
  std::int64_t line_stride = 0, step = 0;                       // of the operand, from line to line and within one
  std::int64_t lines = 0, length = 0, pitch = 0;                // real numbers of a plane
  std::int64_t batch = 1, matrix_stride = 0, plane_stride = 0;  // matrices; real numbers from one to the next
};
PlaneLayout planes_of_a(const Problem& problem);
PlaneLayout planes_of_b(const Problem& problem);

// The blocks of the kernel that splits, for one operand: 2^lane_shift threads of a warp share a line.
struct SplitGrid {
  int lane_shift = 0;
  std::int64_t line_blocks = 0, run_blocks = 0, blocks = 0;  // along the lines of a matrix, along a line, all
};
SplitGrid split_grid(const PlaneLayout& layout);

// What the kernel that splits takes for an operand.
SplitOperand split_operand(const Operand& operand, const PlaneLayout& layout, void* planes);

// Bytes into the workspace. The partial sums come first, then the planes, then a byte for each block of the kernel that
// splits.
struct EmulatedWorkspace {
  std::int64_t planes_a = 0, planes_b = 0, subnormal = 0, bytes = 0;
};
EmulatedWorkspace emulated_workspace(const Problem& problem, const Plan& plan);

// Whether the kernel exists for the device and the dtype.
bool emulated_available(DType dtype, const DeviceFacts& device);

// The plan that should take least time; none where a size does not fit the kernel's 32-bit coordinates.
std::optional<Plan> emulated_plan(const Problem& problem, const DeviceFacts& device);

// The microseconds that a plan of emulated should take.
double emulated_cost(const Problem& problem, const DeviceFacts& device, const Plan& plan);

// From this k on, the least that was tried, every row of the accuracy table is at least as good as cuBLAS's SGEMM, with
// every tile. ||c - ref|| / ||ref|| on an H200 in units of 2^-24, emulated with the tile whose warpgroups share k
// (others have a little less) and SGEMM, mean of five seeds, the rows that are nearest: exponents spread over
// 2^-20..2^20 1.12 and 1.30 at k = 256, 1.37 and 1.45 at 512; uniform in [0, 1) 0.93 and 1.03 at 512; 8192 1.43
// and 1.82. Normal data 1.15 and 2.74 at 1024, 1.52 and 9.93 at 65,536. complex64 has the same limit: CGEMM adds up
// twice as many terms at that k, and chains are those of float32.
inline constexpr std::int64_t kEmulatedAccurateK = 128;

// Whether that is less than the same product should take on the CUDA cores.
bool is_emulated_faster(const Problem& problem, const DeviceFacts& device, const Plan& plan);

// Every plan that can run the problem: all tiles, with k in one piece and in up to eight. For tests and measurements.
std::vector<Plan> emulated_plans(const Problem& problem, const DeviceFacts& device);

}  // namespace pmpp::matmul
