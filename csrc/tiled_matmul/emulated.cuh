// emulated: float32 and complex64 results from the bfloat16 tensor cores of sm_90a. Each operand has been split into
// three planes, hi + mid / 256 + lo / 65536 (emulated.hpp, split.cuh); six of the nine products of planes are formed,
// all nine where an operand has subnormal elements. A complex product is a real one until its results are stored: m, n
// and k below are those of the real one.
//
// Tiling: persistent blocks walk over output tiles of m x n; k goes by in steps of 64. Warpgroup 0 loads (one thread of
// it) the three planes of both operands into three slots of a ring, lo first. Warpgroups 1 and 2 multiply: 64 rows each
// of a tile of 128, or every other step of k of a tile of 64, whose sums they add up in shared memory. Planes lie in
// the major order of their operand, which wgmma reads either way. The blocks of a cluster work on tiles below each
// other, and each loads its share of their common tile of b into all of them.
//
// Sums: for a step of 64 of k one set of accumulators, `terms`, takes the products of the order of 2^-16 (mid mid,
// lo hi, hi lo), is multiplied by 2^-8 and takes those of 2^-8 (mid hi, hi mid). Another, `lost`, takes hi hi in one,
// two or four parts (emulated_chain), and after each part is added to sums in registers; the rounding errors of those
// additions (Kahan) stay behind in it. After the step it takes 2^-8 times `terms`, so that they go to the sums with the
// next step, or at the end. So small terms are not cut off against large ones, few steps of the tensor core, which
// rounds toward zero, end in the size of the result, and the error does not grow with k.
//
// Keeping the tensor cores busy: while one set of accumulators is worked on, products into the other are under way.
// Only at the end of a step are both at rest; the other warpgroup multiplies meanwhile, as it begins half a step later,
// or works on other steps. (2048^3 took 3 % longer where both began together, and where they waited for turns.)
//
// Barriers, for each slot: `full`, one arrival by the loading thread, which expects the bytes of both tiles; waited on
// by the warpgroups that multiply from it. `empty`, one arrival by each of those in each block of the cluster, when the
// last wgmma that reads the slot has finished: lo in the middle of a step, mid and hi at its end. Named barriers:
// kBeginBarrier, warpgroup 2 waits there once for warpgroup 1 to have begun; kHalvesBarrier, both have written, or
// read, each other's half of the sums.
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

inline constexpr int kBeginBarrier = 1;
inline constexpr int kHalvesBarrier = 2;

// Registers a thread; with 24 the loading warpgroup spills.
inline constexpr int kEmulatedProducerRegisters = 40;
inline constexpr int kEmulatedConsumerRegisters = 232;

// T: float or Complex<float>.
template <class T>
struct EmulatedArguments {
  CUtensorMap a, b;  // of all planes: plane p of matrix i is number p * batch + i
  Arguments<T> problem;
  WgmmaSchedule schedule;
  std::int32_t items;      // output tiles, of all batches and pieces of k
  const uint4* subnormal;  // a byte that is not 0: a block of the split found a subnormal element
  std::int64_t subnormal_words;
  int chain;  // emulated_chain()
};

template <EmulatedTile kTile>
struct EmulatedShared {
  static constexpr int kSlotBytes = emulated_slot_bytes(kTile);
  static constexpr int kBytesA = kTile.m * kWgmmaK * 2;

  char* base;  // a multiple of 1024 bytes, as the swizzle is one of addresses

  __device__ char* a(int slot) const { return base + slot * kSlotBytes; }
  __device__ char* b(int slot) const { return a(slot) + kBytesA; }
  __device__ std::uint64_t* full(int slot) const { return reinterpret_cast<std::uint64_t*>(a(kTile.slots)) + slot; }
  __device__ std::uint64_t* empty(int slot) const { return full(kTile.slots) + slot; }
  // Where a multiplying thread keeps the number of its item.
  __device__ volatile std::int32_t* item() const {
    return reinterpret_cast<volatile std::int32_t*>(empty(kTile.slots)) + (threadIdx.x - kWarpgroup);
  }
  // What a warpgroup, 0 or 1, gives to the other: half of its sums.
  __device__ float* exchange(int consumer) const {
    return reinterpret_cast<float*>(empty(kTile.slots) + kWarpgroup) + consumer * (emulated_exchange_bytes(kTile) / 8);
  }
};

