// mma in float64 and complex128: double-precision tensor cores, sm_80 and later.
//
// Tiling: a block owns a tile of d (Mma64Tile) and walks k in steps of 16; a warp sums warp_m x warp_n of it in
// products of 16 x 8 x 8. Operands come by asynchronous copies of single numbers, so that any strides and bases do;
// neighbouring threads lie along k or along m or n, whichever is contiguous. Work: see work.cuh. Barriers: one a step;
// stages - 1 steps are under way, and a thread waits for its own copies of the next step before all arrive and wait. A
// complex product is four real ones, re += re re, re -= im im, im += re im, im += im re, in that order. Order of sums:
// along k, the same in every run and for every stride of d. Preconditions: blockDim.x and dynamic shared memory of the
// tile.
#pragma once

#include <cstdint>

#include "csrc/ptx/cp_async.cuh"
#include "csrc/ptx/mma.cuh"
#include "csrc/tiled_matmul/mma64.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/work.cuh"

namespace pmpp::matmul {

template <class T>
struct Mma64Arguments {
  Arguments<T> p;
  std::int64_t tiles_m, tiles_n, items;
  std::int64_t split_k;
  int splits;
  T* partial;  // null: the sums are finished; else they go here, [split][batch][m][n]
  bool wide;   // pairs of columns lie wholly inside or outside, side by side at a multiple of 16 bytes
};

// Brings a tile of an operand into shared memory, plane after plane; what lies outside becomes zero.
template <class T, int kMN, int kThreads, bool kAlongK>
class Mma64Loader {
  static constexpr int kPlanes = sizeof(T) / 8;
  static constexpr int kAcross = kAlongK ? kMma64K : kMN;  // neighbouring threads
  static constexpr int kLines = kThreads / kAcross;        // that the threads bring at a time
  static constexpr int kPasses = (kAlongK ? kMN : kMma64K) / kLines;

 public:
  // `tile` is the operand's element at the tile's first m or n and first k; mn_left counts those of m or n inside.
  __device__ __forceinline__ Mma64Loader(const T* tile, std::int64_t mn_stride, std::int64_t k_stride, int mn_left,
                                         int thread)
      : mn_(kAlongK ? thread / kAcross : thread % kAcross),
        k_(kAlongK ? thread % kAcross : thread / kAcross),
        mn_left_(mn_left),
        at_(tile + mn_ * mn_stride + k_ * k_stride),
        line_stride_(kLines * (kAlongK ? mn_stride : k_stride)),
        step_stride_(kMma64K * k_stride) {}

  // Starts the copies of the next step, of which k_left of k are inside, to the stage at this shared address.
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    const T* from = at_;
    int first_mn = mn_, first_k = k_;
    asm volatile("" : "+r"(first_mn), "+r"(first_k));  // as in multiply()
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int mn = first_mn + (kAlongK ? pass * kLines : 0), k = first_k + (kAlongK ? 0 : pass * kLines);
      const int bytes = mn < mn_left_ && k < k_left ? 8 : 0;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        ptx::cp_async_ca<8>(stage + (plane * kMma64K * kMN + mma64_at(k, mn, kMN)) * 8,
                            reinterpret_cast<const double*>(from) + plane, bytes);
      }
      from += line_stride_;
    }
    at_ += step_stride_;
  }

 private:
  int mn_, k_, mn_left_;
  const T* at_;
  std::int64_t line_stride_, step_stride_;  // elements
};

template <class T, int kConfig>
struct Mma64Kernel {
  static constexpr Mma64Tile kTile = kMma64Tiles[kConfig];
  static constexpr int kPlanes = kTile.planes;
  static constexpr int kM = kTile.warp_m() / 16, kN = kTile.warp_n() / 8;  // products side by side
  static constexpr int kStageBytes = mma64_stage_bytes(kTile);
  static constexpr int kABytes = kPlanes * kMma64K * kTile.m * 8;
  static_assert(sizeof(T) == 8 * kPlanes);

  using Sums = double[kPlanes][kM][kN][4];

  int row0, col0;  // of the warp in the tile
  int g, t;        // the lane's place in a product (mma.cuh)

  __device__ __forceinline__ explicit Mma64Kernel(int thread)
      : row0(thread / 32 / kTile.warps_n * kTile.warp_m()),
        col0(thread / 32 % kTile.warps_n * kTile.warp_n()),
        g(thread % 32 / 4),
        t(thread % 4) {}

