// Which kernel transposes a problem, and how it is launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/padded_transpose/problem.hpp"

namespace pmpp::transposition {

// The steps of the ladder; kAuto asks for the fastest.
enum class Algorithm : std::uint8_t { kAuto, kNaive, kShared, kPadded, kPadded16, kVectorized, kBlocked };

inline constexpr Algorithm kAllAlgorithms[] = {Algorithm::kAuto,   Algorithm::kNaive,    Algorithm::kShared,
                                               Algorithm::kPadded, Algorithm::kPadded16, Algorithm::kVectorized,
                                               Algorithm::kBlocked};

const char* algorithm_name(Algorithm algorithm);
std::optional<Algorithm> parse_algorithm(std::string_view name);

// The kernels of kVectorized. Each serves the problems that its file states as preconditions; together they serve all.
enum class Method : std::uint8_t {
  kNone,          // of another algorithm
  kAligned,       // vectorized_aligned.cuh: everything on 16-byte boundaries
  kStaged,        // vectorized_staged.cuh: 1-byte elements anywhere
  kGather,        // vectorized_gather.cuh: elements of 2, 4 and 8 bytes anywhere
  kNarrowSource,  // vectorized_narrow.cuh: few columns
  kNarrowDest,    // vectorized_narrow.cuh: few rows
  kCopy,          // vectorized_copy.cuh: nothing changes places
  kDriverCopy,    // the same, contiguous on both sides: a copy of the driver
  kStrided,       // tile.cuh: no unit stride on one side, or elements off their own alignment
  // kBlocked, all in cpu/blocked.hpp:
  kCpuTiles,    // rows with unit stride on both sides
  kCpuNarrow,   // few rows or columns
  kCpuCopy,     // nothing changes places
  kCpuStrided,  // any strides
};

const char* method_name(Method method);

// A launch, decided completely: nothing is chosen after it.
struct Plan {
  Algorithm algorithm = Algorithm::kNaive;  // never kAuto
  Method method = Method::kNone;
  int level =
      0;  // kVectorized: which of its tiles, larger first; smaller ones are for problems that cannot fill the GPU
  bool is_cuda = false;
  int tile_m = 0, tile_n = 0;        // source rows and columns of a tile
  int padding = 0;                   // elements added to each row of the tile in shared memory
  std::int64_t grid[3] = {0, 0, 0};  // CUDA: blocks along m, n and the batch, within the limits of a launch
  int block[2] = {0, 0};             // CUDA: threads along a row of the tile, and rows at a time
  int shared_bytes = 0;              // kVectorized: dynamic shared memory
  int halo = 0;                      // tiles, strips: bytes of a destination row before a block's own
  int pitch = 0;                     // narrow: bytes from one staged line to the next
  int pieces = 0;                    // narrow: that a line is staged in
  int lanes = 0;                     // narrow source: runs of columns side by side; copy: threads along a row
  // copy: a thread's chunks belong to one row; aligned: blocks walk along source rows
  bool across = false;
  std::int64_t workspace_bytes = 0;
  std::int64_t tasks = 0;          // CPU: independent pieces of work
  CpuIsa isa = CpuIsa::kPortable;  // kBlocked
  bool is_streamed = false;        // kCpuTiles: written past the caches
};

// One line, e.g. "padded 32x32+1 grid 256x256x1 block 32x8" or "vectorized gather 64x64 grid 16512x1x1 block 512x1".
std::string to_string(const Plan& plan);

// Pure. Empty when the device cannot run the asked algorithm. Addresses count only for their alignment: a plan made
// before they are known is for matrices on 16-byte boundaries, and good for messages alone.
std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked);

// The algorithms that move elements of this size on this device, in the order of the ladder, without kAuto.
std::vector<Algorithm> algorithms(int element_size, const DeviceFacts& device);

}  // namespace pmpp::transposition
