// emulated: float32 and complex64 results from the bfloat16 tensor cores of sm_90a. Each operand has been split into
// three planes, hi + mid / 256 + lo / 65536 (emulated.hpp, split.cuh); six of the nine products of planes are formed,
// all nine where an operand has subnormal elements. A complex product is a real one until its results are stored: m, n
// and k below are those of the real one.
//
// Tiling: persistent blocks walk over output tiles of 128 x n; k goes by in steps of 64. Warpgroup 0 loads (one thread
// of it) the three planes of both operands into three slots of a ring, lo first; warpgroups 1 and 2 multiply 64 rows
// each. Planes lie in the major order of their operand, which wgmma reads either way. The blocks of a cluster work on
// tiles below each other, and each loads its share of their common tile of b into all of them.
//
// Sums: for a step of 64 of k the accumulators take the products of the order of 2^-16 first (mid mid, lo hi, hi lo),
// are multiplied by 2^-8, take those of 2^-8 (mid hi, hi mid), are multiplied by 2^-8 and take hi hi, in one, two or
// four parts (emulated_chain). So small terms are not cut off against large ones, and few steps of the tensor core,
// which rounds toward zero, end in the size of the result. After each part the accumulators are added to sums in
// registers, whose rounding errors are kept (Kahan) and go into what follows, so that the error does not grow with k.
// Between those groups a warpgroup has to wait for its accumulators: the two take turns, so that one multiplies
// meanwhile.
//
// Barriers, for each slot: `full`, one arrival by the loading thread, which expects the bytes of both tiles; waited on
// by the multiplying warpgroups. `empty`, one arrival by each multiplying warpgroup of each block of the cluster, when
// the last wgmma that reads the slot has finished: lo after the first group, mid after the second, hi after the third.
// Named barrier kTurnBarrier + i: warpgroup i waits for its turn, the other arrives when it has issued its group.
//
// Epilogue: sums go to d from the registers, in pieces of 32 bytes a row; what is NaN or infinite is computed anew from
// the original operands (emulated_store.cuh). With pieces of k, sums go to the workspace, and the second pass does
// that.
//
// Preconditions: select_emulated.cpp; TMA fills what lies outside a matrix with zeros, so sizes are free.
#pragma once

#include <cuda/ptx>

#include "csrc/ptx/hopper.cuh"
#include "csrc/ptx/wgmma.cuh"
#include "csrc/tiled_matmul/emulated.hpp"
#include "csrc/tiled_matmul/emulated_store.cuh"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/wgmma.cuh"

namespace pmpp::matmul {

inline constexpr int kTurnBarrier = 1;

// Registers a thread; with 24 the loading warpgroup spills.
inline constexpr int kEmulatedProducerRegisters = 40;
inline constexpr int kEmulatedConsumerRegisters = 232;

// T: float or Complex<float>.
template <class T>
struct EmulatedArguments {
  CUtensorMap a, b;  // of all planes: plane p of matrix i is number p * batch + i
  Arguments<T> problem;
  WgmmaSchedule schedule;
  const uint4* subnormal;  // a byte that is not 0: a block of the split found a subnormal element
  std::int64_t subnormal_words;
  int chain;  // emulated_chain()
};

template <EmulatedTile kTile>
struct EmulatedShared {
  static constexpr int kSlotBytes = emulated_slot_bytes(kTile);
  static constexpr int kBytesA = kEmulatedM * kWgmmaK * 2;

  char* base;  // a multiple of 1024 bytes, as the swizzle is one of addresses

