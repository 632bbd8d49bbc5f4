"""The Python package: public functions, checks at import, FLOP formula, command line."""

import json
import math
import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torch_pmpp
from torch_pmpp import _demo, _info, _library, _reference, _text
from torch_pmpp.__main__ import main

PACKAGE = pathlib.Path(torch_pmpp.__file__).resolve().parent
BUILT = _library.BuildInfo("0.1.0", "2.11.0+cu130", "13.0", ("90a",), "0" * 64)
BUILT_FOR_CPU = _library.BuildInfo("0.1.0", "2.11.0+cpu", None, (), "0" * 64)


def run_cli(*arguments, cwd, **environment):
    """Runs `python -m torch_pmpp` from another folder, as an installed package is run."""
    return subprocess.run(
        [sys.executable, "-m", "torch_pmpp", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


# ---- public functions


def test_package_exports_what_it_documents():
    assert set(torch_pmpp.__all__) <= set(dir(torch_pmpp))
    assert re.fullmatch(r"\d+\.\d+\.\d+", torch_pmpp.__version__)
    assert (PACKAGE / "py.typed").is_file()
    assert (pathlib.Path(torch_pmpp.cmake_prefix_path) / "share/cmake/pmpp/pmppConfig.cmake").is_file()
    assert (pathlib.Path(torch_pmpp.cmake_prefix_path) / "include/pmpp/pmpp.h").is_file()


def test_functions_are_the_operators():
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    assert torch.equal(torch_pmpp.tiled_matmul(a, b), torch.ops.pmpp.tiled_matmul(a, b))
    assert torch.equal(torch_pmpp.padded_transpose(a), torch.ops.pmpp.padded_transpose(a))
    out = torch.empty(5, 3)
    assert torch_pmpp.tiled_matmul(a, b, out=out) is out
    torch.testing.assert_close(out, a @ b)
    turned = torch.empty(7, 5)
    assert torch_pmpp.padded_transpose(a, out=turned) is turned
    assert torch.equal(turned, a.t())
    with pytest.raises(ValueError, match="unknown algorithm 'fast'"):
        torch_pmpp.tiled_matmul(a, b, algorithm="fast")


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (1, 4), (4, 1), (3, 4)], ids=str)
def test_transpose_has_the_parity_of_t_contiguous(shape):
    x = torch.randn(shape)
    expected = x.t().contiguous()
    result = torch_pmpp.transpose(x)
    assert torch.equal(result, expected)
    assert result.stride() == expected.stride()
    # A view exactly where PyTorch gives one.
    assert (result.data_ptr() == x.data_ptr()) == (expected.data_ptr() == x.data_ptr())


def test_transpose_returns_the_view_where_that_is_contiguous():
    x = torch.randn(4, 3).t()
    result = torch_pmpp.transpose(x)
    assert result.data_ptr() == x.data_ptr()
    assert result.is_contiguous()
    assert torch_pmpp.padded_transpose(x).data_ptr() != x.data_ptr()


def test_transpose_refuses_three_dimensions_as_the_operator_does():
    with pytest.raises(
        RuntimeError, match=r"padded_transpose: expected a tensor with at most 2 dimensions, but x has 3"
    ):
        torch_pmpp.transpose(torch.zeros(2, 3, 4))


@pytest.mark.parametrize("op", ["tiled_matmul", "padded_transpose"])
def test_algorithms_lists_the_ladder(op):
    names = torch_pmpp.algorithms(op, "cpu", torch.float32)
    assert names[0] == "naive"
    assert "blocked" in names
    assert "auto" not in names
    assert torch_pmpp.algorithms(op, torch.device("cpu"), torch.float32) == names


def test_algorithms_of_an_unsupported_dtype_is_empty():
    assert torch_pmpp.algorithms("tiled_matmul", "cpu", torch.bool) == []


def test_algorithms_names_what_is_wrong():
    with pytest.raises(ValueError, match="unknown operator 'mm'; expected one of tiled_matmul, padded_transpose"):
        torch_pmpp.algorithms("mm", "cpu", torch.float32)
    with pytest.raises(TypeError, match=r"expected dtype to be a torch\.dtype"):
        torch_pmpp.algorithms("tiled_matmul", "cpu", "float32")
    with pytest.raises(ValueError, match="no kernels for devices of type 'meta'"):
        torch_pmpp.algorithms("tiled_matmul", "meta", torch.float32)
    if (reason := _library.no_cuda_reason()) is not None:
        with pytest.raises(RuntimeError, match=reason):
            torch_pmpp.algorithms("tiled_matmul", "cuda", torch.float32)


