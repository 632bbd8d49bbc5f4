#include "csrc/tiled_matmul/select.hpp"

#include <algorithm>
#include <sstream>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/config.hpp"
#include "csrc/tiled_matmul/cpu/micro_tile.hpp"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/select_emulated.hpp"
#include "csrc/tiled_matmul/select_mma64.hpp"
#include "csrc/tiled_matmul/select_simt.hpp"
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

bool available(Algorithm algorithm, DType dtype, const DeviceFacts& device, Float32Precision precision) {
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
    case Algorithm::kSimt:
      return has_simt(dtype, device);
    case Algorithm::kMma:
      return has_mma(dtype, device);
    case Algorithm::kWgmma:
      return wgmma_available(dtype, device, precision);
    case Algorithm::kEmulated:
      return emulated_available(dtype, device);
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
  if (mma64_planes(problem.dtype) > 0) {
    if (is_mma64_faster(problem, device)) return Algorithm::kMma;
  } else if (device.compute_capability != 90 && small && has_mma(problem.dtype, device)) {
    return Algorithm::kMma;
  }
  if (simt_takes(problem, device)) return Algorithm::kSimt;
  const int width = dynamic_tile_width(element_size(problem.dtype), device);
  if (width == 0) return Algorithm::kNaive;
  // Each factor is bounded before the product is formed, which therefore cannot overflow.
  const std::int64_t row_tiles = ceil_div(problem.m, width);
  const std::int64_t col_tiles = ceil_div(problem.n, width);
  const std::int64_t few = device.sm_count / 2;
  const bool idle = row_tiles <= few && col_tiles <= few && row_tiles * col_tiles * std::min(problem.batch, few) < few;
  return idle && available(Algorithm::kTiled, problem.dtype, device, problem.precision) ? Algorithm::kTiled
                                                                                        : Algorithm::kTiledDynamic;
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

// One task a row, cut into pieces so that a flat result also has work for every thread.
void set_naive_tasks(Plan& plan, const Problem& problem) {
  plan.tile_m = 1;
  plan.tile_n = 256;
  plan.tasks = problem.batch * problem.m * ceil_div(problem.n, plan.tile_n);
}

// ---- blocked -------------------------------------------------------------------------------------------------------

bool is_real_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// Whether the roles of a and b are better exchanged: results with contiguous columns are stored in registers at a time
// only then, and registers that stand for columns of the result would stay empty where there are few.
bool wants_exchange(const Problem& p, const MicroTile& tile) {
  if (p.n == 1 || p.m == 1) return p.n == 1 && p.m > 1;
  if (p.d.col_stride != 1 && p.d.row_stride == 1) return true;
  if (p.m < tile.cols) return false;
  if (is_real_floating(p.dtype)) {
    // As rows times contiguous columns. Otherwise registers of float32 and float64 may be filled in part.
    if (p.n <= kExchangedDotRows && p.k >= kDotSteps && p.a.col_stride == 1) return true;
    if (element_size(p.dtype) == packed_bytes(p.dtype)) return false;
  }
  return 2 * p.n <= tile.cols;
}

// Whether x * y is at most `limit`, also where the product would overflow.
bool fits(std::int64_t x, std::int64_t y, std::int64_t limit) {
  return static_cast<double>(x) * static_cast<double>(y) <= static_cast<double>(limit);
}

// Whether all of b is read for so few rows that packing it, or walking down its columns, would take longer.
bool wants_vectors(const Problem& p) {
  if (!is_real_floating(p.dtype)) return false;
  if (p.b.row_stride == 1 && p.k > 1) return p.m <= kVectorRows || (p.m <= kDotRows && p.k >= kDotSteps);
  if (p.m > kVectorRows) return false;
  // Tiles are faster where b stays in the caches.
  const bool large = static_cast<double>(p.k) * static_cast<double>(p.n) * element_size(p.dtype) > kVectorBBytes;
  return p.b.col_stride == 1 && (p.m == 1 || large);
}

// Equal parts of `size`, as few as `largest` allows, each a multiple of `unit`.
std::int64_t equal_parts(std::int64_t size, std::int64_t largest, std::int64_t unit) {
  largest = std::max(largest / unit * unit, unit);
  return std::min(round_up(ceil_div(size, ceil_div(size, largest)), unit), round_up(size, unit));
}

// How the work is divided: row_parts x col_parts blocks of the result, each summed in `splits` parts.
struct Division {
  std::int64_t row_parts = 1, col_parts = 1, splits = 1;
};

// For as many threads as there is work for: the division whose largest task is smallest, and among equals the one that
// reads least. Columns are divided by what a register holds, `register_cols`: tiles of AVX-512 are three wide, and the
// parts of 512 columns would be 288 and 224.
Division divide(const Problem& p, const MicroTile& tile, std::int64_t register_cols, bool packs_a,
                std::int64_t threads) {
  const std::int64_t rows = ceil_div(p.m, tile.rows), cols = ceil_div(p.n, register_cols);
  Division best;
  double best_cost = 0;
  for (std::int64_t row_parts = 1; row_parts <= std::min(threads, rows); ++row_parts) {
    for (std::int64_t col_parts = 1; col_parts <= std::min(threads / row_parts, cols); ++col_parts) {
      const std::int64_t splits =
          std::clamp<std::int64_t>(std::min(threads / (row_parts * col_parts), p.k / kStepsPerSplit), 1, threads);
      const double task_rows = static_cast<double>(ceil_div(rows, row_parts) * tile.rows);
      const double task_cols = static_cast<double>(ceil_div(cols, col_parts) * register_cols);
      // To read an element costs as much as some eight multiply-adds, two where it is not packed; so does a sum that
      // another thread adds up.
      const double steps = static_cast<double>(ceil_div(p.k, splits));
      const double cost = task_rows * task_cols * steps + ((packs_a ? 8 : 2) * task_rows + 8 * task_cols) * steps +
                          (splits > 1 ? 8 * static_cast<double>(splits * p.m * p.n) : 0);
      if (best_cost == 0 || cost < best_cost) best = {row_parts, col_parts, splits}, best_cost = cost;
    }
  }
  return best;
}

void set_blocked(Plan& plan, const Problem& problem, const DeviceFacts& device) {
  const MicroTile tile = micro_tile(device.cpu_isa, problem.dtype);
  plan.isa = device.cpu_isa;
  plan.exchanged = problem.k > 0 && wants_exchange(problem, tile);
  const Problem p = plan.exchanged ? exchanged(problem) : problem;

  const double work = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const std::int64_t batch = std::max<std::int64_t>(p.batch, 1);
  std::int64_t threads = ceil_div(device.cpu_threads, batch);
  threads = std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kWorkPerThread), 1, threads);
  const std::int64_t unit = packed_bytes(p.dtype) * (is_complex(p.dtype) ? 2 : 1);
  const std::int64_t register_cols = vector_bytes(plan.isa) / unit;
  const std::int64_t steps = packed_steps(p.dtype);
  const bool is_unit = unit == element_size(p.dtype) && steps == 1;
  const Division division = divide(p, tile, register_cols, !(is_unit && p.a.col_stride == 1), threads);
  plan.tile_m = ceil_div(std::max<std::int64_t>(p.m, 1), division.row_parts);
  plan.tile_n = round_up(ceil_div(std::max<std::int64_t>(p.n, 1), division.col_parts), register_cols);
  plan.split_k = round_up(ceil_div(p.k, division.splits), steps);
  plan.splits = p.k == 0 ? 1 : ceil_div(p.k, plan.split_k);
  plan.tasks = p.batch * ceil_div(p.m, plan.tile_m) * ceil_div(p.n, plan.tile_n) * plan.splits;

  const std::int64_t task_k = plan.splits == 1 ? p.k : plan.split_k;
  const std::int64_t task_n = std::min(plan.tile_n, p.n);
  const bool streams_b = is_unit && p.b.col_stride == 1 && p.m <= kUnpackedRows && task_n * unit >= kStreamedRowBytes &&
                         !fits(task_k * unit, task_n, kStreamedBBytes);
  // A narrower panel of b has room for more steps, and rows of a are better read in long pieces.
  const std::int64_t panel_cols =
      std::min<std::int64_t>(tile.cols, round_up(std::max<std::int64_t>(p.n, 1), register_cols));
  const std::int64_t slice_steps = streams_b ? kStreamedSteps : kSliceSteps * tile.cols / panel_cols;
  plan.tile_k = equal_parts(std::max<std::int64_t>(task_k, 1), slice_steps * steps, steps);
  const std::int64_t slice = plan.tile_k / steps * unit;
  plan.by_vectors = wants_vectors(p);
  if (plan.by_vectors) {
    const std::int64_t number = packed_bytes(p.dtype);
    plan.block_n = plan.splits > 1 ? plan.tile_n : std::min<std::int64_t>(plan.tile_n, kVectorCols);
    plan.packed_a_bytes = round_up(std::min(plan.tile_m, p.m) * task_k * number + vector_bytes(plan.isa), 64);
    plan.packed_b_bytes = round_up(std::min(plan.tile_m, p.m) * plan.block_n * number, 64);
    plan.scratch_bytes = plan.packed_a_bytes + plan.packed_b_bytes;
    if (plan.splits > 1) plan.partial_bytes = round_up(plan.tile_m * plan.block_n * number, 64);
    plan.workspace_bytes = plan.tasks * plan.partial_bytes;
    return;
  }
  plan.pack_a =
      !(is_unit && (p.a.col_stride == 1 || fits(std::min(plan.tile_m, p.m), task_k * unit, kUnpackedColumnBytes)));
  const bool aligned = reinterpret_cast<std::uintptr_t>(p.b.data) % 64 == 0 && p.b.row_stride * unit % 64 == 0;
  plan.pack_b = !(is_unit && p.b.col_stride == 1 &&
                  (std::min(plan.tile_m, p.m) <= (aligned ? kUnpackedAlignedRows : kUnpackedRows) ||
                   fits(task_n, task_k * unit, aligned ? kUnpackedAlignedBBytes : kUnpackedBBytes)));

  // Sums have their place in the result itself if that is of the same type and nothing else is added to them.
  const bool plain = p.c.data == nullptr && p.alpha.re == 1 && p.alpha.im == 0 && p.alpha.integer == 1;
  plan.in_place = plan.splits == 1 && is_unit && p.d.col_stride == 1 && plain;
  const bool keeps_sums = task_k > plan.tile_k && !plan.in_place;
  plan.block_m = plan.pack_a ? equal_parts(plan.tile_m, kPackedABytes / slice, tile.rows) : plan.tile_m;
  std::int64_t block_n = plan.pack_b ? kPackedBBytes / slice : round_up(plan.tile_n, tile.cols);
  // A complex number has four sums.
  const std::int64_t sum = packed_bytes(p.dtype) * (is_complex(p.dtype) ? 4 : 1);
  if (keeps_sums) block_n = std::min(block_n, kSumBytes / (plan.tile_m * sum));
  if (streams_b) block_n = std::min(block_n, kStreamedSumBytes / (std::min(plan.tile_m, p.m) * sum));
  plan.block_n = plan.splits > 1 ? plan.tile_n
                                 : equal_parts(plan.tile_n, std::max<std::int64_t>(block_n, 8 * tile.cols), tile.cols);

  plan.packed_a_bytes = plan.pack_a ? round_up(plan.block_m * slice, 64) : 0;
  // Columns that do not fill the tile are packed all the same, except where they are summed in the result itself.
  const std::int64_t packed_cols = plan.pack_b                             ? round_up(plan.block_n, tile.cols)
                                   : plan.in_place && !is_complex(p.dtype) ? 0
                                                                           : tile.cols;
  plan.packed_b_bytes = round_up(packed_cols * slice, 64);
  const std::int64_t sums = round_up(plan.tile_m * plan.block_n * sum, 64);
  if (plan.splits > 1) {
    plan.partial_bytes = sums;
    plan.workspace_bytes = plan.tasks * sums;
  } else if (keeps_sums) {
    plan.sum_bytes = sums;
  }
  plan.scratch_bytes = plan.packed_a_bytes + plan.packed_b_bytes + plan.sum_bytes;
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
    case Algorithm::kSimt:
      return "simt";
    case Algorithm::kMma:
      return "mma";
    case Algorithm::kWgmma:
      return "wgmma";
    case Algorithm::kEmulated:
      return "emulated";
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
    if (plan.tail_tiles > 0) {
      out << " tail " << plan.tail_tiles << " in " << plan.tail_splits << " of " << plan.tail_k;
    }
    if (plan.is_a_packed) out << " a packed";
    if (plan.is_b_packed) out << " b packed";
    if (plan.is_a_displaced) out << " a displaced";
    if (plan.is_a_realigned) out << " a realigned";
    if (plan.is_b_realigned) out << " b realigned";
  } else {
    if (plan.splits > 1) out << " split " << plan.splits;
    out << " tasks " << plan.tasks;
    if (plan.algorithm == Algorithm::kBlocked) {
      out << " " << cpu_isa_name(plan.isa) << (plan.exchanged ? " exchanged" : "")
          << (plan.by_vectors ? " vectors" : "") << (plan.pack_a ? " pack a" : "") << (plan.pack_b ? " pack b" : "");
    }
  }
  return out.str();
}

