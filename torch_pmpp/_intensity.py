"""Arithmetic intensity and roofs: what a kernel's tiling makes of the bytes that it asks global memory for.

The reckoning is the textbook's (Kirk, Hwu and El Hajj, "Programming Massively Parallel Processors", 4th edition, 2022,
chapter 5): each block reads its part of both operands as if there were no cache. Needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_SIZES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "complex64", "int64", "uint64"), 8),
    "complex128": 16,
}


def ceil_div(value: int, unit: int) -> int:
    """Whole units that cover `value`."""
    return -(-value // unit)


def flops(m: int, n: int, k: int, dtype: str = "float32") -> int:
    """Operations of a product: a multiplication and an addition each step, eight real ones in complex numbers."""
    return (8 if dtype.startswith("complex") else 2) * m * n * k


@dataclass(frozen=True)
class Traffic:
    """Bytes that a kernel's blocks ask global memory for."""

    loaded: int
    stored: int

    @property
    def total(self) -> int:
        """Both directions."""
        return self.loaded + self.stored


def bytes_in_planes(algorithm: str, dtype: str) -> tuple[int, int]:
    """Bytes of an element of a and of b in the planes that `emulated` splits them into first, three of 2 bytes for each
    real number; 0 where operands are read as they are. Both parts of a complex b stand in its planes twice."""
    if algorithm != "emulated":
        return 0, 0
    return (12, 24) if dtype.startswith("complex") else (6, 6)


@dataclass(frozen=True)
class Tiling:
    """How a product's kernel reads its operands. 1 x 1 is a thread that reads for itself alone."""

    tile_m: int
    tile_n: int
    splits: int = 1  # pieces of k, whose sums, of 4 bytes at least, are stored and read again
    shared_b: int = 1  # blocks one below the other that read a common tile of b once
    packed_a: bool = False  # copied to another place first: read and written once more
    packed_b: bool = False
    tail_sums: int = 0  # of the pieces of k of the last tiles alone, of 4 bytes, stored and read again
    planes: tuple[int, int] = (0, 0)  # bytes_in_planes: written by a pass of its own, and read instead of a and b


def matmul_traffic(m: int, n: int, k: int, size: int, tiling: Tiling) -> Traffic:
    """Bytes of a product: a is read for each column of tiles, b for each row of them."""
    size_a, size_b = (planes or size for planes in tiling.planes)
    loaded = size_a * m * k * ceil_div(n, tiling.tile_n)
    loaded += size_b * k * n * ceil_div(ceil_div(m, tiling.tile_m), tiling.shared_b)
    stored = size * m * n
    for planes, elements in zip(tiling.planes, (m * k, k * n), strict=True):
        if planes:
            loaded += size * elements
            stored += planes * elements
    if tiling.splits > 1:
        partial = max(size, 4) * m * n * tiling.splits
        loaded += partial
        stored += partial
    loaded += 4 * tiling.tail_sums
    stored += 4 * tiling.tail_sums
    for is_packed, elements in ((tiling.packed_a, m * k), (tiling.packed_b, k * n)):
        if is_packed:
            loaded += size * elements
            stored += size * elements
    return Traffic(loaded, stored)


def inner_intensity(
    tile_m: int, tile_n: int, size: int, dtype: str = "float32", planes: tuple[int, int] = (0, 0)
) -> float:
    """FLOP for each byte loaded in the loop over k, the textbook's figure: 0.25 for a thread alone in float32."""
    return flops(tile_m, tile_n, 1, dtype) / ((planes[0] or size) * tile_m + (planes[1] or size) * tile_n)


def compulsory_bytes(m: int, n: int, k: int, size: int) -> int:
    """Every element read once and written once: what no kernel can do without."""
    return size * (m * k + k * n + m * n)


def attainable(intensity: float, rate: float, peak: float | None) -> float:
    """The roofline: FLOP/s at an intensity, by a memory of `rate` bytes/s and units of `peak` FLOP/s."""
    by_memory = intensity * rate
    return by_memory if peak is None else min(by_memory, peak)


def ridge(rate: float, peak: float) -> float:
    """The intensity from which on the units limit, not the memory."""
    return peak / rate


# ---- transposes ----------------------------------------------------------------------------------------------------

SECTOR = 32


def sectors(addresses: list[int], size: int) -> int:
    """32-byte sectors of global memory that a warp's access touches."""
    return len({byte // SECTOR for address in addresses for byte in (address, address + size - 1)})


@dataclass(frozen=True)
class Sectors:
    """Sectors of a warp's read and write, and those that the bytes of its active lanes would fill."""

    read: int
    written: int
    read_ideal: int
    written_ideal: int


def transpose_sectors(algorithm: str, m: int, n: int, size: int, width: int = 32) -> Sectors:
    """Sectors of the first warp's read and write in the transpose of a contiguous m x n matrix.

    naive: 32 lanes along a source row write to 32 destination rows. Tiles: `width` lanes along a row on both sides;
    with 16 a warp spans two rows. vectorized: 16 bytes a lane, runs of at least 128 bytes both ways.
    """
    if algorithm == "vectorized":
        return Sectors(16, 16, 16, 16)
    lanes = [(lane % width, lane // width) for lane in range(32)]
    source = [(x, y) for x, y in lanes if x < n and y < m]
    read = [(y * n + x) * size for x, y in source]
    if algorithm == "naive":
        written = [(x * m + y) * size for x, y in source]
    else:
        written = [(y * m + x) * size for x, y in lanes if x < m and y < n]
    return Sectors(
        sectors(read, size),
        sectors(written, size),
        ceil_div(len(read) * size, SECTOR),
        ceil_div(len(written) * size, SECTOR),
    )
