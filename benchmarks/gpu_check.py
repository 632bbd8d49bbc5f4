#!/usr/bin/env python3
"""Everything that needs a GPU, in steps of under ten minutes, with one summary: benchmarks/results/<gpu>-check.json.

Steps: the C++ tests (ctest), the Python tests, many random cases, compute-sanitizer's four tools over the kernels'
tests, the shared-memory bank conflicts and the memory throughput of the transposes that Nsight Compute counts (beside
those that `python -m torch_pmpp conflicts` simulates), the occupancy of every kernel as the driver reckons it, the
benchmark. A failing step does not stop the others. A tool or a test binary that is missing is a failure with its
reason, never a pass. The summary is saved after every step, and steps chosen with --steps replace theirs in it, so
the whole may be run in parts.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import torch_pmpp  # noqa: E402
from benchmarks import machine  # noqa: E402
from benchmarks.arguments import Parser, names, positive  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.profile_transposes import LAUNCHES  # noqa: E402
from benchmarks.results import write_atomically  # noqa: E402
from torch_pmpp._conflicts import algorithm_pattern, conflicts_per_turn  # noqa: E402
from torch_pmpp._library import no_cuda_reason  # noqa: E402
from torch_pmpp._text import Table  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
STEP_SECONDS = 590.0  # every step stays under ten minutes, or is stopped and has failed
BENCHMARK_SECONDS = 480.0  # after that the benchmark starts no new case; a later run goes on
CONFLICTS_LOAD = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
CONFLICTS_STORE = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
VECTORIZED_DRAM_SHARE = 85.0
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
COMMITTED_TABLES = "tests/python/test_benchmarks.py::test_committed_tables_and_readme_are_what_the_report_makes"
STEPS = ("ctest", "pytest", "fuzz", *SANITIZERS, "bank-conflicts", "occupancy", "benchmark")


EVERYTHING_SHORT = "-*Exhaustive*"  # for the sanitizers


@dataclass
class Outcome:
    """What a step found. `note` says why it failed, or what it measured."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""


class StepFailed(Exception):
    """A step that could not run, with the reason."""


@dataclass(frozen=True)
class Finished:
    """A process that has ended: exit code and everything it printed."""

    code: int
    output: str


def run_process(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    echo: bool = True,
    seconds: float = STEP_SECONDS,
) -> Finished:
    """Runs a command from the source tree and shows its output as it comes.

    Raises StepFailed if the command cannot be started or takes longer than `seconds` (its children are ended too).
    """
    words = [str(word) for word in command]
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise StepFailed(f"cannot run {words[0]}: {error.strerror}") from error
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, stop)
    timer.start()
    lines = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if echo:
                print("    " + line, end="", flush=True)
        process.wait()
    except BaseException:
        # Interrupted: leave nothing behind that still holds the GPU.
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        timer.cancel()
    if timed_out.is_set():
        raise StepFailed(f"took longer than {seconds:.0f} s and was stopped")
    return Finished(process.returncode, "".join(lines))


