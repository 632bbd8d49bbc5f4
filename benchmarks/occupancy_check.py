#!/usr/bin/env python3
"""Compares `python -m torch_pmpp occupancy` with the driver's own calculator, for every kernel of the library.

The kernels are taken from the library file itself: its section .nv_fatbin holds an image for each source file, which
the driver loads once more, so that every kernel is there by name, also those that no plan reaches on this GPU. For
each, several block sizes and amounts of dynamic shared memory are put to cuOccupancyMaxActiveBlocksPerMultiprocessor,
the function behind cudaOccupancyMaxActiveBlocksPerMultiprocessor. Barriers, which the driver does not tell, are those
of kernels.json, with which registers and shared memory are also compared.

Prints one line for each difference and a JSON object last; needs a GPU.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from torch_pmpp._devices import CAPABILITIES, Capability  # noqa: E402
from torch_pmpp._kernels import Kernel, demangled, read_kernels, sections  # noqa: E402
from torch_pmpp._library import PACKAGE  # noqa: E402
from torch_pmpp._occupancy import occupancy  # noqa: E402

BLOCKS = (32, 64, 96, 128, 160, 256, 320, 384, 512, 768, 1024)
DYNAMIC = (0, 1, 1024, 9000, 16384, 33000, 48 * 1024, 70000, 100000, 114 * 1024, 200000)
_MAGIC = 0xBA55ED50
_MAX_THREADS, _STATIC_SHARED, _REGISTERS, _MAX_DYNAMIC = 0, 1, 4, 8  # CUfunction_attribute


def section(content: bytes, wanted: str) -> bytes:
    """A section of a 64-bit ELF file; empty if it has none of that name."""
    return next((found for name, found in sections(content) if name == wanted), b"")


def images(fatbin: bytes) -> Iterator[bytes]:
    """The images in a section, one for each source file: magic, version, size of the header, size of the rest."""
    at = 0
    while at + 16 <= len(fatbin):
        magic, _, header, rest = struct.unpack_from("<IHHQ", fatbin, at)
        if magic != _MAGIC:
            at += 8
            continue
        yield fatbin[at : at + header + rest]
        at += -(-(header + rest) // 8) * 8


class Driver:
    """The few functions of the CUDA driver that this needs; RuntimeError names one that fails."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")  # makes PyTorch's context the current one
        self.library = ctypes.CDLL("libcuda.so.1")
        self.images: list[bytes] = []  # a kernel may be read from its image only when it is first asked for

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} failed with {code}")

    def functions(self, image: bytes) -> list[ctypes.c_void_p]:
        """All kernels of an image, which stays loaded."""
        module, count = ctypes.c_void_p(), ctypes.c_uint()
        self.images.append(image)
        self("cuModuleLoadData", ctypes.byref(module), image)
        self("cuModuleGetFunctionCount", ctypes.byref(count), module)
        found = (ctypes.c_void_p * count.value)()
        self("cuModuleEnumerateFunctions", found, count, module)
        functions = [ctypes.c_void_p(each) for each in found]
        for function in functions:
            self("cuFuncLoad", function)  # lazily loaded ones have no attributes yet
        return functions

    def name(self, function: ctypes.c_void_p) -> str:
        """The mangled name."""
        text = ctypes.c_char_p()
        self("cuFuncGetName", ctypes.byref(text), function)
        return (text.value or b"").decode()

    def attribute(self, function: ctypes.c_void_p, which: int) -> int:
        """One of CUfunction_attribute."""
        value = ctypes.c_int()
        self("cuFuncGetAttribute", ctypes.byref(value), which, function)
        return value.value

    def blocks(self, function: ctypes.c_void_p, threads: int, dynamic: int) -> int:
        """The calculator's answer."""
        value = ctypes.c_int()
        self(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(value),
            function,
            ctypes.c_int(threads),
            ctypes.c_size_t(dynamic),
        )
        return value.value


def compare(
    driver: Driver, function: ctypes.c_void_p, capability: Capability, recorded: Mapping[str, Kernel]
) -> tuple[int, list[str]]:
    """How many launches were compared, and what differs; nothing is compared of a kernel that was not recorded."""
    name = demangled(driver.name(function))
    if name not in recorded:
        return 0, []
    barriers = recorded[name].barriers
    registers = driver.attribute(function, _REGISTERS)
    static = driver.attribute(function, _STATIC_SHARED)
    most = driver.attribute(function, _MAX_THREADS)
    room = capability.shared_opt_in - static
    driver("cuFuncSetAttribute", function, _MAX_DYNAMIC, room)
    differing = []
    count = 0
    for threads in (each for each in BLOCKS if each <= most):
        for dynamic in (*(each for each in DYNAMIC if each < room), room):
            ours = occupancy(capability, threads, registers, static, dynamic, barriers)
            theirs = driver.blocks(function, threads, dynamic)
            count += 1
            if ours.blocks != theirs:
                differing.append(
                    f"{name}: {threads} threads, {registers} registers, {static} + {dynamic} bytes, {barriers} "
                    f"barriers: {ours.blocks} blocks ({ours.limiter}), the driver says {theirs}"
                )
    return count, differing


def compare_resources(
    driver: Driver, functions: Sequence[ctypes.c_void_p], recorded: Mapping[str, Kernel]
) -> list[str]:
    """What of kernels.json is not as the driver has it."""
    written = {name: (kernel.registers, kernel.static_shared_bytes) for name, kernel in recorded.items()}
    found = {
        demangled(driver.name(each)): (driver.attribute(each, _REGISTERS), driver.attribute(each, _STATIC_SHARED))
        for each in functions
    }
    return [
        f"{name}: (registers, bytes) are {written.get(name, 'missing')} in kernels.json, "
        f"{found.get(name, 'missing')} in the driver"
        for name in sorted(written.keys() | found.keys())
        if written.get(name) != found.get(name)
    ]


def main() -> int:
    """Returns 0 if everything agrees, else 1."""
    major, minor = torch.cuda.get_device_capability()
    capability = CAPABILITIES[10 * major + minor]
    table = read_kernels(PACKAGE)
    arch, _ = table.image_for(capability.number)
    recorded = {kernel.name: kernel for kernel in table.kernels if kernel.arch == arch}
    if not recorded:
        print(f"nothing to compare: {table.reason}")
        print(json.dumps({"kernels": 0, "compared": 0, "differing": 1}))
        return 1
    driver = Driver()
    functions: list[ctypes.c_void_p] = []
    for image in images(section((PACKAGE / "lib" / "libpmpp.so").read_bytes(), ".nv_fatbin")):
        try:
            functions += driver.functions(image)
        except RuntimeError as error:
            # The linker adds an image without kernels; a kernel that is missed is named below.
            print(f"an image of {len(image)} bytes: {error}")
    compared = 0
    differing = compare_resources(driver, functions, recorded)
    for function in functions:
        count, found = compare(driver, function, capability, recorded)
        compared += count
        differing += found
    for line in differing:
        print(line)
    print(json.dumps({"kernels": len(functions), "compared": compared, "differing": len(differing)}))
    return 1 if differing or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
