// The loading warps of the wgmma kernel: operands into the ring of stages, by TMA or by way of registers (wgmma.cuh
// says who waits for what).
#pragma once

#include <cuda/ptx>

#include "csrc/tiled_matmul/wgmma_parts.cuh"
#include "csrc/tiled_matmul/wgmma_realign.cuh"

namespace pmpp::matmul {

// a is displaced along k, so that b must be free to move along k.
template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
inline constexpr bool kMayDisplace = sizeof(T) == 2 && !kTransA && kTransB && wgmma_displaces(kTile);

// Elements from the start of the map of a displaced a to row 0 of a matrix; 0 where it is not displaced.
__device__ __forceinline__ int displaced_start(const WgmmaSchedule& s, int batch) {
  return batch * s.a_apart + s.a_start;
}
// Those of them that lie behind the last boundary of 16 bytes.
__device__ __forceinline__ int displacement(const WgmmaSchedule& s, int batch) { return displaced_start(s, batch) % 8; }

// kLines lines of the operand from `line` on, and 64 of k, into shared memory, split over the kCluster blocks that
// share them.
template <bool kTrans, int kLines, int kCluster>
__device__ __forceinline__ void load_operand(char* to, const CUtensorMap& map, std::uint64_t* barrier, int line, int k,
                                             int batch, std::uint32_t rank) {
  namespace cp = cuda::ptx;
  static_assert(kCluster >= 1);
  constexpr auto kBlocks = static_cast<std::uint16_t>((1 << kCluster) - 1);
  const auto load = [&](char* box, const int(&at)[3]) {
    if constexpr (kCluster == 1) {
      cp::cp_async_bulk_tensor(cp::space_cluster, cp::space_global, box, &map, at, barrier);
    } else {
      cp::cp_async_bulk_tensor(cp::space_cluster, cp::space_global, box, &map, at, barrier, kBlocks);
    }
  };
  if constexpr (kTrans) {
    constexpr int kShare = kWgmmaK / kCluster;
    static_assert(kLines % 64 == 0 && kShare % 8 == 0, "whole boxes, whole groups of the swizzle");
    const int first = kCluster > 1 ? static_cast<int>(rank) * kShare : 0;
#pragma unroll
    for (int box = 0; box < kLines / 64; ++box) {
      load(to + box * kWgmmaBoxBytes + first * 128, {line + box * 64, k + first, batch});
    }
  } else {
    constexpr int kShare = kLines / kCluster;
    static_assert(kLines % kCluster == 0 && kShare % 8 == 0, "whole groups of the swizzle");
    const int first = kCluster > 1 ? static_cast<int>(rank) * kShare : 0;
    load(to + first * kWgmmaK * 2, {k, line + first, batch});
  }
}

// 32 of k by the tile's m of a float32 a that lies along m, with as many elements more as lines are apart.
template <WgmmaTile kTile>
__device__ __forceinline__ void load_fed_operand(char* to, const CUtensorMap& map, std::uint64_t* barrier, int row,
                                                 int k, int batch) {
  const int at[3] = {row, k, batch};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, to, &map, at, barrier);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void produce(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                        std::int32_t first, std::int32_t step, std::int32_t items, std::uint32_t rank) {
  constexpr int kColumns = kTransB ? wgmma_box_columns(kTile) : kTile.n;
  constexpr int kStep = wgmma_step(sizeof(T));
  const WgmmaSchedule& s = args.schedule;
  Ring<kTile.stages> ring;
  for (std::int32_t index = first; index < items; index += step) {
    const auto [item, begin, end] = work_piece<kTile>(s, index);
    const int a_batch = s.a_batched ? item.batch : 0, b_batch = s.b_batched ? item.batch : 0;
    const int off = kMayDisplace<T, kTile, kTransA, kTransB> ? displacement(s, item.batch) : 0;
    const int a_start = kMayDisplace<T, kTile, kTransA, kTransB> ? displaced_start(s, item.batch) - off : 0;
    for (int block = begin; block < end; ++block) {
      wait(shared.empty(ring.stage), ring.phase ^ 1);
      std::uint64_t* const full = shared.full(ring.stage);
      cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared, full,
                                           wgmma_stage_bytes_of_a(kTile) + kColumns * kWgmmaK * 2);
      if constexpr (kTile.feeds_a) {
        load_fed_operand<kTile>(shared.a(ring.stage), args.a, full, item.row_tile * kTile.m, block * kStep, a_batch);
      } else {
        load_operand<kTransA, kTile.m, 1>(shared.a(ring.stage), args.a, full, item.row_tile * kTile.m,
                                          a_start + block * kStep, a_batch, rank);
      }
      load_operand<kTransB, kColumns, wgmma_sharers(kTile)>(shared.b(ring.stage), args.b, full, item.col_tile * kTile.n,
                                                            block * kStep - off, b_batch, rank);
      ring.advance();
    }
  }
}

// All threads of both loading warpgroups.
template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void produce_realigned(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                                  std::int32_t first, std::int32_t step, std::int32_t items) {
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  const int bytes = (s.a_realigned ? 0 : kTile.m * kWgmmaK * 2) + (s.b_realigned ? 0 : kTile.n * kWgmmaK * 2);
  RealigningLoader<kTile.m, kTransA> a;
  RealigningLoader<kTile.n, kTransB> b;
  Ring<kTile.stages> ring;
  for (std::int32_t index = first; index < items; index += step) {
    const auto [item, begin, end] = work_piece<kTile>(s, index);
    // The last step of a piece of k must not read on into the next.
    const int k = static_cast<int>(min(p.k, std::int64_t{end} * kWgmmaK) - std::int64_t{begin} * kWgmmaK);
    const std::int64_t row = std::int64_t{item.row_tile} * kTile.m, col = std::int64_t{item.col_tile} * kTile.n;
    const std::int64_t k0 = std::int64_t{begin} * kWgmmaK;
    if (s.a_realigned) {
      a.start(p.a + item.batch * p.a_batch + row * p.a_row + k0 * p.a_col, kTransA ? p.a_col : p.a_row, p.m - row, k);
    }
    if (s.b_realigned) {
      b.start(p.b + item.batch * p.b_batch + col * p.b_col + k0 * p.b_row, kTransB ? p.b_row : p.b_col, p.n - col, k);
    }
    for (int block = begin; block < end; ++block) {
      wait(shared.empty(ring.stage), ring.phase ^ 1);
      std::uint64_t* const full = shared.full(ring.stage);
      if (threadIdx.x == wgmma_consumers(kTile) * kWarpgroup) {
        cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                             full, bytes);
        if (!s.a_realigned) {
          load_operand<kTransA, kTile.m, 1>(shared.a(ring.stage), args.a, full, item.row_tile * kTile.m,
                                            block * kWgmmaK, s.a_batched ? item.batch : 0, 0);
        }
        if (!s.b_realigned) {
          load_operand<kTransB, kTile.n, 1>(shared.b(ring.stage), args.b, full, item.col_tile * kTile.n,
                                            block * kWgmmaK, s.b_batched ? item.batch : 0, 0);
        }
      }
      if (s.a_realigned) a.advance(shared.a(ring.stage));
      if (s.b_realigned) b.advance(shared.b(ring.stage));
      // wgmma reads through the asynchronous proxy what was written here through the generic one.
      cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
      __syncwarp();
      if (threadIdx.x % 32 == 0) cuda::ptx::mbarrier_arrive(full);
      ring.advance();
    }
  }
}

}  // namespace pmpp::matmul