def test_a_build_for_the_cpu_alone_leaves_a_gpu_alone(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_library, "read_build_info", lambda: BUILT_FOR_CPU)
    assert _library.no_cuda_reason() == "the library was built for the CPU alone"
    assert main(["algorithms"]) == 0
    assert "cuda" not in capsys.readouterr().out
    assert main(["algorithms", "--device", "cuda"]) == 1
    assert "built for the CPU alone" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="cuda was asked for, but the library was built for the CPU alone"):
        torch_pmpp.algorithms("tiled_matmul", "cuda", torch.float32)


def test_quantized_dtypes_have_no_algorithms():
    assert torch_pmpp.algorithms("padded_transpose", "cpu", torch.qint8) == []


def test_flop_counter_counts_the_product_and_its_backward():
    a = torch.randn(5, 7, requires_grad=True)
    b = torch.randn(7, 3, requires_grad=True)
    with FlopCounterMode(display=False) as ours:
        torch_pmpp.tiled_matmul(a, b).sum().backward()
    with FlopCounterMode(display=False) as theirs:
        torch.mm(a, b).sum().backward()
    assert ours.get_total_flops() == theirs.get_total_flops() == 3 * 2 * 5 * 7 * 3
    with FlopCounterMode(display=False) as out_variant, torch.no_grad():
        torch_pmpp.tiled_matmul(a, b, out=torch.empty(5, 3))
    assert out_variant.get_total_flops() == 2 * 5 * 7 * 3


# ---- checks at import


@pytest.mark.parametrize(
    ("built", "torch_version", "cuda", "expected"),
    [
        (BUILT, "2.11.0+cu130", "13.0", None),
        (BUILT, "2.11.2+cu139", "13.9", None),
        (BUILT, "2.12.0+cu130", "13.0", "it needs PyTorch 2.11, but PyTorch 2.12 is running"),
        (BUILT, "2.1.0", "13.0", "it needs PyTorch 2.11, but PyTorch 2.1 is running"),
        (BUILT, "2.11.0+cu128", "12.8", "it needs CUDA 13, but this PyTorch uses CUDA 12"),
        (BUILT, "2.11.0+cpu", None, "it was built with CUDA, but this PyTorch has no CUDA"),
        (BUILT_FOR_CPU, "2.11.0+cpu", None, None),
        (BUILT_FOR_CPU, "2.11.0+cu130", "13.0", None),
        (BUILT_FOR_CPU, "2.10.1", None, "it needs PyTorch 2.11, but PyTorch 2.10 is running"),
    ],
)
def test_version_mismatch_is_named(built, torch_version, cuda, expected):
    assert _library.mismatch(built, torch_version, cuda) == expected


def write_package(folder, **changes):
    """A package folder with a build_info.json that fits, but for the changes."""
    fields = {
        "version": "0.1.0",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "archs": ["90a"],
        "source_digest": "",
    }
    (folder / "build_info.json").write_text(json.dumps(fields | changes), encoding="utf-8")
    return folder


def test_import_says_versions_and_command_on_a_mismatch(tmp_path):
    with pytest.raises(ImportError) as error:
        _library.load(write_package(tmp_path, torch="1.13.0", cuda="11.7"))
    text = str(error.value)
    assert "it needs PyTorch 1.13, but PyTorch" in text
    assert "Built for: PyTorch 1.13.0 with CUDA 11.7." in text
    assert f"Running: {_library.describe(torch.__version__, torch.version.cuda)}." in text
    assert "To rebuild: python -m pip install" in text


def test_import_says_what_is_missing_or_damaged(tmp_path):
    with pytest.raises(ImportError, match=r"has not been built: .*build_info\.json is missing.*To build: "):
        _library.load(tmp_path)
    with pytest.raises(ImportError, match=r"libpmpp\.so is missing"):
        _library.load(write_package(tmp_path))
    (tmp_path / "build_info.json").write_text("{", encoding="utf-8")
    with pytest.raises(ImportError, match="is damaged"):
        _library.load(tmp_path)


