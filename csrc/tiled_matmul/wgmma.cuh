// wgmma: 16-bit floats, and float32 as tf32, through the tensor cores of sm_90a, operands loaded by the tensor memory
// accelerator (TMA).
//
// Tiling: persistent blocks walk over output tiles of m x n; k goes by in steps of 64 through a ring of stages in
// shared memory. Each warpgroup multiplies 64 rows of the tile, but the last warps load (one thread of them). Operands
// are read where they lie: a with k contiguous or (kTransA) with m, b with k contiguous or (kTransB) with n. The blocks
// of a cluster work on tiles below each other, and each loads its share of their common tile of b into all of them.
//
// float32 goes by in steps of 32 of k, which are as many bytes, b always with k contiguous; an a with m contiguous
// reaches the tensor cores through registers. TMA rounds it to the nearest tf32 on the way: the tensor cores alone
// would cut off the last 13 bits.
//
// Where TMA cannot address a, because its rows do not start on 16 bytes, it may be displaced: rows a few apart (8 where
// the pitch is odd) lie equally far off, and are a matrix of their own that starts up to 7 elements before. Those are
// the batch, and b, whose k may start anywhere, is loaded as many k earlier. What TMA brings along from outside a row
// is cleared before it is multiplied: b has zeros there, but zero times infinity is not zero.
//
// Where TMA cannot address an operand, the tiles that realign have two loading warpgroups, whose threads bring it in by
// way of registers, beside the TMA of the other operand.
//
// Barriers, for each stage: `full`, one arrival by the loading thread, which expects the bytes of both tiles, and where
// operands are realigned one by each loading warp; waited on by the multiplying warpgroups. `empty`, one arrival by
// each multiplying warpgroup (each warp of it where a is fed) of each block of the cluster when its wgmma have read the
// stage; waited on by the loading thread. Named barriers: 1 + i, warpgroup i, around its staging and what it clears;
// kLeadBarrier; kExchangeBarrier.
//
// Epilogue: the accumulators, scaled and added to c, are rounded once, staged in the 128-byte swizzle and stored by TMA
// while the next tile is multiplied; where TMA cannot address d, and in float32, by the threads. With pieces of k,
// float32 sums go to the workspace instead (reduce.cuh adds them up); or, where the pieces of a tile are the blocks of
// a cluster, through shared memory, each block adding up its share of the rows in the order of k.
//
// Preconditions: select_wgmma.cpp; TMA fills what lies outside a matrix with zeros, so sizes are free.
#pragma once

#include <cooperative_groups.h>

#include <cuda/ptx>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/wgmma_load.cuh"
#include "csrc/tiled_matmul/wgmma_multiply.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"
#include "csrc/tiled_matmul/wgmma_store.cuh"
#include "csrc/tiled_matmul/wgmma_store_float.cuh"
#include "csrc/tiled_matmul/wgmma_tail.cuh"

