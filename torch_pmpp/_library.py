"""Finds, checks and loads libpmpp.so.

The library uses PyTorch's C++ interface, whose binary layout may change with every minor version, and (with CUDA) the
CUDA runtime that PyTorch brings, which may change with every major version. Loading it into another PyTorch ends in an
undefined symbol at best, so the versions are compared first.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class BuildInfo:
    """What the binary was built for, as the build wrote it into build_info.json."""

    version: str
    torch: str
    cuda: str | None  # None: built for the CPU alone
    archs: tuple[str, ...]  # CUDA architectures as CMake names them, such as "90a"
    source_digest: str


def source_tree(package: Path = PACKAGE) -> Path | None:
    """The checkout that holds `package`, or None when it is an installed one."""
    root = package.parent
    is_checkout = (root / "CMakeLists.txt").is_file() and (root / "registration").is_dir()
    return root if is_checkout else None


def rebuild_command(package: Path = PACKAGE) -> str:
    """The command that builds the library for the PyTorch that is running now."""
    root = source_tree(package)
    if root is not None:
        # The Makefile's own environments are named by their PyTorch; any other Python is used as it is.
        prefix = Path(sys.prefix).resolve()
        own = re.fullmatch(r"\.venv(?:-torch([\d.]+))?", prefix.name) if prefix.parent == root.resolve() else None
        variable = " VENV=none" if own is None else f" TORCH={own[1]}" if own[1] else ""
        return f"make -C {root} clean build{variable}"
    return "python -m pip install --force-reinstall --no-deps --no-build-isolation <folder of the pmpp sources>"


def read_build_info(package: Path = PACKAGE) -> BuildInfo:
    """Reads `package`/build_info.json; raises ImportError if it is missing or damaged."""
    path = package / "build_info.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return BuildInfo(
            version=str(fields["version"]),
            torch=str(fields["torch"]),
            cuda=None if fields["cuda"] is None else str(fields["cuda"]),
            archs=tuple(str(arch) for arch in fields["archs"]),
            source_digest=str(fields["source_digest"]),
        )
    except FileNotFoundError:
        reason = f"the library has not been built: {path} is missing"
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{path} is damaged ({type(error).__name__}: {error})"
    raise ImportError(
        f"torch_pmpp: {reason}. Running: {describe(torch.__version__, torch.version.cuda)}. "
        f"To build: {rebuild_command(package)}"
    )


def describe(torch_version: str, cuda_version: str | None) -> str:
    """One phrase for a PyTorch: `PyTorch 2.11.0+cu130 with CUDA 13.0`."""
    return f"PyTorch {torch_version} " + ("without CUDA" if cuda_version is None else f"with CUDA {cuda_version}")


def minor_version(version: str) -> str:
    """`2.11` of `2.11.0+cu130`: the part of PyTorch's version that the binary interface depends on."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return f"{match[1]}.{match[2]}" if match else version


def mismatch(built: BuildInfo, torch_version: str, cuda_version: str | None) -> str | None:
    """Why a library built as `built` says cannot run in this PyTorch; None if it can.

    `torch_version` and `cuda_version` are `torch.__version__` and `torch.version.cuda`. A library for the CPU alone
    fits a PyTorch with CUDA.
    """
    wanted, found = minor_version(built.torch), minor_version(torch_version)
    if wanted != found:
        return f"it needs PyTorch {wanted}, but PyTorch {found} is running"
    if built.cuda is None:
        return None
    if cuda_version is None:
        return "it was built with CUDA, but this PyTorch has no CUDA"
    wanted, found = built.cuda.split(".")[0], cuda_version.split(".")[0]
    if wanted != found:
        return f"it needs CUDA {wanted}, but this PyTorch uses CUDA {found}"
    return None


def no_cuda_reason(built: BuildInfo | None = None) -> str | None:
    """Why the operators of this build (None: the one in this package) run on no GPU here; None if they do."""
    if (built or read_build_info()).cuda is None:
        return "the library was built for the CPU alone"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    return None


def import_error_text(built: BuildInfo, torch_version: str, cuda_version: str | None, reason: str, rebuild: str) -> str:
    """The message of the ImportError: why, versions built for, versions found, and the command that rebuilds."""
    return (
        f"torch_pmpp: cannot load the library: {reason}. Built for: {describe(built.torch, built.cuda)}. "
        f"Running: {describe(torch_version, cuda_version)}. To rebuild: {rebuild}"
    )


def load(package: Path = PACKAGE) -> BuildInfo:
    """Loads `package`/lib/libpmpp.so, which registers the operators; raises ImportError if it is missing or unfit."""
    built = read_build_info(package)
    found = (torch.__version__, torch.version.cuda)
    rebuild = rebuild_command(package)
    reason = mismatch(built, *found)
    if reason is not None:
        raise ImportError(import_error_text(built, *found, reason, rebuild))
    library = package / "lib" / "libpmpp.so"
    if not library.is_file():
        raise ImportError(import_error_text(built, *found, f"{library} is missing", rebuild))
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise ImportError(import_error_text(built, *found, str(error), rebuild)) from error
    return built
