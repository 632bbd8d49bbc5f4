#include "csrc/tiled_matmul/select_wgmma.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"

namespace pmpp::matmul {
namespace {

constexpr std::int64_t kTmaBytes = 16;                     // addresses and pitches of tensor maps are multiples of this
constexpr std::int64_t kLineBytes = 128;                   // of the cache
constexpr std::int64_t kMaxPitch = std::int64_t{1} << 38;  // elements: 2^40 bytes are the limit
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max() - 1024;  // a tile beyond must not overflow
constexpr std::int64_t kPackedPitch = 64;                                           // whole lines of 128 bytes

// What a tile costs: microseconds for a step of 64 of k while every multiprocessor works, and for starting and
// finishing an output tile. These and the constants below are fitted to the times of all plans for 87 shapes in
// bfloat16 on an H200 (squares 128..8192, language-model shapes with m = 1..2048, flat, long k, odd): the choice then
// takes 1.005 times as long as the fastest plan in the geometric mean; and for 118 others, in TF32 and with lines off
// 128 bytes, 1.016 times, with `fed` and the costs of such lines as they were measured there. 87 shapes of which most
// leave a wave unfilled gave the costs of a tail and of 192 x 192: 1.008 times. Those of 64 x 32 and 64 x 16 in
// clusters are set by 1 and 16 rows of language models: 16 x 4096 x 4096 in a CUDA graph takes 7.9 us with them, 12.0
// without. Tiles that never were the fastest are gone: 128 x 128 in pieces within a cluster, 128 x 192 and 64 x 256 in
// clusters of two, 128 x 128 and 64 x 128 that realign. The one that realigns is kept to be measured; microseconds of
// the best plan with it and of the best that copies first: 255 x 255 x 255 11.1 and 9.9, 511 x 513 x 1025 21.3
// and 13.9, 1001 x 1001 x 1001 25.6 and 16.1, 4096 x 4096 x 4096 off its alignment 961 and 217.
struct TileCost {
  double step, fixed;
  double fed = 1.0;  // how many times as long a step takes whose a reaches the tensor cores through registers (TF32)
};
constexpr TileCost kWgmmaCosts[kWgmmaTileCount] = {
    {0.593, 1.52, 1.03}, {0.577, 1.26, 1.03}, {0.436, 1.29, 1.02}, {0.321, 1.07, 1.35}, {0.307, 0.67, 1.33},
    {0.363, 1.81, 1.1},  {0.185, 0.80, 1.3},  {0.388, 0.52, 1.2},  {0.287, 0.27, 1.4},  {0.281, 2.99, 1.3},
    {0.266, 3.79, 1.3},  {0.273, 3.28},       {0.809, 1.18},       {0.222, 0.87, 1.25}, {0.134, 0.45, 1.4},
    {0.108, 0.48, 1.3},  {0.816, 0.10},       {0.895, 0.10},       {0.670, 2.60, 1.03}, {0.640, 1.80, 1.03},
    {0.200, 3.50, 1.4},  {0.170, 3.50, 1.3},
};
// Tiles of the two widths that wgmma_problem() tells apart.
constexpr WgmmaTile kWideTile = kWgmmaTiles[0], kThinTile = kWgmmaTiles[14];
static_assert(kWideTile.n >= 64 && kThinTile.n < 64);
constexpr double kAloneShare = 0.822;   // of the time of a block, where the other of its multiprocessor is missing
constexpr double kClusterShare = 0.9;   // of the multiprocessors, that clusters of more than two blocks can fill
constexpr double kHiddenShare = 0.537;  // of the shorter of computing and moving bytes, how much the longer one hides
constexpr double kLaunchUs = 6.26;      // of the kernel
constexpr double kBytesPerUs = 4.09e6;  // operands and result
constexpr double kSplitLinesPerUs = 58.0e3;      // lines of a tile that lie in two of the cache
constexpr double kPackLaunchUs = 2.15;           // of the copy of operands
constexpr double kPackBytesPerUs = 3.63e6;       // read and written by it
constexpr double kReduceLaunchUs = 2.69;         // of the second pass
constexpr double kReduceBytesPerUs = 4.86e6;     // of partial sums, written and read; they mostly stay in L2
constexpr int kMaxTailRounds = 3;                // pieces of the last tiles, of k, that a block works on
constexpr std::int64_t kMaxTailSplits = 128;     // of such a tile; arrivals are counted in 8 bits
constexpr double kTailFixedUs = 4.0;             // of such a piece
constexpr double kTailBytesPerUs = 1.0e5;        // of the sums that the last block of a tile adds up
constexpr double kScatteredBytesPerUs = 3.74e6;  // of a result that TMA cannot write
// How many times as long steps take in tiles that blocks do not share, of large products whose results do not start on
// lines of 128 bytes: of 256 columns, and of fewer. H200, bfloat16, tiles of 128 x 128 alone and in clusters of two:
// 3000 x 3000 x 3000 145 and 112 us, 4096 x 4104 x 4096 267 and 208, 2048 x 1000 x 4096 39 and 30, but 2000 x 2000 x
// 2000 33 and 33. Why was not found.
constexpr double kUnsharedWideShare = 1.08, kUnsharedShare = 1.2;
constexpr double kLargeProduct = 4e9;  // m n k
// What such a store adds to a tile of 128 x 128 where blocks do not share operands: 4096 x 4097 x 4096 takes 266 us in
// such tiles and 221 in clusters of two, 189 and 191 with n = 4096.
constexpr double kScatteredTileUs = 1.31;

std::int64_t tma_elements(DType dtype) { return kTmaBytes / element_size(dtype); }

bool fits(DType dtype, std::int64_t length, std::int64_t lines, std::int64_t pitch) {
  return lines == 1 || (pitch >= length && pitch % tma_elements(dtype) == 0 && pitch < kMaxPitch);
}

OperandView view(const Problem& p, const Operand& operand, std::int64_t lines, std::int64_t line_stride,
                 std::int64_t k_stride, bool takes_mn_major) {
  OperandView result;
  const std::int64_t k = p.k;
  const std::int64_t tma = tma_elements(p.dtype);
  result.is_batched = p.batch > 1 && operand.batch_stride != 0;
  const bool aligned = is_aligned(operand.data, kTmaBytes) &&
                       (!result.is_batched || (operand.batch_stride > 0 && operand.batch_stride % tma == 0 &&
                                               operand.batch_stride < kMaxPitch));
  const bool k_major = (k_stride == 1 || k == 1) && fits(p.dtype, k, lines, line_stride);
  const bool mn_major = takes_mn_major && (line_stride == 1 || lines == 1) && fits(p.dtype, lines, k, k_stride);
  result.is_addressable = aligned && (k_major || mn_major);
  result.has_unit_stride = k_stride == 1 || line_stride == 1;
  if (!result.is_addressable) {
    result.is_mn_major = takes_mn_major && k_stride != 1 && (line_stride == 1 || line_stride < k_stride);
    const std::int64_t length = result.is_mn_major ? lines : k;
    result.pitch = round_up(length, kPackedPitch);
    result.batch_pitch = result.pitch * (result.is_mn_major ? k : lines);
    return result;
  }
  result.is_mn_major = !k_major;
  const std::int64_t length = k_major ? k : lines;
  const std::int64_t count = k_major ? lines : k;
  // The pitch of a single line may be anything, and that of a single matrix does not exist.
  result.pitch = count == 1 ? round_up(length, tma) : (k_major ? line_stride : k_stride);
  result.batch_pitch = result.is_batched ? operand.batch_stride : result.pitch;
  return result;
}

std::int64_t packed_bytes(const Problem& p, const OperandView& v, std::int64_t lines) {
  return v.pitch * (v.is_mn_major ? p.k : lines) * (v.is_batched ? p.batch : 1) * element_size(p.dtype);
}

// An operand that is read where it lies, its lines not on 128 bytes.
bool is_off_lines(const Problem& p, const Operand& operand, const OperandView& v) {
  return v.pitch * element_size(p.dtype) % kLineBytes != 0 || !is_aligned(operand.data, kLineBytes);
}

bool is_result_off_lines(const Problem& p) {
  const std::int64_t pitch = p.d.col_stride == 1 ? p.d.row_stride : p.d.col_stride;
  return pitch * element_size(p.dtype) % kLineBytes != 0 || !is_aligned(p.d.data, kLineBytes);
}

// Bytes that are copied before the kernel can read the operands, those whose order changes on the way counted twice.
std::int64_t copying(const Problem& p) {
  const auto of = [&](const OperandView& v, std::int64_t lines, std::int64_t line_stride) {
    if (v.is_addressable) return std::int64_t{0};
    return (!v.is_mn_major && line_stride == 1 && lines > 1 ? 2 : 1) * packed_bytes(p, v, lines);
  };
  return of(view_a(p), p.m, p.a.row_stride) + of(view_b(p), p.n, p.b.col_stride);
}

bool representable(const Problem& p) {
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0) return false;  // nothing to plan
  return p.m <= kMaxSize && p.n <= kMaxSize && p.k <= kMaxSize && p.batch <= kMaxSize;
}

// What tiles of the same width work on, with a where it lies or copied, and displaced.
struct KernelProblems {
  explicit KernelProblems(const Problem& kernel_problem)
      : straight(kernel_problem), displaced(displaced_problem(kernel_problem)) {}
  const Problem* of(const WgmmaTile& tile, bool is_a_displaced) const {
    if (!is_a_displaced) return &straight;
    return wgmma_displaces(tile) && displaced.has_value() ? &*displaced : nullptr;
  }

