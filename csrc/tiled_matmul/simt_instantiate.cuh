// Starts the simt kernel that a plan names, for one element type. Included by one .cu file a dtype, so that they
// compile side by side.
#pragma once

#include <type_traits>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/launch_simt.hpp"
#include "csrc/tiled_matmul/simt.cuh"
#include "csrc/tiled_matmul/simt_start.cuh"
#include "csrc/tiled_matmul/start.cuh"

namespace pmpp::matmul {
namespace simt_detail {

// Whether what a thread finishes side by side can be written in one piece.
template <class T>
bool is_wide(const Problem& p, const void* partial) {
  constexpr std::int64_t kPiece = 16 / kSimtElement<T>.real_bytes;
  if (partial != nullptr) return p.n % kPiece == 0;
  constexpr std::int64_t kBytes = kPiece * static_cast<std::int64_t>(sizeof(T));
  return p.d.col_stride == 1 && p.d.row_stride % kPiece == 0 && (p.batch == 1 || p.d.batch_stride % kPiece == 0) &&
         is_aligned(p.d.data, kBytes < 16 ? kBytes : 16);
}

}  // namespace simt_detail

template <class T>
cudaError_t launch_simt_typed(const Plan& plan, const Problem& problem, void* partial, cudaStream_t stream) {
  const MmaOperand a = mma_a(problem);
  const MmaOperand b = mma_b(problem);
  SimtArguments<T> args{};
  args.p = make_arguments<T>(problem);
  set_work(args, plan, problem);
  args.partial = static_cast<AccumulatorOf<T>*>(partial);
  args.wide = simt_detail::is_wide<T>(problem, partial);
  args.a_along_k = a.along_k();
  args.b_along_k = b.along_k();
  const auto blocks = static_cast<unsigned>(plan.grid[0]);
  if constexpr (std::is_same_v<T, float>) {
    const SimtOrder b_order = simt_order(b, problem.batch);
    switch (simt_order(a, problem.batch)) {
      case SimtOrder::kAlongK:
        return launch_simt_ordered<SimtOrder::kAlongK>(plan.config, args, b_order, blocks, stream);
      case SimtOrder::kAlongMN:
        return launch_simt_ordered<SimtOrder::kAlongMN>(plan.config, args, b_order, blocks, stream);
      case SimtOrder::kPieces:
        return launch_simt_ordered<SimtOrder::kPieces>(plan.config, args, b_order, blocks, stream);
    }
    return cudaErrorInvalidValue;
  } else {
    return visit_config<kSimtConfigs>(plan.config, [&]<int kConfig>() {
      if constexpr (simt_detail::has_tile<T>(kSimtTiles[kConfig])) {
        return simt_detail::start<T, kConfig, SimtOrder::kAlongMN, SimtOrder::kAlongMN>(args, blocks, stream);
      }
      return cudaErrorInvalidValue;
    });
  }
}

}  // namespace pmpp::matmul
