#include "csrc/padded_transpose/select.hpp"

#include <algorithm>
#include <sstream>

#include "csrc/common/int_math.hpp"
#include "csrc/padded_transpose/config.hpp"

namespace pmpp::transposition {
namespace {

struct Shape {
  int tile_m, tile_n, padding, block_x, block_y;
};

Shape cuda_shape(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kShared:
      return {kTile, kTile, 0, kTile, kTileRows};
    case Algorithm::kPadded:
      return {kTile, kTile, kPadding, kTile, kTileRows};
    case Algorithm::kPadded16:
      return {kSmallTile, kSmallTile, kPadding, kSmallTile, kTileRows};
    default:
      return {kNaiveRows, kNaiveCols, 0, kNaiveCols, kNaiveRows};
  }
}

bool available(Algorithm algorithm, int element_size, const DeviceFacts& device) {
  if (!is_element_size(element_size)) return false;
  if (algorithm == Algorithm::kAuto) return true;
  if (algorithm == Algorithm::kBlocked) return !device.is_cuda;
  if (!device.is_cuda) return algorithm == Algorithm::kNaive;
  const Shape shape = cuda_shape(algorithm);
  const int bytes = algorithm == Algorithm::kNaive ? 0 : tile_bytes(shape.tile_m, shape.padding, element_size);
  return shape.block_x * shape.block_y <= device.max_threads_per_block && bytes <= device.shared_memory_per_block;
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNaive:
      return "naive";
    case Algorithm::kShared:
      return "shared";
    case Algorithm::kPadded:
      return "padded";
    case Algorithm::kPadded16:
      return "padded16";
    case Algorithm::kBlocked:
      return "blocked";
  }
  return "unknown";
}

std::optional<Algorithm> parse_algorithm(std::string_view name) {
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (name == algorithm_name(algorithm)) return algorithm;
  }
  return std::nullopt;
}

std::string to_string(const Plan& plan) {
  std::ostringstream out;
  out << algorithm_name(plan.algorithm) << " " << plan.tile_m << "x" << plan.tile_n;
  if (plan.padding > 0) out << "+" << plan.padding;
  if (plan.is_cuda) {
    out << " grid " << plan.grid[0] << "x" << plan.grid[1] << "x" << plan.grid[2] << " block " << plan.block[0] << "x"
        << plan.block[1];
  } else {
    out << " tasks " << plan.tasks;
  }
  return out.str();
}

std::optional<Plan> select(const Problem& problem, const DeviceFacts& device, Algorithm asked) {
  if (asked == Algorithm::kAuto) {
    const Algorithm fastest = device.is_cuda ? Algorithm::kPadded : Algorithm::kBlocked;
    asked = available(fastest, problem.element_size, device) ? fastest : Algorithm::kNaive;
  }
  if (!available(asked, problem.element_size, device)) return std::nullopt;

  Plan plan;
  plan.algorithm = asked;
  if (!device.is_cuda) {
    plan.tile_m = kCpuTaskCols;
    plan.tile_n = kCpuTile;
    plan.tasks = problem.batch * ceil_div(problem.m, plan.tile_m) * ceil_div(problem.n, plan.tile_n);
    return plan;
  }
  const Shape shape = cuda_shape(asked);
  plan.is_cuda = true;
  plan.tile_m = shape.tile_m;
  plan.tile_n = shape.tile_n;
  plan.padding = shape.padding;
  // Source rows lie on x: neighbouring blocks then walk along a destination row, and x alone has room for more than
  // 65,535 tiles.
  plan.grid[0] = std::min(ceil_div(problem.m, shape.tile_m), kMaxGridX);
  plan.grid[1] = std::min(ceil_div(problem.n, shape.tile_n), kMaxGridYZ);
  plan.grid[2] = std::min(problem.batch, kMaxGridYZ);
  plan.block[0] = shape.block_x;
  plan.block[1] = shape.block_y;
  return plan;
}

std::vector<Algorithm> algorithms(int element_size, const DeviceFacts& device) {
  std::vector<Algorithm> result;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm != Algorithm::kAuto && available(algorithm, element_size, device)) result.push_back(algorithm);
  }
  return result;
}

}  // namespace pmpp::transposition
