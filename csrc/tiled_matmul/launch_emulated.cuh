// Starts the emulated kernel of one dtype and pair of layouts. Included by one .cu file each, so that they compile side
// by side.
#pragma once

#include <utility>

#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/emulated.cuh"
#include "csrc/tiled_matmul/launch_emulated.hpp"

namespace pmpp::matmul {

template <class T, int kConfig, bool kTransA, bool kTransB>
cudaError_t launch_emulated_tile(const Plan& plan, const EmulatedArguments<T>& arguments, cudaStream_t stream) {
  constexpr auto kKernel = tiled_matmul_emulated_kernel<T, kConfig, kTransA, kTransB>;
  constexpr int kBytes = emulated_shared_bytes(kEmulatedTiles[kConfig]);
  if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  // The kernel waits for the split itself, after it has set up its barriers.
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.grid[0]));
  config.blockDim = dim3(plan.block[0]);
  config.dynamicSmemBytes = plan.dynamic_shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = plan.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kKernel, arguments);
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
