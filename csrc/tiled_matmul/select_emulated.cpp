#include "csrc/tiled_matmul/select_emulated.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/select_simt.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"

namespace pmpp::matmul {
namespace {

constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max() - 1024;  // a tile beyond must not overflow
constexpr std::int64_t kMaxPitch = std::int64_t{1} << 38;  // elements: 2^40 bytes are the limit of a tensor map
constexpr std::int64_t kPlanePitch = 64;                   // whole lines of 128 bytes
constexpr std::int64_t kTmaElements = 8;                   // short lines do with the 16 bytes of a tensor map
constexpr std::int64_t kPlaneBytes = 2;

// What a tile costs: microseconds for a step of 64 of k while every multiprocessor works, and for starting and
// finishing an output tile. At the peak of the tensor cores a step of 128 x 128 takes 1.68 us. These and the constants
// below are fitted to 309 times of plans for 37 shapes on an H200 (256..8192, all layouts, flat, long k, complex64):
// the choice among those plans then takes 1.002 times as long as the fastest one in the geometric mean.
struct TileCost {
  double step, fixed;
};
constexpr TileCost kTileCosts[kEmulatedTileCount] = {{2.017, 1.32}, {1.088, 1.50}, {1.271, 0.03}};
// Of the step, where hi hi goes to the sums after one, two or four steps of the tensor core.
constexpr double chain_cost(int chain) { return chain == 1 ? 1.301 : chain == 2 ? 1.099 : 1.0; }
constexpr double kLaunchUs = 10.1;            // of the split and the kernel
constexpr double kSplitBytesPerUs = 3.83e6;   // 4 read and 6 written a float32
constexpr double kReduceLaunchUs = 4.04;      // of the second pass
constexpr double kReduceBytesPerUs = 3.65e6;  // of partial sums, written and read; they mostly stay in L2
constexpr double kResultBytesPerUs = 4.15e6;

PlaneLayout planes(const Problem& p, const Operand& operand, bool is_b) {
  const std::int64_t lines = is_b ? p.n : p.m, k = p.k;
  const std::int64_t line_stride = is_b ? operand.col_stride : operand.row_stride;
  const std::int64_t k_stride = is_b ? operand.row_stride : operand.col_stride;
  PlaneLayout layout;
  layout.is_batched = p.batch > 1 && operand.batch_stride != 0;
  // In the order of the operand, so that it is read along its lines; a vector is one line.
  const bool is_k_run = k_stride == 1 || (line_stride != 1 && k_stride <= line_stride);
  const bool k_major = lines == 1 || (k > 1 && is_k_run);
  layout.is_mn_major = !k_major;
  if (is_complex(p.dtype)) {
    layout.form =
        is_b ? (k_major ? SplitForm::kAlongK : SplitForm::kAlongN) : (k_major ? SplitForm::kPairs : SplitForm::kApart);
  }
  layout.operand_length = k_major ? k : lines;
  layout.operand_lines = k_major ? lines : k;
  layout.step = k_major ? k_stride : line_stride;
  layout.line_stride = k_major ? line_stride : k_stride;
  layout.length = layout.operand_length * split_width(layout.form);
  layout.lines = layout.operand_lines * split_lines(layout.form);
  layout.pitch = round_up(layout.length, layout.length < kPlanePitch ? kTmaElements : kPlanePitch);
  layout.batch = layout.is_batched ? p.batch : 1;
  layout.matrix_stride = layout.pitch * layout.lines;
  layout.plane_stride = layout.matrix_stride * layout.batch;
  return layout;
}

bool representable(const Problem& p) {
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0) return false;  // nothing to plan
  const std::int64_t most = kMaxSize / real_parts(p.dtype);
  if (p.m > most || p.n > most || p.k > most || p.batch > kMaxSize / kPlanes) return false;
  for (const PlaneLayout& layout : {planes_of_a(p), planes_of_b(p)}) {
    if (layout.matrix_stride >= kMaxPitch) return false;
  }
  return true;
}

std::optional<Plan> make_plan(const Problem& problem, const DeviceFacts& device, int config, std::int64_t splits) {
  const Problem p = row_major_problem(problem);
  const EmulatedTile& tile = kEmulatedTiles[config];
  const std::int64_t tile_n = tile.n / real_parts(p.dtype), tile_k = kWgmmaK / real_parts(p.dtype);
  const std::int64_t k_blocks = ceil_div(p.k, tile_k);
  const std::int64_t split_blocks = ceil_div(k_blocks, splits);
  splits = ceil_div(k_blocks, split_blocks);
  const std::int64_t row_tiles = round_up(ceil_div(p.m, tile.m), tile.cluster);
  // Bounded factor by factor, so that no product overflows.
  std::int64_t items = row_tiles;
  for (const std::int64_t factor : {ceil_div(p.n, tile_n), p.batch, splits}) {
    items *= factor;
    if (items > kMaxSize) return std::nullopt;
  }
  Plan plan;
  plan.algorithm = Algorithm::kEmulated;
  plan.is_cuda = true;
  plan.config = config;
  plan.tile_m = tile.m;
  plan.tile_n = tile_n;
  plan.tile_k = tile_k;
  plan.stages = tile.slots;
  plan.cluster = tile.cluster;
  plan.splits = splits;
  plan.split_k = split_blocks * tile_k;
  plan.grid[0] = std::min<std::int64_t>(items, device.sm_count / tile.cluster * tile.cluster);  // persistent blocks
  plan.grid[1] = plan.grid[2] = 1;
  plan.block[0] = kEmulatedThreads;
  plan.block[1] = 1;
  plan.dynamic_shared_bytes = emulated_shared_bytes(tile);
  plan.workspace_bytes = emulated_workspace(p, plan).bytes;
  return plan;
}

}  // namespace

