// The one place from which CUDA kernels of tiled_matmul start.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Enqueues the plan on the stream of the current device, of which `device` tells the facts, and returns the launch's
// own error; never synchronises. `workspace` has plan.workspace_bytes bytes on that device. An empty result enqueues
// nothing.
cudaError_t launch(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                   cudaStream_t stream);

// Instantiated once a dtype, in <dtype>.cu.
template <class T>
cudaError_t launch_typed(const Plan& plan, const Problem& problem, cudaStream_t stream);

}  // namespace pmpp::matmul
