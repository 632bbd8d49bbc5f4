#!/usr/bin/env python3
"""PyTorch's own OpInfo checks of its products, with the switch off and with it on, counted beside each other.

    python benchmarks/opinfo_switch.py [--device cpu|cuda] [--jobs N] [--json FILE]

Operators, dtypes, samples, error inputs and tolerances are those of the installed torch.testing._internal. Each check
runs once on PyTorch's kernels and once on ours; the exit code is 1 if one passes with the switch off alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import torch_pmpp

OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear", "einsum")
Check = Callable[[], None]


@dataclass(frozen=True)
class Count:
    """How many checks of one operator and dtype passed and failed; `only_off` names those that the switch broke."""

    op: str
    dtype: str
    off_passed: int
    off_failed: int
    on_passed: int
    on_failed: int
    only_off: tuple[str, ...]


def _opinfos() -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.name in OPERATORS:
            yield op


def _close(actual: Any, expected: Any, dtype: torch.dtype) -> None:
    """Within ten times PyTorch's default tolerances: operands are as large as 9, and sums have 5 to 10 terms."""
    rtol, atol = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (4e-2, 4e-2)}.get(dtype, (1.3e-5, 1e-4))
    if dtype in (torch.float64, torch.complex128):
        rtol, atol = 1e-6, 1e-6
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def _wide(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
        return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
    if isinstance(x, (list, tuple)):
        return type(x)(_wide(item) for item in x)
    return x


def _reference(op: Any, sample: Any, result: torch.Tensor) -> None:
    with torch.no_grad():
        expected = op(_wide(sample.input), *_wide(tuple(sample.args)), **sample.kwargs)
    if expected.dtype != result.dtype:
        expected = expected.to(result.dtype)
    _close(result.detach(), expected, result.dtype)


def _checks(op: Any, device: str, dtype: torch.dtype) -> Iterator[tuple[str, Check]]:
    differentiable = dtype in op.supported_backward_dtypes(device)

    def samples(**options: Any) -> list[Any]:
        torch.manual_seed(0)
        return list(op.sample_inputs(device, dtype, **options))

    for index, sample in enumerate(samples(requires_grad=False)):

        def value(sample: Any = sample) -> None:
            _reference(op, sample, op(sample.input, *sample.args, **sample.kwargs))

        def noncontiguous(sample: Any = sample) -> None:
            moved = sample.noncontiguous()
            _reference(op, moved, op(moved.input, *moved.args, **moved.kwargs))

        def out(sample: Any = sample) -> None:
            expected = op(sample.input, *sample.args, **sample.kwargs)
            outs = [torch.empty_like(expected)]
            if expected.dim() >= 2:
                outs.append(torch.empty_like(expected.mT.contiguous()).mT)
            for strided in outs:
                version = strided._version
                returned = op(sample.input, *sample.args, **sample.kwargs, out=strided)
                assert returned is strided
                assert expected.numel() == 0 or strided._version > version
                _close(strided, expected, dtype)

        yield f"value {index}", value
        yield f"noncontiguous {index}", noncontiguous
        if op.supports_out and sample.input is not None:
            yield f"out {index}", out

    if differentiable:
        for index, sample in enumerate(samples(requires_grad=True)):

            def gradients(sample: Any = sample) -> None:
                def leaves(x: Any) -> list[torch.Tensor]:
                    if isinstance(x, torch.Tensor):
                        return [x] if x.requires_grad else []
                    return [leaf for item in x for leaf in leaves(item)] if isinstance(x, (list, tuple)) else []

                inputs = leaves([sample.input, *sample.args])
                result = op(sample.input, *sample.args, **sample.kwargs)
                if not inputs or not result.requires_grad:
                    return
                seed = torch.ones_like(result)
                ours = torch.autograd.grad(result, inputs, seed, create_graph=True, allow_unused=True)
                assert all(g is None or g.shape == x.shape for g, x in zip(ours, inputs, strict=True))
                if dtype in (torch.float64, torch.complex128):

                    def call(*values: torch.Tensor) -> Any:
                        rest = iter(values)

                        def put(x: Any) -> Any:
                            if isinstance(x, torch.Tensor):
                                return next(rest) if x.requires_grad else x
                            return type(x)(put(item) for item in x) if isinstance(x, (list, tuple)) else x

                        first, *others = (put(item) for item in (sample.input, *sample.args))
                        return op(first, *others, **sample.kwargs)

                    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=op.supports_forward_ad)
                    assert torch.autograd.gradgradcheck(call, inputs)

            yield f"gradients {index}", gradients

    if op.error_inputs_func is not None and dtype == torch.float32:
        for index, error in enumerate(op.error_inputs(device)):

            def refused(error: Any = error) -> None:
                sample = error.sample_input
                with unittest.TestCase().assertRaisesRegex(error.error_type, error.error_regex):  # noqa: PT027
                    op(sample.input, *sample.args, **sample.kwargs)

            yield f"error {index}", refused


