#!/usr/bin/env python3
"""Checks every plan of a product against float64 and times it beside PyTorch's: what select's constants are fitted to.

    python benchmarks/plans.py [--device cuda] [--dtype bfloat16] [--algorithms wgmma,mma] [--products NN:64x64x64]

`auto` must choose well without trying: the costs of tiles beside kWgmmaCosts, kSpeed and kTileCosts are fitted to the
times that this prints, so that the plan that is estimated to be the fastest seldom is far from it. A product is
LAYOUT:MxNxK, or LAYOUT:MxNxK+1 for operands one element past an aligned base.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from benchmarks import timing  # noqa: E402
from benchmarks.arguments import Parser, names, positive  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.results import write_atomically  # noqa: E402

# Squares, language models, flat, long sums, odd sizes: each regime that a rule of the selection has to tell apart.
PRODUCTS = (
    *(f"NN:{size}x{size}x{size}" for size in (128, 256, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096)),
    *(f"{layout}:1024x1024x1024" for layout in ("NT", "TN", "TT")),
    *(f"NN:{m}x{n}x4096" for n in (4096, 6144) for m in (1, 16, 32, 64, 128, 256, 512, 2048)),
    *(f"NN:{m}x4096x14336" for m in (1, 16, 64, 128, 512)),
    *(f"NT:{m}x4096x4096" for m in (16, 64, 128)),
    *("NN:4096x4096x64", "NN:8192x8192x128", "NN:128x128x65536", "NN:16x16x1048576", "NN:1048576x64x64"),
    *("NN:255x255x255", "NN:511x513x1025", "NN:1000x1000x1000", "NN:1001x1001x1001", "NN:2398x1298x132"),
    *("NN:2047x2047x2047", "NN:4095x4097x4099", "NN:4096x4097x4096", "NN:1024x50257x768", "NN:4096x4096x4096+1"),
)


DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@dataclass(frozen=True)
class Product:
    """m x k by k x n; T in the layout is an operand that lies transposed."""

    layout: str
    m: int
    n: int
    k: int
    offset: int  # elements by which both bases are moved off their alignment

    @classmethod
    def parse(cls, text: str) -> Product:
        """From LAYOUT:MxNxK[+OFFSET]; ValueError says what is expected."""
        match = re.fullmatch(r"([NT]{2}):([1-9]\d*)x([1-9]\d*)x([1-9]\d*)(?:\+(\d+))?", text)
        if match is None:
            raise ValueError(f"expected a product such as NT:1024x512x64, but got {text!r}")
        layout, m, n, k, offset = match.groups()
        return cls(layout, int(m), int(n), int(k), int(offset or 0))

    def operands(self, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Random normal ones, as this product says how they lie."""

        def operand(rows: int, cols: int, is_transposed: bool) -> torch.Tensor:
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            flat = torch.randn(rows * cols + self.offset, dtype=drawn, device=device).to(dtype)[self.offset :]
            return flat.view(cols, rows).t() if is_transposed else flat.view(rows, cols)

        return operand(self.m, self.k, self.layout[0] == "T"), operand(self.k, self.n, self.layout[1] == "T")


@dataclass(frozen=True)
class Measured:
    """One product: microseconds of PyTorch, of `auto`, and of every plan; the plans that came out wrong."""

    product: Product
    baseline_us: float
    auto_us: float
    auto_plan: str
    plans_us: dict[str, float]
    wrong: list[str]


def is_right(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether each element is within its rounding and 2^-18 of |a| @ |b| of the product in float64 or complex128."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    wide_a, wide_b = a.to(wide), b.to(wide)
    exact = wide_a @ wide_b
    slack = exact.abs() * torch.finfo(result.dtype).eps + (wide_a.abs() @ wide_b.abs()) * 2.0**-18
    return bool(((result.to(wide) - exact).abs() <= slack).all())


def measure(
    product: Product, device: torch.device, dtype: torch.dtype, algorithms: Sequence[str], seconds: float
) -> Measured:
    """Runs every plan once on a poisoned result, then times all of them interleaved for about `seconds`."""
    a, b = product.operands(device, dtype)
    out = torch.empty(product.m, product.n, device=device, dtype=dtype)
    calls: list[timing.Call] = [lambda: torch.mm(a, b), lambda: torch_pmpp.tiled_matmul(a, b)]
    found, wrong = [], []
    for algorithm in algorithms:
        plans = torch.ops.pmpp._tiled_matmul_plans(a[None], b[None], algorithm, out=out[None])
        for index, plan in enumerate(plans):

            def run(algorithm: str = algorithm, index: int = index) -> None:
                torch.ops.pmpp._tiled_matmul_with_plan(a[None], b[None], algorithm, index, out=out[None])

            out.fill_(float("nan"))
            run()
            if not is_right(out, a, b):
                wrong.append(plan)
            found.append(plan)
            calls.append(run)
    time = timing.time_cuda if device.type == "cuda" else timing.time_cpu
    baseline, auto, *times = (1e6 * each for each in time(calls, budget=seconds))
    plan = torch.ops.pmpp._tiled_matmul_plan(a, b)
    return Measured(product, baseline, auto, plan, dict(zip(found, times, strict=True)), wrong)


def parser() -> argparse.ArgumentParser:
    """The command line. Lists are separated by commas."""
    result = Parser(prog="plans.py", description=(__doc__ or "").splitlines()[0])
    result.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    result.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    result.add_argument("--algorithms", type=names(), help="default: all that can do the dtype, but the classic ones")
    result.add_argument("--products", type=names(), default=list(PRODUCTS))
    result.add_argument("--seconds", type=positive, default=0.05, help="for a product (default: %(default)s)")
    result.add_argument("--output", type=Path, help="a JSON file for all times")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and saves; 1 if a plan came out wrong, 2 if it could not begin."""
    command = parser()
    options = command.parse_args(arguments)
    try:
        products = [Product.parse(text) for text in options.products]
    except ValueError as error:
        command.error(str(error))
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("plans.py: no CUDA device", file=sys.stderr)
        return 2
    offered = torch_pmpp.algorithms("tiled_matmul", device, dtype)
    classic = ("naive", "tiled", "tiled_dynamic")
    algorithms = options.algorithms or [name for name in offered if name not in classic]
    measured = []
    for product in products:
        one = measure(product, device, dtype, algorithms, options.seconds)
        measured.append(one)
        best = min(one.plans_us, key=one.plans_us.__getitem__)
        print(
            f"{product.layout} {product.m} x {product.n} x {product.k} +{product.offset}: "
            f"PyTorch {one.baseline_us:.1f} us, auto {one.auto_us:.1f} ({one.auto_plan}), "
            f"best {one.plans_us[best]:.1f} ({best})",
            flush=True,
        )
        for plan in one.wrong:
            print(f"WRONG {plan}", flush=True)
    if options.output:
        content = {"source_digest": source_digest(ROOT), "products": [asdict(one) for one in measured]}
        write_atomically(options.output, json.dumps(content, indent=1) + "\n")
    return 1 if any(one.wrong for one in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
