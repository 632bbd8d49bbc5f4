// wgmma: 16-bit floats, and float32 as tf32, through the tensor cores of sm_90a, operands loaded by the tensor memory
// accelerator (TMA).
//
// Tiling: persistent blocks walk over output tiles of m x n; k goes by in steps of 64 through a ring of stages in
// shared memory. Warpgroup 0 loads (one thread of it), each further one multiplies 64 rows of the tile. Operands are
// read where they lie: a with k contiguous or (kTransA) with m, b with k contiguous or (kTransB) with n. The blocks of
// a cluster work on tiles below each other, and each loads its share of their common tile of b into all of them.
//
// float32 goes by in steps of 32 of k, which are as many bytes, always with k contiguous. TMA rounds it to the nearest
// tf32 on the way: the tensor cores alone would cut off the last 13 bits.
//
// Where TMA cannot address an operand, the tiles that realign have a second loading warpgroup, whose threads and those
// of the first bring it in by way of registers, beside the TMA of the other operand.
//
// Barriers, for each stage: `full`, one arrival by the loading thread, which expects the bytes of both tiles, and where
// operands are realigned one by each loading warp; waited on by the multiplying warpgroups. `empty`, one arrival by
// each multiplying warpgroup of each block of the cluster when its wgmma have read the stage; waited on by the loading
// thread. Named barrier 1 + i: warpgroup i around its staging.
//
// Epilogue: the accumulators, scaled and added to c, are rounded once, staged in the 128-byte swizzle and stored by TMA
// while the next tile is multiplied; where TMA cannot address d, by the threads. float32 needs no staging. With pieces
// of k, float32 sums go to the workspace instead (reduce.cuh adds them up); or, where the pieces of a tile are the
// blocks of a cluster, through shared memory, each block adding up its share of the rows in the order of k.
//
// Preconditions: select_wgmma.cpp; TMA fills what lies outside a matrix with zeros, so sizes are free.
#pragma once

#include <cooperative_groups.h>

#include <cuda/ptx>

#include "csrc/ptx/hopper.cuh"
#include "csrc/ptx/wgmma.cuh"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"
#include "csrc/tiled_matmul/wgmma_realign.cuh"
#include "csrc/tma/tensor_map.hpp"

namespace pmpp::matmul {

inline constexpr int kWgmmaBoxBytes = 64 * kWgmmaK * 2;  // a box of 64 lines of 64 elements
inline constexpr int kWarpgroup = 128;

// Where two warpgroups multiply, the first starts so many steps of k before the second: then one of them multiplies, at
// the rate of both, while the other stores its half of a tile. H200, bfloat16, of cuBLAS without and with, each launch
// waited for: 2048 x 2048 x 2048 1.04 and 1.09, 4096 x 4096 x 64 1.02 and 1.14, 8192 x 8192 x 8192 1.08 and 1.08; 1 and
// 3 steps gain less. Launches behind one another showed no difference.
inline constexpr int kLead = 2;
inline constexpr int kLeadBarrier = 3;  // named barrier
// The tiles that realign have no register left for it.
template <WgmmaTile kTile>
inline constexpr bool kHasLead = wgmma_consumers(kTile) == 2 && !splits_in_cluster(kTile) && !kTile.realigns;

// Registers a thread: with three warpgroups the loading one gives up its share.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;

template <class T>
struct WgmmaArguments {
  CUtensorMap a, b, d;
  Arguments<T> problem;
  WgmmaSchedule schedule;
};

struct WorkItem {
  std::int32_t row_tile, col_tile, split, batch;
};

// Work items are numbered piece of k first where those are the blocks of a cluster, then tile, (else) piece of k,
// batch. Grouped raster: down the rows of a group, then on to the next column. The blocks of a cluster get neighbouring
// rows.
template <bool kInCluster>
__device__ __forceinline__ WorkItem work_item(const WgmmaSchedule& s, std::int32_t index) {
  const std::int32_t tiles = s.row_tiles * s.col_tiles;
  const std::int32_t inner = kInCluster ? index % s.splits : 0;
  if constexpr (kInCluster) index /= s.splits;
  const std::int32_t outer = index / tiles;
  const std::int32_t tile = index - outer * tiles;
  const std::int32_t group = tile / (s.group * s.col_tiles);
  const std::int32_t within = tile - group * s.group * s.col_tiles;
  const std::int32_t rows = min(s.group, s.row_tiles - group * s.group);
  WorkItem item;
  item.col_tile = within / rows;
  item.row_tile = group * s.group + within - item.col_tile * rows;
  item.batch = kInCluster ? outer : outer / s.splits;
  item.split = kInCluster ? inner : outer - item.batch * s.splits;
  return item;
}

template <WgmmaTile kTile>
struct WgmmaShared {
  static constexpr int kBytesA = kTile.m * kWgmmaK * 2;
  static constexpr int kStageBytes = wgmma_stage_bytes(kTile);

