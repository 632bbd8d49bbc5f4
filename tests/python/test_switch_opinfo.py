"""PyTorch's own checks of its products: the switch must not make one fail that passes without it."""

import json
import pathlib
import sys

import pytest
import torch
from support import on_each_device

import torch_pmpp

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
    for count in counts:
        assert count.only_off == ()
        assert count.on_passed + count.on_failed == count.off_passed + count.off_failed > 0
        assert count.on_passed > 0
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
    assert (found["device"], found["torch"]) == ("cpu", torch.__version__)
    assert {count["op"] for count in found["counts"]} == {"mm"}
    assert {count["dtype"] for count in found["counts"]} >= {"float16", "float64", "complex128", "int8"}
    assert all(count["on_passed"] == count["off_passed"] > 0 for count in found["counts"])
    assert "taken     mm on cpu" in capsys.readouterr().out
