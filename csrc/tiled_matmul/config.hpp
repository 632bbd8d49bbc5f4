// Tile shapes and the shared memory that they need.
#pragma once

#include <cstdint>

namespace pmpp::matmul {

// naive and tiled: one thread an output element, 16 x 16 threads a block.
inline constexpr int kTileWidth = 16;

// tiled_dynamic: candidate widths, widest first. A wider tile reads each operand element fewer times.
inline constexpr int kDynamicTileWidths[] = {32, 16, 8};
inline constexpr int kMaxDynamicTileWidth = 32;

// Bytes of the two tiles, one of a and one of b.
constexpr int dynamic_tile_bytes(int width, int element_bytes) { return 2 * width * width * element_bytes; }

// blocked (CPU): steps of k in a slice. A panel of b, as wide as the micro-kernel, then takes 16 KiB with AVX2 and 32
// KiB with AVX-512, which the first-level cache holds.
inline constexpr std::int64_t kSliceSteps = 256;

// Bytes of the packed rows of a, which the second-level cache holds, and of the packed columns of b, for the last
// level. On a Xeon of the third generation (Ice Lake), one thread, float32, 512 to 1024: 96 KiB of a run 1 to 2 %
// faster than 192, with AVX2 and AVX-512 alike, 384 and 640 slower.
inline constexpr std::int64_t kPackedABytes = 4 * 1024 * 1024;
inline constexpr std::int64_t kPackedBBytes = 768 * 1024;

// Bytes of the sums that cannot be added up in the result itself.
inline constexpr std::int64_t kSumBytes = 4 * 1024 * 1024;

// Below these an operand is read where it lies, if the micro-kernel can: bytes of a task's part of a, with rows and
// with columns that lie together; rows of a task, as each reads b once.
inline constexpr std::int64_t kUnpackedABytes = 256 * 1024;
inline constexpr std::int64_t kUnpackedColumnBytes = 24 * 1024;
inline constexpr std::int64_t kUnpackedRows = 24;
inline constexpr std::int64_t kUnpackedBBytes = 128 * 1024;

// Rows of a up to which its products are formed without tiles, where b is column-major or larger than this; and columns
// whose sums the first-level cache holds. On an EPYC 7003, one thread, float32: 1 x 4096 x 4096 takes 2.2 ms
// against 5.7 in tiles.
inline constexpr std::int64_t kVectorRows = 3;
// The same for column-major b where k is long enough to pay for adding up registers. On a Xeon of the third generation
// (Ice Lake), AVX-512, one thread, float32: 4 x 1024 x 1024 takes 0.17 ms against 0.65 in tiles, 1024 x 16 x 1024, with
// the roles exchanged, 0.46 against 0.86.
inline constexpr std::int64_t kDotRows = 16;
inline constexpr std::int64_t kDotSteps = 256;
inline constexpr std::int64_t kVectorBBytes = 8 * 1024 * 1024;
inline constexpr std::int64_t kVectorCols = 2048;

// Multiply-adds below which a thread costs more to wake than it saves, and steps of k below which a split of k does.
inline constexpr std::int64_t kWorkPerThread = 256 * 1024;
inline constexpr std::int64_t kStepsPerSplit = 2048;

}  // namespace pmpp::matmul