  Problem straight;
  std::optional<Problem> displaced;
};

// Blocks that are resident at once, whole clusters.
std::int64_t wgmma_slots(const DeviceFacts& device, const WgmmaTile& tile) {
  const int sharers = wgmma_sharers(tile);
  return std::int64_t{device.sm_count} / sharers * sharers * tile.per_sm;
}

// Tiles, each for every piece of k.
std::int64_t wgmma_items(const Problem& p, const Plan& plan) {
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  return wgmma_row_tiles(p, tile) * ceil_div(p.n, tile.n) * p.batch * plan.splits;
}

// Whether blocks work on more than one tile.
bool has_several_waves(const Problem& p, const Plan& plan) { return wgmma_items(p, plan) > plan.grid[0]; }

WgmmaWorkspace workspace_of(const Problem& p, const Plan& plan) {
  constexpr std::int64_t kAlignment = 256;
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  WgmmaWorkspace w;
  if (plan.splits > 1 && !splits_in_cluster(tile)) w.bytes = p.m * p.n * p.batch * plan.splits * 4;
  if (plan.tail_tiles > 0) {
    w.arrivals = plan.tail_tiles * plan.tail_splits * tile.m * tile.n * 4;
    w.bytes = w.arrivals + plan.tail_tiles * wgmma_consumers(tile) * 8;
  }
  w.bytes = round_up(w.bytes, kAlignment);
  w.packed_a = w.bytes;
  if (plan.is_a_packed) w.bytes += round_up(packed_bytes(p, view_a(p), p.m), kAlignment);
  w.packed_b = w.bytes;
  if (plan.is_b_packed) w.bytes += round_up(packed_bytes(p, view_b(p), p.n), kAlignment);
  return w;
}

// Pieces of k for each tile of the last, unfilled wave, so that every block gets as many of them as there are rounds.
std::int64_t tail_splits(const Problem& p, const DeviceFacts& device, const Plan& plan, int rounds) {
  const std::int64_t slots = wgmma_slots(device, kWgmmaTiles[plan.config]);
  const std::int64_t tail = slots == 0 ? 0 : wgmma_items(p, plan) % slots;
  if (tail == 0) return 1;
  // More pieces take less time to multiply, and more to add up: least is where both take as long.
  const auto steps = static_cast<double>(wgmma_k_blocks(p, plan.is_a_displaced));
  return std::min({rounds * slots / tail, 1 + static_cast<std::int64_t>(std::sqrt(steps / 2)), kMaxTailSplits});
}

// The plan with the tiles of its last, unfilled wave in `splits` pieces of k; none where there is no such wave.
std::optional<Plan> with_tail(const Problem& p, const DeviceFacts& device, Plan plan, std::int64_t splits) {
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  const std::int64_t slots = wgmma_slots(device, tile), tiles = wgmma_items(p, plan);
  if (plan.splits > 1 || splits < 2 || !wgmma_has_tail(tile) || slots == 0) return std::nullopt;
  const std::int64_t k_blocks = wgmma_k_blocks(p, plan.is_a_displaced), blocks = ceil_div(k_blocks, splits);
  plan.tail_tiles = tiles % slots;
  plan.tail_splits = ceil_div(k_blocks, blocks);
  plan.tail_k = blocks * plan.tile_k;
  if (plan.tail_tiles == 0 || plan.tail_splits < 2) return std::nullopt;
  const std::int64_t pieces = plan.tail_tiles * plan.tail_splits, items = tiles - plan.tail_tiles + pieces;
  if (items > kMaxSize || pieces * tile.m * tile.n > kMaxSize) return std::nullopt;
  plan.grid[0] = std::min(items, slots);
  plan.workspace_bytes = workspace_of(p, plan).bytes;
  return plan;
}

// `use` of the plan with its last wave of tiles in as many pieces as make one round of blocks, two, ..., each number
// once.
template <class Use>
void for_each_tail(const Problem& p, const DeviceFacts& device, const Plan& plan, Use use) {
  std::int64_t before = 1;
  for (int rounds = 1; rounds <= kMaxTailRounds; ++rounds) {
    const std::optional<Plan> tailed = with_tail(p, device, plan, tail_splits(p, device, plan, rounds));
    if (!tailed.has_value() || tailed->tail_splits == before) continue;
    before = tailed->tail_splits;
    use(*tailed);
  }
}

// p: the kernel's problem.
std::optional<Plan> make_plan(const Problem& p, const DeviceFacts& device, int config, std::int64_t splits,
                              bool is_a_displaced) {
  const WgmmaTile& tile = kWgmmaTiles[config];
  const int step = wgmma_step(element_size(p.dtype));
  const std::int64_t k_blocks = wgmma_k_blocks(p, is_a_displaced);
  const std::int64_t split_blocks = ceil_div(k_blocks, splits);
  splits = ceil_div(k_blocks, split_blocks);
  const bool in_cluster = splits_in_cluster(tile);
  if (in_cluster && (splits < 2 || splits > kMaxKCluster)) return std::nullopt;
  const std::int64_t row_tiles = wgmma_row_tiles(p, tile);
  const std::int64_t col_tiles = ceil_div(p.n, tile.n);
  // Bounded factor by factor, so that no product overflows.
  std::int64_t items = row_tiles;
  for (const std::int64_t factor : {col_tiles, p.batch, splits}) {
    items *= factor;
    if (items > kMaxSize) return std::nullopt;
  }
  Plan plan;
  plan.algorithm = Algorithm::kWgmma;
  plan.is_cuda = true;
  plan.config = config;
  plan.tile_m = tile.m;
  plan.tile_n = tile.n;
  plan.tile_k = step;
  plan.stages = tile.stages;
  plan.cluster = in_cluster ? static_cast<int>(splits) : tile.cluster;
  plan.splits = static_cast<int>(splits);
  plan.split_k = split_blocks * step;
  const OperandView a = view_a(p), b = view_b(p);
  const bool realigns = tile.realigns && element_size(p.dtype) == 2;
  plan.is_a_realigned = realigns && !a.is_addressable && a.has_unit_stride;
  plan.is_b_realigned = realigns && !b.is_addressable && b.has_unit_stride;
  if (tile.realigns && !plan.is_a_realigned && !plan.is_b_realigned) return std::nullopt;
  if (!wgmma_takes(tile, element_size(p.dtype), a.is_mn_major, b.is_mn_major)) return std::nullopt;
  plan.is_a_displaced = is_a_displaced;
  plan.is_a_packed = !a.is_addressable && !plan.is_a_realigned && !is_a_displaced;
  plan.is_b_packed = !b.is_addressable && !plan.is_b_realigned;
  // Persistent blocks, as many as are resident at once; but a cluster over k does one tile.
  plan.grid[0] = in_cluster ? items : std::min(items, wgmma_slots(device, tile));
  plan.grid[1] = plan.grid[2] = 1;
  plan.block[0] = wgmma_threads(tile);
  plan.block[1] = 1;
  plan.dynamic_shared_bytes = wgmma_shared_bytes(wgmma_tile(config, element_size(p.dtype), a.is_mn_major));
  plan.workspace_bytes = workspace_of(p, plan).bytes;
  return plan;
}

// Estimated microseconds of a plan: waves of tiles, or the memory's time for the operands and the result, whichever is
// longer; copies of operands, and the second pass over partial sums.
double cost(const Problem& p, const DeviceFacts& device, const Plan& plan) {
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  const TileCost& tile_cost = kWgmmaCosts[plan.config];
  const bool is_large_cluster = splits_in_cluster(tile) && plan.splits > 2;
  const auto slots =
      static_cast<std::int64_t>(device.sm_count * (is_large_cluster ? kClusterShare : 1.0)) * tile.per_sm;
  const std::int64_t items = wgmma_items(p, plan);
  const double share = tile.per_sm > 1 && items <= device.sm_count ? kAloneShare : 1.0;
  const double steps = static_cast<double>(plan.split_k) / static_cast<double>(plan.tile_k);
  const bool is_fed = element_size(p.dtype) == 4 && view_a(p).is_mn_major;
  const bool is_scattered = element_size(p.dtype) == 2 && !stores_by_tma(p);
  const double scattered =
      is_scattered && wgmma_sharers(tile) == 1 ? kScatteredTileUs * tile.m * tile.n / (128.0 * 128.0) : 0.0;
  double step = tile_cost.step * (is_fed ? tile_cost.fed : 1.0) * share;
  const double products = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (wgmma_sharers(tile) == 1 && !plan.is_a_displaced && products >= kLargeProduct && is_result_off_lines(p)) {
    step *= tile.n == 256 ? kUnsharedWideShare : kUnsharedShare;
  }
  double compute = static_cast<double>(ceil_div(items - plan.tail_tiles, std::max<std::int64_t>(slots, 1))) *
                   (steps * step + tile_cost.fixed + scattered);
  if (plan.tail_tiles > 0) {
    compute += static_cast<double>(ceil_div(plan.tail_tiles * plan.tail_splits, slots)) *
               (static_cast<double>(plan.tail_k) / static_cast<double>(plan.tile_k) * step + kTailFixedUs);
  }
  const auto elements = [](std::int64_t rows, std::int64_t cols, std::int64_t batch) {
    return static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(batch);
  };
  const int bytes = element_size(p.dtype);
  const double a = elements(p.m, p.k, view_a(p).is_batched ? p.batch : 1);
  const double b = elements(p.k, p.n, view_b(p).is_batched ? p.batch : 1);
  const double d = elements(p.m, p.n, p.batch);
  const double memory = (a + b + d) * bytes / kBytesPerUs;
  // Lines of tiles that do not start on 128 bytes, which TMA reads in two.
  const bool is_a_off = plan.is_a_displaced || (!plan.is_a_packed && is_off_lines(p, p.a, view_a(p)));
  const bool is_b_off = !plan.is_b_packed && is_off_lines(p, p.b, view_b(p));
  const double lines = (is_a_off ? tile.m : 0.0) + (is_b_off ? 1.0 * tile.n / wgmma_sharers(tile) : 0.0);
  const double split_lines = static_cast<double>(items) * steps * lines / kSplitLinesPerUs;
  double total = kLaunchUs + std::max({compute, memory, split_lines}) + (1 - kHiddenShare) * std::min(compute, memory);
  if (plan.is_a_packed || plan.is_b_packed) total += kPackLaunchUs;
  if (plan.is_a_packed) total += a * 2 * bytes / kPackBytesPerUs;
  if (plan.is_b_packed) total += b * 2 * bytes / kPackBytesPerUs;
  if (is_scattered) total += d * bytes / kScatteredBytesPerUs;
  if (plan.tail_tiles > 0) {
    total += static_cast<double>(plan.tail_splits * tile.m * tile.n * 4) / kTailBytesPerUs;
  }
  if (plan.splits > 1 && !splits_in_cluster(tile)) {
    total += kReduceLaunchUs + d * 2 * sizeof(float) * plan.splits / kReduceBytesPerUs;
  }
  return total;
}

}  // namespace

