// Starts the float32 tiles of simt, into which the orders of the operands are compiled. Included by one .cu file for
// each order of a.
#pragma once

#include "csrc/tiled_matmul/simt_start.cuh"
#include "csrc/tiled_matmul/start.cuh"

namespace pmpp::matmul {

template <SimtOrder kAOrder>
cudaError_t launch_simt_ordered(int config, const SimtArguments<float>& args, SimtOrder b_order, unsigned blocks,
                                cudaStream_t stream) {
  return visit_config<kSimtConfigs>(config, [&]<int kConfig>() {
    if constexpr (simt_detail::has_tile<float>(kSimtTiles[kConfig])) {
      switch (b_order) {
        case SimtOrder::kAlongK:
          return simt_detail::start<float, kConfig, kAOrder, SimtOrder::kAlongK>(args, blocks, stream);
        case SimtOrder::kAlongMN:
          return simt_detail::start<float, kConfig, kAOrder, SimtOrder::kAlongMN>(args, blocks, stream);
        case SimtOrder::kPieces:
          return simt_detail::start<float, kConfig, kAOrder, SimtOrder::kPieces>(args, blocks, stream);
      }
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace pmpp::matmul