def test_import_of_a_library_that_does_not_load_keeps_the_reason(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libpmpp.so").write_bytes(b"not a library")
    with pytest.raises(
        ImportError, match=r"cannot load the library: .*libpmpp\.so.*Built for: .*To rebuild: "
    ) as error:
        _library.load(write_package(tmp_path))
    assert isinstance(error.value.__cause__, OSError)


def test_rebuild_command_of_a_checkout_is_make(tmp_path, monkeypatch):
    (tmp_path / "registration").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    for prefix, variable in (
        (sys.prefix, " VENV=none"),
        (tmp_path / ".venv", ""),
        (tmp_path / ".venv-torch2.15.0", " TORCH=2.15.0"),
        (tmp_path / ".venv-mine", " VENV=none"),
        (tmp_path.parent / ".venv", " VENV=none"),
    ):
        monkeypatch.setattr(sys, "prefix", str(prefix))
        assert _library.rebuild_command(tmp_path / "torch_pmpp") == f"make -C {tmp_path} clean build{variable}"


@pytest.mark.parametrize(
    ("capability", "archs", "expected"),
    [
        ((9, 0), ["90a"], True),
        ((10, 0), ["90a"], False),
        ((8, 6), ["80"], True),
        ((8, 0), ["86-real"], False),
        ((12, 0), ["80-real", "120"], True),
        ((12, 1), ["120"], True),
        ((9, 0), ["80-virtual"], True),
        ((9, 0), ["80-real"], False),
        ((10, 3), ["100f"], True),
        ((12, 0), ["100f"], False),
        ((9, 0), [], False),
    ],
)
def test_architectures_that_a_gpu_can_run(capability, archs, expected):
    assert _info.has_kernels_for(capability, archs) is expected


# ---- text and references


def test_plain_table_is_aligned():
    table = _text.Table("title", ("name", "time"), frozenset({"time"}))
    table.add("a", "10.0 us")
    table.add("longer", "1 s")
    assert table.plain().splitlines() == [
        "title",
        "name       time",
        "------  -------",
        "a       10.0 us",
        "longer      1 s",
    ]
    with pytest.raises(ValueError, match="expected 2 cells, but got 1"):
        table.add("short")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (3.21e-4, "321 us"), (5e-8, "0.05 us"), (None, "-")],
)
def test_duration(seconds, expected):
    assert _text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"), [(2.0, "2.00x faster"), (0.5, "2.00x slower"), (1.02, "even"), (0.98, "even"), (None, "-")]
)
def test_verdict_is_honest(ratio, expected):
    assert _text.verdict(ratio) == expected


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.int8]
)
def test_reference_accepts_a_right_product_and_nothing_else(dtype):
    generator = torch.Generator().manual_seed(0)
    a = _reference.random_matrix(33, 65, dtype, "cpu", generator, k=65)
    b = _reference.random_matrix(65, 17, dtype, "cpu", generator, k=65)
    reference = _reference.MatmulReference(a, b)
    right = torch.mm(a, b)
    assert reference.judge(right).passed
    for wrong_value in [0, 1] if _reference.is_integer(dtype) else [0, float("nan"), float("inf")]:
        wrong = right.clone()
        wrong[3, 5] = right[3, 5] + 1 if wrong_value == 1 else wrong_value
        assert not reference.judge(wrong).passed
    rows = torch.tensor([0, 3, 32])
    assert _reference.MatmulReference(a, b, rows=rows).judge(right).passed


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32, torch.complex64, torch.complex128])
def test_transposes_are_judged_bit_for_bit(dtype):
    x = torch.randn(5, 7).to(dtype)
    right = x.t().contiguous()
    assert _reference.judge_transpose(right, x) == _reference.Judgement(True, 0.0)
    wrong = right.clone()
    wrong[1, 2] = ~wrong[1, 2] if dtype == torch.bool else -wrong[1, 2]
    assert _reference.judge_transpose(wrong, x).error == pytest.approx(1 / 35)
    assert not _reference.judge_transpose(x.t(), x).passed  # not row-major


# ---- command line