  __device__ char* a(int slot) const { return base + slot * kSlotBytes; }
  __device__ char* b(int slot) const { return a(slot) + kBytesA; }
  __device__ std::uint64_t* full(int slot) const { return reinterpret_cast<std::uint64_t*>(a(kTile.slots)) + slot; }
  __device__ std::uint64_t* empty(int slot) const { return full(kTile.slots) + slot; }
};

// ---- loading ------------------------------------------------------------------------------------------------------

template <EmulatedTile kTile, bool kTransA, bool kTransB, class T>
__device__ __forceinline__ void produce_planes(const EmulatedArguments<T>& args, const EmulatedShared<kTile>& shared,
                                               std::int32_t first, std::int32_t step, std::int32_t items,
                                               std::uint32_t rank) {
  const WgmmaSchedule& s = args.schedule;
  const int a_matrices = s.a_batched ? s.batch : 1, b_matrices = s.b_batched ? s.batch : 1;
  Ring<kTile.slots> ring;
  for (std::int32_t index = first; index < items; index += step) {
    const WorkItem item = work_item<false>(s, index);
    const int begin = item.split * s.split_blocks;
    const int end = min(begin + s.split_blocks, s.k_blocks);
    const int a_matrix = s.a_batched ? item.batch : 0, b_matrix = s.b_batched ? item.batch : 0;
    for (int block = begin; block < end; ++block) {
#pragma unroll
      for (int plane = kPlanes - 1; plane >= 0; --plane) {
        wait(shared.empty(ring.stage), ring.phase ^ 1);
        std::uint64_t* const full = shared.full(ring.stage);
        cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                             full, emulated_slot_bytes(kTile));
        load_operand<kTransA, kEmulatedM, 1>(shared.a(ring.stage), args.a, full, item.row_tile * kEmulatedM,
                                             block * kWgmmaK, plane * a_matrices + a_matrix, 0);
        load_operand<kTransB, kTile.n, kTile.cluster>(shared.b(ring.stage), args.b, full, item.col_tile * kTile.n,
                                                      block * kWgmmaK, plane * b_matrices + b_matrix, rank);
        ring.advance();
      }
    }
  }
}

// ---- multiplying --------------------------------------------------------------------------------------------------

// Tells the loading threads that this warpgroup has read a slot.
template <EmulatedTile kTile>
__device__ __forceinline__ void release_slot(const EmulatedShared<kTile>& shared, int slot) {
  const unsigned thread = threadIdx.x % kWarpgroup;
  if constexpr (kTile.cluster == 1) {
    if (thread == 0) cuda::ptx::mbarrier_arrive(shared.empty(slot));
  } else {
    if (thread < kTile.cluster) ptx::mbarrier_arrive_remote(shared.empty(slot), thread);
  }
}

// The compiler must neither read accumulators before a wait nor change them after a fence.
template <int kCount>
__device__ __forceinline__ void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// Whether an operand has a subnormal element. Every warp looks for itself, so that none waits for another.
template <class T>
__device__ __forceinline__ bool has_subnormal(const EmulatedArguments<T>& args) {
  unsigned found = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x % 32; i < args.subnormal_words; i += 32) {
    const uint4 word = args.subnormal[i];
    found |= word.x | word.y | word.z | word.w;
  }
  return __any_sync(~0u, found != 0) != 0;
}

// One multiplying warpgroup, 0 or 1.
template <EmulatedTile kTile, bool kTransA, bool kTransB>
class PlaneMultiplier {
  static constexpr int kCount = kTile.n / 2;

 public:
  __device__ __forceinline__ PlaneMultiplier(const EmulatedShared<kTile>& shared, int consumer)
      : shared_(shared), consumer_(consumer) {
    // Warpgroup 0 begins, and the other lets its first turn pass, so that it stays one group behind: 12, 8 and 4
    // products are then followed by 4, 12 and 8 of the other (with hi hi in one part), time enough for what is to be
    // done between groups.
    if (consumer_ == 1) {
      pass_turn();
      take_turn();
      pass_turn();
    }
  }

  // As many turns as the other, so that nobody is left waiting or waited for.
  __device__ __forceinline__ void finish() {
    if (consumer_ == 0) {
      take_turn();
      pass_turn();
      take_turn();
    }
  }

