"""How many blocks a multiprocessor holds at once, and what keeps it from holding more. Needs no torch.

The rules are those of cuda_occupancy.h in the CUDA toolkit for compute capability 7.0 and later, with all of the
configurable memory given to shared memory, as the driver does for a kernel that could use it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ._devices import CAPABILITIES, DEVICES, KIB, Capability, capability_named, device_named
from ._output import Parser, at_least, print_json
from ._text import Table

# The words of the limits, in the order in which they are named where several are equal.
LIMITS = ("registers", "shared memory", "threads", "blocks", "barriers")


@dataclass(frozen=True)
class Occupancy:
    """Blocks on a multiprocessor and how they came about."""

    blocks: int
    threads: int
    warps: int
    fraction: float  # of the warps that a multiprocessor holds
    limits: dict[str, int | None]  # blocks that each resource allows; None where the kernel uses none of it
    limiters: tuple[str, ...]  # the resources that allow fewest
    registers_per_block: int  # as allocated, rounded up
    shared_bytes_per_block: int  # as allocated, with what the system reserves
    reason: str = ""  # why no block fits at all

    @property
    def limiter(self) -> str:
        """The limiting resources in words."""
        return self.reason or " and ".join(self.limiters)


def round_up(value: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-value // unit) * unit


def occupancy(
    capability: Capability,
    threads: int,
    registers: int = 0,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 1,
) -> Occupancy:
    """Blocks of a launch that a multiprocessor holds at once.

    Args:
        capability: Of the GPU.
        threads: Of a block, at least 1.
        registers: Of a thread; 0 leaves registers out.
        static_shared: Bytes of shared memory of a block that the kernel declares.
        dynamic_shared: Bytes that the launch asks for besides.
        barriers: Named barriers of a block: 1 for `__syncthreads()`, all 16 where ptxas cannot tell which one the
            kernel waits at. 0 leaves them out.
    """
    if threads < 1 or registers < 0 or static_shared < 0 or dynamic_shared < 0 or barriers < 0:
        raise ValueError("occupancy: expected at least 1 thread, and nothing negative")
    warps = -(-threads // capability.warp)
    registers_per_warp = round_up(registers * capability.warp, capability.register_unit)
    # Whether a block fits is checked as if its warps were spread evenly over the partitions.
    checked_registers = registers_per_warp * round_up(warps, capability.partitions)
    shared = round_up(static_shared + dynamic_shared + capability.shared_reserved, capability.shared_unit)
    reason = ""
    if threads > capability.max_threads_per_block:
        reason = f"a block has at most {capability.max_threads_per_block} threads"
    elif registers > capability.registers_per_thread:
        reason = f"a thread has at most {capability.registers_per_thread} registers"
    elif checked_registers > capability.registers:
        reason = f"a block has at most {capability.registers} registers, and this one needs {checked_registers}"
    elif static_shared + dynamic_shared > capability.shared_opt_in:
        reason = f"a block has at most {capability.shared_opt_in} bytes of shared memory"
    elif barriers > capability.barriers_per_block:
        reason = f"a block has at most {capability.barriers_per_block} barriers"
    # Each partition serves whole warps from its own registers.
    warps_by_registers = (
        capability.registers // capability.partitions // registers_per_warp * capability.partitions
        if registers_per_warp
        else None
    )
    limits: dict[str, int | None] = {
        "registers": None if warps_by_registers is None else warps_by_registers // warps,
        "shared memory": None if static_shared + dynamic_shared == 0 else capability.shared_bytes // shared,
        "threads": capability.max_threads // capability.warp // warps,
        "blocks": capability.max_blocks,
        "barriers": None if capability.barriers is None or barriers == 0 else capability.barriers // barriers,
    }
    blocks = 0 if reason else min(value for value in limits.values() if value is not None)
    most_warps = capability.max_threads // capability.warp
    return Occupancy(
        blocks=blocks,
        threads=blocks * threads,
        warps=blocks * warps,
        fraction=blocks * warps / most_warps,
        limits=limits,
        limiters=() if reason else tuple(name for name in LIMITS if limits[name] == blocks),
        registers_per_block=registers_per_warp * warps,
        shared_bytes_per_block=shared,
        reason=reason,
    )


def registers_allowed(capability: Capability, threads: int) -> int:
    """Registers of a thread with which a block of this many still fits: what its launch bounds hold ptxas to."""
    warps = round_up(-(-threads // capability.warp), capability.partitions)
    by_warp = capability.registers // warps // capability.register_unit * capability.register_unit
    return min(by_warp // capability.warp, capability.registers_per_thread)


@dataclass(frozen=True)
class SharedPerThread:
    """The textbook's reckoning with shared memory a thread, and what whole blocks make of it."""

    bytes_per_thread: float  # of a block, with what the system reserves
    for_full_occupancy: float  # bytes a thread may have if all threads are to be resident
    threads_by_dividing: int  # that the multiprocessor's shared memory would serve
    fraction_by_dividing: float
    blocks: int  # whole ones that fit
    threads_in_whole_blocks: int
    fraction_in_whole_blocks: float


