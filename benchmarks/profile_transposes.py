#!/usr/bin/env python3
"""One launch of each transpose that gpu_check.py judges by its counters, for Nsight Compute to look at.

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

# Algorithm and side of the float32 square it transposes, in the order of the launches, one kernel each. The classic
# tiles are counted where conflicts show as well as anywhere; `vectorized` is also held to a share of the memory's
# rate, for which the matrix must dwarf the L2 cache and the start of the launch: at 8192 x 8192 27 of the 268 MB that
# it writes are still in the L2 cache of an H200 when it ends, and are missing in the count (83 %).
LAUNCHES = (("shared", 4096), ("padded", 4096), ("padded16", 4096), ("vectorized", 16384))


def main() -> None:
    """Runs each algorithm once to warm up and once inside the range."""
    inputs = {side: torch.randn(side, side, device="cuda") for _, side in LAUNCHES}
    outputs = {side: torch.empty_like(x) for side, x in inputs.items()}
    for profiled in (False, True):
        torch.cuda.synchronize()
        if profiled:
            torch.cuda.profiler.start()
        for algorithm, side in LAUNCHES:
            torch_pmpp.padded_transpose(inputs[side], algorithm=algorithm, out=outputs[side])
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
