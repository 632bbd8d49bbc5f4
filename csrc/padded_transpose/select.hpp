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
enum class Algorithm : std::uint8_t { kAuto, kNaive, kShared, kPadded, kPadded16, kBlocked };

inline constexpr Algorithm kAllAlgorithms[] = {Algorithm::kAuto,   Algorithm::kNaive,    Algorithm::kShared,
                                               Algorithm::kPadded, Algorithm::kPadded16, Algorithm::kBlocked};

const char* algorithm_name(Algorithm algorithm);
std::optional<Algorithm> parse_algorithm(std::string_view name);

// A launch, decided completely: nothing is chosen after it.
struct Plan {
  Algorithm algorithm = Algorithm::kNaive;  // never kAuto
  bool is_cuda = false;
  int tile_m = 0, tile_n = 0;        // source rows and columns of a tile
  int padding = 0;                   // elements added to each row of the tile in shared memory
  std::int64_t grid[3] = {0, 0, 0};  // CUDA: blocks along m, n and the batch, within the limits of a launch
  int block[2] = {0, 0};             // CUDA: threads along a row of the tile, and rows at a time
  std::int64_t workspace_bytes = 0;
  std::int64_t tasks = 0;  // CPU: independent pieces of work
};

// One line, e.g. "padded 32x32+1 grid 256x256x1 block 32x8".
std::string to_string(const Plan& plan);

// Pure. Empty when the device cannot run the asked algorithm.
std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked);

// The algorithms that move elements of this size on this device, in the order of the ladder, without kAuto.
std::vector<Algorithm> algorithms(int element_size, const DeviceFacts& device);

}  // namespace pmpp::transposition
