// mma: tensor cores through mma.sync, float16 and bfloat16 operands, float32 sums. For GPUs from sm_80 on.
//
// Tiling: a block owns a tile of d (MmaTile) and walks k in steps of tile.k; its warps share the tile out, and each
// keeps its sums in registers. Tiles of a and b wait in shared memory, swizzled (mma_load.cuh), in `stages` stages.
// Work: batches x pieces of k x tiles, one line; blocks stride over it. Within a batch and a piece, kGroupRows rows of
// tiles are walked column by column, so that the operands of blocks that run together stay in L2.
// Barriers, cp.async: stages - 1 steps are under way. In a step, a thread waits for its own copies of the next one,
// then all arrive and wait: then every thread may read that stage, and the stage that has just been read may be
// overwritten. Barriers, registers: two stages; the next step is read from global memory before the products of this
// one and put into the other stage after them; then all arrive and wait. Either way it is one barrier a step.
// Writing: a warp passes sixteen rows of its sums at a time through shared memory of its own, so that lanes write whole
// pieces of rows (or columns, where d is transposed).
// Preconditions: blockDim.x and dynamic shared memory of the tile; with tile.async both operands as is_mma_async()
// says; kAAlongK and kBAlongK as MmaOperand::along_k() says.
#pragma once

#include <cstdint>
#include <cstring>

#include "csrc/ptx/cp_async.cuh"
#include "csrc/ptx/ldmatrix.cuh"
#include "csrc/ptx/mma.cuh"
#include "csrc/tiled_matmul/mma.hpp"
#include "csrc/tiled_matmul/mma_load.cuh"
#include "csrc/tiled_matmul/work.cuh"

namespace pmpp::matmul {

template <class T>
struct MmaArguments {
  Arguments<T> p;
  std::int64_t tiles_m, tiles_n, items;
  std::int64_t split_k;
  int splits;
  float* partial;     // null: the sums are finished; else they go here, [split][batch][m][n]
  bool wide;          // eight neighbours of d, or four partial sums, lie at a multiple of 16 bytes
  bool down_columns;  // of d, columns are nearer to contiguous than rows
};

// Where a lane's row of ldmatrix lies in a stage, for sixteen of m or n and sixteen of k at a time. A fragment of a
// wants the second eight of m before the second eight of k, one of b the other way round.
template <class Layout, bool kAlongK, bool kIsA>
class FragmentReader {
 public:
  __device__ __forceinline__ FragmentReader(int mn0, int lane) {
    const int first_half = (lane >> 3) & 1;
    const int second_half = lane >> 4;
    const int mn_half = kIsA ? first_half : second_half;
    const int k_half = kIsA ? second_half : first_half;
    const int in_matrix = lane & 7;
    offset_ = kAlongK ? Layout::offset(mn0 + mn_half * 8 + in_matrix, k_half)
                      : Layout::offset(k_half * 8 + in_matrix, mn0 / 8 + mn_half);
  }

  // The fragment of m or n mn0 + 16 * mn and k 16 * k. Chunks move by XOR, because that is how they are swizzled;
  // stages start at multiples of a line's swizzled part.
  __device__ __forceinline__ void read(std::uint32_t (&fragment)[4], std::uint32_t stage, int mn, int k) const {
    if constexpr (kAlongK) {
      ptx::ldmatrix_x4(fragment, ((stage + offset_) ^ (k * 32)) + mn * (16 * Layout::kRowBytes));
    } else {
      ptx::ldmatrix_x4_trans(fragment, ((stage + offset_) ^ (mn * 32)) + k * (16 * Layout::kRowBytes));
    }
  }