  // sums + lost is the product of `blocks` steps of k.
  __device__ __forceinline__ void multiply(float (&sums)[kCount], float (&lost)[kCount], float (&terms)[kCount],
                                           int blocks, int chain, bool has_subnormal) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = lost[i] = 0;
    for (int block = 0; block < blocks; ++block) {
      const int lo = next_slot(), mid = next_slot(), hi = next_slot();

      begin_group(terms);
      if (has_subnormal) {
        add_smallest(terms, lo, mid);
      } else {
        product(terms, mid, mid, false);
      }
      product(terms, lo, hi, true);
      product(terms, hi, lo, true);
      end_group(terms);
      release_slot<kTile>(shared_, lo);
      scale(terms);

      begin_group(terms);
      product(terms, mid, hi, true);
      product(terms, hi, mid, true);
      end_group(terms);
      release_slot<kTile>(shared_, mid);
#pragma unroll
      for (int i = 0; i < kCount; ++i) terms[i] = fmaf(terms[i], 1 / kPlaneStep, lost[i]);

      if (chain == 4) {
        add_largest<4>(sums, terms, hi);
      } else if (chain == 2) {
        add_largest<2>(sums, terms, hi);
      } else {
        add_largest<1>(sums, terms, hi);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) lost[i] = terms[i];
    }
  }

 private:
  __device__ __forceinline__ int next_slot() {
    const int slot = ring_.stage;
    wait(shared_.full(slot), ring_.phase);
    ring_.advance();
    return slot;
  }

  __device__ __forceinline__ void take_turn() {
    if constexpr (kTile.takes_turns) ptx::bar_sync(kTurnBarrier + consumer_, 2 * kWarpgroup);
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (kTile.takes_turns) ptx::bar_arrive(kTurnBarrier + (consumer_ ^ 1), 2 * kWarpgroup);
  }

  __device__ __forceinline__ void begin_group(float (&terms)[kCount]) {
    pin(terms);
    take_turn();
    ptx::wgmma_fence();
  }

  __device__ __forceinline__ void end_group(float (&terms)[kCount]) {
    ptx::wgmma_commit_group();
    pass_turn();
    ptx::wgmma_wait_group<0>();
    pin(terms);
  }

  __device__ __forceinline__ void scale(float (&terms)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) terms[i] *= 1 / kPlaneStep;
  }

  // Within a turn: lo lo, mid lo and lo mid, which only subnormal elements need, and mid mid.
  __device__ __forceinline__ void add_smallest(float (&terms)[kCount], int lo, int mid) {
    product(terms, lo, lo, false);
    finish_products(terms);
    product(terms, mid, lo, true);
    product(terms, lo, mid, true);
    finish_products(terms);
    product(terms, mid, mid, true);
  }

  __device__ __forceinline__ void finish_products(float (&terms)[kCount]) {
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    pin(terms);
    scale(terms);
    pin(terms);
    ptx::wgmma_fence();
  }

  // The products of hi and hi, of which kChain steps at a time go to the sums; terms keep what those lose.
  template <int kChain>
  __device__ __forceinline__ void add_largest(float (&sums)[kCount], float (&terms)[kCount], int hi) {
#pragma unroll
    for (int step = 0; step < kWgmmaK / 16; step += kChain) {
      begin_group(terms);
#pragma unroll
      for (int i = 0; i < kChain; ++i) step_product(terms, hi, hi, step + i, true);
      end_group(terms);
      if (step + kChain == kWgmmaK / 16) release_slot<kTile>(shared_, hi);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float sum = sums[i] + terms[i];
        terms[i] -= sum - sums[i];
        sums[i] = sum;
      }
    }
  }

  // 64 of k of one plane of a and one of b.
  __device__ __forceinline__ void product(float (&terms)[kCount], int a_slot, int b_slot, bool adds) {
#pragma unroll
    for (int step = 0; step < kWgmmaK / 16; ++step) step_product(terms, a_slot, b_slot, step, adds || step > 0);
  }

  // 16 of them.
  __device__ __forceinline__ void step_product(float (&terms)[kCount], int a_slot, int b_slot, int step, bool adds) {
    // Within a box: 16 of k are 32 bytes of each line, or 16 lines where the operand lies the other way.
    constexpr int kStepA = kTransA ? 2048 : 32, kLeadingA = kTransA ? kWgmmaBoxBytes : 16;
    constexpr int kStepB = kTransB ? 2048 : 32, kLeadingB = kTransB ? kWgmmaBoxBytes : 16;
    const std::uint32_t a = ptx::shared_address(shared_.a(a_slot)) + consumer_ * kWgmmaBoxBytes;
    const std::uint32_t b = ptx::shared_address(shared_.b(b_slot));
    ptx::Wgmma<BFloat16, kTile.n, kTransA, kTransB>::mma(
        terms, ptx::wgmma_descriptor(a + step * kStepA, kLeadingA, 1024),
        ptx::wgmma_descriptor(b + step * kStepB, kLeadingB, 1024), adds);
  }

  const EmulatedShared<kTile>& shared_;
  int consumer_;
  Ring<kTile.slots> ring_;
};