// ---- loading ------------------------------------------------------------------------------------------------------

template <EmulatedTile kTile, bool kTransA, bool kTransB, class T>
__device__ __forceinline__ void produce_planes(const EmulatedArguments<T>& args, const EmulatedShared<kTile>& shared,
                                               std::int32_t first, std::int32_t step, std::uint32_t rank) {
  const WgmmaSchedule& s = args.schedule;
  const int a_matrices = s.a_batched ? s.batch : 1, b_matrices = s.b_batched ? s.batch : 1;
  Ring<kTile.slots> ring;
  for (std::int32_t index = first; index < args.items; index += step) {
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
        load_operand<kTransA, kTile.m, 1>(shared.a(ring.stage), args.a, full, item.row_tile * kTile.m, block * kWgmmaK,
                                          plane * a_matrices + a_matrix, 0);
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
    if (!shares_k(kTile) && consumer_ == 1) ptx::bar_sync(kBeginBarrier, 2 * kWarpgroup);
  }

  // sums + lost is the product of `blocks` steps of k, of which kChain steps of 16 at a time go to the sums.
  template <int kChain>
  __device__ __forceinline__ void multiply(float (&sums)[kCount], float (&lost)[kCount], float (&terms)[kCount],
                                           int blocks, bool has_subnormal) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = lost[i] = terms[i] = 0;
    if (shares_k(kTile) && consumer_ == 1) skip_step();
    for (int block = shares_k(kTile) ? consumer_ : 0; block < blocks; block += shares_k(kTile) ? 2 : 1) {
      const int lo = next_slot(), mid = next_slot(), hi = next_slot();

      if (has_subnormal) add_smallest(terms, lo, mid);
      pin(terms);
      pin(lost);
      ptx::wgmma_fence();
      if constexpr (kChain < 4) {
        product_steps<0, kChain>(lost, hi, hi, true);
        ptx::wgmma_commit_group();
      }
      product(terms, mid, mid, has_subnormal);
      product_steps<0, 2>(terms, lo, hi, true);
      if constexpr (kChain == 1) add_and_continue<1>(sums, lost, hi);
      product_steps<2, 4>(terms, lo, hi, true);
      product(terms, hi, lo, true);
      ptx::wgmma_commit_group();
      if constexpr (kChain == 4) {
        product_steps<0, 4>(lost, hi, hi, true);
        ptx::wgmma_commit_group();
      }
      let_other_begin(block);
      if constexpr (kChain < 4) add_to_sums(sums, lost);
      ptx::wgmma_wait_group<kChain == 4 ? 1 : 0>();
      pin(terms);
      release_slot<kTile>(shared_, latest_slot(2));
#pragma unroll
      for (int i = 0; i < kCount; ++i) terms[i] *= 1 / kPlaneStep;
      pin(terms);

      ptx::wgmma_fence();
      if constexpr (kChain < 4) {
        product_steps<2, 2 + kChain>(lost, hi, hi, true);
        ptx::wgmma_commit_group();
      }
      product(terms, mid, hi, true);
      if constexpr (kChain == 1) add_and_continue<3>(sums, lost, hi);
      product(terms, hi, mid, true);
      ptx::wgmma_commit_group();
      add_to_sums(sums, lost);
      ptx::wgmma_wait_group<0>();
      pin(terms);
      release_slot<kTile>(shared_, latest_slot(1));
      release_slot<kTile>(shared_, latest_slot(0));
#pragma unroll
      for (int i = 0; i < kCount; ++i) lost[i] = fmaf(terms[i], 1 / kPlaneStep, lost[i]);
      if (shares_k(kTile) && block + 1 < blocks) skip_step();
    }
  }

 private:
  __device__ __forceinline__ int next_slot() {
    const int slot = ring_.stage;
    wait(shared_.full(slot), ring_.phase);
    ring_.advance();
    return slot;
  }

  // The slot of the latest call of next_slot(), or `before` calls before it. Worked out again where it is released,
  // so that nothing of it stays in registers.
  __device__ __forceinline__ int latest_slot(int before) const {
    const int slot = ring_.stage - before - 1;
    return slot < 0 ? slot + kTile.slots : slot;
  }

  __device__ __forceinline__ void skip_step() {
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) ring_.advance();
  }

  // Once, in the first step of warpgroup 0.
  __device__ __forceinline__ void let_other_begin(int block) {
    if (!shares_k(kTile) && consumer_ == 0 && block == 0 && *shared_.item() == static_cast<std::int32_t>(blockIdx.x)) {
      ptx::bar_arrive(kBeginBarrier, 2 * kWarpgroup);
    }
  }

  // terms = lo lo, mid lo and lo mid, which only subnormal elements need.
  __device__ __forceinline__ void add_smallest(float (&terms)[kCount], int lo, int mid) {
#pragma unroll 1
    for (int pass = 0; pass < 3; ++pass) {
      pin(terms);
      ptx::wgmma_fence();
      product(terms, pass == 1 ? mid : lo, pass == 2 ? mid : lo, pass > 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<0>();
      pin(terms);
      const float factor = pass == 1 ? 1.0f : 1 / kPlaneStep;
#pragma unroll
      for (int i = 0; i < kCount; ++i) terms[i] *= factor;
    }
  }

  // When all groups but the latest have finished: sums += lost, which keeps what that loses. In assembly, because the
  // compiler otherwise keeps both the old sums and the new ones and spills.
  __device__ __forceinline__ void add_to_sums(float (&sums)[kCount], float (&lost)[kCount]) {
    ptx::wgmma_wait_group<1>();
    pin(lost);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      asm volatile(
          "{\n"
          ".reg .f32 sum, gained;\n"
          "add.rn.f32 sum, %0, %1;\n"
          "sub.rn.f32 gained, sum, %0;\n"
          "sub.rn.f32 %1, %1, gained;\n"
          "mov.f32 %0, sum;\n"
          "}\n"
          : "+f"(sums[i]), "+f"(lost[i]));
    }
    pin(lost);
  }

  // In the middle of the products into terms: the part of hi hi before kStep goes to the sums, and kStep is begun.
  template <int kStep>
  __device__ __forceinline__ void add_and_continue(float (&sums)[kCount], float (&lost)[kCount], int hi) {
    ptx::wgmma_commit_group();
    add_to_sums(sums, lost);
    ptx::wgmma_fence();
    product_steps<kStep, kStep + 1>(lost, hi, hi, true);
    ptx::wgmma_commit_group();
  }

  // 64 of k of one plane of a and one of b.
  __device__ __forceinline__ void product(float (&to)[kCount], int a_slot, int b_slot, bool adds) {
    product_steps<0, kWgmmaK / 16>(to, a_slot, b_slot, adds);
  }

  // 16 of them at a time.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void product_steps(float (&to)[kCount], int a_slot, int b_slot, bool adds) {