 private:
  std::uint32_t offset_;
};

template <class T, int kConfig, bool kAAlongK, bool kBAlongK>
struct MmaKernel {
  static constexpr MmaTile kTile = kMmaTiles[kConfig];
  static constexpr int kThreads = kTile.threads();
  static constexpr int kMTiles = kTile.warp_m() / 16;  // fragments of a
  static constexpr int kNTiles = kTile.warp_n() / 16;  // pairs of fragments of b
  static constexpr int kKTiles = kTile.k / 16;
  static constexpr int kPitch = kTile.staged_pitch();
  using ALayout = TileLayout<kTile.m, kTile.k, kAAlongK>;
  using BLayout = TileLayout<kTile.n, kTile.k, kBAlongK>;
  using Sums = float[kMTiles][kNTiles * 2][4];
  // XOR with up to 7 chunks must not carry into the stage's address, and a warp's chunks must start at a multiple of
  // their number.
  static_assert(kTile.stage_bytes() % 128 == 0 && ALayout::kBytes % 128 == 0);
  static_assert(kTile.warp_m() == 16 || kTile.warp_m() == 32 || kTile.warp_m() == 64);
  static_assert(kTile.warp_n() == 32 || kTile.warp_n() == 64);

  // One of two buffers of fragments: while the tensor cores work on one, the other is filled.
  struct Fragments {
    std::uint32_t a[kMTiles][4];
    std::uint32_t b[kNTiles][4];
  };

  FragmentReader<ALayout, kAAlongK, true> a_reader;
  FragmentReader<BLayout, kBAlongK, false> b_reader;

  __device__ __forceinline__ MmaKernel(int warp, int lane)
      : a_reader(warp / kTile.warps_n * kTile.warp_m(), lane), b_reader(warp % kTile.warps_n * kTile.warp_n(), lane) {}

  __device__ __forceinline__ void read(Fragments& fragments, std::uint32_t stage, int k) const {
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) a_reader.read(fragments.a[i], stage, i, k);
#pragma unroll
    for (int j = 0; j < kNTiles; ++j) b_reader.read(fragments.b[j], stage + ALayout::kBytes, j, k);
  }

