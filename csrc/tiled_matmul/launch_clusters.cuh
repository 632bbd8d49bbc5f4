// Starts a kernel of sm_90 in the clusters of its plan, beside the end of its predecessor.
#pragma once

#include <cuda_runtime_api.h>

#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// kBytes: the dynamic shared memory of every plan of kKernel, which waits for the data of its predecessor itself, after
// it has set up its barriers.
template <auto kKernel, int kBytes, class Arguments>
cudaError_t launch_in_clusters(const Plan& plan, const Arguments& arguments, cudaStream_t stream) {
  if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
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

}  // namespace pmpp::matmul