Problem row_major_problem(const Problem& problem) {
  return problem.d.col_stride == 1 || problem.d.row_stride != 1 ? problem : exchanged(problem);
}

// float32 takes an a of either order, and b along k alone: exchanged, fewer copies may do.
Problem wgmma_problem(const Problem& problem, const WgmmaTile& tile) {
  if (tile.n < 64) return problem.m < problem.n ? exchanged(problem) : problem;
  const Problem p = row_major_problem(problem);
  if (element_size(p.dtype) == 2) return p;
  const Problem other = exchanged(p);
  return copying(other) < copying(p) ? other : p;
}

std::int64_t elements_off_boundary(const Operand& operand, DType dtype) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(operand.data) % kTmaBytes) / element_size(dtype);
}

// The kernel takes it with a along k and b along n alone (kMayDisplace).
std::optional<Problem> displaced_problem(const Problem& kernel_problem) {
  Problem p = kernel_problem;
  if (element_size(p.dtype) != 2 || p.batch != 1 || p.a.col_stride != 1 || p.k == 1) return std::nullopt;
  const std::int64_t tma = tma_elements(p.dtype), pitch = p.a.row_stride;
  if (view_a(p).is_addressable || !view_b(p).is_mn_major || (p.m > 1 && pitch < p.k)) return std::nullopt;
  const std::int64_t period = p.m == 1 ? 1 : tma / std::gcd(pitch, tma);
  if (p.m % period != 0 || period * pitch >= kMaxSize - p.k) return std::nullopt;
  p.m /= period;
  p.batch = period;
  p.a = {p.a.data, period * pitch, 1, pitch};
  p.b.batch_stride = 0;
  p.c.batch_stride = p.c.row_stride, p.c.row_stride *= period;
  p.d.batch_stride = p.d.row_stride, p.d.row_stride *= period;
  return p;
}