def _unsupported(op: Any, device: str, dtype: torch.dtype) -> Iterator[tuple[str, Check]]:
    """A dtype that the list leaves out must be refused; samples are cast, as they cannot be asked for in it."""
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs(device, torch.float32, requires_grad=False)):
        if sample.input.numel() == 0 if isinstance(sample.input, torch.Tensor) else True:
            continue

        def refused(sample: Any = sample) -> None:
            cast = sample.transform(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) else x)
            try:
                op(cast.input, *cast.args, **cast.kwargs)
            except RuntimeError:
                return
            raise AssertionError(f"{op.name} ran in {dtype}, which its list leaves out")

        yield f"refused {index}", refused
        return


def _run(check: Check) -> bool:
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check()
    except Exception:
        return False
    return True


DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


def compare(
    device: str, operators: tuple[str, ...] = OPERATORS, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> list[Count]:
    """Runs every check twice; one entry for each operator and dtype."""
    counts = []
    for op in _opinfos():
        if op.name not in operators:
            continue
        supported = op.supported_dtypes(device)
        for dtype in dtypes:
            source = _checks if dtype in supported else _unsupported
            off, on = {}, {}
            for name, check in source(op, device, dtype):
                off[name] = _run(check)
                with torch_pmpp.replace_mm(device):
                    on[name] = _run(check)
            if not off:
                continue
            label = op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")
            counts.append(
                Count(
                    label,
                    str(dtype).removeprefix("torch."),
                    sum(off.values()),
                    len(off) - sum(off.values()),
                    sum(on.values()),
                    len(on) - sum(on.values()),
                    tuple(name for name in off if off[name] and not on[name]),
                )
            )
    return counts


def _compare_one(device: str, operator: str) -> tuple[list[Count], torch_pmpp.Stats]:
    torch_pmpp.reset_stats()
    return compare(device, (operator,)), torch_pmpp.stats()


def compare_in_parallel(device: str, jobs: int) -> tuple[list[Count], torch_pmpp.Stats]:
    """The same in several processes, each of which has a switch of its own, with the sum of what they counted."""
    counts: list[Count] = []
    total = torch_pmpp.Stats()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for found, stats in pool.map(_compare_one, [device] * len(OPERATORS), OPERATORS):
            counts += found
            for name in ("kernels", "taken", "fallbacks"):
                for key, count in getattr(stats, name).items():
                    getattr(total, name)[key] = getattr(total, name).get(key, 0) + count
    return counts, total


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns 1 if the switch made a check fail."""
    parser = argparse.ArgumentParser(description="PyTorch's OpInfo checks with the switch off and on.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="also write the counts there")
    parser.add_argument("--jobs", type=int, default=1, help="operators at a time, each in its process (1)")
    options = parser.parse_args(arguments)
    counts, stats = compare_in_parallel(options.device, max(1, options.jobs))
    print(f"{'operator':24} {'dtype':12} {'off passed':>10} {'failed':>7} {'on passed':>10} {'failed':>7}")
    for count in counts:
        print(
            f"{count.op:24} {count.dtype:12} {count.off_passed:>10} {count.off_failed:>7} "
            f"{count.on_passed:>10} {count.on_failed:>7}  {', '.join(count.only_off)}".rstrip()
        )
    total = [sum(getattr(c, name) for c in counts) for name in ("off_passed", "off_failed", "on_passed", "on_failed")]
    print(f"{'all':24} {'':12} {total[0]:>10} {total[1]:>7} {total[2]:>10} {total[3]:>7}")
    print(stats)
    if options.json:
        options.json.write_text(
            json.dumps(
                {"device": options.device, "torch": torch.__version__, "counts": [asdict(c) for c in counts]}, indent=1
            )
            + "\n",
            encoding="utf-8",
        )
    broken = sum(len(c.only_off) for c in counts)
    if broken:
        print(f"{broken} checks fail only with the switch on", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
