// simt: register tiles on the CUDA cores, every dtype: float32 for which an issue slot is a multiply-add or lost, and
// through the same template all others.
//
// Tiling: a block owns a tile of d (SimtTile) and walks k in steps of tile.k. A thread keeps thread_m x thread_n sums
// in registers, in pieces of 16 bytes that lie 4 or 8 lanes apart, and for each k reads a column of a and a row of b
// from shared memory, 16 bytes at a time, while it multiplies those of the k before. Lane bits are dealt so that lanes
// i and i ^ 1 read the same of a, i and i ^ 2 the same of b: half a warp then reads 16 bytes a lane in one cycle of
// shared memory, not two. Where tiles are small, groups of warps (slices) sum the same tile over different parts of
// each step, and their sums are added in the order of the slices. Work: see work.cuh. Barriers: as in mma.cuh, one a
// step. With asynchronous copies stages - 1 steps are under way; a thread waits for its own copies of the next step,
// then all arrive and wait. Through registers: the next step is read from global memory before the products of this
// one, and put into the other stage after them. Order of sums: along k, split by split, slice by slice: the same in
// every run. Preconditions: blockDim.x and dynamic shared memory of the tile and the dtype; with kOrders of float32
// both operands as simt_order() says.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/simt.hpp"
#include "csrc/tiled_matmul/simt_load.cuh"
#include "csrc/tiled_matmul/work.cuh"

namespace pmpp::matmul {

template <class T>
struct SimtArguments {
  Arguments<T> p;
  std::int64_t tiles_m, tiles_n, items;
  int split_k, splits;
  AccumulatorOf<T>* partial;  // null: the sums are finished; else they go here, [split][batch][m][n]
  bool wide;                  // what a thread sums side by side lies side by side in d, at a multiple of its size
  bool a_along_k, b_along_k;  // how threads lie that copy, where that is not compiled in
};

template <class T, int kConfig, SimtOrder kAOrder, SimtOrder kBOrder>
struct SimtKernel {
  using Acc = AccumulatorOf<T>;
  using Real = typename SimtPlanes<Acc>::Real;
  static constexpr SimtTile kTile = kSimtTiles[kConfig];
  static constexpr SimtElement kElement = kSimtElement<T>;
  static constexpr int kPlanes = kElement.planes;
  static constexpr int kThreads = kTile.threads();
  static constexpr int kPiece = 16 / kElement.real_bytes;  // neighbours that are read together
  static constexpr int kM = kTile.thread_m;
  static constexpr int kN = kTile.thread_n;
  static constexpr int kSliceK = kTile.slice_k();
  static constexpr int kStages = simt_stages(kTile, kElement);
  static constexpr int kStageBytes = simt_stage_bytes(kTile, kElement);
  static constexpr int kALine = simt_line_bytes(kTile.m(), kElement);
  static constexpr int kBLine = simt_line_bytes(kTile.n(), kElement);
  static constexpr int kABytes = kPlanes * kTile.k * kALine;
  static_assert(kM % kPiece == 0 && kN % kPiece == 0 && kSliceK % 2 == 0);

  static constexpr bool kIsFixed = std::is_same_v<T, float>;
  template <int kMN, SimtOrder kOrder, bool kFixed>
  struct LoaderOf {
    using type = AnyLoader<T, kMN, kTile.k, kThreads>;
  };
  template <int kMN, SimtOrder kOrder>
  struct LoaderOf<kMN, kOrder, true> {
    using type = FixedLoader<kMN, kTile.k, kThreads, kOrder>;
  };
  using ALoader = typename LoaderOf<kTile.m(), kAOrder, kIsFixed>::type;
  using BLoader = typename LoaderOf<kTile.n(), kBOrder, kIsFixed>::type;

  using Sums = Real[kPlanes][kM][kN];

  // One of two buffers: while one is multiplied, the other is filled.
  struct Fragments {
    Real a[kPlanes][kM];
    Real b[kPlanes][kN];
  };

  int row0, col0;  // of the thread's first piece in the tile
  int slice;

  __device__ __forceinline__ explicit SimtKernel(int thread) {
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int in_slice = warp % (kTile.warps_m * kTile.warps_n);
    const int lane_m = (lane >> 1 & 1) | (lane >> 3 & 2);
    const int lane_n = (lane & 1) | (lane >> 1 & 6);
    slice = warp / (kTile.warps_m * kTile.warps_n);
    row0 = in_slice / kTile.warps_n * (4 * kM) + lane_m * kPiece;
    col0 = in_slice % kTile.warps_n * (8 * kN) + lane_n * kPiece;
  }