def test_demo_runs_from_any_folder_and_checks_every_result(tmp_path):
    done = run_cli("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        "1024x1024 @ 1024x1024",
        "2398x1298 @ 1298x132",
        "bfloat16",
        "int64",
        "(transposed)",
        "naive",
        "blocked",
    ):
        assert expected in done.stdout
    right, total = map(int, re.search(r"(\d+) of (\d+) results are right", done.stdout).groups())
    assert right == total >= 20
    assert "\x1b" not in done.stdout  # plain text, for it is no terminal


def test_demo_fails_when_a_result_is_wrong(monkeypatch, capsys):
    small = (_demo._Product(16, 16, 16, torch.float32),)
    monkeypatch.setattr(_demo, "_PRODUCTS", small)
    monkeypatch.setattr(_demo, "_PRODUCTS_CUDA", ())
    monkeypatch.setattr(_demo, "_TRANSPOSES", ())
    monkeypatch.setattr(_demo, "_TRANSPOSES_CUDA", ())
    monkeypatch.setattr(_demo, "tiled_matmul", lambda a, b, algorithm: torch.mm(a, b) + 1)
    assert main(["demo"]) == 1
    assert "WRONG" in capsys.readouterr().out
    assert main(["demo", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["results"] == told["wrong"] >= 1
    products, transposes = told["tables"][:2]
    assert (products["op"], products["device"], transposes["op"]) == ("tiled_matmul", "cpu", "padded_transpose")
    assert (products["rows"][0]["right"], transposes["rows"]) == (False, [])
    monkeypatch.setattr(_demo, "tiled_matmul", lambda a, b, algorithm: torch.full((a.shape[0], b.shape[1]), math.nan))
    assert main(["demo", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["tables"][0]["rows"][0]["error"] is None


def test_info_names_the_library_and_the_machine(capsys):
    main(["info"])
    text = capsys.readouterr().out
    for expected in (torch_pmpp.__version__, torch.__version__, torch_pmpp.build_info.source_digest, "CPU SIMD", "fit"):
        assert expected in text


def test_info_complains_about_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(_info, "tree_digest", lambda: "1" * 64)
    assert any("other sources" in sentence for sentence in _info.complaints(BUILT))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 6))
    assert any("compute capability 8.6" in s and "PMPP_CUDA_ARCHS=86" in s for s in _info.complaints(BUILT))
    assert any("built for the CPU alone" in sentence for sentence in _info.complaints(BUILT_FOR_CPU))


def test_algorithms_command_lists_every_dtype(capsys):
    assert main(["algorithms", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert text.count("tiled_matmul") == text.count("padded_transpose") == 11
    assert "auto, naive" in text
    assert main(["algorithms", "--op", "tiled_matmul", "--device", "cpu", "--dtype", "int8"]) == 0
    assert capsys.readouterr().out.count("tiled_matmul") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["demo", "--fast"], "unrecognized arguments: --fast"),
        (["algorithms", "--dtype", "float"], "invalid choice: 'float'"),
    ],
)
def test_wrong_arguments_get_one_line(arguments, expected, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert expected in text
    assert text.count("\n") == 1


def test_bench_of_an_installed_package_says_where_the_benchmarks_are(monkeypatch, capsys):
    monkeypatch.setattr("torch_pmpp.__main__.source_tree", lambda: None)
    assert main(["bench", "--op", "tiled_matmul"]) == 2
    text = capsys.readouterr().err
    assert "part of the source tree" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("no_color", [False, True], ids=["terminal", "NO_COLOR"])
def test_terminal_gets_colours_unless_asked_not_to(tmp_path, no_color):
    if not no_color:
        pytest.importorskip("rich")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TERM": "xterm-256color", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = "1"
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch_pmpp",
            "algorithms",
            "--op",
            "tiled_matmul",
            "--device",
            "cpu",
            "--dtype",
            "int8",
        ],
        cwd=tmp_path,
        env=environment,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    text = b""
    while True:
        try:
            chunk = os.read(parent, 4096)
        except OSError:  # how Linux reports that the other end was closed
            break
        if not chunk:
            break
        text += chunk
    os.close(parent)
    assert process.wait(timeout=60) == 0
    assert b"blocked" in text
    assert (b"\x1b[" in text) is not no_color
