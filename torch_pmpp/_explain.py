"""`python -m torch_pmpp explain`: what each step of the ladder does with one product or transpose, in figures.

Everything but the measured times is computed: the plan by the library's own selection, for a GPU that need not be
there, registers from what ptxas reported when the library was built, the rest by the functions of _intensity,
_occupancy and _conflicts.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from . import _conflicts, _intensity
from ._devices import DEVICES, Device, device_called, device_named, peak_flops
from ._kernels import Kernel, KernelTable, helper_kernels, matmul_kernels, read_kernels, transpose_kernels
from ._library import PACKAGE, no_cuda_reason
from ._occupancy import Occupancy, Waves, occupancy, registers_allowed, waves
from ._operators import padded_transpose, tiled_matmul
from ._output import Parser, at_least, print_json
from ._text import Table, duration

MATMUL_DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("uint8", "int8", "int16", "int32", "int64"),
)
TRANSPOSE_DTYPES = (*MATMUL_DTYPES, "bool")
LAYOUTS = ("NN", "NT", "TN", "TT")
TILE_WIDTHS = (8, 16, 32, 64, 128)
# Steps that multiply in the tensor cores; the others use the lanes for float32, float64 and integers.
_TENSOR_CORES = frozenset({"mma", "wgmma", "emulated"})
_EMULATED_PRODUCTS = 6  # of bfloat16, for each of float32


class NotPossible(Exception):
    """A request that cannot be answered, with the reason for the user."""


# ---- roofs ---------------------------------------------------------------------------------------------------------


def unit_peak(device: Device, algorithm: str, dtype: str) -> float | None:
    """FLOP/s of the units that an algorithm multiplies with; None where no datasheet states them."""
    if algorithm == "emulated":
        half = peak_flops(device, "bfloat16")
        return None if half is None else half / _EMULATED_PRODUCTS
    if algorithm in _TENSOR_CORES:
        return peak_flops(device, dtype, "tf32" if dtype == "float32" else None)  # float32 as such they do not multiply
    if dtype in ("float16", "bfloat16", "float32", "complex64"):
        return peak_flops(device, "float32")  # 16-bit floats are widened first
    if dtype in ("float64", "complex128"):
        double, single = peak_flops(device, "float64"), peak_flops(device, "float32")
        # Tensor cores may double the datasheet's float64; the lanes do half of float32 at most.
        return None if double is None or single is None else min(double, single / 2)
    return None


@dataclass(frozen=True)
class Roof:
    """The least time that the hardware allows a product, whatever the kernel: its operations, on the fastest units that
    one of the algorithms uses for the dtype, or its bytes."""

    seconds: float
    compute_seconds: float | None
    memory_seconds: float

    @property
    def limit(self) -> str:
        """Which of the two takes longer."""
        return "memory" if self.compute_seconds is None or self.memory_seconds >= self.compute_seconds else "compute"


def roof(device: Device, operations: int, moved: int, peak: float | None) -> Roof:
    """The roof of so many operations and bytes; without a peak the bytes alone count."""
    compute = operations / peak if peak else None
    memory = moved / device.memory_rate
    return Roof(max(compute or 0.0, memory), compute, memory)


# ---- one step of the ladder ----------------------------------------------------------------------------------------


@dataclass
class Step:
    """What an algorithm does with the problem. Times are seconds; None where nothing was measured or is known."""

    algorithm: str
    chosen: bool  # by `auto`
    plan: str
    facts: dict[str, int]
    kernels: list[Kernel]
    occupancy: Occupancy | None  # None: a copy by the driver, which launches nothing of ours
    waves: Waves | None
    figures: dict[str, Any]
    reasons: list[str]
    helpers: Sequence[Kernel] = ()  # launched before or after those
    seconds: float | None = None
    baseline_seconds: float | None = None

    @property
    def registers(self) -> str:
        """Of a thread, as text; from fewest to most where the plan does not tell kernels apart."""
        found = sorted({kernel.registers for kernel in self.kernels})
        return "-" if not found else str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def static_shared_bytes(kernels: Sequence[Kernel], otherwise: int) -> int:
    """Shared memory that the kernel declares, as compiled, or as its tile needs it where the build did not say."""
    return max((kernel.static_shared_bytes for kernel in kernels), default=otherwise)


def launch_occupancy(device: Device, facts: dict[str, int], kernels: Sequence[Kernel], static_shared: int) -> Occupancy:
    """Occupancy of a plan, with registers and barriers as compiled (where unknown: none, and one)."""
    return occupancy(
        device.capability,
        facts["block_x"] * facts["block_y"],
        max((kernel.registers for kernel in kernels), default=0),
        static_shared,
        facts["dynamic_shared_bytes"],
        max((kernel.barriers for kernel in kernels), default=1),
    )


def fill(device: Device, facts: dict[str, int], items: int, found: Occupancy) -> Waves | None:
    """Rounds of the blocks; where fewer blocks than tiles are launched, of the tiles that they share out. A round of
    tiles in pieces of k is as much shorter."""
    grid = facts["grid_x"] * facts["grid_y"] * facts["grid_z"]
    if 0 < grid < items and facts.get("tail_tiles", 0) > 0:
        whole = _intensity.ceil_div(items - facts["tail_tiles"], grid)
        pieces = facts["tail_tiles"] * facts["tail_splits"]
        last = _intensity.ceil_div(pieces, grid) / facts["tail_splits"]  # of a round
        return Waves(grid, items / grid, whole + 1, items / ((whole + last) * grid), facts["tail_tiles"])
    if 0 < grid < items:
        rounds = _intensity.ceil_div(items, grid)
        return Waves(grid, items / grid, rounds, items / (rounds * grid), items - (rounds - 1) * grid)
    return waves(grid, found.blocks, device.sm_count)


def fill_reasons(device: Device, items: int, filled: Waves | None, found: Occupancy) -> list[str]:
    """What of the way in which blocks fill the GPU costs time."""
    if filled is None:
        return [f"no block fits: {found.limiter}"]
    reasons = []
    if items < device.sm_count:
        reasons.append(f"{items} blocks leave {device.sm_count - items} of {device.sm_count} multiprocessors idle")
    elif filled.rounds >= 2 and filled.efficiency < 0.9:
        idle = 1 - filled.efficiency
        reasons.append(
            f"the last of {filled.rounds} waves has {filled.tail} blocks: {idle:.0%} of the places stay empty"
        )
    elif filled.rounds == 1 and items % device.sm_count and items < 2 * device.sm_count:
        reasons.append(
            f"{items} blocks on {device.sm_count} multiprocessors: some have two, most of the time is theirs"
        )
    return reasons


def _matmul_step(
    device: Device,
    table: KernelTable,
    arch: str | None,
    sizes: tuple[int, int, int],
    dtype: str,
    layout: str,
    algorithm: str,
    plan: tuple[str, dict[str, int]],
    chosen: bool,
) -> Step:
    m, n, k = sizes
    size = _intensity.ELEMENT_SIZES[dtype]
    text, facts = plan
    kernels = matmul_kernels(table, arch, algorithm, dtype, layout, facts) if arch else []
    alone = algorithm == "naive"  # a thread reads for itself, whatever the block's shape
    tile = (1, 1) if alone else (facts["tile_m"], facts["tile_n"])
    splits, cluster = facts["splits"], facts["cluster"]
    in_cluster = splits > 1 and cluster == splits  # its blocks share pieces of k, not rows
    tail, tail_splits = facts["tail_tiles"], facts["tail_splits"]
    tiling = _intensity.Tiling(
        *tile,
        1 if in_cluster else splits,
        1 if in_cluster else cluster,
        bool(facts["a_packed"]),
        bool(facts["b_packed"]),
        tail * tail_splits * tile[0] * tile[1],
        _intensity.bytes_in_planes(algorithm, dtype),
    )
    traffic = _intensity.matmul_traffic(m, n, k, size, tiling)
    operations = _intensity.flops(m, n, k, dtype)
    intensity = operations / traffic.total
    inner = _intensity.inner_intensity(*tile, size, dtype, tiling.planes)
    peak = unit_peak(device, algorithm, dtype)
    tiles = 2 * facts["tile_m"] * facts["tile_n"] * size if algorithm == "tiled" else 0
    static_shared = static_shared_bytes(kernels, tiles)
    found = launch_occupancy(device, facts, kernels, static_shared)
    # Rows that lie equally far off a boundary of 16 bytes are a matrix each.
    apart = 8 // math.gcd(k, 8) if facts["a_displaced"] else 1
    items = apart * _intensity.ceil_div(m // apart, facts["tile_m"]) * _intensity.ceil_div(n, facts["tile_n"]) * splits
    filled = fill(device, facts, items, found)
    by_dram = _intensity.attainable(intensity, device.memory_rate, peak)
    by_l2 = None if device.l2_rate is None else _intensity.attainable(intensity, device.l2_rate, peak)
    reasons = []
    if peak is not None and by_dram < peak:
        reasons.append(
            f"{intensity:.3g} FLOP/B are below the {_intensity.ridge(device.memory_rate, peak):.3g} from which the "
            "units would limit: faster only as far as the caches serve what blocks read again"
        )
    if any(tiling.planes):
        reasons.append(
            "a and b are first split into planes of bfloat16, which are read instead: {} and {} bytes an element where "
            "there were {}".format(*tiling.planes, size)
        )
    for name in ("a", "b"):
        if facts[f"{name}_packed"]:
            reasons.append(f"{name} is copied first, to where rows begin on boundaries of 16 bytes")
        if facts.get(f"{name}_displaced"):
            reasons.append(
                f"rows of {name} begin off boundaries of 16 bytes: those {apart} apart lie equally far off, and "
                "are read together from the boundary before"
            )
        if facts[f"{name}_realigned"]:
            reasons.append(f"{name} comes by way of registers: its rows begin off boundaries of 16 bytes")
    if splits > 1:
        reasons.append(
            f"k is cut into {splits} pieces, because there are few tiles; their sums are added up afterwards"
        )
    if tail > 0:
        reasons.append(
            f"of the last {tail} tiles k is cut into {tail_splits} pieces, so that all multiprocessors end together; "
            "whoever is done with a tile last adds up their sums"
        )
    reasons += fill_reasons(device, items, filled, found)
    return Step(
        algorithm,
        chosen,
        text,
        facts,
        kernels,
        found,
        filled,
        {
            "flops": operations,
            "inner_intensity": inner,
            "loaded_bytes": traffic.loaded,
            "stored_bytes": traffic.stored,
            "intensity": intensity,
            "unit_peak_flops": peak,
            "dram_roof_flops": by_dram,
            "l2_roof_flops": by_l2,
            "shared_bytes": static_shared + facts["dynamic_shared_bytes"],
            "items": items,
        },
        reasons,
        helper_kernels(table, arch, algorithm, dtype, facts) if arch else (),
    )


def _transpose_step(
    device: Device,
    table: KernelTable,
    arch: str | None,
    sizes: tuple[int, int],
    dtype: str,
    algorithm: str,
    plan: tuple[str, dict[str, int]],
    chosen: bool,
) -> Step:
    m, n = sizes
    size = _intensity.ELEMENT_SIZES[dtype]
    text, facts = plan
    method = transpose_method(text)
    if method == "driver copy":
        # No kernel: grid and block are those that a copy of ours would have.
        facts = facts | {name: 0 for name in facts if name.startswith(("grid_", "block_"))}
    kernels = transpose_kernels(table, arch, algorithm, method, size, facts) if arch else []
    tile = 0
    if algorithm in _conflicts.TILE_ALGORITHMS or method == "strided":
        width, padding = _conflicts.TILE_ALGORITHMS.get(algorithm, _conflicts.TILE_ALGORITHMS["padded"])
        tile = width * (width + padding) * size
    static_shared = static_shared_bytes(kernels, tile)
    found = launch_occupancy(device, facts, kernels, static_shared) if facts["block_x"] else None
    items = facts["grid_x"] * facts["grid_y"] * facts["grid_z"]
    filled = waves(items, found.blocks, device.sm_count) if found else None
    reasons = []
    sectors = None
    if method in ("", "aligned"):
        lanes = 16 if algorithm == "padded16" else 32
        sectors = _intensity.transpose_sectors(algorithm, m, n, size, lanes)
        for name, count, ideal in (
            ("reads", sectors.read, sectors.read_ideal),
            ("writes", sectors.written, sectors.written_ideal),
        ):
            if count >= 1.5 * ideal:
                reasons.append(f"a warp's access {name} {count} sectors of 32 bytes where its bytes fill {ideal}")
    shared: dict[str, _conflicts.Summary] = {}
    if algorithm in _conflicts.TILE_ALGORITHMS or method == "aligned":
        pattern = _conflicts.algorithm_pattern(algorithm, size, min(facts["level"], 1))
        for name, accesses in (("store", pattern.store), ("load", pattern.load)):
            shared[name] = _conflicts.summary(accesses, pattern.size)
            if shared[name].conflicts_per_turn >= 0.5:
                reasons.append(
                    f"a warp's {name} of shared memory takes {shared[name].per_request:.3g} turns where "
                    f"{shared[name].ideal / shared[name].requests:.3g} would do"
                )
    if found and filled:
        reasons += fill_reasons(device, items, filled, found)
    return Step(
        algorithm,
        chosen,
        text,
        facts,
        kernels,
        found,
        filled,
        {
            "method": method,
            "bytes": 2 * m * n * size,
            "shared_bytes": static_shared + facts["dynamic_shared_bytes"],
            "sectors": sectors and asdict(sectors),
            "shared": {name: {**asdict(each), "per_request": each.per_request} for name, each in shared.items()},
            "items": items,
        },
        reasons,
    )


def transpose_method(plan: str) -> str:
    """The method of `vectorized` in a plan's text: `narrow source` of `vectorized narrow source 2048x3 grid ...`."""
    found = re.fullmatch(r"vectorized ([a-z ]+?)(?: contiguous| \d.*)", plan)
    return found[1] if found else ""


