#include "csrc/tiled_matmul/launch.hpp"

#include "csrc/tiled_matmul/launch_wgmma.hpp"

namespace pmpp::matmul {

cudaError_t launch(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                   cudaStream_t stream) {
  if (!plan.is_cuda || (plan.workspace_bytes > 0 && workspace == nullptr)) return cudaErrorInvalidValue;
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return cudaSuccess;
  if (plan.algorithm == Algorithm::kWgmma) return launch_wgmma(plan, problem, device, workspace, stream);
  return visit_dtype(problem.dtype, [&]<class T>() { return launch_typed<T>(plan, problem, stream); });
}

}  // namespace pmpp::matmul
