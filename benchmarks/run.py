#!/usr/bin/env python3
"""Runs the case list on one device and writes benchmarks/results/<gpu>.json or cpu-<model>.json.

`--isa avx2` holds everything on a CPU to an instruction set, our kernels and PyTorch's libraries alike, as if the
processor had no other, and writes cpu-<model>-avx2.json.

Every record is checked against float64 in the same run and saved as soon as it is measured; the same command goes
on where an interrupted run stopped. How times are taken is in timing.py, what is measured in cases.py.

The roof of a record (mode "call" only) is max(FLOPs / datasheet peak, bytes / copy rate), with the rate of a plain
copy of the same number of bytes measured in the same run. It is null for products whose peak no datasheet states
(all on a CPU, wide integers): the copy alone would be a roof far above what any arithmetic can reach. A transpose's
roof is its copy.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from benchmarks import cases, machine, report, timing  # noqa: E402
from benchmarks.arguments import Parser, counts, names, positive  # noqa: E402
from benchmarks.cases import Case  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.results import Record, Results, key_of, significant, write_atomically  # noqa: E402
from torch_pmpp._library import no_cuda_reason  # noqa: E402
from torch_pmpp._reference import (  # noqa: E402
    Judgement,
    MatmulReference,
    is_integer,
    judge_transpose,
    random_matrix,
)
from torch_pmpp._text import duration, is_fancy, verdict  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
SEED = 20240229
# Multiply-adds of a float64 reference (there are two, one for the bound): about 3 ms on an H200, 0.1 s on two CPU
# cores. Beyond it a random choice of rows is checked.
_REFERENCE_MULTIPLY_ADDS = {"cuda": 4e10, "cpu": 1e9}
# Share of free memory that operands, results, reference and copy buffers may take.
_MEMORY_SHARE = 0.8
# Rates for the estimate, and for leaving out what would take too long on a CPU: FLOP/s of the slower side.
# PyTorch's 16-bit and int64 products do about 1e9 on two cores without AVX-512.
_CUDA_FLOPS = 4e12
_CPU_FLOPS = {
    "float32": 4e10,
    "float64": 2e10,
    "complex64": 2e10,
    "complex128": 1e10,
    "float16": 1e9,
    "bfloat16": 1e9,
    "int64": 4e8,
}
_CPU_FLOPS_OTHER = 4e9
_CPU_NAIVE_FLOPS = 2e8
_CPU_BYTES = 1e9
# What holds PyTorch's own kernels, MKL, oneDNN and ours to an instruction set. Each reads its variable once, when it is
# first used or loaded.
ISA_VARIABLES = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "PMPP_CPU_ISA": "avx2",
    },
}
_MAX_ERRORS_IN_A_ROW = 5  # after that the device is taken to be lost


class Skip(Exception):
    """A case that cannot be measured here, with the reason; no failure."""


class WrongResult(Exception):
    """A result outside its error bound. No figure of a wrong result is ever recorded."""


@contextlib.contextmanager
def _float32_mode(precision: str | None) -> Iterator[None]:
    """PyTorch's switch for float32 products on CUDA, as it was afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _matrix(rows: int, columns: int, case: Case, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, case.dtype)
    if case.offset == 0:
        return random_matrix(rows, columns, dtype, device, generator, k=max(case.k, 1))
    flat = random_matrix(1, rows * columns + case.offset, dtype, device, generator, k=max(case.k, 1))[0]
    return flat[case.offset :].view(rows, columns)


