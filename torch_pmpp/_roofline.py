"""`python -m torch_pmpp roofline`: the roofs of a GPU, and where the measured steps of the ladder lie below them.

A point's intensity is that of its tiling, as if nothing were cached (_intensity.py); its height is what was measured. A
step above the slope of a memory is one whose repeated reads a faster memory served.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import _intensity
from ._devices import DEVICES, Device, device_called, device_named
from ._library import source_tree
from ._output import Parser, at_least, print_json
from ._text import Table

DEFAULT_SIZE = 4096
# Precisions whose roofs are drawn, with the words beside them; those with equal peaks share a line.
_COMPUTE_ROOFS = (
    ("int8", "int8"),
    ("bfloat16", "bfloat16, float16"),
    ("float16", "float16"),
    ("tf32", "tf32"),
    ("float32", "float32"),
    ("float64", "float64"),
)
# Okabe and Ito's colours, which colour-blind readers tell apart; every line and point also has its own dashes or shape.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = {"float32": "o", "bfloat16": "s", "float16": "D", "float64": "^"}


@dataclass(frozen=True)
class MemoryRoof:
    """A memory and what it gives at most."""

    name: str
    rate: float  # bytes/s


@dataclass(frozen=True)
class ComputeRoof:
    """Units and what they do at most."""

    name: str
    peak: float  # FLOP/s
    ridges: dict[str, float]  # FLOP/B from which on these units limit, for each memory


@dataclass(frozen=True)
class Point:
    """A measured step of the ladder."""

    dtype: str
    algorithm: str
    plan: str
    intensity: float
    rate: float  # FLOP/s
    of_memory_roof: float  # of what the DRAM would allow at this intensity without any cache
    seconds: float
    baseline_rate: float | None  # of torch.mm on the same product


def memory_roofs(device: Device) -> list[MemoryRoof]:
    """Slowest first."""
    roofs = [MemoryRoof("DRAM", device.memory_rate), MemoryRoof("shared memory", device.shared_rate)]
    if device.l2_rate is not None:
        roofs.insert(1, MemoryRoof("L2", device.l2_rate))
    return roofs


def compute_roofs(device: Device) -> list[ComputeRoof]:
    """Fastest first. Equal peaks are one roof with both names."""
    names: dict[float, list[str]] = {}
    for dtype, name in _COMPUTE_ROOFS:
        if dtype in device.peaks and not (dtype == "float16" and "bfloat16" in device.peaks):
            names.setdefault(device.peaks[dtype], []).append(name)
    return [
        ComputeRoof(
            ", ".join(words),
            peak,
            {memory.name: _intensity.ridge(memory.rate, peak) for memory in memory_roofs(device)},
        )
        for peak, words in sorted(names.items(), reverse=True)
    ]


def pieces_of_tail(plan: str) -> int:
    """How many tiles' sums the pieces of k of a plan's last tiles are; 0 where those are whole."""
    match = re.search(r" tail (\d+) in (\d+) ", plan)
    return int(match[1]) * int(match[2]) if match else 0


def tiling_of_plan(plan: str, dtype: str) -> _intensity.Tiling:
    """How the plan of a record reads its operands; ValueError if it is no plan of a product on CUDA."""
    found = re.match(r"(\w+) (\d+)x(\d+)", plan)
    if found is None:
        raise ValueError(f"not a plan of a product: {plan!r}")
    if found[1] == "naive":
        return _intensity.Tiling(1, 1)

    def number(word: str) -> int:
        match = re.search(rf" {word} (\d+)", plan)
        return int(match[1]) if match else 1

    splits, cluster = number("splits"), number("cluster")
    in_cluster = splits > 1 and cluster == splits
    return _intensity.Tiling(
        int(found[2]),
        int(found[3]),
        1 if in_cluster else splits,
        1 if in_cluster else cluster,
        " a packed" in plan,
        " b packed" in plan,
        pieces_of_tail(plan) * int(found[2]) * int(found[3]),
        _intensity.bytes_in_planes(found[1], dtype),
    )


def points(records: Iterable[Mapping[str, Any]], device: Device, size: int = DEFAULT_SIZE) -> list[Point]:
    """The steps of the ladder for size^3 products of row-major operands, in the order of the records."""
    found = []
    for record in records:
        wanted = (
            record["op"] == "tiled_matmul"
            and record["device"] == "cuda"
            and record["mode"] == "call"
            and record["algorithm"] != "auto"
            and record["layout"] == "NN"
            and record["offset"] == 0
            and record["m"] == record["n"] == record["k"] == size
            and record["precision"] != "tf32"
        )
        if not wanted:
            continue
        operations = _intensity.flops(size, size, size, record["dtype"])
        tiling = tiling_of_plan(record["plan"], record["dtype"])
        traffic = _intensity.matmul_traffic(size, size, size, record["element_size"], tiling)
        intensity = operations / traffic.total
        seconds = record["ours_us"] * 1e-6
        rate = operations / seconds
        baseline = record["baseline_us"]
        found.append(
            Point(
                record["dtype"],
                record["algorithm"],
                record["plan"],
                intensity,
                rate,
                rate / _intensity.attainable(intensity, device.memory_rate, None),
                seconds,
                operations / (baseline * 1e-6) if baseline else None,
            )
        )
    return found


# ---- the plot ------------------------------------------------------------------------------------------------------


def figure(device: Device, measured: Sequence[Point], title: str, size: int = DEFAULT_SIZE) -> Any:
    """The plot, a panel for each dtype, as a figure of matplotlib (ImportError where that is not installed)."""
    import matplotlib.pyplot as plt

    by_dtype: dict[str, list[Point]] = {}
    for point in measured:
        by_dtype.setdefault(point.dtype, []).append(point)
    panels = max(1, len(by_dtype))
    result, axes = plt.subplots(
        1, panels, figsize=(2 + 6.6 * panels, 6.2), layout="constrained", sharey=True, squeeze=False
    )
    for index, axis in enumerate(axes[0]):
        dtype, ladder = list(by_dtype.items())[index] if by_dtype else ("", [])
        _draw_roofs(axis, device, first=index == 0)
        _draw_ladder(axis, ladder, _COLOURS[index % len(_COLOURS)], _MARKERS.get(dtype, "v"))
        axis.set_title(f"{dtype}, {size} x {size} x {size}" if dtype else "no measured points")
        axis.set_xlabel("FLOP for each byte that blocks ask global memory for (uncached)")
    result.suptitle(title)
    result.draw_without_rendering()
    for axis in axes[0]:
        _turn_labels(axis)
    return result


_LEFT, _RIGHT = 0.1, 8192.0  # FLOP/B
_SLOPED = "along a memory's line"


def _draw_roofs(axis: Any, device: Device, *, first: bool) -> None:
    memories, units = memory_roofs(device), compute_roofs(device)
    top = units[0].peak
    for memory, style in zip(memories, ("-", "--", "-."), strict=False):
        end = top / memory.rate
        axis.plot([_LEFT, end], [_LEFT * memory.rate, top], color="black", linestyle=style, linewidth=1.4)
        start = _LEFT * 1.25
        label = axis.annotate(
            f"{memory.name} {_rate(memory.rate, 'B/s')}",
            (start, start * memory.rate),
            xytext=(-3, 5),
            textcoords="offset points",
            rotation_mode="anchor",
            fontsize=9,
        )
        label.set_label(_SLOPED)
    for unit in units:
        axis.plot([unit.peak / memories[-1].rate, _RIGHT], [unit.peak, unit.peak], color="0.35", linewidth=1.2)
        axis.annotate(
            f"{unit.name} {_rate(unit.peak, 'FLOP/s')}",
            (_RIGHT, unit.peak),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            fontsize=9,
        )
        for memory in memories:
            ridge = unit.ridges[memory.name]
            axis.plot([ridge], [unit.peak], marker="|", color="black", markersize=8)
            axis.annotate(
                f"{ridge:.3g}",
                (ridge, unit.peak),
                xytext=(-2, 5),  # above the roof, where no point of these units can lie
                textcoords="offset points",
                ha="right",
                fontsize=7,
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlim(_LEFT, _RIGHT)
    bottom = _LEFT * memories[0].rate
    axis.set_ylim(bottom, top * 2)
    ticks = [2.0**power for power in range(-2, 13, 2)]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    decades = [10.0**power for power in range(9, 17) if bottom <= 10.0**power <= top * 2]
    axis.set_yticks(decades, [_rate(decade, "FLOP/s") for decade in decades])
    axis.grid(alpha=0.3)
    if first:
        axis.set_ylabel("FLOP/s")


def _draw_ladder(axis: Any, ladder: Sequence[Point], colour: str, marker: str) -> None:
    for before, after in itertools.pairwise(ladder):
        axis.annotate(
            "",
            (after.intensity, after.rate),
            xytext=(before.intensity, before.rate),
            arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 5, "shrinkB": 5, "linewidth": 1.4},
        )
    for index, point in enumerate(ladder):
        last = index == len(ladder) - 1
        below = index % 2 == 0 or last
        axis.plot([point.intensity], [point.rate], marker=marker, color=colour, markersize=8, zorder=3)
        axis.annotate(
            f"{point.algorithm} {_rate(point.rate, 'FLOP/s')}",
            (point.intensity, point.rate),
            xytext=(9, -4) if last else (4, -17) if below else (-4, 11),
            textcoords="offset points",
            ha="left" if below else "right",
            fontsize=9,
            color=colour,
            fontweight="bold",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            zorder=4,
        )


def _turn_labels(axis: Any) -> None:
    """Turns the words along the memories' lines, whose angle is known once the plot has its size."""
    from math import atan2, degrees

    (x0, y0), (x1, y1) = axis.transData.transform([(1.0, 1e12), (10.0, 1e13)])
    for child in axis.get_children():
        if child.get_label() == _SLOPED:
            child.set_rotation(degrees(atan2(y1 - y0, x1 - x0)))