PlaneLayout planes_of_a(const Problem& p) { return planes(p, p.a, false); }
PlaneLayout planes_of_b(const Problem& p) { return planes(p, p.b, true); }

SplitGrid split_grid(const PlaneLayout& layout) {
  SplitGrid grid;
  const std::int64_t runs = ceil_div(layout.operand_length, split_run_elements(layout.form));
  while (grid.lane_shift < 5 && (std::int64_t{1} << grid.lane_shift) < runs) ++grid.lane_shift;
  grid.line_blocks = ceil_div(layout.operand_lines, (kSplitThreads >> grid.lane_shift) * kSplitLines);
  grid.run_blocks = ceil_div(runs, std::int64_t{1} << grid.lane_shift);
  grid.blocks = grid.line_blocks * grid.run_blocks * layout.batch;
  return grid;
}

SplitOperand split_operand(const Operand& operand, const PlaneLayout& layout, void* planes) {
  const std::int64_t parts = layout.form == SplitForm::kReal ? 1 : 2;
  SplitOperand s = {};
  s.data = static_cast<const float*>(operand.data);
  s.planes = static_cast<std::uint16_t*>(planes);
  s.line_stride = layout.line_stride * parts;
  s.step = layout.step * parts;
  s.batch_stride = operand.batch_stride * parts;
  s.lines = layout.operand_lines;
  s.length = layout.operand_length;
  s.pitch = layout.pitch;
  s.matrix_stride = layout.matrix_stride;
  s.plane_stride = layout.plane_stride;
  const SplitGrid grid = split_grid(layout);
  s.lane_shift = grid.lane_shift;
  s.line_blocks = grid.line_blocks;
  s.run_blocks = grid.run_blocks;
  s.blocks = grid.blocks;
  s.form = layout.form;
  s.is_vector = layout.step == 1 && is_aligned(operand.data, 16) &&
                (layout.operand_lines == 1 || s.line_stride % 4 == 0) && (layout.batch == 1 || s.batch_stride % 4 == 0);
  s.is_paired = parts == 2 && is_aligned(operand.data, 8);
  return s;
}

EmulatedWorkspace emulated_workspace(const Problem& problem, const Plan& plan) {
  constexpr std::int64_t kAlignment = 256;
  const Problem p = row_major_problem(problem);
  EmulatedWorkspace w;
  if (plan.splits > 1) w.bytes = round_up(partial_bytes(p, plan.splits), kAlignment);
  const PlaneLayout a = planes_of_a(p), b = planes_of_b(p);
  w.planes_a = w.bytes;
  w.bytes += round_up(a.plane_stride * kPlanes * kPlaneBytes, kAlignment);
  w.planes_b = w.bytes;
  w.bytes += round_up(b.plane_stride * kPlanes * kPlaneBytes, kAlignment);
  w.subnormal = w.bytes;
  w.bytes += round_up(split_grid(a).blocks + split_grid(b).blocks, kAlignment);
  return w;
}

