"""The parts of docs/ that are made: excerpts of the kernels, measured steps, reckoned tables, pictures.

A page holds blocks between two comments. The first says what stands there, the second is `<!-- end -->`:

    <!-- code: csrc/tiled_matmul/naive.cuh | words of the first line | words of the last line +1 -->
    <!-- steps: tiled_matmul float32 4096 naive tiled -->
    <!-- turns: shared padded -->
    <!-- tiles: 1 16 32 -->

`python benchmarks/report.py` fills them in from the sources and from benchmarks/results/nvidia-h200.json, so that no
figure and no line number in the pages is written by hand. Pictures go to docs/images/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.results import Results
from torch_pmpp import _conflicts, _intensity, _occupancy, _roofline
from torch_pmpp._devices import device_called, device_named

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
RESULTS = "nvidia-h200.json"
END = "<!-- end -->"
_BLOCK = re.compile(r"(<!-- (code|steps|turns|tiles): ([^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


class BrokenPage(ValueError):
    """A block that cannot be filled in, with the reason."""


# ---- blocks --------------------------------------------------------------------------------------------------------


def excerpt(root: Path, path: str, first: str, last: str) -> tuple[int, int, list[str]]:
    """Numbers of the first and the last line (from 1), and the lines: from the one that contains `first`, which must be
    the only one, to the next that contains `last`, and with `last +2` two more."""
    further = re.fullmatch(r"(.*) \+(\d+)", last)
    last, more = (further[1], int(further[2])) if further else (last, 0)
    try:
        lines = (root / path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BrokenPage(f"{path}: {error.strerror}") from error
    starts = [number for number, line in enumerate(lines) if first in line]
    if len(starts) != 1:
        raise BrokenPage(f"{path} has {len(starts)} lines with {first!r}, expected one")
    for number in range(starts[0], len(lines)):
        if last in lines[number]:
            end = number + 1 + more
            return starts[0] + 1, end, lines[starts[0] : end]
    raise BrokenPage(f"{path} has no line with {last!r} after {first!r}")


def code_block(argument: str, root: Path = ROOT) -> list[str]:
    """A link to the lines, and the lines."""
    parts = [part.strip() for part in argument.split(" | ")]
    if len(parts) != 3:
        raise BrokenPage(f"expected code: PATH | FIRST | LAST, but got {argument!r}")
    first, last, lines = excerpt(root, *parts)
    # Lines of the preprocessor always start at the margin.
    inner = [line for line in lines if line.strip() and not line.startswith("#")]
    margin = min(len(line) - len(line.lstrip()) for line in inner)
    words, anchor = (
        (f"line {first}", f"L{first}") if first == last else (f"lines {first} to {last}", f"L{first}-L{last}")
    )
    return [
        f"[`{parts[0]}`, {words}](../{parts[0]}#{anchor})",
        "",
        "```cpp",
        *(line if line.startswith("#") else line[margin:] for line in lines),
        "```",
    ]


def _microseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows)]


def _records(results: Results, op: str, dtype: str, size: int, algorithms: Sequence[str]) -> list[Mapping[str, Any]]:
    found = {}
    for record in results.records:
        plain = record["layout"] in ("NN", "contiguous") and record["offset"] == 0 and record["mode"] == "call"
        square = record["m"] == record["n"] == size and record.get("k") in (size, None)
        if record["op"] == op and record["dtype"] == dtype and plain and square and record["precision"] != "tf32":
            found[record["algorithm"]] = record
    algorithms = [name.removesuffix("?") for name in algorithms if not name.endswith("?") or name[:-1] in found]
    missing = [name for name in algorithms if name not in found]
    if missing:
        raise BrokenPage(f"{results.path.name} has no {op} of {size} in {dtype} by {', '.join(missing)}")
    return [found[name] for name in algorithms]


def steps_block(argument: str, results: Results) -> list[str]:
    """The measured steps of a ladder, each beside the one before; a name with a ? is left out where the results have
    none of it."""
    op, dtype, size_text, *algorithms = argument.split()
    size = int(size_text)
    records = _records(results, op, dtype, size, algorithms)
    device = device_called(str(results.header["gpu"]))
    if device is None:
        raise BrokenPage(f"{results.path.name} was taken on a GPU that is not in the table")
    rows = []
    before: float | None = None
    for record in records:
        time = record["ours_us"]
        gain = "" if before is None else f"{before / time:.2f}"
        if op == "tiled_matmul":
            (point,) = _roofline.points([record], device, size)
            figures = [f"{point.rate / 1e12:.3g}", f"{point.intensity:.3g}", f"{point.of_memory_roof:.0%}"]
        else:
            figures = [
                f"{2 * size * size * record['element_size'] / time / 1e3:,.0f}",
                f"{record['copy_fraction']:.0%}",
            ]
        rows.append([f"`{record['algorithm']}`", _microseconds(time), *figures, gain])
        before = time
    last = records[-1]
    baseline = last["baseline_us"]
    if op == "tiled_matmul":
        columns = ["", "us", "TFLOP/s", "FLOP/B, uncached", "of the uncached DRAM roof", "times the step before"]
        rate = _intensity.flops(size, size, size, dtype) / baseline / 1e6
        rows.append([f"`{last['baseline']}`", _microseconds(baseline), f"{rate:.3g}", "", "", ""])
        shape = f"{size} x {size} x {size}"
    else:
        columns = ["", "us", "GB/s", "of a copy", "times the step before"]
        share = f"{last['copy_us'] / baseline:.0%}"
        rate = 2 * size * size * last["element_size"] / baseline / 1e3
        rows.append([f"`{last['baseline']}`", _microseconds(baseline), f"{rate:,.0f}", share, ""])
        shape = f"{size} x {size}"
    return [
        f"Measured on an {results.header['gpu']} ({results.header['date']}), {shape}, {dtype}; "
        f"[every figure](../benchmarks/results/{results.path.stem}.md):",
        "",
        *_table(columns, rows),
    ]


def turns_block(argument: str) -> list[str]:
    """Turns of shared memory that a warp's accesses take, for each element size."""
    rows = []
    for algorithm in argument.split():
        for direction in ("store", "load"):
            cells = []
            for size in _conflicts.ELEMENT_SIZES:
                pattern = _conflicts.algorithm_pattern(algorithm, size)
                found = _conflicts.summary(getattr(pattern, direction), pattern.size)
                cells.append(f"{found.per_request:.3g} ({found.ideal / found.requests:.3g})")
            rows.append([f"`{algorithm}`, {direction}", *cells])
    columns = ["turns of an access (needed)", *(f"{size} B" for size in _conflicts.ELEMENT_SIZES)]
    return _table(columns, rows)


