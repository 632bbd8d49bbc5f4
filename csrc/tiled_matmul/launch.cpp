#include "csrc/tiled_matmul/launch.hpp"

#include "csrc/tiled_matmul/launch_emulated.hpp"
#include "csrc/tiled_matmul/launch_mma.hpp"
#include "csrc/tiled_matmul/launch_mma64.hpp"
#include "csrc/tiled_matmul/launch_simt.hpp"
#include "csrc/tiled_matmul/launch_wgmma.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/reduce.hpp"

namespace pmpp::matmul {

cudaError_t launch_mma(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream) {
  if (plan.config < 0 || plan.config >= kMmaConfigs) return cudaErrorInvalidValue;
  if (kMmaTiles[plan.config].async &&
      !(is_mma_async(mma_a(problem), problem.batch) && is_mma_async(mma_b(problem), problem.batch))) {
    return cudaErrorMisalignedAddress;
  }
  auto* const partial = plan.splits > 1 ? static_cast<float*>(workspace) : nullptr;
  cudaError_t error = cudaErrorInvalidValue;
  if (problem.dtype == DType::kFloat16) error = launch_mma_typed<Float16>(plan, problem, partial, stream);
  if (problem.dtype == DType::kBFloat16) error = launch_mma_typed<BFloat16>(plan, problem, partial, stream);
  if (error != cudaSuccess || partial == nullptr) return error;
  return launch_reduce(problem, partial, plan.splits, false, stream);
}

cudaError_t launch_mma64(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream) {
  if (plan.config < 0 || plan.config >= kMma64Configs) return cudaErrorInvalidValue;
  void* const partial = plan.splits > 1 ? workspace : nullptr;
  const cudaError_t error = problem.dtype == DType::kFloat64
                                ? launch_mma64_typed<double>(plan, problem, partial, stream)
                                : launch_mma64_typed<Complex<double>>(plan, problem, partial, stream);
  if (error != cudaSuccess || partial == nullptr) return error;
  return launch_reduce(problem, partial, static_cast<int>(plan.splits), false, stream);
}

cudaError_t launch_simt(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                        cudaStream_t stream) {
  if (plan.config < 0 || plan.config >= kSimtConfigs) return cudaErrorInvalidValue;
  const Problem p = simt_problem(problem);
  void* const partial = plan.splits > 1 ? workspace : nullptr;
  const cudaError_t error =
      visit_dtype(p.dtype, [&]<class T>() { return launch_simt_typed<T>(plan, p, partial, stream); });
  if (error != cudaSuccess || partial == nullptr) return error;
  return launch_reduce(p, partial, static_cast<int>(plan.splits), device.compute_capability >= 90, stream);
}

cudaError_t launch(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                   cudaStream_t stream) {
  if (!plan.is_cuda || (plan.workspace_bytes > 0 && workspace == nullptr)) return cudaErrorInvalidValue;
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return cudaSuccess;
  if (plan.algorithm == Algorithm::kSimt) return launch_simt(plan, problem, device, workspace, stream);
  if (plan.algorithm == Algorithm::kMma && mma64_planes(problem.dtype) > 0) {
    return launch_mma64(plan, problem, workspace, stream);
  }
  if (plan.algorithm == Algorithm::kMma) return launch_mma(plan, problem, workspace, stream);
  if (plan.algorithm == Algorithm::kWgmma) return launch_wgmma(plan, problem, device, workspace, stream);
  if (plan.algorithm == Algorithm::kEmulated) return launch_emulated(plan, problem, workspace, stream);
  return visit_dtype(problem.dtype, [&]<class T>() { return launch_typed<T>(plan, problem, stream); });
}

}  // namespace pmpp::matmul