# ---- the whole -----------------------------------------------------------------------------------------------------


@dataclass
class Explanation:
    """All steps for a problem on a GPU."""

    op: str
    sizes: tuple[int, ...]
    dtype: str
    layout: str
    precision: str | None  # of a float32 product: ieee or tf32
    device: Device
    measured_on: str | None  # the GPU's name, or None
    remark: str  # about the registers
    roof: Roof
    is_emulated_fastest: bool  # so that the roof is that of its units, above the datasheet's peak
    steps: list[Step]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        device = self.device
        return {
            "op": self.op,
            "sizes": list(self.sizes),
            "dtype": self.dtype,
            "layout": self.layout,
            "precision": self.precision,
            "gpu": {
                "name": device.name,
                "title": device.title,
                "capability": device.capability.name,
                "sm_count": device.sm_count,
                "memory_rate": device.memory_rate,
                "l2_rate": device.l2_rate,
                "shared_rate": device.shared_rate,
                "peak_flops": peak_flops(device, self.dtype, self.precision),
                "source": device.source,
            },
            "measured_on": self.measured_on,
            "remark": self.remark,
            "roof": {**asdict(self.roof), "limit": self.roof.limit},
            "steps": [
                {
                    "algorithm": step.algorithm,
                    "chosen": step.chosen,
                    "plan": step.plan,
                    "facts": step.facts,
                    "kernels": [asdict(kernel) for kernel in step.kernels],
                    "helpers": [asdict(kernel) for kernel in step.helpers],
                    "occupancy": step.occupancy and {**asdict(step.occupancy), "limiter": step.occupancy.limiter},
                    "waves": step.waves and asdict(step.waves),
                    **step.figures,
                    "reasons": step.reasons,
                    "seconds": step.seconds,
                    "baseline_seconds": step.baseline_seconds,
                    "roof_fraction": None if step.seconds is None else self.roof.seconds / step.seconds,
                }
                for step in self.steps
            ],
        }


