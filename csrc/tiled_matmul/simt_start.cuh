// Starts one simt kernel.
#pragma once

#include <type_traits>

#include "csrc/common/shared_memory.cuh"
#include "csrc/tiled_matmul/launch_simt.hpp"
#include "csrc/tiled_matmul/simt.cuh"

namespace pmpp::matmul {
namespace simt_detail {

template <class T, int kConfig, SimtOrder kAOrder, SimtOrder kBOrder>
cudaError_t start(const SimtArguments<T>& args, unsigned blocks, cudaStream_t stream) {
  constexpr SimtTile kTile = kSimtTiles[kConfig];
  constexpr auto kKernel = tiled_matmul_simt_kernel<T, kConfig, kAOrder, kBOrder>;
  constexpr int kBytes = simt_shared_bytes(kTile, kSimtElement<T>);
  if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  kKernel<<<blocks, kTile.threads(), kBytes, stream>>>(args);
  return cudaGetLastError();
}

template <class T>
constexpr bool has_tile(const SimtTile& tile) {
  return tile.words * 4 == sizeof(AccumulatorOf<T>) && (!tile.only_float32 || std::is_same_v<T, float>);
}

}  // namespace simt_detail
}  // namespace pmpp::matmul