  // Neighbouring products share a fragment of b, and every second row of them runs backwards to share one of a.
  static __device__ __forceinline__ void multiply(Sums& sums, const Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
      for (int step = 0; step < kNTiles * 2; ++step) {
        const int j = i % 2 == 0 ? step : kNTiles * 2 - 1 - step;
        const int half = j % 2 * 2;
        ptx::mma_m16n8k16<T>(sums[i][j], fragments.a[i], fragments.b[j / 2][half], fragments.b[j / 2][half + 1]);
      }
    }
  }

  template <class LoadA, class LoadB>
  __device__ __forceinline__ void accumulate_async(Sums& sums, LoadA& a, LoadB& b, std::uint32_t shared,
                                                   std::int64_t k) const {
    constexpr int kStages = kTile.stages;
    // k_left: what is left of k from the step to be loaded on.
    const auto start = [&](int stage, std::int64_t k_left) {
      if (k_left > 0) {
        const std::uint32_t at = shared + stage * kTile.stage_bytes();
        a.start(at, at_most(k_left, kTile.k));
        b.start(at + ALayout::kBytes, at_most(k_left, kTile.k));
      }
      ptx::cp_async_commit_group();
    };
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) start(stage, k - stage * kTile.k);
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();

    Fragments fragments[2];
    int read_stage = 0;
    int load_stage = kStages - 1;
    read(fragments[0], shared, 0);
    for (std::int64_t left = k; left > 0; left -= kTile.k) {
#pragma unroll
      for (int i = 0; i < kKTiles; ++i) {
        if (i == kKTiles - 1) {
          ptx::cp_async_wait_group<kStages - 2>();
          __syncthreads();
          read_stage = read_stage == kStages - 1 ? 0 : read_stage + 1;
        }
        // After the last step this reads a stage that nothing was loaded to; no product uses it.
        read(fragments[(i + 1) % 2], shared + read_stage * kTile.stage_bytes(), (i + 1) % kKTiles);
        if (i == 0) {
          start(load_stage, left - (kStages - 1) * kTile.k);
          load_stage = load_stage == kStages - 1 ? 0 : load_stage + 1;
        }
        multiply(sums, fragments[i % 2]);
      }
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }

  template <class LoadA, class LoadB>
  __device__ __forceinline__ void accumulate_registers(Sums& sums, LoadA& a, LoadB& b, unsigned char* shared,
                                                       std::int64_t k) const {
    int stage = 0;
    const auto load = [&](std::int64_t left) {
      a.load(at_most(left, kTile.k));
      b.load(at_most(left, kTile.k));
    };
    const auto store = [&] {
      a.store(shared + stage * kTile.stage_bytes());
      b.store(shared + stage * kTile.stage_bytes() + ALayout::kBytes);
    };
    load(k);
    store();
    __syncthreads();
    for (std::int64_t left = k; left > 0; left -= kTile.k) {
      const bool more = left > kTile.k;
      if (more) load(left - kTile.k);
      const std::uint32_t at = ptx::shared_address(shared) + stage * kTile.stage_bytes();
#pragma unroll
      for (int i = 0; i < kKTiles; ++i) {
        Fragments fragments;
        read(fragments, at, i);
        multiply(sums, fragments);
      }
      stage ^= 1;
      if (more) store();
      __syncthreads();
    }
  }

  // Writes sixteen rows of a warp from `staged`. rows and cols are how many of the warp's lie inside d.
  static __device__ __forceinline__ void write(const MmaArguments<T>& args, const Work& at, const float* staged,
                                               int rows, int cols, int lane) {
    const Arguments<T>& p = args.p;
    constexpr int kWarpN = kTile.warp_n();
    if (args.partial != nullptr) {
      float* const to = args.partial + ((at.split * p.batch + at.batch) * p.m + at.row) * p.n + at.col;
      if (args.wide) {
        constexpr int kLanes = kWarpN / 4;
        const int col = lane % kLanes * 4;
#pragma unroll 2
        for (int row = lane / kLanes; row < 16; row += 32 / kLanes) {
          if (row < rows && col < cols) {
            *reinterpret_cast<float4*>(to + row * p.n + col) =
                *reinterpret_cast<const float4*>(staged + row * kPitch + col);
          }
        }
      } else {
#pragma unroll 2
        for (int row = 0; row < rows; ++row) {
          for (int col = lane; col < kWarpN; col += 32) {
            if (col < cols) to[row * p.n + col] = staged[row * kPitch + col];
          }
        }
      }
    } else if (args.wide) {
      constexpr int kLanes = kWarpN / kChunkElements;
      const int col = lane % kLanes * kChunkElements;
#pragma unroll 2
      for (int row = lane / kLanes; row < 16; row += 32 / kLanes) {
        if (row >= rows) break;
        if (col + kChunkElements <= cols) {
          float sum[kChunkElements];
          memcpy(sum, staged + row * kPitch + col, sizeof(sum));
          T result[kChunkElements];
#pragma unroll
          for (int e = 0; e < kChunkElements; ++e) {
            result[e] = p.finish(at.batch, at.row + row, at.col + col + e, sum[e]);
          }
          uint4 chunk;
          memcpy(&chunk, result, sizeof(chunk));
          transposition::store_chunk(p.d_at(at.batch, at.row + row, at.col + col), chunk);
        } else {
          for (int e = col; e < cols; ++e) p.store(at.batch, at.row + row, at.col + e, staged[row * kPitch + e]);
        }
      }
    } else if (args.down_columns) {
      const int row = lane % 16;
#pragma unroll 2
      for (int col = lane / 16; col < cols; col += 2) {
        if (row < rows) p.store(at.batch, at.row + row, at.col + col, staged[row * kPitch + col]);
      }
    } else {
#pragma unroll 2
      for (int row = 0; row < rows; ++row) {
#pragma unroll
        for (int col = lane; col < kWarpN; col += 32) {
          if (col < cols) p.store(at.batch, at.row + row, at.col + col, staged[row * kPitch + col]);
        }
      }
    }
  }

  static __device__ __forceinline__ void write_all(const MmaArguments<T>& args, const Work& work, const Sums& sums,
                                                   unsigned char* shared, int warp, int lane) {
    float* const staged = reinterpret_cast<float*>(shared + warp * kTile.staged_bytes());
    const int col0 = warp % kTile.warps_n * kTile.warp_n();
    const int cols = min(at_most(args.p.n - work.col, kTile.n) - col0, kTile.warp_n());
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) {
      const int row0 = warp / kTile.warps_n * kTile.warp_m() + i * 16;
#pragma unroll
      for (int j = 0; j < kNTiles * 2; ++j) {
        float* const to = staged + (lane / 4) * kPitch + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = make_float2(sums[i][j][0], sums[i][j][1]);
        *reinterpret_cast<float2*>(to + 8 * kPitch) = make_float2(sums[i][j][2], sums[i][j][3]);
      }
      __syncwarp();
      const Work at = {work.batch, work.split, work.row + row0, work.col + col0};
      write(args, at, staged, min(at_most(args.p.m - work.row, kTile.m) - row0, 16), cols, lane);
      __syncwarp();
    }
  }
};

