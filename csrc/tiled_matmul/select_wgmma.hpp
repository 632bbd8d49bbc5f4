// The choice among the tiles of the wgmma kernel, and what a launch has to prepare for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"

namespace pmpp::matmul {

// A problem whose result does not lie column by column: else its transpose, d' = b' a'.
Problem row_major_problem(const Problem& problem);

// The problem as the kernel works on it, which may be its transpose, d' = b' a': where the result lies column by
// column, with tiles of few columns where m is the short side, and in float32 where less has to be copied.
Problem wgmma_problem(const Problem& problem, const WgmmaTile& tile);

// The kernel's problem with a as displaced rows, where that is possible: rows `period` apart, which lie equally far off
// 16 bytes, are a matrix of their own, and the batch counts those. a.data stays the first row's.
std::optional<Problem> displaced_problem(const Problem& kernel_problem);

// The problem of a launch: wgmma_problem(), with displaced rows where the plan has them.
Problem wgmma_problem(const Problem& problem, const Plan& plan);

// Elements of a's first row behind a boundary of 16 bytes.
std::int64_t elements_off_boundary(const Operand& operand, DType dtype);

// Steps of k of the kernel's problem. A displaced row may need one more.
std::int64_t wgmma_k_blocks(const Problem& kernel_problem, bool is_a_displaced);

// Rows of tiles of its result, with those that only fill up a cluster.
std::int64_t wgmma_row_tiles(const Problem& problem, const WgmmaTile& tile);

// How the kernel reads an operand of `lines` (m or n) by k: lines of k, or (mn_major) k of lines.
struct OperandView {
  bool is_mn_major = false;
  bool is_addressable = true;  // by TMA
  bool has_unit_stride = true;
  bool is_batched = false;                  // otherwise one matrix serves the whole batch
  std::int64_t pitch = 0, batch_pitch = 0;  // elements; of the copy where the operand is not addressable
};
OperandView view_a(const Problem& problem);
OperandView view_b(const Problem& problem);

// Whether TMA can write d.
bool stores_by_tma(const Problem& problem);

// Bytes into the workspace. The partial sums come first, then the arrivals at those of a tail, then the copies.
struct WgmmaWorkspace {
  std::int64_t arrivals = 0, packed_a = 0, packed_b = 0, bytes = 0;
};
WgmmaWorkspace wgmma_workspace(const Problem& problem, const Plan& plan);

// Whether the kernel exists for the device and the dtype: 16-bit floats, and float32 where tf32 is allowed.
bool wgmma_available(DType dtype, const DeviceFacts& device, Float32Precision precision = Float32Precision::kIeee);

// The plan that should take least time; none where a size does not fit the kernel's 32-bit coordinates.
std::optional<Plan> wgmma_plan(const Problem& problem, const DeviceFacts& device);

// Every plan that can run the problem: all tiles, with k in one piece and in up to 16. For tests and measurements.
std::vector<Plan> wgmma_plans(const Problem& problem, const DeviceFacts& device);

}  // namespace pmpp::matmul
