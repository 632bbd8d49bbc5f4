#!/usr/bin/env python3
"""What autograd's recording costs a small call, beside what it costs torch.mm.

    python benchmarks/recording.py [--device cpu|cuda] [--size 16] [--seconds 2]

A call is timed with and without an operand that requires grad; recording is the difference, which leaves out what a
call costs anyway. Backward is the time of one `torch.autograd.grad` of both operands. All are timed in turn, in short
rounds of which the fastest counts: whatever else the machine does only adds time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from torch_pmpp._text import Table  # noqa: E402

CALLS = 50  # of a round: well below a millisecond, so that some rounds are not interrupted


def fastest(calls: dict[Any, Callable[[], object]], seconds: float, device: str) -> dict[Any, float]:
    """Seconds of one call of each, the best round of all."""
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        rounds += 1
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS)
            if device == "cuda":
                torch.cuda.synchronize()
    return best


def measure(device: str, size: int, seconds: float) -> dict[str, tuple[float, ...]]:
    """Of `tiled_matmul` and of `torch.mm`: seconds of a plain call, of a recorded one, of the backward pass."""
    plain = [torch.randn(size, size, device=device) for _ in range(2)]
    leaves = [x.clone().requires_grad_() for x in plain]
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, function in (("tiled_matmul", torch.ops.pmpp.tiled_matmul.default), ("mm", torch.ops.aten.mm.default)):
        result = function(*leaves)
        seed = torch.ones_like(result)
        calls[name, "plain"] = partial(function, *plain)
        calls[name, "recorded"] = partial(function, *leaves)
        calls[name, "backward"] = partial(torch.autograd.grad, result, leaves, seed, retain_graph=True)
    best = fastest(calls, seconds, device)
    return {
        name: (best[name, "plain"], best[name, "recorded"], best[name, "backward"]) for name in ("tiled_matmul", "mm")
    }


def main(arguments: list[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Cost of autograd's recording beside torch.mm's.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = Table(
        f"{options.size} x {options.size} float32 on {options.device}, microseconds (PyTorch {torch.__version__})",
        ("operator", "call", "recording", "backward"),
        right=frozenset({"call", "recording", "backward"}),
    )
    for name, (plain, recorded, backward) in measure(options.device, options.size, options.seconds).items():
        table.add(name, *(f"{seconds * 1e6:.2f}" for seconds in (plain, recorded - plain, backward)))
    table.print()
    print(f"pmpp {torch_pmpp.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
