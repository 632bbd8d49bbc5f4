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
// float32 sums go to the workspace instead (reduce.cuh adds them up); or, where
// the pieces of a tile are the blocks of a cluster, through shared memory, each block adding up its share of the rows
// in the order of k.
//
// Preconditions: select_wgmma.cpp; TMA fills what lies outside a matrix with zeros, so sizes are free.
#pragma once

#include <cooperative_groups.h>

#include <cuda/ptx>

#include "csrc/ptx/hopper.cuh"
#include "csrc/ptx/wgmma.cuh"
#include "csrc/tiled_matmul/wgmma_parts.cuh"
#include "csrc/tiled_matmul/wgmma_realign.cuh"
#include "csrc/tiled_matmul/wgmma_store.cuh"
#include "csrc/tiled_matmul/wgmma_tail.cuh"

namespace pmpp::matmul {

// Where two warpgroups multiply, the first starts so many steps of k before the second: then one of them multiplies, at
// the rate of both, while the other stores its half of a tile. H200, bfloat16, of cuBLAS without and with, each launch
// waited for: 2048 x 2048 x 2048 1.04 and 1.09, 4096 x 4096 x 64 1.02 and 1.14, 8192 x 8192 x 8192 1.08 and 1.08; 1 and
// 3 steps gain less. Launches behind one another showed no difference.
inline constexpr int kLead = 2;
inline constexpr int kLeadBarrier = 4;  // named barrier
// Of all multiplying warpgroups, before their sums overwrite the stages. None may still be at its own barrier.
inline constexpr int kExchangeBarrier = 5;
// The tiles that realign have no register left for it.
template <WgmmaTile kTile>
inline constexpr bool kHasLead = wgmma_consumers(kTile) == 2 && !splits_in_cluster(kTile) && !kTile.realigns;

// Registers a thread: with two or three multiplying warpgroups the loading one gives up its share.
inline constexpr int kProducerRegisters = 24;
template <WgmmaTile kTile>
inline constexpr int kConsumerRegisters = wgmma_consumers(kTile) == 2 ? 240 : 160;

// ---- loading ------------------------------------------------------------------------------------------------------

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
    const auto [item, begin, end] = work_piece<splits_in_cluster(kTile)>(s, index);
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
    const auto [item, begin, end] = work_piece<splits_in_cluster(kTile)>(s, index);
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

// ---- multiplying --------------------------------------------------------------------------------------------------

// Tells the loading threads that this warpgroup, or (where it reads a fed a) this warp of it, has read a stage.
template <WgmmaTile kTile>
__device__ __forceinline__ void release(const WgmmaShared<kTile>& shared, int stage) {
  const unsigned thread = threadIdx.x % (kWarpgroup / wgmma_releasing_threads(kTile));
  if constexpr (kTile.cluster <= 1) {
    if (thread == 0) cuda::ptx::mbarrier_arrive(shared.empty(stage));
  } else {
    if (thread < kTile.cluster) ptx::mbarrier_arrive_remote(shared.empty(stage), thread);
  }
}

// Zeros for what of a displaced a is outside its rows, in the 64 rows of this warpgroup of step `block` of k, two
// threads a row.
template <class T>
__device__ __forceinline__ void clear_outside(char* rows, const WgmmaArguments<T>& args, int batch, int block,
                                              int consumer) {
  const int begin = displacement(args.schedule, batch) - block * kWgmmaK;
  const int end = begin + static_cast<int>(args.problem.k);
  if (begin <= 0 && end >= kWgmmaK) return;
  const int row = threadIdx.x % kWarpgroup / 2;
  // Not unrolled: the sums leave few registers.
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const int chunk = threadIdx.x % 2 * 4 + i, first = chunk * 8;
    if (first >= begin && first + 8 <= end) continue;
    auto* const words = reinterpret_cast<std::uint32_t*>(rows + row * 128 + ((chunk ^ row) & 7) * 16);
    const auto is_inside = [&](int element) { return element >= begin && element < end; };
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int at = first + word * 2;
      words[word] &= (is_inside(at) ? 0xffffu : 0) | (is_inside(at + 1) ? 0xffff0000u : 0);
    }
  }
  // wgmma reads through the asynchronous proxy what was written here through the generic one.
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  ptx::bar_sync(1 + consumer, kWarpgroup);
}

// This thread's elements of the four products of a step of an a that lies along m.
struct FedStep {
  std::uint32_t a[kWgmmaK / 16][4];

  // `lines`: 32 of k, at the warp's first row.
  template <WgmmaTile kTile>
  __device__ __forceinline__ void read(const char* lines) {
    constexpr int kPitch = wgmma_fed_pitch(kTile);
    const int lane = threadIdx.x % 32;
    const auto* const at = reinterpret_cast<const std::uint32_t*>(lines) + lane % 4 * kPitch + lane / 4;
#pragma unroll
    for (int product = 0; product < kWgmmaK / 16; ++product) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[product][i] = at[(product * 8 + i / 2 * 4) * kPitch + i % 2 * 8];
    }
  }
};

// Zeros, which the compiler must not know: where it moves them it serialises the wgmma (ptxas C7515).
template <int kCount>
__device__ __forceinline__ void clear(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) {
    sum = 0;
    asm volatile("" : "+f"(sum));
  }
}

// What the steps of a tile have in common once their products are issued. One group stays in flight; the one before has
// read its stage.
template <WgmmaTile kTile>
struct StepsInFlight {
  const WgmmaShared<kTile>& shared;
  Ring<kTile.stages>& ring;
  int lead;  // steps after which the second warpgroup is to begin; 0 where it has, or there is none
  int unreleased = -1;

