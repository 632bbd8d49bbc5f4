"""Bank conflicts of shared memory, simulated: how many turns a warp's access takes, and which lanes meet in which bank.

Shared memory has 32 banks of 4 bytes; word w lies in bank w % 32. A warp's access is served in turns (wavefronts) of at
most one word of each bank, which goes to every lane that asks for that word. Accesses of 8 bytes are served by halves
of the warp, of 16 bytes by quarters: 128 bytes a turn in each case. Source: CUDA Programming Guide, "Shared Memory"
(compute capability 5.x and later); compared with Nsight Compute's counters on an H200 by `make gpu-check`. Needs no
torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from ._output import Parser, at_least, print_json
from ._text import Table

BANKS = 32
WORD = 4
WARP = 32
TURN_BYTES = BANKS * WORD
ELEMENT_SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Request:
    """One access of a warp: `turns[t][b]` are the lanes that bank b serves in turn t."""

    turns: tuple[tuple[tuple[int, ...], ...], ...]
    ideal: int  # turns that these bytes take without conflicts

    @property
    def wavefronts(self) -> int:
        """Turns that the access takes."""
        return len(self.turns)

    @property
    def conflicts(self) -> int:
        """Turns more than without conflicts."""
        return self.wavefronts - self.ideal


def simulate(addresses: Sequence[int | None], size: int) -> Request:
    """One access of a warp to shared memory.

    Args:
        addresses: Byte address of each lane, at most 32; None for a lane that takes no part.
        size: Bytes that each lane accesses: 1, 2, 4, 8 or 16. Addresses are multiples of it.
    """
    if size not in ELEMENT_SIZES:
        raise ValueError(f"simulate: expected an access of 1, 2, 4, 8 or 16 bytes, but got {size}")
    if len(addresses) > WARP:
        raise ValueError(f"simulate: a warp has {WARP} lanes, but got {len(addresses)} addresses")
    lanes_together = min(WARP, TURN_BYTES // size)
    turns: list[tuple[tuple[int, ...], ...]] = []
    ideal = 0
    for first in range(0, len(addresses), lanes_together):
        words: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
        for lane, address in enumerate(addresses[first : first + lanes_together], start=first):
            if address is None:
                continue
            if address < 0 or address % size:
                raise ValueError(f"simulate: address {address} of lane {lane} is no multiple of {size}")
            for word in range(address // WORD, (address + size - 1) // WORD + 1):
                words[word % BANKS].setdefault(word, []).append(lane)
        depth = max(len(bank) for bank in words)
        ideal += depth > 0
        queues = [list(bank.values()) for bank in words]
        turns += [tuple(tuple(q[turn]) if turn < len(q) else () for q in queues) for turn in range(depth)]
    return Request(tuple(turns), ideal)


# ---- the access patterns of the kernels ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pattern:
    """The accesses of a block to its tile: those that store what was read, and those that load what is written."""

    title: str
    size: int  # bytes of a lane's access
    store: tuple[tuple[int, ...], ...]  # addresses of each warp's access
    load: tuple[tuple[int, ...], ...]
    shared_bytes: int


def _warps(lanes: Iterator[int]) -> tuple[tuple[int, ...], ...]:
    every = tuple(lanes)
    return tuple(every[first : first + WARP] for first in range(0, len(every), WARP))


def tile_pattern(width: int, padding: int, size: int, rows: int = 8, *, swizzle: bool = False) -> Pattern:
    """A tile of `width` columns stored by rows and loaded by columns, as `shared`, `padded` and `padded16` do.

    Args:
        width: Elements of a row, and rows of the tile; lanes run along it, `rows` rows at a time.
        padding: Elements added to each row.
        size: Bytes of an element.
        swizzle: Column c of row r lies at c ^ r instead (padding 0, width a power of two).
    """
    if swizzle and (padding or width & (width - 1)):
        raise ValueError("tile_pattern: a swizzled tile has no padding and a power of two for its width")
    pitch = width + padding

    def at(row: int, col: int) -> int:
        return (row * pitch + (col ^ (row % width) if swizzle else col)) * size

    threads = [(x, y) for y in range(min(rows, width)) for x in range(width)]
    how = "swizzled" if swizzle else f"+ {padding}"
    return Pattern(
        f"tile {width} x {width} {how}, {size}-byte elements",
        size,
        _warps(at(y, x) for x, y in threads),
        _warps(at(x, y) for x, y in threads),
        width * pitch * size,
    )


def swizzled_chunk_pattern(source_bytes: int, dest_bytes: int, threads: int, size: int) -> Pattern:
    """The tile of `vectorized` for matrices on 16-byte boundaries: chunk c of column group x lies at c ^ (x & 7)."""
    per_chunk = 16 // size
    across, up = source_bytes // 16, dest_bytes // 16  # chunks of a source row and of a destination row
    store = [
        ((x * per_chunk + v) * up + (y ^ (x & 7))) * 16
        for unit in range(across * up // threads)
        for v in range(per_chunk)
        for t in range(threads)
        for x, y in [(t % across, t // across + unit * (threads // across))]
    ]
    columns = source_bytes // size
    load = [
        (column * up + (c ^ (column // per_chunk & 7))) * 16
        for step in range(columns * up // threads)
        for t in range(threads)
        for c, column in [(t % up, t // up + step * (threads // up))]
    ]
    return Pattern(
        f"tile of {source_bytes} x {dest_bytes} bytes in swizzled chunks of 16, {size}-byte elements",
        16,
        _warps(iter(store)),
        _warps(iter(load)),
        columns * dest_bytes,
    )


# Tiles of csrc/padded_transpose/config.hpp; a test compares them with that file.
TILE_ALGORITHMS = {"shared": (32, 0), "padded": (32, 1), "padded16": (16, 1)}
TILE_ROWS = 8


def aligned_tile(size: int, level: int = 0) -> tuple[int, int, int]:
    """Bytes along a source row and along a destination row, and threads, of the tile of `vectorized`."""
    if size == 16:
        return (512, 512, 512) if level == 0 else (256, 256, 128)
    return (256, 256, 256) if level == 0 else (128, 128, 64)


def algorithm_pattern(algorithm: str, size: int, level: int = 0) -> Pattern:
    """The pattern of a transpose's algorithm: shared, padded, padded16, or vectorized on 16-byte boundaries."""
    if algorithm in TILE_ALGORITHMS:
        width, padding = TILE_ALGORITHMS[algorithm]
        return tile_pattern(width, padding, size, TILE_ROWS)
    if algorithm != "vectorized":
        raise ValueError(f"algorithm_pattern: {algorithm!r} keeps no tile in shared memory that is modelled here")
    return swizzled_chunk_pattern(*aligned_tile(size, level), size)


