// The choice of a tile of mma, and of how often k is split.
#include <algorithm>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select.hpp"
#include "csrc/tiled_matmul/select_mma64.hpp"
#include "csrc/tiled_matmul/select_tile.hpp"

namespace pmpp::matmul {
namespace {

// Speed of a multiprocessor at a tile, relative to the first: the large tiles as measured beside kMmaTiles, the others
// an estimate from the bytes that a warp reads from shared memory for a product.
constexpr double kSpeed[kMmaConfigs] = {1.0, 0.96, 0.7, 0.45, 0.75, 0.5, 1.037, 0.995};

// Filling the stages and writing the tile cost about as much as this much of k; less where another block of the
// multiprocessor multiplies meanwhile.
constexpr double kFixedK[kMmaConfigs] = {600, 430, 256, 256, 600, 430, 600, 430};

// Adding up the partial sums: a launch, and 8 bytes of traffic for each, written and read; in products of one
// multiprocessor, which does some 1.5 million in a microsecond. Estimates for an H200.
constexpr double kReduceProducts = 4.5e6;
constexpr double kProductsPerPartial = 4;

// Pieces of k are no shorter than this: below it, filling the stages takes the larger part of a piece.
constexpr std::int64_t kShortestSplit = 512;

bool fits(const MmaTile& tile, const DeviceFacts& device) {
  return tile.threads() <= device.max_threads_per_block && tile.wanted_shared_bytes() <= device.shared_memory_opt_in;
}

bool runs(const MmaTile& tile, const Problem& p, const DeviceFacts& device) {
  if (!fits(tile, device)) return false;
  return !tile.async || (is_mma_async(mma_a(p), p.batch) && is_mma_async(mma_b(p), p.batch));
}

Plan plan_of(int config, const Problem& p, std::int64_t splits) {
  const MmaTile& tile = kMmaTiles[config];
  return tile_plan(Algorithm::kMma, config, {tile.m, tile.n, tile.k, tile.threads(), tile.stages, tile.shared_bytes()},
                   p, splits);
}

// Products that the busiest multiprocessor has to do, as if at full speed: whole tiles, in waves.
double cost(const Plan& plan, const Problem& p, const DeviceFacts& device) {
  const MmaTile& tile = kMmaTiles[plan.config];
  const auto waves = static_cast<double>(ceil_div(plan.grid[0], std::max(device.sm_count, 1)));
  const double k = static_cast<double>(std::min(plan.split_k, p.k)) + kFixedK[plan.config];
  const double products = waves * tile.m * tile.n * k / kSpeed[plan.config];
  if (plan.splits == 1) return products;
  const double partials = static_cast<double>(plan.workspace_bytes) / 4;
  return products + kReduceProducts + kProductsPerPartial * partials;
}

}  // namespace

bool is_mma_async(const MmaOperand& operand, std::int64_t batch) {
  constexpr std::int64_t kPiece = 8;
  return is_aligned(operand.data, 16) && operand.unit_stride() == 1 && operand.pitch() % kPiece == 0 &&
         (batch == 1 || operand.batch_stride % kPiece == 0);
}

bool has_mma(DType dtype, const DeviceFacts& device) {
  if (mma64_planes(dtype) > 0) return has_mma64(dtype, device);
  return device.is_cuda && device.compute_capability >= 80 && (dtype == DType::kFloat16 || dtype == DType::kBFloat16) &&
         fits(kMmaTiles[0], device);
}

// The tile and the number of pieces of k with the least cost. k is split only where the tiles leave half of the
// multiprocessors idle, into as many pieces as still run at once.
std::optional<Plan> mma_plan(const Problem& problem, const DeviceFacts& device) {
  if (mma64_planes(problem.dtype) > 0) return mma64_plan(problem, device);
  if (!has_mma(problem.dtype, device)) return std::nullopt;
  std::optional<Plan> best;
  for (int config = 0; config < kMmaConfigs; ++config) {
    const MmaTile& tile = kMmaTiles[config];
    if (!runs(tile, problem, device)) continue;
    const std::int64_t tiles = std::max<std::int64_t>(tiles_of(tile.m, tile.n, problem), 1);
    const std::int64_t most = std::min(device.sm_count / tiles, problem.k / kShortestSplit);
    for (int splits = 1; splits <= std::max<std::int64_t>(most, 1); ++splits) {
      const Plan plan = plan_of(config, problem, splits);
      if (!best || cost(plan, problem, device) < cost(*best, problem, device)) best = plan;
    }
  }
  return best;
}

std::vector<Plan> mma_plans(const Problem& problem, const DeviceFacts& device) {
  if (mma64_planes(problem.dtype) > 0) return mma64_plans(problem, device);
  std::vector<Plan> plans;
  if (!has_mma(problem.dtype, device)) return plans;
  for (int config = 0; config < kMmaConfigs; ++config) {
    if (!runs(kMmaTiles[config], problem, device)) continue;
    for (int splits = 1; splits <= 3; ++splits) {
      const Plan plan = plan_of(config, problem, splits);
      if (plan.splits == splits) plans.push_back(plan);
    }
  }
  return plans;
}

}  // namespace pmpp::matmul
