#!/usr/bin/env python3
"""Makes the table and the plot of a results file, the results section of the README, and the made parts of docs/.

    python benchmarks/report.py                  # benchmarks/results/<name>.md and plots for every results file
    python benchmarks/report.py --readme         # the same, and rewrites the README between its two markers
    python benchmarks/report.py --docs           # the same, and fills in docs/ (see docs.py); needs torch_pmpp
    python benchmarks/report.py --check          # writes nothing; fails if a file is not what would be written

Losses are shown as well as wins. Figures taken with other sources than those in this folder are marked as stale.
Needs no torch but for docs/; the plots need matplotlib.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import cases  # noqa: E402
from benchmarks.arguments import Parser  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.results import Record, Results, significant, write_atomically  # noqa: E402

Groups = dict[tuple[Any, ...], str]
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
_PRODUCT_HIGHLIGHTS = (
    cases.SEED_SHAPE,
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4095, 4097, 4099),
    (16, 4096, 4096),
    (2048, 28672, 4096),
    (1048576, 64, 64),
    (1024, 50257, 768),
)
_TRANSPOSE_HIGHLIGHTS = ((1024, 1024), (8192, 8192), (8191, 8193), (1048576, 64))
_PLOT_SUFFIXES = (".svg", ".png")
_EVEN = 1.05  # closer than this to 1 counts as even: the spread of repeated runs


def flops_of(record: Record) -> int:
    """Real operations of a product (8 for a complex multiply-add)."""
    return (
        (8 if record["dtype"].startswith("complex") else 2) * record["batch"] * record["m"] * record["n"] * record["k"]
    )


def _is_cuda(results: Results) -> bool:
    return results.header.get("gpu") is not None


def _rate(record: Record, microseconds: float | None) -> str:
    """TFLOP/s, or GFLOP/s on a CPU, as text."""
    if not microseconds:
        return "-"
    value = flops_of(record) / microseconds / (1e6 if record["device"] == "cuda" else 1e3)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _microseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _shape(record: Record) -> str:
    text = f"{record['m']} x {record['n']}"
    return f"{text} x {record['k']}" if record["op"] == "tiled_matmul" else text


def _dtype(record: Record) -> str:
    return record["dtype"] + (" (tf32)" if record["precision"] == "tf32" else "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> list[str]:
    """A Markdown table whose first `left` columns are words and the others figures."""
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows)]


def groups(device: str) -> Groups:
    """Which group of the case list a record belongs to."""
    return {
        (
            case.op,
            case.dtype,
            case.precision,
            case.layout,
            case.offset,
            case.m,
            case.n,
            case.k or None,
            case.mode,
            case.algorithm,
        ): case.group
        for case in cases.all_cases(device)
    }


def group_of(record: Record, known: Groups) -> str:
    """Group of a record, "other" for cases that are not in the list."""
    fields = ("op", "dtype", "precision", "layout", "offset", "m", "n", "k", "mode", "algorithm")
    return known.get(tuple(record.get(name) for name in fields), "other")


def is_stale(results: Results, digest: str | None) -> bool:
    """Whether the figures were taken with other sources than those whose digest this is."""
    return results.header.get("source_digest") != digest


def facts(results: Results, digest: str | None) -> list[str]:
    """Where the figures come from, and a notice if they are stale."""
    head = results.header
    name = head.get("gpu") or f"{head.get('cpu')} ({head.get('simd')})"
    parts = [f"PyTorch {head['torch']}"]
    if head.get("isa"):
        parts.insert(0, f"PyTorch, MKL, oneDNN and our kernels held to {head['isa'].upper()}")
    if head.get("gpu"):
        parts.append(f"driver {head['driver']}")
    parts += [head["date"], f"sources `{head['source_digest'][:12]}`"]
    threads = thread_counts(results)
    if threads:
        counts = " and ".join(str(count) for count in threads)
        most = f"; tables and plots without a number of threads: {threads[-1]}" if len(threads) > 1 else ""
        parts.insert(0, f"{counts} thread(s){most}")
    lines = [f"**{name}** ({', '.join(parts)})", ""]
    if is_stale(results, digest):
        lines += [
            "> **Stale:** these figures were taken with other sources than those in this folder; "
            "run `make bench` on such a machine to renew them.",
            "",
        ]
    return lines


def ladder(results: Results) -> list[str]:
    """The steps of the classic path side by side, beside PyTorch and a copy."""
    device = "cuda" if _is_cuda(results) else "cpu"
    unit = "TFLOP/s" if device == "cuda" else "GFLOP/s"
    lines: list[str] = []
    by_algorithm: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in results.records:
        if record["mode"] == "call" and record["algorithm"] != "auto" and record["layout"] in ("NN", "contiguous"):
            key = (record["op"], record["dtype"], record["precision"], record["m"], record["n"], record.get("k"))
            by_algorithm.setdefault(key, {})[record["algorithm"]] = record
    products = [steps for key, steps in by_algorithm.items() if key[0] == "tiled_matmul"]
    if products:
        order = cases.matmul_ladder(device, "bfloat16")
        names = [name for name in order if any(name in steps for steps in products)]
        names += sorted({name for steps in products for name in steps} - set(names))
        rows = []
        for steps in products:
            one = next(iter(steps.values()))
            rows.append(
                [
                    _shape(one),
                    one["dtype"],
                    *(_rate(steps[name], steps[name]["ours_us"]) if name in steps else "-" for name in names),
                    _rate(one, one["baseline_us"]),
                ]
            )
        lines += [
            f"`tiled_matmul`, {unit} (m x n x k):",
            "",
            *_table(["shape", "dtype", *(f"`{name}`" for name in names), "`torch.mm`"], rows, 2),
            "",
        ]
    moves = [steps for key, steps in by_algorithm.items() if key[0] == "padded_transpose"]
    if moves:
        names = [name for name in cases.TRANSPOSE_LADDER[device] if any(name in steps for steps in moves)]
        names += sorted({name for steps in moves for name in steps} - set(names))
        rows = []
        for steps in moves:
            one = next(iter(steps.values()))
            size = 2 * one["m"] * one["n"] * one["element_size"]

            def cell(microseconds: float | None, copy: float | None, size: int = size) -> str:
                if not microseconds:
                    return "-"
                rate = size / microseconds / 1e3
                return f"{rate:,.{0 if rate >= 10 else 1}f} ({_percent(None if copy is None else copy / microseconds)})"

            rows.append(
                [
                    _shape(one),
                    one["dtype"],
                    *(cell(steps[name]["ours_us"], steps[name]["copy_us"]) if name in steps else "-" for name in names),
                    cell(one["baseline_us"], one["copy_us"]),
                    cell(one["copy_us"], None).split(" (")[0],
                ]
            )
        lines += [
            "`padded_transpose`, GB/s read and written together (share of a copy):",
            "",
            *_table(["shape", "dtype", *(f"`{name}`" for name in names), "`x.t().contiguous()`", "copy"], rows, 2),
            "",
        ]
    return lines


def _matrix_bytes(record: Record) -> int:
    """Bytes of a transpose's matrices, counted once: a copy reads as many and writes as many."""
    return int(record["batch"] * record["m"] * record["n"] * record["element_size"])


