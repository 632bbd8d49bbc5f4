// The launches of the algorithm `vectorized`.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/padded_transpose/problem.hpp"
#include "csrc/padded_transpose/select.hpp"

namespace pmpp::transposition {

// Enqueues a plan with any method but kStrided. `problem` is the normalised one that the plan was made for.
cudaError_t launch_vectorized(const Plan& plan, const Problem& problem, cudaStream_t stream);

}  // namespace pmpp::transposition
