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
enum class Algorithm : std::uint8_t { kAuto, kNaive, kTiled, kTiledDynamic, kBlocked };

inline constexpr Algorithm kAllAlgorithms[] = {Algorithm::kAuto, Algorithm::kNaive, Algorithm::kTiled,
                                               Algorithm::kTiledDynamic, Algorithm::kBlocked};

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

  // CPU: independent pieces of work, of tile_m x tile_n outputs and, where k is split, split_k steps of it.
  std::int64_t tasks = 0;
  std::int64_t splits = 1, split_k = 0;

  // blocked: see cpu/blocked.hpp.
  CpuIsa isa = CpuIsa::kPortable;
  bool exchanged = false;                 // as d^T = b^T a^T; everything below and the tiles are meant for that problem
  bool pack_a = false, pack_b = false;    // else read where they lie
  bool in_place = false;                  // sums of several slices of k are added up in the result
  std::int64_t block_m = 0, block_n = 0;  // rows of a and columns of b that are packed at a time
  std::int64_t packed_a_bytes = 0, packed_b_bytes = 0, sum_bytes = 0;  // of a task, one after the other
  std::int64_t scratch_bytes = 0;                                      // their sum
  std::int64_t partial_bytes = 0;  // sums of one task, where k is split; workspace_bytes is for all
};

// One line, e.g. "tiled 16x16x16 grid 64x64x1 block 16x16 shared 0".
std::string to_string(const Plan& plan);

// Pure. Empty when the device cannot run the asked algorithm.
std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked);

// The algorithms that run this dtype on this device, in the order of the ladder, without kAuto.
std::vector<Algorithm> algorithms(DType dtype, const DeviceFacts& device);

}  // namespace pmpp::matmul
