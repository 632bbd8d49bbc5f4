// Starts the mma kernel in float64 or complex128 that a plan names. Included by one .cu file a dtype, so that they
// compile side by side.
#pragma once

#include "csrc/common/int_math.hpp"
#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/launch_mma64.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/mma64.cuh"
#include "csrc/tiled_matmul/start.cuh"

namespace pmpp::matmul {
namespace mma64_detail {

template <class T, int kConfig, bool kAAlongK, bool kBAlongK>
cudaError_t start(const Mma64Arguments<T>& args, unsigned blocks, cudaStream_t stream) {
  constexpr auto kKernel = tiled_matmul_mma64_kernel<T, kConfig, kAAlongK, kBAlongK>;
  constexpr int kBytes = mma64_shared_bytes(kMma64Tiles[kConfig]);
  if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  kKernel<<<blocks, kMma64Tiles[kConfig].threads(), kBytes, stream>>>(args);
  return cudaGetLastError();
}

// Whether pairs of columns can be written together.
inline bool is_wide(const Problem& p, const void* partial) {
  if (p.n % 2 != 0) return false;
  return partial != nullptr || (p.d.col_stride == 1 && p.d.row_stride % 2 == 0 &&
                                (p.batch == 1 || p.d.batch_stride % 2 == 0) && is_aligned(p.d.data, 16));
}

}  // namespace mma64_detail

template <class T>
cudaError_t launch_mma64_typed(const Plan& plan, const Problem& problem, void* partial, cudaStream_t stream) {
  Mma64Arguments<T> args{};
  args.p = make_arguments<T>(problem);
  set_work(args, plan, problem);
  args.partial = static_cast<T*>(partial);
  args.wide = mma64_detail::is_wide(problem, partial);
  const auto blocks = static_cast<unsigned>(plan.grid[0]);
  return visit_config<kMma64Configs>(plan.config, [&]<int kConfig>() {
    if constexpr (kMma64Tiles[kConfig].planes * 8 == sizeof(T)) {
      return visit_orders(mma_a(problem).along_k(), mma_b(problem).along_k(), [&]<bool kAAlongK, bool kBAlongK>() {
        return mma64_detail::start<T, kConfig, kAAlongK, kBAlongK>(args, blocks, stream);
      });
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace pmpp::matmul
