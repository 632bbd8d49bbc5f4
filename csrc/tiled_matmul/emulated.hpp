// float32 and complex64 products from bfloat16 tensor cores: how an element is split, tiles, and the shared memory that
// they need, for the host and the device.
//
// A float32 x is hi + mid / 256 + lo / 65536 with bfloat16 parts, exactly, also where x is subnormal: the factors keep
// the parts of the smallest x among the numbers of bfloat16, whose exponents are those of float32. hi is cut off, never
// rounded up, so that the largest x does not overflow; mid is rounded, so that the products that are left out (mid lo
// and lo lo, 2^-24 of the whole) have no common sign and do not add up over k. An infinity or NaN is all in hi.
//
// A subnormal x has few bits in hi, or none: mid and lo are then more of the whole, and so are the products that are
// left out. Where one of the operands has such an element all nine products are formed.
//
// A complex product is the real one of twice the n and the k. The real m x 2k matrix of a has (re, im) for each
// element, that of b, 2k x 2n, has for each element
//    re  im
//   -im  re
// and the real m x 2n result has (re, im) for each element of d, as they lie in memory.
#pragma once

#include <cstdint>

#include "csrc/common/dtype.hpp"
#include "csrc/common/numeric.hpp"
#include "csrc/tiled_matmul/wgmma.hpp"

namespace pmpp::matmul {

inline constexpr int kPlanes = 3;  // hi, mid, lo
inline constexpr float kPlaneStep = 256;

// Real numbers of an element: sizes of the problem times this are those of the real product, but for m.
template <class T>
inline constexpr int kRealParts = 1;
template <class R>
inline constexpr int kRealParts<Complex<R>> = 2;
constexpr int real_parts(DType dtype) { return is_complex(dtype) ? 2 : 1; }

struct SplitFloat {
  BFloat16 plane[kPlanes];
};

PMPP_HOST_DEVICE SplitFloat split_float(float x) {
  constexpr float kLargest = 3.3895314e38f;  // of bfloat16, 0x7f7f; what exceeds it is left to the next part
  const std::uint32_t bits = float_bits(x);
  const bool is_special = (bits & 0x7f800000u) == 0x7f800000u;
  // A NaN whose payload is cut off must not become an infinity.
  const std::uint32_t quiet = (bits & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0u;
  const std::uint32_t hi = (bits | quiet) & 0xffff0000u;
  const float rest = is_special ? 0.0f : (x - float_from_bits(hi)) * kPlaneStep;
  const BFloat16 mid = BFloat16::from_float(rest > kLargest ? kLargest : (rest < -kLargest ? -kLargest : rest));
  const float lo = (rest - mid.to_float()) * kPlaneStep;  // at most 8 bits are left
  return {{{static_cast<std::uint16_t>(hi >> 16)}, mid, {static_cast<std::uint16_t>(float_bits(lo) >> 16)}}};
}

PMPP_HOST_DEVICE bool is_subnormal(float x) {
  const std::uint32_t bits = float_bits(x);
  return (bits & 0x7f800000u) == 0 && (bits & 0x007fffffu) != 0;
}

// Steps of 16 of k whose products of hi and hi end in the accumulators before those are added to the sums. The tensor
// cores cut each step's sum off, which makes a result too small by half a unit of its last place for every step: over
// four steps 1.4 to 1.9 units of 2^-24 in the norm, over two 0.9 to 1.3, over one 0.6 to 1.0, whatever k is. SGEMM has
// 1.0 at k = 512 and 1.8 at 8192 where all elements are positive, 1.3 at 256 where their exponents are spread, and
// more elsewhere; hence the limits. A complex k counts once, though cuBLAS's CGEMM adds up twice as many terms as SGEMM
// at that k: chains are no longer than they may be.
PMPP_HOST_DEVICE constexpr int emulated_chain(std::int64_t k) { return k < 512 ? 1 : k < 8192 ? 2 : 4; }

// An output tile of m x n. A slot holds one plane of both operands for 64 of k; `cluster` blocks, one below the
// other, share each tile of b.
struct EmulatedTile {
  int m, n, slots, cluster;
};

inline constexpr EmulatedTile kEmulatedTiles[] = {
    {128, 128, 7, 2},  // 0
    {64, 128, 8, 1},   // 1
    {128, 64, 9, 1},   // 2
};
inline constexpr int kEmulatedTileCount = sizeof(kEmulatedTiles) / sizeof(kEmulatedTiles[0]);

inline constexpr int kEmulatedThreads = 3 * 128;  // one warpgroup loads, two multiply

// Two warpgroups multiply, 64 rows each. Where a tile has only 64 each takes every other step of k, and they add up
// what they have.
constexpr bool shares_k(const EmulatedTile& tile) { return tile.m == 64; }

constexpr int emulated_slot_bytes(const EmulatedTile& tile) { return (tile.m + tile.n) * kWgmmaK * 2; }
constexpr int emulated_exchange_bytes(const EmulatedTile& tile) { return shares_k(tile) ? tile.m * tile.n * 4 : 0; }
constexpr int emulated_shared_bytes(const EmulatedTile& tile) {
  // With two barriers a slot, and a number for each thread that multiplies.
  return tile.slots * (emulated_slot_bytes(tile) + 2 * 8) + 2 * 128 * 4 + emulated_exchange_bytes(tile);
}

static_assert([] {
  for (const EmulatedTile& tile : kEmulatedTiles) {
    if (emulated_shared_bytes(tile) > 227 * 1024 || tile.slots < 2 * kPlanes) return false;
  }
  return true;
}());

}  // namespace pmpp::matmul
