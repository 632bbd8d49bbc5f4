// The choice among the tiles of the simt kernel, and of how often k is split.
#pragma once

#include <optional>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Whether the device has room for a block of the dtype's smallest tile.
bool has_simt(DType dtype, const DeviceFacts& device);

// The same, and no piece of k would be longer than the kernel counts.
bool simt_takes(const Problem& problem, const DeviceFacts& device);

// The plan that should take least time; none where simt_takes() says so.
std::optional<Plan> simt_plan(const Problem& problem, const DeviceFacts& device);

// The microseconds that a plan of simt should take.
double simt_cost(const Problem& problem, const DeviceFacts& device, const Plan& plan);

// Every plan that can run the problem, for tests and measurements: each tile of the dtype, with k whole and, where it
// is long enough, in two to four pieces.
std::vector<Plan> simt_plans(const Problem& problem, const DeviceFacts& device);

}  // namespace pmpp::matmul
