// Starts the mma kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Starts a plan for mma. `workspace` holds the plan's partial sums, 16-byte aligned. cudaErrorMisalignedAddress where
// the plan reads by cp.async what does not lie so.
cudaError_t launch_mma(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream);

// Instantiated once a dtype, in mma_<dtype>.cu.
template <class T>
cudaError_t launch_mma_typed(const Plan& plan, const Problem& problem, float* partial, cudaStream_t stream);

}  // namespace pmpp::matmul
