// Tile shapes of the classic transposes.
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

}  // namespace pmpp::transposition