  // Where the thread's i-th row, j-th column lies behind its first.
  static __device__ __forceinline__ constexpr int row_of(int i) { return i / kPiece * (4 * kPiece) + i % kPiece; }
  static __device__ __forceinline__ constexpr int col_of(int j) { return j / kPiece * (8 * kPiece) + j % kPiece; }

  // The k-th k of the thread's slice.
  __device__ __forceinline__ void read(Fragments& fragments, const unsigned char* stage, int k) const {
    const unsigned char* const a = stage + (slice * kSliceK * kALine + row0 * kElement.real_bytes);
    const unsigned char* const b = stage + (kABytes + slice * kSliceK * kBLine + col0 * kElement.real_bytes);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
      for (int i = 0; i < kM; i += kPiece) {
        const unsigned char* const at = a + (plane * kTile.k + k) * kALine + row_of(i) * kElement.real_bytes;
        const uint4 piece = *reinterpret_cast<const uint4*>(at);
        memcpy(&fragments.a[plane][i], &piece, sizeof(piece));
      }
#pragma unroll
      for (int j = 0; j < kN; j += kPiece) {
        const unsigned char* const at = b + (plane * kTile.k + k) * kBLine + col_of(j) * kElement.real_bytes;
        const uint4 piece = *reinterpret_cast<const uint4*>(at);
        memcpy(&fragments.b[plane][j], &piece, sizeof(piece));
      }
    }
  }

