"""benchmarks/accuracy.py: the errors it reports, and the float32 and complex64 kernels held to them on a GPU."""

import json

import pytest
import torch
from support import needs_cuda, on_each_device

import torch_pmpp
from benchmarks import accuracy

OP = "tiled_matmul"


def test_errors_are_in_units_of_the_last_place():
    a, b = torch.eye(4) * 3, torch.ones(4, 4)
    exact = torch.full((4, 4), 3.0)
    assert accuracy.errors(exact, a, b) == (0.0, 0.0)
    off = exact.clone()
    off[1, 2] *= 1 + 2.0**-20
    norm, element = accuracy.errors(off, a, b)
    assert element == pytest.approx(16, rel=1e-3)
    assert norm == pytest.approx(4, rel=1e-3)  # one element of sixteen


@pytest.mark.parametrize("kind", accuracy.DATA)
def test_data_are_what_they_are_called_and_the_same_for_a_seed(kind):
    cpu = torch.device("cpu")
    a, b = accuracy.DATA[kind](accuracy._Random(3, cpu), 40, 50, 64)
    assert a.shape == (40, 64)
    assert b.shape == (64, 50)
    assert a.dtype == b.dtype == torch.float32
    again = accuracy.DATA[kind](accuracy._Random(3, cpu), 40, 50, 64)
    assert torch.equal(a, again[0])
    assert torch.equal(b, again[1])
    product = a.double() @ b.double()
    assert a.isfinite().all()
    assert product.float().isfinite().all()
    smallest = torch.finfo(torch.float32).tiny
    if kind == "largest":
        assert a.abs().min() > torch.finfo(torch.float32).max / 2.01
    elif kind == "subnormal":
        assert (a.abs() < smallest).double().mean() > 0.9
        assert (product.abs() > smallest).all()
    elif kind == "cancelling":
        assert product.norm() < 0.01 * (a.double().abs() @ b.double().abs()).norm()
    elif kind == "spread":
        assert a.abs().max() / a.abs().median() > 2.0**15


@pytest.mark.parametrize("kind", accuracy.DATA)
def test_complex_data_have_two_parts_of_the_kind(kind):
    random = accuracy._Random(3, torch.device("cpu"))
    a, b = accuracy.operands(kind, random, 40, 50, 64, torch.complex64)
    assert a.dtype == b.dtype == torch.complex64
    real_a, real_b = accuracy.operands(kind, accuracy._Random(3, torch.device("cpu")), 40, 50, 64)
    assert torch.equal(a.real, real_a)
    assert torch.equal(b.real, real_b)
    assert not torch.equal(a.imag, real_a)
    product = a.to(torch.complex128) @ b.to(torch.complex128)
    assert product.to(torch.complex64).isfinite().all()
    if kind == "cancelling":
        assert product.norm() < 0.01 * (a.to(torch.complex128).abs() @ b.to(torch.complex128).abs()).norm()
    elif kind == "subnormal":
        assert (a.imag.abs() < torch.finfo(torch.float32).tiny).double().mean() > 0.9


def test_complex_errors_are_those_of_both_parts():
    a, b = torch.eye(4) * (3 + 4j), torch.ones(4, 4, dtype=torch.complex64)
    exact = torch.full((4, 4), 3 + 4j)
    assert accuracy.errors(exact, a, b) == (0.0, 0.0)
    off = exact.clone()
    off[1, 2] += 5j * 2.0**-20
    norm, element = accuracy.errors(off, a, b)
    assert element == pytest.approx(16, rel=1e-2)
    assert norm == pytest.approx(4, rel=1e-2)  # one element of sixteen