def tiles_block(argument: str) -> list[str]:
    """The textbook's tiles in float32: intensity, its roof on an A100, shared memory, blocks that fit."""
    device = device_named("a100")
    rows = []
    for width in (int(word) for word in argument.split()):
        intensity = _intensity.inner_intensity(width, width, 4)
        reachable = _intensity.attainable(intensity, device.memory_rate, device.peaks["float32"])
        shared = 0 if width == 1 else 2 * width * width * 4
        fitting = "" if width == 1 else "-"
        if 1 < width <= 32:
            found = _occupancy.occupancy(device.capability, width * width, dynamic_shared=shared)
            fitting = f"{found.blocks} ({found.limiter})"
        rows.append([f"{width} x {width}", f"{intensity:g}", f"{reachable / 1e9:,.0f}", f"{shared:,}", fitting])
    return _table(["tile", "FLOP/B", "GFLOP/s at most", "bytes of shared memory", "blocks that fit (limit)"], rows)


def fill(text: str, results: Results, root: Path = ROOT) -> str:
    """A page with its blocks filled in; BrokenPage says which cannot be."""
    if text.count(END) != len(_BLOCK.findall(text)):
        raise BrokenPage(f"a block is not closed by {END}, or its kind is not code, steps, turns or tiles")
    makers: dict[str, Callable[[str], list[str]]] = {
        "code": lambda argument: code_block(argument, root),
        "steps": lambda argument: steps_block(argument, results),
        "turns": turns_block,
        "tiles": tiles_block,
    }
    return _BLOCK.sub(lambda match: match[1] + "\n".join(makers[match[2]](match[3])) + "\n" + match[4], text)


def without_blocks(text: str) -> str:
    """What of a page was written by hand."""
    return _BLOCK.sub("", text)


def pages() -> list[Path]:
    """The pages in the order in which they are read."""
    return sorted(DOCS.glob("[0-9]*.md"), key=lambda path: int(path.name.split("-")[0]))


