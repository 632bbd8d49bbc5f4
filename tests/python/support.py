"""What the tests are parametrised over: devices, dtypes and every algorithm that the library offers.

A new kernel that `torch_pmpp.algorithms` lists is tested by all of this suite without a line changed here.
"""

import contextlib
import os
import signal
import subprocess
import time
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


# Whether this is one of several workers of pytest-xdist, which share the machine and its GPU.
IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ


def memory_of_others() -> int:
    """Bytes of device memory that other processes hold, and what CUDA keeps for this one (about half a GiB)."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def free_memory_moves(seconds: float = 2.0) -> bool:
    """Whether free device memory changes while this process leaves it alone."""
    first = torch.cuda.mem_get_info()[0]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if torch.cuda.mem_get_info()[0] != first:
            return True
        time.sleep(0.01)
    return False


def needs_memory(size: int, seconds: float = 60.0) -> None:
    """Skips where so many bytes are not free, what PyTorch keeps for later included. Waits for other processes."""
    torch.cuda.empty_cache()
    end = time.monotonic() + seconds
    while (free := torch.cuda.mem_get_info()[0]) < size:
        if free + memory_of_others() < size or time.monotonic() > end:
            pytest.skip(f"needs {size >> 20} MiB of device memory, {free >> 20} MiB are free")
        time.sleep(0.25)


def run_process(command, seconds: float, **options) -> subprocess.CompletedProcess:
    """Runs a command and keeps its output as text; fails with that output if it takes longer than `seconds`.

    Its children are ended as well, since one that is left would keep the output open. First by SIGABRT, for which
    Python's faulthandler, where it is on, prints where every thread stands.
    """
    words = [str(word) for word in command]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{' '.join(words)} took longer than {seconds:g} s\n{out}\n{err}", pytrace=False)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def edge_shapes(sizes=EDGE_SIZES) -> list[tuple[int, int, int]]:
    """(m, n, k): every pair of edge sizes occurs in every pair of places (a Latin square)."""
    count = len(sizes)
    return [(sizes[i], sizes[j], sizes[(i + j) % count]) for i in range(count) for j in range(count)]