  // Neighbouring products share an element of a, and every second row runs backwards to share one of b.
  static __device__ __forceinline__ void multiply(Sums& sums, const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int step = 0; step < kN; ++step) {
        const int j = i % 2 == 0 ? step : kN - 1 - step;
        if constexpr (kPlanes == 1) {
          sums[0][i][j] = multiply_add(sums[0][i][j], f.a[0][i], f.b[0][j]);
        } else {
          const Complex<Real> sum =
              multiply_add(Complex<Real>{sums[0][i][j], sums[1][i][j]}, Complex<Real>{f.a[0][i], f.a[1][i]},
                           Complex<Real>{f.b[0][j], f.b[1][j]});
          sums[0][i][j] = sum.re;
          sums[1][i][j] = sum.im;
        }
      }
    }
  }

  __device__ __forceinline__ void accumulate_async(Sums& sums, ALoader& a, BLoader& b, unsigned char* shared,
                                                   int k) const {
    // k_left: what is left of k from the step to be loaded on.
    const auto start = [&](std::uint32_t to, int k_left) {
      if (k_left > 0) {
        a.start(to, min(k_left, kTile.k));
        b.start(to + kABytes, min(k_left, kTile.k));
      }
      simt_commit();
    };
    const std::uint32_t first = ptx::shared_address(shared);
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) start(first + stage * kStageBytes, k - stage * kTile.k);
    simt_wait<kStages - 2>();
    __syncthreads();

    Fragments fragments[2];
    int read_at = 0;
    int load_at = (kStages - 1) * kStageBytes;
    read(fragments[0], shared, 0);
    for (int left = k; left > 0; left -= kTile.k) {
#pragma unroll
      for (int i = 0; i < kSliceK; ++i) {
        if (i == kSliceK - 1) {
          simt_wait<kStages - 2>();
          __syncthreads();
          read_at = read_at == (kStages - 1) * kStageBytes ? 0 : read_at + kStageBytes;
        }
        if (i == 0) {  // before the other fragments are read, which leaves their registers for addresses
          start(first + load_at, left - (kStages - 1) * kTile.k);
          load_at = load_at == (kStages - 1) * kStageBytes ? 0 : load_at + kStageBytes;
        }
        // After the last step this reads a stage that nothing was loaded to; no product uses it.
        read(fragments[(i + 1) % 2], shared + read_at, (i + 1) % kSliceK);
        multiply(sums, fragments[i % 2]);
      }
    }
    simt_wait<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void accumulate_registers(Sums& sums, ALoader& a, BLoader& b, unsigned char* shared,
                                                       int k) const {
    unsigned char* stage = shared;
    const auto fetch = [&](int left) {
      a.fetch(min(left, kTile.k));
      b.fetch(min(left, kTile.k));
    };
    const auto put = [&] {
      a.put(stage);
      b.put(stage + kABytes);
    };
    if (k > 0) fetch(k);
    put();
    __syncthreads();
    for (int left = k; left > 0; left -= kTile.k) {
      const bool more = left > kTile.k;
      if (more) fetch(left - kTile.k);
#pragma unroll
      for (int i = 0; i < kSliceK; ++i) {
        Fragments fragments;
        read(fragments, stage, i);
        multiply(sums, fragments);
      }
      stage = stage == shared ? shared + kStageBytes : shared;
      if (more) put();
      __syncthreads();
    }
  }

  // Puts `rows` of the thread's rows, from the i0-th on, to where its first piece lies in a plane of staged sums.
  static __device__ __forceinline__ void stage_sums(const Sums& sums, int i0, int rows, unsigned char* to,
                                                    int plane_bytes, int line_bytes) {
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
      for (int i = 0; i < rows; ++i) {
#pragma unroll
        for (int j = 0; j < kN; j += kPiece) {
          uint4 piece;
          memcpy(&piece, &sums[plane][i0 + i][j], sizeof(piece));
          *reinterpret_cast<uint4*>(to + plane * plane_bytes + row_of(i) * line_bytes +
                                    col_of(j) * kElement.real_bytes) = piece;
        }
      }
    }
  }

  // Several values side by side, at a multiple of their size or of 16 bytes; or one.
  template <class Value, int kCount>
  static __device__ __forceinline__ void store_together(Value* to, const Value (&values)[kCount]) {
    if constexpr (kCount == 1) {
      *to = values[0];
    } else {
      constexpr int kBytes = kCount * static_cast<int>(sizeof(Value));
      using Word = std::conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes % 8 == 0, uint2, unsigned>>;
      Word words[kBytes / sizeof(Word)];
      memcpy(words, values, sizeof(words));
#pragma unroll
      for (int i = 0; i < static_cast<int>(kBytes / sizeof(Word)); ++i) reinterpret_cast<Word*>(to)[i] = words[i];
    }
  }

  // Writes kRows x kCols staged sums, of which `work` names the place of the first in d. Each of kWorkers threads takes
  // kTogether neighbours at a time and adds up those of all kParts parts, which lie behind one another.
  template <int kRows, int kCols, int kParts, int kWorkers, int kTogether>
  static __device__ __forceinline__ void write(const SimtArguments<T>& args, const Work& work,
                                               const unsigned char* staged, int worker) {
    constexpr int kLine = simt_line_bytes(kCols, kElement);
    constexpr int kAcross = kCols / kTogether;
    const Arguments<T>& p = args.p;
    const int rows = at_most(p.m - work.row, kRows);
    const int cols = at_most(p.n - work.col, kCols);
    Acc* const partial = args.partial + ((work.split * p.batch + work.batch) * p.m + work.row) * p.n + work.col;
#pragma unroll 1
    for (int index = worker; index < rows * kAcross; index += kWorkers) {
      const int row = index / kAcross;
      const int col = index % kAcross * kTogether;
      if (col >= cols) continue;
      Real total[kPlanes][kTogether] = {};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
          Real term[kTogether];
          const unsigned char* const at =
              staged + ((part * kPlanes + plane) * kRows + row) * kLine + col * kElement.real_bytes;
          if constexpr (kTogether > 1) {
            const uint4 piece = *reinterpret_cast<const uint4*>(at);
            memcpy(term, &piece, sizeof(term));
          } else {
            term[0] = *reinterpret_cast<const Real*>(at);
          }
#pragma unroll
          for (int e = 0; e < kTogether; ++e) total[plane][e] = part == 0 ? term[e] : total[plane][e] + term[e];
        }
      }
      Acc sum[kTogether];