Problem wgmma_problem(const Problem& problem, const Plan& plan) {
  const Problem p = wgmma_problem(problem, kWgmmaTiles[plan.config]);
  return plan.is_a_displaced ? displaced_problem(p).value_or(p) : p;
}

std::int64_t wgmma_k_blocks(const Problem& p, bool is_a_displaced) {
  return ceil_div(p.k + (is_a_displaced ? tma_elements(p.dtype) - 1 : 0), wgmma_step(element_size(p.dtype)));
}

std::int64_t wgmma_row_tiles(const Problem& p, const WgmmaTile& tile) {
  return round_up(ceil_div(p.m, tile.m), wgmma_sharers(tile));
}

OperandView view_a(const Problem& p) { return view(p, p.a, p.m, p.a.row_stride, p.a.col_stride, true); }
// wgmma takes a b of float32 along k alone.
OperandView view_b(const Problem& p) {
  return view(p, p.b, p.n, p.b.col_stride, p.b.row_stride, element_size(p.dtype) == 2);
}

// Rows end on 16 bytes as well: TMA was seen to write up to there what lies past the end of a row (H200, n = 1 and
// 138).
bool stores_by_tma(const Problem& p) {
  const std::int64_t tma = tma_elements(p.dtype);
  return element_size(p.dtype) == 2 && p.n % tma == 0 && is_aligned(p.d.data, kTmaBytes) && p.d.col_stride == 1 &&
         fits(p.dtype, p.n, p.m, p.d.row_stride) &&
         (p.batch == 1 || (p.d.batch_stride > 0 && p.d.batch_stride % tma == 0 && p.d.batch_stride < kMaxPitch));
}

