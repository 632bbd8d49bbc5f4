// Tile shapes of the transposes, and how much of a matrix makes another kernel the faster one.
#pragma once

#include <cstdint>

namespace pmpp::transposition {

// shared and padded: 32 x 32 elements moved by 32 x 8 threads, four rows a thread.
inline constexpr int kTile = 32;
inline constexpr int kTileRows = 8;

// padded16: 16 x 16 elements moved by 16 x 8 threads: a quarter of the shared memory.
inline constexpr int kSmallTile = 16;

// One element of padding at the end of each row moves the elements of a column to different banks.
inline constexpr int kPadding = 1;

// Bytes of static shared memory of a tile.
constexpr int tile_bytes(int tile, int padding, int element_size) { return tile * (tile + padding) * element_size; }

// naive: threads along a source row, and rows a block.
inline constexpr int kNaiveCols = 32;
inline constexpr int kNaiveRows = 8;

// naive on the CPU: a task is 32 output rows by 256 output columns.
inline constexpr int kCpuNaiveCols = 32;
inline constexpr int kCpuNaiveRows = 256;

// blocked (CPU): a cache line, and a tile of 256 bytes of each of so many source rows that 128 bytes and more of each
// destination row are written together: up to 36 KiB for single bytes, 18 KiB for others.
inline constexpr int kCpuLineBytes = 64;
inline constexpr int kCpuTileBytes = 256;
constexpr int cpu_tile_rows(int element_size) { return element_size <= 2 ? 128 / element_size : 256 / element_size; }
// Rows of a task, and elements along the longer side of a narrow matrix.
inline constexpr int kCpuTaskRows = 1024;
inline constexpr int kCpuNarrowElements = 16384;
// Bytes of the shorter side from which tiles are faster than element by element. On a Xeon of the third generation (Ice
// Lake), one thread, share of a memcpy's speed by elements and in tiles: 1,048,576 x 16 of 1 byte .25 and .45, mirrored
// .23 and .50, of 2 bytes .26 and .45, mirrored .30 and .38; 3 x 1,048,576 of 8 bytes .50 and .30, of 16 .50 and .43.
constexpr int cpu_narrow_bytes(int element_size) { return element_size <= 2 ? 16 : kCpuLineBytes; }

// ---- vectorized ----------------------------------------------------------------------------------------------------

// The widest access of a thread. V = 16 / element size elements are one chunk.
inline constexpr int kChunkBytes = 16;
// What the second-level cache moves at a time.
inline constexpr int kSectorBytes = 32;

// A block's part of a matrix: bytes along a source row, bytes along a destination row, threads.
struct TileShape {
  int source_bytes, dest_bytes, threads;
};

// Bytes that a line staged by cp.async takes up more than it has; see chunk.cuh.
inline constexpr int kStagePadding = 32;

// The shares of a copy below were measured on an H200 (8192 x 8192, or 8191 x 8193 for kernels that take any
// alignment), cleared cache.

// Each kernel has up to three tiles: smaller ones for problems that have too few of a larger one to keep the GPU busy.
inline constexpr int kTileLevels = 3;

// vectorized, everything on 16-byte boundaries. Runs of 256 bytes both ways: .99, .97, .98, .99 of a copy for 1, 2, 4,
// 8 bytes; 128 x 256 bytes gave .97, .94, .97, .98. 16-byte elements .93 (and .87 with odd sides) in 256 bytes, .93
// (.94) in 512. Too few such tiles for the GPU: 128 bytes, where 512 x 512 4-byte elements reach .91 instead of .88.
constexpr TileShape aligned_tile(int element_size, int level) {
  if (element_size == 16) return level == 0 ? TileShape{512, 512, 512} : TileShape{256, 256, 128};
  return level == 0 ? TileShape{256, 256, 256} : TileShape{128, 128, 64};
}

// What the second-level cache fetches from memory at a time. Where source rows start elsewhere, two tiles of a row
// share a fetch, and the second has to come before the cache has forgotten it: with more than this many bytes in a
// column of tiles, and as many written, blocks of small elements walk along source rows. H200, share of a copy along
// destination rows and along source rows: 100,000 x 2,000 of 1 byte .87 and .91 (Nsight Compute: 238 MB read of 200,
// and 200), of 2 bytes .87 and .90; 70,000 x 2,000 of 1 byte .86 and .82. Of 4 bytes, whose rows are a whole number of
// fetches, .91 and .87.
inline constexpr int kFetchBytes = 64;
inline constexpr std::int64_t kRememberedBytes = 24 * 1024 * 1024;

// vectorized, 1-byte elements anywhere. With whole sectors written, a halo of 32, 8191 x 8193 and 16383 x 16385 reach
// .82 and .84 in 256 x 96 bytes, .79 and .82 in 128 x 224 with five blocks on a multiprocessor, .75 and .84 in 256 x
// 224 with three, .77 and .85 with two of 512 threads: larger tiles read less twice, but fewer blocks are out of step.
// With a halo of 16, half sectors at the ends, .73 and .74 in 256 x 240. Two tiles in shared memory, the next one
// staged while one is transposed, .75 and .64. 4095 x 4095: .79 in 128 x 128, .76 in the larger one.
constexpr TileShape staged_tile(int level, bool aligned_dest) {
  if (level == 0) return {256, aligned_dest ? 128 : 96, 256};
  return level == 1 ? TileShape{128, 128, 256} : TileShape{64, 64, 128};
}

// vectorized, elements of 2, 4, 8 bytes anywhere. The second-level cache limits, and a row that starts off a sector
// boundary costs it one sector more, a tile its halo: 4-byte elements reach .84 in 256 x 256 bytes and .93 in 512 x
// 256, 2-byte elements .87 in 256 x 256, 8-byte elements .94 in 512 x 512. 511 x 511 4-byte elements: .82 in 64 bytes,
// .68 in 128.
constexpr TileShape gather_tile(int element_size, int level) {
  if (level == 1) return {128, 128, 128};
  if (level == 2) return {64, 64, 64};
  return element_size == 2 ? TileShape{256, 256, 512} : TileShape{512, element_size == 4 ? 256 : 512, 512};
}

// Lanes of a warp along a destination row: a run of that many chunks in each store. With 8 lanes a third
// as many 2-byte elements meet in a bank: 8191 x 8193 .88 of a copy with 16, .90 with 8. Of 4 and 8 bytes both are
// alike.
constexpr int gather_lanes(int element_size, int level) {
  if (level == 0) return element_size == 8 ? 32 : element_size == 4 ? 16 : 8;
  return level == 1 ? 8 : 4;
}

// Blocks for each multiprocessor from which on a tile keeps the GPU busy. The largest one of 1-byte elements is smaller
// than those of others.
constexpr int busy_blocks(bool aligned, int element_size, int level) {
  if (aligned) return 2;
  if (level > 0) return 4;
  return element_size == 1 ? 10 : 5;
}

// Destination rows are written from one boundary of this many bytes to another, so that blocks do not share a 32-byte
// sector of the second-level cache. Small tiles cannot afford to read that many rows twice.
// Rows that start on 16-byte boundaries need none.
constexpr int gather_halo(int level, bool aligned) { return aligned ? 0 : level == 0 ? 32 : 16; }
constexpr int staged_halo(int level, bool aligned) { return aligned ? 0 : level == 0 ? 32 : 16; }

// Of fewer elements for each multiprocessor, `auto` takes a classic kernel instead, whose blocks are smaller: with
// 1-byte elements on boundaries, and off them or in strips, and with other elements off them or in strips. In a CUDA
// graph, padded and vectorized: 512 x 512 of 1 byte 2.1 and 2.5 us, 511 x 513 2.4 and 4.4, of 2 bytes 2.7 and 3.4, of 8
// bytes 2.9 and 3.1.
inline constexpr std::int64_t kSmallAlignedBytes = 7900;
inline constexpr std::int64_t kSmallBytes = 12000;
inline constexpr std::int64_t kSmallElements = 4000;
inline constexpr std::int64_t kSmallWideBytes = 16384;  // the most that kSmallElements may come to
// Elements of at least so many bytes take `padded16` then, whose blocks are smaller still: 1298 x 132 of 4 bytes 6.9 us
// with padded, 6.5 with padded16, of which an empty kernel takes 4.5; 511 x 513 of 2 bytes 6.9 and 6.6; but 700 x 701
// of 1 byte 5.2 and 5.7 (empty 2.8).
inline constexpr int kSmallerTileBytes = 2;

// narrow: a side so short that tiles would be mostly empty, and the matrix is a contiguous strip. Up to this many bytes
// always; up to kNarrowElements elements where tiles would waste a fifth.
inline constexpr int kNarrowBytes = 256;
inline constexpr int kNarrowElements = 160;
// Shared memory that a block of a strip aims at, and has at most.
inline constexpr int kNarrowShared = 32 * 1024;
inline constexpr int kNarrowSharedMax = 47 * 1024;
inline constexpr int kNarrowSourceWarps = 8;
inline constexpr int kNarrowThreadsMax = 512;
// narrow source: lanes along a destination row; 8 x 16 bytes are a line, and four columns keep banks apart.
inline constexpr int kNarrowLanes = 8;

// Modulo what lines are staged alike (chunk.cuh): sectors, but 1-byte elements are gathered in so many accesses that
// free banks are worth fetching sectors twice. 1,048,576 x 64: .86 of a copy with 16, .78 with 32; 2-byte elements .89
// and .90.
constexpr int narrow_alignment(int element_size) { return element_size == 1 ? 16 : 32; }

// narrow destination: bytes in which source rows are staged; see there.
constexpr int narrow_dest_piece(int element_size) { return element_size >= 4 ? element_size : kChunkBytes; }
// H200, share of a copy with 512 threads and with these: 33 x 1,048,576 of 1 byte .62 and .72, 16 x 1,048,576 .74 and
// .86; of 2 bytes .90 and .91, .89 and .95.
constexpr int narrow_dest_threads(int element_size) { return element_size == 1 ? 160 : 256; }

// Dynamic shared memory of the tile kernels, which their layouts are checked against.
constexpr int aligned_shared_bytes(const TileShape& tile, int element_size) {
  return tile.source_bytes / element_size * tile.dest_bytes;
}
constexpr int staged_shared_bytes(const TileShape& tile, int halo) {
  return (tile.dest_bytes + halo) * (tile.source_bytes + kStagePadding);
}
constexpr int gather_shared_bytes(const TileShape& tile, int element_size, int halo) {
  const int per_chunk = kChunkBytes / element_size;
  return (tile.dest_bytes + halo) / element_size / per_chunk *
         (per_chunk * (tile.source_bytes + kChunkBytes) + kChunkBytes);
}

// Shared memory of a block that every device gives, and what a device has to give on request for vectorized to be
// available: the largest tiles of the aligned and the gather kernel need more than the former.
inline constexpr int kMaxStaticShared = 48 * 1024;
inline constexpr int kMaxShared = 80 * 1024;

// copy: threads of a block, and chunks that a thread has in flight.
inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyInFlight = 4;

}  // namespace pmpp::transposition
