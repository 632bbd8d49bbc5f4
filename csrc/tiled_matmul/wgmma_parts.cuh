// What loading, multiplying and storing of the wgmma kernel share: its arguments, the numbering of its work, and where
// things lie in shared memory.
#pragma once

#include <cuda/ptx>

#include "csrc/tiled_matmul/problem.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"
#include "csrc/tma/tensor_map.hpp"

namespace pmpp::matmul {

inline constexpr int kWgmmaBoxBytes = 64 * kWgmmaK * 2;  // a box of 64 lines of 64 elements
inline constexpr int kWarpgroup = 128;

template <class T>
struct WgmmaArguments {
  CUtensorMap a, b, d;
  Arguments<T> problem;
  WgmmaSchedule schedule;
};

struct WorkItem {
  std::int32_t row_tile, col_tile, split, batch;
};

// Work items are numbered piece of k first where those are the blocks of a cluster, then tile, (else) piece of k,
// batch. Grouped raster: down the rows of a group, then on to the next column. The blocks of a cluster get neighbouring
// rows.
template <bool kInCluster>
__device__ __forceinline__ WorkItem work_item(const WgmmaSchedule& s, std::int32_t index) {
  const std::int32_t inner = kInCluster ? index % s.splits : 0;
  if constexpr (kInCluster) index = index / s.splits;
  const std::int32_t outer = index / s.tiles;
  const std::int32_t tile = index - outer * s.tiles;
  const std::int32_t group = tile / s.group_tiles;
  const std::int32_t within = tile - group * s.group_tiles;
  const std::int32_t first_row = group * kWgmmaGroup;
  const bool is_whole = first_row + kWgmmaGroup <= s.row_tiles;
  WorkItem item;
  item.col_tile = is_whole ? within / kWgmmaGroup : within / s.last_rows;
  item.row_tile = first_row + within - item.col_tile * (is_whole ? kWgmmaGroup : std::int32_t{s.last_rows});
  item.batch = kInCluster ? outer : outer / s.splits;
  item.split = kInCluster ? inner : outer - item.batch * s.splits;
  return item;
}

// What an item multiplies: a tile, and of k the steps from begin to end.
struct WorkPiece {
  WorkItem item;
  int begin, end;
};

template <WgmmaTile kTile>
__device__ __forceinline__ WorkPiece work_piece(const WgmmaSchedule& s, std::int32_t index) {
  std::int32_t piece = 0, blocks = s.split_blocks;
  constexpr bool kInCluster = splits_in_cluster(kTile);
  const bool in_tail = wgmma_has_tail(kTile) && index >= s.whole;
  if (in_tail) {
    piece = (index - s.whole) / s.tail_tiles;
    index -= piece * s.tail_tiles;
    blocks = s.tail_blocks;
  }
  const WorkItem item = work_item<kInCluster>(s, index);
  if (!in_tail) piece = item.split;
  const int begin = piece * blocks;
  return {item, begin, min(begin + blocks, s.k_blocks)};
}

template <WgmmaTile kTile>
struct WgmmaShared {
  static constexpr int kBytesA = wgmma_stage_bytes_of_a(kTile);
  static constexpr int kStageBytes = wgmma_stage_bytes(kTile);

  char* base;  // a multiple of 1024 bytes, as the swizzle is one of addresses

  __device__ char* a(int stage) const { return base + stage * kStageBytes; }
  __device__ char* b(int stage) const { return a(stage) + kBytesA; }
  __device__ char* staging(int consumer) const {
    return base + kTile.stages * kStageBytes + consumer * (wgmma_staging_bytes(kTile) / wgmma_consumers(kTile));
  }
  __device__ uint4* row_ends(int consumer) const {
    return reinterpret_cast<uint4*>(staging(wgmma_consumers(kTile))) + consumer * 64;
  }
  __device__ std::uint64_t* full(int stage) const {
    char* const at = staging(wgmma_consumers(kTile)) + wgmma_row_end_bytes(kTile);
    return reinterpret_cast<std::uint64_t*>(at) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(kTile.stages) + stage; }
  __device__ int* pieces_done(int consumer) const { return reinterpret_cast<int*>(empty(kTile.stages)) + consumer; }
};

// Position in the ring of stages.
template <int kStages>
struct Ring {
  int stage = 0, phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

__device__ __forceinline__ void wait(std::uint64_t* barrier, int parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

}  // namespace pmpp::matmul