  char* base;  // a multiple of 1024 bytes, as the swizzle is one of addresses

  __device__ char* a(int stage) const { return base + stage * kStageBytes; }
  __device__ char* b(int stage) const { return a(stage) + kBytesA; }
  __device__ char* staging(int consumer) const {
    return base + kTile.stages * kStageBytes + consumer * (wgmma_staged_boxes(kTile) * kWgmmaBoxBytes);
  }
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(staging(wgmma_consumers(kTile))) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(kTile.stages) + stage; }
};

// Position in the ring of stages.
template <int kStages>
struct Ring {
  int stage = 0, phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

__device__ __forceinline__ void wait(std::uint64_t* barrier, int parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// ---- loading ------------------------------------------------------------------------------------------------------

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

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void produce(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                        std::int32_t first, std::int32_t step, std::int32_t items, std::uint32_t rank) {
  constexpr int kColumns = kTransB ? wgmma_box_columns(kTile) : kTile.n;
  constexpr int kStep = wgmma_step(sizeof(T));
  const WgmmaSchedule& s = args.schedule;
  Ring<kTile.stages> ring;
  for (std::int32_t index = first; index < items; index += step) {
    const WorkItem item = work_item<splits_in_cluster(kTile)>(s, index);
    const int begin = item.split * s.split_blocks;
    const int end = min(begin + s.split_blocks, s.k_blocks);
    const int a_batch = s.a_batched ? item.batch : 0, b_batch = s.b_batched ? item.batch : 0;
    for (int block = begin; block < end; ++block) {
      wait(shared.empty(ring.stage), ring.phase ^ 1);
      std::uint64_t* const full = shared.full(ring.stage);
      cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared, full,
                                           (kTile.m + kColumns) * kWgmmaK * 2);
      load_operand<kTransA, kTile.m, 1>(shared.a(ring.stage), args.a, full, item.row_tile * kTile.m, block * kStep,
                                        a_batch, rank);
      load_operand<kTransB, kColumns, wgmma_sharers(kTile)>(shared.b(ring.stage), args.b, full, item.col_tile * kTile.n,
                                                            block * kStep, b_batch, rank);
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
    const WorkItem item = work_item<splits_in_cluster(kTile)>(s, index);
    const int begin = item.split * s.split_blocks;
    const int end = min(begin + s.split_blocks, s.k_blocks);
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
      if (threadIdx.x == 0) {
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

// Tells the loading threads that this warpgroup has read a stage.
template <WgmmaTile kTile>
__device__ __forceinline__ void release(const WgmmaShared<kTile>& shared, int stage) {
  const unsigned thread = threadIdx.x % kWarpgroup;
  if constexpr (kTile.cluster <= 1) {
    if (thread == 0) cuda::ptx::mbarrier_arrive(shared.empty(stage));
  } else {
    if (thread < kTile.cluster) ptx::mbarrier_arrive_remote(shared.empty(stage), thread);
  }
}

// `lead` is the number of steps after which the second warpgroup is to begin; 0 where it has, or there is none.
template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void multiply(float (&sums)[kTile.n / 2], const WgmmaShared<kTile>& shared, int consumer,
                                         int blocks, Ring<kTile.stages>& ring, int lead = 0) {
  // Within a box: 16 of k are 32 bytes of each line, or 16 lines where the operand lies the other way.
  constexpr int kStepA = kTransA ? 2048 : 32, kLeadingA = kTransA ? kWgmmaBoxBytes : 16;
  constexpr int kStepB = kTransB ? 2048 : 32, kLeadingB = kTransB ? kWgmmaBoxBytes : 16;
  // The compiler must not know the zeros: where it moves them it serialises the wgmma (ptxas C7515).
#pragma unroll
  for (float& sum : sums) {
    sum = 0;
    asm volatile("" : "+f"(sum));
  }
  int unreleased = -1;
  for (int block = 0; block < blocks; ++block) {
    wait(shared.full(ring.stage), ring.phase);
    const std::uint32_t a = ptx::shared_address(shared.a(ring.stage)) + consumer * kWgmmaBoxBytes;
    const std::uint32_t b = ptx::shared_address(shared.b(ring.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWgmmaK / 16; ++step) {
      ptx::Wgmma<T, kTile.n, kTransA, kTransB>::mma(sums, ptx::wgmma_descriptor(a + step * kStepA, kLeadingA, 1024),
                                                    ptx::wgmma_descriptor(b + step * kStepB, kLeadingB, 1024),
                                                    block + step > 0);
    }
    ptx::wgmma_commit_group();
    // One group stays in flight; the one before has read its stage.
    ptx::wgmma_wait_group<1>();
    if (unreleased >= 0) release<kTile>(shared, unreleased);
    unreleased = ring.stage;
    ring.advance();
    if constexpr (kHasLead<kTile>) {
      if (block + 1 == lead) ptx::bar_arrive(kLeadBarrier, 2 * kWarpgroup);
    }
  }
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not to be read before the wait
  if (unreleased >= 0) release<kTile>(shared, unreleased);
}

// ---- storing ------------------------------------------------------------------------------------------------------

// Where the accumulators of this thread lie in the matrix.
struct FragmentOrigin {
  std::int64_t row;  // and row + 8
  std::int64_t col;  // of sums[0]; sums[4 i] is 8 i further right
};

// Two neighbours of a row of c, as they are loaded together.
template <class T>
struct NeighboursOfC {
  std::uint32_t word;

  __device__ __forceinline__ void load(const T* at) { word = __ldg(reinterpret_cast<const std::uint32_t*>(at)); }
  __device__ __forceinline__ float first() const { return T{static_cast<std::uint16_t>(word)}.to_float(); }
  __device__ __forceinline__ float second() const { return T{static_cast<std::uint16_t>(word >> 16)}.to_float(); }
};
template <>
struct NeighboursOfC<float> {
  float2 pair;

  __device__ __forceinline__ void load(const float* at) { pair = __ldg(reinterpret_cast<const float2*>(at)); }
  __device__ __forceinline__ float first() const { return pair.x; }
  __device__ __forceinline__ float second() const { return pair.y; }
};

// sums += beta * c where a row of c is contiguous and pairs are aligned; a row that all share is read once. Loads go
// out together, as many as there are registers for: one after another each would wait for the L2 cache.
template <class T, int kCount>
__device__ __forceinline__ void add_pairs_of_c(float (&sums)[kCount], const Arguments<T>& p, const FragmentOrigin& at,
                                               const T* c) {
  constexpr int kPairs = kCount / 4, kMost = sizeof(T) == sizeof(float) ? 4 : 16;
  constexpr int kTogether = kPairs < kMost ? kPairs : kMost;
  const bool is_shared = p.c_row == 0;
#pragma unroll
  for (int first = 0; first < kPairs; first += kTogether) {
    NeighboursOfC<T> pairs[kTogether];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 0 || !is_shared) {
        const bool inside = is_shared || at.row + half * 8 < p.m;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int col = (first + i) * 8;
          pairs[i] = {};
          if (inside && at.col + col < p.n) pairs[i].load(c + half * 8 * p.c_row + col);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        float* const sum = sums + (first + i) * 4 + half * 2;
        sum[0] += p.beta * pairs[i].first();
        sum[1] += p.beta * pairs[i].second();
      }
    }
  }
}

// Brings the part of a row of c that all rows of d share, 128 bytes a thread, into L1 while the tile is multiplied.
// Read only behind it, it came from the L2 cache, while nothing was multiplied: H200, 8192 x 3072 x 768 in
// bfloat16 74.3 us, 62.1 without c.
template <class T>
__device__ __forceinline__ void touch_shared_row_of_c(const Arguments<T>& p, std::int64_t first_col, int columns,
                                                      std::int64_t batch) {
  constexpr int kLine = 128 / sizeof(T);
  const int thread = threadIdx.x % kWarpgroup;
  const std::int64_t col = first_col + thread * kLine;
  if (p.c == nullptr || p.c_row != 0 || p.c_col != 1 || thread * kLine >= columns || col >= p.n) return;
  ptx::load_and_discard(p.c + batch * p.c_batch + col);
}

// sums = alpha * sums + beta * c.
template <class T, int kCount>
__device__ __forceinline__ void apply_scalars(float (&sums)[kCount], const Arguments<T>& p, const FragmentOrigin& at,
                                              std::int64_t batch) {
  if (p.scaled) {
#pragma unroll
    for (float& sum : sums) sum *= p.alpha;
  }
  if (p.c == nullptr) return;
  const T* const c = p.c + batch * p.c_batch + at.row * p.c_row + at.col * p.c_col;
  if (p.c_col == 1 && ((p.c_row | p.c_batch | p.n) & 1) == 0 &&
      reinterpret_cast<std::uintptr_t>(p.c) % (2 * sizeof(T)) == 0) {
    add_pairs_of_c(sums, p, at, c);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    const T* const row = c + half * 8 * p.c_row;
    if (p.c_col == 0) {  // a column that all share, as a shared row is where the problem was exchanged
      const float value = widen(load(row));
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) sums[i / 2 * 4 + half * 2 + i % 2] += p.beta * value;
      continue;
    }
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (at.col + i * 8 + j < p.n) sums[i * 4 + half * 2 + j] += p.beta * widen(load(row + (i * 8 + j) * p.c_col));
      }
    }
  }
}

template <class T, int kCount>
__device__ __forceinline__ void store_partial(const float (&sums)[kCount], const Arguments<T>& p, float* partial,
                                              const FragmentOrigin& at) {
  const bool paired = p.n % 2 == 0;  // then both columns of a pair are inside or outside, and aligned
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    float* const row = partial + (at.row + half * 8) * p.n + at.col;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const float x = sums[i * 4 + half * 2], y = sums[i * 4 + half * 2 + 1];
      if (paired) {
        if (at.col + i * 8 < p.n) *reinterpret_cast<float2*>(row + i * 8) = make_float2(x, y);
      } else {
        if (at.col + i * 8 < p.n) row[i * 8] = x;
        if (at.col + i * 8 + 1 < p.n) row[i * 8 + 1] = y;
      }
    }
  }
}

