#include "csrc/tiled_matmul/reduce.cuh"

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/reduce.hpp"

namespace pmpp::matmul {
namespace {

template <class T, int kGroups>
cudaError_t launch_groups(const Problem& problem, const float* partial, int splits, bool may_overlap,
                          cudaStream_t stream) {
  const Arguments<T> arguments = make_arguments<T>(problem);
  const std::int64_t total = problem.batch * problem.m * problem.n;
  const auto blocks = static_cast<unsigned>(ceil_div(total, kReduceThreads / kGroups * kReduceElements));
  // On sm_90 and later it may start before the product kernel has ended, and waits for it itself; `may_overlap` is the
  // caller's, who knows the device.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kReduceThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = may_overlap ? 1 : 0;
  if (total % kReduceElements == 0 && is_aligned(partial, sizeof(float4))) {
    return cudaLaunchKernelEx(&config, tiled_matmul_reduce_kernel<T, true, kGroups>, arguments, partial, splits);
  }
  return cudaLaunchKernelEx(&config, tiled_matmul_reduce_kernel<T, false, kGroups>, arguments, partial, splits);
}

template <class T>
cudaError_t launch_reduce_typed(const Problem& problem, const float* partial, int splits, bool may_overlap,
                                cudaStream_t stream) {
  if (splits >= kManySplits) return launch_groups<T, kReduceGroups>(problem, partial, splits, may_overlap, stream);
  return launch_groups<T, 1>(problem, partial, splits, may_overlap, stream);
}

}  // namespace

cudaError_t launch_reduce(const Problem& problem, const float* partial, int splits, bool may_overlap,
                          cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat16:
      return launch_reduce_typed<Float16>(problem, partial, splits, may_overlap, stream);
    case DType::kBFloat16:
      return launch_reduce_typed<BFloat16>(problem, partial, splits, may_overlap, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pmpp::matmul