WgmmaWorkspace wgmma_workspace(const Problem& problem, const Plan& plan) {
  return workspace_of(wgmma_problem(problem, plan), plan);
}

bool wgmma_available(DType dtype, const DeviceFacts& device, Float32Precision precision) {
  const bool is_tf32 = dtype == DType::kFloat32 && precision == Float32Precision::kTf32;
  return device.is_cuda && device.compute_capability == 90 && device.shared_memory_opt_in >= 227 * 1024 &&
         (dtype == DType::kFloat16 || dtype == DType::kBFloat16 || is_tf32);
}

std::optional<Plan> wgmma_plan(const Problem& problem, const DeviceFacts& device) {
  if (!representable(problem)) return std::nullopt;
  const std::int64_t k_blocks = ceil_div(problem.k, wgmma_step(element_size(problem.dtype)));
  // The choice is made at every call: no more of it than there is to choose from.
  const bool is_copied = !view_a(problem).is_addressable || !view_b(problem).is_addressable;
  const KernelProblems wide(wgmma_problem(problem, kWideTile)), thin(wgmma_problem(problem, kThinTile));
  std::optional<Plan> best;
  double best_cost = 0;
  for (int config = 0; config < kWgmmaTileCount; ++config) {
    const WgmmaTile& tile = kWgmmaTiles[config];
    const KernelProblems& problems = tile.n < 64 ? thin : wide;
    const Problem& p = problems.straight;
    // Pieces of k only where the tiles leave half of the GPU idle, and each piece has work for its stages.
    const std::int64_t tiles = std::min<std::int64_t>(ceil_div(p.m, tile.m), device.sm_count) *
                               std::min<std::int64_t>(ceil_div(p.n, tile.n), device.sm_count) *
                               std::min<std::int64_t>(p.batch, device.sm_count);
    const std::int64_t slots = std::int64_t{device.sm_count} * tile.per_sm;
    std::int64_t most = tiles * 2 > slots ? 1 : std::min(slots / tiles, std::max<std::int64_t>(k_blocks / 4, 1));
    if (splits_in_cluster(tile)) most = std::min<std::int64_t>(most, kMaxKCluster);
    for (std::int64_t splits = 1; splits <= most; splits += splits < 16 ? 1 : splits / 8) {
      for (const bool is_a_displaced : {false, true}) {
        const Problem* const kernel_problem = problems.of(tile, is_a_displaced);
        if (kernel_problem == nullptr || (is_a_displaced && !is_copied)) continue;
        const std::optional<Plan> plan = make_plan(*kernel_problem, device, config, splits, is_a_displaced);
        if (!plan.has_value()) continue;
        const auto consider = [&](const Plan& candidate) {
          const double estimate = cost(*kernel_problem, device, candidate);
          if (!best.has_value() || estimate < best_cost) {
            best = candidate;
            best_cost = estimate;
          }
        };
        consider(*plan);
        if (has_several_waves(*kernel_problem, *plan)) for_each_tail(*kernel_problem, device, *plan, consider);
      }
    }
  }
  return best;
}