// Elements of a float32 d from the accumulators of a warp; those whose bit is set in `skipped` are left alone.
template <int kCount>
__device__ __forceinline__ void store_fragments(const float (&sums)[kCount], const Arguments<float>& p,
                                                const FragmentOrigin& at, std::int64_t batch,
                                                std::uint64_t skipped = 0) {
  const bool paired = p.d_col == 1 && p.d_row % 2 == 0 && p.d_batch % 2 == 0 && p.n % 2 == 0 &&
                      reinterpret_cast<std::uintptr_t>(p.d) % 8 == 0 && skipped == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row + half * 8 >= p.m) continue;
    float* const d = p.d_at(batch, at.row + half * 8, at.col);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const int x = i * 4 + half * 2;
      if (paired) {
        if (at.col + i * 8 < p.n) *reinterpret_cast<float2*>(d + i * 8) = make_float2(sums[x], sums[x + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const bool is_skipped = x + j < 64 && (skipped >> (x + j) % 64 & 1) != 0;
          if (at.col + i * 8 + j < p.n && !is_skipped) d[(i * 8 + j) * p.d_col] = sums[x + j];
        }
      }
    }
  }
}

template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float x, float y) {
  return static_cast<std::uint32_t>(narrow<T>(x).bits) | static_cast<std::uint32_t>(narrow<T>(y).bits) << 16;
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<Float16>(float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
template <>
__device__ __forceinline__ std::uint32_t pack_pair<BFloat16>(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Byte of (row, 16-byte chunk of 8 columns) in the staging of 64 rows.
__device__ __forceinline__ int staged_at(int row, int chunk) {
  return chunk / 8 * kWgmmaBoxBytes + row * 128 + ((chunk ^ row) & 7) * 16;
}

// Rounds kColumns columns, from accumulator `first` on, into the staging.
template <class T, int kColumns, int kFirst, int kCount>
__device__ __forceinline__ void stage(const float (&sums)[kCount], char* staging) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  // Matrices of stmatrix: rows 0-7 and 8-15 of 8 columns, then of the next 8.
  const int row = warp * 16 + lane % 16;
  const std::uint32_t base = ptx::shared_address(staging);
#pragma unroll
  for (int c = 0; c < kColumns / 16; ++c) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pack_pair<T>(sums[kFirst + c * 8 + i * 2], sums[kFirst + c * 8 + i * 2 + 1]);
    }
    ptx::stmatrix_x4(base + staged_at(row, c * 2 + lane / 16), words);
  }
}

