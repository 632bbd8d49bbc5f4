"""torch.export and AOTInductor: programs with both operators that run again elsewhere, also without Python."""

import os
import pathlib
import shutil
import sys

import pytest
import torch
from support import on_each_device, run_process

import torch_pmpp

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
PACKAGE = pathlib.Path(torch_pmpp.__file__).resolve().parent
CONSUMER = pathlib.Path(__file__).resolve().parents[1] / "exported"
ROWS = torch.export.Dim("rows", min=1, max=4096)


class Model(torch.nn.Module):
    """What tests/exported/main.cpp expects: whole numbers, so that results are exact."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(30.0).remainder(7).sub(3).view(6, 5))

    def forward(self, x):
        return TRANSPOSE(torch.relu(MATMUL(x, self.weight)))


class WritesToOut(torch.nn.Module):
    def forward(self, x):
        product = MATMUL(x, x.t(), out=x.new_empty(x.shape[0], x.shape[0]))
        return TRANSPOSE(product + 1, out=torch.empty_like(product))


def export(model, x, strict=False):
    return torch.export.export(model, (x,), dynamic_shapes=({0: ROWS},), strict=strict)


def targets(program):
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


# ---- torch.export


@on_each_device
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non_strict"])
def test_row_export_of_a_module_with_a_dynamic_dimension(device, strict):
    model = Model().to(device)
    program = export(model, torch.randn(7, 6, device=device), strict)
    for form in (program, program.run_decompositions()):
        assert targets(form) == [MATMUL.default, torch.ops.aten.relu.default, TRANSPOSE.default]
        assert list(form.range_constraints.values()) == [torch.utils._sympy.value_ranges.ValueRanges(1, 4096)]
        for rows in (1, 2, 7, 100):
            x = torch.randn(rows, 6, device=device)
            assert torch.equal(form.module()(x), model(x))


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non_strict"])
def test_row_export_turns_out_into_the_functional_operators(strict):
    model = WritesToOut()
    program = export(model, torch.randn(7, 6), strict).run_decompositions()
    assert [target for target in targets(program) if target.namespace == "pmpp"] == [MATMUL.default, TRANSPOSE.default]
    x = torch.randn(4, 6)
    torch.testing.assert_close(program.module()(x), (x @ x.t() + 1).t())


def test_row_export_program_is_trained_as_the_module():
    model, x = Model(), torch.randn(9, 6)
    exported = export(model, torch.randn(7, 6)).module()
    for each in (model, exported):
        each(x).square().sum().backward()
    assert torch.equal(exported.weight.grad, model.weight.grad)
    assert model.weight.grad.count_nonzero() > 0


def test_row_export_reports_the_operators_own_errors():
    with pytest.raises(RuntimeError, match=r"a and b shapes cannot be multiplied \(s\d+x4 and 6x5\)"):
        export(Model(), torch.randn(7, 4))


# ---- packages that run elsewhere


# Loading torch takes some seconds, and several times that where many tests run side by side.
RUN_SECONDS = 80
# One that compiles is stopped too, with what it has printed.
COMPILES = pytest.mark.timeout(300)


def python_process(code, *arguments):
    # Without a core file, which a process with a GPU takes most of a minute to write.
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n{code}"
    return run_process(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        RUN_SECONDS,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )


def run_python(code, *arguments):
    done = python_process(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CHECK = """
for rows in (1, 7, 33):
    x = torch.arange(rows * 6.0).remainder(11).sub(5).view(rows, 6).to(sys.argv[2])
    w = torch.arange(30.0).remainder(7).sub(3).view(6, 5).to(sys.argv[2])
    assert torch.equal(model(x), (x @ w).relu().t())
print("all good")
"""


def test_row_export_saved_program_runs_in_a_new_process(tmp_path):
    torch.export.save(export(Model(), torch.randn(7, 6)), tmp_path / "model.pt2")
    code = "import sys, torch, torch_pmpp\nmodel = torch.export.load(sys.argv[1]).module()\n" + CHECK
    assert run_python(code, tmp_path / "model.pt2", "cpu") == "all good"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """(device, model) -> the model compiled for it; compiling takes a quarter of a minute, so each is made once."""
    folder = tmp_path_factory.mktemp("packages")
    made = {}

    def package(device, model=Model):
        if (device, model) not in made:
            program = export(model().to(device), torch.randn(7, 6, device=device))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
                made[device, model] = torch._inductor.aoti_compile_and_package(
                    program,
                    package_path=str(folder / f"{model.__name__}-{device}.pt2"),
                    # Headers compiled beforehand pay from the second package on.
                    inductor_configs={"aot_inductor.precompile_headers": False},
                )
        return made[device, model]

    return package


class ModelOfPyTorch(Model):
    """The same without an operator of this package."""

    def forward(self, x):
        return (x @ self.weight).relu().t().contiguous()


@pytest.fixture(scope="module")
def crashes_without_us(packages):
    """device -> the signal that ends a new process which loads a package of PyTorch's own operators; 0 for none."""
    found = {}

    def crashes(device):
        if device not in found:
            code = f"import sys, torch\nmodel = torch._inductor.aoti_load_package(sys.argv[1])\n{CHECK}"
            found[device] = max(0, -python_process(code, packages(device, ModelOfPyTorch), device).returncode)
        return found[device]

    return crashes


@COMPILES
@on_each_device
@pytest.mark.parametrize(
    "load",
    ["import torch_pmpp", f"torch.ops.load_library({str(PACKAGE / 'lib' / 'libpmpp.so')!r})"],
    ids=["import", "load_library"],
)
def test_row_export_aot_inductor_package_runs_in_a_new_process(packages, crashes_without_us, device, load):
    code = f"import sys, torch\n{load}\nmodel = torch._inductor.aoti_load_package(sys.argv[1])\n{CHECK}"
    done = python_process(code, packages(device), device)
    if done.returncode < 0 and crashes_without_us(device):
        # Seen with PyTorch 2.11.0+cu130 on an H200; from C++ the same package runs, see below.
        pytest.skip(f"packages of PyTorch's own operators end with signal {crashes_without_us(device)} here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "all good"


@pytest.fixture(scope="module")
def program_without_python(tmp_path_factory):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake on PATH")
    build = tmp_path_factory.mktemp("exported")
    for seconds, command in (
        (
            60,
            [
                "cmake",
                *("-S", CONSUMER, "-B", build, "-DCMAKE_BUILD_TYPE=Release"),
                *(("-G", "Ninja") if shutil.which("ninja") else ()),
                f"-DCMAKE_PREFIX_PATH={torch_pmpp.cmake_prefix_path}",
                f"-DPMPP_TORCH_DIR={pathlib.Path(torch.__file__).parent}",
            ],
        ),
        (100, ["cmake", "--build", build]),
    ):
        done = run_process(command, seconds)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "exported"


@COMPILES
@on_each_device
def test_row_export_aot_inductor_package_runs_without_python(packages, program_without_python, device):
    linked = run_process(["ldd", program_without_python], RUN_SECONDS).stdout
    assert "libpmpp.so" in linked
    assert "libpython" not in linked
    done = run_process([program_without_python, packages(device), device], RUN_SECONDS)
    assert (done.returncode, done.stdout.strip()) == (0, "all good"), done.stderr
