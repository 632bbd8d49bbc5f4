// Starts the kernel that a plan names, for one element type. Included by one .cu file a dtype, so that they compile
// side by side.
#pragma once

#include "csrc/tiled_matmul/launch.hpp"
#include "csrc/tiled_matmul/naive.cuh"
#include "csrc/tiled_matmul/tiled.cuh"
#include "csrc/tiled_matmul/tiled_dynamic.cuh"

namespace pmpp::matmul {

template <class T>
cudaError_t launch_typed(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  const Arguments<T> arguments = make_arguments<T>(problem);
  const dim3 grid(static_cast<unsigned>(plan.grid[0]), static_cast<unsigned>(plan.grid[1]),
                  static_cast<unsigned>(plan.grid[2]));
  const dim3 block(plan.block[0], plan.block[1]);
  switch (plan.algorithm) {
    case Algorithm::kNaive:
      tiled_matmul_naive_kernel<T><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kTiled:
      tiled_matmul_tiled_kernel<T><<<grid, block, 0, stream>>>(arguments);
      break;
    case Algorithm::kTiledDynamic:
      tiled_matmul_tiled_dynamic_kernel<T><<<grid, block, plan.dynamic_shared_bytes, stream>>>(arguments);
      break;
    case Algorithm::kAuto:
    case Algorithm::kSimt:
    case Algorithm::kMma:
    case Algorithm::kWgmma:
    case Algorithm::kEmulated:
    case Algorithm::kBlocked:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace pmpp::matmul