// A warp's 16 rows of the staging into rows of d that are contiguous but not on 16-byte boundaries: chunks of 16 bytes
// on their boundaries, cut out of two staged ones, then the elements before the first and behind the last. What is
// written together is read together first: the compiler cannot tell that d is not the staging, and one after another
// each chunk would wait for shared memory.
template <class T, int kColumns>
__device__ __forceinline__ void store_rows_by_chunks(T* to, std::int64_t pitch, const char* staging, int rows,
                                                     int columns) {
  constexpr int kChunk = 8, kRows = 16;  // elements of a chunk; rows of a warp
  constexpr int kLanes = kColumns / kChunk, kRowsAtOnce = 32 / kLanes;
  constexpr int kInFlight = kRows / kRowsAtOnce < 2 ? 1 : 2;
  static_assert(kRows % (kRowsAtOnce * kInFlight) == 0);
  const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 % 4 * kRows;
  const int chunk = lane % kLanes;
  const auto off_boundary = [](const T* at) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % 16 / 2); };
#pragma unroll 1
  for (int i = 0; i < kRows; i += kRowsAtOnce * kInFlight) {
    uint4 before[kInFlight], own[kInFlight];
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) {
      const int row = first_row + i + f * kRowsAtOnce + lane / kLanes;
      own[f] = *reinterpret_cast<const uint4*>(staging + staged_at(row, chunk));
      before[f] = *reinterpret_cast<const uint4*>(staging + staged_at(row, max(chunk - 1, 0)));
    }
