// Starts the mma kernel in float64 or complex128 that a plan names. Included by one .cu file a dtype, so that they
// compile side by side.
#pragma once

#include <utility>

#include "csrc/common/int_math.hpp"
#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/launch_mma64.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/mma64.cuh"

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

template <class T, int kConfig>
cudaError_t start_ordered(const Mma64Arguments<T>& args, bool a_along_k, bool b_along_k, unsigned blocks,
                          cudaStream_t stream) {
  if (a_along_k) {
    return b_along_k ? start<T, kConfig, true, true>(args, blocks, stream)
                     : start<T, kConfig, true, false>(args, blocks, stream);
  }
  return b_along_k ? start<T, kConfig, false, true>(args, blocks, stream)
                   : start<T, kConfig, false, false>(args, blocks, stream);
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
  args.tiles_m = ceil_div(problem.m, plan.tile_m);
  args.tiles_n = ceil_div(problem.n, plan.tile_n);
  args.splits = static_cast<int>(plan.splits);
  args.split_k = plan.split_k;
  args.items = args.tiles_m * args.tiles_n * problem.batch * plan.splits;
  args.partial = static_cast<T*>(partial);
  args.wide = mma64_detail::is_wide(problem, partial);
  cudaError_t error = cudaErrorInvalidValue;
  [&]<int... kConfig>(std::integer_sequence<int, kConfig...>) {
    const auto try_one = [&]<int kOne>() {
      if constexpr (kMma64Tiles[kOne].planes * 8 == sizeof(T)) {
        if (plan.config == kOne) {
          error = mma64_detail::start_ordered<T, kOne>(args, mma_a(problem).along_k(), mma_b(problem).along_k(),
                                                       static_cast<unsigned>(plan.grid[0]), stream);
        }
      }
    };
    (try_one.template operator()<kConfig>(), ...);
  }
  (std::make_integer_sequence<int, kMma64Configs>());
  return error;
}

}  // namespace pmpp::matmul
