// Starts one simt kernel.
#pragma once

#include <type_traits>
#include <utility>

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

// Calls visitor.operator()<kConfig>() for a row of the table; cudaErrorInvalidValue where there is none such.
template <class Visitor, int... kConfigs>
cudaError_t visit_config(int config, Visitor&& visitor, std::integer_sequence<int, kConfigs...>) {
  cudaError_t error = cudaErrorInvalidValue;
  ((config == kConfigs ? static_cast<void>(error = visitor.template operator()<kConfigs>()) : void()), ...);
  return error;
}
template <class Visitor>
cudaError_t visit_config(int config, Visitor&& visitor) {
  return visit_config(config, visitor, std::make_integer_sequence<int, kSimtConfigs>());
}

}  // namespace simt_detail
}  // namespace pmpp::matmul
