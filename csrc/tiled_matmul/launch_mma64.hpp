// Starts the mma kernel in float64 and complex128.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Starts a plan for mma. `workspace` holds the plan's partial sums, 16-byte aligned.
cudaError_t launch_mma64(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream);

// The kernel alone. Instantiated once a dtype, in mma64_<dtype>.cu.
template <class T>
cudaError_t launch_mma64_typed(const Plan& plan, const Problem& problem, void* partial, cudaStream_t stream);

}  // namespace pmpp::matmul
