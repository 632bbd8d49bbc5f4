#!/usr/bin/env python3
"""Checks of PyTorch's products on its own OpInfo entries, with the switch off and on, counted beside each other.

    python benchmarks/opinfo_switch.py [--device cpu|cuda] [--jobs N] [--gpus N] [--json FILE] [--max-seconds S]

Operators, dtypes, samples and error inputs are those of the installed torch.testing._internal; values are compared
with float64, within ten times PyTorch's default tolerances, and gradients by its gradcheck and gradgradcheck. Each
check runs once on PyTorch's kernels and once on ours; the exit code is 1 if one passes with the switch off alone.

The checks are run in parts: those of an operator and dtype, or a share of them where gradients are checked by
differences, which takes longest. FILE is written after each part and names those that are missing; a run of the same
sources with the same FILE goes on with them. The exit code is 3 if parts that were asked for are missing at the end.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import os
import sys
import time
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# First on the path: other distributions are known to install a top-level `benchmarks`.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from benchmarks.arguments import Parser, names, positive  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402

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

    @property
    def checks(self) -> int:
        """How many checks there were."""
        return self.off_passed + self.off_failed

    def __add__(self, other: Count) -> Count:
        return Count(
            self.op,
            self.dtype,
            self.off_passed + other.off_passed,
            self.off_failed + other.off_failed,
            self.on_passed + other.on_passed,
            self.on_failed + other.on_failed,
            tuple(sorted({*self.only_off, *other.only_off})),
        )


@dataclass(frozen=True)
class Part:
    """Checks that one process runs in one go: those of an operator and dtype, every `of`-th from `index` on."""

    op: str
    variant: str  # of the operator, as OpInfo names it; mostly empty
    dtype: str
    index: int = 0
    of: int = 1

    @property
    def label(self) -> str:
        """The operator, with its variant."""
        return self.op + (f" ({self.variant})" if self.variant else "")

    def __str__(self) -> str:
        return f"{self.label} {self.dtype}" + (f" {self.index + 1}/{self.of}" if self.of > 1 else "")


def _opinfos() -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.name in OPERATORS:
            yield op


# Gradients of these are checked by differences: of all the time that a device takes, they take most.
SLOW_DTYPES = ("float64", "complex128")
SLOW_PARTS = 8


def plan() -> list[Part]:
    """All parts, those that take longest first."""
    found = []
    for op in _opinfos():
        for dtype in map(_name, DTYPES):
            of = SLOW_PARTS if dtype in SLOW_DTYPES else 1
            found += [Part(op.name, op.variant_test_name, dtype, index, of) for index in range(of)]
    return sorted(found, key=lambda part: part.dtype not in SLOW_DTYPES)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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


def run_part(device: str, part: Part, until: float = float("inf")) -> Count | None:
    """Runs each check of a part twice; None if time.time() passes `until` before the last one."""
    if time.time() > until:
        return None
    (op,) = (op for op in _opinfos() if (op.name, op.variant_test_name) == (part.op, part.variant))
    dtype = getattr(torch, part.dtype)
    source = _checks if dtype in op.supported_dtypes(device) else _unsupported
    off, on = {}, {}
    for name, check in itertools.islice(source(op, device, dtype), part.index, None, part.of):
        if time.time() > until:
            return None
        off[name] = _run(check)
        with torch_pmpp.replace_mm(device):
            on[name] = _run(check)
    return Count(
        part.label,
        part.dtype,
        sum(off.values()),
        len(off) - sum(off.values()),
        sum(on.values()),
        len(on) - sum(on.values()),
        tuple(name for name in off if off[name] and not on[name]),
    )


def compare(
    device: str, operators: tuple[str, ...] = OPERATORS, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> list[Count]:
    """Runs every check twice; one entry for each operator and dtype."""
    counts = []
    for op in _opinfos():
        if op.name in operators:
            for dtype in dtypes:
                count = run_part(device, Part(op.name, op.variant_test_name, _name(dtype)))
                if count is not None and count.checks:
                    counts.append(count)
    return counts


# ---- in several processes


def _begin(started: Any, jobs: int, gpus: int) -> None:
    """Called once in each process: gives it its share of the cores, and one of the GPUs."""
    with started.get_lock():
        index = started.value
        started.value += 1
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // jobs))
    if gpus:
        torch.cuda.set_device(index % gpus)


def _run_in_process(device: str, part: Part, until: float) -> tuple[Count | None, torch_pmpp.Stats]:
    torch_pmpp.reset_stats()
    return run_part(device, part, until), torch_pmpp.stats()


@dataclass
class Record:
    """What has been run: counts by operator and dtype, and the parts that are missing. Kept in a file."""

    device: str
    missing: list[Part]
    path: Path | None = None
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)

    @classmethod
    def open(cls, device: str, path: Path | None) -> Record:
        """What an earlier run with the same sources left in the file; else a record in which all is missing."""
        record = cls(device, plan(), path)
        try:
            content = json.loads(path.read_text(encoding="utf-8")) if path else {}
            if all(content[name] == value for name, value in record._header().items()):
                missing = set(content["missing"])
                found = [Count(**{**count, "only_off": tuple(count["only_off"])}) for count in content["counts"]]
                record.missing = [part for part in record.missing if str(part) in missing]
                record.counts = {(count.op, count.dtype): count for count in found}
        except (OSError, ValueError, KeyError, TypeError):
            return cls(device, plan(), path)
        return record

    def _header(self) -> dict[str, Any]:
        return {"device": self.device, "torch": torch.__version__, "source_digest": source_digest(ROOT)}

    def add(self, part: Part, count: Count) -> None:
        """Adds what a part counted, and writes the file."""
        self.missing.remove(part)
        key = (count.op, count.dtype)
        self.counts[key] = self.counts[key] + count if key in self.counts else count
        self.write()

    def ordered(self) -> list[Count]:
        """Counts as the operators and dtypes are listed; those without a check are left out."""
        order = list(dict.fromkeys((op.name, op.variant_test_name) for op in _opinfos()))
        keys = [(Part(*op, _name(dtype)).label, _name(dtype)) for op in order for dtype in DTYPES]
        return [self.counts[key] for key in keys if key in self.counts and self.counts[key].checks]

    def write(self) -> None:
        """Writes the file, if there is one, so that whatever ends the run leaves the last one whole."""
        if self.path is None:
            return
        content = {
            **self._header(),
            "missing": [str(part) for part in self.missing],
            "counts": [asdict(count) for count in self.ordered()],
        }
        partial = self.path.with_name(self.path.name + ".part")
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)


def run_parts(record: Record, parts: Sequence[Part], jobs: int, gpus: int, until: float) -> torch_pmpp.Stats:
    """Runs parts in several processes, each of which has a switch of its own, and adds them to the record.

    Returns the sum of what the switches counted. A part that raises is left missing and named.
    """
    total = torch_pmpp.Stats()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_begin, initargs=(context.Value("i", 0), jobs, gpus)
    ) as pool:
        running = {pool.submit(_run_in_process, record.device, part, until): part for part in parts}
        for future in concurrent.futures.as_completed(running):
            try:
                count, stats = future.result()
            except concurrent.futures.BrokenExecutor as error:
                print(f"a process has died: {error}", file=sys.stderr)
                break
            except Exception as error:
                print(f"{running[future]}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            if count is None:
                continue
            record.add(running[future], count)
            for name in ("kernels", "taken", "fallbacks"):
                for key, calls in getattr(stats, name).items():
                    getattr(total, name)[key] = getattr(total, name).get(key, 0) + calls
    return total


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = Parser(prog="opinfo_switch", description="PyTorch's OpInfo checks with the switch off and on.")
    result.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    result.add_argument("--json", type=Path, help="also write the counts there, after each part; go on with that file")
    result.add_argument("--jobs", type=int, default=1, help="parts at a time, each in its process (1)")
    result.add_argument("--gpus", type=int, default=1, help="GPUs over which the processes are spread (1)")
    result.add_argument("--operators", type=names(OPERATORS), default=list(OPERATORS), help="only these, as mm,addmm")
    result.add_argument(
        "--dtypes",
        type=names([_name(dtype) for dtype in DTYPES]),
        default=[_name(dtype) for dtype in DTYPES],
        help="only these, as float32,int8",
    )
    result.add_argument("--max-seconds", type=positive, metavar="S", help="start no check after this time")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns 1 if the switch made a check fail, 3 if parts are missing that were asked for."""
    start = time.time()
    options = parser().parse_args(arguments)
    gpus = options.gpus if options.device == "cuda" else 0
    if gpus > torch.cuda.device_count():
        print(f"opinfo_switch: --gpus is {gpus}, but there are {torch.cuda.device_count()}", file=sys.stderr)
        return 2
    record = Record.open(options.device, options.json)
    chosen = [part for part in record.missing if part.op in options.operators and part.dtype in options.dtypes]
    if record.counts:
        print(f"going on with {options.json}: {len(chosen)} of {len(plan())} parts are to be run")
    until = start + options.max_seconds if options.max_seconds else float("inf")
    stats = run_parts(record, chosen, max(1, options.jobs), gpus, until)
    counts = record.ordered()
    print(f"{'operator':24} {'dtype':12} {'off passed':>10} {'failed':>7} {'on passed':>10} {'failed':>7}")
    for count in counts:
        print(
            f"{count.op:24} {count.dtype:12} {count.off_passed:>10} {count.off_failed:>7} "
            f"{count.on_passed:>10} {count.on_failed:>7}  {', '.join(count.only_off)}".rstrip()
        )
    total = [sum(getattr(c, name) for c in counts) for name in ("off_passed", "off_failed", "on_passed", "on_failed")]
    print(f"{'all':24} {'':12} {total[0]:>10} {total[1]:>7} {total[2]:>10} {total[3]:>7}")
    print(stats)
    left = [part for part in chosen if part in record.missing]
    if left:
        print(f"{len(left)} of {len(chosen)} parts are missing: {', '.join(map(str, left))}", file=sys.stderr)
    broken = sum(len(c.only_off) for c in counts)
    if broken:
        print(f"{broken} checks fail only with the switch on", file=sys.stderr)
    return 1 if broken else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
