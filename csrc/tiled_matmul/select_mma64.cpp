#include "csrc/tiled_matmul/select_mma64.hpp"

#include <algorithm>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select_tile.hpp"

namespace pmpp::matmul {
namespace {

// What part of the peak of the tensor cores a multiprocessor reaches with as many blocks of a tile as it holds, and
// with one. These and the cycles below are fitted to the times of all plans for 55 shapes on an H200 (16..4096 squares,
// all layouts, flat, thin): the choice then takes 1.015 times as long as the fastest plan in the geometric mean.
struct Speed {
  double full, alone;
};
constexpr Speed kSpeed[kMma64Configs] = {{0.74, 0.74}, {0.67, 0.515}, {0.52, 0.408}, {0.75, 0.611}};

// Cycles: multiply-adds a multiprocessor does in one; to fill the stages; to launch the second pass; and for 8 bytes of
// partial sums, written and read, and of the result.
constexpr double kProductsPerCycle = 128;
constexpr double kFillCycles = 500;
constexpr double kReduceCycles = 5087;
constexpr double kCyclesPerPartialWord = 0.0066;
constexpr double kCyclesPerResultWord = 0.0079;

constexpr std::int64_t kShortestSplit = 4 * kMma64K;
constexpr std::int64_t kMostSplits = 256;

// float64 units as fast as these have only GPUs for computing; on the others mma and simt are equally slow.
bool has_fast_float64(const DeviceFacts& device) {
  const int capability = device.compute_capability;
  return capability == 80 || capability == 90 || capability == 100;
}

bool runs(const Mma64Tile& tile, DType dtype, const DeviceFacts& device) {
  return tile.planes == mma64_planes(dtype) && tile.threads() <= device.max_threads_per_block &&
         mma64_shared_bytes(tile) <= device.shared_memory_opt_in;
}

Plan plan_of(int config, const Problem& p, std::int64_t splits) {
  const Mma64Tile& tile = kMma64Tiles[config];
  return tile_plan(Algorithm::kMma, config,
                   {tile.m, tile.n, kMma64K, tile.threads(), tile.stages, mma64_shared_bytes(tile)}, p, splits);
}

// Cycles that the busiest multiprocessor should take.
double cost(const Plan& plan, const Problem& p, const DeviceFacts& device) {
  const Mma64Tile& tile = kMma64Tiles[plan.config];
  const std::int64_t blocks = ceil_div(plan.grid[0], std::max(device.sm_count, 1));
  const double speed = blocks < tile.min_blocks ? kSpeed[plan.config].alone : kSpeed[plan.config].full;
  const auto k = static_cast<double>(round_up(std::min(plan.split_k, p.k), std::int64_t{kMma64K}));
  const double products =
      static_cast<double>(blocks) * tile.m * tile.n * k * (tile.planes == 2 ? 4 : 1);  // of a complex one: four
  const double words = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.batch) * tile.planes;
  const double whole = products / (kProductsPerCycle * speed) +
                       kFillCycles * static_cast<double>(ceil_div(blocks, tile.min_blocks)) +
                       kCyclesPerResultWord * words;
  if (plan.splits == 1) return whole;
  return whole + kReduceCycles + kCyclesPerPartialWord * static_cast<double>(plan.workspace_bytes) / 8;
}

}  // namespace

bool has_mma64(DType dtype, const DeviceFacts& device) {
  return device.is_cuda && device.compute_capability >= 80 && mma64_planes(dtype) > 0 &&
         std::any_of(std::begin(kMma64Tiles), std::end(kMma64Tiles),
                     [&](const Mma64Tile& tile) { return runs(tile, dtype, device); });
}

// k is split only where the tiles leave multiprocessors idle, into as many pieces as still run at once.
std::optional<Plan> mma64_plan(const Problem& p, const DeviceFacts& device) {
  if (!has_mma64(p.dtype, device)) return std::nullopt;
  std::optional<Plan> best;
  double best_cost = 0;
  for (int config = 0; config < kMma64Configs; ++config) {
    const Mma64Tile& tile = kMma64Tiles[config];
    if (!runs(tile, p.dtype, device)) continue;
    const std::int64_t tiles = std::max<std::int64_t>(tiles_of(tile.m, tile.n, p), 1);
    const std::int64_t most = std::max<std::int64_t>(
        1, std::min({kMostSplits, device.sm_count * tile.min_blocks / tiles, p.k / kShortestSplit}));
    for (std::int64_t splits = 1; splits <= most; ++splits) {
      const Plan plan = plan_of(config, p, splits);
      const double plan_cost = cost(plan, p, device);
      if (!best || plan_cost < best_cost) best = plan, best_cost = plan_cost;
    }
  }
  return best;
}

std::vector<Plan> mma64_plans(const Problem& p, const DeviceFacts& device) {
  std::vector<Plan> plans;
  if (!has_mma64(p.dtype, device)) return plans;
  for (int config = 0; config < kMma64Configs; ++config) {
    if (!runs(kMma64Tiles[config], p.dtype, device)) continue;
    for (std::int64_t splits = 1; splits <= 3; ++splits) {
      const Plan plan = plan_of(config, p, splits);
      if (plan.splits == splits) plans.push_back(plan);
    }
  }
  return plans;
}

bool is_mma64_faster(const Problem& p, const DeviceFacts& device) {
  return has_fast_float64(device) && has_mma64(p.dtype, device) && p.m >= 16 && p.n >= 16 && p.k >= 16;
}

}  // namespace pmpp::matmul
