// The one place from which CUDA kernels of padded_transpose start.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::transposition {

// Enqueues the plan on the stream of the current device and returns the launch's own error; never synchronises.
// `workspace` has plan.workspace_bytes bytes on that device. An empty problem enqueues nothing.
cudaError_t launch(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream);

// cudaSuccess when the binary has code for the current device. All kernels are compiled for the same architectures, so
// one speaks for all. Launches nothing.
cudaError_t find_kernels();

}  // namespace pmpp::transposition
