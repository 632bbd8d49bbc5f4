// Starts the wgmma kernel of one dtype and one pair of layouts. Included by one .cu file each, so that they compile
// side by side.
#pragma once

#include <utility>

#include "csrc/tiled_matmul/launch_clusters.cuh"
#include "csrc/tiled_matmul/launch_wgmma.hpp"
#include "csrc/tiled_matmul/wgmma.cuh"

namespace pmpp::matmul {

template <class T, int kConfig, bool kTransA, bool kTransB>
cudaError_t launch_wgmma_tile(const Plan& plan, const WgmmaArguments<T>& arguments, cudaStream_t stream) {
  constexpr int kBytes = wgmma_shared_bytes(wgmma_tile(kConfig, sizeof(T), kTransA));
  return launch_in_clusters<tiled_matmul_wgmma_kernel<T, kConfig, kTransA, kTransB>, kBytes>(plan, arguments, stream);
}

template <class T, bool kTransA, bool kTransB>
cudaError_t launch_wgmma_layout(const Plan& plan, const WgmmaArguments<T>& arguments, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    const auto launch = [&]<int kConfig>() {
      constexpr WgmmaTile kTile = kWgmmaTiles[kConfig];
      if constexpr (wgmma_takes(kTile, sizeof(T), kTransA, kTransB)) {
        error = launch_wgmma_tile<T, kConfig, kTransA, kTransB>(plan, arguments, stream);
      }
      return true;
    };
    (void)((plan.config == static_cast<int>(kIndex) && launch.template operator()<static_cast<int>(kIndex)>()) || ...);
  }
  (std::make_index_sequence<kWgmmaTileCount>());
  return error;
}

}  // namespace pmpp::matmul
