// Tile shapes and the shared memory that they need.
#pragma once

#include <cstdint>

#include "csrc/common/numeric.hpp"

namespace pmpp::matmul {

// naive and tiled: one thread an output element, 16 x 16 threads a block.
inline constexpr int kTileWidth = 16;

// tiled_dynamic: candidate widths, widest first. A wider tile reads each operand element fewer times.
inline constexpr int kDynamicTileWidths[] = {32, 16, 8};
inline constexpr int kMaxDynamicTileWidth = 32;

// Bytes of the two tiles, one of a and one of b.
constexpr int dynamic_tile_bytes(int width, int element_bytes) { return 2 * width * width * element_bytes; }

// blocked (CPU): the accumulator tile and the packed panels of a and b have to stay in a core's caches: 32 + 32 + 64
// KiB for float32, twice that for 8-byte accumulators, 192 KiB for 16-byte ones.
template <class Acc>
struct BlockedTile {
  static constexpr int kM = 64;
  static constexpr int kN = sizeof(Acc) == 16 ? 64 : 128;
  static constexpr int kK = sizeof(Acc) == 16 ? 64 : 128;
};

}  // namespace pmpp::matmul
