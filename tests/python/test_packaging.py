"""The wheel, the library's place in a process, and what the package says when they do not fit.

The wheel is made from the tree that is installed in torch_pmpp/ (PMPP_PREBUILT), so nothing is compiled here.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from support import HAS_CUDA

import torch_pmpp

PACKAGE = Path(torch_pmpp.__file__).resolve().parent
LIBRARY = PACKAGE / "lib" / "libpmpp.so"
ROOT = Path(__file__).resolve().parents[2]

needs_setuptools = pytest.mark.skipif(
    int(importlib.metadata.version("setuptools").split(".")[0]) < 77, reason="setuptools is older than 77"
)


def run_python(code: str, folder: Path, path: Path, **variables: str) -> str:
    """What `code` prints in a new interpreter that runs in `folder` and finds packages in `path` first."""
    environment = {**os.environ, "PYTHONPATH": str(path), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def dynamic_section(library: Path) -> str:
    return subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the sources, so that setuptools leaves nothing in the checkout."""
    if not (ROOT / "setup.py").is_file():
        pytest.skip("the tests run outside a checkout")
    copy = tmp_path_factory.mktemp("sources") / "pmpp"
    # By name: the checkout also holds an environment and build folders of several GB.
    copy.mkdir()
    left_out = shutil.ignore_patterns("__pycache__", "lib", "include", "share", "build_info.json", "kernels.json")
    folders = (".ci", "csrc", "ops", "registration", "torch_pmpp", "tests", "benchmarks", "examples", "docs")
    for name in folders:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))",
            str(target),
        ],
        cwd=sources,
        env={**os.environ, "PMPP_PREBUILT": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    target = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@needs_setuptools
def test_wheel_tag_fits_every_python_3(wheel):
    assert re.fullmatch(r"torch_pmpp-[0-9.]+-py3-none-linux_\w+\.whl", wheel.name), wheel.name


@needs_setuptools
def test_wheel_has_library_headers_and_cmake_package(unpacked):
    for name in (
        "__init__.py",
        "__main__.py",
        "py.typed",
        "build_info.json",
        "kernels.json",
        "lib/libpmpp.so",
        "include/pmpp/pmpp.h",
        "share/cmake/pmpp/pmppConfig.cmake",
        "share/cmake/pmpp/pmppConfigVersion.cmake",
        "share/cmake/pmpp/pmppTargets.cmake",
    ):
        assert (unpacked / "torch_pmpp" / name).is_file(), name
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {"torch_pmpp"}


@needs_setuptools
def test_wheel_pins_the_torch_minor_version(unpacked):
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    text = metadata.read_text()
    requirement = re.search(r"^Requires-Dist: torch(.*)$", text, re.MULTILINE)
    major, minor = built_for_torch()
    assert requirement is not None
    assert sorted(requirement[1].split(",")) == [f"<{major}.{minor + 1}", f">={major}.{minor}"]
    assert re.search(r"^Name: torch-pmpp$", text, re.MULTILINE)


def built_for_torch() -> tuple[int, int]:
    built = json.loads((PACKAGE / "build_info.json").read_text())
    major, minor = built["torch"].split(".")[:2]
    return int(major), int(minor)


@needs_setuptools
def test_versions_of_wheel_and_library_agree(wheel):
    built = json.loads((PACKAGE / "build_info.json").read_text())
    assert wheel.name.split("-")[1] == built["version"]


@needs_setuptools
def test_wheel_imports_from_any_folder(unpacked, tmp_path):
    code = (
        "import torch, torch_pmpp, pathlib; a = torch.arange(6.).view(2, 3); "
        "assert torch.equal(torch.ops.pmpp.tiled_matmul(a, a.t()), a @ a.t()); "
        "assert torch.equal(torch.ops.pmpp.padded_transpose(a), a.t()); "
        "print(pathlib.Path(torch_pmpp.__file__).resolve().parent)"
    )
    assert run_python(code, tmp_path, unpacked) == str((unpacked / "torch_pmpp").resolve())


def test_package_imports_from_another_folder(tmp_path):
    assert run_python("import torch_pmpp; print(torch_pmpp.__file__)", tmp_path, PACKAGE.parent) == torch_pmpp.__file__


@pytest.fixture(scope="module")
def sdist(sources, tmp_path_factory):
    target = tmp_path_factory.mktemp("sdist")
    done = subprocess.run(
        [sys.executable, "-c", "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])", str(target)],
        cwd=sources,
        env={**os.environ, "PMPP_PREBUILT": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.tar.gz")
    return path


@needs_setuptools
def test_sdist_is_what_git_keeps(sdist):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the tests run outside a git checkout")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("torch_pmpp.egg-info/")}
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kept = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    assert names - made == kept


@needs_setuptools
def test_sdist_builds(sdist, wheel, tmp_path):
    """The wheel made from it holds the same files, and CMake finds every source that the library is made of."""
    with tarfile.open(sdist) as archive:
        # Early releases of Python 3.10 and 3.11 have no filters.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (tree,) = tmp_path.iterdir()
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    again = tmp_path / "wheel"
    again.mkdir()
    commands = [[sys.executable, "-c", build, str(again)]]
    if shutil.which("cmake") is not None:
        torch_folder = Path(torch.__file__).parent
        options = ("-DPMPP_CUDA=OFF", "-DPMPP_BUILD_TESTS=OFF", f"-DPMPP_TORCH_DIR={torch_folder}")
        commands.append(["cmake", "-S", str(tree), "-B", str(tmp_path / "build"), *options])
    for command in commands:
        environment = {**os.environ, "PMPP_PREBUILT": str(PACKAGE)}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    (path,) = again.glob("*.whl")
    with zipfile.ZipFile(path) as ours, zipfile.ZipFile(wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The interpreter of a new environment with the packages that are installed here, but for this one.

    They are links: a copy of PyTorch has several GB. `make test-wheel` installs real ones.
    """
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    for packages in (Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        for item in packages.iterdir() if packages.is_dir() else ():
            if "torch_pmpp" not in item.name and item.name != "__pycache__" and not (site / item.name).exists():
                (site / item.name).symlink_to(item)
    return python


def environment_run(python: Path, folder: Path, *arguments: str | Path) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={**inherited, "PMPP_PREBUILT": str(PACKAGE), "VIRTUAL_ENV": str(python.parents[1])},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@needs_setuptools
@pytest.mark.parametrize("what", ["wheel", "sources"])
def test_installed_into_a_new_environment_it_passes_tests_there(request, environment, tmp_path, what):
    """pip takes the wheel, and the sources without isolation; tests run there, far from the checkout's own package."""
    # Not by find_spec: setuptools takes that for an import by pip, and later imports of distutils for a mistake.
    if not list(importlib.metadata.distributions(name="pip")):
        pytest.skip("no pip")
    pip = ("-m", "pip", "--disable-pip-version-check")
    # Without a network: what the build needs is there already, and the wheel's requirements are fulfilled.
    options = ("--no-index", "--no-build-isolation", "--force-reinstall", "--no-deps")
    environment_run(environment, tmp_path, *pip, "install", *options, request.getfixturevalue(what))
    code = (
        f"import torch, torch_pmpp; a = torch.ones(5, 5, device='{'cuda' if HAS_CUDA else 'cpu'}'); "
        "assert torch_pmpp.tiled_matmul(a, a).sum() == 125; print(torch_pmpp.__file__)"
    )
    found = Path(environment_run(environment, tmp_path, "-c", code).strip())
    assert found.is_relative_to(environment.parents[1])
    assert (found.parent / "lib" / "libpmpp.so").is_file()
    tests = ROOT / "tests" / "python"
    chosen = [tests / name for name in ("test_package.py", "test_autograd.py")]
    options = ("-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT)
    out = environment_run(environment, tmp_path, "-m", "pytest", *options, *chosen[: 1 if what == "sources" else 2])
    assert re.search(r"\d+ passed", out)
    assert "failed" not in out


def test_library_finds_its_neighbours_relative_to_itself():
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic_section(LIBRARY))
    assert paths, "libpmpp.so has no RPATH"
    entries = [entry for path in paths for entry in path.split(":") if entry]
    assert all(entry.startswith("$ORIGIN/") for entry in entries), entries
    assert "$ORIGIN/../../torch/lib" in entries


def test_library_needs_neither_python_nor_a_shared_cuda_runtime():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(LIBRARY))
    assert not [name for name in needed if "python" in name], needed
    # Linked statically, so that its symbols and those of torch's own runtime stay apart.
    assert not [name for name in needed if name.startswith("libcudart")], needed


def test_library_holds_no_path_of_the_machine_that_built_it():
    content = LIBRARY.read_bytes()
    for folder in (ROOT, Path(torch.__file__).parent):
        assert f"{folder}/".encode() not in content, folder


def test_one_openmp_runtime_in_the_process():
    code = (
        "import re, torch; PACKAGE; paths = {line.split()[-1] for line in open('/proc/self/maps') if '/' in line}; "
        "print(*sorted(path for path in paths if re.search(r'/lib(gomp|iomp5|omp)[-.0-9a-f]*[.]so', path)))"
    )
    use = "import torch_pmpp; torch_pmpp.padded_transpose(torch.ones(256, 256))"
    # Torch alone decides how many there are: 1, unless its own dependencies bring more.
    torch_alone = run_python(code.replace("PACKAGE", "pass"), PACKAGE.parent, PACKAGE.parent).split()
    assert torch_alone
    assert run_python(code.replace("PACKAGE", use), PACKAGE.parent, PACKAGE.parent).split() == torch_alone


def test_set_num_threads_takes_effect():
    # The operating system is asked, since at::parallel_for quietly runs serially when the file that calls it
    # is compiled without OpenMP.
    code = (
        "import os, torch; torch.set_num_threads(THREADS); "
        "import torch_pmpp; before = len(os.listdir('/proc/self/task')); a = torch.ones(512, 512); "
        "torch_pmpp.tiled_matmul(a, a); torch_pmpp.padded_transpose(torch.ones(1024, 1024)); "
        "print(len(os.listdir('/proc/self/task')) - before)"
    )
    for threads in (1, 2, 3):
        started = int(run_python(code.replace("THREADS", str(threads)), PACKAGE.parent, PACKAGE.parent))
        assert started == threads - 1, f"{threads} threads asked for, {started + 1} at work"


def cpu_instruction_sets() -> list[str]:
    """The names that PMPP_CPU_ISA takes on this machine, read from the error for a name that it does not."""
    code = (
        "import torch, torch_pmpp\ntry: torch_pmpp.tiled_matmul(torch.ones(2, 2), torch.ones(2, 2))\n"
        "except ValueError as error: print(str(error).splitlines()[0])"
    )
    message = run_python(code, PACKAGE.parent, PACKAGE.parent, PMPP_CPU_ISA="abacus")
    found = re.fullmatch(r"pmpp: PMPP_CPU_ISA is 'abacus', but this machine can run: (.*)", message)
    assert found, message
    return found[1].split(", ")


def test_every_instruction_set_of_the_machine_can_be_forced():
    names = cpu_instruction_sets()
    assert names[0] == "portable"
    code = (
        "import torch, torch_pmpp; a = torch.arange(40000.).view(200, 200) % 7; "
        "assert torch.equal(torch_pmpp.tiled_matmul(a, a), a @ a); "
        "assert torch.equal(torch_pmpp.padded_transpose(a), a.t()); "
        "print(torch.ops.pmpp._tiled_matmul_plan(a, a), torch.ops.pmpp._padded_transpose_plan(a))"
    )
    for name in names:
        plans = run_python(code, PACKAGE.parent, PACKAGE.parent, PMPP_CPU_ISA=name)
        assert plans.split().count(name) == 2, plans


@pytest.fixture
def other_build(tmp_path):
    """Makes a copy of the package whose build_info.json says something else; gives the folder that holds it."""

    def make(**changes: object) -> Path:
        folder = tmp_path / "other"
        shutil.copytree(
            PACKAGE, folder / "torch_pmpp", ignore=shutil.ignore_patterns("__pycache__", "include", "share")
        )
        info = folder / "torch_pmpp" / "build_info.json"
        info.write_text(json.dumps({**json.loads(info.read_text()), **changes}))
        return folder

    return make


def import_error(folder: Path) -> str:
    return run_python(
        "\ntry:\n    import torch_pmpp\nexcept ImportError as error:\n    print(error)\nelse:\n    print('imported')",
        folder,
        folder,
    )


def test_library_for_another_torch_is_refused_with_both_versions_and_the_remedy(other_build):
    message = import_error(other_build(torch="2.7.1+cu128"))
    for part in ("2.7.1+cu128", torch.__version__, "rebuild"):
        assert part in message, message


def test_library_for_another_cuda_is_refused_with_both_versions_and_the_remedy(other_build):
    message = import_error(other_build(cuda="12.8"))
    for part in ("12.8", str(torch.version.cuda), "rebuild") if torch.version.cuda else ("12.8", "rebuild"):
        assert part in message, message


def test_library_that_does_not_load_is_reported_with_the_remedy(other_build):
    folder = other_build()
    (folder / "torch_pmpp" / "lib" / "libpmpp.so").write_bytes(b"not a library")
    message = import_error(folder)
    for part in ("libpmpp.so", torch.__version__, "rebuild"):
        assert part in message, message


def test_missing_library_is_reported_with_the_remedy(other_build):
    folder = other_build()
    (folder / "torch_pmpp" / "lib" / "libpmpp.so").unlink()
    message = import_error(folder)
    for part in ("libpmpp.so", "missing", "rebuild"):
        assert part in message, message


def environment_error(**variables: str) -> str:
    """What .ci/environment says about these variables, before it makes or downloads anything."""
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "environment"), "build"],
        env={**os.environ, "PYTHON": sys.executable, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    return done.stderr


def test_another_torch_is_asked_for_by_its_release():
    if not (ROOT / ".ci" / "environment").is_file():
        pytest.skip("the tests run outside a checkout")
    pinned = re.search(r"^torch==(.*)$", (ROOT / ".ci" / "requirements.txt").read_text(), re.MULTILINE)[1]
    for value in ("newest", "2", "2.11.0; rm", "2.11.0+cu130"):
        expected = f"pmpp: error: TORCH is '{value}'; expected a release of PyTorch, such as {pinned}\n"
        assert environment_error(TORCH=value, VENV="none") == expected
    found = torch.__version__.partition("+")[0]
    assert f"TORCH is 1.2.3, but {sys.executable} has torch {found};" in environment_error(TORCH="1.2.3", VENV="none")


def test_versions_of_torch_in_the_build_files_agree():
    if not (ROOT / ".ci" / "requirements.txt").is_file():
        pytest.skip("the tests run outside a checkout")
    pinned = re.search(r"^torch==(\d+\.\d+)\.\d+$", (ROOT / ".ci" / "requirements.txt").read_text(), re.MULTILINE)[1]
    assert f'"torch=={pinned}.*"' in (ROOT / "pyproject.toml").read_text()
    assert f"PyTorch {pinned}" in (ROOT / "README.md").read_text()
