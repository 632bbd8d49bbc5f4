#include "csrc/padded_transpose/vectorized.hpp"

#include "csrc/common/int_math.hpp"
#include "csrc/common/shared_memory.cuh"
#include "csrc/padded_transpose/vectorized_aligned.cuh"
#include "csrc/padded_transpose/vectorized_copy.cuh"
#include "csrc/padded_transpose/vectorized_gather.cuh"
#include "csrc/padded_transpose/vectorized_narrow.cuh"
#include "csrc/padded_transpose/vectorized_staged.cuh"

namespace pmpp::transposition {
namespace {

dim3 grid_of(const Plan& plan) {
  return dim3(static_cast<unsigned>(plan.grid[0]), static_cast<unsigned>(plan.grid[1]),
              static_cast<unsigned>(plan.grid[2]));
}

// ceil(2^32 / divisor), for a divisor of at least 2.
unsigned reciprocal(int divisor) { return static_cast<unsigned>(ceil_div(std::int64_t{1} << 32, divisor)); }

unsigned row_tiles(const Plan& plan, const Problem& problem) {
  return static_cast<unsigned>(plan.grid[0] / ceil_div(problem.n, plan.tile_n));
}

template <class E, int kLevel>
cudaError_t launch_aligned(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  constexpr TileShape kShape = aligned_tile(sizeof(E), kLevel);
  constexpr int kBytes = aligned_shared_bytes(kShape, sizeof(E));
  static_assert(kBytes <= kMaxShared);
  constexpr auto kKernel = padded_transpose_aligned_kernel<E, kShape.source_bytes, kShape.dest_bytes, kShape.threads>;
  if constexpr (kBytes > kMaxStaticShared) {
    if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  }
  const unsigned rows = row_tiles(plan, problem);
  const unsigned cols = static_cast<unsigned>(plan.grid[0]) / rows;
  kKernel<<<grid_of(plan), kShape.threads, kBytes, stream>>>(make_arguments<E>(problem), plan.across ? cols : rows,
                                                             plan.across);
  return cudaGetLastError();
}

template <int kLevel, bool kAlignedDest>
cudaError_t launch_staged(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  constexpr TileShape kShape = staged_tile(kLevel, kAlignedDest);
  constexpr int kHalo = staged_halo(kLevel, kAlignedDest);
  constexpr int kBytes = staged_shared_bytes(kShape, kHalo);
  static_assert(kBytes == StagedTile<kShape.source_bytes, kShape.dest_bytes, kShape.threads, kHalo>::kSharedBytes);
  static_assert(kBytes <= kMaxStaticShared);
  padded_transpose_staged_kernel<kShape.source_bytes, kShape.dest_bytes, kShape.threads, kHalo>
      <<<grid_of(plan), kShape.threads, kBytes, stream>>>(make_arguments<std::uint8_t>(problem),
                                                          row_tiles(plan, problem));
  return cudaGetLastError();
}

template <class E, int kLevel, bool kAlignedDest>
cudaError_t launch_gather(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  constexpr TileShape kShape = gather_tile(sizeof(E), kLevel);
  constexpr int kHalo = gather_halo(kLevel, kAlignedDest);
  constexpr int kBytes = gather_shared_bytes(kShape, sizeof(E), kHalo);
  static_assert(kBytes == GatherTile<sizeof(E), kShape.source_bytes, kShape.dest_bytes, kHalo>::kSharedBytes);
  static_assert(kBytes <= kMaxShared);
  constexpr auto kKernel = padded_transpose_gather_kernel<E, kShape.source_bytes, kShape.dest_bytes, kShape.threads,
                                                          gather_lanes(sizeof(E), kLevel), kHalo>;
  if constexpr (kBytes > kMaxStaticShared) {
    if (const cudaError_t error = allow_shared_memory<kKernel, kBytes>(); error != cudaSuccess) return error;
  }
  kKernel<<<grid_of(plan), kShape.threads, kBytes, stream>>>(make_arguments<E>(problem), row_tiles(plan, problem));
  return cudaGetLastError();
}

// Calls launch.operator()<level, aligned destination>().
template <class Launch>
cudaError_t with_shape(const Plan& plan, const Launch& launch) {
  const auto with_level = [&]<int kLevel>() {
    return plan.halo == 0 ? launch.template operator()<kLevel, true>() : launch.template operator()<kLevel, false>();
  };
  if (plan.level == 0) return with_level.template operator()<0>();
  return plan.level == 1 ? with_level.template operator()<1>() : with_level.template operator()<2>();
}

template <class E>
cudaError_t launch_narrow_source(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  const NarrowSource launch = {plan.tile_m / kPerChunk<E>, plan.pitch, plan.pieces, plan.lanes,
                               reciprocal(plan.pieces)};
  const auto kernel =
      plan.halo == 0 ? padded_transpose_narrow_source_kernel<E, true> : padded_transpose_narrow_source_kernel<E, false>;
  kernel<<<grid_of(plan), plan.block[0], plan.shared_bytes, stream>>>(make_arguments<E>(problem), launch);
  return cudaGetLastError();
}

template <class E>
cudaError_t launch_narrow_dest(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  const NarrowDest launch = {plan.tile_n * static_cast<int>(sizeof(E)), plan.pitch, plan.pieces,
                             reciprocal(plan.pieces), reciprocal(static_cast<int>(problem.m))};
  padded_transpose_narrow_dest_kernel<E, narrow_dest_piece(sizeof(E))>
      <<<grid_of(plan), plan.block[0], plan.shared_bytes, stream>>>(make_arguments<E>(problem), launch);
  return cudaGetLastError();
}

template <class E>
cudaError_t launch_copy(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  padded_transpose_copy_kernel<E>
      <<<grid_of(plan), plan.block[0], 0, stream>>>(make_arguments<E>(problem), plan.lanes, plan.across);
  return cudaGetLastError();
}

template <class E>
cudaError_t launch_typed(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  switch (plan.method) {
    case Method::kAligned:
      return plan.level == 0 ? launch_aligned<E, 0>(plan, problem, stream)
                             : launch_aligned<E, 1>(plan, problem, stream);
    case Method::kStaged:
      if constexpr (sizeof(E) == 1) {
        return with_shape(
            plan, [&]<int kLevel, bool kAligned>() { return launch_staged<kLevel, kAligned>(plan, problem, stream); });
      }
      return cudaErrorInvalidValue;
    case Method::kGather:
      if constexpr (sizeof(E) == 2 || sizeof(E) == 4 || sizeof(E) == 8) {
        return with_shape(plan, [&]<int kLevel, bool kAligned>() {
          return launch_gather<E, kLevel, kAligned>(plan, problem, stream);
        });
      }
      return cudaErrorInvalidValue;
    case Method::kNarrowSource:
      return launch_narrow_source<E>(plan, problem, stream);
    case Method::kNarrowDest:
      return launch_narrow_dest<E>(plan, problem, stream);
    case Method::kCopy:
      return launch_copy<E>(plan, problem, stream);
    case Method::kDriverCopy:
      return cudaMemcpyAsync(problem.out, problem.in,
                             static_cast<std::size_t>(problem.m * problem.n * problem.batch) * sizeof(E),
                             cudaMemcpyDeviceToDevice, stream);
    case Method::kStrided:
    case Method::kNone:
    case Method::kCpuTiles:
    case Method::kCpuNarrow:
    case Method::kCpuCopy:
    case Method::kCpuStrided:
      return cudaErrorInvalidValue;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_vectorized(const Plan& plan, const Problem& problem, cudaStream_t stream) {
  if (problem.element_size == 16) return launch_typed<Bytes16>(plan, problem, stream);
  return visit_element_size(problem.element_size, [&]<class E>() {
    if constexpr (sizeof(E) == 16) {
      return cudaErrorInvalidValue;  // taken above, with a type that a GPU moves in one access
    } else {
      return launch_typed<E>(plan, problem, stream);
    }
  });
}

}  // namespace pmpp::transposition
