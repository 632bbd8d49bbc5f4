"""The benchmark tools: cases, results file, timing, reports, the GPU check's parsers, a small run end to end."""

import importlib.util
import json
import math
import pathlib
import struct
import subprocess
import sys
import time

import pytest
import torch
from support import needs_cuda

import torch_pmpp

ROOT = pathlib.Path(__file__).resolve().parents[2]
# First on the path: other distributions are known to install a top-level `benchmarks`. torch_pmpp is imported already.
sys.path.insert(0, str(ROOT))

from benchmarks import (  # noqa: E402
    cases,
    digest,
    gpu_check,
    machine,
    occupancy_check,
    profile_transposes,
    report,
    results,
    run,
    timing,
)
from torch_pmpp import _devices, _kernels, _occupancy  # noqa: E402

HEADER = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "date": "2025-01-31",
    "source_digest": "0" * 64,
}


def make_record(**changes):
    """A record as the runner writes it."""
    record = {
        "op": "tiled_matmul",
        "device": "cuda",
        "dtype": "float32",
        "element_size": 4,
        "precision": "ieee",
        "layout": "NN",
        "offset": 0,
        "m": 1024,
        "n": 1024,
        "k": 1024,
        "batch": 1,
        "threads": None,
        "mode": "call",
        "algorithm": "auto",
        "plan": "tiled 16x16x16",
        "ours_us": 400.0,
        "baseline": "torch.mm",
        "baseline_us": 64.0,
        "ratio": 0.16,
        "roof_us": 32.0,
        "roof_fraction": 0.08,
        "error": 2e-7,
        "baseline_error": 3e-7,
    }
    return record | changes


def make_transpose_record(**changes):
    """A record of a transpose."""
    record = make_record(op="padded_transpose", precision=None, layout="contiguous", m=8192, n=8192, plan="padded")
    del record["k"]
    record |= {"baseline": "x.t().contiguous()", "baseline_us": 460.0, "ours_us": 230.0, "ratio": 2.0, "error": 0.0}
    record |= {"roof_us": 130.0, "roof_fraction": 0.565, "copy_us": 130.0, "copy_fraction": 0.565}
    return record | changes


# ---- the case list


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_case_list_is_complete(device):
    listed = cases.all_cases(device)
    products = {(c.m, c.n, c.k) for c in listed if c.op == "tiled_matmul" and c.dtype == "bfloat16"}
    expected = {(n, n, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192)}
    for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)):
        expected |= {(m, n, k) for m in (1, 16, 64, 128, 512, 2048, 8192)}
    expected |= {(4095, 4097, 4099), (8191, 8191, 8191), (1000, 1000, 1000), (511, 513, 1025), (2398, 1298, 132)}
    expected |= {(1048576, 64, 64), (64, 64, 1048576), (16, 16, 1048576), (128, 128, 65536)}
    expected |= {(4096, 4096, 64), (8192, 8192, 128), (2398, 132, 1298)}
    assert expected <= products
    assert any(n == 50257 for _, n, _ in products)
    assert {c.layout for c in listed if c.op == "tiled_matmul"} == {"NN", "NT", "TN", "TT"}
    assert {c.dtype for c in listed if c.op == "tiled_matmul"} == set(cases.MATMUL_DTYPES)
    for size in (1, 2, 4, 8, 16):
        shapes = {(c.m, c.n) for c in listed if c.op == "padded_transpose" and c.element_size == size}
        wanted = {(8192, 8192), (2000, 100000), (100003, 129)}
        wanted |= {shape for n in (3, 16, 64) for shape in ((1048576, n), (n, 1048576))}
        assert wanted <= shapes
    keys = [results.key_of(run.key_record(case, torch.device(device))) for case in listed]
    assert len(set(keys)) == len(keys)
    # --cases picks by name, and the report finds a record's group again.
    assert len({case.name for case in listed}) == len(listed)
    known = report.groups(device)
    for case in listed:
        assert report.group_of(run.key_record(case, torch.device(device)), known) == case.group


def test_cuda_case_list_serves_every_goal_of_the_transposes():
    listed = [case for case in cases.all_cases("cuda") if case.op == "padded_transpose"]
    assert len(listed) <= 330
    shapes = {(case.m, case.n, case.offset) for case in listed if case.dtype == "uint8"}
    for size, dtype in cases.TRANSPOSE_DTYPES.items():
        assert {(case.m, case.n, case.offset) for case in listed if case.dtype == dtype} == shapes, size
    assert {(n, m, 0) for m, n, _ in shapes if cases.NARROW_LENGTH in (m, n)} <= shapes
    for n in (3, 4, 8, 16, 33, 64):
        assert (1048576, n, 0) in shapes
    assert {(8192, 8192, 1), (8191, 8193, 0), (16383, 16385, 0), (8191, 8192, 0), (8192, 8191, 0)} <= shapes
    assert {(8192, 8192, 0), (16384, 16384, 0), (2000, 100000, 0), (4096, 14336, 0), (16, 16, 0)} <= shapes

    records = [run.key_record(case, torch.device("cuda")) for case in listed]
    for goal in report.TRANSPOSE_GOALS:
        sizes = [record["element_size"] for record in records if goal.belongs(record)]
        if "1-byte" in goal.cases:
            assert sizes == [1] * 3
        elif "16 x 16" in goal.cases:
            assert sorted(sizes) == [1, 2, 4, 8, 16]
        else:
            assert min(sizes.count(size) for size in (1, 2, 4, 8, 16)) >= 5, goal.cases


def test_cuda_case_list_serves_every_goal_of_16_bit_products():
    listed = [case for case in cases.all_cases("cuda") if case.op == "tiled_matmul" and case.dtype == "bfloat16"]
    assert len(listed) <= 260
    swept = {case.k for case in listed if (case.m, case.n, case.mode) == (4096, 4096, "call") and case.layout == "NN"}
    assert set(range(4032, 4161)) <= swept
    for n in (2048, 4096, 8192):
        layouts = {case.layout for case in listed if (case.m, case.n, case.k, case.offset) == (n, n, n, 0)}
        assert layouts == set(cases.MATMUL_LAYOUTS)
    records = [run.key_record(case, torch.device("cuda")) | {"ours_us": 100.0, "ratio": 1.0} for case in listed]
    written = results.Results(ROOT / "none.json", dict(HEADER), records)
    counts = {goal.cases: sum(map(goal.belongs, records)) for goal in report._matmul_goals(written)}
    assert min(counts.values()) >= 1
    assert counts["4096 x 4096 by odd k from 4033 to 4159"] == 64
    assert counts["4096 x 4096 x 4096 by mma"] == 1
    assert min(count for name, count in counts.items() if "by" not in name and " x " not in name) >= 3
    assert not any(case.group in ("k-sweep", "offset") for case in cases.all_cases("cpu") if case.op == "tiled_matmul")


def test_cuda_case_list_serves_every_goal_of_float32_and_complex64():
    listed = [case for case in cases.all_cases("cuda") if case.op == "tiled_matmul"]
    assert len(listed) == len(set(listed))
    records = [run.key_record(case, torch.device("cuda")) for case in listed]
    counts = {goal.cases: sum(map(goal.belongs, records)) for goal in report.WIDE_GOALS}
    assert counts.pop("float32 by simt, sides from 2048") == 1
    assert min(counts.values()) >= 4, counts


def test_cpu_case_list_leaves_out_what_is_for_the_goals():
    listed = [case for case in cases.all_cases("cpu") if case.op == "padded_transpose"]
    assert len(listed) == 189
    assert {case.mode for case in listed} == {"call"}
    assert {case.offset for case in listed} == {0}
    plain = [(c.element_size, c.group, (c.m, c.n)) for c in listed if c.group not in ("ladder", "layout", "small")]
    expected = [
        (size, group, shape)
        for size in cases.TRANSPOSE_DTYPES
        for group, shapes in cases.TRANSPOSE_GROUPS.items()
        for shape in shapes
    ]
    assert sorted(plain) == sorted(expected)
    assert {case.algorithm for case in listed} == {"auto", "naive", "blocked"}


def test_cpu_case_list_serves_every_goal():
    listed = cases.all_cases("cpu")
    assert len(set(listed)) == len(listed)
    records = []
    for case in listed:
        record = run.key_record(case, torch.device("cpu")) | {"ours_us": 100.0, "ratio": 1.0}
        records.append(record | ({"copy_fraction": 1.0} if case.op == "padded_transpose" else {}))
    written = results.Results(ROOT / "none.json", HEADER | {"gpu": None}, records)
    for goal in report._cpu_goals(written):
        found = [record for record in records if goal.belongs(record)]
        assert len([record for record in found if goal.figure(record)]) >= 6, goal.cases
        if goal.unit == report._FASTER:
            assert all(goal.figure(record) for record in found), goal.cases
    # A 16-bit product is compared with the same product in float32.
    products = {(c.dtype, c.m, c.n, c.k, c.layout) for c in listed if c.op == "tiled_matmul" and c.algorithm == "auto"}
    for dtype in ("float32", *cases.HALF_DTYPES):
        assert {(dtype, *shape, layout) for shape in cases.CPU_HALF for layout in cases.MATMUL_LAYOUTS} <= products