def explain(
    op: str, sizes: tuple[int, ...], dtype: str, device: Device, *, layout: str = "NN", algorithm: str | None = None
) -> Explanation:
    """Every algorithm of the operator for a problem on a GPU of the table, or one of them. Nothing is measured. float32
    products are planned as PyTorch's setting says, which `float32_setting` changes.

    Raises:
        NotPossible: No algorithm, or not the one asked for, runs the dtype on that GPU.
    """
    facts = device.selection_facts()
    torch_dtype = getattr(torch, dtype)
    names = list(torch.ops.pmpp._algorithms_on(op, torch_dtype, facts))
    if algorithm not in (None, "auto") and algorithm not in names:
        raise NotPossible(
            f"{op} has no algorithm {algorithm!r} for {dtype} on {device.title}; it has {', '.join(['auto', *names])}"
        )
    table = read_kernels(PACKAGE)
    arch, remark = table.image_for(device.capability.number)
    automatic, automatic_facts = torch.ops.pmpp._plan_on(op, list(sizes), torch_dtype, layout, "auto", facts)
    pick = automatic.split()[0] if automatic else None
    wanted = [pick] if algorithm == "auto" and pick else names if algorithm is None else [algorithm]
    steps = []
    for name in wanted:
        text, plan = torch.ops.pmpp._plan_on(op, list(sizes), torch_dtype, layout, name, facts)
        if not text:
            continue
        if name == pick and algorithm in (None, "auto"):
            text, plan = automatic, automatic_facts
        is_pick = name == pick
        if op == "tiled_matmul":
            m, n, k = sizes
            step = _matmul_step(device, table, arch, (m, n, k), dtype, layout, name, (text, dict(plan)), is_pick)
        else:
            m, n = sizes
            step = _transpose_step(device, table, arch, (m, n), dtype, name, (text, dict(plan)), is_pick)
        steps.append(step)
    if not steps:
        raise NotPossible(f"{op} has no algorithm for {dtype} on {device.title}")
    size = _intensity.ELEMENT_SIZES[dtype]
    precision = torch.backends.cuda.matmul.fp32_precision if op == "tiled_matmul" and dtype == "float32" else None
    precision = "ieee" if precision == "none" else precision
    if op == "tiled_matmul":
        m, n, k = sizes
        peak = peak_flops(device, dtype, precision)
        emulated = unit_peak(device, "emulated", dtype) if "emulated" in names else None
        is_emulated_fastest = (emulated or 0) > (peak or 0)
        limit = roof(
            device,
            _intensity.flops(m, n, k, dtype),
            _intensity.compulsory_bytes(m, n, k, size),
            emulated if is_emulated_fastest else peak,
        )
    else:
        is_emulated_fastest = False
        limit = roof(device, 0, 2 * sizes[0] * sizes[1] * size, None)
    return Explanation(op, sizes, dtype, layout, precision, device, None, remark, limit, is_emulated_fastest, steps)


