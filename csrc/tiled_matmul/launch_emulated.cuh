// Starts the emulated kernel of one dtype and pair of layouts. Included by one .cu file each, so that they compile side
// by side.
#pragma once

#include <utility>

#include "csrc/tiled_matmul/emulated.cuh"
#include "csrc/tiled_matmul/launch_clusters.cuh"
#include "csrc/tiled_matmul/launch_emulated.hpp"

namespace pmpp::matmul {

template <class T, int kConfig, bool kTransA, bool kTransB>
cudaError_t launch_emulated_tile(const Plan& plan, const EmulatedArguments<T>& arguments, cudaStream_t stream) {
  constexpr int kBytes = emulated_shared_bytes(kEmulatedTiles[kConfig]);
  return launch_in_clusters<tiled_matmul_emulated_kernel<T, kConfig, kTransA, kTransB>, kBytes>(plan, arguments,
                                                                                                stream);
}

template <class T, bool kTransA, bool kTransB>
cudaError_t launch_emulated_layout(const Plan& plan, const EmulatedArguments<T>& arguments, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (void)((plan.config == static_cast<int>(kIndex) &&
            (error = launch_emulated_tile<T, static_cast<int>(kIndex), kTransA, kTransB>(plan, arguments, stream),
             true)) ||
           ...);
  }
  (std::make_index_sequence<kEmulatedTileCount>());
  return error;
}

}  // namespace pmpp::matmul