  __device__ __forceinline__ void multiply(Sums& sums, const unsigned char* stage) const {
#pragma unroll
    for (int k = 0; k < kMma64K; k += 8) {
      // Offsets are worked out where they stand: kept over the loop they would take the registers of the sums.
      int row = row0 + g, col = col0 + g;
      asm volatile("" : "+r"(row), "+r"(col));
      double a[kPlanes][kM][4], b[kPlanes][kN][2];
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        const auto* const a_plane = reinterpret_cast<const double*>(stage) + plane * kMma64K * kTile.m;
        const auto* const b_plane = reinterpret_cast<const double*>(stage + kABytes) + plane * kMma64K * kTile.n;
#pragma unroll
        for (int i = 0; i < kM; ++i) {
#pragma unroll
          for (int part = 0; part < 4; ++part) {
            a[plane][i][part] = a_plane[mma64_at(k + part / 2 * 4 + t, row + i * 16 + part % 2 * 8, kTile.m)];
          }
        }
#pragma unroll
        for (int j = 0; j < kN; ++j) {
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            b[plane][j][part] = b_plane[mma64_at(k + part * 4 + t, col + j * 8, kTile.n)];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        if constexpr (kPlanes == 1) {
#pragma unroll
          for (int j = 0; j < kN; ++j) ptx::mma_m16n8k8(sums[0][i][j], a[0][i], b[0][j][0], b[0][j][1]);
        } else {
          const double minus_im[4] = {-a[1][i][0], -a[1][i][1], -a[1][i][2], -a[1][i][3]};
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            ptx::mma_m16n8k8(sums[0][i][j], a[0][i], b[0][j][0], b[0][j][1]);
            ptx::mma_m16n8k8(sums[1][i][j], a[0][i], b[1][j][0], b[1][j][1]);
            ptx::mma_m16n8k8(sums[0][i][j], minus_im, b[1][j][0], b[1][j][1]);
            ptx::mma_m16n8k8(sums[1][i][j], a[1][i], b[0][j][0], b[0][j][1]);
          }
        }
      }
    }
  }

  // Two neighbours of a row are written together where `args.wide`.
  __device__ __forceinline__ void write(const Mma64Arguments<T>& args, const Work& work, const Sums& sums) const {
    const Arguments<T>& p = args.p;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t row = work.row + row0 + i * 16 + half * 8 + g;
        if (row >= p.m) continue;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          const std::int64_t col = work.col + col0 + j * 8 + t * 2;
          T pair[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if constexpr (kPlanes == 1) {
              pair[e] = sums[0][i][j][half * 2 + e];
            } else {
              pair[e] = {sums[0][i][j][half * 2 + e], sums[1][i][j][half * 2 + e]};
            }
          }
          T* to;
          std::int64_t step = 1;
          if (args.partial != nullptr) {
            to = args.partial + ((work.split * p.batch + work.batch) * p.m + row) * p.n + col;
          } else {
            to = p.d_at(work.batch, row, col);
            step = p.d_col;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              if (col + e < p.n) pair[e] = p.finish(work.batch, row, col + e, pair[e]);
            }
          }
          if constexpr (kPlanes == 1) {
            if (args.wide) {
              if (col < p.n) *reinterpret_cast<double2*>(to) = make_double2(pair[0], pair[1]);
              continue;
            }
          }
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (col + e < p.n) pmpp::store(to + e * step, pair[e]);
          }
        }
      }
    }
  }
};

template <class T, int kConfig, bool kAAlongK, bool kBAlongK>
__global__ void __launch_bounds__(kMma64Tiles[kConfig].threads(), kMma64Tiles[kConfig].min_blocks)
    tiled_matmul_mma64_kernel(const __grid_constant__ Mma64Arguments<T> args) {
#if __CUDA_ARCH__ >= 800
  using Kernel = Mma64Kernel<T, kConfig>;
  constexpr Mma64Tile kTile = Kernel::kTile;
  constexpr int kStages = kTile.stages;
  extern __shared__ __align__(16) unsigned char mma64_shared[];
  const Arguments<T>& p = args.p;
  const int thread = static_cast<int>(threadIdx.x);
  const Kernel kernel(thread);
  const std::uint32_t shared = ptx::shared_address(mma64_shared);

  for (std::int64_t item = blockIdx.x; item < args.items; item += gridDim.x) {
    const Work work = work_at<kTile.m, kTile.n>(item, args.tiles_m, args.tiles_n, args.splits);
    const std::int64_t k0 = work.split * args.split_k;
    std::int64_t left = p.k - k0 < args.split_k ? p.k - k0 : args.split_k;
    Mma64Loader<T, kTile.m, kTile.threads(), kAAlongK> a(
        p.a + work.batch * p.a_batch + work.row * p.a_row + k0 * p.a_col, p.a_row, p.a_col,
        at_most(p.m - work.row, kTile.m), thread);
    Mma64Loader<T, kTile.n, kTile.threads(), kBAlongK> b(
        p.b + work.batch * p.b_batch + k0 * p.b_row + work.col * p.b_col, p.b_col, p.b_row,
        at_most(p.n - work.col, kTile.n), thread);
    // k_left: what is left of k from the step to be loaded on.
    const auto start = [&](int stage, std::int64_t k_left) {
      if (k_left > 0) {
        a.start(shared + stage * Kernel::kStageBytes, at_most(k_left, kMma64K));
        b.start(shared + stage * Kernel::kStageBytes + Kernel::kABytes, at_most(k_left, kMma64K));
      }
      ptx::cp_async_commit_group();
    };

    typename Kernel::Sums sums = {};
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) start(stage, left - stage * kMma64K);
    int read_at = 0, load_at = kStages - 1;
    for (; left > 0; left -= kMma64K) {
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();  // the step is there, and the stage to be loaded has been read by all
      start(load_at, left - (kStages - 1) * kMma64K);
      kernel.multiply(sums, mma64_shared + read_at * Kernel::kStageBytes);
      read_at = read_at == kStages - 1 ? 0 : read_at + 1;
      load_at = load_at == kStages - 1 ? 0 : load_at + 1;
    }
    ptx::cp_async_wait_group<0>();
    // Where the tile lies is worked out again: the registers are needed in the loop over k.
    std::int64_t same_item = item;
    int same_thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+l"(same_item), "+r"(same_thread));
    const Work same = work_at<kTile.m, kTile.n>(same_item, args.tiles_m, args.tiles_n, args.splits);
    Kernel(same_thread).write(args, same, sums);
    __syncthreads();  // before the next tile overwrites what a slower warp still reads
  }
#endif
}

}  // namespace pmpp::matmul