bool emulated_available(DType dtype, const DeviceFacts& device) {
  return device.is_cuda && device.compute_capability == 90 && device.shared_memory_opt_in >= 227 * 1024 &&
         device.max_threads_per_block >= kEmulatedThreads && (dtype == DType::kFloat32 || dtype == DType::kComplex64);
}

// Waves of tiles, the split, and the second pass over partial sums.
double emulated_cost(const Problem& problem, const DeviceFacts& device, const Plan& plan) {
  const Problem p = row_major_problem(problem);
  const TileCost& tile_cost = kTileCosts[plan.config];
  const std::int64_t items =
      round_up(ceil_div(p.m, plan.tile_m), plan.cluster) * ceil_div(p.n, plan.tile_n) * p.batch * plan.splits;
  const auto waves = static_cast<double>(ceil_div(items, std::max(device.sm_count, 1)));
  const double steps = static_cast<double>(plan.split_k / plan.tile_k);
  double total = kLaunchUs + waves * (steps * tile_cost.step * chain_cost(emulated_chain(p.k)) + tile_cost.fixed);
  total += static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.batch) * element_size(p.dtype) /
           kResultBytesPerUs;
  for (const PlaneLayout& layout : {planes_of_a(p), planes_of_b(p)}) {
    // What is read are as many real numbers as are written, or half as many.
    const double read = static_cast<double>(layout.plane_stride) / (is_doubled(layout.form) ? 2 : 1);
    total += (read * 4 + static_cast<double>(layout.plane_stride) * kPlanes * kPlaneBytes) / kSplitBytesPerUs;
  }
  if (plan.splits > 1) {
    total += kReduceLaunchUs + 2 * static_cast<double>(partial_bytes(p, plan.splits)) / kReduceBytesPerUs;
  }
  return total;
}

bool is_emulated_faster(const Problem& problem, const DeviceFacts& device, const Plan& plan) {
  const std::optional<Plan> simt = simt_plan(problem, device);
  return !simt.has_value() || emulated_cost(problem, device, plan) < simt_cost(problem, device, *simt);
}

std::optional<Plan> emulated_plan(const Problem& problem, const DeviceFacts& device) {
  const Problem p = row_major_problem(problem);
  if (!representable(p) || !emulated_available(p.dtype, device)) return std::nullopt;
  const std::int64_t parts = real_parts(p.dtype), k_blocks = ceil_div(p.k * parts, kWgmmaK);
  std::optional<Plan> best;
  double best_cost = 0;
  for (int config = 0; config < kEmulatedTileCount; ++config) {
    const EmulatedTile& tile = kEmulatedTiles[config];
    // Pieces of k only where the tiles leave half of the GPU idle, and each piece has work for the slots.
    const std::int64_t tiles = std::min<std::int64_t>(ceil_div(p.m, tile.m), device.sm_count) *
                               std::min<std::int64_t>(ceil_div(p.n * parts, tile.n), device.sm_count) *
                               std::min<std::int64_t>(p.batch, device.sm_count);
    const std::int64_t most =
        tiles * 2 > device.sm_count ? 1 : std::min(device.sm_count / tiles, std::max<std::int64_t>(k_blocks / 2, 1));
    for (std::int64_t splits = 1; splits <= most; splits += splits < 16 ? 1 : splits / 8) {
      const std::optional<Plan> plan = make_plan(problem, device, config, splits);
      if (!plan.has_value()) continue;
      const double estimate = emulated_cost(problem, device, *plan);
      if (!best.has_value() || estimate < best_cost) {
        best = plan;
        best_cost = estimate;
      }
    }
  }
  return best;
}

std::vector<Plan> emulated_plans(const Problem& problem, const DeviceFacts& device) {
  std::vector<Plan> plans;
  if (!representable(row_major_problem(problem)) || !emulated_available(problem.dtype, device)) return plans;
  for (int config = 0; config < kEmulatedTileCount; ++config) {
    for (const int splits : {1, 2, 3, 8}) {
      const std::optional<Plan> plan = make_plan(problem, device, config, splits);
      if (plan.has_value() && plan->splits == splits) plans.push_back(*plan);
    }
  }
  return plans;
}

}  // namespace pmpp::matmul