@dataclass(frozen=True)
class Summary:
    """All accesses of a block in one direction."""

    requests: int
    wavefronts: int
    ideal: int

    @property
    def per_request(self) -> float:
        """Turns of an access, in the mean."""
        return self.wavefronts / self.requests

    @property
    def conflicts_per_turn(self) -> float:
        """Turns lost for each turn that is needed."""
        return (self.wavefronts - self.ideal) / self.ideal


def summary(accesses: Sequence[Sequence[int]], size: int) -> Summary:
    """Counts of a list of accesses, each of one warp."""
    done = [simulate(addresses, size) for addresses in accesses]
    return Summary(len(done), sum(each.wavefronts for each in done), sum(each.ideal for each in done))


def conflicts_per_turn(pattern: Pattern) -> float:
    """Turns lost for each that is needed, stores and loads together: what `make gpu-check` compares with counters."""
    both = [summary(accesses, pattern.size) for accesses in (pattern.store, pattern.load)]
    needed = sum(each.ideal for each in both)
    return (sum(each.wavefronts for each in both) - needed) / needed


# ---- drawing -------------------------------------------------------------------------------------------------------


def text_grid(request: Request) -> str:
    """One line a turn, one column a bank; the lane that is served, with a + if others ask for the same word."""

    def cell(lanes: tuple[int, ...]) -> str:
        return (f"{lanes[0]}{'+' if len(lanes) > 1 else ''}" if lanes else ".").rjust(3)

    lines = ["bank" + "".join(f"{bank:3d}" for bank in range(BANKS))]
    lines += [f"{turn:3d} " + "".join(cell(lanes) for lanes in banks) for turn, banks in enumerate(request.turns)]
    return "\n".join(line.rstrip() for line in lines)


