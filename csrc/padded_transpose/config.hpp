// Tile shapes of the transposes, and how much of a matrix makes another kernel the faster one.
#pragma once

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

// CPU: a task is 32 output rows by 256 output columns, walked in 32 x 32 tiles: with padding
// 16.5 KiB for 16-byte elements, which a first-level cache holds.
inline constexpr int kCpuTile = 32;
inline constexpr int kCpuTaskCols = 256;

// ---- vectorized ----------------------------------------------------------------------------------------------------

// The widest access of a thread. V = 16 / element size elements are one chunk.
inline constexpr int kChunkBytes = 16;

// A block's part of a matrix: bytes along a source row, bytes along a destination row, threads.
struct TileShape {
  int source_bytes, dest_bytes, threads;
};

// The shares of a copy below were measured on an H200 (8192 x 8192, or 8191 x 8193 for kernels that take any
// alignment), cleared cache.

// vectorized, everything on 16-byte boundaries. Runs of 256 bytes both ways: 1.00, .97, .98, .99 of a copy for 1, 2, 4,
// 8 bytes; 128 x 256 bytes gave .97, .94, .97, .98. 16-byte elements .93 (and .87 with odd sides) in 256 bytes, .93
// (.94) in 512. Too few such tiles for the GPU: 128 bytes, where 512 x 512 4-byte elements reach .91 instead of .88.
constexpr TileShape aligned_tile(int element_size, bool small) {
  if (element_size == 16) return small ? TileShape{256, 256, 128} : TileShape{512, 512, 512};
  return small ? TileShape{128, 128, 64} : TileShape{256, 256, 256};
}

// vectorized, 1-byte elements anywhere: .74 in 128 x 256 bytes; .69 in 256 x 256, .67 in 128 x 512.
constexpr TileShape staged_tile(bool small) { return small ? TileShape{64, 64, 96} : TileShape{128, 256, 544}; }

// vectorized, elements of 2, 4, 8 bytes anywhere: .84, .87, .91.
constexpr TileShape gather_tile(int element_size, bool small) {
  if (small) return {64, 64, 64};
  return element_size == 8 ? TileShape{512, 512, 512} : TileShape{256, 256, 512};
}

// Lanes of a warp along a destination row: a run of that many chunks in each store.
constexpr int gather_lanes(int element_size, bool small) { return small ? 4 : element_size == 8 ? 32 : 16; }

// Destination rows are written from one boundary of this many bytes to another, so that blocks do not share a 32-byte
// sector of the second-level cache. Small tiles cannot afford to read that many rows twice.
constexpr int gather_halo(bool small) { return small ? 16 : 32; }
inline constexpr int kStagedHalo = 16;

// narrow: a side so short that tiles would be mostly empty, and the matrix is a contiguous strip. Up to this many bytes
// always; up to kNarrowElements elements where tiles would waste a fifth.
inline constexpr int kNarrowBytes = 256;
inline constexpr int kNarrowElements = 160;
// Shared memory that a block of a strip aims at, and its threads.
inline constexpr int kNarrowShared = 32 * 1024;
inline constexpr int kNarrowSourceWarps = 8;
inline constexpr int kNarrowThreadsMax = 512;
// narrow source: lanes along a destination row; 8 x 16 bytes are a line, and four columns keep banks apart.
inline constexpr int kNarrowLanes = 8;

// narrow destination: bytes in which source rows are staged; see there.
constexpr int narrow_dest_piece(int element_size) { return element_size >= 4 ? element_size : kChunkBytes; }
constexpr int narrow_dest_threads(int element_size) { return element_size >= 4 ? 256 : 512; }

// Dynamic shared memory of the tile kernels, which their layouts are checked against.
constexpr int aligned_shared_bytes(const TileShape& tile, int element_size) {
  return tile.source_bytes / element_size * tile.dest_bytes;
}
constexpr int staged_shared_bytes(const TileShape& tile) {
  const int rows = tile.dest_bytes + kStagedHalo;
  const int staged = rows * (tile.source_bytes + kChunkBytes);
  const int transposed = tile.source_bytes * (rows / kChunkBytes | 1) * kChunkBytes;
  return staged > transposed ? staged : transposed;
}
constexpr int gather_shared_bytes(const TileShape& tile, int element_size, int halo) {
  const int per_chunk = kChunkBytes / element_size;
  return (tile.dest_bytes + halo) / element_size / per_chunk *
         (per_chunk * (tile.source_bytes + kChunkBytes) + kChunkBytes);
}

// Shared memory that vectorized has to be able to get: what every kernel but one needs, and that of the aligned kernel
// with 1-byte elements.
inline constexpr int kMaxStaticShared = 48 * 1024;
inline constexpr int kMaxShared = 64 * 1024;

// copy: threads of a block, and chunks that a thread has in flight.
inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyInFlight = 4;

}  // namespace pmpp::transposition
