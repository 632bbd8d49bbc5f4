#include "csrc/tiled_matmul/reduce.cuh"

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/reduce.hpp"

namespace pmpp::matmul {
namespace {

template <class T, int kGroups>
cudaError_t launch_groups(const Problem& problem, const void* workspace, int splits, bool may_overlap,
                          cudaStream_t stream) {
  using Acc = AccumulatorOf<T>;
  constexpr int kElements = kReduceElements<Acc>;
  const auto* const partial = static_cast<const Acc*>(workspace);
  const Arguments<T> arguments = make_arguments<T>(problem);
  const std::int64_t total = problem.batch * problem.m * problem.n;
  const auto blocks = static_cast<unsigned>(ceil_div(total, kReduceThreads / kGroups * kElements));
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
  if (total % kElements == 0 && is_aligned(partial, 16)) {
    return cudaLaunchKernelEx(&config, tiled_matmul_reduce_kernel<T, true, kGroups>, arguments, partial, splits);
  }
  return cudaLaunchKernelEx(&config, tiled_matmul_reduce_kernel<T, false, kGroups>, arguments, partial, splits);
}

template <class T>
cudaError_t launch_reduce_typed(const Problem& problem, const void* partial, int splits, bool may_overlap,
                                cudaStream_t stream) {
  if (splits >= kManySplits) return launch_groups<T, kReduceGroups>(problem, partial, splits, may_overlap, stream);
  return launch_groups<T, 1>(problem, partial, splits, may_overlap, stream);
}

}  // namespace

cudaError_t launch_reduce(const Problem& problem, const void* partial, int splits, bool may_overlap,
                          cudaStream_t stream) {
  return visit_dtype(problem.dtype,
                     [&]<class T>() { return launch_reduce_typed<T>(problem, partial, splits, may_overlap, stream); });
}

}  // namespace pmpp::matmul
