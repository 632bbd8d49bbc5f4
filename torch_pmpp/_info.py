"""What the binary was built for, what the machine has, and whether they fit."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ._library import PACKAGE, BuildInfo, source_tree
from ._output import print_json
from ._text import Table


def has_kernels_for(capability: tuple[int, int], archs: Sequence[str]) -> bool:
    """Whether a binary with these CUDA architectures (as CMake names them) runs on a GPU of this compute capability.

    `90a` runs on 9.0 alone and `100f` within its family. A number alone stands for machine code (same major version,
    same or newer minor) and PTX (anything newer), `-real` and `-virtual` for one of the two.
    """
    major, minor = capability
    for arch in archs:
        match = re.fullmatch(r"(\d+)(\d)([af]?)(-real|-virtual)?", arch)
        if match is None:
            continue
        arch_major, arch_minor, suffix, kind = int(match[1]), int(match[2]), match[3], match[4]
        same_family = major == arch_major and minor >= arch_minor
        if suffix == "a":
            fits = capability == (arch_major, arch_minor)
        elif suffix == "f" or kind == "-real":
            fits = same_family
        else:
            fits = same_family or capability >= (arch_major, arch_minor)
        if fits:
            return True
    return False


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def tree_digest() -> str | None:
    """Digest of the sources beside the package; None for an installed package."""
    root = source_tree()
    script = root / "benchmarks" / "digest.py" if root is not None else None
    if script is None or not script.is_file():
        return None
    # A process of its own: the script is no part of the package and need not be importable.
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def complaints(built: BuildInfo) -> list[str]:
    """What does not fit between the binary and this machine, one sentence each."""
    found = []
    if torch.cuda.is_available() and built.cuda is None:
        found.append("There is a GPU, but the library was built for the CPU alone: CUDA tensors are refused.")
    if built.cuda is not None and torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            capability = torch.cuda.get_device_capability(index)
            if not has_kernels_for(capability, built.archs):
                number = f"{capability[0]}{capability[1]}"
                found.append(
                    f"cuda:{index} has compute capability {capability[0]}.{capability[1]}, but the library has kernels "
                    f"for {', '.join(built.archs)} only: rebuild with PMPP_CUDA_ARCHS={number}."
                )
    digest = tree_digest()
    if digest is not None and digest != built.source_digest:
        found.append("The library was built from other sources than those in this folder: rebuild it.")
    return found


def show(built: BuildInfo, *, as_json: bool = False) -> int:
    """Prints everything; returns 1 if something does not fit, else 0."""
    binary = Table("The library", ("what", "value"))
    binary.add("version", built.version)
    binary.add("file", str(PACKAGE / "lib" / "libpmpp.so"))
    binary.add("built for PyTorch", built.torch)
    binary.add("built for CUDA", built.cuda or "no CUDA")
    binary.add("CUDA architectures", ", ".join(built.archs) or "none")
    binary.add("source digest", built.source_digest)

    machine = Table("This machine", ("what", "value"))
    machine.add("Python", platform.python_version())
    machine.add("PyTorch", torch.__version__)
    machine.add("CUDA of PyTorch", torch.version.cuda or "none")
    machine.add("CPU", cpu_model())
    machine.add("CPU threads", str(torch.get_num_threads()))
    machine.add("CPU SIMD", torch.backends.cpu.get_cpu_capability())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            size = gpu.total_memory / 2**30
            machine.add(
                f"cuda:{index}",
                f"{gpu.name}, compute capability {gpu.major}.{gpu.minor}, "
                f"{gpu.multi_processor_count} SMs, {size:.0f} GiB",
            )
    else:
        machine.add("GPU", "none that PyTorch can use")

    found = complaints(built)
    if as_json:
        tables = {
            name: {what: value for (what, value), _ in table.rows}
            for name, table in (("library", binary), ("machine", machine))
        }
        print_json({**tables, "misfits": found})
        return 1 if found else 0
    binary.print()
    machine.print()
    for sentence in found:
        print(f"Does not fit: {sentence}")
    if not found:
        print("Library and machine fit.")
    return 1 if found else 0