@contextmanager
def float32_setting(precision: str | None) -> Iterator[None]:
    """PyTorch's setting of float32 products on CUDA, for a while: ieee or tf32; None leaves it."""
    before = torch.backends.cuda.matmul.fp32_precision
    if precision is not None:
        torch.backends.cuda.matmul.fp32_precision = precision
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@dataclass(frozen=True)
class TileRow:
    """What a square tile of this width would make of a product, one thread an element of it."""

    width: int
    inner_intensity: float
    intensity: float
    loaded_bytes: int
    dram_roof_flops: float
    shared_bytes: int
    bytes_per_thread: float
    occupancy: Occupancy | None  # None: more threads than a block has, so that each needs several elements
    waves: Waves | None


def tile_rows(device: Device, m: int, n: int, k: int, dtype: str, widths: Sequence[int]) -> list[TileRow]:
    """The textbook's tiles at several widths: a thread alone is width 1."""
    size = _intensity.ELEMENT_SIZES[dtype]
    peak = unit_peak(device, "tiled", dtype)
    rows = []
    for width in widths:
        traffic = _intensity.matmul_traffic(m, n, k, size, _intensity.Tiling(width, width))
        intensity = _intensity.flops(m, n, k, dtype) / traffic.total
        shared = 2 * width * width * size
        threads = width * width
        fits = width > 1 and threads <= device.capability.max_threads_per_block
        found = occupancy(device.capability, threads, dynamic_shared=shared) if fits else None
        blocks = _intensity.ceil_div(m, width) * _intensity.ceil_div(n, width)
        rows.append(
            TileRow(
                width,
                _intensity.inner_intensity(width, width, size, dtype),
                intensity,
                traffic.loaded,
                _intensity.attainable(intensity, device.memory_rate, peak),
                shared if width > 1 else 0,
                shared / threads if width > 1 else 0.0,
                found,
                waves(blocks, found.blocks, device.sm_count) if found else None,
            )
        )
    return rows


