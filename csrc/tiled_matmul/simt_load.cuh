// How the simt kernel brings tiles of an operand into shared memory: line after line of one k each, SimtElement and
// simt_line_bytes() say how. What lies outside the operand becomes zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include "csrc/ptx/cp_async.cuh"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/simt.hpp"

namespace pmpp::matmul {

// The type that an element has in shared memory, and how many planes of it there are.
template <class Acc>
struct SimtPlanes {
  using Real = Acc;
  static constexpr int kPlanes = 1;
};
template <class R>
struct SimtPlanes<Complex<R>> {
  using Real = R;
  static constexpr int kPlanes = 2;
};

template <class T>
inline constexpr SimtElement kSimtElement = {static_cast<int>(sizeof(typename SimtPlanes<AccumulatorOf<T>>::Real)),
                                             SimtPlanes<AccumulatorOf<T>>::kPlanes,
                                             sizeof(T) == sizeof(AccumulatorOf<T>) && !std::is_same_v<T, std::int32_t>};

// Copies to shared memory, of which the thread need not wait for the end; before sm_80 it does.
template <int kBytes>
__device__ __forceinline__ void simt_copy(std::uint32_t to, const void* from) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {
    ptx::cp_async_16(to, from);
  } else {
    ptx::cp_async_ca<kBytes>(to, from);
  }
#else
  memcpy(__builtin_assume_aligned(__cvta_shared_to_generic(to), kBytes), __builtin_assume_aligned(from, kBytes),
         kBytes);
#endif
}

// The same, of which only the first source_bytes are read and the rest are zero: a multiple of four of them.
template <int kBytes>
__device__ __forceinline__ void simt_copy(std::uint32_t to, const void* from, int source_bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {
    ptx::cp_async_16(to, from, source_bytes);
  } else {
    ptx::cp_async_ca<kBytes>(to, from, source_bytes);
  }
#else
  auto* const words = static_cast<std::uint32_t*>(__cvta_shared_to_generic(to));
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    words[i] = i * 4 < source_bytes ? static_cast<const std::uint32_t*>(from)[i] : 0;
  }
#endif
}

__device__ __forceinline__ void simt_commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  ptx::cp_async_commit_group();
#endif
}

template <int kPending>
__device__ __forceinline__ void simt_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  ptx::cp_async_wait_group<kPending>();
#endif
}

// threadIdx.x, in a way that what follows from it is worked out where it stands, not kept in registers over a loop.
__device__ __forceinline__ int simt_thread() {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

// float32 in an order that is compiled in, so that addresses of shared memory, and along k also offsets in global
// memory, are parts of the instructions. A step that lies wholly inside has no bounds to check.
template <int kMN, int kK, int kThreads, SimtOrder kOrder>
class FixedLoader {
  static constexpr int kPiece = kOrder == SimtOrder::kPieces ? 4 : 1;  // elements of a copy
  // Neighbouring threads: along k eight of them, which read one sector of 32 bytes.
  static constexpr int kAcross = kOrder == SimtOrder::kAlongK ? 8 : kMN / kPiece;
  static constexpr int kLines = kThreads / kAcross;  // of m or n along k, else of k, that the threads bring at a time
  static constexpr int kPasses = (kOrder == SimtOrder::kAlongK ? kMN : kK) / kLines;
  static constexpr int kLineBytes = simt_line_bytes(kMN, kSimtElement<float>);
  static_assert(kThreads % kAcross == 0 && kPasses * kLines == (kOrder == SimtOrder::kAlongK ? kMN : kK));
  static_assert(kK % 8 == 0);

 public:
  // `tile` is the operand's element at the tile's first m or n and first k; mn_left counts those of m or n inside.
  __device__ __forceinline__ FixedLoader(const float* tile, std::int64_t mn_stride, std::int64_t k_stride, int mn_left,
                                         bool /*along_k*/, int thread)
      : stride_(kOrder == SimtOrder::kAlongK ? mn_stride : k_stride), mn_left_(mn_left) {
    const int mn = first_mn(thread);
    const int k = first_k(thread);
    offset_ = k * kLineBytes + mn * 4;
    if constexpr (kOrder == SimtOrder::kAlongK) {
      at_ = tile + mn * mn_stride + k;
    } else {
      at_ = tile + k * k_stride + (kOrder == SimtOrder::kPieces ? mn : mn * mn_stride);
    }
  }

  // Starts the copies of the next step, of which k_left of k are inside, to the stage at this shared address.
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    if (mn_left_ == kMN && k_left == kK) {
      start<true>(stage, k_left);
    } else {
      start<false>(stage, k_left);
    }
  }

 private:
  // The thread's first element in a tile.
  static __device__ __forceinline__ int first_mn(int thread) {
    return kOrder == SimtOrder::kAlongK ? thread / kAcross : thread % kAcross * kPiece;
  }
  static __device__ __forceinline__ int first_k(int thread) {
    return kOrder == SimtOrder::kAlongK ? thread % kAcross : thread / kAcross;
  }

  template <bool kWhole>
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    int mn_left = mn_left_;
    if constexpr (!kWhole) {
      const int thread = simt_thread();
      mn_left -= first_mn(thread);
      k_left -= first_k(thread);
    }
    const std::uint32_t to = stage + offset_;
    const float* from = at_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if constexpr (kOrder == SimtOrder::kAlongK) {
#pragma unroll
        for (int k = 0; k < kK; k += kAcross) {
          const bool inside = kWhole || (pass * kLines < mn_left && k < k_left);
          copy<kWhole>(to + k * kLineBytes + pass * kLines * 4, from + k, inside ? 1 : 0);
        }
      } else {
        const int inside = pass * kLines < k_left ? min(max(mn_left, 0), kPiece) : 0;
        copy<kWhole>(to + pass * kLines * kLineBytes, from, inside);
      }
      from += kLines * stride_;
      // One address after the other: several at once would not fit into the registers that the sums leave.
      asm volatile("" : "+l"(from));
    }
    at_ = kOrder == SimtOrder::kAlongK ? at_ + kK : from;
  }

  template <bool kWhole>
  static __device__ __forceinline__ void copy(std::uint32_t to, const float* from, int inside) {
    if constexpr (kWhole) {
      simt_copy<kPiece * 4>(to, from);
    } else {
      simt_copy<kPiece * 4>(to, from, inside * 4);
    }
  }

  const float* at_;
  std::int64_t stride_;  // of the lines
  int mn_left_;
  std::uint32_t offset_;  // bytes into a stage
};