def matmul_operands(case: Case, device: torch.device, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of shapes (m, k) and (k, n); a "T" in the layout makes one a transposed view."""
    a = (
        _matrix(case.k, case.m, case, device, generator).t()
        if case.layout[0] == "T"
        else _matrix(case.m, case.k, case, device, generator)
    )
    b = (
        _matrix(case.n, case.k, case, device, generator).t()
        if case.layout[1] == "T"
        else _matrix(case.k, case.n, case, device, generator)
    )
    return a, b


def transpose_operand(case: Case, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """An (m, n) matrix: contiguous, with 16 unused elements after each row, transposed, or every second column."""
    if case.layout == "pitched":
        return _matrix(case.m, case.n + 16, case, device, generator)[:, : case.n]
    if case.layout == "transposed":
        return _matrix(case.n, case.m, case, device, generator).t()
    if case.layout == "strided":
        return _matrix(case.m, 2 * case.n, case, device, generator)[:, ::2]
    return _matrix(case.m, case.n, case, device, generator)


def reference_rows(case: Case, device: torch.device) -> torch.Tensor | None:
    """Rows of a product to check: all (None) while that is cheap, else a random choice with the first and the last."""
    count = max(64, int(_REFERENCE_MULTIPLY_ADDS[device.type] / max(case.n * case.k, 1)))
    if count >= case.m:
        return None
    chosen = torch.randperm(case.m, generator=torch.Generator().manual_seed(SEED))[:count]
    return torch.cat([chosen, torch.tensor([0, case.m - 1])]).unique().to(device)


def estimated_call(case: Case, device: torch.device) -> float:
    """Seconds of one call of the slower side, roughly."""
    if device.type == "cuda":
        return case.flops / _CUDA_FLOPS + case.bytes / 1e11
    rate = _CPU_NAIVE_FLOPS if case.algorithm == "naive" else _CPU_FLOPS.get(case.dtype, _CPU_FLOPS_OTHER)
    return case.flops / rate + case.bytes / _CPU_BYTES


def estimated_case(case: Case, device: torch.device, budget: float) -> float:
    """Seconds of a whole case: data, reference, check, warm-up and repetitions."""
    calls = timing.MIN_REPETITIONS + 3
    return 0.3 + max(budget, calls * estimated_call(case, device))


class Bench:
    """Measures cases on one device."""

    def __init__(self, device: torch.device, budget: float) -> None:
        self.device = device
        self.budget = budget
        self.gpu = machine.device_name(device) if device.type == "cuda" else None
        self._copy_seconds: dict[int, float] = {}
        self.available = cache(lambda op, dtype: torch_pmpp.algorithms(op, device, getattr(torch, dtype)))

    def _time(self, case: Case, calls: Sequence[timing.Call]) -> list[float]:
        if self.device.type == "cpu":
            return timing.time_cpu(calls, budget=self.budget)
        how = {"call": timing.time_cuda, "graph": timing.time_graph, "host": timing.time_host}[case.mode]
        return how(calls, budget=self.budget)

    def _copy_call(self, size: int) -> timing.Call:
        """A copy that reads and writes `size` bytes together."""
        source = torch.randint(0, 256, (max(size // 2, 1),), dtype=torch.uint8, device=self.device)
        return partial(torch.empty_like(source).copy_, source)

    def copy_seconds(self, size: int) -> float:
        """Time of a copy that moves `size` bytes, measured once a run."""
        if size not in self._copy_seconds:
            time_it = timing.time_cuda if self.device.type == "cuda" else timing.time_cpu
            self._copy_seconds[size] = time_it([self._copy_call(size)], budget=self.budget / 10)[0]
        return self._copy_seconds[size]

    def _check_possible(self, case: Case) -> None:
        names = self.available(case.op, case.dtype)
        if case.algorithm != "auto" and case.algorithm not in names:
            raise Skip(f"algorithm {case.algorithm} is not available for {case.dtype} here ({', '.join(names)})")
        # Operands and both results, the copy's buffers, and (products) widened operands and their absolute values.
        widened = 0
        if case.op == "tiled_matmul":
            per_element = 16 if case.dtype.startswith("complex") else 8
            rows = min(case.m, max(64, int(_REFERENCE_MULTIPLY_ADDS[self.device.type] / max(case.n * case.k, 1))))
            widened = 2 * per_element * (rows * case.k + case.k * case.n + 2 * rows * case.n)
        needed = 3 * case.bytes + widened
        free = _free_memory()
        if self.device.type == "cuda":
            # What PyTorch keeps for reuse is free for us, but in pieces: give it back where it matters.
            free = torch.cuda.mem_get_info(self.device)[0]
            if needed > _MEMORY_SHARE * free:
                torch.cuda.empty_cache()
                free = torch.cuda.mem_get_info(self.device)[0]
        if free is not None and needed > _MEMORY_SHARE * free:
            raise Skip(f"needs about {needed / 2**30:.0f} GiB, {free / 2**30:.0f} GiB are free")

    def measure(self, case: Case) -> Record:
        """One record; raises Skip, WrongResult, or whatever the operator raises."""
        self._check_possible(case)
        generator = torch.Generator(self.device).manual_seed(SEED)
        with _float32_mode(case.precision):
            return self._matmul(case, generator) if case.op == "tiled_matmul" else self._transpose(case, generator)

    def _matmul(self, case: Case, generator: torch.Generator) -> Record:
        a, b = matmul_operands(case, self.device, generator)
        ours = partial(torch.ops.pmpp.tiled_matmul.default, a, b, algorithm=case.algorithm)
        # PyTorch refuses integer products on CUDA: no baseline then.
        has_baseline = not (self.device.type == "cuda" and is_integer(a.dtype))
        theirs = partial(torch.mm, a, b)
        reference = MatmulReference(a, b, rows=reference_rows(case, self.device), tf32=case.precision == "tf32")
        judged = reference.judge(ours())
        baseline = reference.judge(theirs()) if has_baseline else None
        del reference
        _require_right(judged, case)
        times = self._time(case, [ours, theirs] if has_baseline else [ours])
        roof = None
        peak = machine.peak_flops(self.gpu, case.dtype, case.precision)
        if case.mode == "call" and peak is not None:
            roof = max(case.flops / peak, self.copy_seconds(case.bytes))
        plan = torch.ops.pmpp._tiled_matmul_plan(a, b, algorithm=case.algorithm)
        return self._record(
            case,
            plan,
            times[0],
            "torch.mm" if has_baseline else None,
            times[1] if has_baseline else None,
            roof,
            judged,
            baseline,
        )

    def _transpose(self, case: Case, generator: torch.Generator) -> Record:
        x = transpose_operand(case, self.device, generator)
        ours = partial(torch.ops.pmpp.padded_transpose.default, x, algorithm=case.algorithm)
        if x.t().is_contiguous():
            # contiguous() would return the view and do nothing, where the operator promises fresh memory.
            name, theirs = "x.t().clone()", lambda: x.t().clone(memory_format=torch.contiguous_format)
        else:
            name, theirs = "x.t().contiguous()", lambda: x.t().contiguous()
        judged = judge_transpose(ours(), x)
        _require_right(judged, case)
        calls: list[Callable[[], object]] = [ours, theirs]
        copy = None
        if case.mode == "call":
            calls.append(self._copy_call(case.bytes))
            times = self._time(case, calls)
            copy = times[2]
        else:
            times = self._time(case, calls)
        plan = torch.ops.pmpp._padded_transpose_plan(x, algorithm=case.algorithm)
        record = self._record(case, plan, times[0], name, times[1], copy, judged, Judgement(True, 0.0))
        record["copy_us"] = significant(None if copy is None else copy * 1e6)
        record["copy_fraction"] = significant(None if copy is None else copy / times[0])
        return record

    def _record(
        self,
        case: Case,
        plan: str,
        ours: float,
        baseline: str | None,
        theirs: float | None,
        roof: float | None,
        judged: Judgement,
        baseline_judged: Judgement | None,
    ) -> Record:
        return key_record(case, self.device) | {
            "plan": plan,
            "ours_us": significant(ours * 1e6),
            "baseline": baseline,
            "baseline_us": significant(None if theirs is None else theirs * 1e6),
            "ratio": significant(None if theirs is None else theirs / ours),
            "roof_us": significant(None if roof is None else roof * 1e6),
            "roof_fraction": significant(None if roof is None else roof / ours),
            "error": significant(judged.error, 3),
            "baseline_error": None if baseline_judged is None else significant(baseline_judged.error, 3),
        }


def _require_right(judged: Judgement, case: Case) -> None:
    if not judged.passed:
        raise WrongResult(f"{case.name}: error {judged.error:.3e} is outside the bound")


def _free_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def key_record(case: Case, device: torch.device) -> Record:
    """The fields of a record that say what is measured."""
    fields: Record = {
        "op": case.op,
        "device": device.type,
        "dtype": case.dtype,
        "element_size": case.element_size,
        "precision": case.precision,
        "layout": case.layout,
        "offset": case.offset,
        "m": case.m,
        "n": case.n,
    }
    if case.op == "tiled_matmul":
        fields["k"] = case.k
    return fields | {
        "batch": case.batch,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "mode": case.mode,
        "algorithm": case.algorithm,
    }


def is_held_to(isa: str) -> bool:
    """Whether PyTorch and our kernels obey the variables of the instruction set; MKL and oneDNN do not say."""
    x = torch.zeros(16, 16)
    try:
        plan = torch.ops.pmpp._tiled_matmul_plan(x, x, algorithm="blocked")
    except ValueError:  # the machine does not have it
        return False
    return isa in plan.split() and torch.backends.cpu.get_cpu_capability() == isa.upper()


def header(device: torch.device, isa: str | None = None) -> dict[str, Any]:
    """Facts about this run. `source_digest` is that of the binary that is loaded, which is what gets measured."""
    on_gpu = device.type == "cuda"
    facts: dict[str, Any] = {
        "gpu": machine.device_name(device) if on_gpu else None,
        "driver": machine.driver_version() if on_gpu else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "source_digest": torch_pmpp.build_info.source_digest,
    }
    if on_gpu:
        return facts
    facts |= {"cpu": machine.device_name(device), "simd": torch.backends.cpu.get_cpu_capability()}
    return facts if isa is None else facts | {"isa": isa}


class Progress:
    """A bar on a terminal, above it (or alone, elsewhere) a line for each case."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._bar: Any = None
        self._task: Any = None
        if is_fancy():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, name: str) -> None:
        """Says what runs now."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def finish(self, text: str) -> None:
        """One case is over."""
        self.done += 1
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
            self._bar.advance(self._task)
        else:
            print(f"[{self.done}/{self.total}] {text}", flush=True)


def line_of(case: Case, record: Record) -> str:
    """A record for the progress display."""
    ours, theirs = (None if us is None else us * 1e-6 for us in (record["ours_us"], record["baseline_us"]))
    text = f"{case.name}: {duration(ours)}"
    text += (
        f", {record['baseline']} {duration(theirs)}, {verdict(record['ratio'])}"
        if record["baseline"]
        else ", no baseline"
    )
    if record["roof_fraction"] is not None:
        text += f", {record['roof_fraction']:.1%} of the roof"
    return text


def parser() -> argparse.ArgumentParser:
    """The command line. Lists are separated by commas."""
    ladders = (cases.MATMUL_LADDER, cases.HALF_LADDER, cases.TRANSPOSE_LADDER)
    known = sorted({name for ladder in ladders for names_of_device in ladder.values() for name in names_of_device})
    result = Parser(prog="bench", description="Run the benchmark cases and keep the figures in a results file.")
    result.add_argument(
        "--op",
        type=names(("tiled_matmul", "padded_transpose")),
        default=[],
        metavar="OP[,OP]",
        help="tiled_matmul, padded_transpose (default: both)",
    )
    result.add_argument(
        "--dtype",
        type=names(cases.MATMUL_DTYPES),
        default=[],
        metavar="DTYPE[,DTYPE]",
        help="such as float32,bfloat16 (default: all)",
    )
    result.add_argument(
        "--cases",
        action="append",
        default=[],
        metavar="PATTERN",
        help="a part of a case's name or a shell pattern for the whole; may be given several times",
    )
    result.add_argument(
        "--algorithm",
        type=names(),
        default=[],
        metavar="NAME[,NAME]",
        help=f"measure these instead of the ones in the list (auto, {', '.join(known)}, ...)",
    )
    result.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    result.add_argument(
        "--threads",
        type=counts,
        default=[],
        metavar="N[,N]",
        help="on a CPU, measure with each of these numbers of threads, e.g. 1,2 (default: as many as PyTorch takes)",
    )
    result.add_argument(
        "--isa",
        choices=tuple(ISA_VARIABLES),
        help="on a CPU, hold our kernels and PyTorch's to this instruction set, with a results file of its own",
    )
    result.add_argument("--output", type=Path, help="results file (default: benchmarks/results/<gpu or cpu>.json)")
    result.add_argument("--fresh", action="store_true", help="measure again what the results file has already")
    result.add_argument(
        "--case-seconds",
        type=positive,
        default=0.25,
        metavar="S",
        help="time for the repetitions of one case (default: %(default)s; never fewer than 3 repetitions)",
    )
    result.add_argument(
        "--max-call-seconds",
        type=positive,
        default=0.5,
        metavar="S",
        help="on a CPU, leave out cases of which one call would take longer (default: %(default)s)",
    )
    result.add_argument(
        "--max-seconds", type=positive, metavar="S", help="start no case after this time; run again to go on"
    )
    result.add_argument("--no-report", action="store_true", help="make no table and no plot of the results")
    result.add_argument("--list", action="store_true", help="print the names of the cases and measure nothing")
    return result


def chosen_cases(options: argparse.Namespace, device: torch.device) -> list[Case]:
    """The list after all the cuts that the command line asks for."""
    listed = cases.select(cases.all_cases(device.type), ops=options.op, dtypes=options.dtype, patterns=options.cases)
    if options.algorithm:
        automatic = [case for case in listed if case.algorithm == "auto"] or listed
        listed = list(dict.fromkeys(replace(case, algorithm=name) for case in automatic for name in options.algorithm))
    # One key must not be measured twice (the ladder's naive and --algorithm naive, say).
    seen: dict[tuple[object, ...], Case] = {}
    for case in listed:
        seen.setdefault(key_of(key_record(case, device)), case)
    return list(seen.values())


def _print_state(when: str, state: Mapping[str, float | str] | None) -> None:
    if state is not None:
        print(f"{when}: " + ", ".join(f"{name} {value}" for name, value in state.items()), flush=True)


def run_cases(bench: Bench, pending: Sequence[Case], results: Results, max_seconds: float | None) -> list[str]:
    """Measures and saves each case; returns one line for each failure."""
    failures: list[str] = []
    errors_in_a_row = 0
    stop = None if max_seconds is None else time.perf_counter() + max_seconds
    with Progress(len(pending)) as progress:
        for index, case in enumerate(pending):
            if stop is not None and time.perf_counter() > stop:
                progress.finish(
                    f"stopped after {max_seconds:.0f} s: {len(pending) - index} cases are left for the next run"
                )
                break
            progress.start(case.name)
            try:
                record = bench.measure(case)
            except Skip as reason:
                progress.finish(f"{case.name}: left out, {reason}")
            except (WrongResult, RuntimeError, ValueError) as error:
                failures.append(f"{case.name}: {type(error).__name__}: {str(error).splitlines()[0]}")
                progress.finish(f"FAILED {failures[-1]}")
                errors_in_a_row += 1
                if errors_in_a_row >= _MAX_ERRORS_IN_A_ROW:
                    failures.append(f"given up after {errors_in_a_row} failures in a row")
                    break
            else:
                errors_in_a_row = 0
                results.put(record)
                progress.finish(line_of(case, record))
    return failures


def _report(results: Results) -> None:
    """The table and, where matplotlib is there, the plot beside the results file."""
    digest = source_digest(ROOT)
    table = results.path.with_suffix(".md")
    write_atomically(table, report.document(results, digest))
    try:
        report.plot(results, digest)
    except ImportError:
        print(f"Table in {table}; no plot, for matplotlib is not installed.")
    else:
        print(f"Table in {table}, plot beside it.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns 0 if every result was right, 1 if not, 2 for wrong arguments, 130 if interrupted."""
    options = parser().parse_args(arguments)
    if options.isa and any(os.environ.get(name) != value for name, value in ISA_VARIABLES[options.isa].items()):
        # The libraries are loaded already: start anew.
        command = [sys.executable, str(Path(__file__).resolve()), *(sys.argv[1:] if arguments is None else arguments)]
        sys.stdout.flush()
        os.execve(sys.executable, command, os.environ | ISA_VARIABLES[options.isa])
    no_cuda = no_cuda_reason()
    device = torch.device(options.device or ("cuda" if no_cuda is None else "cpu"))
    if device.type == "cuda":
        for_cpu = [name for name in ("threads", "isa") if getattr(options, name)]
        if for_cpu:
            print(f"bench: --{for_cpu[0]} is for --device cpu", file=sys.stderr)
            return 2
        if no_cuda is not None:
            print(f"bench: --device cuda was asked for, but {no_cuda}", file=sys.stderr)
            return 2
        device = torch.device("cuda", torch.cuda.current_device())
    chosen = chosen_cases(options, device)
    if not chosen:
        print("bench: no case fits these options; --list without them shows all names", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0

    if options.isa and not is_held_to(options.isa):
        variables = " ".join(f"{name}={value}" for name, value in ISA_VARIABLES[options.isa].items())
        print(f"bench: this machine does not run {options.isa} alone when started with {variables}", file=sys.stderr)
        return 2
    facts = header(device, options.isa)
    try:
        results, dropped = Results.resume(options.output or RESULTS / machine.results_name(device, options.isa), facts)
    except ValueError as error:
        print(f"bench: {error}; move it away or give another --output", file=sys.stderr)
        return 2
    print(f"{machine.device_name(device)}, PyTorch {torch.__version__}, sources {facts['source_digest'][:12]}")
    if facts["source_digest"] != source_digest(ROOT):
        print(
            "Warning: the library was built from other sources than those in this folder; the file will count as stale."
        )
    if dropped:
        print(f"{results.path}: {dropped}.")
    known = results.keys()
    on_cpu = device.type == "cpu"
    slow = {case for case in chosen if on_cpu and estimated_call(case, device) > options.max_call_seconds}
    possible = [case for case in chosen if case not in slow]
    threads_before = torch.get_num_threads()
    runs: list[tuple[int, list[Case]]] = []
    for threads in options.threads or [threads_before]:
        torch.set_num_threads(threads)  # a part of what a record measures
        pending = [case for case in possible if options.fresh or key_of(key_record(case, device)) not in known]
        runs.append((threads, pending))
    todo = sum(len(pending) for _, pending in runs)
    kept = len(runs) * len(possible) - todo
    estimate = sum(estimated_case(case, device, options.case_seconds) for _, pending in runs for case in pending)
    print(
        f"{todo} cases to measure, about {estimate / 60:.0f} min ({kept} are in "
        f"{results.path} already, {len(slow)} would take too long here).",
        flush=True,
    )

    start_state = machine.clock_state() if device.type == "cuda" else None
    _print_state("Before", start_state)
    start = time.perf_counter()
    try:
        failures = []
        for threads, pending in runs:
            torch.set_num_threads(threads)
            left = None if options.max_seconds is None else options.max_seconds - (time.perf_counter() - start)
            # A bench for each number of threads: it keeps what a copy takes.
            failures += run_cases(Bench(device, options.case_seconds), pending, results, left)
    except BrokenPipeError:  # the reader went away (`| head`): the same as an interruption
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130
    except KeyboardInterrupt:
        print(
            f"Interrupted. {len(results.records)} records are in {results.path}; the same command goes on.",
            file=sys.stderr,
        )
        return 130
    finally:
        torch.set_num_threads(threads_before)
    if device.type == "cuda" and todo:
        end_state = machine.clock_state()
        _print_state("After", end_state)
        results.header["clocks"] = {"before": start_state, "after": end_state}
        results.save()
    print(f"{len(results.records)} records in {results.path} ({time.perf_counter() - start:.0f} s).")
    if results.records and not options.no_report:
        _report(results)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
