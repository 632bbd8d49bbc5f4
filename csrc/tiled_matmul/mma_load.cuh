// How the mma kernel brings tiles of an operand into shared memory.
//
// A tile is kRows lines of kRowChunks chunks of 16 bytes (8 elements): lines along k where the operand has k running
// fastest (kAlongK), else lines along m or n, one for each k. Chunk c of line r lies at chunk c ^ swizzle(r) of the
// line, so that the eight chunks that ldmatrix reads at a time, of eight lines, lie in different banks.
// A thread brings the same chunk of every kRowStep-th line.
#pragma once

#include <cstdint>

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/ptx/cp_async.cuh"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

inline constexpr int kChunkElements = 8;

template <int kMN, int kK, bool kAlongK>
struct TileLayout {
  static constexpr int kRows = kAlongK ? kMN : kK;
  static constexpr int kRowChunks = (kAlongK ? kK : kMN) / kChunkElements;
  static constexpr int kRowBytes = kRowChunks * 16;
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRowChunks == 4 || kRowChunks % 8 == 0);

  // A line of 64 bytes shares its 32 banks with the next one.
  static __device__ __forceinline__ int swizzle(int row) { return kRowChunks == 4 ? (row >> 1) & 3 : row & 7; }
  static __device__ __forceinline__ int offset(int row, int chunk) {
    return row * kRowBytes + (chunk ^ swizzle(row)) * 16;
  }
};

// What both loaders know of a thread: its chunk, its first line, and where those lie.
template <class T, class Layout, int kThreads>
struct TileThread {
  static constexpr int kRowStep = kThreads / Layout::kRowChunks;
  static constexpr int kChunks = Layout::kRows / kRowStep;
  static_assert(kThreads % Layout::kRowChunks == 0 && Layout::kRows % kRowStep == 0);
  static_assert(kRowStep % 8 == 0, "the swizzle is the same for all lines of a thread");

  int row;            // first line
  int first;          // first element of the chunk in its line
  int shared_offset;  // of the first chunk in a stage

  __device__ __forceinline__ explicit TileThread(int thread)
      : row(thread / Layout::kRowChunks),
        first(thread % Layout::kRowChunks * kChunkElements),
        shared_offset(Layout::offset(row, thread % Layout::kRowChunks)) {}
};

__device__ __forceinline__ int clamp_to_chunk(int elements) { return min(max(elements, 0), kChunkElements); }

// By cp.async. Precondition: every chunk of the operand lies at a multiple of 16 bytes.
template <class T, int kMN, int kK, bool kAlongK, int kThreads>
class AsyncLoader {
  using Layout = TileLayout<kMN, kK, kAlongK>;
  using Thread = TileThread<T, Layout, kThreads>;

 public:
  // `tile` is the operand's element at the tile's first m or n and first k; mn_left counts the lines or the elements of
  // a line that lie inside.
  __device__ __forceinline__ AsyncLoader(const T* tile, std::int64_t mn_stride, std::int64_t k_stride, int mn_left,
                                         int thread)
      : thread_(thread), mn_left_(mn_left), mn_inside_(mn_left == kMN) {
    const std::int64_t pitch = kAlongK ? mn_stride : k_stride;
    at_ = reinterpret_cast<const char*>(tile + thread_.row * pitch + thread_.first);
    row_step_ = pitch * (Thread::kRowStep * static_cast<int>(sizeof(T)));
    k_step_ = kAlongK ? kK * static_cast<int>(sizeof(T)) : pitch * (kK * static_cast<int>(sizeof(T)));
  }

  // Starts the copies of the next step, of which k_left of k are inside, to the stage at this shared address. A step
  // that lies wholly inside costs a third of the instructions.
  __device__ __forceinline__ void start(std::uint32_t stage, int k_left) {
    constexpr int kStep = Thread::kRowStep * Layout::kRowBytes;
    const std::uint32_t to = stage + thread_.shared_offset;
    const char* from = at_;
    if (mn_inside_ && k_left == kK) {
#pragma unroll
      for (int i = 0; i < Thread::kChunks; ++i) {
        ptx::cp_async_16(to + i * kStep, from);
        from += row_step_;
      }
    } else {
      const int in_line = clamp_to_chunk((kAlongK ? k_left : mn_left_) - thread_.first) * static_cast<int>(sizeof(T));
      const int lines = (kAlongK ? mn_left_ : k_left) - thread_.row;
#pragma unroll
      for (int i = 0; i < Thread::kChunks; ++i) {
        ptx::cp_async_16(to + i * kStep, from, i * Thread::kRowStep < lines ? in_line : 0);
        from += row_step_;
      }
    }
    at_ += k_step_;
  }

 private:
  Thread thread_;
  const char* at_;
  std::int64_t row_step_, k_step_;  // bytes
  int mn_left_;
  bool mn_inside_;  // the tile does not reach past the end of m or n
};

// Through registers, from elements anywhere. Where they are neighbours (unit stride), a chunk is cut from the one or
// two aligned 16-byte words that it lies in; words without an element of the chunk are not read. How far a line is off
// its alignment is the same in every step, because a step is a multiple of 8 lines or elements. Without unit stride a
// chunk takes eight reads.
template <class T, int kMN, int kK, bool kAlongK, int kThreads>
class RegisterLoader {
  using Layout = TileLayout<kMN, kK, kAlongK>;
  using Thread = TileThread<T, Layout, kThreads>;
  static_assert(sizeof(T) == 2 && kK % kChunkElements == 0);

