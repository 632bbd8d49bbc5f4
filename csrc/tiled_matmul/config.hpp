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

// blocked (CPU): steps of k in a slice. A panel of b, as wide as the micro-kernel, then takes 16 KiB with AVX2 and 48
// KiB with AVX-512. The sums are read and written once for each slice: with 192 or 384 steps AVX-512 is as fast.
inline constexpr std::int64_t kSliceSteps = 256;

// Bytes of the packed rows of a, each of which is read for all packed columns of b before the next, and of the packed
// columns of b, which the second-level cache holds. On a Xeon of the third generation (Ice Lake, 1.25 MiB), one thread,
// float32, 1024 x 1024 x 1024, PyTorch's time over ours: 0.94 with 384 KiB of b, 0.97 with 768, 0.96 with 1024; with
// AVX2 on both sides 1.00, 1.02, and 1.01 with 2048.
inline constexpr std::int64_t kPackedABytes = 4 * 1024 * 1024;
inline constexpr std::int64_t kPackedBBytes = 768 * 1024;

// Bytes of the sums that cannot be added up in the result itself.
inline constexpr std::int64_t kSumBytes = 4 * 1024 * 1024;

// Below these an operand is read where it lies, if the micro-kernel can: bytes of a task's part of a whose columns lie
// together (with rows it always is); rows of a task, as each reads b once, and bytes of a task's part of b, of which
// more are read in place if every row begins on a boundary of a cache line. On the same Xeon, AVX-512, one thread,
// float32: PyTorch's time over ours is 1.01 for 256 x 256 x 256 in place and 0.96 packed, 1.20 and 1.30 for 255 x 255 x
// 255, 0.99 and 0.89 for 100 x 512 x 256, 0.93 and 1.05 for 1024 x 1024 x 128.
inline constexpr std::int64_t kUnpackedColumnBytes = 24 * 1024;
inline constexpr std::int64_t kUnpackedRows = 24;
inline constexpr std::int64_t kUnpackedAlignedRows = 128;
inline constexpr std::int64_t kUnpackedBBytes = 128 * 1024;
inline constexpr std::int64_t kUnpackedAlignedBBytes = 256 * 1024;

// Where few rows of a meet more of b than this, b comes from memory: few steps of k at a time then, each a row of b
// that is read from end to end, and as many columns as the second-level cache has room for sums. On the same Xeon, one
// thread, float32, 16 x 4096 x 4096, PyTorch's time over ours is 1.43 with 32 steps and 1.24 with 256, and with AVX2 on
// both sides 1.23 and 0.79; 16 x 1024 x 1024 has 0.82 and 0.96, 0.80 and 0.89.
inline constexpr std::int64_t kStreamedRowBytes = 4096;
inline constexpr std::int64_t kStreamedBBytes = 8 * 1024 * 1024;
inline constexpr std::int64_t kStreamedSteps = 32;
inline constexpr std::int64_t kStreamedSumBytes = 256 * 1024;

// Rows of a up to which its products are formed without tiles, where b is column-major or larger than this; and columns
// whose sums the first-level cache holds. On an EPYC 7003, one thread, float32: 1 x 4096 x 4096 takes 2.2 ms
// against 5.7 in tiles.
inline constexpr std::int64_t kVectorRows = 3;
// The same for column-major b where k is long enough to pay for adding up registers. On a Xeon of the third generation
// (Ice Lake), AVX-512, one thread, float32: 16 x 1024 x 1024 takes 0.49 ms against 0.59 in tiles; with the roles
// exchanged, 1024 x 8 x 1024 takes 0.31 against 0.57, but 1024 x 16 x 1024 0.51 against 0.46.
inline constexpr std::int64_t kDotRows = 16;
inline constexpr std::int64_t kExchangedDotRows = 8;
inline constexpr std::int64_t kDotSteps = 256;
inline constexpr std::int64_t kVectorBBytes = 8 * 1024 * 1024;
inline constexpr std::int64_t kVectorCols = 2048;

// Multiply-adds below which a thread costs more to wake than it saves, and steps of k below which a split of k does.
inline constexpr std::int64_t kWorkPerThread = 256 * 1024;
inline constexpr std::int64_t kStepsPerSplit = 2048;

}  // namespace pmpp::matmul
