#include "csrc/tiled_matmul/launch_emulated.hpp"

#include <cstddef>

#include "csrc/common/device_facts.hpp"
#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/emulated.cuh"
#include "csrc/tiled_matmul/emulated_reduce.cuh"
#include "csrc/tiled_matmul/select_emulated.hpp"
#include "csrc/tiled_matmul/select_wgmma.hpp"
#include "csrc/tiled_matmul/split.cuh"
#include "csrc/tma/tensor_map.hpp"

namespace pmpp::matmul {
namespace {

// Also tells the kernel of the products where to find what the blocks report.
template <class T>
cudaError_t launch_split(const Problem& p, const PlaneLayout& a, const PlaneLayout& b, std::byte* workspace,
                         const EmulatedWorkspace& offsets, EmulatedArguments<T>* products, cudaStream_t stream) {
  SplitArguments arguments;
  arguments.operand[0] = split_operand(p.a, a, workspace + offsets.planes_a);
  arguments.operand[1] = split_operand(p.b, b, workspace + offsets.planes_b);
  arguments.subnormal = reinterpret_cast<std::uint8_t*>(workspace + offsets.subnormal);
  const std::int64_t blocks = arguments.operand[0].blocks + arguments.operand[1].blocks;
  products->subnormal = reinterpret_cast<const uint4*>(arguments.subnormal);
  products->subnormal_words = ceil_div(blocks, kSubnormalWord);
  if (blocks > kMaxGridX) return cudaErrorInvalidValue;
  tiled_matmul_split_kernel<T><<<static_cast<unsigned>(blocks), kSplitThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

// Each of the `blocks` that share its tiles loads a part of the lines.
cudaError_t encode_planes(CUtensorMap* map, const void* planes, const PlaneLayout& layout, int tile_lines, int blocks) {
  tma::MatrixMap matrix;
  matrix.dtype = DType::kBFloat16;
  matrix.data = planes;
  matrix.length = layout.length;
  matrix.lines = layout.lines;
  matrix.batch = layout.batch * kPlanes;
  matrix.pitch = layout.pitch;
  matrix.batch_pitch = layout.pitch * layout.lines;
  matrix.box_lines = (layout.is_mn_major ? kWgmmaK : tile_lines) / blocks;
  return tma::encode(map, matrix);
}

template <class T>
cudaError_t launch_emulated_reduce(const EmulatedArguments<T>& arguments, cudaStream_t stream) {
  const Arguments<T>& p = arguments.problem;
  constexpr std::int64_t kElements = kEmulatedReduceThreads * kEmulatedReduceElements;
  // It may start while the product kernel still runs, and waits for it itself.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ceil_div(p.batch * p.m * p.n, kElements)));
  config.blockDim = dim3(kEmulatedReduceThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto* const partial = reinterpret_cast<const T*>(arguments.schedule.partial);
  return cudaLaunchKernelEx(&config, tiled_matmul_emulated_reduce_kernel<T>, p, partial,
                            static_cast<int>(arguments.schedule.splits));
}

template <class T>
cudaError_t launch_emulated_typed(const Plan& plan, const Problem& p, void* workspace, cudaStream_t stream) {
  const EmulatedTile& tile = kEmulatedTiles[plan.config];
  const PlaneLayout a = planes_of_a(p), b = planes_of_b(p);
  const EmulatedWorkspace offsets = emulated_workspace(p, plan);
  auto* const bytes = static_cast<std::byte*>(workspace);

  EmulatedArguments<T> arguments = {};
  arguments.problem = make_arguments<T>(p);
  arguments.chain = emulated_chain(p.k);
  cudaError_t error = encode_planes(&arguments.a, bytes + offsets.planes_a, a, tile.m, 1);
  if (error == cudaSuccess) error = encode_planes(&arguments.b, bytes + offsets.planes_b, b, tile.n, tile.cluster);
  if (error == cudaSuccess) {
    error = launch_split(p, a, b, bytes, offsets, &arguments, stream);
  }
  if (error != cudaSuccess) return error;

  WgmmaSchedule& s = arguments.schedule;
  s.set_tiles(round_up(ceil_div(p.m, tile.m), tile.cluster), ceil_div(p.n, plan.tile_n));
  s.splits = Divisor(static_cast<std::int32_t>(plan.splits));
  s.batch = static_cast<std::int32_t>(p.batch);
  s.k_blocks = static_cast<std::int32_t>(ceil_div(p.k, plan.tile_k));
  s.split_blocks = static_cast<std::int32_t>(plan.split_k / plan.tile_k);
  arguments.items = s.row_tiles * s.col_tiles * s.splits * s.batch;
  s.a_batched = a.is_batched;
  s.b_batched = b.is_batched;
  s.partial = plan.splits > 1 ? reinterpret_cast<float*>(bytes) : nullptr;
  if (a.is_mn_major) {
    error = b.is_mn_major ? launch_emulated_layout<T, true, true>(plan, arguments, stream)
                          : launch_emulated_layout<T, true, false>(plan, arguments, stream);
  } else {
    error = b.is_mn_major ? launch_emulated_layout<T, false, true>(plan, arguments, stream)
                          : launch_emulated_layout<T, false, false>(plan, arguments, stream);
  }
  if (error != cudaSuccess || plan.splits == 1) return error;
  return launch_emulated_reduce(arguments, stream);
}

}  // namespace

cudaError_t launch_emulated(const Plan& plan, const Problem& problem, void* workspace, cudaStream_t stream) {
  if (plan.config < 0 || plan.config >= kEmulatedTileCount) return cudaErrorInvalidValue;
  const Problem p = row_major_problem(problem);
  if (p.dtype == DType::kFloat32) return launch_emulated_typed<float>(plan, p, workspace, stream);
  if (p.dtype == DType::kComplex64) return launch_emulated_typed<Complex<float>>(plan, p, workspace, stream);
  return cudaErrorInvalidValue;
}

}  // namespace pmpp::matmul