#pragma unroll
    for (int f = 0; f < kInFlight; ++f) {
      const int row = first_row + i + f * kRowsAtOnce + lane / kLanes;
      T* const line = to + row * pitch;
      const int off = off_boundary(line), col = chunk * kChunk - off;
      if (row < rows && col >= 0 && col + kChunk <= columns) {
        transposition::store_chunk(line + col,
                                   off == 0 ? own[f] : transposition::shift_chunks<2>(before[f], own[f], 16 - 2 * off));
      }
    }
  }
  // Two lanes a row, one for each end.
  const int row = first_row + lane / 2;
  T* const line = to + row * pitch;
  const int off = off_boundary(line);
  const int head = off == 0 ? 0 : min(kChunk - off, columns), tail = (columns - head) % kChunk;
  const int count = row >= rows ? 0 : lane % 2 == 0 ? head : tail;
  const int col0 = lane % 2 == 0 ? 0 : columns - tail;
  T element[kChunk - 1] = {};  // what is left undefined the compiler carries along
#pragma unroll
  for (int i = 0; i < kChunk - 1; ++i) {
    const int col = col0 + i;
    if (i < count) element[i] = *reinterpret_cast<const T*>(staging + staged_at(row, col / kChunk) + col % kChunk * 2);
  }
#pragma unroll
  for (int i = 0; i < kChunk - 1; ++i) {
    if (i < count) line[col0 + i] = element[i];
  }
}

