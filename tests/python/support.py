"""What the tests are parametrised over: devices, dtypes and every algorithm that the library offers.

A new kernel that `torch_pmpp.algorithms` lists is tested by all of this suite without a line changed here.
"""

from collections.abc import Iterable

import pytest
import torch

import torch_pmpp
from torch_pmpp._library import no_cuda_reason

REAL_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX_DTYPES = (torch.complex64, torch.complex128)
FLOATING_DTYPES = REAL_DTYPES + COMPLEX_DTYPES
INTEGER_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MATMUL_DTYPES = FLOATING_DTYPES + INTEGER_DTYPES
HALF_DTYPES = (torch.float16, torch.bfloat16)

# One dtype for each element size that padded_transpose moves.
SIZED_DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128)

# 0, 1, tile - 1, tile, tile + 1 for tiles of 8, 16, 32 and 64.
EDGE_SIZES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)

NO_CUDA = no_cuda_reason() or "no CUDA device"
HAS_CUDA = no_cuda_reason() is None
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason=NO_CUDA)


def all_dtypes() -> tuple[torch.dtype, ...]:
    """Every dtype that this torch can allocate plainly, so without the quantized ones."""
    found: dict[torch.dtype, None] = {}
    for name in sorted(dir(torch)):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and not str(dtype).startswith("torch.q"):
            found[dtype] = None
    return tuple(found)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def algorithms(op: str, device: str, dtype: torch.dtype) -> list[str]:
    return ["auto", *torch_pmpp.algorithms(op, device, dtype)]


def _skipped_cuda(*values):
    return pytest.param(*values, id="cuda", marks=[needs_cuda, pytest.mark.cuda])


def on_each_device(function):
    """Parametrise over `device`: cpu always, cuda skipped where there is none."""
    return pytest.mark.parametrize("device", [pytest.param("cpu", id="cpu"), _skipped_cuda("cuda")])(function)


def on_each_algorithm(op: str, dtypes: Iterable[torch.dtype], devices: Iterable[str] = ("cpu", "cuda")):
    """Parametrise over `device`, `dtype` and `algorithm`, as far as the library offers the combination."""
    dtypes = tuple(dtypes)
    params = []
    for device in devices:
        if device == "cuda" and not HAS_CUDA:
            params.append(_skipped_cuda("cuda", dtypes[0], "auto"))
            continue
        for dtype in dtypes:
            for algorithm in algorithms(op, device, dtype):
                params.append(pytest.param(device, dtype, algorithm, id=f"{device}-{name_of(dtype)}-{algorithm}"))
    return pytest.mark.parametrize(("device", "dtype", "algorithm"), params)


def edge_shapes(sizes=EDGE_SIZES) -> list[tuple[int, int, int]]:
    """(m, n, k): every pair of edge sizes occurs in every pair of places (a Latin square)."""
    count = len(sizes)
    return [(sizes[i], sizes[j], sizes[(i + j) % count]) for i in range(count) for j in range(count)]