// ---- storing ------------------------------------------------------------------------------------------------------

template <EmulatedTile kTile, bool kTransA, bool kTransB, class T>
__device__ __forceinline__ void consume_planes(const EmulatedArguments<T>& args, const EmulatedShared<kTile>& shared,
                                               std::int32_t first, std::int32_t step, std::int32_t items,
                                               int consumer) {
  constexpr int kCount = kTile.n / 2;
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool subnormal = has_subnormal(args);
  PlaneMultiplier<kTile, kTransA, kTransB> multiplier(shared, consumer);
  float sums[kCount], lost[kCount], terms[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) terms[i] = 0;
  for (std::int32_t index = first; index < items; index += step) {
    const WorkItem item = work_item<false>(s, index);
    const int begin = item.split * s.split_blocks;
    multiplier.multiply(sums, lost, terms, min(s.split_blocks, s.k_blocks - begin), args.chain, subnormal);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += lost[i];
    const FragmentOrigin at = {std::int64_t{item.row_tile} * kEmulatedM + consumer * 64 + warp * 16 + lane / 4,
                               std::int64_t{item.col_tile} * kTile.n + lane % 4 * 2};
    if (s.splits > 1) {
      const std::int64_t matrix = std::int64_t{item.split} * s.batch + item.batch;
      store_partial(sums, p, s.partial + matrix * p.m * p.n * kRealParts<T>, at);
      continue;
    }
    const std::uint64_t found = not_finite(sums, p, at);
    apply_scalars(sums, p, at, item.batch);
    store_fragments(sums, p, at, item.batch, found);
    if (__any_sync(~0u, found != 0)) store_exact(p, at, item.batch, found);
  }
  multiplier.finish();
}

// ---- the kernel ---------------------------------------------------------------------------------------------------

// T: float or Complex<float>. kConfig: the row of kEmulatedTiles.
template <class T, int kConfig, bool kTransA, bool kTransB>
__global__ void __launch_bounds__(kEmulatedThreads, 1)
    tiled_matmul_emulated_kernel(const __grid_constant__ EmulatedArguments<T> args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr EmulatedTile kTile = kEmulatedTiles[kConfig];
  extern __shared__ __align__(1024) char raw[];
  const EmulatedShared<kTile> shared = {raw};
  const WgmmaSchedule& s = args.schedule;
  const std::int32_t items = s.row_tiles * s.col_tiles * s.splits * s.batch;
  const auto first = static_cast<std::int32_t>(blockIdx.x), step = static_cast<std::int32_t>(gridDim.x);

  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kTile.slots; ++slot) {
      cuda::ptx::mbarrier_init(shared.full(slot), 1);
      cuda::ptx::mbarrier_init(shared.empty(slot), 2 * kTile.cluster);
    }
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
  if constexpr (kTile.cluster > 1) {
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  if (s.splits > 1) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (threadIdx.x < kWarpgroup) {
    ptx::setmaxnreg_dec<kEmulatedProducerRegisters>();
    if (threadIdx.x == 0) {
      const std::uint32_t rank = kTile.cluster > 1 ? first % kTile.cluster : 0;
      produce_planes<kTile, kTransA, kTransB>(args, shared, first, step, items, rank);
    }
  } else {
    ptx::setmaxnreg_inc<kEmulatedConsumerRegisters>();
    const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
    consume_planes<kTile, kTransA, kTransB>(args, shared, first, step, items, consumer);
  }
  if constexpr (kTile.cluster > 1) {
    // A block must not end while another still arrives at its barriers or loads into it.
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  }
#endif
}

}  // namespace pmpp::matmul
