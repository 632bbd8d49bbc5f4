#!/usr/bin/env python3
"""Errors of float32 products against float64 over k and over kinds of data: benchmarks/results/<gpu>-accuracy.json.

For each algorithm and for torch.mm in the IEEE setting (cuBLAS SGEMM on CUDA), the same operands, several seeds. With
`--dtype complex64` products of complex numbers (CGEMM) against complex128, in <gpu>-complex64-accuracy.json: both parts
are of the kind that is named. Both figures are in units of 2^-24: `norm` is ||c - ref|| / ||ref||, `element`
max |c - ref| / (|a| @ |b|), each the mean over the seeds. `accurate` says whether an algorithm is as accurate as
torch.mm in that row: its norm at most the baseline's, its worst element within 1.25 times. Where one is not, `auto`
must not take it for that k. `--draw FILE` plots such a file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from benchmarks import machine  # noqa: E402
from benchmarks.arguments import Parser, names  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.results import significant, write_atomically  # noqa: E402

INNER = (128, 256, 512, 1024, 8192, 65536)
SEEDS = 5
SIZE = 256  # rows and columns of the product
UNIT = 2.0**-24
ELEMENT_ALLOWANCE = 1.25
BASELINE = "torch.mm"
ALGORITHMS = ("simt", "emulated")

DTYPES = {"float32": torch.float32, "complex64": torch.complex64}

Operands = tuple[torch.Tensor, torch.Tensor]


class _Random:
    """Float32 matrices of one seed on one device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device = device

    def normal(self, rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=self._generator, device=self._device)

    def uniform(self, rows: int, columns: int) -> torch.Tensor:
        return torch.rand(rows, columns, generator=self._generator, device=self._device)

    def spread(self, rows: int, columns: int) -> torch.Tensor:
        exponents = torch.randint(-20, 21, (rows, columns), generator=self._generator, device=self._device)
        return torch.ldexp(self.normal(rows, columns), exponents)


def _largest(random: _Random, m: int, n: int, k: int) -> Operands:
    """Half of the largest float32 and more, with both signs; b keeps the results finite."""
    a = torch.copysign((1 + random.uniform(m, k)) * 1.7e38, random.normal(m, k))
    return a, random.normal(k, n) * 2.0**-20


def _subnormal(random: _Random, m: int, n: int, k: int) -> Operands:
    """Most of a below 2^-126, results among the normal numbers."""
    return random.normal(m, k) * 2.0**-130, random.normal(k, n) * 2.0**60


