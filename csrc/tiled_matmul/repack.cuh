// repack: copies the lines of an operand, which may start anywhere, to lines that start on 16 bytes.
//
// Tiling: the chunks of 16 bytes of all lines are numbered through; a block takes kRepackThreads * kRepackInFlight
// consecutive ones, a thread every kRepackThreads-th of those. For a chunk it reads the one or two aligned words that
// the chunk's elements lie in, all words before the first is shifted into place, so that all are on their way at once.
// Two operands are two ranges of blocks of one launch.
//
// Started while its predecessor still runs, and lets its successor start likewise: each waits for the other's data.
//
// Preconditions: those of Repack; fewer than 2^31 chunks.
#pragma once

#include <cstdint>

#include "csrc/padded_transpose/chunk.cuh"
#include "csrc/ptx/hopper.cuh"
#include "csrc/tiled_matmul/repack.hpp"

namespace pmpp::matmul {

// 4 x 256 words on their way for each of four blocks of a multiprocessor are 64 KiB, three times what the latency of
// the memory needs at its full rate.
inline constexpr int kRepackThreads = 256;
inline constexpr int kRepackInFlight = 4;
inline constexpr int kRepackBlocks = 4;
inline constexpr int kRepackChunk = 8;  // elements of a chunk

// Exact quotients of numbers below 2^31.
struct Divisor {
  std::uint32_t value = 1, factor = 1u << 31;
  int shift = 31;

  static Divisor of(std::uint32_t value) {
    Divisor d;
    d.value = value;
    int log = 0;
    while ((std::uint64_t{1} << log) < value) ++log;
    d.shift = 31 + log;
    d.factor = static_cast<std::uint32_t>(((std::uint64_t{1} << d.shift) + value - 1) / value);
    return d;
  }

  __device__ __forceinline__ std::uint32_t quotient(std::uint32_t x) const {
    return static_cast<std::uint32_t>((std::uint64_t{x} * factor) >> shift);
  }
};

struct RepackJob {
  const std::uint16_t* in;
  std::uint16_t* out;
  std::int64_t in_pitch, in_batch, out_pitch, out_batch;
  std::int32_t length;
  std::uint32_t chunks;       // of all lines and matrices
  Divisor line_chunks;        // chunks of a line
  Divisor lines;              // of a matrix
  std::uintptr_t begin, end;  // of all that may be read
};

struct RepackArguments {
  RepackJob job[kMaxRepacks];
  std::uint32_t first_blocks;  // blocks of job[0]; those behind work on job[1]
};

// The eight elements at `from`, as far as they are among the `left` of the line, where an aligned word would stick out
// of the operand.
__device__ __forceinline__ uint4 load_elements(const std::uint16_t* from, int left) {
  std::uint16_t element[kRepackChunk];
#pragma unroll
  for (int i = 0; i < kRepackChunk; ++i) element[i] = i < left ? from[i] : std::uint16_t{0};
  return transposition::chunk_of<std::uint16_t>(element);
}

__global__ void __launch_bounds__(kRepackThreads, kRepackBlocks)
    tiled_matmul_repack_kernel(const __grid_constant__ RepackArguments args) {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
  const bool second = blockIdx.x >= args.first_blocks;
  const RepackJob& job = args.job[second ? 1 : 0];
  const std::uint32_t block = blockIdx.x - (second ? args.first_blocks : 0);
  const std::uint32_t first = block * (kRepackThreads * kRepackInFlight) + threadIdx.x;

  uint4 low[kRepackInFlight], high[kRepackInFlight];
  std::uint16_t* out[kRepackInFlight];
  unsigned offset[kRepackInFlight];  // bytes by which the chunk lies off the words
#pragma unroll
  for (int i = 0; i < kRepackInFlight; ++i) {
    const std::uint32_t index = first + i * kRepackThreads;
    out[i] = nullptr;
    if (index >= job.chunks) continue;
    const std::uint32_t row = job.line_chunks.quotient(index);
    const int at = static_cast<int>(index - row * job.line_chunks.value) * kRepackChunk;
    const std::uint32_t matrix = job.lines.quotient(row);
    const std::int64_t line = row - matrix * job.lines.value;
    const std::uint16_t* const from = job.in + matrix * job.in_batch + line * job.in_pitch + at;
    out[i] = job.out + matrix * job.out_batch + line * job.out_pitch + at;
    const int left = job.length - at;
    const std::uintptr_t address = transposition::address_of(from);
    offset[i] = static_cast<unsigned>(address & 15);
    const std::uintptr_t word = address - offset[i];
    const bool needs_next = offset[i] != 0 && left > kRepackChunk - static_cast<int>(offset[i] / 2);
    if (word >= job.begin && word + (needs_next ? 32 : 16) <= job.end) {
      low[i] = __ldg(reinterpret_cast<const uint4*>(word));
      high[i] = needs_next ? __ldg(reinterpret_cast<const uint4*>(word) + 1) : make_uint4(0, 0, 0, 0);
    } else {
      low[i] = load_elements(from, left);
      offset[i] = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < kRepackInFlight; ++i) {
    if (out[i] == nullptr) continue;
    const uint4 chunk = offset[i] == 0 ? low[i] : transposition::shift_chunks<2>(low[i], high[i], offset[i]);
    transposition::store_chunk(out[i], chunk);
  }
}

}  // namespace pmpp::matmul
