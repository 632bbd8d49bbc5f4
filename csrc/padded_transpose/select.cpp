#include "csrc/padded_transpose/select.hpp"

#include <algorithm>
#include <sstream>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/config.hpp"

namespace pmpp::transposition {
namespace {

struct Shape {
  int tile_m, tile_n, padding, block_x, block_y;
};

Shape cuda_shape(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kShared:
      return {kTile, kTile, 0, kTile, kTileRows};
    case Algorithm::kPadded:
      return {kTile, kTile, kPadding, kTile, kTileRows};
    case Algorithm::kPadded16:
      return {kSmallTile, kSmallTile, kPadding, kSmallTile, kTileRows};
    default:
      return {kNaiveRows, kNaiveCols, 0, kNaiveCols, kNaiveRows};
  }
}

bool available(Algorithm algorithm, int element_size, const DeviceFacts& device) {
  if (!is_element_size(element_size)) return false;
  if (algorithm == Algorithm::kAuto) return true;
  if (algorithm == Algorithm::kBlocked) return !device.is_cuda;
  if (!device.is_cuda) return algorithm == Algorithm::kNaive;
  if (algorithm == Algorithm::kVectorized) {
    // cp.async came with 8.0; every smaller GPU of that generation has room for the tiles.
    return device.compute_capability >= 80 && device.max_threads_per_block >= 1024 &&
           device.shared_memory_per_block >= kMaxStaticShared && device.shared_memory_opt_in >= kMaxShared;
  }
  const Shape shape = cuda_shape(algorithm);
  const int bytes = algorithm == Algorithm::kNaive ? 0 : tile_bytes(shape.tile_m, shape.padding, element_size);
  return shape.block_x * shape.block_y <= device.max_threads_per_block && bytes <= device.shared_memory_per_block;
}

// ---- vectorized ----------------------------------------------------------------------------------------------------

bool on_boundary(std::int64_t bytes, int boundary = kChunkBytes) { return bytes % boundary == 0; }

bool source_aligned(const Problem& p, int boundary = kChunkBytes) {
  return is_aligned(p.in, boundary) && on_boundary(p.in_row_stride * p.element_size, boundary) &&
         on_boundary(p.in_batch_stride * p.element_size, boundary);
}

bool dest_aligned(const Problem& p, int boundary = kChunkBytes) {
  return is_aligned(p.out, boundary) && on_boundary(p.out_row_stride * p.element_size, boundary) &&
         on_boundary(p.out_batch_stride * p.element_size, boundary);
}

// Whether all rows start with elements of 8 bytes, and some in the middle of a sector.
bool halves_sectors(const Problem& p) {
  return p.element_size == 8 && !(source_aligned(p, kSectorBytes) && dest_aligned(p, kSectorBytes));
}

// Batches on y, and what does not fit there on z.
bool set_grid(Plan& plan, std::int64_t blocks, std::int64_t batch) {
  plan.grid[0] = blocks;
  plan.grid[1] = std::min(batch, kMaxGridYZ);
  plan.grid[2] = batch == 0 ? 0 : ceil_div(batch, plan.grid[1]);
  return blocks <= kMaxGridX && plan.grid[2] <= kMaxGridYZ;
}

void set_tile(Plan& plan, const TileShape& tile, int element_size) {
  plan.tile_m = tile.dest_bytes / element_size;
  plan.tile_n = tile.source_bytes / element_size;
  plan.block[0] = tile.threads;
  plan.block[1] = 1;
}

// Tiles along the rows of the source. Where destination rows start off a boundary, a tile's last elements belong to the
// next one's first chunk.
std::int64_t row_tiles(const Problem& p, int rows, int halo) {
  return ceil_div(p.m + (halo > 0 ? halo / p.element_size - 1 : 0), rows);
}

TileShape tile_shape(const Problem& p, Method method, int level) {
  if (method == Method::kAligned) return aligned_tile(p.element_size, level);
  if (method == Method::kStaged) return staged_tile(level, dest_aligned(p));
  return gather_tile(p.element_size, level);
}

int tile_halo(const Problem& p, Method method, int level) {
  if (method == Method::kAligned) return 0;
  if (method == Method::kStaged) return staged_halo(level, dest_aligned(p));
  return gather_halo(level, dest_aligned(p, p.element_size == 8 && level == 0 ? kSectorBytes : kChunkBytes));
}

// How much of the tiles along a side of this many bytes is matrix.
double filled(std::int64_t bytes, int tile) { return static_cast<double>(bytes) / round_up(bytes, tile); }

// Whether more than a tenth of the tiles lies outside the matrix.
bool wastes(const Problem& p, const TileShape& tile) {
  return filled(p.m * p.element_size, tile.dest_bytes) * filled(p.n * p.element_size, tile.source_bytes) < 0.9;
}

std::optional<Plan> tile_plan(const Problem& p, const DeviceFacts& device, Method method) {
  Plan plan;
  plan.method = method;
  for (plan.level = 0;; ++plan.level) {
    const TileShape tile = tile_shape(p, method, plan.level);
    set_tile(plan, tile, p.element_size);
    plan.halo = tile_halo(p, method, plan.level);
    if (!set_grid(plan, row_tiles(p, plan.tile_m, plan.halo) * ceil_div(p.n, plan.tile_n), p.batch))
      return std::nullopt;
    if (plan.level == kTileLevels - 1) break;
    const bool busy = plan.grid[0] * plan.grid[1] >=
                      busy_blocks(method == Method::kAligned, p.element_size, plan.level) * device.sm_count;
    if (busy && !(p.element_size == 16 && plan.level == 0 && wastes(p, tile))) break;
  }
  const TileShape tile = tile_shape(p, method, plan.level);
  if (method == Method::kAligned) {
    plan.across = p.element_size <= 2 && !source_aligned(p, kFetchBytes) && p.m * tile.source_bytes > kRememberedBytes;
    plan.shared_bytes = aligned_shared_bytes(tile, p.element_size);
  } else if (method == Method::kStaged) {
    plan.shared_bytes = staged_shared_bytes(tile, plan.halo);
  } else {
    plan.shared_bytes = gather_shared_bytes(tile, p.element_size, plan.halo);
  }
  return plan;
}

bool is_narrow(std::int64_t side, int element_size, int tile, bool aligned) {
  if (side < 2 || side > kNarrowElements || (aligned && side * element_size == tile)) return false;
  return side * element_size <= kNarrowBytes || filled(side * element_size, tile) < 0.8;
}

// `units` or one more, so that lines of that many lie an odd number of them apart.
int odd(int units) { return units | 1; }

std::optional<Plan> narrow_source_plan(const Problem& p, const DeviceFacts& device) {
  const int per_chunk = kChunkBytes / p.element_size;
  const int n = static_cast<int>(p.n);
  const bool aligned = is_aligned(p.in, kChunkBytes) && on_boundary(p.in_batch_stride * p.element_size);
  Plan plan;
  plan.method = Method::kNarrowSource;
  // With an even n, groups an odd number of chunks apart would lie differently than in global memory, every second one,
  // and need a chunk more. Small elements are gathered in so many accesses that free banks are worth that.
  const bool whole_sectors = n % 2 == 0 && p.element_size >= 4;
  const bool split_sectors = n % 2 == 0 && narrow_alignment(p.element_size) == 32 && !whole_sectors;
  plan.pieces = n + (aligned ? 0 : 1) + (split_sectors ? 1 : 0);
  plan.pitch = whole_sectors ? odd((plan.pieces + 1) / 2) * 2 * kChunkBytes : odd(plan.pieces) * kChunkBytes;
  // Runs of at least 512 bytes along destination rows, if shared memory has room for them.
  int groups = std::max(kNarrowShared / plan.pitch, std::min(4 * kNarrowLanes, kNarrowSharedMax / plan.pitch - 1));
  groups = std::max(groups / kNarrowLanes * kNarrowLanes, kNarrowLanes);
  // Shorter strips for more blocks, where there are too few.
  plan.halo = dest_aligned(p) ? 0 : kChunkBytes;
  const std::int64_t rows = p.m + (plan.halo > 0 ? per_chunk - 1 : 0);
  const auto strips = [&] { return ceil_div(rows, std::int64_t{groups} * per_chunk); };
  while (groups > kNarrowLanes && strips() * p.batch < 2 * device.sm_count) groups = round_up(groups / 2, kNarrowLanes);
  plan.tile_m = groups * per_chunk;
  plan.tile_n = n;
  // One chunk for the position of the first group within its sector.
  plan.shared_bytes = (groups + (plan.halo > 0 ? 1 : 0)) * plan.pitch + kChunkBytes;
  // Small elements are read in words, of several columns, where the destination is aligned.
  const std::int64_t columns = plan.halo == 0 && p.element_size < 4 ? ceil_div(std::int64_t{n} * p.element_size, 4) : n;
  const int column_runs = static_cast<int>(ceil_div(columns, 32 / kNarrowLanes));
  const int rounds = static_cast<int>(ceil_div(column_runs, kNarrowSourceWarps));
  plan.lanes = static_cast<int>(ceil_div(column_runs, rounds));
  plan.block[0] = 32 * plan.lanes * std::max(1, std::min(kNarrowSourceWarps / plan.lanes, groups / kNarrowLanes));
  plan.block[1] = 1;
  if (!set_grid(plan, strips(), p.batch)) return std::nullopt;
  return plan;
}

std::optional<Plan> narrow_dest_plan(const Problem& p, const DeviceFacts& device) {
  const int m = static_cast<int>(p.m);
  const int piece = narrow_dest_piece(p.element_size);
  const int per_chunk = kChunkBytes / p.element_size;
  Plan plan;
  plan.method = Method::kNarrowDest;
  int width = std::clamp(kNarrowShared / m / 256 * 256, 256, 4096);
  const auto strips = [&] { return ceil_div(p.n * p.element_size, width); };
  while (width > 256 && strips() * p.batch < 2 * device.sm_count) width = round_up(width / 2, 256);
  plan.tile_m = m;
  plan.tile_n = width / p.element_size;
  plan.pieces = width / piece + (piece == kChunkBytes ? narrow_alignment(p.element_size) / kChunkBytes : 0);
  plan.pitch = odd(plan.pieces) * piece;
  plan.shared_bytes = m * plan.pitch + (piece > p.element_size ? ceil_div(m, per_chunk) * kChunkBytes : 0);
  plan.block[0] = narrow_dest_threads(p.element_size);
  plan.block[1] = 1;
  if (!set_grid(plan, strips(), p.batch)) return std::nullopt;
  return plan;
}

Plan copy_plan(const Problem& p) {
  Plan plan;
  plan.method = Method::kCopy;
  const std::int64_t chunks = ceil_div(p.m * p.element_size, kChunkBytes) + 1;
  plan.lanes = 1;
  while (plan.lanes < chunks && plan.lanes < kCopyThreads) plan.lanes *= 2;
  plan.across = chunks >= plan.lanes * kCopyInFlight;
  const int rows = kCopyThreads / plan.lanes * (plan.across ? 1 : kCopyInFlight);
  plan.tile_n = rows;
  plan.tile_m = plan.lanes * (plan.across ? kCopyInFlight : 1) * (kChunkBytes / p.element_size);
  plan.block[0] = kCopyThreads;
  plan.block[1] = 1;
  plan.grid[0] = std::min(ceil_div(p.n, rows), kMaxGridX);
  plan.grid[1] = std::min(ceil_div(p.m + kChunkBytes / p.element_size - 1, plan.tile_m), kMaxGridYZ);
  plan.grid[2] = std::min(p.batch, kMaxGridYZ);
  return plan;
}

// The tile kernel of `padded`, which has no precondition.
Plan strided_plan(const Problem& p) {
  Plan plan;
  plan.method = Method::kStrided;
  plan.tile_m = plan.tile_n = kTile;
  plan.padding = kPadding;
  plan.block[0] = kTile;
  plan.block[1] = kTileRows;
  plan.grid[0] = std::min(ceil_div(p.m, kTile), kMaxGridX);
  plan.grid[1] = std::min(ceil_div(p.n, kTile), kMaxGridYZ);
  plan.grid[2] = std::min(p.batch, kMaxGridYZ);
  return plan;
}

std::optional<Plan> fast_plan(const Problem& p, const DeviceFacts& device) {
  const auto size = static_cast<std::uintptr_t>(p.element_size);
  if (p.out_col_stride != 1 || !is_aligned(p.in, size) || !is_aligned(p.out, size)) return std::nullopt;
  const bool contiguous_out = p.n == 1 || p.out_row_stride == p.m;
  if (p.in_row_stride == 1) {
    const bool contiguous = contiguous_out && (p.n == 1 || p.in_col_stride == p.m) &&
                            (p.batch == 1 || (p.in_batch_stride == p.m * p.n && p.out_batch_stride == p.m * p.n));
    Plan plan = copy_plan(p);
    if (contiguous) plan.method = Method::kDriverCopy;
    return plan;
  }
  if (p.in_col_stride != 1) return std::nullopt;
  const bool aligned =
      source_aligned(p) && dest_aligned(p) && on_boundary(p.m * p.element_size) && on_boundary(p.n * p.element_size);
  const Method method = aligned ? Method::kAligned : p.element_size == 1 ? Method::kStaged : Method::kGather;
  const TileShape tile = tile_shape(p, method, 0);
  if (p.in_row_stride == p.n && is_narrow(p.n, p.element_size, tile.source_bytes, aligned))
    return narrow_source_plan(p, device);
  if (contiguous_out && is_narrow(p.m, p.element_size, tile.dest_bytes, aligned)) return narrow_dest_plan(p, device);
  if (aligned && halves_sectors(p)) {
    // gather writes whole sectors. 8198 x 8202: .92 of a copy with the aligned kernel, .95 with gather.
    const std::optional<Plan> plan = tile_plan(p, device, Method::kGather);
    if (plan && plan->level == 0) return plan;
  }
  return tile_plan(p, device, method);
}

Plan vectorized_plan(const Problem& problem, const DeviceFacts& device) {
  const Problem p = normalized(problem);
  Plan plan = fast_plan(p, device).value_or(strided_plan(p));
  plan.algorithm = Algorithm::kVectorized;
  plan.is_cuda = true;
  return plan;
}

// ---- blocked -------------------------------------------------------------------------------------------------------

Method blocked_method(const Problem& p) {
  if (p.out_col_stride == 1 && p.in_row_stride == 1) return Method::kCpuCopy;
  if (std::min(p.m, p.n) * p.element_size < cpu_narrow_bytes(p.element_size)) return Method::kCpuNarrow;
  // Elements of a source row that share cache lines are gathered into a tile.
  const bool is_dense = p.in_col_stride > 0 && p.in_col_stride * p.element_size < kCpuLineBytes;
  return p.out_col_stride == 1 && (p.in_col_stride == 1 || is_dense) ? Method::kCpuTiles : Method::kCpuStrided;
}

Plan blocked_plan(const Problem& problem, const DeviceFacts& device) {
  const Problem p = normalized(problem);
  Plan plan;
  plan.algorithm = Algorithm::kBlocked;
  plan.isa = device.cpu_isa;
  plan.method = blocked_method(p);
  plan.is_streamed = plan.method == Method::kCpuTiles && p.m * p.element_size >= kCpuLineBytes &&
                     is_aligned(p.out, static_cast<std::uintptr_t>(p.element_size)) &&
                     p.batch * p.m * p.n * p.element_size >= device.cpu_stream_bytes;
  plan.tile_m = kCpuTaskRows;
  plan.tile_n = kCpuTileBytes / p.element_size;
  if (plan.method == Method::kCpuNarrow || plan.method == Method::kCpuCopy) {
    plan.tile_m = p.m <= p.n ? static_cast<int>(std::min<std::int64_t>(p.m, kCpuNarrowElements)) : kCpuNarrowElements;
    plan.tile_m = std::max(plan.tile_m, 1);
    plan.tile_n = std::max(kCpuNarrowElements / plan.tile_m, 1);
    if (plan.method == Method::kCpuNarrow && p.m > p.n) plan.tile_n = static_cast<int>(std::max<std::int64_t>(p.n, 1));
  }
  plan.tasks = p.batch * ceil_div(p.m, plan.tile_m) * ceil_div(p.n, plan.tile_n);
  return plan;
}

// Whether a classic kernel is faster, because its blocks are smaller and the problem cannot fill the GPU with larger
// ones.
bool is_small(const Plan& vectorized, const Problem& p, const DeviceFacts& device) {
  const std::int64_t elements_per_sm = p.m * p.n * p.batch / std::max(device.sm_count, 1);
  switch (vectorized.method) {
    case Method::kAligned:
      return p.element_size == 1 && elements_per_sm < kSmallAlignedBytes;
    case Method::kStaged:
    case Method::kGather:
    case Method::kNarrowSource:
    case Method::kNarrowDest:
      if (p.element_size == 1) return elements_per_sm < kSmallBytes;
      return elements_per_sm < std::min(kSmallElements, kSmallWideBytes / p.element_size);
    default:
      return false;
  }
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNaive:
      return "naive";
    case Algorithm::kShared:
      return "shared";
    case Algorithm::kPadded:
      return "padded";
    case Algorithm::kPadded16:
      return "padded16";
    case Algorithm::kVectorized:
      return "vectorized";
    case Algorithm::kBlocked:
      return "blocked";
  }
  return "unknown";
}