// By TMA, a box of 64 columns at a time: while one is stored the next is staged in the other half of the staging.
template <class T, WgmmaTile kTile, int kBox = 0>
__device__ __forceinline__ void store_boxes(const float (&sums)[kTile.n / 2], const WgmmaArguments<T>& args,
                                            const WgmmaShared<kTile>& shared, int consumer, const WorkItem& item) {
  namespace cp = cuda::ptx;
  constexpr int kBoxes = wgmma_staged_boxes(kTile);
  static_assert(kTile.n / 64 % kBoxes == 0, "every tile starts in the same half");
  char* const staging = shared.staging(consumer) + kBox % kBoxes * kWgmmaBoxBytes;
  const bool leader = threadIdx.x % kWarpgroup == 0;
  if (leader) cp::cp_async_bulk_wait_group_read(cp::n32_t<kBoxes - 1>());
  ptx::bar_sync(1 + consumer, kWarpgroup);
  stage<T, 64, kBox * 32>(sums, staging);
  cp::fence_proxy_async(cp::space_shared);
  ptx::bar_sync(1 + consumer, kWarpgroup);
  if (leader) {
    const int at[3] = {item.col_tile * kTile.n + kBox * 64, item.row_tile * kTile.m + consumer * 64, item.batch};
    cp::cp_async_bulk_tensor(cp::space_global, cp::space_shared, &args.d, at, staging);
    cp::cp_async_bulk_commit_group();
  }
  if constexpr ((kBox + 1) * 64 < kTile.n) store_boxes<T, kTile, kBox + 1>(sums, args, shared, consumer, item);
}

// By the threads, where TMA cannot address d.
template <class T, WgmmaTile kTile, int kPart = 0>
__device__ __forceinline__ void store_parts(const float (&sums)[kTile.n / 2], const WgmmaArguments<T>& args,
                                            const WgmmaShared<kTile>& shared, int consumer, const WorkItem& item) {
  constexpr int kColumns = wgmma_staged_columns(kTile);
  const Arguments<T>& p = args.problem;
  char* const staging = shared.staging(consumer);
  const std::int64_t row0 = std::int64_t{item.row_tile} * kTile.m + consumer * 64;
  const std::int64_t col0 = std::int64_t{item.col_tile} * kTile.n + kPart * kColumns;
  T* const d = p.d + item.batch * p.d_batch + row0 * p.d_row + col0 * p.d_col;
  const int rows = static_cast<int>(min(p.m - row0, std::int64_t{64}));
  const int columns = static_cast<int>(min(p.n - col0, std::int64_t{kColumns}));

  ptx::bar_sync(1 + consumer, kWarpgroup);  // the staging has been read
  stage<T, kColumns, kPart * kColumns / 2>(sums, staging);
  ptx::bar_sync(1 + consumer, kWarpgroup);
  if (p.d_col == 1) {
    store_rows_by_chunks<T, kColumns>(d, p.d_row, staging, rows, columns);
  } else {
    // Neighbouring threads have neighbouring rows, which lie next to each other where the problem was exchanged.
    const int row = threadIdx.x % 64;
    if (row < rows) {
#pragma unroll 4
      for (int col = threadIdx.x / 64 % 2; col < columns; col += 2) {
        const char* const staged = staging + staged_at(row, col / 8) + col % 8 * 2;
        pmpp::store(d + row * p.d_row + col * p.d_col, *reinterpret_cast<const T*>(staged));
      }
    }
  }
  if constexpr ((kPart + 1) * kColumns < kTile.n) store_parts<T, kTile, kPart + 1>(sums, args, shared, consumer, item);
}

