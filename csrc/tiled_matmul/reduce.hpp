// The second pass of a product that was split over k.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// Adds the partial sums of all splits (float32, [split][batch][m][n] without gaps: partial_bytes() of them), in the
// order of k, and writes alpha * sum + beta * c, rounded once. Float16 and bfloat16; cudaErrorInvalidValue for other
// dtypes. Enqueues on the stream, returns the launch's own error. Reads 16 bytes at a time where `partial` is so
// aligned and batch * m * n a multiple of 4, else 4 bytes. may_overlap: it may start while the kernel before still runs,
// for which it waits (compute capability 9.0 and later).
cudaError_t launch_reduce(const Problem& problem, const float* partial, int splits, bool may_overlap, cudaStream_t stream);

}  // namespace pmpp::matmul