#pragma unroll
    for (int step = kFirst; step < kEnd; ++step) step_product(to, a_slot, b_slot, step, adds || step > 0);
  }

  __device__ __forceinline__ void step_product(float (&to)[kCount], int a_slot, int b_slot, int step, bool adds) {
    // Within a box: 16 of k are 32 bytes of each line, or 16 lines where the operand lies the other way.
    constexpr int kStepA = kTransA ? 2048 : 32, kLeadingA = kTransA ? kWgmmaBoxBytes : 16;
    constexpr int kStepB = kTransB ? 2048 : 32, kLeadingB = kTransB ? kWgmmaBoxBytes : 16;
    const std::uint32_t a = ptx::shared_address(shared_.a(a_slot)) + (shares_k(kTile) ? 0 : consumer_ * kWgmmaBoxBytes);
    const std::uint32_t b = ptx::shared_address(shared_.b(b_slot));
    ptx::Wgmma<BFloat16, kTile.n, kTransA, kTransB>::mma(to, ptx::wgmma_descriptor(a + step * kStepA, kLeadingA, 1024),
                                                         ptx::wgmma_descriptor(b + step * kStepB, kLeadingB, 1024),
                                                         adds);
  }

  const EmulatedShared<kTile>& shared_;
  int consumer_;
  Ring<kTile.slots> ring_;
};

// ---- storing ------------------------------------------------------------------------------------------------------