def svg_grid(panels: Sequence[tuple[str, Request]], most_turns: int = WARP) -> str:
    """The same as a picture, one panel below the other. Busy cells are dark with the lane's number in white, so that it
    reads without colours."""
    cell, left, top, gap = 20, 76, 46, 30
    parts: list[str] = []
    y = 0
    for title, request in panels:
        shown = request.turns[:most_turns]
        parts.append(f'<text x="4" y="{y + 16}" font-weight="bold">{escape(title)}</text>')
        parts.append(f'<text x="4" y="{y + 38}">bank</text>')
        for bank in range(BANKS):
            x = left + bank * cell
            parts.append(f'<text x="{x + cell / 2:g}" y="{y + 38}" text-anchor="middle">{bank}</text>')
        for turn, banks in enumerate(shown):
            row = y + top + turn * cell
            parts.append(f'<text x="4" y="{row + 14}">turn {turn + 1}</text>')
            for bank, lanes in enumerate(banks):
                x = left + bank * cell
                fill = "#1f4e79" if lanes else "#f2f2f2"
                parts.append(
                    f'<rect x="{x}" y="{row}" width="{cell}" height="{cell}" fill="{fill}" stroke="#888"/>'
                    + (
                        f'<text x="{x + cell / 2:g}" y="{row + 14}" text-anchor="middle" fill="#fff">{lanes[0]}</text>'
                        if lanes
                        else ""
                    )
                )
        y += top + len(shown) * cell
        if len(request.turns) > len(shown):
            parts.append(f'<text x="4" y="{y + 16}">... and {len(request.turns) - len(shown)} more turns</text>')
            y += 20
        y += gap
    width = left + BANKS * cell + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
        'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


# ---- the command ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m torch_pmpp conflicts`."""
    result = Parser(
        prog="python -m torch_pmpp conflicts",
        description="Turns of shared memory that a warp takes to store a tile by rows and to load it by columns.",
    )
    result.add_argument(
        "--algorithm", choices=(*TILE_ALGORITHMS, "vectorized"), help="the tile of a transpose (instead of --width)"
    )
    result.add_argument("--width", type=at_least(1, 256), metavar="N", help="elements of a tile's row (32)")
    result.add_argument("--padding", type=at_least(0, 64), metavar="N", help="elements added to each row (0)")
    result.add_argument("--swizzle", action="store_true", help="column c of row r lies at c xor r, without padding")
    result.add_argument(
        "--element-size", type=int, choices=ELEMENT_SIZES, default=4, help="bytes of an element (default: 4)"
    )
    result.add_argument("--output", type=Path, metavar="FILE.svg", help="also draw the grid of banks into this file")
    result.add_argument("--json", action="store_true", help="print one JSON object")
    return result


def run(arguments: Sequence[str]) -> int:
    """Prints and draws the conflicts of a pattern; returns the exit code."""
    options = parser().parse_args(arguments)
    own = options.width is not None or options.padding is not None or options.swizzle
    try:
        if options.algorithm and own:
            raise ValueError("conflicts: --algorithm has a tile of its own, without --width, --padding and --swizzle")
        pattern = (
            algorithm_pattern(options.algorithm, options.element_size)
            if options.algorithm
            else tile_pattern(options.width or 32, options.padding or 0, options.element_size, swizzle=options.swizzle)
        )
    except ValueError as error:
        print(f"python -m torch_pmpp conflicts: {str(error).partition(': ')[2]}", file=sys.stderr)
        return 2
    sides = {"store": pattern.store, "load": pattern.load}
    summaries = {name: summary(accesses, pattern.size) for name, accesses in sides.items()}
    # The access that takes longest: where they differ, it is the one to look at.
    worst = {
        name: max((simulate(each, pattern.size) for each in accesses), key=lambda request: request.wavefronts)
        for name, accesses in sides.items()
    }
    if options.output:
        try:
            panels = [
                (f"{name}: {request.wavefronts} turns, {request.ideal} needed", request)
                for name, request in worst.items()
            ]
            options.output.write_text(svg_grid(panels), encoding="utf-8")
        except OSError as error:
            print(f"python -m torch_pmpp conflicts: {options.output}: {error.strerror}", file=sys.stderr)
            return 1
    if options.json:
        print_json(
            {
                "pattern": pattern.title,
                "access_bytes": pattern.size,
                "shared_bytes": pattern.shared_bytes,
                "conflicts_per_turn": conflicts_per_turn(pattern),
                **{
                    name: {
                        "requests": each.requests,
                        "wavefronts": each.wavefronts,
                        "ideal": each.ideal,
                        "wavefronts_per_request": each.per_request,
                        "worst": [[list(lanes) for lanes in banks] for banks in worst[name].turns],
                    }
                    for name, each in summaries.items()
                },
            }
        )
        return 0
    figures = ("accesses", "turns", "needed", "turns an access")
    table = Table(f"{pattern.title}: {pattern.shared_bytes:,} B", ("direction", *figures), frozenset(figures))
    for name, each in summaries.items():
        table.add(name, str(each.requests), str(each.wavefronts), str(each.ideal), f"{each.per_request:.2f}")
    table.print()
    for name, request in worst.items():
        print(f"{name}, the worst access of a warp: the lane that each bank serves in each turn")
        print(text_grid(request), end="\n\n")
    if options.output:
        print(options.output)
    return 0