namespace pmpp::matmul {

// Of all multiplying warpgroups, before their sums overwrite the stages. None may still be at its own barrier.
inline constexpr int kExchangeBarrier = 5;

// Registers a thread: with two or three multiplying warpgroups the loading one gives up its share.
inline constexpr int kProducerRegisters = 24;
template <WgmmaTile kTile>
inline constexpr int kConsumerRegisters = wgmma_consumers(kTile) == 2 ? 240 : 160;

// Read anew where they are needed: kept from the start, they were spilled.
__device__ __forceinline__ std::int32_t block_index() {
  std::int32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ std::int32_t block_count() {
  std::int32_t count;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(count));
  return count;
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void consume(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                        std::int32_t items, int consumer) {
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  Ring<kTile.stages> ring;
  float sums[kTile.n / 2];
  for (std::int32_t index = block_index(); index < items; index += block_count()) {
    const WorkPiece work = work_piece<kTile>(s, index);
    int lead = 0;
    if constexpr (kHasLead<kTile>) {
      if (index < block_count() && index + block_count() < items) {  // the block's first, and there is one after it
        if (consumer == 0) lead = min(kLead, work.end - work.begin);
        if (consumer == 1) ptx::bar_sync(kLeadBarrier, 2 * kWarpgroup);
      }
    }
    touch_shared_row_of_c(p, std::int64_t{work.item.col_tile} * kTile.n, kTile.n, work.item.batch);
    multiply_tile<T, kTile, kTransA, kTransB>(sums, shared, consumer, args, work, ring, lead);
    if constexpr (wgmma_has_tail(kTile)) {
      if (index >= s.whole && !add_pieces_of_tail<kTile>(sums, s, shared, consumer, index - s.whole)) continue;
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    WorkItem item = work.item;
    if constexpr (wgmma_consumers(kTile) == 3) {
      // Found again: it would take registers through the product, of which three warpgroups have few.
      std::int32_t same_index = index;
      asm volatile("" : "+r"(same_index));
      item = work_piece<kTile>(s, same_index).item;
    }
    const FragmentOrigin at = {std::int64_t{item.row_tile} * kTile.m + consumer * 64 + warp * 16 + lane / 4,
                               std::int64_t{item.col_tile} * kTile.n + lane % 4 * 2};
    if (s.splits > 1) {
      // Found again: it would take a register through the product.
      std::int32_t same_index = index;
      asm volatile("" : "+r"(same_index));
      const std::int32_t split = work_item<false>(s, same_index).split;
      const std::int64_t matrix = std::int64_t{split} * s.batch + item.batch;
      float* const partial = s.partial + matrix * p.m * p.n;
      if constexpr (sums_may_lie_along_m<T>(kTile)) {
        if (s.partial_along_m) {
          store_partial_along_m(sums, p, partial, at);
          continue;
        }
      }
      store_partial(sums, p, partial, at);
    } else {
      apply_scalars(sums, p, at, item.batch);
      if constexpr (sizeof(T) == sizeof(float)) {
        store_float<kTile>(sums, p, shared, consumer, item, at);
      } else {
        if constexpr (kTile.n >= 64) {
          if (args.schedule.store_by_tma) {
            store_boxes<T, kTile>(sums, args, shared, consumer, item);
            continue;
          }
        }
        store_parts<T, kTile>(sums, args, shared, consumer, item);
      }
    }
  }
  // Shared memory has to outlive what the last store reads.
  if (threadIdx.x % kWarpgroup == 0) cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
}

// All threads of the cluster: what was written to shared memory before is visible to every block after.
__device__ __forceinline__ void exchange_barrier() {
  cuda::ptx::barrier_cluster_arrive();
  cuda::ptx::barrier_cluster_wait();
}

// This block's share of the rows of a tile: their sums of all pieces of k, each in the shared memory of a block of the
// cluster, added up in the order of k. Several rows are on their way at once, because another block's shared memory is
// as far away as the L2 cache.
template <class T, WgmmaTile kTile>
__device__ __forceinline__ void add_pieces(float* exchange, const Arguments<T>& p, const WgmmaSchedule& s,
                                           const WorkItem& item, int warp) {
  constexpr int kVector = 4, kLanes = kTile.n / kVector, kRowsOfWarp = 32 / kLanes;
  constexpr int kInFlight = 2, kRowsAtOnce = 4 * wgmma_consumers(kTile) * kRowsOfWarp;
  static_assert(32 % kLanes == 0 && exchange_pitch(kTile) % kVector == 0);
  const auto cluster = cooperative_groups::this_cluster();
  const int lane = threadIdx.x % 32, in_row = lane % kLanes * kVector;
  const std::int64_t tile_row = std::int64_t{item.row_tile} * kTile.m;
  const std::int64_t col = std::int64_t{item.col_tile} * kTile.n + in_row;
  const int rows = static_cast<int>(min(p.m - tile_row, std::int64_t{kTile.m}));
#pragma unroll 1
  for (int index = warp * kRowsOfWarp + lane / kLanes; item.split + s.splits * index < rows;
       index += kInFlight * kRowsAtOnce) {
    float4 terms[kInFlight][kMaxKCluster];
#pragma unroll
    for (int piece = 0; piece < kMaxKCluster; ++piece) {
      if (piece < s.splits) {
        const float* const from = cluster.map_shared_rank(exchange, piece) + in_row;
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
          const int row = item.split + s.splits * (index + f * kRowsAtOnce);
          if (row < rows) terms[f][piece] = *reinterpret_cast<const float4*>(from + row * exchange_pitch(kTile));
        }
      }
    }
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) {
      const int row = item.split + s.splits * (index + f * kRowsAtOnce);
      if (row >= rows) break;
      float4 sum = terms[f][0];
#pragma unroll
      for (int piece = 1; piece < kMaxKCluster; ++piece) {
        if (piece < s.splits) {
          const float4& term = terms[f][piece];
          sum = make_float4(sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w);
        }
      }
      const float sums[kVector] = {sum.x, sum.y, sum.z, sum.w};
      T* const d = p.d_at(item.batch, tile_row + row, col);
      const bool together =
          p.d_col == 1 && col + kVector <= p.n && reinterpret_cast<std::uintptr_t>(d) % (2 * sizeof(T)) == 0;
#pragma unroll
      for (int i = 0; i < kVector; i += 2) {
        T pair[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (col + i + j < p.n) pair[j] = p.finish(item.batch, tile_row + row, col + i + j, sums[i + j]);
        }
        if (together) {
          if constexpr (sizeof(T) == sizeof(float)) {
            *reinterpret_cast<float2*>(d + i) = make_float2(pair[0], pair[1]);
          } else {
            *reinterpret_cast<std::uint32_t*>(d + i) =
                static_cast<std::uint32_t>(pair[0].bits) | static_cast<std::uint32_t>(pair[1].bits) << 16;
          }
        } else {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (col + i + j < p.n) pmpp::store(d + (i + j) * p.d_col, pair[j]);
          }
        }
      }
    }
  }
}

