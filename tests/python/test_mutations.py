"""The bounds checks of the tiled product, taken away one at a time: each is needed, and none stands in for another.

The header of the kernel is copied with one check removed and compiled into tests/mutation/harness.cpp: for the CPU,
where a thread of the system plays each thread of a block, and by nvcc for the GPU.
"""

import pathlib
import shutil
import signal
import subprocess

import pytest
import torch
from support import HAS_CUDA, NO_CUDA

ROOT = pathlib.Path(__file__).resolve().parents[2]
HARNESS = ROOT / "tests" / "mutation" / "harness.cpp"
HEADER = pathlib.Path("csrc/tiled_matmul/tile_product.cuh")
OUTCOMES = {0: "right", 1: "wrong numbers", 2: "written outside d", 3: "read outside", -signal.SIGSEGV: "read outside"}

LOAD_A, LOAD_B = "row_inside && k0 + tx < p.k ? *a : T{}", "col_inside && k0 + ty < p.k ? *b : T{}"
STORE = "if (row_inside && col_inside) p.store(z, row, col, sum);"
# What is replaced in the header, and what then must happen.
MUTANTS = {
    "all checks": ([], "right"),
    # (m, k) load: rows of a below its last one.
    "without m of the load of a": ([(LOAD_A, LOAD_A.replace("row_inside && ", ""))], "read outside"),
    # (k, n) load: columns of b beyond its last one.
    "without n of the load of b": ([(LOAD_B, LOAD_B.replace("col_inside && ", ""))], "read outside"),
    # Phases beyond k: what lies there is no zero, and the zero of the other operand does not make it one (0 * NaN).
    "without k of the load of a": ([(LOAD_A, LOAD_A.replace(" && k0 + tx < p.k", ""))], "wrong numbers"),
    "without k of the load of b": ([(LOAD_B, LOAD_B.replace(" && k0 + ty < p.k", ""))], "wrong numbers"),
    "without m of the store": ([(STORE, STORE.replace("row_inside && ", ""))], "written outside d"),
    "without n of the store": ([(STORE, STORE.replace(" && col_inside", ""))], "written outside d"),
}


def write_mutant(folder: pathlib.Path, replacements) -> None:
    """A copy of the header, to be found before the original."""
    text = (ROOT / HEADER).read_text(encoding="utf-8")
    for old, new in replacements:
        assert text.count(old) == 1, f"{HEADER} has no longer one {old!r}: this test must follow it"
        text = text.replace(old, new)
    (folder / HEADER).parent.mkdir(parents=True)
    (folder / HEADER).write_text(text, encoding="utf-8")


def outcome(program: pathlib.Path) -> str:
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode in OUTCOMES, (done.returncode, done.stderr)
    return OUTCOMES[done.returncode]


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", MUTANTS)
def test_each_check_of_the_tiled_product_is_needed(name, tmp_path):
    replacements, expected = MUTANTS[name]
    write_mutant(tmp_path, replacements)
    program = tmp_path / "harness"
    options = ["-std=c++20", "-O1", "-pthread", "-Wno-unknown-pragmas", f"-I{tmp_path}", f"-I{ROOT}"]
    subprocess.run(["c++", *options, HARNESS, "-o", program], check=True, timeout=300)
    assert outcome(program) == expected


def nvcc() -> str | None:
    found = shutil.which("nvcc")
    standard = pathlib.Path("/usr/local/cuda/bin/nvcc")
    return found or (str(standard) if standard.is_file() else None)


@pytest.mark.cuda
@pytest.mark.skipif(not HAS_CUDA, reason=NO_CUDA)
@pytest.mark.skipif(nvcc() is None, reason="nvcc is not installed")
def test_each_check_is_needed_on_the_gpu(tmp_path):
    """All at once, because nvcc takes its time: they are compiled side by side."""
    major, minor = torch.cuda.get_device_capability()
    compilers = {}
    for index, (name, (replacements, _)) in enumerate(MUTANTS.items()):
        folder = tmp_path / str(index)
        write_mutant(folder, replacements)
        options = ["-std=c++20", f"-arch=sm_{major}{minor}", "--expt-relaxed-constexpr", f"-I{folder}", f"-I{ROOT}"]
        compilers[name] = (
            folder / "harness",
            subprocess.Popen([nvcc(), *options, "-x", "cu", HARNESS, "-o", folder / "harness"]),
        )
    assert [process.wait(timeout=500) for _, process in compilers.values()] == [0] * len(compilers)
    found = {name: outcome(program) for name, (program, _) in compilers.items()}
    assert found == {name: expected for name, (_, expected) in MUTANTS.items()}
