"""`python -m torch_pmpp demo`: both operators on real input, checked against float64, timed beside PyTorch."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._info import cpu_model
from ._library import no_cuda_reason
from ._operators import algorithms, padded_transpose, tiled_matmul
from ._output import print_json
from ._reference import MatmulReference, is_integer, judge_transpose, random_matrix
from ._text import Table, duration, verdict, verdict_style

SEED = 20240229
# Time for the repetitions of one row. The CPU list takes 15 to 20 s on 2 cores with it.
_SECONDS_PER_ROW = 0.15
_MAX_REPETITIONS = 50
# A call that takes longer is not repeated: the textbook loop at 1024 on one or two cores.
_SECONDS_FOR_ONE_CALL = 1.0


@dataclass(frozen=True)
class _Product:
    m: int
    k: int
    n: int
    dtype: torch.dtype
    ladder: bool = False  # a row for each algorithm, not for "auto" alone
    transposed: bool = False  # the first operand is a transposed view


@dataclass(frozen=True)
class _Transpose:
    m: int
    n: int
    dtype: torch.dtype
    ladder: bool = False


# The first two of each list are the cases that the project started from. bfloat16 and int64 stay small: PyTorch's
# own product runs at about 1 GFLOP/s for them on a processor without AVX-512.
_PRODUCTS = (
    _Product(1024, 1024, 1024, torch.float32, ladder=True),
    _Product(2398, 1298, 132, torch.float32, ladder=True),
    _Product(511, 1025, 513, torch.float32),
    _Product(640, 384, 512, torch.float32, transposed=True),
    _Product(257, 255, 259, torch.float64),
    _Product(256, 320, 192, torch.bfloat16),
    _Product(129, 200, 131, torch.complex64),
    _Product(200, 300, 100, torch.int64),
)
_TRANSPOSES = (
    _Transpose(2048, 2048, torch.float32, ladder=True),
    _Transpose(2398, 1298, torch.float32, ladder=True),
    _Transpose(1000, 3001, torch.bool),
    _Transpose(2047, 1025, torch.bfloat16),
    _Transpose(100_003, 3, torch.float64),
    _Transpose(511, 513, torch.complex128),
)
_PRODUCTS_CUDA = (_Product(4096, 4096, 4096, torch.float32), _Product(4096, 4096, 4096, torch.bfloat16))
_TRANSPOSES_CUDA = (_Transpose(8192, 8192, torch.float32, ladder=True),)


def _time_call(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _first_call(call: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float]:
    start = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - start


def _time_pair(
    ours: Callable[[], object], theirs: Callable[[], object] | None, device: torch.device, first: float
) -> tuple[float, float | None]:
    """Median seconds of each side, run in turn so that a drifting clock hits both. Both have run once before.

    `first` is what our side took that time: on a CPU, where nothing is set up at first use, a long one is the figure.
    """
    if device.type == "cpu" and first > _SECONDS_FOR_ONE_CALL:
        return first, None if theirs is None else _time_call(theirs, device)
    calls = [ours] if theirs is None else [ours, theirs]
    times: list[list[float]] = [[] for _ in calls]
    stop = time.perf_counter() + _SECONDS_PER_ROW
    while not times[0] or (time.perf_counter() < stop and len(times[0]) < _MAX_REPETITIONS):
        for call, kept in zip(calls, times, strict=True):
            kept.append(_time_call(call, device))
    medians = [statistics.median(kept) for kept in times]
    return medians[0], medians[1] if theirs is not None else None


def _error_text(error: float, exact: bool) -> str:
    return "exact" if exact and error == 0 else f"{error:.1e}"


class _Demo:
    """Runs rows on one device into one table, and counts the failed checks."""

    def __init__(self, device: torch.device, title: str) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(SEED)
        self.failures = 0
        self.figures: list[dict[str, Any]] = []
        self.table = Table(
            title,
            (
                "operation",
                "dtype",
                "algorithm",
                "check",
                "error",
                "PyTorch's",
                "time",
                "PyTorch's time",
                "ratio",
                "verdict",
            ),
            frozenset({"error", "PyTorch's", "time", "PyTorch's time", "ratio"}),
        )

    def _row(
        self,
        name: str,
        dtype: torch.dtype,
        algorithm: str,
        passed: bool,
        error: float,
        baseline_error: float | None,
        ours: float,
        theirs: float | None,
        exact: bool,
    ) -> None:
        self.failures += not passed
        ratio = None if theirs is None else theirs / ours
        self.figures.append(
            {
                "operation": name,
                "dtype": str(dtype).removeprefix("torch."),
                "algorithm": algorithm,
                "right": passed,
                "error": _finite(error),
                "baseline_error": None if baseline_error is None else _finite(baseline_error),
                "seconds": ours,
                "baseline_seconds": theirs,
            }
        )
        self.table.add(
            name,
            str(dtype).removeprefix("torch."),
            algorithm,
            "ok" if passed else "WRONG",
            _error_text(error, exact),
            "-" if baseline_error is None else _error_text(baseline_error, exact),
            duration(ours),
            "refused" if theirs is None else duration(theirs),
            "-" if ratio is None else f"{ratio:.2f}",
            verdict(ratio),
            style=verdict_style(ratio) if passed else "bold red",
        )

    def product(self, case: _Product) -> None:
        a = random_matrix(
            case.k if case.transposed else case.m,
            case.m if case.transposed else case.k,
            case.dtype,
            self.device,
            self.generator,
            k=case.k,
        )
        a = a.t() if case.transposed else a
        b = random_matrix(case.k, case.n, case.dtype, self.device, self.generator, k=case.k)
        name = f"{case.m}x{case.k}{' (transposed)' if case.transposed else ''} @ {case.k}x{case.n}"
        reference = MatmulReference(a, b)
        baseline: Tensor | None = None
        # PyTorch has no integer products on CUDA.
        if not (is_integer(case.dtype) and self.device.type == "cuda"):
            baseline = torch.mm(a, b)
        theirs = None if baseline is None else (lambda: torch.mm(a, b))
        ladder = algorithms("tiled_matmul", self.device, case.dtype) if case.ladder else []
        for algorithm in [*ladder, "auto"]:
            ours = partial(tiled_matmul, a, b, algorithm=algorithm)
            result, first = _first_call(ours, self.device)
            judged = reference.judge(result)
            seconds, their_seconds = _time_pair(ours, theirs, self.device, first)
            baseline_error = None if baseline is None else reference.judge(baseline).error
            self._row(
                name,
                case.dtype,
                algorithm,
                judged.passed,
                judged.error,
                baseline_error,
                seconds,
                their_seconds,
                is_integer(case.dtype),
            )

    def transpose(self, case: _Transpose) -> None:
        x = random_matrix(case.m, case.n, case.dtype, self.device, self.generator)
        ladder = algorithms("padded_transpose", self.device, case.dtype) if case.ladder else []
        x.t().contiguous()
        for algorithm in [*ladder, "auto"]:
            ours = partial(padded_transpose, x, algorithm=algorithm)
            result, first = _first_call(ours, self.device)
            judged = judge_transpose(result, x)
            seconds, theirs = _time_pair(ours, lambda: x.t().contiguous(), self.device, first)
            self._row(
                f"{case.m}x{case.n} transposed",
                case.dtype,
                algorithm,
                judged.passed,
                judged.error,
                0.0,
                seconds,
                theirs,
                True,
            )


def _finite(error: float) -> float | None:
    """JSON has no infinity and no NaN, which results that are wrong can have."""
    return error if math.isfinite(error) else None


def run(as_json: bool = False) -> int:
    """Runs the demonstration; returns 1 if a result is wrong, else 0."""
    start = time.perf_counter()
    no_cuda = no_cuda_reason()
    devices = [torch.device("cpu")] + ([torch.device("cuda", 0)] if no_cuda is None else [])
    failures = rows = 0
    shown: list[dict[str, Any]] = []
    for device in devices:
        on_gpu = device.type == "cuda"
        where = torch.cuda.get_device_name(device) if on_gpu else f"{cpu_model()}, {torch.get_num_threads()} thread(s)"
        products = _PRODUCTS + (_PRODUCTS_CUDA if on_gpu else ())
        transposes = _TRANSPOSES + (_TRANSPOSES_CUDA if on_gpu else ())
        product_demo = _Demo(device, f"tiled_matmul beside torch.mm on {where}")
        for product in products:
            product_demo.product(product)
        if not as_json:
            product_demo.table.print()
        transpose_demo = _Demo(device, f"padded_transpose beside x.t().contiguous() on {where}")
        for transpose in transposes:
            transpose_demo.transpose(transpose)
        if not as_json:
            transpose_demo.table.print()
        for op, done in (("tiled_matmul", product_demo), ("padded_transpose", transpose_demo)):
            shown.append({"op": op, "device": device.type, "name": where, "rows": done.figures})
        failures += product_demo.failures + transpose_demo.failures
        rows += len(product_demo.table.rows) + len(transpose_demo.table.rows)
    if as_json:
        print_json({"results": rows, "wrong": failures, "no_cuda": no_cuda, "tables": shown})
        return 1 if failures else 0
    if no_cuda is not None:
        print(f"The CPU alone was shown: {no_cuda}.")
    print("error: ||c - reference|| / ||reference|| against float64; integers and transposes must be exact.")
    print(
        "ratio: PyTorch's time divided by ours: above 1 we are faster. Caches are warm; `bench` clears those of a GPU."
    )
    print(f"{rows - failures} of {rows} results are right ({time.perf_counter() - start:.0f} s).")
    return 1 if failures else 0
