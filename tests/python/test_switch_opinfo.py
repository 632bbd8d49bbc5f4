"""PyTorch's own checks of its products: the switch must not make one fail that passes without it."""

import collections
import concurrent.futures
import json
import pathlib
import sys

import pytest
import torch
from support import on_each_device

import torch_pmpp
from torch_pmpp._library import no_cuda_reason

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def opinfo_switch():
    sys.path.insert(0, str(ROOT))
    from benchmarks import opinfo_switch

    yield opinfo_switch
    sys.path.remove(str(ROOT))


# float64 and complex128, whose gradients are checked by differences, take minutes: benchmarks/opinfo_switch.py.
DTYPES = (torch.bool, torch.int16, torch.float16, torch.bfloat16, torch.float32, torch.complex64)


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_not_one_failure_more_than_without_the_switch(opinfo_switch, device, dtype):
    torch_pmpp.reset_stats()
    counts = opinfo_switch.compare(device, dtypes=(dtype,))
    assert {count.op for count in counts} >= {"mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear"}
    passed = collections.Counter()
    for count in counts:
        assert count.only_off == ()
        assert count.on_passed + count.on_failed == count.off_passed + count.off_failed > 0
        passed[count.op.partition(" ")[0]] += count.on_passed
    # Of a variant none may pass: PyTorch 2.15 lists one of bmm for fewer dtypes than bmm takes on a CPU.
    assert all(passed[count.op.partition(" ")[0]] > 0 for count in counts)
    if dtype.is_floating_point or dtype.is_complex:
        assert {function for function, _ in torch_pmpp.stats().taken} == {"mm", "addmm", "bmm", "baddbmm"}


def test_it_sees_a_switch_that_breaks_something(opinfo_switch, monkeypatch):
    monkeypatch.setattr(opinfo_switch, "_close", lambda *_: _fail_when_on())
    counts = opinfo_switch.compare("cpu", operators=("mm",), dtypes=(torch.float32,))
    assert counts[0].on_passed < counts[0].off_passed
    assert counts[0].only_off


def _fail_when_on():
    before = sum(torch_pmpp.stats().taken.values())
    x = torch.ones(2, 2)
    torch.mm(x, x)
    assert sum(torch_pmpp.stats().taken.values()) == before


