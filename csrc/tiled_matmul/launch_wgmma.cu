#include "csrc/tiled_matmul/launch_wgmma.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <random>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/pack.hpp"
#include "csrc/tiled_matmul/reduce.hpp"
#include "csrc/tiled_matmul/repack.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"
#include "csrc/tiled_matmul/wgmma.cuh"
#include "csrc/tma/tensor_map.hpp"

namespace pmpp::matmul {
namespace {

// An operand that TMA cannot address, and where it is copied to, in the order in which it lies.
struct PackedOperand {
  const Operand* operand;
  const OperandView* view;
  std::int64_t lines, line_stride, k_stride;
  void* to;
};

// One launch for all operands whose elements lie next to each other.
cudaError_t pack_operands(const Problem& p, const PackedOperand* packed, int count, const DeviceFacts& device,
                          cudaStream_t stream) {
  Repack repacks[kMaxRepacks];
  int repack_count = 0;
  for (int i = 0; i < count; ++i) {
    const PackedOperand& from = packed[i];
    const OperandView& view = *from.view;
    const std::int64_t rows = view.is_mn_major ? p.k : from.lines, cols = view.is_mn_major ? from.lines : p.k;
    const std::int64_t row_stride = view.is_mn_major ? from.k_stride : from.line_stride;
    const std::int64_t col_stride = view.is_mn_major ? from.line_stride : from.k_stride;
    const std::int64_t batch = view.is_batched ? p.batch : 1;
    const std::int64_t words = element_size(p.dtype) / 2;  // float32 is copied as two elements of 2 bytes
    if (col_stride == 1 && cols <= std::numeric_limits<std::int32_t>::max() / words) {
      Repack& repack = repacks[repack_count++];
      repack.length = cols * words;
      repack.lines = rows;
      repack.batch = batch;
      repack.in = from.operand->data;
      repack.in_pitch = row_stride * words;
      repack.in_batch_stride = from.operand->batch_stride * words;
      repack.out = from.to;
      repack.out_pitch = view.pitch * words;
      repack.out_batch_stride = view.batch_pitch * words;
      continue;
    }
    transposition::Pack pack;
    pack.element_size = element_size(p.dtype);
    pack.rows = rows;
    pack.cols = cols;
    pack.batch = batch;
    pack.in = from.operand->data;
    pack.in_row_stride = row_stride;
    pack.in_col_stride = col_stride;
    pack.in_batch_stride = from.operand->batch_stride;
    pack.out = from.to;
    pack.pitch = view.pitch;
    pack.is_padding_zeroed = false;  // TMA knows where the rows end
    if (const cudaError_t error = transposition::pack(pack, device, stream); error != cudaSuccess) return error;
  }
  return repack_count == 0 ? cudaSuccess : launch_repack(repacks, repack_count, stream);
}

// Each of the `blocks` that share its tiles loads a part of the lines. `fed_pitch` is that of an operand that reaches
// the tensor cores through registers.
cudaError_t encode_operand(CUtensorMap* map, const Problem& p, const void* data, const OperandView& view,
                           std::int64_t lines, int tile_lines, int blocks, int fed_pitch) {
  tma::MatrixMap matrix;
  matrix.dtype = p.dtype;
  matrix.data = data;
  matrix.length = view.is_mn_major ? lines : p.k;
  matrix.lines = view.is_mn_major ? p.k : lines;
  matrix.batch = view.is_batched ? p.batch : 1;
  matrix.pitch = view.pitch;
  matrix.batch_pitch = view.batch_pitch;
  const int step = wgmma_step(element_size(p.dtype));
  matrix.is_swizzled = !(view.is_mn_major && p.dtype == DType::kFloat32);
  matrix.box_length = matrix.is_swizzled ? step : fed_pitch;
  matrix.box_lines = (view.is_mn_major ? step : tile_lines) / blocks;
  return tma::encode(map, matrix);
}

// From the boundary before the first row to the end of the last, as lines of all the batch's matrices: the kernel finds
// each matrix in it.
cudaError_t encode_displaced(CUtensorMap* map, const Problem& p, int tile_lines) {
  const std::int64_t off = elements_off_boundary(p.a, p.dtype);
  tma::MatrixMap matrix;
  matrix.dtype = p.dtype;
  matrix.data = static_cast<const std::byte*>(p.a.data) - off * element_size(p.dtype);
  matrix.length = off + (p.batch - 1) * p.a.batch_stride + p.k;
  matrix.lines = p.m;
  matrix.pitch = p.m == 1 ? round_up(matrix.length, 8) : p.a.row_stride;
  matrix.batch_pitch = matrix.pitch;
  matrix.box_length = wgmma_step(element_size(p.dtype));
  matrix.box_lines = tile_lines;
  return tma::encode(map, matrix);
}

cudaError_t encode_result(CUtensorMap* map, const Problem& p) {
  tma::MatrixMap matrix;
  matrix.dtype = p.dtype;
  matrix.data = p.d.data;
  matrix.length = p.n;
  matrix.lines = p.m;
  matrix.batch = p.batch;
  matrix.pitch = p.m == 1 ? round_up(p.n, 8) : p.d.row_stride;
  matrix.batch_pitch = p.batch == 1 ? matrix.pitch : p.d.batch_stride;
  return tma::encode(map, matrix);
}

// Unlike that of any other launch, and unlike what memory is likely to hold. The last 8 bits are 0.
unsigned long long next_launch_tag() {
  static std::atomic<std::uint64_t> launches = std::random_device{}();
  // splitmix64 (Steele, Lea, Flood 2014): one to one, so that numbers differ as long as the counter does.
  std::uint64_t x = launches.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) << 8;
}

template <class T>
cudaError_t launch_typed_wgmma(const Plan& plan, const Problem& p, const DeviceFacts& device, std::byte* workspace,
                               cudaStream_t stream) {
  const WgmmaTile& tile = kWgmmaTiles[plan.config];
  const OperandView a = view_a(p), b = view_b(p);
  const WgmmaWorkspace offsets = wgmma_workspace(p, plan);
  const void* a_data = p.a.data;
  const void* b_data = p.b.data;
  PackedOperand packed[kMaxRepacks];
  int packed_count = 0;
  if (plan.is_a_packed) {
    void* const to = workspace + offsets.packed_a;
    packed[packed_count++] = {&p.a, &a, p.m, p.a.row_stride, p.a.col_stride, to};
    a_data = to;
  }
  if (plan.is_b_packed) {
    void* const to = workspace + offsets.packed_b;
    packed[packed_count++] = {&p.b, &b, p.n, p.b.col_stride, p.b.row_stride, to};
    b_data = to;
  }
  cudaError_t error = pack_operands(p, packed, packed_count, device, stream);
  if (error != cudaSuccess) return error;

  WgmmaArguments<T> arguments = {};
  arguments.problem = make_arguments<T>(p);
  if (plan.is_a_displaced) {
    error = encode_displaced(&arguments.a, p, tile.m);
  } else if (!plan.is_a_realigned) {
    error = encode_operand(&arguments.a, p, a_data, a, p.m, tile.m, 1, wgmma_fed_pitch(tile));
  }
  if (error == cudaSuccess && !plan.is_b_realigned)
    error = encode_operand(&arguments.b, p, b_data, b, p.n, tile.n, wgmma_sharers(tile), 0);
  WgmmaSchedule& s = arguments.schedule;
  const bool has_partial = plan.splits > 1 && !splits_in_cluster(tile);
  s.store_by_tma = plan.splits == 1 && tile.n >= 64 && stores_by_tma(p);
  if (error == cudaSuccess && s.store_by_tma) error = encode_result(&arguments.d, p);
  if (error != cudaSuccess) return error;
  s.set_tiles(wgmma_row_tiles(p, tile), ceil_div(p.n, tile.n));
  s.splits = Divisor(plan.splits);
  s.batch = static_cast<std::int32_t>(p.batch);
  const std::int32_t items = s.row_tiles * s.col_tiles * s.splits * s.batch;
  s.whole = items - static_cast<std::int32_t>(plan.tail_tiles);
  s.items = s.whole + static_cast<std::int32_t>(plan.tail_tiles * plan.tail_splits);
  s.k_blocks = static_cast<std::int32_t>(wgmma_k_blocks(p, plan.is_a_displaced));
  s.split_blocks = static_cast<std::int32_t>(plan.split_k / wgmma_step(sizeof(T)));
  if (plan.tail_tiles > 0) {
    s.tail_tiles = Divisor(static_cast<std::int32_t>(plan.tail_tiles));
    s.tail_blocks = static_cast<std::int32_t>(plan.tail_k / wgmma_step(sizeof(T)));
    s.tail_splits = static_cast<std::int32_t>(plan.tail_splits);
    s.tail_sums = reinterpret_cast<float*>(workspace);
    s.arrivals = reinterpret_cast<unsigned long long*>(workspace + offsets.arrivals);
    s.launch_tag = next_launch_tag();
  }
  s.a_realigned = plan.is_a_realigned;
  s.b_realigned = plan.is_b_realigned;
  s.a_batched = a.is_batched && !plan.is_a_displaced;
  s.b_batched = b.is_batched;
  if (plan.is_a_displaced) {
    s.a_displaced = 1;
    s.a_apart = static_cast<std::int32_t>(p.a.batch_stride);
    s.a_start = static_cast<std::int32_t>(elements_off_boundary(p.a, p.dtype));
  }
  s.partial = has_partial ? reinterpret_cast<float*>(workspace) : nullptr;
  s.partial_along_m = sums_may_lie_along_m<T>(tile) && p.d.row_stride == 1 && p.d.col_stride != 1;

  if constexpr (sizeof(T) == sizeof(float)) {
    error = a.is_mn_major ? launch_wgmma_layout<T, true, false>(plan, arguments, stream)
                          : launch_wgmma_layout<T, false, false>(plan, arguments, stream);
  } else if (a.is_mn_major) {
    error = b.is_mn_major ? launch_wgmma_layout<T, true, true>(plan, arguments, stream)
                          : launch_wgmma_layout<T, true, false>(plan, arguments, stream);
  } else {
    error = b.is_mn_major ? launch_wgmma_layout<T, false, true>(plan, arguments, stream)
                          : launch_wgmma_layout<T, false, false>(plan, arguments, stream);
  }
  if (error != cudaSuccess || !has_partial) return error;
  return launch_reduce(s.partial_along_m ? exchanged(p) : p, s.partial, plan.splits, true, stream);
}

}  // namespace

cudaError_t launch_wgmma(const Plan& plan, const Problem& problem, const DeviceFacts& device, void* workspace,
                         cudaStream_t stream) {
  if (plan.config < 0 || plan.config >= kWgmmaTileCount) return cudaErrorInvalidValue;
  const Problem p = wgmma_problem(problem, plan);
  auto* const bytes = static_cast<std::byte*>(workspace);
  if (p.dtype == DType::kFloat32) return launch_typed_wgmma<float>(plan, p, device, bytes, stream);
  return p.dtype == DType::kFloat16 ? launch_typed_wgmma<Float16>(plan, p, device, bytes, stream)
                                    : launch_typed_wgmma<BFloat16>(plan, p, device, bytes, stream);
}

}  // namespace pmpp::matmul
