// What the choices of mma, mma64 and simt share: the launch of a kernel whose blocks each do tiles of d, or pieces of k
// of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/common/device_facts.hpp"
#include "csrc/common/int_math.hpp"
#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/select.hpp"

namespace pmpp::matmul {

// What a plan says of a row of a kernel's table of tiles.
struct TileFacts {
  int m, n, k;  // k of a step
  int threads, stages, shared_bytes;
};

// Tiles of all batches; kMaxGridX where there are more.
inline std::int64_t tiles_of(std::int64_t tile_m, std::int64_t tile_n, const Problem& p) {
  std::int64_t tiles = 1;
  for (const std::int64_t count : {ceil_div(p.m, tile_m), ceil_div(p.n, tile_n), p.batch}) {
    if (count > kMaxGridX / std::max<std::int64_t>(tiles, 1)) return kMaxGridX;
    tiles *= count;
  }
  return tiles;
}

// Rounding pieces of k up to whole steps may leave fewer than asked; the last has the rest.
inline Plan tile_plan(Algorithm algorithm, int config, const TileFacts& tile, const Problem& p, std::int64_t splits) {
  Plan plan;
  plan.algorithm = algorithm;
  plan.is_cuda = true;
  plan.tile_m = tile.m;
  plan.tile_n = tile.n;
  plan.tile_k = tile.k;
  plan.block[0] = tile.threads;
  plan.block[1] = 1;
  plan.dynamic_shared_bytes = tile.shared_bytes;
  plan.config = config;
  plan.stages = tile.stages;
  plan.split_k = splits == 1 || p.k == 0 ? p.k : round_up(ceil_div(p.k, splits), tile.k);
  plan.splits = splits == 1 || p.k == 0 ? 1 : ceil_div(p.k, plan.split_k);
  // All blocks lie on x; beyond its limit they stride on.
  const std::int64_t tiles = tiles_of(tile.m, tile.n, p);
  plan.grid[0] = tiles > kMaxGridX / plan.splits ? kMaxGridX : tiles * plan.splits;
  plan.grid[1] = plan.grid[2] = 1;
  if (plan.splits > 1) plan.workspace_bytes = partial_bytes(p, plan.splits);
  return plan;
}

}  // namespace pmpp::matmul