def test_command_counts_in_processes_of_its_own_and_writes_them_down(opinfo_switch, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(opinfo_switch, "OPERATORS", ("mm",))
    record = tmp_path / "cpu.json"
    assert opinfo_switch.main(["--device", "cpu", "--jobs", "2", "--json", str(record)]) == 0
    found = json.loads(record.read_text())
    assert (found["device"], found["torch"], found["missing"]) == ("cpu", torch.__version__, [])
    assert {count["op"] for count in found["counts"]} == {"mm"}
    assert [count["dtype"] for count in found["counts"]] == [
        name for name in map(opinfo_switch._name, opinfo_switch.DTYPES) if name in {c["dtype"] for c in found["counts"]}
    ]
    assert {count["dtype"] for count in found["counts"]} >= {"float16", "float64", "complex128", "int8"}
    assert all(count["on_passed"] == count["off_passed"] > 0 for count in found["counts"])
    assert "taken     mm on cpu" in capsys.readouterr().out


def test_shares_of_a_part_are_all_of_its_checks(opinfo_switch):
    whole = opinfo_switch.run_part("cpu", opinfo_switch.Part("mm", "", "float32"))
    shares = [opinfo_switch.run_part("cpu", opinfo_switch.Part("mm", "", "float32", i, 5)) for i in range(5)]
    assert sum((share.checks for share in shares), 0) == whole.checks > 5
    assert shares[0] + shares[1] + shares[2] + shares[3] + shares[4] == whole
    assert all(share.checks > 0 for share in shares)


def test_plan_has_each_check_once_and_the_longest_first(opinfo_switch):
    plan = opinfo_switch.plan()
    assert len(set(map(str, plan))) == len(plan)
    shares = {}
    for part in plan:
        shares.setdefault((part.op, part.variant, part.dtype), []).append((part.index, part.of))
    assert all(found == [(i, len(found)) for i in range(len(found))] for found in shares.values())
    assert {(op, dtype) for op, _, dtype in shares} == {
        (op, opinfo_switch._name(dtype)) for op in opinfo_switch.OPERATORS for dtype in opinfo_switch.DTYPES
    }
    slow = [part.dtype in opinfo_switch.SLOW_DTYPES for part in plan]
    assert slow == sorted(slow, reverse=True)


@pytest.fixture
def in_this_process(opinfo_switch, monkeypatch):
    """Parts run one after the other in a thread: processes take long to start."""
    monkeypatch.setattr(
        opinfo_switch.concurrent.futures,
        "ProcessPoolExecutor",
        lambda jobs, **_: concurrent.futures.ThreadPoolExecutor(1),
    )


@pytest.mark.usefixtures("in_this_process")
def test_command_that_is_cut_off_keeps_what_it_has_and_goes_on(opinfo_switch, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(opinfo_switch, "OPERATORS", ("mm",))
    path = tmp_path / "cpu.json"
    command = ["--device", "cpu", "--json", str(path), "--dtypes", "float32,int8"]

    # No time for a single check.
    assert opinfo_switch.main([*command, "--max-seconds", "1e-9"]) == 3
    assert "2 of 2 parts are missing: mm int8, mm float32" in capsys.readouterr().err
    assert not path.exists()

    # One of the two dtypes that are asked for.
    assert opinfo_switch.main([*command[:-1], "int8"]) == 0
    first = json.loads(path.read_text())
    assert [count["dtype"] for count in first["counts"]] == ["int8"]
    assert "mm float32" in first["missing"]
    assert "mm int8" not in first["missing"]
    capsys.readouterr()
    assert opinfo_switch.main(command) == 0
    assert "going on with" in capsys.readouterr().out
    second = json.loads(path.read_text())
    assert second["counts"][0] == first["counts"][0]
    assert [count["dtype"] for count in second["counts"]] == ["int8", "float32"]
    assert set(first["missing"]) - set(second["missing"]) == {"mm float32"}

    # Nothing of it is of use to other sources, or to another PyTorch, or if it is damaged.
    for content in (json.dumps({**second, "source_digest": ""}), json.dumps({**second, "torch": "1.0"}), "{", "[]"):
        path.write_text(content)
        record = opinfo_switch.Record.open("cpu", path)
        assert (record.counts, record.missing) == ({}, opinfo_switch.plan())
    path.write_text(json.dumps(second))
    assert len(opinfo_switch.Record.open("cpu", path).counts) == 2
    assert opinfo_switch.Record.open("cuda", path).counts == {}


@pytest.mark.usefixtures("in_this_process")
def test_part_that_raises_is_missing(opinfo_switch, tmp_path, capsys):
    record = opinfo_switch.Record.open("cpu", tmp_path / "cpu.json")
    good, unknown = opinfo_switch.Part("mm", "", "int8"), opinfo_switch.Part("mm", "", "float8")
    record.missing = [good, unknown]
    opinfo_switch.run_parts(record, [unknown, good], 1, 0, float("inf"))
    assert record.missing == [unknown]
    assert [count.dtype for count in record.ordered()] == ["int8"]
    assert "mm float8: AttributeError" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_parts_of_a_process_that_dies_are_missing(opinfo_switch, capsys):
    """That it cannot have its GPU is such a death."""
    good = opinfo_switch.Part("mm", "", "int8")
    record = opinfo_switch.Record("cpu", [good])
    opinfo_switch.run_parts(record, [good], 1, 1, float("inf"))
    assert record.missing == [good]
    assert "a process has died" in capsys.readouterr().err


def test_more_gpus_than_there_are_is_refused(opinfo_switch, capsys):
    assert opinfo_switch.main(["--device", "cuda", "--gpus", "1000"]) == 2
    assert "--gpus is 1000, but there are" in capsys.readouterr().err


@pytest.mark.cuda
@pytest.mark.skipif(
    no_cuda_reason() is not None or torch.cuda.device_count() < 2, reason=no_cuda_reason() or "needs two CUDA devices"
)
def test_parts_on_two_gpus(opinfo_switch, tmp_path):
    path = tmp_path / "cuda.json"
    command = ["--device", "cuda", "--gpus", "2", "--jobs", "2", "--operators", "mm", "--dtypes", "float32,int8"]
    assert opinfo_switch.main([*command, "--json", str(path)]) == 0
    assert {count["dtype"] for count in json.loads(path.read_text())["counts"]} == {"float32", "int8"}