#pragma unroll
      for (int e = 0; e < kTogether; ++e) {
        if constexpr (kPlanes == 1) {
          sum[e] = total[0][e];
        } else {
          sum[e] = {total[0][e], total[1][e]};
        }
      }
      if (args.partial != nullptr) {
        store_together(partial + row * p.n + col, sum);
      } else if (col + kTogether <= cols) {
        T result[kTogether];
#pragma unroll
        for (int e = 0; e < kTogether; ++e) {
          result[e] = p.finish(work.batch, work.row + row, work.col + col + e, sum[e]);
        }
        store_together(p.d_at(work.batch, work.row + row, work.col + col), result);
      } else {
#pragma unroll
        for (int e = 0; e < kTogether; ++e) {
          if (col + e < cols) p.store(work.batch, work.row + row, work.col + col + e, sum[e]);
        }
      }
    }
  }
  template <int kRows, int kCols, int kParts, int kWorkers>
  static __device__ __forceinline__ void write(const SimtArguments<T>& args, const Work& work,
                                               const unsigned char* staged, int worker) {
    if (args.wide) {
      write<kRows, kCols, kParts, kWorkers, kPiece>(args, work, staged, worker);
    } else {
      write<kRows, kCols, kParts, kWorkers, 1>(args, work, staged, worker);
    }
  }

  // A warp passes some of its rows at a time through shared memory of its own, so that lanes write whole pieces of
  // rows.
  __device__ __forceinline__ void write_warp(const SimtArguments<T>& args, const Work& work, const Sums& sums,
                                             unsigned char* shared, int thread) const {
    constexpr int kRows = simt_staged_rows(kElement);
    constexpr int kCols = 8 * kN;
    constexpr int kLine = simt_line_bytes(kCols, kElement);
    const int warp = thread / 32;
    unsigned char* const staged = shared + warp * simt_staged_bytes(kTile, kElement);
    const int row_in_warp = row0 % (4 * kM);
    const int col_in_warp = col0 % kCols;
    unsigned char* const to = staged + row_in_warp * kLine + col_in_warp * kElement.real_bytes;
#pragma unroll
    for (int i = 0; i < kM; i += kPiece) {
      stage_sums(sums, i, kPiece, to, kRows * kLine, kLine);
      __syncwarp();
      const Work at = {work.batch, work.split, work.row + (row0 - row_in_warp) + row_of(i),
                       work.col + (col0 - col_in_warp)};
      write<kRows, kCols, 1, 32>(args, at, staged, thread % 32);
      __syncwarp();
    }
  }

  // With slices, all put their sums into shared memory, then all threads add them up.
  __device__ __forceinline__ void write_slices(const SimtArguments<T>& args, const Work& work, const Sums& sums,
                                               unsigned char* shared, int thread) const {
    constexpr int kPlaneBytes = kTile.m() * kBLine;
    stage_sums(sums, 0, kM, shared + slice * kPlanes * kPlaneBytes + row0 * kBLine + col0 * kElement.real_bytes,
               kPlaneBytes, kBLine);
    __syncthreads();
    write<kTile.m(), kTile.n(), kTile.slices, kThreads>(args, work, shared, thread);
  }
};

template <class T, int kConfig, SimtOrder kAOrder, SimtOrder kBOrder>
__global__ void __launch_bounds__(kSimtTiles[kConfig].threads(), kSimtTiles[kConfig].min_blocks)
    tiled_matmul_simt_kernel(const __grid_constant__ SimtArguments<T> args) {
  using Kernel = SimtKernel<T, kConfig, kAOrder, kBOrder>;
  constexpr SimtTile kTile = Kernel::kTile;
  extern __shared__ __align__(16) unsigned char simt_shared[];
  const Arguments<T>& p = args.p;
  const int thread = static_cast<int>(threadIdx.x);
  const Kernel kernel(thread);

  for (std::int64_t item = blockIdx.x; item < args.items; item += gridDim.x) {
    const Work work = work_at<kTile.m(), kTile.n()>(item, args.tiles_m, args.tiles_n, args.splits);
    const std::int64_t k0 = work.split * args.split_k;
    const int k = at_most(p.k - k0, args.split_k);
    typename Kernel::ALoader a(p.a + work.batch * p.a_batch + work.row * p.a_row + k0 * p.a_col, p.a_row, p.a_col,
                               at_most(p.m - work.row, kTile.m()), args.a_along_k, thread);
    typename Kernel::BLoader b(p.b + work.batch * p.b_batch + k0 * p.b_row + work.col * p.b_col, p.b_col, p.b_row,
                               at_most(p.n - work.col, kTile.n()), args.b_along_k, thread);

    typename Kernel::Sums sums = {};
    if constexpr (Kernel::kElement.async) {
      kernel.accumulate_async(sums, a, b, simt_shared, k);
    } else {
      kernel.accumulate_registers(sums, a, b, simt_shared, k);
    }
#if __CUDA_ARCH__ >= 900
    ptx::griddepcontrol_launch_dependents();
#endif
    // Where the tile and the thread's sums lie is worked out again: the registers are needed in the loop over k.
    std::int64_t same_item = item;
    int same_thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+l"(same_item), "+r"(same_thread));
    const Work same = work_at<kTile.m(), kTile.n()>(same_item, args.tiles_m, args.tiles_n, args.splits);
    const Kernel writer(same_thread);
    if constexpr (kTile.slices == 1) {
      writer.write_warp(args, same, sums, simt_shared, same_thread);
    } else {
      writer.write_slices(args, same, sums, simt_shared, same_thread);
    }
    __syncthreads();  // before the next tile overwrites what a slower warp still reads
  }
}

}  // namespace pmpp::matmul