def save(result: Any, stem: Path, suffixes: Sequence[str] = (".svg", ".png")) -> list[Path]:
    """Writes <stem>.svg and <stem>.png, the same bytes for the same figure; returns the paths."""
    import matplotlib
    import matplotlib.pyplot as plt

    paths = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    with matplotlib.rc_context({"svg.hashsalt": "pmpp", "svg.fonttype": "none"}):
        for path in paths:
            result.savefig(path, dpi=110, metadata={"Date" if path.suffix == ".svg" else "Software": None})
    plt.close(result)
    return paths


def use_without_display() -> None:
    """Chooses the backend that draws into files; ImportError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")


def _rate(value: float, unit: str) -> str:
    scale, letter = (1e15, "P") if value >= 1e15 else (1e12, "T") if value >= 1e12 else (1e9, "G")
    return f"{value / scale:.3g} {letter}{unit}"


# ---- the command ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m torch_pmpp roofline`."""
    result = Parser(
        prog="python -m torch_pmpp roofline",
        description="The roofs of a GPU and the measured points of a results file, as a table, SVG and PNG.",
    )
    result.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"{', '.join(device.name for device in DEVICES)} (default: that of the results, else h200)",
    )
    result.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="results file (default: that of the GPU in benchmarks/results of a checkout, if there is one)",
    )
    result.add_argument(
        "--size", type=at_least(1), default=DEFAULT_SIZE, metavar="N", help="side of the products shown (default: 4096)"
    )
    result.add_argument(
        "--output", type=Path, metavar="STEM", help="write STEM.svg and STEM.png (default: roofline-<gpu> here)"
    )
    result.add_argument("--no-plot", action="store_true", help="the table alone, without matplotlib")
    result.add_argument("--json", action="store_true", help="print one JSON object; draws only with --output")
    return result


