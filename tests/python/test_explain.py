"""The commands explain, roofline, occupancy, conflicts and report, and the table of kernels that the build leaves."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import pytest
import torch
from support import HAS_CUDA, NO_CUDA

import torch_pmpp
from torch_pmpp import _devices, _explain, _kernels, _report, _roofline
from torch_pmpp.__main__ import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
# First on the path: other distributions are known to install a top-level `benchmarks`.
sys.path.insert(0, str(ROOT))

from benchmarks import report  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "nvidia-h200.json"
ACCURACY = RESULTS.with_name("nvidia-h200-accuracy.json")  # records of another kind
H200 = _devices.device_named("h200")
COMMANDS = ("explain", "roofline", "occupancy", "conflicts", "report")
# The tables of the report are made by the checkout that holds the package.
IS_CHECKOUT = pathlib.Path(torch_pmpp.__file__).resolve().parents[1] == ROOT
needs_checkout = pytest.mark.skipif(not IS_CHECKOUT, reason="the package is an installed one")


def as_json(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---- plans for a GPU that is not there


@pytest.mark.parametrize("gpu", [device.name for device in _devices.DEVICES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_gpu_gets_every_step_that_it_can_run(gpu, dtype):
    device = _devices.device_named(gpu)
    found = _explain.explain("tiled_matmul", (4096, 4096, 4096), dtype, device)
    names = [step.algorithm for step in found.steps]
    assert names[:3] == ["naive", "tiled", "tiled_dynamic"]
    tensor = device.capability.number >= 80 and dtype == "bfloat16"
    if dtype == "bfloat16":
        assert ("mma" in names) == tensor
        assert ("wgmma" in names) == (tensor and device.capability.number == 90)
    assert sum(step.chosen for step in found.steps) == 1
    for step in found.steps:
        assert step.occupancy.blocks > 0, (step.algorithm, step.occupancy)
        assert step.waves is not None


def test_plans_are_those_that_the_library_would_launch():
    """On the facts of a real device both ways of asking must agree; here, with the facts of the H200, with the texts
    that the tests of selection know."""
    found = _explain.explain("tiled_matmul", (4096, 4096, 4096), "float32", H200)
    assert [step.plan for step in found.steps[:3]] == [
        "naive 16x16 grid 256x256x1 block 16x16 shared 0",
        "tiled 16x16x16 grid 256x256x1 block 16x16 shared 0",
        "tiled_dynamic 32x32x32 grid 128x128x1 block 32x32 shared 8192",
    ]
    moved = _explain.explain("padded_transpose", (8192, 8192), "float32", H200)
    assert moved.steps[-1].plan == "vectorized aligned 64x64 grid 16384x1x1 block 256x1"


@pytest.mark.cuda
@pytest.mark.skipif(not HAS_CUDA, reason=NO_CUDA)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plans_on_the_device_agree_with_those_for_its_facts(dtype):
    device = _devices.device_called(torch.cuda.get_device_name())
    if device is None:
        pytest.skip("this GPU is not in the table")
    a = torch.empty(1000, 1304, device="cuda", dtype=getattr(torch, dtype))
    b = torch.empty(1304, 2056, device="cuda", dtype=getattr(torch, dtype))
    for step in _explain.explain("tiled_matmul", (1000, 2056, 1304), dtype, device).steps:
        assert step.plan == torch.ops.pmpp._tiled_matmul_plan(a, b, algorithm=step.algorithm)
    for step in _explain.explain("padded_transpose", (1000, 1304), dtype, device).steps:
        assert step.plan == torch.ops.pmpp._padded_transpose_plan(a, algorithm=step.algorithm)


def test_precision_of_float32_decides_plan_and_roof(capsys):
    before = torch.backends.cuda.matmul.fp32_precision
    for precision, peak in (("ieee", 66.9e12), ("tf32", 494.7e12)):
        found = as_json(capsys, "explain", "matmul", "4096", "4096", "4096", "--precision", precision, "--gpu", "h200")
        assert (found["precision"], found["gpu"]["peak_flops"]) == (precision, peak)
        assert ("wgmma" in [step["algorithm"] for step in found["steps"]]) == (precision == "tf32")
    assert torch.backends.cuda.matmul.fp32_precision == before
    half = as_json(capsys, "explain", "matmul", "64", "64", "64", "--dtype", "float16", "--gpu", "h200")
    assert half["precision"] is None


def test_facts_of_a_device_are_checked():
    facts = H200.selection_facts()
    del facts["sm_count"]
    with pytest.raises(ValueError, match="expected the device to have a sm_count"):
        torch.ops.pmpp._plan_on("tiled_matmul", [1, 1, 1], torch.float32, "NN", "auto", facts)
    facts = H200.selection_facts()
    for sizes, layout, algorithm, message in (
        ([1, 1], "NN", "auto", "expected 3 sizes, but got 2"),
        ([1, 0, 1], "NN", "auto", "expected sizes above 0, but got 0"),
        ([1, 1, 1], "NX", "auto", "a layout NN, NT, TN or TT, but got 'NX'"),
        ([1, 1, 1], "NN", "fast", "unknown algorithm 'fast'"),
    ):
        with pytest.raises(ValueError, match=message):
            torch.ops.pmpp._plan_on("tiled_matmul", sizes, torch.float32, layout, algorithm, facts)
    with pytest.raises(ValueError, match="unknown operator 'mm'"):
        torch.ops.pmpp._plan_on("mm", [1, 1, 1], torch.float32, "NN", "auto", facts)
    assert torch.ops.pmpp._plan_on("tiled_matmul", [1, 1, 1], torch.bool, "NN", "auto", facts) == ("", {})


def test_layouts_change_the_plan():
    plans = {
        layout: _explain.explain("tiled_matmul", (4095, 4096, 4096), "bfloat16", H200, layout=layout, algorithm="wgmma")
        for layout in ("NN", "TN")
    }
    # m = 4095 makes rows of a transposed a begin off boundaries of 16 bytes.
    touched = {
        layout: "a packed" in one.steps[0].plan or "a realigned" in one.steps[0].plan for layout, one in plans.items()
    }
    assert touched == {"NN": False, "TN": True}
    assert any(reason.startswith("a ") for reason in plans["TN"].steps[0].reasons)


def test_displaced_rows_are_told_and_counted():
    step = _explain.explain("tiled_matmul", (4096, 4096, 4097), "bfloat16", H200, algorithm="wgmma").steps[0]
    assert " a displaced" in step.plan
    assert step.facts["a_displaced"]
    assert not step.facts["a_packed"]
    assert any(reason.startswith("rows of a ") and " 8 apart " in reason for reason in step.reasons)
    # 512 rows of each of 8 matrices
    tiles = 8 * -(-512 // step.facts["tile_m"]) * -(-4096 // step.facts["tile_n"])
    assert step.figures["items"] == tiles


# ---- explain: figures and reasons


def test_peaks_of_the_units():
    assert _explain.unit_peak(H200, "naive", "bfloat16") == 66.9e12
    assert _explain.unit_peak(H200, "wgmma", "bfloat16") == 989.4e12
    assert _explain.unit_peak(H200, "tiled", "float64") == 33.45e12
    assert _explain.unit_peak(_devices.device_named("l4"), "tiled", "float64") == pytest.approx(30.3e12 / 64)
    assert _explain.unit_peak(H200, "tiled", "int32") is None
    assert _explain.unit_peak(H200, "wgmma", "float32") == 494.7e12
    assert _explain.unit_peak(H200, "emulated", "float32") == 989.4e12 / 6
    assert _explain.unit_peak(H200, "emulated", "complex64") == 989.4e12 / 6
    assert _explain.unit_peak(H200, "simt", "float32") == 66.9e12


def test_roof_takes_the_longer_of_operations_and_bytes():
    big = _explain.explain("tiled_matmul", (8192, 8192, 8192), "bfloat16", H200).roof
    assert (big.limit, big.seconds) == ("compute", 2 * 8192**3 / 989.4e12)
    flat = _explain.explain("tiled_matmul", (4096, 4096, 64), "bfloat16", H200).roof
    assert (flat.limit, flat.seconds) == ("memory", 2 * (2 * 4096 * 64 + 4096 * 4096) / 4.8e12)
    integers = _explain.explain("tiled_matmul", (512, 512, 512), "int32", H200).roof
    assert (integers.limit, integers.compute_seconds) == ("memory", None)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_roof_of_emulated_products_is_not_that_of_the_lanes(dtype, capsys):
    """Six products of bfloat16 take less time than one of float32."""
    sizes = (4096, 4096, 4096)
    operations = _explain._intensity.flops(*sizes, dtype)
    found = _explain.explain("tiled_matmul", sizes, dtype, H200)
    assert found.roof.seconds == pytest.approx(operations / (989.4e12 / 6))
    assert found.is_emulated_fastest
    elsewhere = _explain.explain("tiled_matmul", sizes, dtype, _devices.device_named("a100"))
    assert elsewhere.roof.seconds == pytest.approx(operations / 19.5e12)
    assert not elsewhere.is_emulated_fastest
    with _explain.float32_setting("tf32"):
        rounded = _explain.explain("tiled_matmul", sizes, "float32", H200)
    assert (rounded.roof.seconds, rounded.is_emulated_fastest) == (2 * 4096**3 / 494.7e12, False)
    assert main(["explain", "matmul", "4096", "4096", "4096", "--dtype", dtype, "--gpu", "h200"]) == 0
    assert re.search(r"operations alone take \S+ \S+ as `emulated` does them, each byte once", capsys.readouterr().out)


def test_emulated_products_read_planes():
    (single,) = _explain.explain("tiled_matmul", (4096, 4096, 4096), "float32", H200, algorithm="emulated").steps
    tile = single.facts["tile_m"], single.facts["tile_n"]
    assert single.figures["inner_intensity"] == pytest.approx(2 * tile[0] * tile[1] / (6 * sum(tile)))
    assert any("split into planes of bfloat16" in reason and "6 and 6 bytes" in reason for reason in single.reasons)
    (pair,) = _explain.explain("tiled_matmul", (4096, 4096, 4096), "complex64", H200, algorithm="emulated").steps
    assert any("12 and 24 bytes an element where there were 8" in reason for reason in pair.reasons)


def test_sizes_have_three_digits_and_a_unit():
    assert [_explain._size(count) for count in (70, 16.8e6, 999e9, 1.1e12, 1e28)] == [
        "70 B", "16.8 MB", "999 GB", "1.1 TB", "10,000,000,000 EB"
    ]  # fmt: skip


def test_reasons_name_idle_multiprocessors_tails_and_pieces():
    few = _explain.explain("tiled_matmul", (128, 128, 128), "float32", H200, algorithm="tiled").steps[0]
    assert "64 blocks leave 68 of 132 multiprocessors idle" in few.reasons
    tail = _explain.fill_reasons(H200, 300, _explain.waves(300, 2, 132), few.occupancy)
    assert tail == ["the last of 2 waves has 36 blocks: 43% of the places stay empty"]
    assert _explain.fill_reasons(H200, 264 * 20, _explain.waves(264 * 20, 2, 132), few.occupancy) == []
    long = _explain.explain("tiled_matmul", (16, 16, 1048576), "bfloat16", H200, algorithm="wgmma").steps[0]
    assert any(re.match(r"k is cut into \d+ pieces", reason) for reason in long.reasons)


def test_tiles_of_the_last_wave_in_pieces():
    """800 tiles of 128 x 256 on 132 multiprocessors: six waves, and 8 tiles that are cut along k."""
    (step,) = _explain.explain("tiled_matmul", (5000, 5000, 5000), "bfloat16", H200, algorithm="wgmma").steps
    assert any(reason.startswith("of the last 8 tiles k is cut into ") for reason in step.reasons), step.reasons
    assert not any("places stay empty" in reason for reason in step.reasons)
    pieces = step.facts["tail_splits"]
    assert (step.waves.rounds, step.waves.tail) == (7, 8)
    assert step.waves.efficiency == pytest.approx(800 / (132 * (6 + 1 / pieces)))
    assert step.facts["workspace_bytes"] >= 4 * 8 * pieces * 128 * 256


def test_what_a_tile_of_32_would_change():
    by_width = {row.width: row for row in _explain.tile_rows(H200, 4096, 4096, 4096, "float32", (1, 16, 32, 64))}
    assert [by_width[width].inner_intensity for width in (1, 16, 32)] == [0.25, 4, 8]
    assert by_width[16].loaded_bytes == 2 * by_width[32].loaded_bytes
    assert (by_width[16].shared_bytes, by_width[16].bytes_per_thread) == (2048, 8)
    assert by_width[32].occupancy.blocks == 2
    assert by_width[1].occupancy is None
    assert by_width[64].occupancy is None  # 4,096 threads


@pytest.mark.parametrize("op", ["matmul", "transpose"])
def test_explain_prints_plain_text_and_says_that_nothing_was_measured(op, capsys):
    sizes = ["300", "200", "100"][: 3 if op == "matmul" else 2]
    assert main(["explain", op, *sizes, "--gpu", "a100"]) == 0
    text = capsys.readouterr().out
    assert "Nothing was measured: these figures are reckoned for NVIDIA A100 SXM 40 GB." in text
    assert "\x1b" not in text
    assert "naive" in text
    assert "(auto)" in text


def test_explain_as_json(capsys):
    found = as_json(capsys, "explain", "matmul", "512", "512", "512", "--gpu", "h200", "--algorithm", "tiled")
    (step,) = found["steps"]
    assert (found["op"], found["sizes"], found["measured_on"]) == ("tiled_matmul", [512, 512, 512], None)
    assert step["inner_intensity"] == 4
    assert (step["seconds"], step["roof_fraction"]) == (None, None)
    assert [row["width"] for row in found["tiles"]] == [1, 8, 16, 32, 64, 128]
    moved = as_json(capsys, "explain", "transpose", "512", "512", "--gpu", "h200", "--algorithm", "shared")
    assert moved["steps"][0]["shared"]["load"]["per_request"] == 32
    assert moved["steps"][0]["sectors"] == {"read": 4, "written": 4, "read_ideal": 4, "written_ideal": 4}


def test_explain_follows_auto_and_asked_tiles(capsys):
    chosen = as_json(capsys, "explain", "matmul", "4096", "4096", "4096", "--dtype", "bfloat16", "--gpu", "h100",
                     "--algorithm", "auto", "--tile", "32")  # fmt: skip
    assert [step["algorithm"] for step in chosen["steps"]] == ["wgmma"]
    assert [row["width"] for row in chosen["tiles"]] == [1, 32]


@pytest.mark.parametrize("shape", [(512, 300), (1048576, 3), (3, 1048576), (1, 4096), (511, 513), (65, 33)])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64", "complex128", "bool"])
def test_every_method_of_transposes_is_explained(shape, dtype, capsys):
    assert main(["explain", "transpose", *map(str, shape), "--dtype", dtype, "--gpu", "h200"]) == 0
    assert "Nothing was measured" in capsys.readouterr().out


def test_copy_by_the_driver_has_no_blocks(capsys):
    moved = as_json(capsys, "explain", "transpose", "1", "4096", "--gpu", "h200", "--algorithm", "vectorized")
    (step,) = moved["steps"]
    assert (step["method"], step["kernels"], step["reasons"]) == ("driver copy", [], [])
    assert (step["occupancy"], step["waves"], step["items"], step["facts"]["block_x"]) == (None, None, 0, 0)
    assert main(["explain", "transpose", "1", "4096", "--gpu", "h200"]) == 0
    assert "a copy by the driver" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "rates"),
    [
        (["matmul", "4096", "4096", "4096"], "TFLOP/s"),
        (["matmul", "512", "512", "512", "--dtype", "complex64"], "TFLOP/s"),
        (["matmul", "512", "512", "512", "--dtype", "int32"], "TFLOP/s"),
        (["transpose", "1", "4096"], "GB/s"),
    ],
)
def test_measured_times_are_told_beside_the_roof_and_the_baseline(what, rates, monkeypatch, capsys):
    """What is made of the times, on a GPU that is not there: each step takes twice the least time, PyTorch thrice."""
    integer = "int32" in what

    def measure(explanation):
        for step in explanation.steps:
            step.seconds = 2 * explanation.roof.seconds
            step.baseline_seconds = None if integer else 3 * explanation.roof.seconds
        explanation.measured_on = "NVIDIA H200"

    monkeypatch.setattr(_explain, "no_cuda_reason", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(_explain, "measure", measure)
    found = as_json(capsys, "explain", *what)
    assert found["measured_on"] == "NVIDIA H200"
    assert [step["roof_fraction"] for step in found["steps"]] == [pytest.approx(0.5)] * len(found["steps"])
    assert main(["explain", *what]) == 0
    text = capsys.readouterr().out
    assert "Nothing was measured" not in text
    told = text[text.index("Measured on NVIDIA H200") :]
    assert rates in told
    assert told.count("50%") == len(found["steps"])
    assert told.count("1.50") == (0 if integer else len(found["steps"]))


@pytest.mark.parametrize(
    ("plan", "method"),
    [
        ("vectorized aligned 64x64 grid 16384x1x1 block 256x1", "aligned"),
        ("vectorized narrow source 2048x3 grid 5x1x1 block 256x1", "narrow source"),
        ("vectorized driver copy contiguous", "driver copy"),
        ("padded 32x32+1 grid 1x1x1 block 32x8", ""),
    ],
)
def test_method_of_a_plan(plan, method):
    assert _explain.transpose_method(plan) == method


@pytest.mark.cuda
@pytest.mark.skipif(not HAS_CUDA, reason=NO_CUDA)
@pytest.mark.parametrize("what", [["matmul", "512", "512", "512"], ["transpose", "2048", "2048"]])
def test_explain_measures_on_the_gpu(what, capsys):
    if _devices.device_called(torch.cuda.get_device_name()) is None:
        pytest.skip("this GPU is not in the table")
    found = as_json(capsys, "explain", *what)
    assert found["measured_on"] == torch.cuda.get_device_name()
    for step in found["steps"]:
        assert 0 < step["roof_fraction"] < 1.3, step["algorithm"]  # small matrices may come from the cache
        assert step["baseline_seconds"] > 0


# ---- the table of kernels


DUMP = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN4pmpp6matmul25tiled_matmul_tiled_kernelIfEEvNS0_9ArgumentsIT_EE:
  REG:29 STACK:0 SHARED:3072 LOCAL:0 CONSTANT[0]:704 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN4pmpp6matmul25tiled_matmul_naive_kernelINS_7ComplexIfEEEEvNS0_9ArgumentsIT_EE:
  REG:40 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:704 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_80
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN4pmpp6matmul25tiled_matmul_tiled_kernelIfEEvNS0_9ArgumentsIT_EE:
  REG:31 STACK:0 SHARED:2048 LOCAL:0 CONSTANT[0]:528 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


TILED = "_ZN4pmpp6matmul25tiled_matmul_tiled_kernelIfEEvNS0_9ArgumentsIT_EE"
NAIVE = "_ZN4pmpp6matmul25tiled_matmul_naive_kernelINS_7ComplexIfEEEEvNS0_9ArgumentsIT_EE"


def test_resources_are_read_from_the_tools_output(tmp_path):
    kernels = _kernels.parse_usage(DUMP, {("90a", TILED): 1, ("90a", NAIVE): 0, ("80", TILED): 2})
    assert kernels == [
        _kernels.Kernel("80", "tiled_matmul_tiled_kernel<float>", 31, 0, 2048, 528, 2),
        _kernels.Kernel("90a", "tiled_matmul_naive_kernel<pmpp::Complex<float> >", 40, 16, 0, 704, 0),
        _kernels.Kernel("90a", "tiled_matmul_tiled_kernel<float>", 29, 0, 2048, 704, 1),
    ]
    with pytest.raises(KeyError, match="tiled_matmul_naive_kernel"):
        _kernels.parse_usage(DUMP, {("90a", TILED): 1, ("80", TILED): 1})
    assert kernels[1].arguments == ["pmpp::Complex<float>"]
    (tmp_path / _kernels.FILE).write_text(_kernels.render(kernels, ""), encoding="utf-8")
    _kernels.read_kernels.cache_clear()
    assert _kernels.read_kernels(tmp_path) == _kernels.KernelTable(tuple(kernels), "")
    _kernels.read_kernels.cache_clear()


def elf(sections):
    """A 64-bit ELF file of nothing but these sections and the table of their names."""
    names = b"\0"
    placed = []
    body = b""
    for name, content in (*sections.items(), (".shstrtab", None)):
        placed.append((len(names), 64 + len(body), len(content or b"")))
        names += name.encode() + b"\0"
        body += content or b""
    placed[-1] = (placed[-1][0], 64 + len(body), len(names))
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 0x28, 64 + len(body) + len(names))
    struct.pack_into("<HHH", header, 0x3A, 64, len(placed), len(placed) - 1)
    table = b"".join(struct.pack("<IIQQQQ24x", name, 0, 0, 0, offset, size) for name, offset, size in placed)
    return bytes(header) + body + names + table


def test_barriers_are_read_from_an_image():
    payload = struct.pack("<BBH", 4, 0x17, 12) + b"\x02\x4c\x07\x00" * 3  # its bytes are no attributes
    image = elf(
        {
            ".text.many": b"\x02\x4c\x05\x00",
            ".nv.info": b"\x02\x4c\x05\x00",
            ".nv.info.none": payload + struct.pack("<BBH", 3, 0x1B, 0xFF),
            ".nv.info.many": payload + struct.pack("<BBH", 3, 0x1B, 0xFF) + struct.pack("<BBBB", 2, 0x4C, 16, 0),
        }
    )
    assert _kernels.barriers_of(image) == {"none": 0, "many": 16}


def test_build_without_tool_or_without_images_says_so(tmp_path, monkeypatch):
    library, output = tmp_path / "libpmpp.so", tmp_path / _kernels.FILE
    library.write_bytes(b"")

    def recorded():
        assert _kernels.main([str(library), str(output)]) == 0
        _kernels.read_kernels.cache_clear()
        found = _kernels.read_kernels(tmp_path)
        _kernels.read_kernels.cache_clear()
        assert found.kernels == ()
        return found.reason

    monkeypatch.setattr(_kernels, "find_cuobjdump", lambda: None)
    assert recorded() == "cuobjdump was not there when the library was built"
    # A tool that prints the resources and extracts nothing.
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\n[ $1 = --extract-elf ] || cat <<'DUMP'\n{DUMP}\nDUMP\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(_kernels, "find_cuobjdump", lambda: str(tool))
    assert recorded().startswith(f"{tool} extracts no image with the kernel ('90a', '{TILED}'")
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    assert recorded() == "the library has no CUDA kernels"


@pytest.mark.skipif(torch_pmpp.build_info.cuda is None, reason="a build for the CPU alone")
def test_build_recorded_the_barriers_of_each_kernel():
    """One for __syncthreads; all sixteen where the kernel reckons which one of several it waits at."""
    table = _kernels.read_kernels(pathlib.Path(torch_pmpp.__file__).parent)
    if not table.kernels:
        pytest.skip(table.reason)
    found = {}
    for kernel in table.kernels:
        found.setdefault((kernel.arch, kernel.base), set()).add(kernel.barriers)
    assert all(counts <= set(range(17)) for counts in found.values())
    for arch in {arch for arch, _ in found}:
        assert found[arch, "tiled_matmul_naive_kernel"] == {0}
        assert found[arch, "tiled_matmul_tiled_kernel"] == {1}
    assert 16 in found.get(("90a", "tiled_matmul_wgmma_kernel"), {16})


def test_barriers_of_a_plan_count_in_its_occupancy():
    """168 registers of 32 threads let 12 blocks onto a multiprocessor, 16 of 64 barriers only 4."""
    facts = {"block_x": 32, "block_y": 1, "dynamic_shared_bytes": 0}

    def blocks(*barriers):
        kernels = [_kernels.Kernel("90a", "k", 168, 0, 0, 0, count) for count in barriers]
        found = _explain.launch_occupancy(H200, facts, kernels, 0)
        return found.blocks, found.limiter

    assert blocks(1) == (12, "registers")
    assert blocks(1, 16) == (4, "barriers")
    assert blocks() == (32, "blocks")


def test_missing_or_damaged_table_has_a_reason(tmp_path):
    _kernels.read_kernels.cache_clear()
    assert _kernels.read_kernels(tmp_path).reason == "the build left no kernels.json"
    _kernels.read_kernels.cache_clear()
    (tmp_path / _kernels.FILE).write_text("{", encoding="utf-8")
    assert "kernels.json is damaged" in _kernels.read_kernels(tmp_path).reason
    _kernels.read_kernels.cache_clear()
    # As builds wrote it that recorded no barriers.
    older = '{"reason": "", "kernels": [["90a", "tiled_matmul_tiled_kernel<float>", 29, 0, 2048, 704]]}'
    (tmp_path / _kernels.FILE).write_text(older, encoding="utf-8")
    expected = "kernels.json is from a build of another version of torch_pmpp; build again"
    assert _kernels.read_kernels(tmp_path) == _kernels.KernelTable((), expected)
    _kernels.read_kernels.cache_clear()
    assert _kernels.KernelTable((), "why").image_for(90) == (None, "why")


def test_image_that_a_gpu_runs_or_the_nearest():
    def table(*archs):
        return _kernels.KernelTable(tuple(_kernels.Kernel(arch, "k", 1, 0, 0, 0, 1) for arch in archs), "")

    assert table("80", "86", "90a").image_for(90) == ("90a", "")
    assert table("80", "86", "90a").image_for(89) == ("86", "")
    assert table("80", "90a").image_for(80) == ("80", "")
    assert table("90a").image_for(80)[0] == "90a"
    assert "the binary has none for sm_80" in table("90a").image_for(80)[1]


def test_plans_find_their_kernels():
    kernels = tuple(
        _kernels.Kernel("90a", name, index + 1, 0, 0, 0, 1)
        for index, name in enumerate(
            (
                "tiled_matmul_tiled_kernel<float>",
                "tiled_matmul_tiled_kernel<pmpp::BFloat16>",
                "tiled_matmul_mma_kernel<pmpp::BFloat16, 0, true, false>",
                "tiled_matmul_mma_kernel<pmpp::BFloat16, 1, true, false>",
                "tiled_matmul_mma_kernel<pmpp::BFloat16, 1, false, true>",
                "tiled_matmul_wgmma_kernel<pmpp::BFloat16, 1, false, true>",
                "tiled_matmul_wgmma_kernel<pmpp::BFloat16, 1, false, false>",
                "padded_transpose_tile_kernel<unsigned int, 32, 0>",
                "padded_transpose_tile_kernel<unsigned int, 32, 1>",
                "padded_transpose_aligned_kernel<unsigned int, 256, 256, 256>",
                "padded_transpose_aligned_kernel<unsigned int, 128, 128, 64>",
                "padded_transpose_staged_kernel<128, 256, 512, 0>",
                "tiled_matmul_emulated_kernel<float, 1, false, true>",
                "tiled_matmul_emulated_kernel<pmpp::Complex<float>, 1, false, true>",
                "tiled_matmul_simt_kernel<float, 1, (pmpp::matmul::SimtOrder)0, (pmpp::matmul::SimtOrder)1>",
                "tiled_matmul_simt_kernel<float, 1, (pmpp::matmul::SimtOrder)1, (pmpp::matmul::SimtOrder)1>",
                "tiled_matmul_simt_kernel<float, 2, (pmpp::matmul::SimtOrder)1, (pmpp::matmul::SimtOrder)1>",
                "padded_transpose_staged_kernel<128, 256, 512, 16>",
                "padded_transpose_narrow_source_kernel<unsigned int, false>",
                "padded_transpose_narrow_source_kernel<unsigned int, true>",
                "tiled_matmul_split_kernel<float>",
                "tiled_matmul_split_kernel<pmpp::Complex<float> >",
                "tiled_matmul_emulated_reduce_kernel<float>",
                "tiled_matmul_reduce_kernel<float, false, 1>",
                "tiled_matmul_reduce_kernel<pmpp::BFloat16, false, 1>",
                "tiled_matmul_repack_kernel",
            )
        )
    )
    table = _kernels.KernelTable(kernels, "")
    plan = {"config": 1}

    def product(algorithm, dtype="bfloat16", layout="NN"):
        return [k.registers for k in _kernels.matmul_kernels(table, "90a", algorithm, dtype, layout, plan)]

    assert product("tiled", "float32") == [1]
    assert product("tiled") == [2]
    assert product("mma") == [4]
    assert product("mma", layout="TT") == [5]
    assert product("wgmma") == [6]
    assert product("wgmma", layout="NT") == [7]
    assert product("wgmma", "float16") == []
    assert product("emulated", "float32") == [13]
    assert product("emulated", "complex64") == [14]
    assert product("simt", "float32") == [15, 16]  # its orders say more than a layout

    def helpers(algorithm, dtype="bfloat16", splits=1, cluster=1, packed=False):
        plan = {"splits": splits, "cluster": cluster, "a_packed": packed, "b_packed": False}
        return [k.registers for k in _kernels.helper_kernels(table, "90a", algorithm, dtype, plan)]

    assert helpers("tiled") == []
    assert helpers("emulated", "float32") == [21]
    assert helpers("emulated", "float32", splits=2) == [21, 23]
    assert helpers("wgmma", splits=2) == [25]
    assert helpers("wgmma", splits=4, cluster=4) == []  # added up within the cluster
    assert helpers("wgmma", splits=2, packed=True) == [26, 25]
    assert helpers("simt", "float32", splits=3) == [24]

    def transpose(algorithm, method="", size=4, **facts):
        return [k.registers for k in _kernels.transpose_kernels(table, "90a", algorithm, method, size, facts)]

    assert transpose("shared") == [8]
    assert transpose("padded") == transpose("vectorized", "strided") == [9]
    assert transpose("vectorized", "aligned", tile_m=64, tile_n=64, block_x=256, halo=0) == [10]
    assert transpose("vectorized", "aligned", tile_m=32, tile_n=32, block_x=64, halo=0) == [11]
    assert transpose("vectorized", "staged", size=1, tile_m=256, tile_n=128, block_x=512, halo=0) == [12]
    assert transpose("vectorized", "staged", size=1, tile_m=256, tile_n=128, block_x=512, halo=16) == [18]
    assert transpose("vectorized", "narrow source", tile_m=2720, tile_n=3, block_x=256, halo=16) == [19]
    assert transpose("vectorized", "narrow source", tile_m=2720, tile_n=3, block_x=256, halo=0) == [20]
    assert transpose("vectorized", "driver copy") == []


@pytest.mark.skipif(torch_pmpp.build_info.cuda is None, reason="this build has no CUDA kernels")
@pytest.mark.skipif(_kernels.find_cuobjdump() is None, reason="cuobjdump is not installed")
def test_build_left_a_table_in_which_every_plan_finds_its_kernel():
    table = _kernels.read_kernels(_explain.PACKAGE)
    assert table.kernels, table.reason
    arch, _ = table.image_for(90)
    bases = {kernel.base for kernel in table.kernels if kernel.arch == arch}
    for dtype in _explain.MATMUL_DTYPES:
        for step in _explain.explain("tiled_matmul", (1024, 1024, 1024), dtype, H200).steps:
            assert step.kernels, (step.algorithm, dtype, sorted(bases))
    for dtype in ("uint8", "bfloat16", "float32", "float64", "complex128"):
        for shape in ((4096, 4096), (4095, 4097), (1048576, 3), (3, 1048576)):
            for step in _explain.explain("padded_transpose", shape, dtype, H200).steps:
                assert len(step.kernels) == 1, (step.plan, dtype, step.kernels)


# ---- roofline


def test_points_follow_from_records_and_plans():
    record = {
        "op": "tiled_matmul", "device": "cuda", "mode": "call", "algorithm": "tiled", "layout": "NN", "offset": 0,
        "m": 4096, "n": 4096, "k": 4096, "precision": "ieee", "dtype": "float32", "element_size": 4,
        "plan": "tiled 16x16x16 grid 256x256x1 block 16x16 shared 0", "ours_us": 17000.0, "baseline_us": 2700.0,
    }  # fmt: skip
    others = [record | {"algorithm": "auto"}, record | {"layout": "NT"}, record | {"k": 64}, record | {"mode": "host"}]
    (point,) = _roofline.points([record, *others], H200)
    assert point.rate == pytest.approx(2 * 4096**3 / 0.017)
    assert point.intensity == pytest.approx(4, rel=0.01)
    assert point.baseline_rate == pytest.approx(2 * 4096**3 / 0.0027)
    assert point.of_memory_roof == pytest.approx(point.rate / (point.intensity * 4.8e12))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("naive 16x16 grid 1x1x1 block 16x16 shared 0", (1, 1, 1, 1, False, False)),
        ("mma 128x128x32 grid 64x1x1 block 128x1 shared 65536 config 1 stages 4 splits 2 of 2048",
         (128, 128, 2, 1, False, False)),
        ("wgmma 128x256x64 grid 132x1x1 block 384x1 shared 229504 config 0 stages 4 cluster 2 b packed",
         (128, 256, 1, 2, False, True)),
        ("wgmma 64x64x64 grid 4x1x1 block 256x1 shared 1 config 12 stages 6 cluster 4 splits 4 of 64",
         (64, 64, 1, 1, False, False)),
    ],
)  # fmt: skip
def test_tiling_of_a_plan(plan, expected):
    found = _roofline.tiling_of_plan(plan, "float32")
    assert found.tail_sums == 0
    assert (found.tile_m, found.tile_n, found.splits, found.shared_b, found.packed_a, found.packed_b) == expected
    with pytest.raises(ValueError, match="not a plan"):
        _roofline.tiling_of_plan("blocked", "float32")
    assert found.planes == (0, 0)
    tail = _roofline.tiling_of_plan("wgmma 128x256x64 grid 132x1x1 config 0 cluster 2 tail 8 in 16 of 320", "bfloat16")
    assert (tail.splits, tail.tail_sums) == (1, 8 * 16 * 128 * 256)
    assert _roofline.tiling_of_plan("emulated 128x128x64 grid 1x1x1", "float32").planes == (6, 6)


def test_roofs_are_ordered_and_have_their_ridges():
    memories = _roofline.memory_roofs(H200)
    assert [memory.name for memory in memories] == ["DRAM", "L2", "shared memory"]
    assert [memory.rate for memory in memories] == sorted(memory.rate for memory in memories)
    assert [memory.name for memory in _roofline.memory_roofs(_devices.device_named("l4"))] == ["DRAM", "shared memory"]
    units = _roofline.compute_roofs(H200)
    assert [unit.name for unit in units] == ["int8", "bfloat16, float16", "tf32", "float32, float64"]
    assert units[1].ridges["DRAM"] == pytest.approx(989.4 / 4.8)


def test_roofline_writes_both_pictures_and_the_table(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    stem = tmp_path / "plot"
    assert main(["roofline", "--gpu", "h200", "--output", str(stem)]) == 0
    text = capsys.readouterr().out
    assert "Ridge points" in text
    assert "tiled_dynamic" in text
    assert "\x1b" not in text
    svg = stem.with_suffix(".svg").read_text(encoding="utf-8")
    for expected in ("naive", "DRAM 4.8 TB/s", "shared memory 33.5 TB/s", "bfloat16, float16 989 TFLOP/s", "13.9"):
        assert expected in svg
    first = stem.with_suffix(".png").read_bytes(), svg
    assert first[0].startswith(b"\x89PNG")
    assert main(["roofline", "--gpu", "h200", "--output", str(stem)]) == 0
    assert first == (stem.with_suffix(".png").read_bytes(), stem.with_suffix(".svg").read_text(encoding="utf-8"))


def test_roofline_of_a_gpu_that_was_never_measured(capsys):
    assert main(["roofline", "--gpu", "l4", "--no-plot"]) == 0
    assert "No measured ladder of 4096 x 4096 x 4096 products." in capsys.readouterr().out
    found = as_json(capsys, "roofline", "--gpu", "a100")
    assert (found["points"], found["files"]) == ([], [])


def test_roofline_without_matplotlib_prints_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["roofline", "--gpu", "h200", "--output", str(tmp_path / "plot")]) == 1
    told = capsys.readouterr()
    assert "Ridge points" in told.out
    assert told.err.count("\n") == 1
    assert "matplotlib is not installed" in told.err


# ---- report


def test_markdown_becomes_html():
    html = _report.to_html(
        [
            "# A & B",
            "",
            "> **Stale:** see [x.md](x.md)",
            "",
            "| `a<b` | n |",
            "| --- | ---: |",
            "| 1 | 2 |",
            "",
            "![p](p.svg)",
        ]
    )
    assert html.splitlines() == [
        "<h1>A &amp; B</h1>",
        "<blockquote><strong>Stale:</strong> see x.md</blockquote>",
        '<table><thead><tr><th><code>a&lt;b</code></th><th class="figure">n</th></tr></thead><tbody>',
        '<tr><td>1</td><td class="figure">2</td></tr>',
        "</tbody></table>",
    ]


def test_two_files_are_compared_case_by_case():
    one = {"op": "padded_transpose", "dtype": "float32", "precision": None, "layout": "contiguous", "offset": 0, "m": 8,
           "n": 8, "batch": 1, "mode": "call", "algorithm": "auto", "ours_us": 10.0}  # fmt: skip
    other = [one | {"ours_us": 15.0}, one | {"m": 16}]
    (row,) = _report.compared([one, one | {"m": 32}], other)
    assert (row["a_us"], row["b_us"], row["change"]) == (10.0, 15.0, 1.5)


@pytest.fixture(scope="module")
def html_page(tmp_path_factory):
    """The page of the committed results, compared with themselves."""
    pytest.importorskip("matplotlib")
    if not IS_CHECKOUT:
        pytest.skip("the package is an installed one")
    output = tmp_path_factory.mktemp("report") / "page.html"
    assert main(["report", str(RESULTS), "--against", str(RESULTS), "--output", str(output)]) == 0
    return output


def test_page_has_everything_and_fetches_nothing(html_page):
    text = html_page.read_text(encoding="utf-8")
    records = json.loads(RESULTS.read_text(encoding="utf-8"))["records"]
    assert text.count("<svg") == 4
    # Each record has a row in the table of its operator, and one in the comparison.
    assert len(re.findall(r"<tr><td><code>(?:tiled_matmul|padded_transpose)</code>", text)) >= len(records)
    for word in ("<script", "src=", "@import", "<link", "<iframe"):
        assert word not in text
    outside = {link for link in re.findall(r"https?://[^\"'\s<)]+", text) if "www.w3.org" not in link}
    assert outside == set()
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text))
    assert used <= set(names)


def browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.mark.skipif(browser() is None, reason="no Chromium (Debian: apt-get install chromium)")
def test_page_in_a_browser(html_page, tmp_path):
    """A real browser reads the page whole and paints it: no error page, every row there, pictures in it."""
    common = [
        *(browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--no-first-run", "--disable-extensions", f"--user-data-dir={tmp_path / 'profile'}"),
    ]
    address = html_page.as_uri()
    done = subprocess.run([*common, "--dump-dom", address], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    source = html_page.read_text(encoding="utf-8")
    for tag in ("<tr>", "<svg", "<table>", "<h2>"):
        assert done.stdout.count(tag) == source.count(tag), tag
    picture = tmp_path / "page.png"
    subprocess.run(
        [*common, f"--screenshot={picture}", "--window-size=1300,1600", address],
        check=True,
        capture_output=True,
        timeout=300,
    )
    image = pytest.importorskip("matplotlib.image").imread(picture)
    assert image.shape[:2] == (1600, 1300)
    # Words and plots on a plain ground: many shades, and something in each quarter of the page's height.
    for quarter in range(4):
        part = image[quarter * 400 : (quarter + 1) * 400, :, :3]
        assert part.std() > 0.02, f"quarter {quarter} is blank"


def test_report_of_an_installed_package_says_where_to_run_it(monkeypatch, capsys):
    monkeypatch.setattr(_report, "source_tree", lambda: None)
    assert main(["report", str(RESULTS)]) == 2
    assert "run it in a checkout" in capsys.readouterr().err


@needs_checkout
def test_report_of_a_file_without_its_head_says_what_is_missing(tmp_path, capsys):
    path = tmp_path / "empty.json"
    path.write_text('{"records": []}', encoding="utf-8")
    assert main(["report", str(path), "--no-plot"]) == 2
    told = capsys.readouterr().err
    assert "not a results file of this version: it lacks '" in told
    assert told.count("\n") == 1


@needs_checkout
def test_report_as_json(tmp_path, capsys):
    output = tmp_path / "page.html"
    found = as_json(capsys, "report", str(RESULTS), "--no-plot", "--output", str(output))
    assert found["records"] == len(report.Results.read(RESULTS).records)
    assert found["bytes"] == output.stat().st_size
    assert (found["pictures"], found["common_cases"], found["mean_change"]) == (0, 0, None)


# ---- occupancy and conflicts


def test_occupancy_prints_both_ways_of_reckoning(capsys):
    assert main(["occupancy", "--threads", "256", "--shared", "32768", "--gpu", "a100", "--grid", "1000"]) == 0
    text = capsys.readouterr().out
    assert "4 blocks, 1,024 threads, 50% occupancy; limited by: shared memory" in text
    assert "132 B a thread, of 82 B for full occupancy" in text
    assert "By dividing, 1,272 threads (62%); in whole blocks, 1,024 (50%)." in text
    assert "1,000 blocks on 432 places: 2.31 waves, the last with 136 blocks" in text
    found = as_json(capsys, "occupancy", "--threads", "256", "--registers", "40", "--capability", "9.0")
    assert (found["occupancy"]["blocks"], found["occupancy"]["limiter"]) == (6, "registers")
    assert found["shared_per_thread"] is None


def test_occupancy_by_barriers(capsys):
    launch = ["occupancy", "--threads", "32", "--registers", "168", "--barriers", "16"]
    assert main(launch) == 0
    text = capsys.readouterr().out
    assert "4 blocks, 128 threads, 6% occupancy; limited by: barriers" in text
    assert re.search(r"^barriers +16 +64 +4 <$", text, re.MULTILINE)
    assert main([*launch, "--gpu", "a100"]) == 0
    assert re.search(r"^barriers +16 +not counted +no limit$", capsys.readouterr().out, re.MULTILINE)
    found = as_json(capsys, *launch)
    assert (found["barriers_per_block"], found["occupancy"]["blocks"]) == (16, 4)
    assert (found["occupancy"]["limits"]["barriers"], found["occupancy"]["limiters"]) == (4, ["barriers"])
    assert as_json(capsys, *launch[:-2])["barriers_per_block"] == 1


def test_conflicts_draws_the_banks(tmp_path, capsys):
    picture = tmp_path / "banks.svg"
    assert main(["conflicts", "--algorithm", "padded16", "--output", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "tile 16 x 16 + 1, 4-byte elements: 1,088 B" in text
    assert "bank  0  1  2" in text
    assert "load: 2 turns, 1 needed" in picture.read_text(encoding="utf-8")
    found = as_json(capsys, "conflicts", "--width", "32")
    assert (found["load"]["wavefronts_per_request"], found["conflicts_per_turn"]) == (32, 15.5)
    assert as_json(capsys, "conflicts", "--width", "32", "--swizzle")["conflicts_per_turn"] == 0


def test_algorithms_and_info_as_json(capsys):
    found = as_json(capsys, "algorithms", "--op", "tiled_matmul", "--device", "cpu", "--dtype", "float32")
    names = torch_pmpp.algorithms("tiled_matmul", "cpu", torch.float32)
    assert found == {"algorithms": [{"op": "tiled_matmul", "device": "cpu", "dtype": "float32", "algorithms": names}]}
    main(["info", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["library"]["version"] == torch_pmpp.__version__
    assert told["machine"]["PyTorch"] == torch.__version__


# ---- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain"], "the following arguments are required"),
        (["explain", "matmul", "1", "2"], "the following arguments are required: K"),
        (["explain", "matmul", "1", "2", "x"], "expected a whole number from 1 to"),
        (["explain", "matmul", "1", "2", "0"], "expected a whole number from 1 to"),
        (["explain", "matmul", "1", "2", "3", "--gpu", "h300"], "unknown GPU 'h300'; expected one of h200, "),
        (["explain", "matmul", "1", "2", "3", "--dtype", "float8"], "invalid choice: 'float8'"),
        (
            ["explain", "matmul", "1", "2", "3", "--algorithm", "wgmma", "--gpu", "a100"],
            "has no algorithm 'wgmma' for float32 on NVIDIA A100",
        ),
        (["roofline", "--gpu", "x"], "unknown GPU 'x'"),
        (["roofline", "--results", "/nowhere.json"], "No such file"),
        (["roofline", "--results", str(RESULTS), "--gpu", "a100"], "was taken on NVIDIA H200, not on a100"),
        (["roofline", "--results", str(ROOT / "pyproject.toml")], "is not a results file"),
        (["occupancy"], "the following arguments are required: --threads"),
        (["occupancy", "--threads", "32", "--barriers", "-1"], "expected a whole number from 0 to"),
        (["occupancy", "--threads", "0"], "expected a whole number from 1 to"),
        (["occupancy", "--threads", "32", "--capability", "6.0"], "unknown compute capability '6.0'"),
        (["occupancy", "--threads", "32", "--capability", "9.0", "--grid", "5"], "--grid needs --gpu"),
        (["conflicts", "--width", "24", "--swizzle"], "no padding and a power of two"),
        (["conflicts", "--algorithm", "padded", "--width", "16"], "--algorithm has a tile of its own"),
        (["explain", "matmul", "1", "2", "3", "--dtype", "int8", "--precision", "tf32"], "--precision is of float32"),
        (["conflicts", "--element-size", "3"], "invalid choice"),
        (["roofline", "--results", str(ACCURACY)], "a record names no operator"),
        pytest.param(["report", str(ACCURACY), "--no-plot"], "a record names no operator", marks=needs_checkout),
        (["compare"], "the following arguments are required: MODEL"),
        (["compare", "gpt2", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["compare", "gpt2", "layers"], "expected an option of the form name=3"),
        (["compare", "nothing"], "nothing"),
        (["algorithms", "--dtype", "x"], "invalid choice: 'x'"),
        (["report"], "the following arguments are required: results"),
        pytest.param(["report", "/nowhere.json", "--no-plot"], "No such file", marks=needs_checkout),
    ],
    ids=" ".join,
)
def test_wrong_arguments_get_one_line(arguments, expected, capsys):
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err
    assert expected in told.err
    assert told.err.startswith(f"python -m torch_pmpp {arguments[0]}")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_is_listed(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: python -m torch_pmpp {command}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert command in capsys.readouterr().out
