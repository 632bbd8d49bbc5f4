#include "csrc/tiled_matmul/select_simt.hpp"

#include <algorithm>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/select_tile.hpp"
#include "csrc/tiled_matmul/simt.hpp"

namespace pmpp::matmul {
namespace {

// What part of the peak of the CUDA cores a multiprocessor reaches with as many blocks of a tile as it holds, and with
// one. These and the cycles below are fitted to the times of all plans for 29 shapes in float32 on an H200 (128..8192
// squares, odd, flat, long k): the choice then takes 1.01 times as long as the fastest plan in the geometric mean. The
// rows of wider sums take the figures of their likes.
struct Speed {
  double full, alone;
};
constexpr Speed kSpeed[kSimtConfigs] = {
    {0.736, 0.635}, {0.812, 0.812}, {0.736, 0.681}, {0.681, 0.625}, {0.622, 0.555}, {0.471, 0.427},
    {0.591, 0.427}, {0.736, 0.600}, {0.471, 0.400}, {0.736, 0.600}, {0.471, 0.400},
};

// Cycles: multiply-adds a multiprocessor does in one; to fill the stages and to write a tile; to launch the second
// pass; and for the traffic of a partial sum of four bytes, written and read.
constexpr double kProductsPerCycle = 128;
constexpr double kFillCycles = 4900;
constexpr double kReduceCycles = 3500;
constexpr double kCyclesPerPartialWord = 0.0029;

// For comparing with other kernels: H200, of a launch with cold caches, and the clock. For 68 shapes in float32 times
// are then 0.72 to 1.10 of those measured, most of them 0.9 to 1.05.
constexpr double kLaunchUs = 4.5;
constexpr double kCyclesPerUs = 1755;
// Multiply-adds of a complex product at that speed. Four are done, but those tiles come nearer to the peak than kSpeed
// says: H200, complex64, 1024 x 1024 x 1024 takes 204 us and 4096 x 4096 x 4096 11.6 ms; 189 us and 11.1 ms with this.
constexpr double kComplexWork = 3.4;

// Pieces of k are no shorter than this many steps, and no longer than the kernel's 32-bit counters allow.
constexpr std::int64_t kShortestSplit = 4;
constexpr std::int64_t kLongestSplit = std::int64_t{1} << 30;
constexpr std::int64_t kMostSplits = 256;
// Partial sums beyond which there is no use in asking how many bytes they take.
constexpr double kMostPartials = 1e12;

bool runs(const SimtTile& tile, DType dtype, const DeviceFacts& device) {
  return has_dtype(tile, dtype) && tile.threads() <= device.max_threads_per_block &&
         simt_shared_bytes(tile, simt_element(dtype)) <= device.shared_memory_opt_in;
}

std::int64_t fewest_splits(const Problem& p) { return std::max<std::int64_t>(ceil_div(p.k, kLongestSplit), 1); }

// `p` is simt_problem().
Plan plan_of(int config, const Problem& p, std::int64_t splits) {
  const SimtTile& tile = kSimtTiles[config];
  const SimtElement element = simt_element(p.dtype);
  return tile_plan(
      Algorithm::kSimt, config,
      {tile.m(), tile.n(), tile.k, tile.threads(), simt_stages(tile, element), simt_shared_bytes(tile, element)}, p,
      splits);
}

// Cycles that the busiest multiprocessor should take, where a product takes `work` multiply-adds.
double cost(const Plan& plan, const Problem& p, const DeviceFacts& device, double work = 1) {
  const SimtTile& tile = kSimtTiles[plan.config];
  const std::int64_t blocks = ceil_div(plan.grid[0], std::max(device.sm_count, 1));
  const double speed = blocks < tile.min_blocks ? kSpeed[plan.config].alone : kSpeed[plan.config].full;
  const double k = static_cast<double>(round_up(std::min(plan.split_k, p.k), tile.k));
  const double products = work * static_cast<double>(blocks) * tile.m() * tile.n() * k;
  const double fills = static_cast<double>(ceil_div(blocks, tile.min_blocks));
  const double whole = products / (kProductsPerCycle * speed) + kFillCycles * fills;
  if (plan.splits == 1) return whole;
  return whole + kReduceCycles + kCyclesPerPartialWord * static_cast<double>(plan.workspace_bytes) / 4;
}

}  // namespace

double simt_cost(const Problem& problem, const DeviceFacts& device, const Plan& plan) {
  const double work = is_complex(problem.dtype) ? kComplexWork : 1;
  return kLaunchUs + cost(plan, simt_problem(problem), device, work) / kCyclesPerUs;
}

SimtOrder simt_order(const MmaOperand& operand, std::int64_t batch) {
  if (operand.mn_stride == 1) {
    const bool aligned =
        is_aligned(operand.data, 16) && operand.k_stride % 4 == 0 && (batch == 1 || operand.batch_stride % 4 == 0);
    // A matrix of one column is a run along k.
    if (aligned || operand.k_stride != 1) return aligned ? SimtOrder::kPieces : SimtOrder::kAlongMN;
  }
  return operand.k_stride == 1 ? SimtOrder::kAlongK : SimtOrder::kAlongMN;
}

Problem simt_problem(const Problem& problem) {
  const auto magnitude = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
  const bool is_column = problem.n == 1 && problem.m > 1;  // tiles are wider than high
  const bool down_columns = problem.m > 1 && magnitude(problem.d.row_stride) < magnitude(problem.d.col_stride);
  return is_column || down_columns ? exchanged(problem) : problem;
}

bool has_simt(DType dtype, const DeviceFacts& device) {
  return device.is_cuda && std::any_of(std::begin(kSimtTiles), std::end(kSimtTiles),
                                       [&](const SimtTile& tile) { return runs(tile, dtype, device); });
}

bool simt_takes(const Problem& p, const DeviceFacts& device) {
  const auto partials = static_cast<double>(fewest_splits(p)) * static_cast<double>(p.batch) *
                        static_cast<double>(p.m) * static_cast<double>(p.n);
  return has_simt(p.dtype, device) && (p.k <= kLongestSplit || partials <= kMostPartials);
}

// k is split only where the tiles leave multiprocessors idle, into as many pieces as still run at once.
std::optional<Plan> simt_plan(const Problem& problem, const DeviceFacts& device) {
  if (!simt_takes(problem, device)) return std::nullopt;
  const Problem p = simt_problem(problem);
  std::optional<Plan> best;
  double best_cost = 0;
  for (int config = 0; config < kSimtConfigs; ++config) {
    const SimtTile& tile = kSimtTiles[config];
    if (!runs(tile, p.dtype, device)) continue;
    const std::int64_t tiles = std::max<std::int64_t>(tiles_of(tile.m(), tile.n(), p), 1);
    const std::int64_t fewest = fewest_splits(p);
    const std::int64_t most = std::max(
        fewest, std::min({kMostSplits, device.sm_count * tile.min_blocks / tiles, p.k / (kShortestSplit * tile.k)}));
    for (std::int64_t splits = fewest; splits <= most; ++splits) {
      const Plan plan = plan_of(config, p, splits);
      const double plan_cost = cost(plan, p, device);
      if (!best || plan_cost < best_cost) best = plan, best_cost = plan_cost;
    }
  }
  return best;
}

std::vector<Plan> simt_plans(const Problem& problem, const DeviceFacts& device) {
  std::vector<Plan> plans;
  if (!simt_takes(problem, device)) return plans;
  const Problem p = simt_problem(problem);
  const std::int64_t fewest = fewest_splits(p);
  for (int config = 0; config < kSimtConfigs; ++config) {
    if (!runs(kSimtTiles[config], p.dtype, device)) continue;
    for (std::int64_t splits = fewest; splits < fewest + 4; ++splits) {
      const Plan plan = plan_of(config, p, splits);
      if (plan.splits == splits) plans.push_back(plan);
    }
  }
  return plans;
}

}  // namespace pmpp::matmul