def read_results(path: Path) -> dict[str, Any]:
    """A results file as it is; ValueError with the path if it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["records"], list):
            raise TypeError("records is not a list")
        if not all("op" in record for record in content["records"]):
            raise TypeError("a record names no operator")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a results file ({type(error).__name__}: {error})") from error
    return dict(content)


def committed_results(device: Device) -> dict[str, Any] | None:
    """The results of a GPU in the checkout, or None."""
    root = source_tree()
    for path in sorted((root / "benchmarks" / "results").glob("*.json")) if root else []:
        if path.stem.endswith(("-check", "-accuracy")):
            continue
        content = read_results(path)
        if content.get("gpu") and device.matches(content["gpu"]):
            return content
    return None


def find(gpu: str | None, results: Path | None) -> tuple[Device, dict[str, Any] | None]:
    """The GPU and its results, from what the user named of them. ValueError or OSError with the reason otherwise."""
    if results is not None:
        content = read_results(results)
        device = device_called(str(content.get("gpu")))
        if device is None:
            raise ValueError(
                f"{results} was taken on {content.get('gpu') or 'a CPU'}, which is not in the table of GPUs"
            )
        if gpu is not None and device_named(gpu) is not device:
            raise ValueError(f"{results} was taken on {content['gpu']}, not on {gpu}")
        return device, content
    device = device_named(gpu or "h200")
    return device, committed_results(device)


def run(arguments: Sequence[str]) -> int:
    """Prints and plots the roofline; returns the exit code."""
    options = parser().parse_args(arguments)
    program = "python -m torch_pmpp roofline"
    try:
        device, content = find(options.gpu, options.results)
        measured = points(content["records"], device, options.size) if content else []
    except (OSError, ValueError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    drawn: list[Path] = []
    failure = ""
    if not options.no_plot and (options.output or not options.json):
        stem = options.output or Path(f"roofline-{device.name}")
        title = device.title + (f", {content['date']}, PyTorch {content['torch']}" if content and measured else "")
        try:
            use_without_display()
            drawn = save(figure(device, measured, title, options.size), stem)
        except ImportError:
            failure = "matplotlib is not installed, so that nothing is drawn (pip install matplotlib, or --no-plot)"
        except OSError as error:
            failure = f"cannot write {stem}.svg: {error.strerror}"
    memories, units = memory_roofs(device), compute_roofs(device)
    if options.json:
        print_json(
            {
                "gpu": device.title,
                "source": device.source,
                "l2_source": device.l2_source,
                "memory_roofs": [asdict(memory) for memory in memories],
                "compute_roofs": [asdict(unit) for unit in units],
                "size": options.size,
                "measured": None if content is None else {name: content.get(name) for name in ("gpu", "date", "torch")},
                "points": [asdict(point) for point in measured],
                "files": [str(path) for path in drawn],
            }
        )
    else:
        _print(device, memories, units, measured, content, options.size)
        for path in drawn:
            print(path)
    if failure:
        print(f"{program}: {failure}", file=sys.stderr)
        return 1
    return 0


def _print(
    device: Device,
    memories: Sequence[MemoryRoof],
    units: Sequence[ComputeRoof],
    measured: Sequence[Point],
    content: Mapping[str, Any] | None,
    size: int,
) -> None:
    names = [memory.name for memory in memories]
    print(f"{device.title}: {device.source}")
    if device.l2_source:
        print(f"L2: {device.l2_source}")
    print()
    columns = ("peak", *names)
    table = Table("Ridge points: FLOP/B from which on the units limit", ("precision", *columns), frozenset(columns))
    table.add("memory's rate", "", *(_rate(memory.rate, "B/s") for memory in memories))
    for unit in units:
        table.add(unit.name, _rate(unit.peak, "FLOP/s"), *(f"{unit.ridges[name]:.3g}" for name in names))
    table.print()
    if not measured or content is None:
        print(f"No measured ladder of {size} x {size} x {size} products.")
        return
    columns = ("FLOP/B", "TFLOP/s", "of the uncached DRAM roof", "torch.mm")
    table = Table(
        f"Measured on {content['gpu']}, {content['date']}: {size} x {size} x {size}",
        ("dtype", "algorithm", *columns),
        frozenset(columns),
    )
    for point in measured:
        table.add(
            point.dtype,
            point.algorithm,
            f"{point.intensity:.4g}",
            f"{point.rate / 1e12:.3g}",
            f"{point.of_memory_roof:.0%}",
            "-" if point.baseline_rate is None else f"{point.baseline_rate / 1e12:.3g}",
        )
    table.print()
