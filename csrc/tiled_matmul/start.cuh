// What starting mma, mma64 and simt has in common: arguments from a plan, and the kernel that was compiled for it.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// Fills in what blocks share out among themselves: tiles, batches and pieces of k.
template <class Args>
void set_work(Args& args, const Plan& plan, const Problem& problem) {
  args.tiles_m = ceil_div(problem.m, plan.tile_m);
  args.tiles_n = ceil_div(problem.n, plan.tile_n);
  args.splits = static_cast<int>(plan.splits);
  args.split_k = static_cast<decltype(args.split_k)>(plan.split_k);
  args.items = args.tiles_m * args.tiles_n * problem.batch * plan.splits;
}

// Calls visitor.operator()<config>() for a row of a table of kConfigs; cudaErrorInvalidValue where there is none such.
template <int kConfigs, class Visitor>
cudaError_t visit_config(int config, const Visitor& visitor) {
  return [&]<int... kRows>(std::integer_sequence<int, kRows...>) {
    cudaError_t error = cudaErrorInvalidValue;
    ((config == kRows ? static_cast<void>(error = visitor.template operator()<kRows>()) : void()), ...);
    return error;
  }
  (std::make_integer_sequence<int, kConfigs>());
}

// Calls visitor.operator()<kAAlongK, kBAlongK>().
template <class Visitor>
cudaError_t visit_orders(bool a_along_k, bool b_along_k, const Visitor& visitor) {
  if (a_along_k) {
    return b_along_k ? visitor.template operator()<true, true>() : visitor.template operator()<true, false>();
  }
  return b_along_k ? visitor.template operator()<false, true>() : visitor.template operator()<false, false>();
}

}  // namespace pmpp::matmul
