#include "csrc/tiled_matmul/reduce.cuh"

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/reduce.hpp"

namespace pmpp::matmul {
namespace {

template <class T>
cudaError_t launch_reduce_typed(const Problem& problem, const float* partial, int splits, cudaStream_t stream) {
  const Arguments<T> arguments = make_arguments<T>(problem);
  const std::int64_t total = problem.batch * problem.m * problem.n;
  const auto blocks = static_cast<unsigned>(ceil_div(total, kReduceThreads * kReduceElements));
  if (total % kReduceElements == 0 && is_aligned(partial, sizeof(float4))) {
    tiled_matmul_reduce_kernel<T, true><<<blocks, kReduceThreads, 0, stream>>>(arguments, partial, splits);
  } else {
    tiled_matmul_reduce_kernel<T, false><<<blocks, kReduceThreads, 0, stream>>>(arguments, partial, splits);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_reduce(const Problem& problem, const float* partial, int splits, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kFloat16:
      return launch_reduce_typed<Float16>(problem, partial, splits, stream);
    case DType::kBFloat16:
      return launch_reduce_typed<BFloat16>(problem, partial, splits, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pmpp::matmul