# ---- measuring -----------------------------------------------------------------------------------------------------


def _median_seconds(calls: Sequence[Callable[[], object]], rounds: int, flush: torch.Tensor) -> list[float]:
    """Median time of each call on the device, in turn (A B A B), with the L2 cache cleared before each."""
    for call in calls:
        call()
    events = [
        [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in calls]
        for _ in range(rounds)
    ]
    for row in events:
        for call, (begin, end) in zip(calls, row, strict=True):
            flush.zero_()
            begin.record()
            call()
            end.record()
    torch.cuda.synchronize()
    return [
        statistics.median(begin.elapsed_time(end) for begin, end in column) * 1e-3
        for column in zip(*events, strict=True)
    ]


def _random(shape: tuple[int, int], dtype: torch.dtype, transposed: bool) -> torch.Tensor:
    shape = (shape[1], shape[0]) if transposed else shape
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.randn(shape, device="cuda", dtype=dtype)
    else:
        made = torch.randint(0, 2, shape, device="cuda").to(dtype)
    return made.t() if transposed else made


def measure(explanation: Explanation) -> None:
    """Times every step beside PyTorch on the current device and writes the figures into the steps."""
    dtype = getattr(torch, explanation.dtype)
    flush = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")
    baseline: Callable[[], object] | None
    if explanation.op == "tiled_matmul":
        m, n, k = explanation.sizes
        a = _random((m, k), dtype, explanation.layout[0] == "T")
        b = _random((k, n), dtype, explanation.layout[1] == "T")
        integer = not (dtype.is_floating_point or dtype.is_complex)
        baseline = None if integer else lambda: torch.mm(a, b)  # PyTorch multiplies no integers on CUDA
    else:
        x = _random((explanation.sizes[0], explanation.sizes[1]), dtype, False)

        def contiguous_transpose() -> object:
            return x.t().contiguous()

        baseline = contiguous_transpose

    for step in explanation.steps:
        ours: Callable[[], object] = (
            partial(tiled_matmul, a, b, algorithm=step.algorithm)
            if explanation.op == "tiled_matmul"
            else partial(padded_transpose, x, algorithm=step.algorithm)
        )
        calls = [ours] if baseline is None else [ours, baseline]
        once = _median_seconds(calls, 1, flush)
        rounds = max(3, min(50, math.ceil(0.2 / max(sum(once), 1e-6))))
        times = _median_seconds(calls, rounds, flush)
        step.seconds = times[0]
        step.baseline_seconds = times[1] if baseline else None
    explanation.measured_on = torch.cuda.get_device_name()


