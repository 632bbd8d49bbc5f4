#include "csrc/tiled_matmul/select.hpp"

#include <algorithm>
#include <sstream>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"

namespace pmpp::matmul {
namespace {

// Widest tile whose threads fit a block and whose two halves fit the shared memory that a block gets without opting
// in. 0 when not even the narrowest does.
int dynamic_tile_width(int element_bytes, const DeviceFacts& device) {
  for (const int width : kDynamicTileWidths) {
    if (width * width <= device.max_threads_per_block &&
        dynamic_tile_bytes(width, element_bytes) <= device.shared_memory_per_block) {
      return width;
    }
  }
  return 0;
}

bool available(Algorithm algorithm, DType dtype, const DeviceFacts& device) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return true;
    case Algorithm::kNaive:
      return !device.is_cuda || device.max_threads_per_block >= kTileWidth * kTileWidth;
    case Algorithm::kTiled:
      return device.is_cuda && device.max_threads_per_block >= kTileWidth * kTileWidth &&
             device.shared_memory_per_block >= dynamic_tile_bytes(kTileWidth, element_size(dtype));
    case Algorithm::kTiledDynamic:
      return device.is_cuda && dynamic_tile_width(element_size(dtype), device) > 0;
    case Algorithm::kMma:
      return has_mma(dtype, device);
    case Algorithm::kWgmma:
      return wgmma_available(dtype, device);
    case Algorithm::kBlocked:
      return !device.is_cuda;
  }
  return false;
}

// Wide tiles read each operand fewer times, narrow ones give more blocks. On an H200, 128 x 128 x 128 in float32 takes
// 10.1 us with 64 blocks of tiled and 10.9 us with 16 of tiled_dynamic; at 16 x 4096 x 4096, where the wide tiles
// already make 128 blocks, 192 us against 150 us.
Algorithm fastest(const Problem& problem, const DeviceFacts& device) {
  if (!device.is_cuda) return Algorithm::kBlocked;
  const bool small = std::max({problem.m, problem.n, problem.k}) < (std::int64_t{1} << 31);
  if (device.compute_capability != 90 && small && has_mma(problem.dtype, device)) return Algorithm::kMma;
  const int width = dynamic_tile_width(element_size(problem.dtype), device);
  if (width == 0) return Algorithm::kNaive;
  // Each factor is bounded before the product is formed, which therefore cannot overflow.
  const std::int64_t row_tiles = ceil_div(problem.m, width);
  const std::int64_t col_tiles = ceil_div(problem.n, width);
  const std::int64_t few = device.sm_count / 2;
  const bool idle = row_tiles <= few && col_tiles <= few && row_tiles * col_tiles * std::min(problem.batch, few) < few;
  return idle && available(Algorithm::kTiled, problem.dtype, device) ? Algorithm::kTiled : Algorithm::kTiledDynamic;
}

void set_cuda_launch(Plan& plan, const Problem& problem, int width) {
  plan.is_cuda = true;
  plan.tile_m = plan.tile_n = width;
  // Rows lie on x, the only axis with room for more than 65,535 tiles.
  plan.grid[0] = std::min(ceil_div(problem.m, width), kMaxGridX);
  plan.grid[1] = std::min(ceil_div(problem.n, width), kMaxGridYZ);
  plan.grid[2] = std::min(problem.batch, kMaxGridYZ);
  plan.block[0] = plan.block[1] = width;
}

void set_cpu_tasks(Plan& plan, const Problem& problem, int tile_m, int tile_n, int tile_k) {
  plan.tile_m = tile_m;
  plan.tile_n = tile_n;
  plan.tile_k = tile_k;
  plan.tasks = problem.batch * ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n);
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNaive:
      return "naive";
    case Algorithm::kTiled:
      return "tiled";
    case Algorithm::kTiledDynamic:
      return "tiled_dynamic";
    case Algorithm::kMma:
      return "mma";
    case Algorithm::kWgmma:
      return "wgmma";
    case Algorithm::kBlocked:
      return "blocked";
  }
  return "unknown";
}

std::optional<Algorithm> parse_algorithm(std::string_view name) {
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (name == algorithm_name(algorithm)) return algorithm;
  }
  return std::nullopt;
}

std::string to_string(const Plan& plan) {
  std::ostringstream out;
  out << algorithm_name(plan.algorithm) << " " << plan.tile_m << "x" << plan.tile_n;
  if (plan.tile_k > 0) out << "x" << plan.tile_k;
  if (plan.is_cuda) {
    out << " grid " << plan.grid[0] << "x" << plan.grid[1] << "x" << plan.grid[2] << " block " << plan.block[0] << "x"
        << plan.block[1] << " shared " << plan.dynamic_shared_bytes;
    if (plan.stages > 0) out << " config " << plan.config << " stages " << plan.stages;
    if (plan.cluster > 1) out << " cluster " << plan.cluster;
    if (plan.splits > 1) out << " splits " << plan.splits << " of " << plan.split_k;
    if (plan.is_a_packed) out << " a packed";
    if (plan.is_b_packed) out << " b packed";
    if (plan.is_a_realigned) out << " a realigned";
    if (plan.is_b_realigned) out << " b realigned";
  } else {
    out << " tasks " << plan.tasks;
  }
  return out.str();
}

std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kAuto && available(Algorithm::kWgmma, problem.dtype, device)) {
    // None where a size does not fit its coordinates.
    if (std::optional<Plan> plan = wgmma_plan(problem, device)) return plan;
  }
  if (asked == Algorithm::kAuto) asked = fastest(problem, device);
  if (!available(asked, problem.dtype, device)) return std::nullopt;

  Plan plan;
  plan.algorithm = asked;
  switch (asked) {
    case Algorithm::kAuto:
      return std::nullopt;
    case Algorithm::kNaive:
      if (device.is_cuda) {
        set_cuda_launch(plan, problem, kTileWidth);
      } else {
        // One task a row, cut into pieces so that a flat result also has work for every thread.
        set_cpu_tasks(plan, problem, 1, 256, 0);
      }
      return plan;
    case Algorithm::kTiled:
      set_cuda_launch(plan, problem, kTileWidth);
      plan.tile_k = kTileWidth;
      return plan;
    case Algorithm::kTiledDynamic: {
      const int bytes = element_size(problem.dtype);
      const int width = dynamic_tile_width(bytes, device);
      set_cuda_launch(plan, problem, width);
      plan.tile_k = width;
      plan.dynamic_shared_bytes = dynamic_tile_bytes(width, bytes);
      return plan;
    }
    case Algorithm::kMma:
      return mma_plan(problem, device);
    case Algorithm::kWgmma:
      return wgmma_plan(problem, device);
    case Algorithm::kBlocked:
      visit_dtype(problem.dtype, [&]<class T>() {
        using Tile = BlockedTile<AccumulatorOf<T>>;
        set_cpu_tasks(plan, problem, Tile::kM, Tile::kN, Tile::kK);
      });
      return plan;
  }
  return std::nullopt;
}

std::vector<Plan> plans(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kMma) return mma_plans(problem, device);
  if (asked == Algorithm::kWgmma) return wgmma_plans(problem, device);
  const std::optional<Plan> plan = select(problem, device, asked);
  return plan.has_value() ? std::vector<Plan>{*plan} : std::vector<Plan>{};
}

std::vector<Algorithm> algorithms(DType dtype, const DeviceFacts& device) {
  std::vector<Algorithm> result;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm != Algorithm::kAuto && available(algorithm, dtype, device)) result.push_back(algorithm);
  }
  return result;
}

}  // namespace pmpp::matmul
