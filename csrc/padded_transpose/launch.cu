#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/launch.hpp"
#include "csrc/padded_transpose/naive.cuh"
#include "csrc/padded_transpose/tile.cuh"
#include "csrc/padded_transpose/vectorized.hpp"

namespace pmpp::transposition {
namespace {

template <class E>
cudaError_t launch_typed(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  const Arguments<E> arguments = make_arguments<E>(problem);
  const dim3 grid(static_cast<unsigned>(plan.grid[0]), static_cast<unsigned>(plan.grid[1]),
                  static_cast<unsigned>(plan.grid[2]));
  const dim3 block(plan.block[0], plan.block[1]);
  switch (plan.algorithm) {
    case Algorithm::kNaive:
      padded_transpose_naive_kernel<E><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kShared:
      padded_transpose_tile_kernel<E, kTile, 0><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kVectorized:  // what has no faster method
    case Algorithm::kPadded:
      padded_transpose_tile_kernel<E, kTile, kPadding><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kPadded16:
      padded_transpose_tile_kernel<E, kSmallTile, kPadding><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kAuto:
    case Algorithm::kBlocked:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t find_kernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, padded_transpose_naive_kernel<std::uint8_t>);
}

cudaError_t launch(const Plan& plan, const Problem& asked, void* workspace, cudaStream_t stream) {
  const Problem problem = plan.algorithm == Algorithm::kVectorized ? normalized(asked) : asked;
  if (!plan.is_cuda || !is_element_size(problem.element_size)) return cudaErrorInvalidValue;
  if (plan.workspace_bytes > 0 && workspace == nullptr) return cudaErrorInvalidValue;
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return cudaSuccess;
  if (plan.algorithm == Algorithm::kVectorized && plan.method != Method::kStrided) {
    return launch_vectorized(plan, problem, stream);
  }
  // Strides count elements, so that the first of each tells the alignment of all.
  const auto size = static_cast<std::uintptr_t>(problem.element_size);
  if (is_aligned(problem.in, size) && is_aligned(problem.out, size)) {
    if (problem.element_size == 16) return launch_typed<Bytes16>(plan, problem, stream);
    return visit_element_size(problem.element_size, [&]<class E>() { return launch_typed<E>(plan, problem, stream); });
  }
  switch (problem.element_size) {
    case 4:
      return launch_typed<Pair<std::uint16_t>>(plan, problem, stream);
    case 8:
      return launch_typed<Pair<std::uint32_t>>(plan, problem, stream);
    case 16:
      return launch_typed<Pair<std::uint64_t>>(plan, problem, stream);
    default:
      return cudaErrorMisalignedAddress;
  }
}

}  // namespace pmpp::transposition