def _mebibytes(record: Record) -> int:
    """Rounded, so that 8191 x 8193 bytes, one short of 64 MiB, count with their neighbours."""
    return round(_matrix_bytes(record) / 2**20)


def _is_timed_call(record: Record) -> bool:
    """What the goals on speed speak of: `auto` on contiguous rows, timed on the device with its cache cleared."""
    return bool(record["algorithm"] == "auto" and record["layout"] == "contiguous" and record["mode"] == "call")


def _is_large(record: Record, *, odd: bool, side: int) -> bool:
    """At least 64 MiB, no side below `side`, and with an odd side or a moved base or without either."""
    is_odd = bool(record["m"] % 2 or record["n"] % 2 or record["offset"])
    fits = _mebibytes(record) >= 64 and min(record["m"], record["n"]) >= side
    return _is_timed_call(record) and fits and is_odd == odd


def _is_narrow(record: Record) -> bool:
    sides = min(record["m"], record["n"]), max(record["m"], record["n"])
    listed = sides[0] in cases.NARROW_SIDES and sides[1] == cases.NARROW_LENGTH
    return _is_timed_call(record) and listed and _mebibytes(record) >= 16


def _is_large_even(record: Record) -> bool:
    return _is_large(record, odd=False, side=512)


def _is_large_odd(record: Record) -> bool:
    return _is_large(record, odd=True, side=128)


def _is_medium(record: Record) -> bool:
    return _is_timed_call(record) and 1 <= _mebibytes(record) <= 16


def _is_any_of_these(record: Record) -> bool:
    return any(belongs(record) for belongs in (_is_large_even, _is_large_odd, _is_narrow, _is_medium))


def _is_large_byte_square(record: Record) -> bool:
    square = record["element_size"] == 1 and record["m"] == record["n"]
    return square and (_is_large_even(record) or _is_large_odd(record))


def _is_smallest_call(record: Record) -> bool:
    plain = record["algorithm"] == "auto" and record["layout"] == "contiguous"
    return bool(plain and (record["m"], record["n"]) == (16, 16) and record["mode"] == "host")


@dataclass(frozen=True)
class Goal:
    """What an operator is to reach: a figure of all records that belong to it, at least so large.

    None for a mean or a worst case that no goal is set for. With `at_most` a smaller figure is better.
    """

    cases: str
    belongs: Callable[[Record], bool]
    unit: str
    figure: Callable[[Record], float | None]
    mean: float | None
    worst: float | None
    at_most: bool = False


def _copy_fraction(record: Record) -> float | None:
    return record["copy_fraction"]


def _speedup(record: Record) -> float | None:
    return record["ratio"]


def _time_share(record: Record) -> float | None:
    return significant(record["ours_us"] / record["baseline_us"])


_COPY, _FASTER, _COST = "part of a copy's speed", "times PyTorch's speed", "part of PyTorch's time"
TRANSPOSE_GOALS = (
    Goal("64 MiB and more, even sides from 512", _is_large_even, _COPY, _copy_fraction, 0.98, 0.95),
    Goal("64 MiB and more, odd side or base, sides from 128", _is_large_odd, _COPY, _copy_fraction, 0.95, 0.90),
    Goal("1,048,576 x 3 to 64 and mirrored, 16 MiB and more", _is_narrow, _COPY, _copy_fraction, 0.92, 0.85),
    Goal("1 to 16 MiB", _is_medium, _FASTER, _speedup, 2.0, 1.0),
    Goal("all of these", _is_any_of_these, _FASTER, _speedup, 4.0, 1.0),
    # Below 64 MiB a copy itself is not 8 times as fast as PyTorch's transpose: launching takes a part of both.
    Goal("of these the squares of 1-byte elements from 64 MiB", _is_large_byte_square, _FASTER, _speedup, None, 8.0),
    Goal("one call from Python, 16 x 16", _is_smallest_call, _COST, _time_share, None, 0.95, at_most=True),
)


def _is_half(record: Record) -> bool:
    """What the goals of 16-bit products speak of: `auto`, timed on the device with its cache cleared."""
    return bool(record["algorithm"] == "auto" and record["dtype"] in cases.HALF_DTYPES and record["mode"] == "call")


def _sides(record: Record) -> tuple[int, int, int]:
    return record["m"], record["n"], record["k"]


def _is_odd_product(record: Record) -> bool:
    return bool(record["k"] % 2 or record["n"] % 2 or record["offset"])


def _is_vocabulary(record: Record) -> bool:
    return _is_half(record) and record["m"] >= 1024 and record["n"] in (50257, 32003)