template <class T, int kConfig, bool kAAlongK, bool kBAlongK>
__global__ void __launch_bounds__(kMmaTiles[kConfig].threads(), kMmaTiles[kConfig].min_blocks)
    tiled_matmul_mma_kernel(const __grid_constant__ MmaArguments<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Kernel = MmaKernel<T, kConfig, kAAlongK, kBAlongK>;
  constexpr MmaTile kTile = Kernel::kTile;
  extern __shared__ __align__(128) unsigned char mma_shared[];
  const Arguments<T>& p = args.p;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const Kernel kernel(warp, lane);

  for (std::int64_t item = blockIdx.x; item < args.items; item += gridDim.x) {
    const Work work = work_at<kTile.m, kTile.n>(item, args.tiles_m, args.tiles_n, args.splits);
    const std::int64_t k0 = work.split * args.split_k;
    const std::int64_t k = p.k - k0 < args.split_k ? p.k - k0 : args.split_k;
    const T* const a_tile = p.a + work.batch * p.a_batch + work.row * p.a_row + k0 * p.a_col;
    const T* const b_tile = p.b + work.batch * p.b_batch + k0 * p.b_row + work.col * p.b_col;
    const int m_left = at_most(p.m - work.row, kTile.m);
    const int n_left = at_most(p.n - work.col, kTile.n);

    typename Kernel::Sums sums = {};
    if constexpr (kTile.async) {
      AsyncLoader<T, kTile.m, kTile.k, kAAlongK, Kernel::kThreads> a(a_tile, p.a_row, p.a_col, m_left, thread);
      AsyncLoader<T, kTile.n, kTile.k, kBAlongK, Kernel::kThreads> b(b_tile, p.b_col, p.b_row, n_left, thread);
      kernel.accumulate_async(sums, a, b, ptx::shared_address(mma_shared), k);
    } else {
      RegisterLoader<T, kTile.m, kTile.k, kAAlongK, Kernel::kThreads> a(a_tile, p.a_row, p.a_col, m_left, thread);
      RegisterLoader<T, kTile.n, kTile.k, kBAlongK, Kernel::kThreads> b(b_tile, p.b_col, p.b_row, n_left, thread);
      kernel.accumulate_registers(sums, a, b, mma_shared, k);
    }
    // Where the tile lies is worked out again, because ten registers more would be spilled in the loop over k.
    std::int64_t same_item = item;
    asm volatile("" : "+l"(same_item));
    Kernel::write_all(args, work_at<kTile.m, kTile.n>(same_item, args.tiles_m, args.tiles_n, args.splits), sums,
                      mma_shared, warp, lane);
    __syncthreads();  // before the next tile overwrites what a slower warp still reads
  }
#endif
}

}  // namespace pmpp::matmul
