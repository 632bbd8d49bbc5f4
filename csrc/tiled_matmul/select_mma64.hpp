// The choice of a tile of mma in float64 and complex128, and of how often k is split.
#pragma once

#include <optional>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// As has_mma, mma_plan and mma_plans (select.hpp), which pass these two dtypes on.
bool has_mma64(DType dtype, const DeviceFacts& device);
std::optional<Plan> mma64_plan(const Problem& problem, const DeviceFacts& device);
std::vector<Plan> mma64_plans(const Problem& problem, const DeviceFacts& device);

// Whether the tensor cores of the device outrun its other float64 units, and the problem is large enough for them.
bool is_mma64_faster(const Problem& problem, const DeviceFacts& device);

}  // namespace pmpp::matmul