def _cancelling(random: _Random, m: int, n: int, k: int) -> Operands:
    """Two halves of k that cancel but for 2^-12 of their size."""
    left, right = random.normal(m, k // 2), random.normal(k // 2, n)
    change = 1 + random.normal(k // 2, n) * 2.0**-12
    return torch.cat([left, left], 1), torch.cat([right, -right * change])


DATA: dict[str, Callable[[_Random, int, int, int], Operands]] = {
    "normal": lambda random, m, n, k: (random.normal(m, k), random.normal(k, n)),
    "uniform": lambda random, m, n, k: (random.uniform(m, k), random.uniform(k, n)),
    "spread": lambda random, m, n, k: (random.spread(m, k), random.spread(k, n)),
    "largest": _largest,
    "subnormal": _subnormal,
    "cancelling": _cancelling,
}


def operands(kind: str, random: _Random, m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> Operands:
    """A pair of one kind; of complex numbers the real parts are one pair and the imaginary parts the next."""
    a, b = DATA[kind](random, m, n, k)
    if not dtype.is_complex:
        return a, b
    a_imaginary, b_imaginary = DATA[kind](random, m, n, k)
    return torch.complex(a, a_imaginary), torch.complex(b, b_imaginary)


def errors(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Norm-wise and worst element-wise error of a product, in units of 2^-24."""
    wide = torch.complex128 if result.is_complex() else torch.float64
    wide_a, wide_b = a.to(wide), b.to(wide)
    reference = wide_a @ wide_b
    difference = result.to(wide) - reference
    norm = float(difference.norm() / reference.norm())
    element = float((difference.abs() / (wide_a.abs() @ wide_b.abs())).max())
    return norm / UNIT, element / UNIT


def measure(
    kind: str,
    k: int,
    algorithms: Sequence[str],
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    size: int = SIZE,
    seeds: int = SEEDS,
) -> list[dict[str, Any]]:
    """The rows of one kind of data and one k: the baseline's first, then one an algorithm."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (BASELINE, *algorithms)}
    for seed in range(seeds):
        a, b = operands(kind, _Random(seed, device), size, size, k, dtype)
        found[BASELINE].append(errors(torch.mm(a, b), a, b))
        for name in algorithms:
            found[name].append(errors(torch_pmpp.tiled_matmul(a, b, algorithm=name), a, b))
    means = {}
    for name, values in found.items():
        norms, elements = zip(*values, strict=True)
        means[name] = (sum(norms) / seeds, sum(elements) / seeds)
    base_norm, base_element = means[BASELINE]
    return [
        {
            "k": k,
            "data": kind,
            "algorithm": name,
            "norm": significant(norm, 3),
            "element": significant(element, 3),
            "accurate": name == BASELINE or (norm <= base_norm and element <= ELEMENT_ALLOWANCE * base_element),
        }
        for name, (norm, element) in means.items()
    ]


def table(records: Iterable[dict[str, Any]]) -> str:
    """Markdown: a line for each k and kind of data, `norm, element` of every algorithm; bold is not accurate enough."""
    records = list(records)
    columns = list(dict.fromkeys(record["algorithm"] for record in records))
    lines = ["| k, data | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for k, kind in dict.fromkeys((record["k"], record["data"]) for record in records):
        cells = []
        for name in columns:
            row = next(r for r in records if (r["k"], r["data"], r["algorithm"]) == (k, kind, name))
            text = f"{row['norm']:g}, {row['element']:g}"
            cells.append(text if row["accurate"] else f"**{text}**")
        lines.append(f"| {k:,}, {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(report: dict[str, Any], stem: Path) -> list[Path]:
    """Writes <stem>.svg and <stem>.png: norm-wise errors over k, a panel for each kind of data; returns both paths."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "pmpp"  # the same figures must give the same file
    import matplotlib.pyplot as plt

    records = report["records"]
    kinds = list(dict.fromkeys(record["data"] for record in records))
    names = list(dict.fromkeys(record["algorithm"] for record in records))
    columns = min(3, len(kinds))
    figure, axes = plt.subplots(
        -(-len(kinds) // columns), columns, figsize=(13, 7), layout="constrained", sharex=True, squeeze=False
    )
    # Told apart by mark and dashes as well as by colour.
    styles = [("black", "x", ":"), ("tab:orange", "s", "--"), ("tab:blue", "o", "-"), ("tab:green", "^", "-.")]
    for axis, kind in zip(axes.flat, kinds, strict=False):
        for name, (colour, marker, dashes) in zip(names, styles, strict=False):
            line = sorted((r["k"], r["norm"]) for r in records if (r["data"], r["algorithm"]) == (kind, name))
            axis.loglog(*zip(*line, strict=True), label=name, color=colour, marker=marker, linestyle=dashes)
        axis.set_title(kind)
        axis.grid(alpha=0.3, which="both")
    for axis in axes[-1]:
        axis.set_xlabel("k")
    for row in axes:
        row[0].set_ylabel("||c - ref|| / ||ref||, units of 2^-24")
    axes[0, 0].legend()
    figure.suptitle(
        f"{report['gpu']}, {report.get('dtype', 'float32')}, m = n = {report['size']}, mean of {report['seeds']} seeds"
        f", PyTorch {report['torch']}, {report['date']}"
    )
    paths = [stem.with_name(stem.name + suffix) for suffix in (".svg", ".png")]
    for path, metadata in zip(paths, ({"Date": None}, {"Software": None}), strict=True):
        figure.savefig(path, dpi=100, metadata=metadata)
    plt.close(figure)
    return paths


def parser() -> argparse.ArgumentParser:
    """The command line. Lists are separated by commas."""
    result = Parser(prog="accuracy.py", description=(__doc__ or "").splitlines()[0])
    result.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    result.add_argument("--dtype", default="float32", choices=tuple(DTYPES))
    result.add_argument("--k", type=names(), default=[str(k) for k in INNER], help="lengths of the inner dimension")
    result.add_argument("--data", type=names(tuple(DATA)), default=list(DATA), help="kinds of data")
    result.add_argument("--algorithms", type=names(), default=None, help="default: simt, emulated, those there are")
    result.add_argument("--output", type=Path, help="default: benchmarks/results/<gpu>[-complex64]-accuracy.json")
    result.add_argument("--draw", type=Path, metavar="FILE", help="only draw the plots of a file measured before")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and saves; 0 whether or not a row fails, since a failing row is a finding for the selection."""
    options = parser().parse_args(arguments)
    if options.draw is not None:
        try:
            paths = draw(json.loads(options.draw.read_text(encoding="utf-8")), options.draw.with_suffix(""))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"accuracy.py: {options.draw}: {error!r}", file=sys.stderr)
            return 2
        print(", ".join(map(str, paths)))
        return 0
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("accuracy.py: no CUDA device", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    dtype = DTYPES[options.dtype]
    offered = torch_pmpp.algorithms("tiled_matmul", device.type, dtype)
    wanted = options.algorithms or [name for name in ALGORITHMS if name in offered]
    suffix = "-accuracy.json" if dtype == torch.float32 else f"-{options.dtype}-accuracy.json"
    path = options.output or ROOT / "benchmarks" / "results" / machine.results_name(device).replace(".json", suffix)
    report: dict[str, Any] = {
        "gpu": machine.device_name(device),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "source_digest": source_digest(),
        "seeds": SEEDS,
        "size": SIZE,
        **({} if dtype == torch.float32 else {"dtype": options.dtype}),
        "records": [],
    }
    for k in map(int, options.k):
        for kind in options.data:
            report["records"] += measure(kind, k, wanted, device, dtype=dtype)
            write_atomically(path, json.dumps(report, indent=1) + "\n")
    print(table(report["records"]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