 public:
  __device__ __forceinline__ RegisterLoader(const T* tile, std::int64_t mn_stride, std::int64_t k_stride, int mn_left,
                                            int thread)
      : thread_(thread), mn_left_(mn_left) {
    const std::int64_t pitch = kAlongK ? mn_stride : k_stride;
    stride_ = (kAlongK ? k_stride : mn_stride) * static_cast<std::int64_t>(sizeof(T));
    at_ = reinterpret_cast<std::uintptr_t>(tile) + pitch * (thread_.row * static_cast<int>(sizeof(T))) +
          stride_ * thread_.first;
    row_step_ = pitch * (Thread::kRowStep * static_cast<int>(sizeof(T)));
    k_step_ = kAlongK ? stride_ * kK : pitch * (kK * static_cast<int>(sizeof(T)));
  }

  // Reads the next step, of which k_left of k are inside, into registers.
  __device__ __forceinline__ void load(int k_left) {
    k_left_ = k_left;
    if (stride_ == sizeof(T)) {
      if (mn_left_ == kMN && k_left == kK) {
        load_words<true>();
      } else {
        load_words<false>();
      }
    } else {
      std::uintptr_t from = at_;
#pragma unroll
      for (int i = 0; i < Thread::kChunks; ++i) {
        const int count = is_inside(i) ? clamp_to_chunk((kAlongK ? k_left : mn_left_) - thread_.first) : 0;
        std::uintptr_t element = from;
#pragma unroll
        for (int e = 0; e < kChunkElements; ++e) {
          word_[i][e] = e < count ? __ldg(reinterpret_cast<const unsigned short*>(element)) : 0;
          element += stride_;
        }
        from += row_step_;
      }
    }
    at_ += k_step_;
  }

  // Puts what load() read into the stage, with zeros past the end of k.
  __device__ __forceinline__ void store(unsigned char* stage) const {
    if (stride_ == sizeof(T)) {
      std::uintptr_t from = at_;
      const bool ends = kAlongK && k_left_ < kK;
#pragma unroll
      for (int i = 0; i < Thread::kChunks; ++i) {
        uint4 low;
        uint4 high;
        memcpy(&low, word_[i], sizeof(low));
        memcpy(&high, word_[i] + 4, sizeof(high));
        uint4 chunk = transposition::shift_chunks<sizeof(T)>(low, high, static_cast<unsigned>(from & 15));
        if (ends) chunk = transposition::first_elements(chunk, clamp_to_chunk(k_left_ - thread_.first));
        put(stage, i, chunk);
        from += row_step_;
      }
    } else {
#pragma unroll
      for (int i = 0; i < Thread::kChunks; ++i) {
        const std::uint32_t(&e)[8] = word_[i];
        put(stage, i,
            make_uint4(__byte_perm(e[0], e[1], 0x5410), __byte_perm(e[2], e[3], 0x5410),
                       __byte_perm(e[4], e[5], 0x5410), __byte_perm(e[6], e[7], 0x5410)));
      }
    }
  }

 private:
  // Whether the line of the thread's i-th chunk lies inside the operand.
  __device__ __forceinline__ bool is_inside(int i) const {
    return thread_.row + i * Thread::kRowStep < (kAlongK ? mn_left_ : k_left_);
  }

  // The aligned words of each chunk that hold an element of it. kWhole: the step lies wholly inside.
  template <bool kWhole>
  __device__ __forceinline__ void load_words() {
    const int in_line = clamp_to_chunk((kAlongK ? k_left_ : mn_left_) - thread_.first) * static_cast<int>(sizeof(T));
    std::uintptr_t from = at_;
#pragma unroll
    for (int i = 0; i < Thread::kChunks; ++i) {
      const int bytes = kWhole ? 16 : is_inside(i) ? in_line : 0;
      const int off = static_cast<int>(from & 15);
      uint4 low = make_uint4(0, 0, 0, 0);
      uint4 high = make_uint4(0, 0, 0, 0);
      if (bytes > 0) low = __ldg(reinterpret_cast<const uint4*>(from - off));
      if (bytes > 16 - off) high = __ldg(reinterpret_cast<const uint4*>(from - off + 16));
      memcpy(word_[i], &low, sizeof(low));
      memcpy(word_[i] + 4, &high, sizeof(high));
      from += row_step_;
    }
  }

  __device__ __forceinline__ void put(unsigned char* stage, int i, uint4 chunk) const {
    *reinterpret_cast<uint4*>(stage + thread_.shared_offset + i * (Thread::kRowStep * Layout::kRowBytes)) = chunk;
  }

  Thread thread_;
  std::uintptr_t at_;
  std::int64_t stride_, row_step_, k_step_;  // bytes
  int mn_left_;
  int k_left_ = 0;
  std::uint32_t word_[Thread::kChunks][8];  // two words of four registers, or eight elements
};

}  // namespace pmpp::matmul
