// Which kernel runs a problem, and how it is launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/common/device_facts.hpp"
#include "csrc/tiled_matmul/problem.hpp"

namespace pmpp::matmul {

// The steps of the ladder; kAuto asks for the fastest.
enum class Algorithm : std::uint8_t { kAuto, kNaive, kTiled, kTiledDynamic, kSimt, kMma, kWgmma, kEmulated, kBlocked };

inline constexpr Algorithm kAllAlgorithms[] = {Algorithm::kAuto,         Algorithm::kNaive,    Algorithm::kTiled,
                                               Algorithm::kTiledDynamic, Algorithm::kSimt,     Algorithm::kMma,
                                               Algorithm::kWgmma,        Algorithm::kEmulated, Algorithm::kBlocked};

const char* algorithm_name(Algorithm algorithm);
std::optional<Algorithm> parse_algorithm(std::string_view name);

// A launch, decided completely: nothing is chosen after it.
struct Plan {
  Algorithm algorithm = Algorithm::kNaive;  // never kAuto
  bool is_cuda = false;
  std::int64_t tile_m = 0, tile_n = 0, tile_k = 0;  // tile_k is 0 where k is not tiled
  std::int64_t grid[3] = {0, 0, 0};  // CUDA: blocks along m, n and the batch, within the limits of a launch
  int block[2] = {0, 0};             // CUDA: threads along n and m
  int dynamic_shared_bytes = 0;
  std::int64_t workspace_bytes = 0;
  int config = 0;            // simt, mma, wgmma, emulated: the row of its table of tiles
  int stages = 0;            // simt, mma, wgmma: steps of k in shared memory at once; emulated: thirds of one
  std::int64_t splits = 1;   // pieces of k, each summed by blocks or tasks of its own
  std::int64_t split_k = 0;  // k of a piece but the last, a multiple of tile_k
  int cluster = 1;           // wgmma, emulated: blocks that share operands
  // wgmma: the last tiles, in pieces of k, where most blocks would have nothing to do at the end.
  std::int64_t tail_tiles = 0, tail_splits = 1, tail_k = 0;
  // wgmma: an operand that TMA cannot address is copied first, or brought in by way of registers.
  bool is_a_packed = false, is_b_packed = false;
  bool is_a_realigned = false, is_b_realigned = false;
  bool is_a_displaced = false;

  // CPU: independent pieces of work, of tile_m x tile_n outputs and, where k is split, split_k steps of it.
  std::int64_t tasks = 0;

  // blocked: see cpu/blocked.hpp.
  CpuIsa isa = CpuIsa::kPortable;
  bool exchanged = false;                 // as d^T = b^T a^T; everything below and the tiles are meant for that problem
  bool by_vectors = false;                // rows of a by all of b, without tiles: see cpu/vector_products.hpp
  bool pack_a = false, pack_b = false;    // else read where they lie
  bool in_place = false;                  // sums of several slices of k are added up in the result
  std::int64_t block_m = 0, block_n = 0;  // rows of a and columns of b that are packed at a time
  std::int64_t packed_a_bytes = 0, packed_b_bytes = 0, sum_bytes = 0;  // of a task, one after the other
  std::int64_t scratch_bytes = 0;                                      // their sum
  std::int64_t partial_bytes = 0;  // sums of one task, where k is split; workspace_bytes is for all
};

// One line, e.g. "tiled 16x16x16 grid 64x64x1 block 16x16 shared 0", or with what only some algorithms have,
// "mma 128x128x32 grid 64x1x1 block 128x1 shared 65536 config 1 stages 4 splits 2 of 2048".
std::string to_string(const Plan& plan);

// Pure. Empty when the device cannot run the asked algorithm.
std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked);

// The choice of mma for a problem: a tile and how often k is split. Empty where the device or the dtype has no mma.
std::optional<Plan> mma_plan(const Problem& problem, const DeviceFacts& device);

// Every plan of mma that can run the problem, for tests: each tile, with k whole and, where it is long enough, in two
// and three pieces.
std::vector<Plan> mma_plans(const Problem& problem, const DeviceFacts& device);

// Whether the device runs mma for the dtype: sm_80 or later, float16, bfloat16, float64 or complex128.
bool has_mma(DType dtype, const DeviceFacts& device);

// Every plan of the algorithm that can run the problem, of which select picks one. For tests and measurements.
std::vector<Plan> plans(const Problem& problem, const DeviceFacts& device, Algorithm asked);

// The algorithms that run this dtype on this device at this precision, in the order of the ladder, without kAuto.
std::vector<Algorithm> algorithms(DType dtype, const DeviceFacts& device,
                                  Float32Precision precision = Float32Precision::kIeee);

}  // namespace pmpp::matmul
