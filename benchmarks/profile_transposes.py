#!/usr/bin/env python3
"""One launch of each transpose whose shared-memory traffic gpu_check.py counts, for Nsight Compute to look at.

Everything else (random numbers, first-use work) happens outside the profiled range.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402

ALGORITHMS = ("shared", "padded", "padded16")
SIDE = 4096


def main() -> None:
    """Runs each algorithm once to warm up and once inside the range."""
    x = torch.randn(SIDE, SIDE, device="cuda")
    out = torch.empty(SIDE, SIDE, device="cuda")
    for profiled in (False, True):
        torch.cuda.synchronize()
        if profiled:
            torch.cuda.profiler.start()
        for algorithm in ALGORITHMS:
            torch_pmpp.padded_transpose(x, algorithm=algorithm, out=out)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