// Each warpgroup has sums of a part of k: one keeps the left half of their columns, the other the right one.
template <EmulatedTile kTile>
__device__ __forceinline__ void exchange_halves(float (&half)[kTile.n / 4], const float (&sums)[kTile.n / 2],
                                                const EmulatedShared<kTile>& shared, int consumer) {
  constexpr int kHalf = kTile.n / 4;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    shared.exchange(consumer)[i * kWarpgroup + thread] = consumer == 0 ? sums[kHalf + i] : sums[i];
  }
  ptx::bar_sync(kHalvesBarrier, 2 * kWarpgroup);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    half[i] = (consumer == 0 ? sums[i] : sums[kHalf + i]) + shared.exchange(consumer ^ 1)[i * kWarpgroup + thread];
  }
  ptx::bar_sync(kHalvesBarrier, 2 * kWarpgroup);
}

template <int kCount, class T>
__device__ __forceinline__ void store_sums(float (&sums)[kCount], const EmulatedArguments<T>& args,
                                           const FragmentOrigin& at, const WorkItem& item) {
  const WgmmaSchedule& s = args.schedule;
  const Arguments<T>& p = args.problem;
  if (s.splits > 1) {
    const std::int64_t matrix = std::int64_t{item.split} * s.batch + item.batch;
    store_piece(sums, p, s.partial + matrix * p.m * p.n * kRealParts<T>, at);
  } else {
    store_results(sums, p, at, item.batch);
  }
}

template <EmulatedTile kTile, bool kTransA, bool kTransB, class T>
__device__ __forceinline__ void consume_planes(const EmulatedArguments<T>& args, const EmulatedShared<kTile>& shared,
                                               std::int32_t first, std::int32_t step, int consumer) {
  constexpr int kCount = kTile.n / 2;
  const WgmmaSchedule& s = args.schedule;
  const bool subnormal = has_subnormal(args);
  PlaneMultiplier<kTile, kTransA, kTransB> multiplier(shared, consumer);
  float sums[kCount], lost[kCount], terms[kCount];
  for (std::int32_t index = first; index < args.items; index += step) {
    // The sums leave no register for it.
    *shared.item() = index;
    const int begin = work_item<false>(s, index).split * s.split_blocks;
    const int blocks = __reduce_max_sync(~0u, min(s.split_blocks, s.k_blocks - begin));
    if (args.chain == 4) {
      multiplier.template multiply<4>(sums, lost, terms, blocks, subnormal);
    } else if (args.chain == 2) {
      multiplier.template multiply<2>(sums, lost, terms, blocks, subnormal);
    } else {
      multiplier.template multiply<1>(sums, lost, terms, blocks, subnormal);
    }
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    index = *shared.item();
    const int lane = thread % 32, warp = thread / 32 % 4;
    const WorkItem item = work_item<false>(s, index);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += lost[i];
    const FragmentOrigin at = {
        std::int64_t{item.row_tile} * kTile.m + (shares_k(kTile) ? 0 : consumer * 64) + warp * 16 + lane / 4,
        std::int64_t{item.col_tile} * kTile.n + (shares_k(kTile) ? consumer * (kTile.n / 2) : 0) + lane % 4 * 2};
    if constexpr (shares_k(kTile)) {
      float half[kCount / 2];
      exchange_halves(half, sums, shared, consumer);
      store_sums(half, args, at, item);
    } else {
      store_sums(sums, args, at, item);
    }
  }
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
  const auto first = static_cast<std::int32_t>(blockIdx.x), step = static_cast<std::int32_t>(gridDim.x);

  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kTile.slots; ++slot) {
      cuda::ptx::mbarrier_init(shared.full(slot), 1);
      cuda::ptx::mbarrier_init(shared.empty(slot), (shares_k(kTile) ? 1 : 2) * kTile.cluster);
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
      produce_planes<kTile, kTransA, kTransB>(args, shared, first, step, rank);
    }
  } else {
    ptx::setmaxnreg_inc<kEmulatedConsumerRegisters>();
    const int consumer = __reduce_max_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup - 1);
    consume_planes<kTile, kTransA, kTransB>(args, shared, first, step, consumer);
  }
  if constexpr (kTile.cluster > 1) {
    // A block must not end while another still arrives at its barriers or loads into it.
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  }
#endif
}

}  // namespace pmpp::matmul