def junit_counts(path: Path) -> Outcome:
    """Counts of a JUnit file, as pytest and ctest write it."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise StepFailed(f"no test report: {error}") from error
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(len(cases) - failed - skipped, failed, skipped)


def with_exit_code(outcome: Outcome, finished: Finished) -> Outcome:
    """A process that failed although no test did (a crash, say) counts as one failure."""
    if finished.code != 0 and outcome.failed == 0:
        outcome.failed = 1
        outcome.note = f"exit code {finished.code}"
    if outcome.passed == 0 and outcome.failed == 0:
        outcome.failed = 1
        outcome.note = "no test ran"
    return outcome


def find_tool(name: str) -> str:
    """Path of a tool: on PATH, beside the running Python, or in the CUDA toolkit."""
    toolkits = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    # CMake's ctest may come with the Python environment.
    folders = [
        os.environ.get("PATH", ""),
        str(Path(sys.executable).parent),
        *(f"{toolkit}/bin" for toolkit in toolkits if toolkit),
    ]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise StepFailed(f"{name} is not installed (not on PATH and not in a CUDA toolkit)")
    return found


def find_build(asked: Path | None, root: Path = ROOT) -> Path:
    """Build directory with the C++ tests: the one asked for, that of the Makefile, or the newest below build/."""
    candidates = [asked] if asked else [Path(os.environ["PMPP_BUILD_DIR"])] if "PMPP_BUILD_DIR" in os.environ else []
    if not asked:
        folders = [root / "build", *(path for path in (root / "build").glob("*") if path.is_dir())]
        candidates += sorted(folders, key=lambda path: path.stat().st_mtime if path.exists() else 0, reverse=True)
    for candidate in candidates:
        if next(candidate.rglob("cuda_kernels_test"), None) is not None:
            return candidate
    where = str(asked) if asked else str(root / "build")
    raise StepFailed(
        f"no build with cuda_kernels_test in {where}; `make gpu-check` builds it, --build-dir names another place"
    )


def sanitizer_errors(output: str) -> int | None:
    """Errors that compute-sanitizer counted: the number in its last summary line; None if it printed none."""
    plain = re.findall(r"ERROR SUMMARY: (\d+) error", output)
    races = re.findall(r"RACECHECK SUMMARY: (\d+) hazards? displayed", output)
    found = [int(number) for number in (plain[-1:] + races[-1:])]
    return sum(found) if found else None


def gtest_counts(output: str) -> Outcome:
    """Counts of a GoogleTest program's own summary."""

    def number(word: str) -> int:
        match = re.search(rf"\[\s+{word}\s+\] (\d+) tests?[,.]", output)
        return int(match[1]) if match else 0

    return Outcome(number("PASSED"), number("FAILED"), number("SKIPPED"))


def ncu_metrics(output: str) -> list[dict[str, float]]:
    """The metrics of each profiled launch, in launch order, from `ncu --csv`."""
    lines = output.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        launches.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return [launches[index] for index in sorted(launches)]


def judge_transposes(launches: Sequence[Mapping[str, float]]) -> Outcome:
    """What the transposes of float32 squares must show, in bank conflicts for each turn of shared memory.

    A turn moves up to 128 bytes: a warp's access to words of 4 bytes, a quarter of its access to words of 16. Each
    element is stored once and loaded once, which takes 2 * side * side / 32 turns without conflicts.

    shared: reading a column takes 32 turns, 31 conflicts, and reading is half of all. padded: none, up to stray ones
    that the counter picks up. padded16: a warp spans two rows of 17 elements, so one bank of 32 is hit twice; a fifth
    of shared's is a safe limit. vectorized: none, up to stray ones (0.02 a turn on an H200); words
    that meet in pairs in one bank, in one direction only, would add 0.5, and half of that is the limit.

    vectorized must also keep the memory as busy as a kernel that has nothing else to wait for.

    All four must be what the simulation says, within the stray ones: 0.1 a turn, or 2 % of many.
    """
    if len(launches) != len(LAUNCHES):
        raise StepFailed(f"Nsight Compute saw {len(launches)} launches, expected {len(LAUNCHES)}")
    conflicts: dict[str, float] = {}
    dram: dict[str, float] = {}
    measured = []
    for (name, side), launch in zip(LAUNCHES, launches, strict=True):
        count = launch[CONFLICTS_LOAD] + launch[CONFLICTS_STORE]
        conflicts[name] = count / (2 * side * side / 32)
        dram[name] = launch[DRAM_SHARE]
        measured.append(
            f"{name} at {side} x {side} {count:.0f} conflicts ({conflicts[name]:.2f} a turn) and {dram[name]:.0f}% of "
            "DRAM peak"
        )
    simulated = {name: conflicts_per_turn(algorithm_pattern(name, 4)) for name, _ in LAUNCHES}
    other = [name for name, each in simulated.items() if abs(conflicts[name] - each) > max(0.1, 0.02 * each)]
    told = ", ".join(f"{name} {each:g}" for name, each in simulated.items())
    checks = {
        f"the simulation agrees ({told}" + (f"; not {', '.join(other)})" if other else ")"): not other,
        "shared has at least 10 times the conflicts of padded": conflicts["shared"] >= 10 * conflicts["padded"],
        "shared has at least 5 conflicts a turn": conflicts["shared"] >= 5,
        "padded has next to none (under 0.1 a turn)": conflicts["padded"] < 0.1,
        "shared has at least 5 times the conflicts of padded16": conflicts["shared"] >= 5 * conflicts["padded16"],
        "vectorized has next to none (under 0.25 a turn)": conflicts["vectorized"] < 0.25,
        f"vectorized reaches {VECTORIZED_DRAM_SHARE:.0f}% of DRAM peak": dram["vectorized"] >= VECTORIZED_DRAM_SHARE,
    }
    broken = [claim for claim, holds in checks.items() if not holds]
    note = "float32, clocks not fixed: " + ", ".join(measured) + ("; not so: " + "; ".join(broken) if broken else "")
    return Outcome(len(checks) - len(broken), len(broken), 0, note)


