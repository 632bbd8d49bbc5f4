// Starts the mma kernel that a plan names, for one element type. Included by one .cu file a dtype, so that they compile
// side by side.
#pragma once

#include "csrc/common/int_math.hpp"
#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/launch_mma.hpp"
#include "csrc/tiled_matmul/mma.cuh"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/start.cuh"

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
  set_work(args, plan, problem);
  args.partial = partial;
  args.wide = mma_detail::is_wide(problem, partial);
  args.down_columns = magnitude(problem.d.row_stride) < magnitude(problem.d.col_stride);
  const auto blocks = static_cast<unsigned>(plan.grid[0]);
  return visit_config<kMmaConfigs>(plan.config, [&]<int kConfig>() {
    return visit_orders(mma_a(problem).along_k(), mma_b(problem).along_k(), [&]<bool kAAlongK, bool kBAlongK>() {
      return mma_detail::start<T, kConfig, kAAlongK, kBAlongK>(args, blocks, stream);
    });
  });
}

}  // namespace pmpp::matmul