def test_case_list_has_the_ladder():
    listed = cases.all_cases("cuda")
    for dtype in ("float32", "bfloat16"):
        for shape in ((1024, 1024, 1024), (4096, 4096, 4096), (2398, 132, 1298)):
            found = {c.algorithm for c in listed if (c.m, c.n, c.k) == shape and c.dtype == dtype}
            assert {"naive", "tiled", "tiled_dynamic", "simt", "auto"} <= found
            assert ({"mma", "wgmma"} <= found) is (dtype == "bfloat16")
        for shape in ((1024, 1024), (4096, 4096), (2398, 1298)):
            transposes = [c for c in listed if c.op == "padded_transpose" and c.dtype == dtype]
            found = {c.algorithm for c in transposes if (c.m, c.n) == shape}
            assert {"naive", "shared", "padded", "padded16", "vectorized", "auto"} <= found
    # A run may be cut short: the ladder comes first.
    groups = [case.group for case in listed]
    assert groups[: groups.count("ladder")] == ["ladder"] * groups.count("ladder")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_ladder_names_only_what_the_library_has(device):
    # An unknown name would not fail in a run: the case would be left out as not available.
    for dtype in (torch.float32, torch.bfloat16):
        steps = cases.matmul_ladder(device, str(dtype).removeprefix("torch."))
        offered = torch_pmpp.algorithms("tiled_matmul", device, dtype)
        if device == "cuda" and torch.cuda.get_device_capability()[0] != 9:
            steps = [name for name in steps if name != "wgmma"]
        assert set(steps) <= set(offered)
        assert set(cases.TRANSPOSE_LADDER[device]) <= set(torch_pmpp.algorithms("padded_transpose", device, dtype))
    assert {name for name, _ in profile_transposes.LAUNCHES} <= set(cases.TRANSPOSE_LADDER["cuda"])


def test_case_facts():
    case = cases.Case("tiled_matmul", "odd", 3, 5, 7, "complex64")
    assert case.flops == 8 * 3 * 5 * 7
    assert case.bytes == (3 * 7 + 7 * 5 + 3 * 5) * 8
    transpose = cases.Case("padded_transpose", "odd", 3, 5, dtype="int16", layout="contiguous")
    assert (transpose.flops, transpose.bytes, transpose.shape) == (0, 2 * 15 * 2, "3x5")
    moved = cases.Case("padded_transpose", "odd", 3, 5, dtype="int16", layout="contiguous", offset=1)
    assert transpose.name == "padded_transpose/odd/3x5/int16/contiguous/auto/call"
    assert moved.name == "padded_transpose/odd/3x5/int16/contiguous+1/auto/call"


def test_case_selection():
    listed = cases.all_cases("cuda")
    assert {c.op for c in cases.select(listed, ops=["padded_transpose"])} == {"padded_transpose"}
    assert {c.dtype for c in cases.select(listed, dtypes=["int8", "float64"])} == {
        "int8",
        "float64",
    }
    assert {c.shape for c in cases.select(listed, patterns=["8191x8191x8191"])} == {"8191x8191x8191"}
    assert {c.group for c in cases.select(listed, patterns=["tiled_matmul/skinny/*"])} == {"skinny"}
    assert cases.select(listed, patterns=["nothing"]) == []


def test_asked_algorithms_replace_those_of_the_list():
    options = run.parser().parse_args(
        ["--algorithm", "naive,blocked", "--cases", "tiled_matmul/square/128x", "--dtype", "float32"]
    )
    chosen = run.chosen_cases(options, torch.device("cpu"))
    assert [case.algorithm for case in chosen] == ["naive", "blocked"]


# ---- digest


def test_digest_is_stable_and_independent_of_the_folder(tmp_path):
    script = ROOT / "benchmarks" / "digest.py"
    printed = [
        subprocess.run(
            [sys.executable, "-S", script], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for cwd in (ROOT, tmp_path)
    ]
    assert printed[0] == printed[1] == digest.source_digest(ROOT) + "\n"
    assert len(printed[0]) == 65


def test_digest_sees_contents_names_and_new_files_but_no_notes(tmp_path):
    for folder in digest.SOURCE_FOLDERS:
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "deep" / "a.cpp").write_text(folder)
    seen = [digest.source_digest(tmp_path)]
    (tmp_path / "csrc" / "notes.txt").write_text("x")
    (tmp_path / "csrc" / ".a.cpp.swp.cpp").write_text("x")
    (tmp_path / "benchmarks.cpp").write_text("x")
    assert digest.source_digest(tmp_path) == seen[0]
    (tmp_path / "ops" / "deep" / "a.cpp").write_text("changed")
    seen.append(digest.source_digest(tmp_path))
    (tmp_path / "ops" / "deep" / "a.cpp").rename(tmp_path / "ops" / "deep" / "b.cpp")
    seen.append(digest.source_digest(tmp_path))
    (tmp_path / "registration" / "new.cuh").touch()
    seen.append(digest.source_digest(tmp_path))
    assert len(set(seen)) == 4


def test_digest_of_no_sources_is_an_error(tmp_path, capsys):
    assert digest.main([str(tmp_path)]) == 1
    assert "no source file" in capsys.readouterr().err
    assert digest.main(["--what"]) == 2


# ---- results file


def test_results_file_has_one_record_a_line_and_reads_back(tmp_path):
    written = results.Results(tmp_path / "r.json", dict(HEADER))
    written.put(make_record())
    written.put(make_transpose_record())
    assert len(written.render().splitlines()) == len(HEADER) + 2 + 4
    read = results.Results.read(tmp_path / "r.json")
    assert (read.header, read.records) == (HEADER, written.records)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_put_replaces_the_record_of_the_same_measurement(tmp_path):
    written = results.Results(tmp_path / "r.json", dict(HEADER))
    written.put(make_record())
    written.put(make_record(k=2048))
    written.put(make_record(ours_us=1.0))
    assert [record["ours_us"] for record in written.records] == [1.0, 400.0]


