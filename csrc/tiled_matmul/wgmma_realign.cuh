// How the wgmma kernel brings operands into shared memory that TMA cannot address, without a copy of them first.
//
// Eight warps read aligned 16-byte words, cut the chunks of 8 elements out of them and store those in the 128-byte
// swizzle that wgmma reads. A line is a row of the tile along k, or (kTrans) one of the 64 of k along m or n; lines are
// moved in pieces of 64 elements, of which a warp takes four at a time, a chunk a lane. Warp w takes the lines w modulo
// 8: all lie the same distance off their alignment, since 8 lines, like 64 elements, are a multiple of 16 bytes.
//
// The words of a step are read while the step before is stored, each into the registers that its predecessor has just
// left, so that a whole step is on its way. Words without an element of the operand are not read; elements past the end
// of k are zeros, those past m or n only reach results that are not stored.
#pragma once

#include <cstdint>

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/tiled_matmul/wgmma.hpp"

namespace pmpp::matmul {

inline constexpr int kRealignWarps = 8;

// kLines of m or n of one operand.
template <int kLines, bool kTrans>
class RealigningLoader {
  static constexpr int kGroups = kLines / 32;
  static constexpr int kBoxes = kTrans ? kLines / 64 : 1;  // pieces of a line
  static constexpr int kLineStep = 32 / kBoxes;            // lines between the groups of a lane
  static_assert(kLines % 64 == 0 && kBoxes <= 4);

 public:
  // `tile` is the operand's element at the tile's first m or n and the first k to be read; `lines` counts the m or n
  // from there on.
  template <class T>
  __device__ __forceinline__ void start(const T* tile, std::int64_t pitch, std::int64_t lines, int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kRealignWarps;
    const int chunk = lane % 8, piece = lane / 8;
    const int box = kTrans ? piece % kBoxes : 0;
    line_ = warp + 8 * (piece / kBoxes);
    first_ = box * 64 + chunk * 8;
    mn_left_ = static_cast<int>(min(lines, std::int64_t{kLines}));
    k_left_ = k;
    at_ = reinterpret_cast<std::uintptr_t>(tile + line_ * pitch + first_);
    offset_ = static_cast<unsigned>(at_ & 15);
    at_ -= offset_;
    group_step_ = pitch * (kLineStep * static_cast<int>(sizeof(T)));
    k_step_ = kTrans ? pitch * (kWgmmaK * static_cast<int>(sizeof(T))) : kWgmmaK * static_cast<int>(sizeof(T));
    shared_offset_ = box * (64 * kWgmmaK * 2) + line_ * 128 + (chunk ^ warp) * 16;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) read(i);
    next_step();
  }

  // Stores the step that was read, and reads the next one.
  __device__ __forceinline__ void advance(char* to) {
    const int stored_k = k_left_ + kWgmmaK;  // of the step in the registers
    const bool ends = !kTrans && stored_k < kWgmmaK;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      uint4 chunk = transposition::shift_chunks<2>(low_[i], high_[i], offset_);
      if (ends) chunk = transposition::first_elements(chunk, min(max(stored_k - first_, 0), 8));
      *reinterpret_cast<uint4*>(to + shared_offset_ + i * (kLineStep * 128)) = chunk;
      read(i);
    }
    next_step();
  }

 private:
  __device__ __forceinline__ void next_step() {
    at_ += k_step_;
    k_left_ -= kWgmmaK;
  }

  __device__ __forceinline__ void read(int i) {
    const int line = line_ + i * kLineStep;
    const int elements = line < (kTrans ? k_left_ : mn_left_) ? (kTrans ? mn_left_ : k_left_) - first_ : 0;
    const auto* const word = reinterpret_cast<const uint4*>(at_ + i * group_step_);
    low_[i] = high_[i] = make_uint4(0, 0, 0, 0);
    if (elements > 0) low_[i] = __ldg(word);
    if (offset_ != 0 && elements > 8 - static_cast<int>(offset_ / 2)) high_[i] = __ldg(word + 1);
  }

  std::uintptr_t at_;                 // the aligned word of the lane's first chunk in the step to be read
  std::int64_t group_step_, k_step_;  // bytes
  int line_, first_;                  // of the first chunk: its line, and its first element in it
  int mn_left_, k_left_;              // inside, of the step to be read
  unsigned offset_;                   // bytes by which chunks lie off the words
  int shared_offset_;
  uint4 low_[kGroups], high_[kGroups];
};

}  // namespace pmpp::matmul