# ---- the command ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m torch_pmpp explain`."""
    result = Parser(
        prog="python -m torch_pmpp explain",
        description="What each algorithm does with one product or transpose: bytes, roofs, plan, occupancy, time.",
    )
    what = result.add_subparsers(dest="what", metavar="matmul|transpose", required=True, parser_class=Parser)
    for name, names, dtypes in (
        ("matmul", ("M", "N", "K"), MATMUL_DTYPES),
        ("transpose", ("M", "N"), TRANSPOSE_DTYPES),
    ):
        command = what.add_parser(
            name, help="an (M, K) by (K, N) product" if name == "matmul" else "of an (M, N) matrix"
        )
        for size in names:
            command.add_argument(size.lower(), metavar=size, type=at_least(1))
        command.add_argument("--dtype", choices=dtypes, default="float32", help="default: float32")
        if name == "matmul":
            command.add_argument(
                "--layout", choices=LAYOUTS, default="NN", help="which operand is a transposed view (default: NN)"
            )
            command.add_argument(
                "--precision",
                choices=("ieee", "tf32"),
                help="of float32 (default: as PyTorch is set, ieee unless changed)",
            )
            command.add_argument(
                "--tile",
                type=at_least(1, 1024),
                action="append",
                metavar="WIDTH",
                help="what square tiles of this width would change (may be repeated; default: 8 to 128)",
            )
        command.add_argument("--algorithm", metavar="NAME", help="only this one (auto: the one that auto picks)")
        command.add_argument(
            "--gpu",
            metavar="NAME",
            help=f"reckon for this GPU and measure nothing: {', '.join(device.name for device in DEVICES)} "
            "(default: the GPU that is there, else h200)",
        )
        command.add_argument("--json", action="store_true", help="print one JSON object")
    return result


def _rate(flops: float | None) -> str:
    return "-" if flops is None else f"{flops / 1e12:,.3g}" if flops < 1e15 else f"{flops / 1e12:,.0f}"


def _size(count: float) -> str:
    for unit, scale in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 1000 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count:.0f} B"


def _grid(facts: dict[str, int]) -> tuple[str, str]:
    grid = "x".join(str(facts[f"grid_{axis}"]) for axis in "xyz")
    return grid.removesuffix("x1").removesuffix("x1"), f"{facts['block_x']}x{facts['block_y']}".removesuffix("x1")