// One tile, of whose k this block does a piece. The grid has a block for every item, so that the loop goes round once;
// without a loop ptxas moves the zeros of the sums between the wgmma and serialises them (C7515).
template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void consume_piece(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                              std::int32_t first, std::int32_t step, std::int32_t items, int consumer) {
  constexpr int kPitch = exchange_pitch(kTile), kConsumers = wgmma_consumers(kTile);
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  Ring<kTile.stages> ring;
  float sums[kTile.n / 2];
  for (std::int32_t index = first; index < items; index += step) {
    const WorkPiece work = work_piece<kTile>(s, index);
    const WorkItem& item = work.item;
    multiply_tile<T, kTile, kTransA, kTransB>(sums, shared, consumer, args, work, ring);

    // The stages are free once every warpgroup has read them, and every warp where each reads for itself.
    if constexpr (kConsumers > 1 || kTile.feeds_a) ptx::bar_sync(kExchangeBarrier, kConsumers * kWarpgroup);
    auto* const exchange = reinterpret_cast<float*>(shared.base);
    const int row0 = consumer * 64 + warp * 16;
#pragma unroll
    for (int i = 0; i < kTile.n / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const at = exchange + (row0 + lane / 4 + half * 8) * kPitch + i * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(at) = make_float2(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
      }
    }
    exchange_barrier();

    add_pieces<T, kTile>(exchange, p, s, item, consumer * 4 + warp);
  }
}

// ---- the kernel ---------------------------------------------------------------------------------------------------

// kConfig: the row of kWgmmaTiles.
template <class T, int kConfig, bool kTransA, bool kTransB>
__global__ void __launch_bounds__(wgmma_threads(kWgmmaTiles[kConfig]), kWgmmaTiles[kConfig].per_sm)
    tiled_matmul_wgmma_kernel(const __grid_constant__ WgmmaArguments<T> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaTile kTile = wgmma_tile(kConfig, sizeof(T), kTransA);
  extern __shared__ __align__(1024) char raw[];
  const WgmmaShared<kTile> shared = {raw};
  const WgmmaSchedule& s = args.schedule;
  const std::int32_t items = s.items;
  const auto first = static_cast<std::int32_t>(blockIdx.x), step = static_cast<std::int32_t>(gridDim.x);
  constexpr int kConsumers = wgmma_consumers(kTile);
  constexpr bool kMovesRegisters = wgmma_moves_registers(kTile);
  constexpr int kFirstLoading = kConsumers * kWarpgroup;
  constexpr bool kInCluster = splits_in_cluster(kTile);

  if (threadIdx.x == kFirstLoading) {
    if (!s.a_realigned) ptx::prefetch_tensormap(&args.a);
    if (!s.b_realigned) ptx::prefetch_tensormap(&args.b);
    for (int stage = 0; stage < kTile.stages; ++stage) {
      cuda::ptx::mbarrier_init(shared.full(stage), 1 + (kTile.realigns ? kRealignWarps : 0));
      cuda::ptx::mbarrier_init(shared.empty(stage),
                               kConsumers * wgmma_releasing_threads(kTile) * (kInCluster ? 1 : kTile.cluster));
    }
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
  if constexpr (kTile.cluster > 1) {
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  if (s.splits > 1 && !kInCluster) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (threadIdx.x >= kFirstLoading) {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_dec<kProducerRegisters>();
    if constexpr (kTile.realigns && sizeof(T) == 2) {
      produce_realigned<T, kTile, kTransA, kTransB>(args, shared, first, step, items);
    } else if (threadIdx.x == kFirstLoading) {
      const std::uint32_t rank = kTile.cluster > 1 ? first % kTile.cluster : 0;
      produce<T, kTile, kTransA, kTransB>(args, shared, first, step, items, rank);
    }
    if constexpr (kInCluster) exchange_barrier();
  } else {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_inc<kConsumerRegisters<kTile>>();
    const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup;
    if constexpr (kInCluster) {
      consume_piece<T, kTile, kTransA, kTransB>(args, shared, first, step, items, consumer);
    } else {
      consume<T, kTile, kTransA, kTransB>(args, shared, items, consumer);
    }
  }
  if constexpr (kTile.cluster != 1) {
    // A block must not end while another still arrives at its barriers, loads into it or reads its sums.
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  }
#endif
}

}  // namespace pmpp::matmul
