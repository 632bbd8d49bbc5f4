#include "csrc/tiled_matmul/launch.hpp"

namespace pmpp::matmul {

cudaError_t launch(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream) {
  if (!plan.is_cuda || (plan.workspace_bytes > 0 && workspace == nullptr)) return cudaErrorInvalidValue;
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return cudaSuccess;
  return visit_dtype(problem.dtype, [&]<class T>() { return launch_typed<T>(plan, problem, stream); });
}

}  // namespace pmpp::matmul
