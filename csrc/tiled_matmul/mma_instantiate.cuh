// Starts the mma kernel that a plan names, for one element type. Included by one .cu file a dtype, so that they compile
// side by side.
#pragma once

#include "csrc/common/int_math.hpp"
#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/launch_mma.hpp"
#include "csrc/tiled_matmul/mma.cuh"
#include "csrc/tiled_matmul/mma.hpp"

namespace pmpp::matmul {
namespace mma_detail {

template <class T, int kConfig, bool kAAlongK, bool kBAlongK>
cudaError_t start(const MmaArguments<T>& args, unsigned blocks, cudaStream_t stream) {
  constexpr MmaTile kTile = kMmaTiles[kConfig];
  constexpr auto kKernel = tiled_matmul_mma_kernel<T, kConfig, kAAlongK, kBAlongK>;
  if (const cudaError_t error = allow_shared_memory<kKernel, kTile.shared_bytes()>(); error != cudaSuccess)
    return error;
  kKernel<<<blocks, kTile.threads(), kTile.shared_bytes(), stream>>>(args);
  return cudaGetLastError();
}

template <class T, int kConfig>
cudaError_t start_ordered(const MmaArguments<T>& args, bool a_along_k, bool b_along_k, unsigned blocks,
                          cudaStream_t stream) {
  if (a_along_k) {
    return b_along_k ? start<T, kConfig, true, true>(args, blocks, stream)
                     : start<T, kConfig, true, false>(args, blocks, stream);
  }
  return b_along_k ? start<T, kConfig, false, true>(args, blocks, stream)
                   : start<T, kConfig, false, false>(args, blocks, stream);
}

// Whether d, or the partial sums, can be written in pieces of 16 bytes.
inline bool is_wide(const Problem& p, const float* partial) {
  if (partial != nullptr) return p.n % 4 == 0;
  return p.d.col_stride == 1 && p.d.row_stride % kChunkElements == 0 &&
         (p.batch == 1 || p.d.batch_stride % kChunkElements == 0) && is_aligned(p.d.data, 16);
}

}  // namespace mma_detail

template <class T>
cudaError_t launch_mma_typed(const Plan& plan, const Problem& problem, float* partial, cudaStream_t stream) {
  const auto magnitude = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
  MmaArguments<T> args{};
  args.p = make_arguments<T>(problem);
  args.tiles_m = ceil_div(problem.m, plan.tile_m);
  args.tiles_n = ceil_div(problem.n, plan.tile_n);
  args.splits = plan.splits;
  args.split_k = plan.split_k;
  args.items = args.tiles_m * args.tiles_n * problem.batch * plan.splits;
  args.partial = partial;
  args.wide = mma_detail::is_wide(problem, partial);
  args.down_columns = magnitude(problem.d.row_stride) < magnitude(problem.d.col_stride);
  const bool a_along_k = mma_a(problem).along_k();
  const bool b_along_k = mma_b(problem).along_k();
  const auto blocks = static_cast<unsigned>(plan.grid[0]);
  switch (plan.config) {
    case 0:
      return mma_detail::start_ordered<T, 0>(args, a_along_k, b_along_k, blocks, stream);
    case 1:
      return mma_detail::start_ordered<T, 1>(args, a_along_k, b_along_k, blocks, stream);
    case 2:
      return mma_detail::start_ordered<T, 2>(args, a_along_k, b_along_k, blocks, stream);
    case 3:
      return mma_detail::start_ordered<T, 3>(args, a_along_k, b_along_k, blocks, stream);
    case 4:
      return mma_detail::start_ordered<T, 4>(args, a_along_k, b_along_k, blocks, stream);
    case 5:
      return mma_detail::start_ordered<T, 5>(args, a_along_k, b_along_k, blocks, stream);
    case 6:
      return mma_detail::start_ordered<T, 6>(args, a_along_k, b_along_k, blocks, stream);
    case 7:
      return mma_detail::start_ordered<T, 7>(args, a_along_k, b_along_k, blocks, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pmpp::matmul
