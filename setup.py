"""Builds the wheel: CMake compiles libpmpp.so and installs it into the package.

Environment: PMPP_CUDA (auto, on, off) and PMPP_CUDA_ARCHS (auto, all, or a list such as 80,90a) as for `make`;
MAX_JOBS, compilers at a time; PMPP_PREBUILT, a folder that `cmake --install` filled, taken instead of compiling.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import setuptools
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

if int(setuptools.__version__.split(".")[0]) < 77:
    sys.exit(
        f"pmpp: error: setuptools {setuptools.__version__} is too old; "
        "pip install 'setuptools>=77,<82', or leave out --no-build-isolation"
    )

from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
# Below build/, which is not part of the sources; `make` has its own folders there.
BUILD = ROOT / "build" / "wheel"
INSTALLED = ("lib", "include", "share", "build_info.json", "kernels.json")


def find_torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"pmpp: error: {sys.executable} has no torch; install it, or leave out --no-build-isolation")
    return Path(spec.submodule_search_locations[0])


def torch_requirement() -> str:
    """The PyTorch that the library is built for: any release with the minor version of the one that is there."""
    prebuilt = os.environ.get("PMPP_PREBUILT")
    if prebuilt:
        version = json.loads((Path(prebuilt) / "build_info.json").read_text(encoding="utf-8"))["torch"]
    else:
        path = find_torch() / "version.py"
        found = re.search(r"^__version__ = '(.*)'$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            sys.exit(f"pmpp: error: {path} does not say which PyTorch it is")
        version = found[1]
    major, minor = version.split(".")[:2]
    return f"torch>={major}.{minor},<{major}.{int(minor) + 1}"


def cmake_install(prefix: Path) -> None:
    """Configures, compiles and installs libpmpp.so and what belongs to it into `prefix`."""
    cmake = shutil.which("cmake")
    if cmake is None:
        sys.exit("pmpp: error: no cmake on PATH; install CMake 3.26 or newer")
    build = BUILD / "cmake"
    configure = [
        *(cmake, "--fresh", "-S", str(ROOT), "-B", str(build)),
        *(("-G", "Ninja") if shutil.which("ninja") else ()),
        "-DCMAKE_BUILD_TYPE=Release",
        "-DPMPP_BUILD_TESTS=OFF",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DPMPP_TORCH_DIR={find_torch()}",
        f"-DPMPP_CUDA={os.environ.get('PMPP_CUDA') or 'auto'}",
        f"-DPMPP_CUDA_ARCHS={os.environ.get('PMPP_CUDA_ARCHS') or 'auto'}",
    ]
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
    for command in (
        configure,
        [cmake, "--build", str(build), "--parallel", jobs, "--target", "pmpp_package"],
        [cmake, "--install", str(build), "--prefix", str(prefix)],
    ):
        # An error has been explained by the command itself; a Python traceback would hide it.
        if subprocess.call(command) != 0:
            sys.exit(f"pmpp: error: {command[0]} {command[1]} failed (see above)")


class BuildPackage(build_py):
    """The Python files, then the library."""

    def run(self) -> None:
        super().run()
        package = ROOT / "torch_pmpp" if self.editable_mode else Path(self.build_lib) / "torch_pmpp"
        prebuilt = os.environ.get("PMPP_PREBUILT")
        if not prebuilt:
            cmake_install(package)
            return
        for name in INSTALLED:
            source, target = Path(prebuilt) / name, package / name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)


class Wheel(bdist_wheel):
    """For any Python 3 of this platform: the library does not use Python's C interface."""

    def finalize_options(self) -> None:
        # Files that an earlier build left there would get into the wheel.
        shutil.rmtree(BUILD / "lib", ignore_errors=True)
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    install_requires=[torch_requirement()],
    cmdclass={"build_py": BuildPackage, "bdist_wheel": Wheel},
    distclass=BinaryDistribution,
    options={
        "build": {"build_base": str(BUILD), "build_lib": str(BUILD / "lib")},
    },
)