def _is_aligned_large_product(record: Record) -> bool:
    aligned = all(side % 8 == 0 for side in _sides(record)) and not record["offset"]
    return _is_half(record) and aligned and min(_sides(record)) >= 2048


def _is_odd_large_product(record: Record) -> bool:
    large = min(_sides(record)) >= 2047
    return _is_half(record) and large and _is_odd_product(record) and not _is_vocabulary(record)


def _is_odd_middle_product(record: Record) -> bool:
    middle = min(_sides(record)) >= 255 and max(_sides(record)) <= 2047
    return _is_half(record) and middle and _is_odd_product(record)


def _is_middle_square(record: Record) -> bool:
    square = record["m"] == record["n"] == record["k"] and not record["offset"]
    return _is_half(record) and square and record["m"] in (256, 512, 1024)


def _is_short_language_model(record: Record) -> bool:
    listed = record["m"] in (16, 64, 128) and (record["n"], record["k"]) in cases.LANGUAGE_MODEL_NK
    return _is_half(record) and listed


def _is_flat(record: Record) -> bool:
    return _is_half(record) and _sides(record) in cases.FLAT


def _is_in_k_sweep(record: Record) -> bool:
    side = cases.K_SWEEP_SIDE
    plain = record["op"] == "tiled_matmul" and record["layout"] == "NN" and record["offset"] == 0
    swept = plain and (record["m"], record["n"]) == (side, side) and record["k"] in cases.K_SWEEP
    return bool(swept and _is_half(record) and record["dtype"] == "bfloat16")


def _is_odd_in_k_sweep(record: Record) -> bool:
    return _is_in_k_sweep(record) and record["k"] % 2 == 1


def _is_square_by(record: Record, algorithm: str) -> bool:
    plain = record["mode"] == "call" and record["layout"] == "NN" and record["offset"] == 0
    square = _sides(record) == (4096, 4096, 4096) and record["dtype"] in cases.HALF_DTYPES
    return bool(plain and square and record["algorithm"] == algorithm)


def _is_square_off_by_one(record: Record) -> bool:
    near = all(abs(side - 4096) <= 3 for side in _sides(record)) and not _is_in_k_sweep(record)
    return _is_half(record) and near and _is_odd_product(record)


def _is_mma_square(record: Record) -> bool:
    return _is_square_by(record, "mma")