template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void consume(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                        std::int32_t first, std::int32_t step, std::int32_t items, int consumer) {
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  Ring<kTile.stages> ring;
  float sums[kTile.n / 2];
  for (std::int32_t index = first; index < items; index += step) {
    const WorkItem item = work_item<splits_in_cluster(kTile)>(s, index);
    const int begin = item.split * s.split_blocks;
    const int blocks = min(s.split_blocks, s.k_blocks - begin);
    int lead = 0;
    if constexpr (kHasLead<kTile>) {
      if (index == first && first + step < items) {  // there is a tile after it
        if (consumer == 0) lead = min(kLead, blocks);
        if (consumer == 1) ptx::bar_sync(kLeadBarrier, 2 * kWarpgroup);
      }
    }
    touch_shared_row_of_c(p, std::int64_t{item.col_tile} * kTile.n, kTile.n, item.batch);
    multiply<T, kTile, kTransA, kTransB>(sums, shared, consumer, blocks, ring, lead);
    const FragmentOrigin at = {std::int64_t{item.row_tile} * kTile.m + consumer * 64 + warp * 16 + lane / 4,
                               std::int64_t{item.col_tile} * kTile.n + lane % 4 * 2};
    if (s.splits > 1) {
      const std::int64_t matrix = std::int64_t{item.split} * s.batch + item.batch;
      store_partial(sums, p, s.partial + matrix * p.m * p.n, at);
    } else {
      apply_scalars(sums, p, at, item.batch);
      if constexpr (sizeof(T) == sizeof(float)) {
        store_fragments(sums, p, at, item.batch);
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

// One tile, of whose k this block does a piece. The grid has a block for every item, so that the loop goes round once;
// without a loop ptxas moves the zeros of the sums between the wgmma and serialises them (C7515).
template <class T, WgmmaTile kTile, bool kTransA, bool kTransB>
__device__ __forceinline__ void consume_piece(const WgmmaArguments<T>& args, const WgmmaShared<kTile>& shared,
                                              std::int32_t first, std::int32_t step, std::int32_t items, int consumer) {
  constexpr int kPitch = exchange_pitch(kTile), kVector = kTile.n / 32;
  constexpr int kConsumers = wgmma_consumers(kTile), kWarps = 4 * kConsumers;
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  Ring<kTile.stages> ring;
  float sums[kTile.n / 2];
  for (std::int32_t index = first; index < items; index += step) {
    const WorkItem item = work_item<splits_in_cluster(kTile)>(s, index);
    const int begin = item.split * s.split_blocks;
    multiply<T, kTile, kTransA, kTransB>(sums, shared, consumer, min(s.split_blocks, s.k_blocks - begin), ring);

    // The stages are free once every warpgroup has read them.
    if constexpr (kConsumers > 1) ptx::bar_sync(1, kConsumers * kWarpgroup);
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

    const auto cluster = cooperative_groups::this_cluster();
    const std::int64_t tile_row = std::int64_t{item.row_tile} * kTile.m;
    const std::int64_t col = std::int64_t{item.col_tile} * kTile.n + lane * kVector;
    for (int row = item.split + s.splits * (consumer * 4 + warp); row < kTile.m; row += s.splits * kWarps) {
      if (tile_row + row >= p.m) break;
      float terms[kMaxKCluster][kVector];
#pragma unroll
      for (int piece = 0; piece < kMaxKCluster; ++piece) {
        if (piece < s.splits) {
          const float* const from = cluster.map_shared_rank(exchange, piece) + row * kPitch + lane * kVector;
#pragma unroll
          for (int i = 0; i < kVector; i += 2) {
            const float2 pair = *reinterpret_cast<const float2*>(from + i);
            terms[piece][i] = pair.x;
            terms[piece][i + 1] = pair.y;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
#pragma unroll
        for (int piece = 1; piece < kMaxKCluster; ++piece) {
          if (piece < s.splits) terms[0][i] += terms[piece][i];
        }
      }
      T* const d = p.d_at(item.batch, tile_row + row, col);
      const bool together =
          p.d_col == 1 && col + kVector <= p.n && reinterpret_cast<std::uintptr_t>(d) % (2 * sizeof(T)) == 0;
#pragma unroll
      for (int i = 0; i < kVector; i += 2) {
        T pair[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (col + i + j < p.n) pair[j] = p.finish(item.batch, tile_row + row, col + i + j, terms[0][i + j]);
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

// ---- the kernel ---------------------------------------------------------------------------------------------------

// kConfig: the row of kWgmmaTiles.
template <class T, int kConfig, bool kTransA, bool kTransB>
__global__ void __launch_bounds__(wgmma_threads(kWgmmaTiles[kConfig]), kWgmmaTiles[kConfig].per_sm)
    tiled_matmul_wgmma_kernel(const __grid_constant__ WgmmaArguments<T> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaTile kTile = kWgmmaTiles[kConfig];
  extern __shared__ __align__(1024) char raw[];
  const WgmmaShared<kTile> shared = {raw};
  const WgmmaSchedule& s = args.schedule;
  const std::int32_t items = s.items;
  const auto first = static_cast<std::int32_t>(blockIdx.x), step = static_cast<std::int32_t>(gridDim.x);
  constexpr int kConsumers = wgmma_consumers(kTile);
  // Registers can only go to the multiplying warpgroups where a block has the multiprocessor to itself.
  constexpr bool kRebalance = kConsumers == 2 && kTile.per_sm == 1 && !kTile.realigns;
  constexpr int kProducers = wgmma_producers(kTile);
  constexpr bool kInCluster = splits_in_cluster(kTile);

  if (threadIdx.x == 0) {
    if (!s.a_realigned) ptx::prefetch_tensormap(&args.a);
    if (!s.b_realigned) ptx::prefetch_tensormap(&args.b);
    for (int stage = 0; stage < kTile.stages; ++stage) {
      cuda::ptx::mbarrier_init(shared.full(stage), 1 + (kTile.realigns ? kRealignWarps : 0));
      cuda::ptx::mbarrier_init(shared.empty(stage), kConsumers * (kInCluster ? 1 : kTile.cluster));
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

  if (threadIdx.x < kProducers * kWarpgroup) {
    if constexpr (kRebalance) ptx::setmaxnreg_dec<kProducerRegisters>();
    if constexpr (kTile.realigns && sizeof(T) == 2) {
      produce_realigned<T, kTile, kTransA, kTransB>(args, shared, first, step, items);
    } else if (threadIdx.x == 0) {
      const std::uint32_t rank = kTile.cluster > 1 ? first % kTile.cluster : 0;
      produce<T, kTile, kTransA, kTransB>(args, shared, first, step, items, rank);
    }
    if constexpr (kInCluster) exchange_barrier();
  } else {
    if constexpr (kRebalance) ptx::setmaxnreg_inc<kConsumerRegisters>();
    const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - kProducers;
    if constexpr (kInCluster) {
      consume_piece<T, kTile, kTransA, kTransB>(args, shared, first, step, items, consumer);
    } else {
      consume<T, kTile, kTransA, kTransB>(args, shared, first, step, items, consumer);
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