def test_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    written = results.Results(tmp_path / "r.json", dict(HEADER))
    written.put(make_record())

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(results.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        written.put(make_record(k=2048))
    assert len(results.Results.read(tmp_path / "r.json").records) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("field", ["source_digest", "torch", "gpu", "driver"])
def test_resume_keeps_records_only_of_the_same_sources_and_machine(tmp_path, field):
    path = tmp_path / "r.json"
    results.Results(path, dict(HEADER), [make_record()]).save()
    kept, dropped = results.Results.resume(path, HEADER | {"date": "2025-02-01"})
    assert (len(kept.records), dropped) == (1, None)
    kept, dropped = results.Results.resume(path, HEADER | {field: "another"})
    assert kept.records == []
    assert dropped == f"1 records dropped: other {field}"


def test_damaged_results_file_is_named(tmp_path, capsys):
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(ValueError, match=r"r\.json is not a results file"):
        results.Results.read(tmp_path / "r.json")
    assert run.main(["--device", "cpu", "--cases", "square/128x128/", "--output", str(tmp_path / "r.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "r.json").read_text() == "[]"


def test_significant_digits():
    assert results.significant(123456.0) == 123500.0
    assert results.significant(0.00123456, 3) == 0.00123
    assert results.significant(math.nan) is None
    assert results.significant(None) is None


# ---- timing


def test_repetitions_stay_in_bounds():
    assert timing.repetitions(10.0, 0.1) == timing.MIN_REPETITIONS == 3
    assert timing.repetitions(1e-9, 1.0) == timing.repetitions(0.0, 1.0) == timing.MAX_REPETITIONS
    assert timing.repetitions(0.01, 0.1) == 10


def test_cpu_timing_interleaves_and_measures():
    order = []
    a = lambda: (order.append("a"), time.sleep(0.004))  # noqa: E731
    b = lambda: (order.append("b"), time.sleep(0.001))  # noqa: E731
    for _ in range(5):  # a busy machine may wake a process late, but not each time
        order.clear()
        slow, fast = timing.time_cpu([a, b], budget=0.05)
        if slow > fast:
            break
    assert slow > fast > 0
    assert slow >= 0.004
    assert len(order) >= 4 * timing.MIN_REPETITIONS
    assert order == ["a", "a", "b", "b"] * (len(order) // 4)  # each timed call follows one that is not timed


@needs_cuda
@pytest.mark.parametrize("how", [timing.time_cuda, timing.time_graph, timing.time_host])
def test_cuda_timing_measures_on_the_device(how):
    x = torch.randn(512, 512, device="cuda")
    small, large = torch.randn(64, 64, device="cuda"), torch.randn(2048, 2048, device="cuda")
    calls = [lambda: torch.mm(small, small), lambda: torch.mm(large, large), lambda: x.clone()]
    for _ in range(5):  # other processes on the GPU take turns with this one, but not each time at the same call
        times = how(calls, budget=0.05)
        if max(times) < 0.1 and (times[1] > times[0] or how is timing.time_host):
            break
    assert all(0 < seconds < 0.1 for seconds in times)
    if how is not timing.time_host:
        assert times[1] > times[0]


# ---- machine


def test_names_and_peaks():
    assert machine.slug("NVIDIA H200") == "nvidia-h200"
    assert machine.slug(" AMD EPYC 7763 (64) ") == "amd-epyc-7763-64"
    assert machine.results_name(torch.device("cpu")).startswith("cpu-")
    assert machine.peak_flops("NVIDIA H200", "bfloat16", None) == 989.4e12
    assert machine.peak_flops("NVIDIA H200", "float32", "ieee") == 66.9e12
    assert machine.peak_flops("NVIDIA H200", "float32", "tf32") == 494.7e12
    assert machine.peak_flops("NVIDIA H200", "complex128", None) == 66.9e12
    assert machine.peak_flops("NVIDIA H200", "int32", None) is None
    assert machine.peak_flops("Some GPU", "float32", "ieee") is None
    assert machine.peak_flops(None, "float32", "ieee") is None


# ---- the runner


def small_run(path, *arguments):
    options = [
        "--device",
        "cpu",
        "--output",
        str(path),
        "--case-seconds",
        "0.01",
        "--max-call-seconds",
        "0.05",
        "--no-report",
    ]
    return run.main([*options, "--cases", "/128x128", "--cases", "511x513/", *arguments])


def test_small_run_end_to_end_resumes_and_loses_nothing(tmp_path, capsys, monkeypatch):
    path = tmp_path / "cpu.json"
    assert small_run(path, "--dtype", "float32,bfloat16", "--max-seconds", "1e-9") == 0
    assert "cases are left for the next run" in capsys.readouterr().out
    assert small_run(path, "--dtype", "float32", "--op", "padded_transpose") == 0
    first = path.read_text()
    assert small_run(path, "--dtype", "float32,bfloat16") == 0
    capsys.readouterr()
    written = results.Results.read(path)
    assert json.loads(first)["records"] == written.records[:2]
    assert {record["op"] for record in written.records} == {"tiled_matmul", "padded_transpose"}
    assert {*results.HEADER_FIELDS, "cpu", "simd"} == set(written.header)
    assert written.header["source_digest"] == torch_pmpp.build_info.source_digest
    for record in written.records:
        transpose = record["op"] == "padded_transpose"
        fields = set(results.RECORD_FIELDS) - ({"k"} if transpose else set())
        assert set(record) == fields | (set(results.TRANSPOSE_FIELDS) if transpose else set())
        assert record["ours_us"] > 0
        assert record["baseline_us"] > 0
        assert record["ratio"] == pytest.approx(record["baseline_us"] / record["ours_us"], rel=2e-3)
        assert record["threads"] == torch.get_num_threads()
        assert record["plan"]
        assert record["error"] < 0.01
        assert (record["roof_us"] is None) is not transpose

    monkeypatch.setattr(run.Bench, "measure", lambda self, case: pytest.fail("measured again"))
    assert small_run(path, "--dtype", "float32,bfloat16") == 0
    assert f"0 cases to measure, about 0 min ({len(written.records)} are in" in capsys.readouterr().out


def test_run_measures_with_each_number_of_threads(tmp_path, capsys):
    path = tmp_path / "cpu.json"
    before = torch.get_num_threads()
    assert small_run(path, "--dtype", "float32", "--op", "padded_transpose", "--threads", "2,1") == 0
    assert torch.get_num_threads() == before
    written = results.Results.read(path)
    assert [record["threads"] for record in written.records] == [2, 2, 1, 1]
    assert len(written.keys()) == 4
    assert small_run(path, "--dtype", "float32", "--op", "padded_transpose", "--threads", "1,2,3") == 0
    assert "2 cases to measure, about 0 min (4 are in" in capsys.readouterr().out
    assert [record["threads"] for record in results.Results.read(path).records] == [2, 2, 1, 1, 3, 3]


@pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="this machine has no AVX2")
def test_run_holds_both_sides_to_an_instruction_set(tmp_path):
    path = tmp_path / "cpu.json"
    arguments = ["--device", "cpu", "--isa", "avx2", "--output", str(path), "--case-seconds", "0.01", "--no-report"]
    script = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    subprocess.run([*script, "--cases", "tiled_matmul/square/128x128x128/float32/*"], check=True)
    written = results.Results.read(path)
    assert written.header["isa"] == "avx2"
    assert written.header["simd"] == "AVX2"
    assert written.records
    blocked = [record for record in written.records if record["plan"].startswith("blocked")]
    assert blocked
    assert all(" avx2" in record["plan"] for record in blocked)
    # A run that is not held to it must not go on with these figures.
    assert results.Results.resume(path, written.header)[1] is None
    header = {name: value for name, value in written.header.items() if name != "isa"}
    assert "records dropped: other isa" in results.Results.resume(path, header)[1]


def test_run_starts_anew_with_every_variable_of_the_instruction_set(monkeypatch):
    class Replaced(Exception):
        pass

    def replace(program, command, environment):
        assert [program, pathlib.Path(command[1]).name, *command[2:]] == [sys.executable, "run.py", *arguments]
        assert environment.items() >= run.ISA_VARIABLES["avx2"].items()
        assert environment["PATH"] == run.os.environ["PATH"]
        raise Replaced

    arguments = ["--device", "cpu", "--isa", "avx2", "--list"]
    for name in run.ISA_VARIABLES["avx2"]:
        monkeypatch.setenv(name, "avx512")
    monkeypatch.setattr(run.os, "execve", replace)
    with pytest.raises(Replaced):
        run.main(arguments)
    # One variable that is not as it should be is enough.
    for name, value in list(run.ISA_VARIABLES["avx2"].items())[1:]:
        monkeypatch.setenv(name, value)
    with pytest.raises(Replaced):
        run.main(arguments)
    for name, value in run.ISA_VARIABLES["avx2"].items():
        monkeypatch.setenv(name, value)
    assert run.main(arguments) == 0


def test_run_refuses_what_the_libraries_do_not_obey(tmp_path, capsys, monkeypatch):
    for name, value in run.ISA_VARIABLES["avx2"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    path = tmp_path / "cpu.json"
    assert small_run(path, "--isa", "avx2") == 2
    assert "does not run avx2 alone when started with ATEN_CPU_CAPABILITY=avx2 MKL_" in capsys.readouterr().err
    assert not path.exists()


def test_figures_held_to_an_instruction_set_have_a_file_and_goals_of_their_own(tmp_path):
    cpu = torch.device("cpu")
    assert machine.results_name(cpu, "avx2") == machine.results_name(cpu).replace(".json", "-avx2.json")
    record = make_record(device="cpu", threads=1, m=1024, n=1024, k=1024, ratio=1.25)
    header = HEADER | {"gpu": None, "cpu": "some", "simd": "AVX2", "isa": "avx2"}
    held = results.Results(tmp_path / "cpu-some-avx2.json", header, [record])
    readme = report.readme_section([held], None, "folder")
    for text in (readme, report.document(held, None)):
        assert "**some (AVX2)** (1 thread(s), PyTorch, MKL, oneDNN and our kernels held to AVX2, PyTorch 2." in text
        assert "| float32, sides from 511 to 2048 | times PyTorch's speed | met |" in text
    assert "[cpu-some-avx2.md](folder/cpu-some-avx2.md)" in readme
    assert "Some shapes of the list" not in readme


@pytest.mark.parametrize("text", ["0", "1,", "two", "-1", "1.5", ""])
def test_numbers_of_threads_are_checked(text, capsys):
    with pytest.raises(SystemExit):
        run.main(["--device", "cpu", "--threads", text])
    assert "expected numbers from 1 on, such as 1,2" in capsys.readouterr().err


def test_run_makes_the_table_and_does_without_matplotlib(tmp_path, capsys, monkeypatch):
    def no_matplotlib(written, current):
        raise ImportError("no matplotlib")

    monkeypatch.setattr(report, "plot", no_matplotlib)
    path = tmp_path / "cpu.json"
    arguments = ["--device", "cpu", "--output", str(path), "--cases", "padded_transpose/square/128x128/float32"]
    assert run.main(arguments) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert "| square | 128 x 128 | float32 |" in path.with_suffix(".md").read_text()


def test_interrupted_run_keeps_what_it_has(tmp_path, capsys, monkeypatch):
    measure = run.Bench.measure
    count = 0

    def interrupted(self, case):
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return measure(self, case)

    monkeypatch.setattr(run.Bench, "measure", interrupted)
    assert small_run(tmp_path / "cpu.json", "--op", "padded_transpose", "--dtype", "float32") == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert len(results.Results.read(tmp_path / "cpu.json").records) == 1


def test_wrong_result_is_a_failure_and_never_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "judge_transpose", lambda result, x: run.Judgement(False, 1.0))
    assert small_run(tmp_path / "cpu.json", "--op", "padded_transpose", "--dtype", "float32") == 1
    assert "WrongResult" in capsys.readouterr().err
    assert not (tmp_path / "cpu.json").exists()


def test_large_products_are_checked_by_rows():
    device = torch.device("cpu")
    assert run.reference_rows(cases.Case("tiled_matmul", "x", 64, 64, 64), device) is None
    rows = run.reference_rows(cases.Case("tiled_matmul", "x", 8192, 8192, 8192), device)
    assert 64 <= len(rows) <= 66
    assert {0, 8191} <= set(rows.tolist())


@pytest.mark.parametrize("layout", cases.TRANSPOSE_LAYOUTS)
def test_transpose_operands_have_the_layout_they_claim(layout):
    case = cases.Case("padded_transpose", "x", 5, 7, dtype="float32", layout=layout)
    x = run.transpose_operand(case, torch.device("cpu"), torch.Generator())
    expected = {"contiguous": (7, 1), "pitched": (23, 1), "transposed": (1, 5), "strided": (14, 2)}[layout]
    assert (tuple(x.shape), x.stride()) == ((5, 7), expected)


@pytest.mark.parametrize("layout", cases.TRANSPOSE_LAYOUTS)
@pytest.mark.parametrize("dtype", cases.TRANSPOSE_DTYPES.values())
def test_transpose_operands_begin_where_the_offset_says(layout, dtype):
    aligned, moved = (
        run.transpose_operand(
            cases.Case("padded_transpose", "x", 5, 7, dtype=dtype, layout=layout, offset=offset),
            torch.device("cpu"),
            torch.Generator(),
        )
        for offset in (0, 1)
    )
    assert (moved.shape, moved.stride()) == (aligned.shape, aligned.stride())
    assert (aligned.storage_offset(), moved.storage_offset()) == (0, 1)
    assert aligned.data_ptr() % 16 == 0
    assert moved.data_ptr() % 16 == moved.element_size() % 16


def test_offset_and_the_copy_of_a_transpose_reach_the_measurement(monkeypatch):
    seen = []
    copied = []

    def judge(result, x):
        seen.append(x.storage_offset())
        return run.Judgement(True, 0.0)

    def time_cpu(calls, *, budget):
        copied.append(calls[2]())
        return [2e-3, 8e-3, 1e-3]

    monkeypatch.setattr(run, "judge_transpose", judge)
    monkeypatch.setattr(timing, "time_cpu", time_cpu)
    case = cases.Case("padded_transpose", "x", 96, 33, dtype="bfloat16", layout="contiguous", offset=1)
    record = run.Bench(torch.device("cpu"), 0.01).measure(case)
    assert seen == [1]
    # All three in one list of calls, which timing.py interleaves, and the copy of as many bytes as the matrix has.
    assert len(copied) == 1
    assert copied[0].is_contiguous()
    assert copied[0].numel() * copied[0].element_size() == 96 * 33 * 2
    assert (record["offset"], record["ratio"], record["copy_us"], record["copy_fraction"]) == (1, 4.0, 1000.0, 0.5)


def test_matmul_operands_have_layout_and_offset():
    case = cases.Case("tiled_matmul", "x", 5, 7, 3, layout="TN", offset=1)
    a, b = run.matmul_operands(case, torch.device("cpu"), torch.Generator())
    assert (a.shape, a.stride(), b.shape, b.stride()) == ((5, 3), (1, 5), (3, 7), (7, 1))
    assert a.storage_offset() == b.storage_offset() == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--op", "mm"], "unknown name 'mm'"),
        (["--dtype", "float"], "unknown name 'float'"),
        (["--max-seconds", "-1"], "expected a positive number"),
        (["--nope"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_of_the_runner_get_one_line(arguments, expected, capsys):
    with pytest.raises(SystemExit) as stopped:
        run.main(arguments)
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert expected in text
    assert text.count("\n") == 1


def test_no_fitting_case_is_said(capsys):
    assert run.main(["--device", "cpu", "--cases", "nothing"]) == 2
    assert "no case fits" in capsys.readouterr().err
    assert run.main(["--device", "cpu", "--cases", "square/128x", "--list"]) == 0
    assert "tiled_matmul/square/128x128x128/float32/NN/auto/call" in capsys.readouterr().out.splitlines()


# ---- reports


@pytest.fixture
def results_folder(tmp_path):
    """Results of a GPU with a win, a loss, a refused baseline and ladders."""
    records = [make_record(algorithm=name, ours_us=us) for name, us in (("naive", 900.0), ("tiled", 400.0))]
    records += [make_record(), make_record(dtype="bfloat16", precision=None, m=4096, n=4096, k=4096)]
    records += [
        make_record(dtype="int8", precision=None, baseline=None, baseline_us=None, ratio=None, baseline_error=None)
    ]
    records += [make_transpose_record(), make_transpose_record(algorithm="naive", ours_us=900.0)]
    folder = tmp_path / "results"
    results.Results(folder / "nvidia-h200.json", HEADER | {"source_digest": digest.source_digest(ROOT)}, records).save()
    return folder


def test_report_shows_wins_and_losses(results_folder, capsys):
    assert report.main(["--results", str(results_folder), "--no-plot"]) == 0
    text = (results_folder / "nvidia-h200.md").read_text()
    assert "Stale" not in text
    assert "| 1024 x 1024 x 1024 | float32 | 2.39 | 5.37 | 33.6 |" in text  # naive, tiled, torch.mm in TFLOP/s
    assert "| 8192 x 8192 | float32 | 597 (14%) | 1,167 (28%) | 4,130 |" in text
    assert "| `tiled_matmul` | float32 | square | 0 | 0 | 1 | 0.16 | 0.16 | 0.16 |" in text
    assert "| `padded_transpose` | float32 | square | 1 | 0 | 0 | 2.00 | 2.00 | 2.00 |" in text
    assert "int8" in text


def test_report_marks_figures_of_other_sources_as_stale(results_folder, tmp_path):
    path = results_folder / "nvidia-h200.json"
    content = json.loads(path.read_text()) | {"source_digest": "f" * 64}
    path.write_text(json.dumps(content))
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    assert report.main(["--results", str(results_folder), "--no-plot", "--readme", str(readme)]) == 0
    assert "**Stale:**" in (results_folder / "nvidia-h200.md").read_text()
    assert "**Stale:**" in readme.read_text()


def test_readme_section_is_rewritten_and_checked(results_folder, tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    (results_folder / "nvidia-h200-check.json").write_text(
        json.dumps(
            {
                "source_digest": "f" * 64,
                "steps": [{"name": "memcheck", "passed": 7, "failed": 1, "skipped": 0, "seconds": 12.3}],
            }
        )
    )
    arguments = ["--results", str(results_folder), "--no-plot", "--readme", str(readme)]
    assert report.main([*arguments, "--check"]) == 1
    assert "is not up to date" in capsys.readouterr().err
    assert report.main(arguments) == 0
    text = readme.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n**NVIDIA H200**")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text.split(report.END)[0].splitlines()
    assert "| memcheck | 7 | 1 | 0 | 12 |" in text
    assert "(**stale**: other sources)" in text
    assert report.main([*arguments, "--check"]) == 0
    readme.write_text("no markers")
    assert report.main(arguments) == 2


def measured_transpose(m, n, dtype="float32", *, fraction=0.5, ratio=2.0, **changes):
    """A record of a transpose at this part of a copy's speed and this many times as fast as PyTorch."""
    fields = {"m": m, "n": n, "dtype": dtype, "element_size": cases.ELEMENT_SIZES[dtype], "copy_fraction": fraction}
    fields |= {"copy_us": 100.0, "ours_us": 100.0 / fraction, "baseline_us": 100.0 / fraction * ratio, "ratio": ratio}
    return make_transpose_record(**fields | changes)


def goal_rows(records, **header):
    """Rows of the table of goals: what follows the first cell, by the first cell."""
    lines = report.transpose_goals(results.Results(ROOT / "none.json", HEADER | header, records))
    table = [line.strip("| ").partition(" | ") for line in lines if line.startswith("| ")]
    return {name: rest for name, _, rest in table[2:]}


def test_goals_are_computed_from_the_records():
    rows = goal_rows(
        [
            measured_transpose(8192, 8192, fraction=0.965, ratio=4.0),
            measured_transpose(8192, 8192, "uint8", fraction=1.0, ratio=8.0),
            measured_transpose(8192, 8192, fraction=0.99, ratio=9.0, offset=1),
            measured_transpose(8191, 8193, "uint8", fraction=0.81, ratio=6.0),  # one byte short of 64 MiB
            measured_transpose(100003, 129, "complex128", fraction=0.99, ratio=3.0),
            measured_transpose(1048576, 3, "complex128", fraction=0.86, ratio=5.0),
            measured_transpose(16, 1048576, "uint8", fraction=0.99, ratio=0.999),  # 16 MiB: narrow and medium
            measured_transpose(1000, 1000, "uint8", fraction=0.5, ratio=16.0),
            measured_transpose(16, 16, mode="host", ours_us=9.0, baseline_us=10.0, ratio=1.111),
            measured_transpose(16, 16, "uint8", mode="host", ours_us=9.6, baseline_us=10.0, ratio=1.042),
            # None of these belongs to any goal.
            measured_transpose(8192, 8192, fraction=0.01, ratio=0.01, layout="pitched"),
            measured_transpose(8192, 8192, fraction=0.01, ratio=0.01, algorithm="padded"),
            measured_transpose(2048, 2048, "float64", fraction=0.01, ratio=0.01),  # 32 MiB
            measured_transpose(512, 512, "uint8", fraction=0.01, ratio=0.01),
            measured_transpose(2000000, 8, "float64", fraction=0.01, ratio=0.01),
            measured_transpose(16, 16, ours_us=100.0, baseline_us=1.0, ratio=0.01),
            make_record(m=8192, n=8192, ratio=0.01),
        ]
    )
    copy, faster, missed = "part of a copy's speed", "times PyTorch's speed", "**not met**"
    odd, all_of_them = (0.99 * 0.99 * 0.81) ** (1 / 3), (4 * 8 * 9 * 6 * 3 * 5 * 0.999 * 16) ** (1 / 8)
    assert rows == {
        "64 MiB and more, even sides from 512": f"{copy} | met | 8192 x 8192 float32 | 2 "
        f"| {0.965**0.5:.4g} | >= 0.98 | 0.965 | >= 0.95",
        "64 MiB and more, odd side or base, sides from 128": f"{copy} | {missed} (mean, worst) | 8191 x 8193 uint8 | 3 "
        f"| {odd:.4g} | >= 0.95 | 0.81 | >= 0.9",
        "1,048,576 x 3 to 64 and mirrored, 16 MiB and more": f"{copy} | met | 1048576 x 3 complex128 | 2 "
        f"| {(0.86 * 0.99) ** 0.5:.4g} | >= 0.92 | 0.86 | >= 0.85",
        "1 to 16 MiB": f"{faster} | {missed} (worst) | 16 x 1048576 uint8 | 2 | 3.998 | >= 2 | 0.999 | >= 1",
        "all of these": f"{faster} | {missed} (worst) | 16 x 1048576 uint8 | 8 "
        f"| {all_of_them:.4g} | >= 4 | 0.999 | >= 1",
        "of these the squares of 1-byte elements from 64 MiB": f"{faster} | met | 8192 x 8192 uint8 | 1 "
        "| 8 | - | 8 | >= 8",
        "one call from Python, 16 x 16": f"part of PyTorch's time | {missed} (worst) | 16 x 16 uint8 | 2 "
        "| 0.9295 | - | 0.96 | <= 0.95",
    }


def test_goals_are_met_exactly_at_the_limit_and_missed_below():
    name = "64 MiB and more, odd side or base, sides from 128"
    at_limit = [measured_transpose(8191, n, fraction=0.95) for n in (8191, 8192, 8193)]
    assert "| met |" in goal_rows(at_limit)[name]
    below = [*at_limit, measured_transpose(8192, 8192, fraction=0.9499, offset=1)]
    # The mean of the four is 0.949975: judged as it is shown.
    assert "| met | 8192 x 8192 float32 +1 | 4 | 0.95 |" in goal_rows(below)[name]
    assert "| **not met** (mean) |" in goal_rows([below[-1]])[name]


def test_goals_without_records_are_left_out():
    assert list(goal_rows([measured_transpose(16384, 16384)])) == [
        "64 MiB and more, even sides from 512",
        "all of these",
    ]
    assert goal_rows([make_record()]) == {}
    assert report.transpose_goals(results.Results(ROOT / "none.json", dict(HEADER), [make_record()])) == []
    on_cpu = [measured_transpose(8192, 8192, device="cpu", threads=2)]
    assert goal_rows(on_cpu, gpu=None, cpu="some", simd="AVX2") == {}


def measured_product(m, n, k, *, ours=100.0, ratio=1.0, **changes):
    """A record of a bfloat16 product that takes this many microseconds and is this many times as fast as PyTorch."""
    fields = {"m": m, "n": n, "k": k, "dtype": "bfloat16", "element_size": 2, "precision": None}
    return make_record(**fields | {"ours_us": ours, "baseline_us": ours * ratio, "ratio": ratio} | changes)


def test_goals_of_products_are_computed_from_the_records():
    written = results.Results(
        ROOT / "none.json",
        dict(HEADER),
        [
            measured_product(8192, 8192, 8192, ratio=1.1),
            measured_product(2048, 2048, 2048, ratio=0.98, layout="NT"),
            measured_product(4096, 4096, 4096, ratio=5.0, offset=1),  # 1.2 times the speed of the one by wgmma
            measured_product(4096, 4096, 4160, ours=100.0, ratio=1.05),
            measured_product(4096, 4096, 4159, ours=100.0, ratio=4.0),  # 4159 / 4160 of the speed
            measured_product(4096, 4096, 4099, ours=110.0, ratio=5.0),
            measured_product(4096, 4096, 4095, ours=110.0, ratio=6.0),  # no 4096 beside it
            measured_product(1024, 50257, 768, ratio=4.5, dtype="float16"),
            measured_product(511, 513, 1025, ratio=0.99),
            measured_product(512, 512, 512, ratio=1.2),
            measured_product(16, 4096, 4096, ratio=0.95),
            measured_product(4096, 4096, 64, ratio=1.4),
            measured_product(4096, 4096, 4096, ours=200.0, algorithm="mma"),
            measured_product(4096, 4096, 4096, ours=120.0, algorithm="wgmma"),
            # None of these belongs to any goal.
            measured_product(512, 512, 512, ratio=0.01, mode="graph"),
            measured_product(8192, 8192, 8192, ratio=0.01, dtype="float32"),
            measured_product(16, 16, 1048576, ratio=0.01),
            make_transpose_record(),
        ],
    )
    lines = report.matmul_goals(written)
    table = [line.strip("| ").partition(" | ") for line in lines if line.startswith("| ")]
    faster = "times PyTorch's speed"
    own, other = 0.8958, 0.9998  # 4099 / 4160 / 1.1, and 4159 / 4160
    assert {name: rest for name, _, rest in table[2:]} == {
        "multiples of 8, from 2048": f"{faster} | met | 2048 x 2048 x 2048 bfloat16 NT | 3 "
        f"| {(1.1 * 0.98 * 1.05) ** (1 / 3):.4g} | >= 1.03 | 0.98 | >= 0.97",
        "k or n odd or base off, sides from 2047": f"{faster} | met | 4096 x 4096 x 4159 bfloat16 | 4 "
        f"| {(5 * 4 * 5 * 6) ** 0.25:.4g} | >= 4.5 | 4 | -",
        "4096 x 4096 by odd k from 4033 to 4159": "part of our speed at the next multiple of 64 | **not met** (worst) "
        f"| 4096 x 4096 x 4099 bfloat16 | 2 | {(own * other) ** 0.5:.4g} | - | {own:.4g} | >= 0.9",
        "4096 x 4096 x 4096 by odd n, or base off": "part of our speed at the next multiple of 64 | met "
        "| 4096 x 4096 x 4096 bfloat16 +1 | 1 | 1.2 | - | 1.2 | >= 0.9",
        "n = 50257 or 32003, m from 1024": f"{faster} | met | 1024 x 50257 x 768 float16 | 1 | 4.5 | - | 4.5 | >= 4.5",
        "k or n odd, sides from 255 to 2047": f"{faster} | **not met** (mean, worst) | 511 x 513 x 1025 bfloat16 | 1 "
        "| 0.99 | >= 1.5 | 0.99 | >= 1",
        "squares of 256, 512, 1024": f"{faster} | met | 512 x 512 x 512 bfloat16 | 1 | 1.2 | >= 1 | 1.2 | >= 0.9",
        "m = 16, 64, 128 of language models": f"{faster} | **not met** (mean) | 16 x 4096 x 4096 bfloat16 | 1 "
        "| 0.95 | >= 1 | 0.95 | >= 0.9",
        "4096 x 4096 x 64, 8192 x 8192 x 128": f"{faster} | met | 4096 x 4096 x 64 bfloat16 | 1 "
        "| 1.4 | - | 1.4 | >= 1.3",
        "4096 x 4096 x 4096 by mma": "part of the speed of wgmma | met | 4096 x 4096 x 4096 bfloat16 | 1 "
        "| 0.6 | - | 0.6 | >= 0.55",
    }
    on_cpu = results.Results(ROOT / "none.json", HEADER | {"gpu": None, "cpu": "some"}, written.records)
    assert report.matmul_goals(on_cpu) == []


def test_goals_of_float32_and_complex64_are_computed_from_the_records():
    def product(m, n, k, ratio, dtype="float32", precision="ieee", **changes):
        return measured_product(m, n, k, ratio=ratio, dtype=dtype, precision=precision, **changes)

    written = results.Results(
        ROOT / "none.json",
        dict(HEADER),
        [
            product(4096, 4096, 4096, 2.2),
            product(1000, 1000, 1000, 1.6, layout="TT"),  # of both
            product(128, 128, 128, 0.9),
            product(4096, 4096, 4096, 0.96, algorithm="simt"),
            product(2048, 2048, 2048, 1.04, precision="tf32", layout="NT"),
            product(4096, 4096, 4096, 1.5, precision="tf32", layout="TN"),
            product(1001, 1001, 1001, 2.4, precision="tf32"),
            product(2047, 2047, 2047, 1.9, dtype="complex64", precision=None),
            # None of these belongs to any goal.
            product(4096, 4096, 4096, 0.01, mode="graph"),
            product(1024, 1024, 1024, 0.01, precision="tf32"),
            product(511, 513, 1025, 0.01, dtype="complex64", precision=None),
            product(4096, 4096, 4096, 0.01, dtype="float64", precision=None),
            make_transpose_record(),
        ],
    )
    lines = report.wide_goals(written)
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert {row[0]: row[2:] for row in table[2:]} == {
        "float32, sides from 1000": [
            *("**not met** (mean)", "1000 x 1000 x 1000 float32 TT", "2"),
            *(f"{(2.2 * 1.6) ** 0.5:.4g}", ">= 2", "1.6", ">= 1.5"),
        ],
        "float32, squares from 128 to 1023": [
            *("**not met** (worst)", "128 x 128 x 128 float32", "2"),
            *(f"{(1.6 * 0.9) ** 0.5:.4g}", ">= 1.2", "0.9", ">= 1"),
        ],
        "float32 by simt, sides from 2048": [
            *("**not met** (mean, worst)", "4096 x 4096 x 4096 float32", "1", "0.96", ">= 1.03", "0.96", ">= 0.97"),
        ],
        "TF32, NN and NT, even sides from 2048": [
            *("met", "2048 x 2048 x 2048 float32 NT", "1", "1.04", ">= 1.03", "1.04", ">= 0.95"),
        ],
        "TF32, TN and TT, even sides from 2048": [
            *("met", "4096 x 4096 x 4096 float32 TN", "1", "1.5", "-", "1.5", ">= 1.45"),
        ],
        "TF32, odd sides from 1000": [
            *("**not met** (worst)", "1001 x 1001 x 1001 float32", "1", "2.4", "-", "2.4", ">= 2.5"),
        ],
        "complex64, sides from 1024": [
            *("met", "2047 x 2047 x 2047 complex64", "1", "1.9", "-", "1.9", ">= 1"),
        ],
    }
    on_cpu = results.Results(ROOT / "none.json", HEADER | {"gpu": None, "cpu": "some"}, written.records)
    assert report.wide_goals(on_cpu) == []


def test_goals_of_a_cpu_are_judged_with_each_number_of_threads():
    def product(m, n, k, dtype, threads, ratio, ours=100.0, **changes):
        fields = {"device": "cpu", "threads": threads, "ours_us": ours, "ratio": ratio, "roof_us": None}
        return make_record(m=m, n=n, k=k, dtype=dtype, **fields | {"roof_fraction": None} | changes)

    records = [
        product(512, 512, 512, "float32", 1, 1.1, ours=90.0),
        product(1000, 1000, 1000, "float32", 1, 0.8, layout="NT"),
        product(512, 512, 512, "float32", 2, 1.3),
        product(8, 8, 8, "float32", 1, 0.5),
        product(16, 4096, 4096, "float32", 1, 2.0),
        product(512, 512, 512, "bfloat16", 1, 60.0, ours=100.0),
        product(512, 512, 512, "bfloat16", 1, 10.0, layout="NT"),  # no float32 beside it
        product(512, 512, 512, "float32", 1, 0.01, algorithm="naive"),
        measured_transpose(4096, 4096, "float32", fraction=0.9, ratio=3.5, device="cpu", threads=1),
        measured_transpose(64, 64, "uint8", fraction=0.1, ratio=0.99, device="cpu", threads=2),
    ]
    lines = report.cpu_goals(results.Results(ROOT / "none.json", HEADER | {"gpu": None, "cpu": "some"}, records))
    at = [lines.index("With 1 thread:"), lines.index("With 2 threads:")]
    tables = []
    for part in (lines[at[0] : at[1]], lines[at[1] :]):
        rows = [line.strip("| ").split(" | ") for line in part if line.startswith("| ")][2:]
        tables.append({(row[0], row[1]): row[2:] for row in rows})
    faster, own = "times PyTorch's speed", "part of our float32 speed"
    mean = f"{(1.1 * 0.8) ** 0.5:.4g}"
    assert tables[0] == {
        ("float32, sides from 511 to 2048", faster): [
            *("**not met** (mean, worst)", "1000 x 1000 x 1000 float32 NT", "2", mean, ">= 1", "0.8", ">= 0.85"),
        ],
        ("float32, sides up to 256, or m or n up to 16", faster): [
            *("met", "8 x 8 x 8 float32", "2", "1", ">= 1", "0.5", "-"),
        ],
        ("16-bit floats, sides from 256", faster): [
            *("**not met** (mean)", "512 x 512 x 512 bfloat16 NT", "2", f"{600**0.5:.4g}", ">= 50", "10", "-"),
        ],
        ("16-bit floats, sides from 256", own): [
            *("met", "512 x 512 x 512 bfloat16", "1", "0.9", ">= 0.8", "0.9", "-"),
        ],
        ("transposes from 1 MiB", faster): ["met", "4096 x 4096 float32", "1", "3.5", ">= 3", "3.5", "-"],
        ("transposes from 32 MiB", "part of a copy's speed"): [
            *("met", "4096 x 4096 float32", "1", "0.9", ">= 0.8", "0.9", "-"),
        ],
    }
    assert tables[1] == {
        ("float32, sides from 511 to 2048", faster): [
            *("met", "512 x 512 x 512 float32", "1", "1.3", ">= 1", "1.3", ">= 0.85"),
        ],
        ("transposes below 1 MiB", faster): [
            *("**not met** (worst)", "64 x 64 uint8", "1", "0.99", "-", "0.99", ">= 1"),
        ],
    }
    assert report.cpu_goals(results.Results(ROOT / "none.json", dict(HEADER), records)) == []


def test_tables_of_a_cpu_show_the_most_threads_and_the_page_every_record(tmp_path):
    records = [
        make_record(device="cpu", threads=threads, m=1024, n=1024, k=1024, ours_us=ours)
        for threads, ours in ((1, 1234.0), (2, 777.0))
    ]
    written = results.Results(tmp_path / "cpu.json", HEADER | {"gpu": None, "cpu": "some", "simd": "AVX2"}, records)
    readme = report.readme_section([written], None, "folder")
    assert "777" in readme
    assert "1,234" not in readme
    page = report.document(written, None)
    assert "| 2 | 777 |" in page
    assert "| 1 | 1,234 |" in page
    assert "1 and 2 thread(s); tables and plots without a number of threads: 2" in page


def test_products_over_k_have_a_plot_of_their_own(tmp_path):
    pytest.importorskip("matplotlib")
    sweep = [measured_product(4096, 4096, k, ours=1.0 * k, ratio=0.5) for k in (4034, 4032, 4033)]
    others = [measured_product(4096, 4096, 4040, offset=1), measured_product(4096, 4096, 4041, algorithm="mma")]
    written = results.Results(tmp_path / "nvidia-h200.json", dict(HEADER), sweep + others)
    ours, theirs = report.k_figure(written).axes[0].lines
    assert list(ours.get_xdata()) == [4032, 4033, 4034]
    assert list(ours.get_ydata()) == pytest.approx([2 * 4096 * 4096 / 1e6] * 3)
    assert list(theirs.get_ydata()) == pytest.approx([2 * 2 * 4096 * 4096 / 1e6] * 3)
    assert [path.name for path in report.plots_of(written)][-2:] == ["nvidia-h200-k.svg", "nvidia-h200-k.png"]
    assert "(nvidia-h200-k.svg)" in report.document(written, None)
    report.plot(written, None)
    assert (tmp_path / "nvidia-h200-k.png").is_file()
    single = results.Results(tmp_path / "one.json", dict(HEADER), [measured_product(4096, 4096, 4096)])
    assert "-k.svg" not in report.document(single, None)


def test_goals_and_plot_of_transposes_are_in_page_and_readme(results_folder, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    assert report.main(["--results", str(results_folder), "--no-plot", "--readme", str(readme)]) == 0
    row = "| **not met** (mean, worst) | 8192 x 8192 float32 | 1 | 0.565 | >= 0.98 | 0.565 | >= 0.95 |"
    for text in ((results_folder / "nvidia-h200.md").read_text(), readme.read_text()):
        assert row in text
        assert "nvidia-h200-transposes.svg)" in text


def test_plots_are_made_and_are_the_same_each_time(results_folder):
    pytest.importorskip("matplotlib")
    names = [f"nvidia-h200{which}.{suffix}" for which in ("", "-transposes") for suffix in ("svg", "png")]
    assert report.main(["--results", str(results_folder)]) == 0
    first = {name: (results_folder / name).read_bytes() for name in names}
    assert all(content.startswith(b"\x89PNG") for name, content in first.items() if name.endswith("png"))
    assert report.main(["--results", str(results_folder)]) == 0
    assert {name: (results_folder / name).read_bytes() for name in names} == first


def test_moved_base_does_not_stand_in_for_its_shape():
    pytest.importorskip("matplotlib")
    records = [measured_transpose(8192, 8192, offset=offset) for offset in (0, 1)]
    both = results.Results(ROOT / "none.json", dict(HEADER), records)
    assert len([line for line in report.highlights(both) if "8192 x 8192" in line]) == 1
    assert len(report.rates_figure(both).axes[2].patches) == 2  # a bar of ours, a bar of PyTorch's
    lines = report.transposes_figure(both).axes[0].lines
    assert [len(line.get_xdata()) for line in lines[:2]] == [1, 1]


def test_missing_plot_of_transposes_is_not_up_to_date(results_folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    arguments = ["--results", str(results_folder), "--readme", str(readme)]
    assert report.main(arguments) == 0
    assert report.main([*arguments, "--check"]) == 0
    (results_folder / "nvidia-h200-transposes.svg").unlink()
    assert report.main([*arguments, "--check"]) == 1
    assert "nvidia-h200-transposes.svg is not up to date" in capsys.readouterr().err


def test_results_without_transposes_have_no_plot_of_them(tmp_path):
    products = results.Results(tmp_path / "nvidia-h200.json", dict(HEADER), [make_record()])
    on_cpu = [measured_transpose(8192, 8192, device="cpu", threads=2)]
    cpu = results.Results(tmp_path / "cpu.json", HEADER | {"gpu": None, "cpu": "some", "simd": "AVX2"}, on_cpu)
    for written in (products, cpu):
        assert "-transposes" not in report.document(written, None)
        assert [path.suffix for path in report.plots_of(written)] == [".svg", ".png"]


def test_report_without_results_says_so(tmp_path, capsys):
    assert report.main(["--results", str(tmp_path)]) == 2
    assert "no results file" in capsys.readouterr().err


def test_committed_tables_and_readme_are_what_the_report_makes(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err


# ---- the GPU check (its steps need a GPU; what reads their output does not)


def test_junit_counts_failures_errors_and_skips(tmp_path):
    path = tmp_path / "junit.xml"
    path.write_text(
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase><testcase><error/></testcase>"
        "<testcase><skipped/></testcase></testsuite></testsuites>"
    )
    assert gpu_check.junit_counts(path) == gpu_check.Outcome(1, 2, 1)
    with pytest.raises(gpu_check.StepFailed, match="no test report"):
        gpu_check.junit_counts(tmp_path / "missing.xml")


def test_crash_or_empty_run_is_no_pass():
    assert gpu_check.with_exit_code(gpu_check.Outcome(5), gpu_check.Finished(139, "")).failed == 1
    assert gpu_check.with_exit_code(gpu_check.Outcome(), gpu_check.Finished(0, "")).note == "no test ran"
    assert gpu_check.with_exit_code(gpu_check.Outcome(5), gpu_check.Finished(0, "")).failed == 0


def test_sanitizer_summaries_are_read():
    assert gpu_check.sanitizer_errors("========= ERROR SUMMARY: 0 errors\n") == 0
    assert gpu_check.sanitizer_errors("========= ERROR SUMMARY: 1 error\n") == 1
    assert gpu_check.sanitizer_errors("========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)\n") == 3
    assert gpu_check.sanitizer_errors("Segmentation fault") is None


def test_gtest_summary_is_read():
    text = "[==========] 9 tests ran. (5 ms total)\n[  PASSED  ] 6 tests.\n[  SKIPPED ] 1 test, listed below:\n"
    assert gpu_check.gtest_counts(text + "[  FAILED  ] 2 tests, listed below:\n") == gpu_check.Outcome(6, 2, 1)


def ncu_output(launches):
    """What ncu prints for launches of (conflicts of loads, conflicts of stores, share of DRAM peak)."""
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for index, (load, store, dram) in enumerate(launches):
        lines.append(f'"{index}","kernel","{gpu_check.CONFLICTS_LOAD}","","{load:,}"')
        lines.append(f'"{index}","kernel","{gpu_check.CONFLICTS_STORE}","","{store:,}"')
        lines.append(f'"{index}","kernel","{gpu_check.DRAM_SHARE}","%","{dram}"')
    return "\n".join(lines)


def judged(*launches):
    return gpu_check.judge_transposes(gpu_check.ncu_metrics(ncu_output(launches)))


def test_transposes_are_judged_by_their_counters():
    accesses = 4096**2 // 32  # of one direction; 16384 x 16384 takes sixteen times as many
    shared, padded, padded16 = (31 * accesses, 0, 24.0), (100, 200, 41.5), (accesses, accesses, 40.0)
    good = judged(shared, padded, padded16, (1_600_000, 0, 89.5))
    assert (good.passed, good.failed) == (7, 0)
    assert "padded at 4096 x 4096 300 conflicts (0.00 a turn) and 42% of DRAM peak" in good.note
    assert "vectorized at 16384 x 16384 1600000 conflicts (0.10 a turn) and 90% of DRAM peak" in good.note
    assert "not so" not in good.note

    # Pairs of words in one bank, in one direction.
    conflicting = judged(shared, padded, padded16, (0, 16 * accesses, 89.5))
    assert conflicting.failed == 2
    assert conflicting.note.endswith(
        "not so: the simulation agrees (shared 15.5, padded 0, padded16 1, vectorized 0; not vectorized); "
        "vectorized has next to none (under 0.25 a turn)"
    )
    slow = judged(shared, padded, padded16, (0, 0, 84.9))
    assert (slow.failed, slow.note.split("; ")[1:]) == (1, ["not so: vectorized reaches 85% of DRAM peak"])
    assert judged(shared, (0, accesses, 41.5), padded16, (0, 0, 89.5)).failed == 2
    assert judged(padded, padded, padded, (0, 0, 89.5)).failed == 4
    assert judged(*[shared] * 4).failed == 6
    with pytest.raises(gpu_check.StepFailed, match="saw 3 launches, expected 4"):
        judged(shared, padded, padded16)
    with pytest.raises(gpu_check.StepFailed, match="saw 0 launches, expected 4"):
        gpu_check.judge_transposes(gpu_check.ncu_metrics("==ERROR== no permission"))


def test_occupancy_is_judged_by_the_counts_that_are_printed_last():
    agrees = gpu_check.Finished(0, 'note\n{"kernels": 3, "compared": 40, "differing": 0}\n')
    assert gpu_check.judge_occupancy(agrees) == gpu_check.Outcome(40, 0, 0, "3 kernels, 40 launches")
    differs = gpu_check.Finished(1, 'one: 2 blocks\n{"kernels": 3, "compared": 40, "differing": 1}\n')
    found = gpu_check.judge_occupancy(differs)
    assert (found.passed, found.failed) == (39, 1)
    assert found.note.endswith("last difference: one: 2 blocks")
    crashed = gpu_check.Finished(1, "Traceback\nRuntimeError: cuModuleLoadData failed with 209\n")
    with pytest.raises(gpu_check.StepFailed, match="printed no counts"):
        gpu_check.judge_occupancy(crashed)
    nothing = gpu_check.Finished(1, '{"kernels": 0, "compared": 0, "differing": 0}\n')
    assert gpu_check.judge_occupancy(nothing).failed == 1
    unknown = gpu_check.Finished(1, 'nothing to compare: why\n{"kernels": 0, "compared": 0, "differing": 1}\n')
    found = gpu_check.judge_occupancy(unknown)
    assert (found.passed, found.failed) == (0, 1)
    assert found.note == "0 kernels, 0 launches; last difference: nothing to compare: why"


def fat_image(payload):
    """As the linker puts one into .nv_fatbin: magic number, version, size of the header, size of what follows."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def test_images_are_found_one_after_the_other():
    first, second = fat_image(b"x" * 24), fat_image(b"y" * 13)
    assert list(occupancy_check.images(first + b"\0" * 16 + second + b"\0" * 3)) == [first, second]
    assert list(occupancy_check.images(b"")) == []


class CalculatorOfTheDriver:
    """Answers as the driver would for one kernel; `wrong_threads` is a block size that it reckons otherwise."""

    def __init__(self, wrong_threads=0, barriers=1):
        self.wrong_threads = wrong_threads
        self.barriers = barriers

    def __call__(self, name, *arguments):
        assert name == "cuFuncSetAttribute"

    def name(self, function):
        return "_ZN4pmpp6matmul25tiled_matmul_tiled_kernelIfEEvNS0_9ArgumentsIT_EE"

    def attribute(self, function, which):
        return {0: 256, 1: 2048, 4: 29}[which]

    def blocks(self, function, threads, dynamic):
        found = _occupancy.occupancy(_devices.CAPABILITIES[90], threads, 29, 2048, dynamic, self.barriers).blocks
        return found + 1 if threads == self.wrong_threads else found


def recorded(registers=29, barriers=1):
    name = "tiled_matmul_tiled_kernel<float>"
    return {name: _kernels.Kernel("90a", name, registers, 0, 2048, 704, barriers)}


def test_occupancy_of_a_kernel_is_compared_at_every_block_size_that_it_takes():
    capability = _devices.CAPABILITIES[90]

    def compare(driver, kernels):
        return occupancy_check.compare(driver, None, capability, kernels)

    count, differing = compare(CalculatorOfTheDriver(), recorded())
    sizes = [threads for threads in occupancy_check.BLOCKS if threads <= 256]
    amounts = len(occupancy_check.DYNAMIC) + 1
    assert (count, differing) == (len(sizes) * amounts, [])
    _, differing = compare(CalculatorOfTheDriver(wrong_threads=96), recorded())
    assert len(differing) == amounts
    assert differing[0].startswith(
        "tiled_matmul_tiled_kernel<float>: 96 threads, 29 registers, 2048 + 0 bytes, 1 barriers"
    )

    # The driver does not tell barriers: they are those of the table.
    assert compare(CalculatorOfTheDriver(barriers=16), recorded(barriers=16)) == (count, [])
    _, differing = compare(CalculatorOfTheDriver(barriers=16), recorded())
    assert differing[0].endswith("1 barriers: 32 blocks (blocks), the driver says 4")
    assert compare(CalculatorOfTheDriver(), {}) == (0, [])


def test_resources_of_the_driver_are_those_of_the_table():
    def compare(kernels):
        return occupancy_check.compare_resources(CalculatorOfTheDriver(), [None], kernels)

    assert compare(recorded()) == []
    assert compare(recorded(registers=30)) == [
        "tiled_matmul_tiled_kernel<float>: (registers, bytes) are (30, 2048) in kernels.json, (29, 2048) in the driver"
    ]
    assert len(compare({})) == 1


def test_nothing_is_compared_without_a_table(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(occupancy_check, "read_kernels", lambda _: _kernels.KernelTable((), "why"))
    assert occupancy_check.main() == 1
    text = capsys.readouterr().out
    assert gpu_check.judge_occupancy(gpu_check.Finished(1, text)).note.endswith("nothing to compare: why")


def test_sections_are_read_by_name():
    content = pathlib.Path(torch_pmpp.__file__).with_name("lib").joinpath("libpmpp.so").read_bytes()
    assert b"libtorch" in occupancy_check.section(content, ".dynstr")
    assert occupancy_check.section(content, ".none") == b""
    images = list(occupancy_check.images(occupancy_check.section(content, ".nv_fatbin")))
    # A library for the CPU alone has none, another one at least for each dtype of the classic kernels.
    assert (images == []) if torch_pmpp.build_info.cuda is None else (len(images) >= 11)


def test_launches_are_profiled_in_the_order_they_are_judged(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: events.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: events.append("stop"))
    monkeypatch.setattr(torch, "randn", lambda *shape, device: torch.empty(shape, device="meta"))

    def transpose(x, *, algorithm, out):
        assert out.shape == x.shape
        events.append((algorithm, x.shape[0]))

    monkeypatch.setattr(torch_pmpp, "padded_transpose", transpose)
    profile_transposes.main()
    launches = list(profile_transposes.LAUNCHES)
    assert events == [*launches, "start", *launches, "stop"]
    assert launches[-1] == ("vectorized", 16384)


def test_process_that_takes_too_long_is_stopped():
    start = time.perf_counter()
    with pytest.raises(gpu_check.StepFailed, match="took longer than 1 s"):
        gpu_check.run_process([sys.executable, "-c", "import time; time.sleep(60)"], seconds=1.0)
    assert time.perf_counter() - start < 20
    with pytest.raises(gpu_check.StepFailed, match="cannot run /nowhere/tool"):
        gpu_check.run_process(["/nowhere/tool"])


def test_missing_tool_or_build_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PMPP_BUILD_DIR", raising=False)
    with pytest.raises(gpu_check.StepFailed, match="no-such-tool is not installed"):
        gpu_check.find_tool("no-such-tool")
    with pytest.raises(gpu_check.StepFailed, match="no build with cuda_kernels_test"):
        gpu_check.find_build(None, tmp_path)
    (tmp_path / "build" / "cuda" / "tests").mkdir(parents=True)
    (tmp_path / "build" / "cuda" / "tests" / "cuda_kernels_test").touch()
    assert gpu_check.find_build(None, tmp_path) == tmp_path / "build"


def test_failing_step_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    path = tmp_path / "check.json"
    monkeypatch.setattr(gpu_check, "no_cuda_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA H200")
    monkeypatch.setattr(gpu_check, "source_digest", lambda root: torch_pmpp.build_info.source_digest)

    def broken(self):
        raise gpu_check.StepFailed("no tool")

    monkeypatch.setattr(gpu_check.Check, "ctest", broken)
    monkeypatch.setattr(gpu_check.Check, "pytest", lambda self: gpu_check.Outcome(3, 0, 1))
    assert gpu_check.main(["--steps", "ctest,pytest", "--output", str(path)]) == 1
    content = json.loads(path.read_text())
    assert content["source_digest"] == torch_pmpp.build_info.source_digest
    assert [step["name"] for step in content["steps"]] == ["ctest", "pytest"]
    assert content["steps"][0] | {"seconds": 0} == {
        "name": "ctest",
        "passed": 0,
        "failed": 1,
        "skipped": 0,
        "note": "no tool",
        "seconds": 0,
    }
    assert set(content["steps"][1]) == {"name", "passed", "failed", "skipped", "seconds"}
    monkeypatch.setattr(gpu_check.Check, "ctest", lambda self: gpu_check.Outcome(9))
    assert gpu_check.main(["--steps", "ctest", "--output", str(path)]) == 0
    assert [step["failed"] for step in json.loads(path.read_text())["steps"]] == [0, 0]
    capsys.readouterr()


def test_gpu_check_without_a_gpu_says_so(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "no_cuda_reason", lambda: "PyTorch sees no CUDA device")
    assert gpu_check.main([]) == 2
    assert "PyTorch sees no CUDA device" in capsys.readouterr().err


# ---- the examples


def test_python_example_trains_alike():
    path = ROOT / "examples" / "python" / "mlp.py"
    spec = importlib.util.spec_from_file_location("pmpp_example_mlp", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    x, y = example.make_data(200)
    theirs, _ = example.train(torch.mm, x, y, 5)
    ours, _ = example.train(torch_pmpp.tiled_matmul, x, y, 5)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert ours[-1] < ours[0]


def test_plot_of_rates_leaves_out_operands_off_their_alignment():
    """And gives each algorithm a colour of its own."""
    pytest.importorskip("matplotlib").use("Agg")
    read = results.Results.read(ROOT / "benchmarks" / "results" / "nvidia-h200.json")
    (plain,) = (
        record
        for record in read.records
        if (record["op"], record["dtype"], record["algorithm"]) == ("tiled_matmul", "bfloat16", "auto")
        and (record["m"], record["n"], record["k"], record["layout"]) == (4096, 4096, 4096, "NN")
        and (record["offset"], record["mode"]) == (0, "call")
    )
    lines = {line.get_label(): line for line in report.rates_figure(read).axes[1].get_lines()}
    for label, field in (("auto", "ours_us"), ("torch.mm", "baseline_us")):
        rates = dict(zip(lines[label].get_xdata(), lines[label].get_ydata(), strict=True))
        assert rates[4096] == pytest.approx(2 * 4096**3 / plain[field] / 1e6)
    assert len({line.get_color() for line in lines.values()}) == len(lines)