def _matmul_goals(results: Results) -> tuple[Goal, ...]:
    """The goals of 16-bit products; two of them compare records with each other."""
    products = [record for record in results.records if record["op"] == "tiled_matmul"]
    rates = {record["k"]: flops_of(record) / record["ours_us"] for record in products if _is_in_k_sweep(record)}
    squares = {record["dtype"]: record["ours_us"] for record in products if _is_square_by(record, "wgmma")}

    def part_of_aligned(record: Record) -> float | None:
        aligned = rates.get(-(-record["k"] // 64) * 64)
        return significant(aligned and rates[record["k"]] / aligned)

    def part_of_square(record: Record) -> float | None:
        square = squares.get(record["dtype"])
        return significant(square and flops_of(record) / record["ours_us"] / (2 * 4096**3 / square))

    def part_of_wgmma(record: Record) -> float | None:
        wgmma = squares.get(record["dtype"])
        return significant(wgmma and wgmma / record["ours_us"])

    own, wgmma = "part of our speed at the next multiple of 64", "part of the speed of wgmma"
    near = "4096 x 4096 x 4096 by odd n, or base off"
    return (
        Goal("multiples of 8, from 2048", _is_aligned_large_product, _FASTER, _speedup, 1.03, 0.97),
        Goal("k or n odd or base off, sides from 2047", _is_odd_large_product, _FASTER, _speedup, 4.5, None),
        Goal("4096 x 4096 by odd k from 4033 to 4159", _is_odd_in_k_sweep, own, part_of_aligned, None, 0.9),
        Goal(near, _is_square_off_by_one, own, part_of_square, None, 0.9),
        Goal("n = 50257 or 32003, m from 1024", _is_vocabulary, _FASTER, _speedup, None, 4.5),
        Goal("k or n odd, sides from 255 to 2047", _is_odd_middle_product, _FASTER, _speedup, 1.5, 1.0),
        Goal("squares of 256, 512, 1024", _is_middle_square, _FASTER, _speedup, 1.0, 0.9),
        Goal("m = 16, 64, 128 of language models", _is_short_language_model, _FASTER, _speedup, 1.0, 0.9),
        Goal("4096 x 4096 x 64, 8192 x 8192 x 128", _is_flat, _FASTER, _speedup, None, 1.3),
        Goal("4096 x 4096 x 4096 by mma", _is_mma_square, wgmma, part_of_wgmma, None, 0.55),
    )


# ---- goals on a CPU ------------------------------------------------------------------------------------------------


def _is_product_of(record: Record, *dtypes: str) -> bool:
    return bool(record["op"] == "tiled_matmul" and record["algorithm"] == "auto" and record["dtype"] in dtypes)


def _is_middle_float(record: Record) -> bool:
    if not _is_product_of(record, "float32"):
        return False
    sides = _sides(record)
    return min(sides) >= 511 and max(sides) <= 2048


def _is_small_or_thin_float(record: Record) -> bool:
    if not _is_product_of(record, "float32"):
        return False
    m, n, k = _sides(record)
    return max(m, n, k) <= 256 or min(m, n) <= 16


def _from_side(least: int, *dtypes: str) -> Callable[[Record], bool]:
    return lambda record: _is_product_of(record, *dtypes) and min(_sides(record)) >= least


def _is_cpu_transpose(record: Record) -> bool:
    return bool(record["op"] == "padded_transpose" and _is_timed_call(record))


def _is_large_cpu_transpose(record: Record) -> bool:
    return _is_cpu_transpose(record) and _matrix_bytes(record) >= 2**20


def _is_small_cpu_transpose(record: Record) -> bool:
    return _is_cpu_transpose(record) and _matrix_bytes(record) < 2**20


def _is_uncached_cpu_transpose(record: Record) -> bool:
    """Two matrices of 32 MiB: beyond the last-level cache of most processors."""
    return _is_cpu_transpose(record) and _matrix_bytes(record) >= 2**25


def _cpu_goals(results: Results) -> tuple[Goal, ...]:
    """The goals on a CPU; one of them compares records with each other."""

    def place(record: Record) -> tuple[Any, ...]:
        return (*_sides(record), record["layout"], record["threads"])

    floats = {place(record): record["ours_us"] for record in results.records if _is_product_of(record, "float32")}

    def part_of_float(record: Record) -> float | None:
        own = floats.get(place(record))
        return significant(own and own / record["ours_us"])

    own = "part of our float32 speed"
    return (
        Goal("float32, sides from 511 to 2048", _is_middle_float, _FASTER, _speedup, 1.0, 0.85),
        Goal("float32, sides up to 256, or m or n up to 16", _is_small_or_thin_float, _FASTER, _speedup, 1.0, None),
        Goal("float64, sides from 511", _from_side(511, "float64"), _FASTER, _speedup, 1.0, None),
        Goal("16-bit floats, sides from 256", _from_side(256, *cases.HALF_DTYPES), _FASTER, _speedup, 50.0, None),
        Goal("16-bit floats, sides from 256", _from_side(256, *cases.HALF_DTYPES), own, part_of_float, 0.8, None),
        Goal("int32, sides from 256", _from_side(256, "int32"), _FASTER, _speedup, 3.0, None),
        Goal("int64, sides from 256", _from_side(256, "int64"), _FASTER, _speedup, 15.0, None),
        Goal("int8, uint8, int16, from 256", _from_side(256, "int8", "uint8", "int16"), _FASTER, _speedup, 1.0, None),
        Goal("complex, sides from 256", _from_side(256, "complex64", "complex128"), _FASTER, _speedup, 1.2, None),
        Goal("transposes from 1 MiB", _is_large_cpu_transpose, _FASTER, _speedup, 3.0, None),
        Goal("transposes from 32 MiB", _is_uncached_cpu_transpose, _COPY, _copy_fraction, 0.8, None),
        Goal("transposes below 1 MiB", _is_small_cpu_transpose, _FASTER, _speedup, None, 1.0),
    )


def _is_full_width(record: Record, dtype: str, precision: str | None = None, algorithm: str = "auto") -> bool:
    """What the goals of products of wider elements speak of, timed on the device with its cache cleared."""
    same = (record["dtype"], record["precision"], record["algorithm"]) == (dtype, precision, algorithm)
    return bool(same and record["mode"] == "call" and not record["offset"])


def _is_tf32(record: Record, side: int, layouts: tuple[str, ...], *, odd: bool) -> bool:
    fits = min(_sides(record)) >= side and record["layout"] in layouts
    return _is_full_width(record, "float32", "tf32") and fits and any(size % 2 for size in _sides(record)) == odd


def _is_middle_float_square(record: Record) -> bool:
    square = record["m"] == record["n"] == record["k"]
    return _is_full_width(record, "float32", "ieee") and square and 128 <= record["m"] < 1024


WIDE_GOALS = (
    Goal(
        "float32, sides from 1000",
        lambda record: _is_full_width(record, "float32", "ieee") and min(_sides(record)) >= 1000,
        _FASTER,
        _speedup,
        2.0,
        1.5,
    ),
    Goal("float32, squares from 128 to 1023", _is_middle_float_square, _FASTER, _speedup, 1.2, 1.0),
    Goal(
        "float32 by simt, sides from 2048",
        lambda record: _is_full_width(record, "float32", "ieee", "simt") and min(_sides(record)) >= 2048,
        _FASTER,
        _speedup,
        1.03,
        0.97,
    ),
    Goal(
        "TF32, NN and NT, even sides from 2048",
        lambda record: _is_tf32(record, 2048, ("NN", "NT"), odd=False),
        _FASTER,
        _speedup,
        1.03,
        0.95,
    ),
    Goal(
        "TF32, TN and TT, even sides from 2048",
        lambda record: _is_tf32(record, 2048, ("TN", "TT"), odd=False),
        _FASTER,
        _speedup,
        None,
        1.45,
    ),
    Goal(
        "TF32, odd sides from 1000",
        lambda record: _is_tf32(record, 1000, cases.MATMUL_LAYOUTS, odd=True),
        _FASTER,
        _speedup,
        None,
        2.5,
    ),
    Goal(
        "complex64, sides from 1024",
        lambda record: _is_full_width(record, "complex64") and min(_sides(record)) >= 1024,
        _FASTER,
        _speedup,
        None,
        1.0,
    ),
)


def thread_counts(results: Results) -> list[int]:
    """Numbers of threads that figures of a CPU were taken with, in rising order."""
    return sorted({record["threads"] for record in results.records if record["threads"]})


def with_most_threads(results: Results) -> Results:
    """What the tables and plots show that have one figure a case."""
    counts = thread_counts(results)
    if len(counts) < 2:
        return results
    return Results(
        results.path, results.header, [record for record in results.records if record["threads"] == counts[-1]]
    )


def cpu_goals(results: Results) -> list[str]:
    """The goals on a CPU beside what was measured, with each number of threads; nothing on CUDA."""
    lines: list[str] = []
    for count in [] if _is_cuda(results) else thread_counts(results):
        some = Results(results.path, results.header, [one for one in results.records if one["threads"] == count])
        rows = _goal_table(some, None, "cases", _cpu_goals(some))
        if rows:
            lines += [f"With {count} thread{'s' if count > 1 else ''}:", "", *rows, ""]
    if not lines:
        return []
    return [
        "Goals on a CPU, every layout that was measured (m x n x k, or m x n). PyTorch is `torch.mm` or "
        "`x.t().contiguous()`, a copy is `y.copy_(x)` of a contiguous tensor of the same bytes with as many threads; "
        "all are timed interleaved, and the mean is the geometric one. The goal of 50 for 16-bit floats is meant for "
        "processors without AVX-512, where PyTorch multiplies them one by one:",
        "",
        *lines,
    ]


def _goal_table(results: Results, op: str | None, what: str, goals: Iterable[Goal]) -> list[str]:
    """Each goal beside what was measured, of one operator or (None) of both; nothing where no record belongs to any."""
    rows = []
    for goal in goals:
        found = [
            (value, record)
            for record in results.records
            if op in (None, record["op"]) and goal.belongs(record) and (value := goal.figure(record))
        ]
        if not found:
            continue
        # Rounded as the figures are and judged as shown: the mean of figures of 0.98 must not fall short of 0.98.
        mean = float(f"{statistics.geometric_mean(value for value, _ in found):.4g}")
        worst, at = (max if goal.at_most else min)(found, key=lambda one: one[0])
        missed = [
            name
            for name, value, limit in (("mean", mean, goal.mean), ("worst", worst, goal.worst))
            if limit is not None and (value > limit if goal.at_most else value < limit)
        ]
        sign = "<=" if goal.at_most else ">="
        limits = ["-" if limit is None else f"{sign} {limit:g}" for limit in (goal.mean, goal.worst)]
        layout = f" {at['layout']}" if at["op"] == "tiled_matmul" and at["layout"] != "NN" else ""
        rows.append(
            [
                goal.cases,
                goal.unit,
                f"**not met** ({', '.join(missed)})" if missed else "met",
                f"{_shape(at)} {at['dtype']}" + layout + (f" +{at['offset']}" if at["offset"] else ""),
                str(len(found)),
                f"{mean:.4g}",
                limits[0],
                f"{worst:.4g}",
                limits[1],
            ]
        )
    words = [what, "figure", "outcome", "worst case"]
    return _table([*words, "cases", "mean", "goal", "worst", "goal"], rows, len(words)) if rows else []


def _cuda_goals(results: Results, op: str, what: str, goals: Iterable[Goal], explanation: str) -> list[str]:
    """The goals of an operator on CUDA beside what was measured; nothing where no record belongs to any."""
    rows = _goal_table(results, op, what, goals) if _is_cuda(results) else []
    return [explanation, "", *rows, ""] if rows else []


def transpose_goals(results: Results) -> list[str]:
    """The goals of transposes beside what was measured; nothing where no record belongs to any."""
    return _cuda_goals(
        results,
        "padded_transpose",
        "matrices",
        TRANSPOSE_GOALS,
        "Goals of `padded_transpose` for contiguous matrices of every element size. A copy is `y.copy_(x)` of a "
        "contiguous tensor of the same bytes, PyTorch is `x.t().contiguous()`; all three are timed interleaved. The "
        "mean is the geometric one, sizes are rounded to whole MiB, and +1 is a base one element past an aligned one:",
    )


def matmul_goals(results: Results) -> list[str]:
    """The goals of 16-bit products beside what was measured; nothing where no record belongs to any."""
    return _cuda_goals(
        results,
        "tiled_matmul",
        "products",
        _matmul_goals(results),
        "Goals of `tiled_matmul` in bfloat16 and float16 (m x n x k, in any layout that was measured). PyTorch is "
        "`torch.mm`, timed interleaved; the mean is the geometric one, NT, TN and TT are operands that lie transposed, "
        "and +1 is bases one element past an aligned one:",
    )


def wide_goals(results: Results) -> list[str]:
    """The goals of float32 and complex64 beside what was measured; nothing where no record belongs to any."""
    return _cuda_goals(
        results,
        "tiled_matmul",
        "products",
        WIDE_GOALS,
        "Goals of `tiled_matmul` in float32, in PyTorch's IEEE setting where TF32 is not named, and complex64, in any "
        "layout that was measured; the goals that no case was measured for are left out:",
    )


def summary(results: Results, *, by_group: bool) -> list[str]:
    """Wins and losses of `auto` against PyTorch by operator and dtype, and by group of cases if asked for."""
    known = groups("cuda" if _is_cuda(results) else "cpu")
    ratios: dict[tuple[str, ...], list[float]] = {}
    for record in results.records:
        if record["algorithm"] == "auto" and record["ratio"] is not None and record["mode"] == "call":
            row = (f"`{record['op']}`", _dtype(record), *([group_of(record, known)] if by_group else []))
            ratios.setdefault(row, []).append(record["ratio"])
    if not ratios:
        return []
    rows = []
    for row, values in ratios.items():
        wins = sum(value >= _EVEN for value in values)
        losses = sum(value <= 1 / _EVEN for value in values)
        even = len(values) - wins - losses
        figures = [str(wins), str(even), str(losses)]
        rows.append([*row, *figures, _ratio(min(values)), _ratio(statistics.median(values)), _ratio(max(values))])
    words = ["operator", "dtype", *(["cases"] if by_group else [])]
    columns = [*words, "faster", "even", "slower", "worst", "median", "best"]
    return [
        "`auto` beside PyTorch over all measured cases. The ratio is PyTorch's time divided by ours, so above 1 we are "
        "faster; within 5 % counts as even:",
        "",
        *_table(columns, rows, len(words)),
        "",
    ]


def highlights(results: Results) -> list[str]:
    """Some shapes that everybody knows, with times of both sides; chosen by shape, never by outcome."""
    known = groups("cuda" if _is_cuda(results) else "cpu")
    rows = []
    for record in results.records:
        if record["op"] == "tiled_matmul":
            # The two dtypes that the whole list is measured in.
            shape_chosen = (record["m"], record["n"], record["k"]) in _PRODUCT_HIGHLIGHTS
            chosen = shape_chosen and record["dtype"] in ("float32", "bfloat16")
        else:
            chosen = (record["m"], record["n"]) in _TRANSPOSE_HIGHLIGHTS and record["offset"] == 0
        plain = record["layout"] in ("NN", "contiguous") and record["mode"] == "call" and record["algorithm"] == "auto"
        if chosen and plain:
            rows.append(
                [
                    f"`{record['op']}`",
                    _shape(record),
                    _dtype(record),
                    group_of(record, known),
                    _microseconds(record["ours_us"]),
                    _microseconds(record["baseline_us"]),
                    _ratio(record["ratio"]),
                    _percent(record["roof_fraction"]),
                ]
            )
    if not rows:
        return []
    columns = ["operator", "shape", "dtype", "cases", "ours, us", "PyTorch, us", "ratio", "of roof"]
    return ["Some shapes of the list (m x n x k, or m x n):", "", *_table(columns, rows, 4), ""]


def full_table(results: Results) -> list[str]:
    """Every record."""
    known = groups("cuda" if _is_cuda(results) else "cpu")
    threaded = len(thread_counts(results)) > 1
    lines: list[str] = []
    for op in ("tiled_matmul", "padded_transpose"):
        records = [record for record in results.records if record["op"] == op]
        if not records:
            continue
        columns = [
            "cases",
            "shape",
            "dtype",
            "layout",
            "mode",
            "algorithm",
            *(["threads"] if threaded else []),
            "ours, us",
            "PyTorch, us",
            "ratio",
            "of roof",
            "error",
            "PyTorch's error",
        ]
        rows = [
            [
                group_of(record, known),
                _shape(record),
                _dtype(record),
                record["layout"] + (f" +{record['offset']}" if record["offset"] else ""),
                record["mode"],
                f"`{record['algorithm']}`",
                *([str(record["threads"])] if threaded else []),
                _microseconds(record["ours_us"]),
                _microseconds(record["baseline_us"]),
                _ratio(record["ratio"]),
                _percent(record["roof_fraction"]),
                "-" if record["error"] is None else f"{record['error']:.1e}",
                "-" if record["baseline_error"] is None else f"{record['baseline_error']:.1e}",
            ]
            for record in records
        ]
        lines += [f"## `{op}`", "", *_table(columns, rows, 6), ""]
    return lines


def _squares(results: Results) -> list[Record]:
    """Transposes whose sides differ by 2 at most, which is as square as two odd sides of the list are."""
    return [
        record
        for record in results.records
        if record["op"] == "padded_transpose"
        and _is_timed_call(record)
        and record["offset"] == 0
        and abs(record["m"] - record["n"]) <= 2
        and record["copy_us"]
    ]


def transpose_image(results: Results, folder: str) -> list[str]:
    """The link to the plot of transposes by size, where there is one."""
    if not has_transpose_plot(results):
        return []
    return [f"![Transposes beside a copy]({folder}{transpose_plot(results).name}.svg)", ""]


def k_image(results: Results, folder: str) -> list[str]:
    """The link to the plot of products over k, where there is one."""
    if not has_k_plot(results):
        return []
    return [f"![Products over k beside torch.mm]({folder}{k_plot(results).name}.svg)", ""]


def document(results: Results, digest: str | None) -> str:
    """The Markdown page of one results file."""
    name = results.path.stem
    lines = [
        f"# Results: {name}",
        "",
        *facts(results, digest),
        f"![Rates and ratios]({name}.svg)",
        "",
        *transpose_image(results, ""),
        *k_image(results, ""),
        *ladder(with_most_threads(results)),
        *matmul_goals(results),
        *wide_goals(results),
        *transpose_goals(results),
        *cpu_goals(results),
        *summary(with_most_threads(results), by_group=True),
        *full_table(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def check_table(path: Path, digest: str | None) -> list[str]:
    """The summary that gpu_check.py left, as a table; nothing if there is none."""
    if not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [step["name"], str(step["passed"]), str(step["failed"]), str(step["skipped"]), f"{step['seconds']:.0f}"]
        for step in content["steps"]
    ]
    stale = "" if content["source_digest"] == digest else " (**stale**: other sources)"
    return [
        f"`make gpu-check` there{stale}:",
        "",
        *_table(["step", "passed", "failed", "skipped", "seconds"], rows, 1),
        "",
        *(f"`{step['name']}`: {step['note']}.\n" for step in content["steps"] if step.get("note")),
    ]


def readme_section(all_results: Sequence[Results], digest: str | None, folder: str) -> str:
    """What stands between the README's markers; of a CPU held to an instruction set, the goals alone."""
    lines: list[str] = []
    for results in all_results:
        name = results.path.stem
        every_figure = [f"Every figure: [{name}.md]({folder}/{name}.md)", ""]
        if results.header.get("isa"):
            lines += [*facts(results, digest), *cpu_goals(results), *every_figure]
            continue
        lines += [
            *facts(results, digest),
            f"![Rates and ratios on {name}]({folder}/{name}.svg)",
            "",
            *transpose_image(results, f"{folder}/"),
            *k_image(results, f"{folder}/"),
            *ladder(with_most_threads(results)),
            *matmul_goals(results),
            *wide_goals(results),
            *transpose_goals(results),
            *cpu_goals(results),
            *highlights(with_most_threads(results)),
            *summary(with_most_threads(results), by_group=False),
            *every_figure,
            *check_table(results.path.with_name(f"{name}-check.json"), digest),
        ]
    return "\n".join(lines).rstrip()


def replace_section(text: str, section: str, begin: str = BEGIN, end: str = END) -> str:
    """The README with a new section; raises ValueError if the markers are not there, once each and in order."""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"expected one {begin} and after it one {end}")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{section}\n{end}{rest.split(end)[1]}"


def has_transpose_plot(results: Results) -> bool:
    """Whether there is anything to draw over sizes; a CPU measures too few of them."""
    return _is_cuda(results) and bool(_squares(results))


def transpose_plot(results: Results) -> Path:
    """Path of the plot of transposes by size, without its suffix."""
    return results.path.with_name(f"{results.path.stem}-transposes")


def _k_sweep(results: Results) -> list[Record]:
    """Products that differ in k alone, in its order."""
    return sorted((record for record in results.records if _is_in_k_sweep(record)), key=lambda record: record["k"])


def has_k_plot(results: Results) -> bool:
    """Whether more than one k was measured: the square of the list is always among them."""
    return _is_cuda(results) and len(_k_sweep(results)) > 1


def k_plot(results: Results) -> Path:
    """Path of the plot of products over k, without its suffix."""
    return results.path.with_name(f"{results.path.stem}-k")


def plots_of(results: Results) -> list[Path]:
    """Every file that `plot` writes."""
    stems = [results.path.with_suffix("")]
    stems += [transpose_plot(results)] if has_transpose_plot(results) else []
    stems += [k_plot(results)] if has_k_plot(results) else []
    return [stem.with_name(stem.name + suffix) for stem in stems for suffix in _PLOT_SUFFIXES]


def plot(results: Results, digest: str | None) -> None:
    """Writes <name>.svg and <name>.png beside the results file; <name>-transposes, <name>-k where there is enough."""
    import matplotlib

    matplotlib.use("Agg")
    # The same figures must give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "pmpp"
    _save(rates_figure(with_most_threads(results)), results.path.with_suffix(""), results, digest)
    if has_transpose_plot(results):
        _save(transposes_figure(results), transpose_plot(results), results, digest)
    if has_k_plot(results):
        _save(k_figure(results), k_plot(results), results, digest)


def _save(figure: Any, stem: Path, results: Results, digest: str | None) -> None:
    """Writes a figure in both formats, under a title that says where its numbers come from."""
    import matplotlib.pyplot as plt

    stale = "  [STALE: taken with other sources]" if is_stale(results, digest) else ""
    figure.suptitle(
        f"{results.header.get('gpu') or results.header.get('cpu')}, PyTorch {results.header['torch']}, "
        f"{results.header['date']}{stale}",
        color="red" if stale else "black",
    )
    for suffix, metadata in zip(_PLOT_SUFFIXES, ({"Date": None}, {"Software": None}), strict=True):
        figure.savefig(stem.with_name(stem.name + suffix), dpi=110, metadata=metadata)
    plt.close(figure)


def transposes_figure(results: Results) -> Any:
    """Speed of transposes as a part of a copy's over the size of the matrix, one colour for each element size."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, axes = plt.subplots(1, 2, figsize=(15, 5.2), layout="constrained", sharex=True, sharey=True)
    squares = _squares(results)
    sizes = sorted({record["element_size"] for record in squares})
    colours = {size: f"C{index}" for index, size in enumerate(sizes)}
    powers = [record for record in squares if record["m"] == record["n"] and record["m"].bit_count() == 1]
    odd = [record for record in squares if record["m"] % 2 and record["n"] % 2]
    for axis, title, chosen in ((axes[0], "sides a power of two", powers), (axes[1], "odd sides", odd)):
        for size in sizes:
            line = sorted((record for record in chosen if record["element_size"] == size), key=_matrix_bytes)
            across = [_matrix_bytes(record) for record in line]
            for side, style, marker in (("ours_us", "-", "o"), ("baseline_us", ":", "x")):
                up = [100 * record["copy_us"] / record[side] for record in line]
                axis.plot(across, up, color=colours[size], linestyle=style, marker=marker, markersize=5)
        axis.axhline(100, color="gray", linewidth=1)
        axis.set_title(f"Square transposes, {title}")
        axis.set_xlabel("bytes of the matrix")
        axis.grid(alpha=0.3)
    axes[0].set_xscale("log", base=2)
    names = {10: "KiB", 20: "MiB", 30: "GiB"}
    ticks = range(14, 34, 2)
    axes[0].set_xticks([2**tick for tick in ticks], [f"{2 ** (tick % 10)} {names[tick - tick % 10]}" for tick in ticks])
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("% of a copy's speed")
    handles = [Line2D([], [], color=colours[size], label=f"{size} B an element") for size in sizes]
    handles += [
        Line2D([], [], color="black", linestyle="-", marker="o", label="padded_transpose"),
        Line2D([], [], color="black", linestyle=":", marker="x", label="x.t().contiguous()"),
    ]
    figure.legend(handles=handles, loc="outside right center")
    return figure


def k_figure(results: Results) -> Any:
    """Rates of products over k in single steps."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(15, 4.6), layout="constrained")
    sweep = _k_sweep(results)
    across = [record["k"] for record in sweep]
    for side, label, colour in (("ours_us", "tiled_matmul", "tab:blue"), ("baseline_us", "torch.mm", "black")):
        up = [flops_of(record) / record[side] / 1e6 for record in sweep]
        axis.plot(across, up, color=colour, marker=".", linewidth=1, label=label)
    axis.set_title(f"{cases.K_SWEEP_SIDE} x {cases.K_SWEEP_SIDE} products over k, bfloat16")
    axis.set_xlabel("k")
    axis.set_xticks(range(cases.K_SWEEP.start, cases.K_SWEEP.stop, 16))
    axis.set_ylabel("TFLOP/s")
    axis.set_ylim(bottom=0)
    axis.legend()
    axis.grid(alpha=0.3)
    return figure


def rates_figure(results: Results) -> Any:
    """Rates of square products over their side, and transposes of one size beside a copy."""
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    cuda = _is_cuda(results)
    scale, unit = (1e6, "TFLOP/s") if cuda else (1e3, "GFLOP/s")
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    calls = [record for record in results.records if record["mode"] == "call"]
    others = sorted({record["algorithm"] for record in calls if record["op"] == "tiled_matmul"} - {"auto"})
    colours = {"torch.mm": "black", "auto": "tab:blue", **{name: f"C{1 + i % 9}" for i, name in enumerate(others)}}
    for axis, dtype in zip(axes[:2], ("float32", "bfloat16"), strict=True):
        lines: dict[str, dict[int, float]] = {}
        for record in calls:
            square = (
                record["op"] == "tiled_matmul"
                and record["m"] == record["n"] == record["k"]
                and record["layout"] == "NN"
                and record["offset"] == 0
                and record["batch"] == 1
                and record["m"].bit_count() == 1  # odd sides lie on the same spot of the axis as even ones
            )
            if not square or record["dtype"] != dtype or record["precision"] == "tf32":
                continue
            lines.setdefault(record["algorithm"], {})[record["m"]] = flops_of(record) / record["ours_us"] / scale
            if record["baseline_us"] and record["algorithm"] == "auto":
                lines.setdefault("torch.mm", {})[record["m"]] = flops_of(record) / record["baseline_us"] / scale
        # The ladder goes on top of auto, which often is one of its steps.
        for name, points in sorted(lines.items(), key=lambda line: line[0] not in ("auto", "torch.mm")):
            sizes = sorted(points)
            main = name in ("auto", "torch.mm")
            axis.plot(
                sizes,
                [points[n] for n in sizes],
                label=name,
                marker="o",
                linewidth=2 if main else 1,
                color=colours.get(name),
                linestyle="-" if main else "--",
            )
        axis.set_title(f"n x n products, {dtype}")
        axis.set_xlabel("n")
        axis.set_ylabel(unit)
        if lines:
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
            axis.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
            axis.legend()
        axis.grid(alpha=0.3)
    axis = axes[2]
    squares = [record for record in _squares(results) if record["m"] == record["n"]]
    # The side that most element sizes share, and of those the largest: beyond every cache.
    sides = [record["m"] for record in squares]
    side = max(sides, key=lambda m: (sides.count(m), m <= 8192, m), default=0)
    bars = sorted((record for record in squares if record["m"] == side), key=lambda record: record["element_size"])
    positions = range(len(bars))
    axis.bar(
        [x - 0.2 for x in positions],
        [100 * bar["copy_us"] / bar["baseline_us"] for bar in bars],
        0.4,
        label="x.t().contiguous()",
        color="black",
    )
    axis.bar(
        [x + 0.2 for x in positions],
        [100 * bar["copy_us"] / bar["ours_us"] for bar in bars],
        0.4,
        label="padded_transpose",
        color="tab:blue",
    )
    axis.axhline(100, color="gray", linestyle=":")
    axis.set_xticks(list(positions), [f"{bar['element_size']} B" for bar in bars])
    axis.set_title(f"{side} x {side} transposes by element size" if bars else "transposes")
    axis.set_ylabel("% of a copy")
    if bars:
        axis.legend()
    axis.grid(alpha=0.3, axis="y")
    return figure


def find_results(folder: Path) -> list[Results]:
    """All results files, GPUs before CPUs."""
    paths = sorted(
        path
        for path in folder.glob("*.json")
        if not path.stem.endswith(("-check", "-accuracy")) and not path.name.startswith(".")
    )
    return sorted((Results.read(path) for path in paths), key=lambda results: not _is_cuda(results))


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the reports; returns 0 if all is well, 1 if a check failed, 2 if something is missing."""
    parser = Parser(prog="report", description="Make tables and plots from the results files.")
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        metavar="FOLDER",
        help="folder of the results files (default: benchmarks/results)",
    )
    parser.add_argument(
        "--readme",
        type=Path,
        nargs="?",
        const=ROOT / "README.md",
        metavar="FILE",
        help="also rewrite the section between the markers in this file (default: README.md)",
    )
    parser.add_argument("--docs", action="store_true", help="also fill in the pages and pictures of docs/")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not what would be written"
    )
    parser.add_argument("--no-plot", action="store_true", help="tables alone, without matplotlib")
    options = parser.parse_args(arguments)
    digest = source_digest(ROOT)
    try:
        found = find_results(options.results)
    except (OSError, ValueError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"report: no results file in {options.results}; `make bench` makes one", file=sys.stderr)
        return 2

    wanted = {results.path.with_suffix(".md"): document(results, digest) for results in found}
    readme: Path | None = options.readme or (ROOT / "README.md" if options.check else None)
    if readme is not None:
        folder = "benchmarks/results" if readme.resolve().parent == ROOT else options.results.as_posix()
        try:
            wanted[readme] = replace_section(readme.read_text(encoding="utf-8"), readme_section(found, digest, folder))
        except (OSError, ValueError) as error:
            print(f"report: {readme}: {error}", file=sys.stderr)
            return 2
    of_docs: Results | None = None
    # The pages belong to the results of this tree, not to those of another folder.
    if options.docs or (options.check and options.results.resolve() == ROOT / "benchmarks" / "results"):
        from benchmarks import docs

        try:
            of_docs = next((results for results in found if results.path.name == docs.RESULTS), None)
            if of_docs is None:
                raise docs.BrokenPage(f"there is no {docs.RESULTS} in {options.results}")
            wanted |= docs.wanted(of_docs)
        except (OSError, docs.BrokenPage) as error:
            print(f"report: docs: {error}", file=sys.stderr)
            return 2
    if options.check:
        old = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
        plots = [path for results in found for path in plots_of(results)]
        plots += [docs.IMAGES / f"{docs.ROOFLINE}.svg"] if of_docs else []
        old += [path for path in plots if not options.no_plot and not path.is_file()]
        for path in old:
            print(f"report: {path} is not up to date; run python benchmarks/report.py --readme --docs", file=sys.stderr)
        return 1 if old else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
        print(path)
    if not options.no_plot:
        for results in found:
            plot(results, digest)
            print(", ".join(str(path) for path in plots_of(results)))
        if of_docs is not None:
            print(", ".join(str(path) for path in docs.draw_roofline(of_docs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