def wanted(results: Results) -> dict[Path, str]:
    """Every page and every picture that does not need matplotlib, as it should be."""
    texts = {}
    for path in pages():
        try:
            texts[path] = fill(path.read_text(encoding="utf-8"), results)
        except BrokenPage as error:
            raise BrokenPage(f"{path.name}: {error}") from error
    return {**texts, **{IMAGES / f"{name}.svg": draw() for name, draw in PICTURES.items()}}


# ---- pictures ------------------------------------------------------------------------------------------------------

_DARK, _LIGHT, _PALE, _LINE = "#1f4e79", "#9ecae1", "#f2f2f2", "#555"


class _Canvas:
    """A few shapes of SVG. Colours differ in lightness, and every coloured shape has words in or beside it."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str = _PALE, words: str = "") -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{_LINE}"/>'
        )
        if words:
            colour = "#fff" if fill == _DARK else "#000"
            self.text(x + width / 2, y + height / 2 + 4, words, anchor="middle", colour=colour)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#000") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#000" stroke-width="1.4" '
            'marker-end="url(#head)"/>'
        )

    def render(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="sans-serif" font-size="12">\n'
            '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n<rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def _matrix(
    canvas: _Canvas, x: int, y: int, rows: int, cols: int, cell: int, marked: dict[tuple[int, int], str]
) -> None:
    for row in range(rows):
        for col in range(cols):
            canvas.box(x + col * cell, y + row * cell, cell, cell, marked.get((row, col), _PALE))


def _product_picture(tile: int) -> str:
    """Which elements of a and b a thread, or a block of tile x tile threads, reads for its part of d."""
    cell, size = 16, 12
    canvas = _Canvas(690, 252)
    side = cell * size
    row0, col0 = (5, 7) if tile == 1 else (4, 4)
    k0 = 4
    whole_a = {(row0 + i, k): _LIGHT for i in range(tile) for k in range(size)}
    whole_b = {(k, col0 + j): _LIGHT for j in range(tile) for k in range(size)}
    if tile > 1:
        whole_a |= {(row0 + i, k0 + k): _DARK for i in range(tile) for k in range(tile)}
        whole_b |= {(k0 + k, col0 + j): _DARK for j in range(tile) for k in range(tile)}
    for index, (name, marked) in enumerate(
        (
            ("a (m x k)", whole_a),
            ("b (k x n)", whole_b),
            ("d (m x n)", {(row0 + i, col0 + j): _DARK for i in range(tile) for j in range(tile)}),
        )
    ):
        x = 10 + index * (side + 34)
        canvas.text(x, 18, name)
        _matrix(canvas, x, 26, size, size, cell, marked)
        if index < 2:
            canvas.text(x + side + 17, 26 + side / 2 + 4, "x" if index == 0 else "=", anchor="middle")
    if tile == 1:
        canvas.text(10, 242, "Light: read from global memory by the one thread that owns the dark element of d.")
    else:
        canvas.text(
            10, 242, "Dark: in shared memory during one phase. The tiles walk along k (light) from phase to phase."
        )
    return canvas.render()


def _occupancy_picture() -> str:
    """Blocks that each resource of an H200 allows for float32 tiles of three widths."""
    capability = device_named("h200").capability
    canvas = _Canvas(690, 262)
    canvas.text(10, 18, "Blocks on a multiprocessor of an H200 that each resource allows, float32 tiles of a and b")
    y = 34
    for width in (8, 16, 32):
        found = _occupancy.occupancy(capability, width * width, dynamic_shared=2 * width * width * 4)
        canvas.text(10, y + 38, f"{width} x {width}")
        for index, resource in enumerate(("threads", "blocks", "shared memory")):
            allowed = found.limits[resource] or 0
            shown = min(allowed, 100)
            top = y + index * 22
            is_limit = resource in found.limiters
            canvas.box(180, top, shown * 3.9, 18, _DARK if is_limit else _LIGHT)
            canvas.text(70, top + 13, resource)
            more = "" if shown == allowed else " (bar cut)"
            canvas.text(186 + shown * 3.9, top + 13, f"{allowed}{more}{': the limit' if is_limit else ''}")
        y += 74
    return canvas.render()


def _coalescing_picture() -> str:
    """32-byte sectors of a warp's read and write in a transpose of 4-byte elements."""
    canvas = _Canvas(690, 226)
    canvas.text(10, 18, "naive, a warp reads: 32 neighbours of a source row, 4 sectors of 32 bytes")
    for lane in range(32):
        canvas.box(10 + lane * 20, 26, 20, 20, (_LIGHT, "#fff")[lane // 8 % 2], str(lane))
    canvas.text(10, 78, "and writes: the same 32 elements to 32 destination rows, a sector each (8 rows shown)")
    for lane in range(8):
        for column in range(8):
            canvas.box(10 + column * 20, 86 + lane * 16, 20, 16, _DARK if column == 2 else "#fff")
        canvas.text(178, 98 + lane * 16, f"lane {lane}: 4 of 32 bytes are used")
    return canvas.render()


def _banks_picture(*algorithms: str) -> str:
    panels = []
    for algorithm in algorithms:
        pattern = _conflicts.algorithm_pattern(algorithm, 4)
        request = max(
            (_conflicts.simulate(each, pattern.size) for each in pattern.load), key=lambda one: one.wavefronts
        )
        panels.append(
            (f"{algorithm}: a warp's load takes {request.wavefronts} turns, {request.ideal} would do", request)
        )
    return _conflicts.svg_grid(panels, most_turns=12)


def _pipeline_picture() -> str:
    """Four stages of mma: copies run three steps ahead of the products."""
    canvas = _Canvas(690, 250)
    canvas.text(
        10, 18, "mma, four stages: while step i is multiplied, the copies of steps i + 1 to i + 3 are on their way"
    )
    for stage in range(4):
        canvas.text(10, 54 + stage * 42, f"stage {stage}")
        for step in range(stage, 9, 4):
            start = 64 + max(0, step - 2) * 60
            use = 64 + (step + 1) * 60
            canvas.box(start, 36 + stage * 42, use - start, 28, _LIGHT, f"copy {step}")
            canvas.box(use, 36 + stage * 42, 60, 28, _DARK, f"mma {step}")
    canvas.arrow(64, 222, 680, 222)
    canvas.text(64, 240, "time")
    return canvas.render()


def _ring_picture() -> str:
    """The ring of stages between the warpgroup that loads and those that multiply."""
    canvas = _Canvas(690, 250)
    canvas.box(10, 90, 130, 70, _LIGHT, "loading warpgroup")
    canvas.text(75, 146, "one thread, TMA", anchor="middle")
    for stage in range(4):
        canvas.box(220 + stage * 64, 95, 60, 60, _PALE, f"stage {stage}")
    canvas.box(542, 60, 144, 56, _DARK, "warpgroup 1: wgmma")
    canvas.box(542, 134, 144, 56, _DARK, "warpgroup 2: wgmma")
    canvas.arrow(140, 110, 216, 110)
    canvas.text(150, 86, "bulk copies")
    canvas.arrow(478, 110, 538, 92)
    canvas.arrow(478, 140, 538, 158)
    canvas.text(345, 60, "full: the bytes of a stage have arrived", anchor="middle")
    canvas.arrow(230, 70, 534, 70)
    canvas.text(345, 206, "empty: every warpgroup has read the stage", anchor="middle")
    canvas.arrow(534, 186, 150, 186)
    canvas.text(10, 238, "Each stage has both barriers. Nobody waits for a step, only for a stage that is not ready.")
    return canvas.render()


PICTURES: dict[str, Callable[[], str]] = {
    "naive": lambda: _product_picture(1),
    "tiles": lambda: _product_picture(4),
    "occupancy": _occupancy_picture,
    "coalescing": _coalescing_picture,
    "banks-shared": lambda: _banks_picture("shared"),
    "banks-padded": lambda: _banks_picture("padded", "padded16"),
    "banks-vectorized": lambda: _banks_picture("vectorized"),
    "pipeline": _pipeline_picture,
    "ring": _ring_picture,
}
ROOFLINE = "roofline"


def draw_roofline(results: Results) -> list[Path]:
    """Writes the plot of the whole ladder; needs matplotlib."""
    device = device_called(str(results.header["gpu"]))
    if device is None:
        raise BrokenPage(f"{results.path.name} was taken on a GPU that is not in the table")
    _roofline.use_without_display()
    title = f"{device.title}, {results.header['date']}, PyTorch {results.header['torch']}"
    figure = _roofline.figure(device, _roofline.points(results.records, device), title)
    return _roofline.save(figure, IMAGES / ROOFLINE, (".svg",))