std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kAuto && available(Algorithm::kWgmma, problem.dtype, device, problem.precision)) {
    // None where a size does not fit its coordinates.
    if (std::optional<Plan> plan = wgmma_plan(problem, device)) return plan;
  }
  if (asked == Algorithm::kAuto && problem.k >= kEmulatedAccurateK &&
      available(Algorithm::kEmulated, problem.dtype, device, problem.precision)) {
    const std::optional<Plan> plan = emulated_plan(problem, device);
    if (plan.has_value() && is_emulated_faster(problem, device, *plan)) return plan;
  }
  if (asked == Algorithm::kAuto) asked = fastest(problem, device);
  if (!available(asked, problem.dtype, device, problem.precision)) return std::nullopt;

  Plan plan;
  plan.algorithm = asked;
  switch (asked) {
    case Algorithm::kAuto:
      return std::nullopt;
    case Algorithm::kNaive:
      if (device.is_cuda) {
        set_cuda_launch(plan, problem, kTileWidth);
      } else {
        set_naive_tasks(plan, problem);
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
    case Algorithm::kSimt:
      return simt_plan(problem, device);
    case Algorithm::kMma:
      return mma_plan(problem, device);
    case Algorithm::kWgmma:
      return wgmma_plan(problem, device);
    case Algorithm::kEmulated:
      return emulated_plan(problem, device);
    case Algorithm::kBlocked:
      set_blocked(plan, problem, device);
      return plan;
  }
  return std::nullopt;
}

std::vector<Plan> plans(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kSimt) return simt_plans(problem, device);
  if (asked == Algorithm::kMma) return mma_plans(problem, device);
  if (asked == Algorithm::kWgmma) return wgmma_plans(problem, device);
  if (asked == Algorithm::kEmulated) return emulated_plans(problem, device);
  const std::optional<Plan> plan = select(problem, device, asked);
  return plan.has_value() ? std::vector<Plan>{*plan} : std::vector<Plan>{};
}

std::vector<Algorithm> algorithms(DType dtype, const DeviceFacts& device, Float32Precision precision) {
  std::vector<Algorithm> result;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm != Algorithm::kAuto && available(algorithm, dtype, device, precision)) result.push_back(algorithm);
  }
  return result;
}

}  // namespace pmpp::matmul