def test_a_row_fails_where_the_baseline_is_better(monkeypatch):
    worse = lambda a, b, algorithm: torch.mm(a, b) * (1 + 2.0**-20 if algorithm == "bad" else 1)  # noqa: E731
    monkeypatch.setattr(torch_pmpp, "tiled_matmul", worse)
    rows = accuracy.measure("normal", 64, ["same", "bad"], torch.device("cpu"), size=16, seeds=2)
    assert [(row["algorithm"], row["accurate"]) for row in rows] == [("torch.mm", True), ("same", True), ("bad", False)]
    text = accuracy.table(rows)
    assert text.count("**") == 2
    assert text.splitlines()[2].startswith("| 64, normal |")


def test_the_command_writes_its_file(tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = ["--device", "cpu", "--k", "32", "--data", "normal,uniform", "--algorithms", "naive"]
    assert accuracy.main([*arguments, "--output", str(path)]) == 0
    report = json.loads(path.read_text())
    assert [(r["data"], r["algorithm"]) for r in report["records"]] == [
        ("normal", "torch.mm"),
        ("normal", "naive"),
        ("uniform", "torch.mm"),
        ("uniform", "naive"),
    ]
    assert "| 32, normal |" in capsys.readouterr().out
    assert "dtype" not in report


def test_the_command_measures_complex_products(tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = ["--device", "cpu", "--dtype", "complex64", "--k", "32", "--data", "normal", "--algorithms", "naive"]
    assert accuracy.main([*arguments, "--output", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["dtype"] == "complex64"
    assert [r["algorithm"] for r in report["records"]] == ["torch.mm", "naive"]
    assert all(0 < r["norm"] < 16 for r in report["records"])
    assert "| 32, normal |" in capsys.readouterr().out


def test_plots_of_a_file(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    records = [
        {"k": k, "data": kind, "algorithm": name, "norm": norm * k**0.5, "element": 1.0, "accurate": True}
        for k in (128, 1024)
        for kind in ("normal", "uniform")
        for name, norm in (("torch.mm", 2.0), ("emulated", 1.0))
    ]
    report = {"gpu": "G", "torch": "2", "date": "d", "seeds": 5, "size": 256, "dtype": "complex64", "records": records}
    path = tmp_path / "g-accuracy.json"
    path.write_text(json.dumps(report))
    assert accuracy.main(["--draw", str(path)]) == 0
    assert capsys.readouterr().out.split(", ")[0] == str(tmp_path / "g-accuracy.svg")
    first = (tmp_path / "g-accuracy.svg").read_bytes()
    assert (tmp_path / "g-accuracy.png").stat().st_size > 1000
    assert accuracy.main(["--draw", str(path)]) == 0
    assert (tmp_path / "g-accuracy.svg").read_bytes() == first
    path.write_text("{}")
    assert accuracy.main(["--draw", str(path)]) == 2
    assert "g-accuracy.json" in capsys.readouterr().err


def test_committed_files_have_their_plots():
    files = list((accuracy.ROOT / "benchmarks" / "results").glob("*-accuracy.json"))
    assert files
    for file in files:
        assert file.with_suffix(".svg").is_file()
        assert file.with_suffix(".png").is_file()


# ---- PyTorch's float32 setting -----------------------------------------------------------------------------------


@pytest.fixture
def float32_setting():
    """Both interfaces as they were, afterwards."""
    before = torch.backends.cuda.matmul.fp32_precision
    # PyTorch's own test tools, which other tests import, freeze the flags of the whole process.
    with torch.backends.__allow_nonbracketed_mutation():
        yield
        torch.backends.fp32_precision = "none"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.fp32_precision = before


def _old(value):
    torch.backends.cuda.matmul.allow_tf32 = value


def _new(value):
    torch.backends.cuda.matmul.fp32_precision = value


SETTINGS = {
    "old on": (lambda: _old(True), True),
    "old off": (lambda: _old(False), False),
    "high": (lambda: torch.set_float32_matmul_precision("high"), True),
    "highest": (lambda: torch.set_float32_matmul_precision("highest"), False),
    "new tf32": (lambda: _new("tf32"), True),
    "new ieee": (lambda: _new("ieee"), False),
    "everything tf32": (lambda: (_new("none"), setattr(torch.backends, "fp32_precision", "tf32")), True),
    "old on, then new ieee": (lambda: (_old(True), _new("ieee")), False),
    "old off, then new tf32": (lambda: (_old(False), _new("tf32")), True),
}


@pytest.mark.parametrize("name", SETTINGS)
@on_each_device
def test_row_float32_mode_follows_either_interface(device, name, float32_setting):
    change, allows = SETTINGS[name]
    change()
    a, b = torch.randn(256, 300, device=device), torch.randn(300, 200, device=device)
    result = torch_pmpp.tiled_matmul(a, b)  # and raises on no mix
    offered = torch_pmpp.algorithms(OP, device, torch.float32)
    plan = torch.ops.pmpp._tiled_matmul_plan(a, b)
    has_tf32 = device == "cuda" and torch.cuda.get_device_capability() == (9, 0)
    assert ("wgmma" in offered) == (has_tf32 and allows)
    assert plan.startswith("wgmma ") == (has_tf32 and allows)
    _, element = accuracy.errors(result, a, b)
    assert element < (2**14 if has_tf32 and allows else 64)
    if has_tf32 and allows:
        assert element > 64, "that is float32's accuracy: it did not run in tf32"
    elif device == "cuda":
        with pytest.raises(NotImplementedError, match="wgmma"):
            torch_pmpp.tiled_matmul(a, b, algorithm="wgmma")


@needs_cuda
@pytest.mark.cuda
@pytest.mark.parametrize("dtype", accuracy.DTYPES)
@pytest.mark.parametrize("kind", accuracy.DATA)
@pytest.mark.parametrize("k", [128, 512, 8192])
def test_emulated_is_as_accurate_as_the_baseline_where_auto_takes_it(k, kind, dtype):
    if "emulated" not in torch_pmpp.algorithms(OP, "cuda", accuracy.DTYPES[dtype]):
        pytest.skip("needs compute capability 9.0")
    rows = accuracy.measure(kind, k, ["emulated"], torch.device("cuda"), dtype=accuracy.DTYPES[dtype])
    assert rows[1]["accurate"], rows


@needs_cuda
@pytest.mark.cuda
@pytest.mark.parametrize("value", [complex("nan"), complex("inf"), complex(0, float("-inf")), complex(2, float("nan"))])
@pytest.mark.parametrize("k", [130, 4096])
def test_complex_specials_land_where_simt_puts_them(k, value):
    """Elements that are NaN or infinite are computed anew: both parts, by the formula of every other kernel."""
    if "emulated" not in torch_pmpp.algorithms(OP, "cuda", torch.complex64):
        pytest.skip("needs compute capability 9.0")
    a, b = (torch.randn(shape, dtype=torch.complex64, device="cuda") for shape in ((70, k), (k, 65)))
    a[3, 5], a[60, k - 1], b[7, 64], b[8, 2] = value, value.conjugate(), value, 0
    ours, simt = (torch_pmpp.tiled_matmul(a, b, algorithm=name) for name in ("emulated", "simt"))
    for part in ("real", "imag"):
        found, expected = getattr(ours, part), getattr(simt, part)
        special = ~expected.isfinite()
        assert torch.equal(found.isfinite(), expected.isfinite())
        assert torch.equal(found[special].nan_to_num(nan=7), expected[special].nan_to_num(nan=7))


@needs_cuda
@pytest.mark.cuda
@pytest.mark.usefixtures("float32_setting")
def test_tf32_is_as_accurate_as_the_baselines():
    torch.backends.cuda.matmul.allow_tf32 = True
    if "wgmma" not in torch_pmpp.algorithms(OP, "cuda", torch.float32):
        pytest.skip("needs compute capability 9.0")
    a, b = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 512, device="cuda")
    ours = accuracy.errors(torch_pmpp.tiled_matmul(a, b, algorithm="wgmma"), a, b)
    theirs = accuracy.errors(torch.mm(a, b), a, b)
    assert ours[0] <= 1.02 * theirs[0], (ours, theirs)