const char* method_name(Method method) {
  switch (method) {
    case Method::kNone:
      return "";
    case Method::kAligned:
      return "aligned";
    case Method::kStaged:
      return "staged";
    case Method::kGather:
      return "gather";
    case Method::kNarrowSource:
      return "narrow source";
    case Method::kNarrowDest:
      return "narrow destination";
    case Method::kCopy:
      return "copy";
    case Method::kDriverCopy:
      return "driver copy";
    case Method::kStrided:
    case Method::kCpuStrided:
      return "strided";
    case Method::kCpuTiles:
      return "tiles";
    case Method::kCpuNarrow:
      return "narrow";
    case Method::kCpuCopy:
      return "copy";
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
  out << algorithm_name(plan.algorithm) << " ";
  if (plan.method != Method::kNone) out << method_name(plan.method) << " ";
  if (plan.method == Method::kDriverCopy) {
    out << "contiguous";
    return out.str();
  }
  out << plan.tile_m << "x" << plan.tile_n;
  if (plan.padding > 0) out << "+" << plan.padding;
  if (plan.is_cuda) {
    out << " grid " << plan.grid[0] << "x" << plan.grid[1] << "x" << plan.grid[2] << " block " << plan.block[0] << "x"
        << plan.block[1];
  } else {
    out << " tasks " << plan.tasks;
    if (plan.algorithm == Algorithm::kBlocked) out << " " << cpu_isa_name(plan.isa);
    if (plan.is_streamed) out << " streamed";
  }
  return out.str();
}

std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kAuto) {
    for (const Algorithm candidate :
         {Algorithm::kBlocked, Algorithm::kVectorized, Algorithm::kPadded, Algorithm::kNaive}) {
      asked = candidate;
      if (available(candidate, problem.element_size, device)) break;
    }
    if (asked == Algorithm::kVectorized) {
      const Plan plan = vectorized_plan(problem, device);
      if (!is_small(plan, problem, device)) return plan;
      asked = problem.element_size >= kSmallerTileBytes ? Algorithm::kPadded16 : Algorithm::kPadded;
    }
  }
  if (!available(asked, problem.element_size, device)) return std::nullopt;
  if (asked == Algorithm::kVectorized) return vectorized_plan(problem, device);

  Plan plan;
  plan.algorithm = asked;
  if (!device.is_cuda) {
    if (asked == Algorithm::kBlocked) return blocked_plan(problem, device);
    plan.tile_m = kCpuNaiveRows;
    plan.tile_n = kCpuNaiveCols;
    plan.tasks = problem.batch * ceil_div(problem.m, plan.tile_m) * ceil_div(problem.n, plan.tile_n);
    return plan;
  }
  const Shape shape = cuda_shape(asked);
  plan.is_cuda = true;
  plan.tile_m = shape.tile_m;
  plan.tile_n = shape.tile_n;
  plan.padding = shape.padding;
  // Source rows lie on x: neighbouring blocks then walk along a destination row, and x alone has room for more than
  // 65,535 tiles.
  plan.grid[0] = std::min(ceil_div(problem.m, shape.tile_m), kMaxGridX);
  plan.grid[1] = std::min(ceil_div(problem.n, shape.tile_n), kMaxGridYZ);
  plan.grid[2] = std::min(problem.batch, kMaxGridYZ);
  plan.block[0] = shape.block_x;
  plan.block[1] = shape.block_y;
  return plan;
}

std::vector<Algorithm> algorithms(int element_size, const DeviceFacts& device) {
  std::vector<Algorithm> result;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm != Algorithm::kAuto && available(algorithm, element_size, device)) result.push_back(algorithm);
  }
  return result;
}

}  // namespace pmpp::transposition
