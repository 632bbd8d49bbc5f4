"""The C++ examples, built against the installed package as a user builds them, and run without Python."""

import os
import pathlib
import shutil
import subprocess

import pytest
import torch
from support import on_each_device, run_process

import torch_pmpp
from torch_pmpp._library import PACKAGE

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = PACKAGE / "lib" / "libpmpp.so"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake on PATH")
    build = tmp_path_factory.mktemp("examples")
    for command in (
        [
            "cmake",
            *("-S", ROOT / "examples" / "cpp", "-B", build),
            *(("-G", "Ninja") if shutil.which("ninja") else ()),
            f"-DCMAKE_PREFIX_PATH={torch_pmpp.cmake_prefix_path}",
            f"-DPMPP_TORCH_DIR={pathlib.Path(torch.__file__).parent}",
        ],
        ["cmake", "--build", build],
    ):
        done = run_process(command, 500)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def run(program, *arguments):
    # Nothing of Python on the path of libraries, nor in the environment.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    done = run_process([program, *arguments], 300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@on_each_device
def test_forward_of_a_network(programs, device):
    assert "the same" in run(programs / "mlp", device, "64")


@on_each_device
def test_training_with_the_switch(programs, device):
    out = run(programs / "train", device, "4")
    assert "the same" in out
    assert "4 steps" in out


@on_each_device
def test_a_program_that_loads_the_library_while_it_runs(programs, device):
    assert run(programs / "plugin", LIBRARY, device).strip() == "the same as at::mm"
    linked = subprocess.run(["ldd", programs / "plugin"], check=True, capture_output=True, text=True).stdout
    assert "libpmpp" not in linked


@on_each_device
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_torchscript_model_saved_by_python(programs, tmp_path, device):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(12.0).view(4, 3))

        def forward(self, x):
            return torch.ops.pmpp.padded_transpose(torch.relu(torch.ops.pmpp.tiled_matmul(x, self.weight)))

    path = tmp_path / "layer.pt"
    torch.jit.script(Layer()).save(str(path))
    assert run(programs / "torchscript", path, device).strip() == "the same as torch::mm and t()"


@pytest.mark.parametrize("name", ["mlp", "train", "torchscript", "plugin"])
def test_no_program_needs_libpython(programs, name):
    linked = subprocess.run(["ldd", programs / name], check=True, capture_output=True, text=True).stdout
    assert "libtorch_cpu" in linked
    assert "libpython" not in linked


def test_the_library_needs_no_libpython():
    linked = subprocess.run(["ldd", LIBRARY], check=True, capture_output=True, text=True).stdout
    assert "libpython" not in linked