def shared_per_thread(capability: Capability, threads: int, shared: int) -> SharedPerThread:
    """Occupancy by shared memory alone: by dividing the multiprocessor's among threads, and by whole blocks."""
    occupied = shared + capability.shared_reserved
    each = occupied / threads
    dividing = min(int(capability.shared_bytes / each), capability.max_threads) if each else capability.max_threads
    blocks = (
        capability.shared_bytes // round_up(occupied, capability.shared_unit) if occupied else capability.max_blocks
    )
    whole = min(blocks * threads, capability.max_threads // threads * threads)
    return SharedPerThread(
        bytes_per_thread=each,
        for_full_occupancy=capability.shared_bytes / capability.max_threads,
        threads_by_dividing=dividing,
        fraction_by_dividing=dividing / capability.max_threads,
        blocks=whole // threads,
        threads_in_whole_blocks=whole,
        fraction_in_whole_blocks=whole / capability.max_threads,
    )


@dataclass(frozen=True)
class Waves:
    """How a grid fills a GPU."""

    slots: int  # blocks that the whole GPU holds at once
    waves: float  # grid divided by slots
    rounds: int  # waves, counting a part as one
    efficiency: float  # share of all slots of all rounds that have a block
    tail: int  # blocks of the last round


def waves(grid: int, blocks_per_multiprocessor: int, sm_count: int) -> Waves | None:
    """Rounds that a grid of blocks of equal length takes; None where no block fits."""
    slots = blocks_per_multiprocessor * sm_count
    if slots == 0 or grid == 0:
        return None
    rounds = -(-grid // slots)
    return Waves(slots, grid / slots, rounds, grid / (rounds * slots), grid - (rounds - 1) * slots)


# ---- the command ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m torch_pmpp occupancy`."""
    result = Parser(
        prog="python -m torch_pmpp occupancy",
        description="Blocks and threads that a multiprocessor holds at once, and the resource that limits them.",
    )
    result.add_argument("--threads", type=at_least(1), required=True, metavar="N", help="threads of a block")
    result.add_argument("--registers", type=at_least(0), default=0, metavar="N", help="registers of a thread")
    result.add_argument(
        "--shared", type=at_least(0), default=0, metavar="BYTES", help="shared memory of a block, static and dynamic"
    )
    result.add_argument(
        "--barriers", type=at_least(0), default=1, metavar="N", help="named barriers of a block (1: __syncthreads)"
    )
    result.add_argument("--grid", type=at_least(1), metavar="BLOCKS", help="blocks of the launch: shows waves and tail")
    where = result.add_mutually_exclusive_group()
    where.add_argument(
        "--gpu", default="h200", metavar="NAME", help=f"one of {', '.join(device.name for device in DEVICES)} (h200)"
    )
    where.add_argument(
        "--capability",
        metavar="X.Y",
        help=f"a compute capability instead: {', '.join(each.name for each in CAPABILITIES.values())}",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object")
    return result


def run(arguments: Sequence[str]) -> int:
    """Prints the occupancy of a launch; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        device = None if options.capability else device_named(options.gpu)
        capability = capability_named(options.capability) if device is None else device.capability
    except ValueError as error:
        print(f"python -m torch_pmpp occupancy: {error}", file=sys.stderr)
        return 2
    if options.grid and device is None:
        print("python -m torch_pmpp occupancy: --grid needs --gpu, whose multiprocessors it fills", file=sys.stderr)
        return 2
    found = occupancy(
        capability,
        options.threads,
        options.registers,
        dynamic_shared=options.shared,
        barriers=options.barriers,
    )
    by_thread = shared_per_thread(capability, options.threads, options.shared) if options.shared else None
    filled = waves(options.grid, found.blocks, device.sm_count) if options.grid and device else None
    if options.json:
        print_json(
            {
                "gpu": None if device is None else device.title,
                "capability": capability.name,
                "threads_per_block": options.threads,
                "registers_per_thread": options.registers,
                "shared_bytes_per_block": options.shared,
                "barriers_per_block": options.barriers,
                "occupancy": {**asdict(found), "limiter": found.limiter},
                "shared_per_thread": by_thread and asdict(by_thread),
                "waves": filled and asdict(filled),
            }
        )
        return 0
    name = f"compute capability {capability.name}" if device is None else f"{device.title}, {capability.name}"
    limits = Table(f"Blocks on a multiprocessor of {name}", ("resource", "a block takes", "there is", "blocks"), _RIGHT)
    block_words = {
        "registers": (f"{found.registers_per_block:,}", f"{capability.registers:,}"),
        "shared memory": (f"{found.shared_bytes_per_block:,} B", f"{capability.shared_bytes:,} B"),
        "threads": (f"{round_up(options.threads, capability.warp):,}", f"{capability.max_threads:,}"),
        "blocks": ("1", f"{capability.max_blocks}"),
        "barriers": (f"{options.barriers}", "not counted" if capability.barriers is None else f"{capability.barriers}"),
    }
    for resource in LIMITS:
        allowed = found.limits[resource]
        mark = " <" if resource in found.limiters else ""
        limits.add(resource, *block_words[resource], ("no limit" if allowed is None else str(allowed)) + mark)
    limits.print()
    blocks = "1 block" if found.blocks == 1 else f"{found.blocks} blocks"
    print(f"{blocks}, {found.threads:,} threads, {found.fraction:.0%} occupancy; limited by: {found.limiter}")
    if by_thread is not None:
        print(
            f"Shared memory: {by_thread.bytes_per_thread:.0f} B a thread, of {by_thread.for_full_occupancy:.0f} B for "
            f"full occupancy. By dividing, {by_thread.threads_by_dividing:,} threads "
            f"({by_thread.fraction_by_dividing:.0%}); in whole blocks, {by_thread.threads_in_whole_blocks:,} "
            f"({by_thread.fraction_in_whole_blocks:.0%})."
        )
    if filled is not None:
        print(
            f"{options.grid:,} blocks on {filled.slots:,} places: {filled.waves:.2f} waves, the last with "
            f"{filled.tail:,} blocks; {filled.efficiency:.0%} of the places of all waves are used."
        )
    return 0


_RIGHT = frozenset({"a block takes", "there is", "blocks"})
__all__ = ["KIB", "LIMITS", "Occupancy", "SharedPerThread", "Waves", "occupancy", "shared_per_thread", "waves"]