  __device__ __forceinline__ void end_step(int block) {
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
    if (unreleased >= 0) release<kTile>(shared, unreleased);
    unreleased = ring.stage;
    ring.advance();
    if constexpr (kHasLead<kTile>) {
      if (block + 1 == lead) ptx::bar_arrive(kLeadBarrier, 2 * kWarpgroup);
    }
  }
  template <int kCount>
  __device__ __forceinline__ void end_tile(float (&sums)[kCount]) {
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
    if (unreleased >= 0) release<kTile>(shared, unreleased);
  }
};

// A tile's steps of k, where a lies along m. The elements of a step are read while the step before is multiplied.
template <class T, WgmmaTile kTile>
__device__ __forceinline__ void multiply_fed(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared, int consumer,
                                             int blocks, Ring<kTile.stages>& ring, int lead) {
  clear(sums);
  const int first_row = consumer * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  StepsInFlight<kTile> steps = {shared, ring, lead};
  const auto step = [&](int block, FedStep& fed) {
    wait(shared.full(ring.stage), ring.phase);
    fed.read<kTile>(shared.a(ring.stage) + first_row * static_cast<int>(sizeof(T)));
    const std::uint32_t b = ptx::shared_address(shared.b(ring.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int product = 0; product < kWgmmaK / 16; ++product) {
      ptx::Wgmma<T, kTile.n, true, false>::mma(sums, fed.a[product], ptx::wgmma_descriptor(b + product * 32, 16, 1024),
                                               block + product > 0);
    }
    steps.end_step(block);
  };
  // Steps take turns with two sets of registers, without a branch in between: ptxas then sees that none is written that
  // a product still reads, and else serialises the wgmma (C7513). A third set, read a step earlier, did not help: H200,
  // 4096 x 4096 x 4096 366 us instead of 343.
  FedStep even, odd;
  int block = 0;
  for (; block + 1 < blocks; block += 2) {
    step(block, even);
    step(block + 1, odd);
  }
  if (block < blocks) step(block, even);
  steps.end_tile(sums);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void multiply(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared, int consumer,
                                         const WgmmaArguments<T>& args, const WorkPiece& work, Ring<kTile.stages>& ring,
                                         int lead) {
  // Within a box: 16 of k are 32 bytes of each line, or 16 lines where the operand lies the other way.
  constexpr int kStepA = kTransA ? 2048 : 32, kLeadingA = kTransA ? kWgmmaBoxBytes : 16;
  constexpr int kStepB = kTransB ? 2048 : 32, kLeadingB = kTransB ? kWgmmaBoxBytes : 16;
  clear(sums);
  StepsInFlight<kTile> steps = {shared, ring, lead};
  const int blocks = work.end - work.begin;
  for (int block = 0; block < blocks; ++block) {
    wait(shared.full(ring.stage), ring.phase);
    if constexpr (kMayDisplace<T, kTile, kTransA, kTransB>) {
      // The displacement differs between the matrices, the number of steps does not: the last may be all outside.
      if (args.schedule.a_displaced && (block == 0 || block + 2 >= blocks)) {
        clear_outside(shared.a(ring.stage) + consumer * kWgmmaBoxBytes, args, work.item.batch, work.begin + block,
                      consumer);
      }
    }
    const std::uint32_t a = ptx::shared_address(shared.a(ring.stage)) + consumer * kWgmmaBoxBytes;
    const std::uint32_t b = ptx::shared_address(shared.b(ring.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWgmmaK / 16; ++step) {
      ptx::Wgmma<T, kTile.n, kTransA, kTransB>::mma(sums, ptx::wgmma_descriptor(a + step * kStepA, kLeadingA, 1024),
                                                    ptx::wgmma_descriptor(b + step * kStepB, kLeadingB, 1024),
                                                    block + step > 0);
    }
    steps.end_step(block);
  }
  steps.end_tile(sums);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void multiply_tile(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared,
                                              int consumer, const WgmmaArguments<T>& args, const WorkPiece& work,
                                              Ring<kTile.stages>& ring, int lead = 0) {
  if constexpr (kTile.feeds_a) {
    multiply_fed<T, kTile>(sums, shared, consumer, work.end - work.begin, ring, lead);
  } else {
    multiply<T, kTile, kTransA, kTransB>(sums, shared, consumer, args, work, ring, lead);
  }
}

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
    const WorkPiece work = work_piece<splits_in_cluster(kTile)>(s, index);
    int lead = 0;
    if constexpr (kHasLead<kTile>) {
      if (index < block_count() && index + block_count() < items) {  // the block's first, and there is one after it
        if (consumer == 0) lead = min(kLead, work.end - work.begin);
        if (consumer == 1) ptx::bar_sync(kLeadBarrier, 2 * kWarpgroup);
      }
    }
    touch_shared_row_of_c(p, std::int64_t{work.item.col_tile} * kTile.n, kTile.n, work.item.batch);
    multiply_tile<T, kTile, kTransA, kTransB>(sums, shared, consumer, args, work, ring, lead);
    if (index >= s.whole && !add_pieces_of_tail<kTile>(sums, s, shared, consumer, index - s.whole)) continue;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const WorkItem& item = work.item;
    const FragmentOrigin at = {std::int64_t{item.row_tile} * kTile.m + consumer * 64 + warp * 16 + lane / 4,
                               std::int64_t{item.col_tile} * kTile.n + lane % 4 * 2};
    if (s.splits > 1) {
      // Found again: it would take a register through the product. Only where it is needed, since it takes 0.4 us.
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
    const WorkPiece work = work_piece<splits_in_cluster(kTile)>(s, index);
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