def judge_occupancy(finished: Finished) -> Outcome:
    """Counts of occupancy_check.py: launches that agree, and whatever differs."""
    lines = finished.output.splitlines()
    try:
        counts = json.loads(lines[-1])
        compared, differing, kernels = counts["compared"], counts["differing"], counts["kernels"]
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise StepFailed(f"the comparison printed no counts (exit code {finished.code})") from error
    note = f"{kernels} kernels, {compared} launches" + (f"; last difference: {lines[-2]}" if differing else "")
    return with_exit_code(Outcome(max(compared - differing, 0), differing, 0, note), finished)


class Check:
    """The steps. Each returns an Outcome or raises StepFailed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.steps: dict[str, Callable[[], Outcome]] = {
            "ctest": self.ctest,
            "pytest": self.pytest,
            "fuzz": self.fuzz,
            **{tool: lambda tool=tool: self.sanitizer(tool) for tool in SANITIZERS},  # type: ignore[misc]
            "bank-conflicts": self.bank_conflicts,
            "occupancy": self.occupancy,
            "benchmark": self.benchmark,
        }

    def ctest(self) -> Outcome:
        """All C++ tests, those of the CUDA kernels included."""
        build = find_build(self.options.build_dir)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "ctest.xml"
            finished = run_process(
                [
                    find_tool("ctest"),
                    "--test-dir",
                    build,
                    "--output-on-failure",
                    "--parallel",
                    "12",
                    "--output-junit",
                    report,
                ]
            )
            return with_exit_code(junit_counts(report), finished)

    def _pytest(self, *arguments: str) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "pytest.xml"
            finished = run_process(
                [
                    sys.executable,
                    "-m",
                    "pytest",
                    "tests/python",
                    "-q",
                    f"--junitxml={report}",
                    *self.options.pytest,
                    *arguments,
                ]
            )
            return with_exit_code(junit_counts(report), finished)

    def pytest(self) -> Outcome:
        """The whole Python suite on every device that is there.

        Without the test that compares tables and figures: the last step renews the figures, and the tables follow it.
        """
        return self._pytest("--deselect", COMMITTED_TABLES)

    def fuzz(self) -> Outcome:
        """Random shapes, strides, dtypes and offsets on CUDA, many more than `make test` tries, and the exact tests."""
        return self._pytest(
            "--device", "cuda", "-k", "fuzz or exact", "--fuzz-examples", str(self.options.fuzz_examples)
        )

    def sanitizer(self, tool: str) -> Outcome:
        """One tool of compute-sanitizer over the kernels' tests. Its errors and failing tests both count as failed."""
        sanitizer = find_tool("compute-sanitizer")
        binary = next(find_build(self.options.build_dir).rglob("cuda_kernels_test"))
        command: list[str | Path] = [sanitizer, "--tool", tool, "--print-limit", "20", binary]
        if self.options.sanitizer_filter:
            command.append(f"--gtest_filter={self.options.sanitizer_filter}")
        shards = self.options.shards
        results: list[Finished | StepFailed | None] = [None] * shards

        def run_shard(index: int) -> None:
            try:
                results[index] = run_process(
                    command,
                    echo=shards == 1,
                    environment={
                        "GTEST_TOTAL_SHARDS": str(shards),
                        "GTEST_SHARD_INDEX": str(index),
                        "GTEST_BRIEF": "0",
                    },
                )
            except StepFailed as failure:
                results[index] = failure

        threads = [threading.Thread(target=run_shard, args=(index,)) for index in range(shards)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = Outcome()
        for index, result in enumerate(results):
            if not isinstance(result, Finished):
                raise StepFailed(str(result))
            counts, errors = gtest_counts(result.output), sanitizer_errors(result.output)
            if errors is None:
                print(result.output)
                raise StepFailed(f"{tool} printed no summary (exit code {result.code})")
            if errors or counts.failed or result.code:
                print(f"    shard {index} of {shards}:\n{result.output}")
            total.passed += counts.passed
            total.skipped += counts.skipped
            total.failed += errors + counts.failed + (1 if result.code and not errors and not counts.failed else 0)
        if total.passed == 0 and total.failed == 0:
            raise StepFailed("no test ran")
        if self.options.sanitizer_filter != EVERYTHING_SHORT:
            total.note = f"the tests {self.options.sanitizer_filter}"
        return total

    def bank_conflicts(self) -> Outcome:
        """Bank conflicts and memory throughput of the transposes, counted by the hardware."""
        finished = run_process(
            [
                find_tool("ncu"),
                "--clock-control",
                "none",
                "--profile-from-start",
                "off",
                "--csv",
                "--metrics",
                f"{CONFLICTS_LOAD},{CONFLICTS_STORE},{DRAM_SHARE}",
                sys.executable,
                ROOT / "benchmarks" / "profile_transposes.py",
            ]
        )
        if finished.code != 0:
            raise StepFailed(f"Nsight Compute failed (exit code {finished.code})")
        return judge_transposes(ncu_metrics(finished.output))

    def occupancy(self) -> Outcome:
        """The occupancy that the package reckons, for every kernel of the library, beside the driver's own."""
        finished = run_process([sys.executable, ROOT / "benchmarks" / "occupancy_check.py"])
        return judge_occupancy(finished)

    def benchmark(self) -> Outcome:
        """The case list; a case whose result is wrong or that raises counts as failed."""
        finished = run_process(
            [
                sys.executable,
                ROOT / "benchmarks" / "run.py",
                "--device",
                "cuda",
                "--max-seconds",
                str(self.options.benchmark_seconds),
                *self.options.bench,
            ]
        )
        failed = len(set(re.findall(r"^FAILED (\S+):", finished.output, re.MULTILINE)))
        measured = len(re.findall(r"^\[\d+/\d+\] \S+: [\d.]+ (?:s|ms|us)\b", finished.output, re.MULTILINE))
        kept = re.search(r"\((\d+) are in ", finished.output)
        left = re.search(r"(\d+) cases are left", finished.output)
        note = f"{left[1]} cases are left for another run" if left else ""
        return with_exit_code(Outcome(measured + (int(kept[1]) if kept else 0), failed, 0, note), finished)


def read_steps(path: Path, digest: str) -> list[dict[str, Any]]:
    """Steps of an earlier run with the same sources; none if there is no such run."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return list(content["steps"]) if content["source_digest"] == digest else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_summary(path: Path, digest: str, steps: Iterable[Mapping[str, Any]]) -> None:
    """The summary file, one step a line."""
    rows = ",\n".join("  " + json.dumps(step) for step in steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f'{{\n "source_digest": {json.dumps(digest)},\n "steps": [\n{rows}\n ]\n}}\n')


def parser(steps: Sequence[str]) -> argparse.ArgumentParser:
    """The command line."""

    def at_least_one(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"expected 1 or more, but got {text}")
        return value

    result = Parser(prog="gpu_check", description="Run everything that needs a GPU and write one summary.")
    result.add_argument(
        "--steps", type=names(steps), default=list(steps), metavar="STEP[,STEP]", help=f"some of {', '.join(steps)}"
    )
    result.add_argument("--output", type=Path, help="summary file (default: benchmarks/results/<gpu>-check.json)")
    result.add_argument(
        "--build-dir", type=Path, help="build directory with the C++ tests (default: found below build/)"
    )
    result.add_argument(
        "--fuzz-examples",
        type=at_least_one,
        default=2000,
        metavar="N",
        help="random cases of the fuzz step (default: %(default)s)",
    )
    result.add_argument(
        "--pytest",
        type=lambda text: text.split(),
        default=[],
        metavar="'ARGUMENTS'",
        help="further arguments of pytest, such as '-n 8'",
    )
    result.add_argument(
        "--sanitizer-filter",
        default=EVERYTHING_SHORT,
        metavar="PATTERN",
        help="run only these C++ tests under the sanitizers (default: %(default)s, all but those too slow there)",
    )
    cores = os.cpu_count() or 1
    result.add_argument(
        "--shards",
        type=at_least_one,
        default=4 if cores >= 8 else 1,
        metavar="N",
        help="processes that share the C++ tests under a sanitizer (default here: %(default)s)",
    )
    result.add_argument(
        "--benchmark-seconds",
        type=positive,
        default=BENCHMARK_SECONDS,
        metavar="S",
        help="start no benchmark case after this time (default: %(default).0f)",
    )
    result.add_argument(
        "--bench",
        type=lambda text: text.split(),
        default=[],
        metavar="'ARGUMENTS'",
        help="further arguments of the benchmark",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the steps; returns 0 if nothing failed, 1 if something did, 2 if it could not begin."""
    options = parser(STEPS).parse_args(arguments)
    no_cuda = no_cuda_reason()
    if no_cuda is not None:
        print(f"gpu_check: {no_cuda}", file=sys.stderr)
        return 2
    digest = torch_pmpp.build_info.source_digest
    if digest != source_digest(ROOT):
        print(
            "gpu_check: the library was built from other sources than those in this folder; run `make build`",
            file=sys.stderr,
        )
        return 2
    gpu = torch.cuda.get_device_name()
    path = options.output or RESULTS / f"{machine.slug(gpu)}-check.json"
    check = Check(options)
    done = {step["name"]: step for step in read_steps(path, digest)}
    print(f"{gpu}, PyTorch {torch.__version__}, sources {digest[:12]}")
    for number, name in enumerate(options.steps, start=1):
        print(f"[{number}/{len(options.steps)}] {name}", flush=True)
        start = time.perf_counter()
        try:
            outcome = check.steps[name]()
        except StepFailed as failure:
            outcome = Outcome(failed=1, note=str(failure))
        seconds = round(time.perf_counter() - start, 1)
        step = {"name": name, **asdict(outcome), "seconds": seconds}
        if not step["note"]:
            del step["note"]
        done[name] = step
        write_summary(path, digest, (done[known] for known in STEPS if known in done))
        print(
            f"    {name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped, {seconds:.0f} s"
            + (f" ({outcome.note})" if outcome.note else ""),
            flush=True,
        )

    table = Table(
        f"GPU check on {gpu}",
        ("step", "passed", "failed", "skipped", "seconds", "note"),
        frozenset({"passed", "failed", "skipped", "seconds"}),
    )
    for known in STEPS:
        if known in done:
            step = done[known]
            table.add(
                known,
                str(step["passed"]),
                str(step["failed"]),
                str(step["skipped"]),
                f"{step['seconds']:.0f}",
                step.get("note", ""),
                style="red" if step["failed"] else "",
            )
    table.print()
    print(path)
    return 1 if any(done[name]["failed"] for name in options.steps) else 0


if __name__ == "__main__":
    sys.exit(main())