std::vector<Plan> wgmma_plans(const Problem& problem, const DeviceFacts& device) {
  std::vector<Plan> plans;
  if (!representable(problem) || !wgmma_available(problem.dtype, device, problem.precision)) return plans;
  const KernelProblems wide(wgmma_problem(problem, kWideTile)), thin(wgmma_problem(problem, kThinTile));
  for (int config = 0; config < kWgmmaTileCount; ++config) {
    const WgmmaTile& tile = kWgmmaTiles[config];
    for (const int splits : {1, 2, 3, 4, 8, 16}) {
      for (const bool is_a_displaced : {false, true}) {
        const Problem* const kernel_problem = (tile.n < 64 ? thin : wide).of(tile, is_a_displaced);
        if (kernel_problem == nullptr) continue;
        const std::optional<Plan> plan = make_plan(*kernel_problem, device, config, splits, is_a_displaced);
        if (!plan.has_value() || plan->splits != splits) continue;
        plans.push_back(*plan);
        if (has_several_waves(*kernel_problem, *plan)) {
          for_each_tail(*kernel_problem, device, *plan, [&](const Plan& tailed) { plans.push_back(tailed); });
        } else if (const std::optional<Plan> tailed = with_tail(*kernel_problem, device, *plan, 2)) {
          plans.push_back(*tailed);  // all of the problem is its last wave: two pieces show whether they are right
        }
      }
    }
  }
  return plans;
}

}  // namespace pmpp::matmul