def _print_plans(explanation: Explanation) -> None:
    columns = ("grid", "block", "tile", "stages", "shared", "registers", "blocks/SM", "occupancy", "waves", "tail")
    table = Table(
        f"Plans on {explanation.device.title} ({explanation.device.sm_count} multiprocessors), shared memory in bytes "
        "of a block",
        ("algorithm", *columns, "limited by"),
        frozenset(columns),
    )
    for step in explanation.steps:
        grid, block = _grid(step.facts)
        tile = f"{step.facts['tile_m']}x{step.facts['tile_n']}" + (
            f"x{step.facts['tile_k']}"
            if step.facts.get("tile_k")
            else f"+{step.facts['padding']}"
            if step.facts.get("padding")
            else ""
        )
        if step.occupancy is None:
            table.add(_mark(step), "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "a copy by the driver")
            continue
        table.add(
            _mark(step),
            grid,
            block,
            tile,
            str(step.facts.get("stages") or "-"),
            f"{step.figures['shared_bytes']:,}",
            step.registers,
            str(step.occupancy.blocks),
            f"{step.occupancy.fraction:.0%}",
            "-" if step.waves is None else f"{step.waves.waves:.2f}",
            "-" if step.waves is None else f"{step.waves.tail}/{step.waves.slots}",
            step.occupancy.limiter,
        )
    table.print()
    if explanation.remark:
        print(f"Registers: {explanation.remark}.\n")


def _mark(step: Step) -> str:
    return step.algorithm + (" (auto)" if step.chosen else "")


def _print_kernels(explanation: Explanation) -> None:
    columns = ("registers", "of at most", "stack and spills", "static shared", "constant bank 0", "barriers")
    table = Table(
        "What ptxas reported for their kernels, beside the registers that a block of so many threads allows",
        ("kernel", "image", *columns),
        frozenset(columns),
    )
    blocks: dict[Kernel, int | None] = {}
    for step in explanation.steps:
        blocks |= dict.fromkeys(step.kernels, step.facts["block_x"] * step.facts["block_y"])
        blocks |= dict.fromkeys(step.helpers)
    for kernel, threads in blocks.items():
        name = kernel.name.replace("pmpp::transposition::", "").replace("pmpp::matmul::", "").replace("pmpp::", "")
        table.add(
            name,
            f"sm_{kernel.arch}",
            str(kernel.registers),
            "-" if threads is None else str(registers_allowed(explanation.device.capability, threads)),
            f"{kernel.stack_bytes} B",
            f"{kernel.static_shared_bytes:,} B",
            f"{kernel.constant_bytes} B",
            str(kernel.barriers),
        )
    if table.rows:
        table.print()


def _print_measured(explanation: Explanation) -> None:
    if explanation.measured_on is None:
        print(f"Nothing was measured: these figures are reckoned for {explanation.device.title}.")
        return
    product = explanation.op == "tiled_matmul"
    columns = ("time", "TFLOP/s" if product else "GB/s", "of roof", "PyTorch", "ratio")
    table = Table(
        f"Measured on {explanation.measured_on}: medians, cache cleared, beside PyTorch in turn",
        ("algorithm", *columns),
        frozenset(columns),
    )
    for step in explanation.steps:
        assert step.seconds is not None
        rate = step.figures["flops"] / step.seconds / 1e12 if product else step.figures["bytes"] / step.seconds / 1e9
        ratio = None if step.baseline_seconds is None else step.baseline_seconds / step.seconds
        table.add(
            _mark(step),
            duration(step.seconds),
            f"{rate:,.3g}" if product else f"{rate:,.0f}",
            f"{explanation.roof.seconds / step.seconds:.0%}",
            duration(step.baseline_seconds),
            "-" if ratio is None else f"{ratio:.2f}",
        )
    table.print()


def _print_head(explanation: Explanation) -> None:
    device = explanation.device
    sizes = " x ".join(str(size) for size in explanation.sizes)
    precision = "" if explanation.precision is None else f" ({explanation.precision})"
    layout = f", {explanation.layout}" if explanation.op == "tiled_matmul" else ""
    print(f"{explanation.op} {sizes}, {explanation.dtype}{precision}{layout}, on {device.title}")
    print(f"  {device.source}")
    l2 = "" if device.l2_rate is None else f", L2 {device.l2_rate / 1e12:.3g} TB/s ({device.l2_source})"
    print(f"  memory {device.memory_rate / 1e12:.3g} TB/s{l2}, shared memory {device.shared_rate / 1e12:.3g} TB/s")
    limit = explanation.roof
    compute = "" if limit.compute_seconds is None else f"operations alone take {duration(limit.compute_seconds)}, "
    if explanation.is_emulated_fastest:
        compute = compute.replace(", ", " as `emulated` does them, ")
    print(f"  Least time: {compute}each byte once {duration(limit.memory_seconds)}: limited by {limit.limit}\n")


def _print_matmul(explanation: Explanation, rows: Sequence[TileRow]) -> None:
    columns = ("tile", "FLOP/B in the loop", "asked of memory", "FLOP/B", "units", "roof: memory", "roof: L2")
    table = Table(
        "What each step asks of global memory, as if nothing were cached; rates and roofs in TFLOP/s",
        ("algorithm", *columns),
        frozenset(columns),
    )
    for step in explanation.steps:
        figures = step.figures
        tile = "1x1" if step.algorithm == "naive" else f"{step.facts['tile_m']}x{step.facts['tile_n']}"
        table.add(
            _mark(step),
            tile,
            f"{figures['inner_intensity']:.4g}",
            _size(figures["loaded_bytes"] + figures["stored_bytes"]),
            f"{figures['intensity']:.4g}",
            _rate(figures["unit_peak_flops"]),
            _rate(figures["dram_roof_flops"]),
            _rate(figures["l2_roof_flops"]),
        )
    table.print()
    columns = ("FLOP/B in the loop", "asked of memory", "roof: memory", "shared", "a thread", "blocks/SM", "waves")
    table = Table(
        "Square tiles, a thread for each element of the tile; limits by threads and shared memory alone",
        ("width", *columns),
        frozenset({"width", *columns}),
    )
    for row in rows:
        table.add(
            str(row.width),
            f"{row.inner_intensity:.4g}",
            _size(row.loaded_bytes),
            _rate(row.dram_roof_flops),
            f"{row.shared_bytes:,}",
            f"{row.bytes_per_thread:.3g} B",
            "-" if row.occupancy is None else str(row.occupancy.blocks),
            "-" if row.waves is None else f"{row.waves.waves:.2f}",
        )
    table.print()


def _print_transpose(explanation: Explanation) -> None:
    columns = ("sectors read", "sectors written", "turns to store", "turns to load")
    table = Table(
        f"Accesses of one warp, and what they need at least; {_size(explanation.steps[0].figures['bytes'])} are moved",
        ("algorithm", "method", *columns),
        frozenset(columns),
    )
    for step in explanation.steps:
        sectors, shared = step.figures["sectors"], step.figures["shared"]
        seen = ["-"] * 2
        if sectors is not None:
            seen = [f"{sectors[name]} ({sectors[f'{name}_ideal']})" for name in ("read", "written")]
        turns = [f"{each['per_request']:.3g} ({each['ideal'] / each['requests']:.3g})" for each in shared.values()]
        table.add(_mark(step), step.figures["method"] or "-", *seen, *(turns or ["-", "-"]))
    table.print()


def run(arguments: Sequence[str]) -> int:
    """Explains one problem; returns the exit code."""
    options = parser().parse_args(arguments)
    if options.what == "matmul" and options.precision and options.dtype != "float32":
        print(
            f"python -m torch_pmpp explain matmul: --precision is of float32, and the dtype is {options.dtype}",
            file=sys.stderr,
        )
        return 2
    with float32_setting(options.precision if options.what == "matmul" else None):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    program = f"python -m torch_pmpp explain {options.what}"
    op = "tiled_matmul" if options.what == "matmul" else "padded_transpose"
    sizes = (options.m, options.n, options.k) if options.what == "matmul" else (options.m, options.n)
    is_here = options.gpu is None and no_cuda_reason() is None
    try:
        if is_here:
            name = torch.cuda.get_device_name()
            device = device_called(name)
            if device is None:
                raise NotPossible(f"{name} is not in the table of GPUs; name one with --gpu")
        else:
            device = device_named(options.gpu or "h200")
        layout = options.layout if options.what == "matmul" else "NN"
        explanation = explain(op, sizes, options.dtype, device, layout=layout, algorithm=options.algorithm)
    except (NotPossible, ValueError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    if is_here:
        try:
            measure(explanation)
        except torch.cuda.OutOfMemoryError:
            print(
                f"{program}: the matrices do not fit the GPU's memory; name it with --gpu to reckon alone",
                file=sys.stderr,
            )
            return 1
    rows: list[TileRow] = []
    if options.what == "matmul":
        widths = (1, *(options.tile or TILE_WIDTHS))
        rows = tile_rows(device, options.m, options.n, options.k, options.dtype, widths)
    if options.json:
        tiles = [{**asdict(row), "waves": row.waves and asdict(row.waves)} for row in rows]
        print_json({**explanation.as_dict(), **({"tiles": tiles} if rows else {})})
        return 0
    _print_head(explanation)
    if options.what == "matmul":
        _print_matmul(explanation, rows)
    else:
        _print_transpose(explanation)
    _print_plans(explanation)
    _print_kernels(explanation)
    for step in explanation.steps:
        for reason in step.reasons:
            print(f"{step.algorithm}: {reason}")
    if any(step.reasons for step in explanation.steps):
        print()
    _print_measured(explanation)
    return 0