// Any element type and any strides; neighbouring threads lie along k or along m or n, as is decided at run time. By
// asynchronous copies of each real number, or through registers where elements are widened.
template <class T, int kMN, int kK, int kThreads>
class AnyLoader {
  using Real = typename SimtPlanes<AccumulatorOf<T>>::Real;
  static constexpr SimtElement kElement = kSimtElement<T>;
  static constexpr int kLineBytes = simt_line_bytes(kMN, kElement);
  static constexpr int kPasses = kMN * kK / kThreads;
  static_assert(kThreads % kMN == 0 && kThreads % kK == 0 && kMN * kK % kThreads == 0 && kMN * kK >= kThreads);

 public:
  __device__ __forceinline__ AnyLoader(const T* tile, std::int64_t mn_stride, std::int64_t k_stride, int mn_left,
                                       bool along_k, int thread)
      : k_stride_(k_stride), mn_left_(mn_left), along_k_(along_k) {
    const int mn = first_mn(thread);
    const int k = first_k(thread);
    at_ = tile + mn * mn_stride + k * k_stride;
    pass_step_ = mn_step() * mn_stride + k_step() * k_stride;
    offset_ = k * kLineBytes + mn * kElement.real_bytes;
  }

  // As FixedLoader's.
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    if (mn_left_ == kMN && k_left == kK) {
      start<true>(stage, k_left);
    } else {
      start<false>(stage, k_left);
    }
  }

  // Reads the next step into registers.
  __device__ __forceinline__ void fetch(int k_left) {
    const int thread = simt_thread();
    const int mn_left = mn_left_ - first_mn(thread);
    k_left -= first_k(thread);
    const T* from = at_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool inside = pass * mn_step() < mn_left && pass * k_step() < k_left;
      fetched_[pass] = inside ? load(from) : T{};
      from += pass_step_;
    }
    at_ += kK * k_stride_;
  }

  // Puts what fetch() read into the stage.
  __device__ __forceinline__ void put(unsigned char* stage) const {
    unsigned char* to = stage + offset_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      *reinterpret_cast<Real*>(to) = widen(fetched_[pass]);
      to += offset_step();
    }
  }

 private:
  // The thread's first element in a tile, and how far the next is in m or n, in k and in a stage.
  __device__ __forceinline__ int first_mn(int thread) const { return along_k_ ? thread / kK : thread % kMN; }
  __device__ __forceinline__ int first_k(int thread) const { return along_k_ ? thread % kK : thread / kMN; }
  __device__ __forceinline__ int mn_step() const { return along_k_ ? kThreads / kK : 0; }
  __device__ __forceinline__ int k_step() const { return along_k_ ? 0 : kThreads / kMN; }
  __device__ __forceinline__ int offset_step() const {
    return along_k_ ? kThreads / kK * kElement.real_bytes : kThreads / kMN * kLineBytes;
  }

  template <bool kWhole>
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    int mn_left = mn_left_;
    if constexpr (!kWhole) {
      const int thread = simt_thread();
      mn_left -= first_mn(thread);
      k_left -= first_k(thread);
    }
    std::uint32_t to = stage + offset_;
    const T* from = at_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool inside = kWhole || (pass * mn_step() < mn_left && pass * k_step() < k_left);
#pragma unroll
      for (int plane = 0; plane < kElement.planes; ++plane) {
        const std::uint32_t real_to = to + plane * (kK * kLineBytes);
        const auto* const real = reinterpret_cast<const unsigned char*>(from) + plane * kElement.real_bytes;
        if constexpr (kWhole) {
          simt_copy<kElement.real_bytes>(real_to, real);
        } else {
          simt_copy<kElement.real_bytes>(real_to, real, inside ? kElement.real_bytes : 0);
        }
      }
      to += offset_step();
      from += pass_step_;
      asm volatile("" : "+l"(from));  // as above
    }
    at_ += kK * k_stride_;
  }

  const T* at_;
  std::int64_t k_stride_, pass_step_;  // elements
  int mn_left_;
  bool along_k_;
  std::uint32_t offset_;  // bytes into a stage
  T fetched_[kElement.async ? 1 : kPasses];
};

}  // namespace pmpp::matmul
