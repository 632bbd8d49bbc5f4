// The second pass of a product that was split over k.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// Adds the partial sums of all splits ([split][batch][m][n] without gaps, in the type that the dtype is summed in:
// partial_bytes() of them), in the order of k, and writes alpha * sum + beta * c, rounded once. Enqueues on the stream,
// returns the launch's own error. Reads 16 bytes at a time where `partial` is so aligned and every split starts at a
// multiple of them, else sum by sum. may_overlap: it may start while the kernel before still runs, for which it waits
// (compute capability 9.0 and later).
cudaError_t launch_reduce(const Problem& problem, const void* partial, int splits, bool may_overlap,
                          cudaStream_t stream);

}  // namespace pmpp::matmul
