"""What ptxas made of each kernel: registers, stack frame, shared memory, constant bank and barriers, as the build
recorded them.

The build runs this file as a program, `python _kernels.py LIBRARY OUTPUT.json`: it asks cuobjdump for the resources of
every kernel in the library, and for the images, which hold the number of barriers that the tool does not print. Where
that tool is missing, the file says so. Standard library only, and no relative import at the top.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FILE = "kernels.json"
_FIELDS = ("arch", "name", "registers", "stack_bytes", "static_shared_bytes", "constant_bytes", "barriers")
# Attributes in a section .nv.info.<kernel>, each a format, a name and 16 bits (`cuobjdump -elf` spells them out).
_WITH_PAYLOAD = 4  # format EIFMT_SVAL: the 16 bits count the bytes that follow
_NUM_BARRIERS = 0x4C  # EIATTR_NUM_BARRIERS, of format EIFMT_BVAL: the low 8 bits


@dataclass(frozen=True)
class Kernel:
    """A kernel of one image of the binary."""

    arch: str  # such as 90a
    name: str  # with template arguments, without namespace: tiled_matmul_tiled_kernel<float>
    registers: int  # of a thread
    stack_bytes: int  # of a thread: spilled registers and arrays that found no place in them
    static_shared_bytes: int  # without what the system reserves
    constant_bytes: int  # of bank 0: the kernel's arguments, and what the system puts before them
    barriers: int  # named ones of a block; all 16 where the number of one is known only at run time

    @property
    def base(self) -> str:
        """The name without template arguments."""
        return self.name.partition("<")[0]

    @property
    def arguments(self) -> list[str]:
        """The template arguments, as text."""
        inner = self.name.partition("<")[2].rpartition(">")[0]
        found, depth, start = [], 0, 0
        for index, letter in enumerate(inner):
            depth += (letter in "<{(") - (letter in ">})")
            if letter == "," and depth == 0:
                found.append(inner[start:index].strip())
                start = index + 1
        return [*found, inner[start:].strip()] if inner else []


# ---- at build time -------------------------------------------------------------------------------------------------


def find_cuobjdump() -> str | None:
    """The tool on PATH, or the one that the Python package nvidia-cuda-cuobjdump brings."""
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "cuobjdump"
    return str(packaged) if packaged.is_file() else shutil.which("cuobjdump")


def demangled(symbol: str) -> str:
    """`tiled_matmul_naive_kernel<float>` of a mangled name; the name itself where it cannot be read."""
    library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
    demangle = library.__cxa_demangle
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text or status.value != 0:
        return symbol
    full = ctypes.string_at(text).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    # Without the result type and the parameters: up to the bracket that opens after the template arguments.
    depth, end = 0, len(full)
    for index, letter in enumerate(full):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not full.startswith("(anonymous", index):
            end = index
            break
    name = full[:end].removeprefix("void ")
    head, bracket, rest = name.partition("<")
    return head.rpartition("::")[2] + bracket + rest


def sections(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", content, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        name, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", content, table + index * entry_size)
        return name, offset, size

    _, names, _ = header(names_index)
    for index in range(count):
        name, offset, size = header(index)
        yield content[names + name : content.index(b"\0", names + name)].decode(), content[offset : offset + size]


def barriers_of(image: bytes) -> dict[str, int]:
    """Mangled name and number of named barriers of each kernel of a cubin."""
    found = {}
    for section, content in sections(image):
        if not section.startswith(".nv.info."):
            continue
        barriers, at = 0, 0
        while at + 4 <= len(content):
            kind, attribute, value = struct.unpack_from("<BBH", content, at)
            if attribute == _NUM_BARRIERS:
                barriers = value & 0xFF
            at += 4 + (value if kind == _WITH_PAYLOAD else 0)
        found[section.removeprefix(".nv.info.")] = barriers
    return found


def read_barriers(tool: str, library: str) -> dict[tuple[str, str], int]:
    """Named barriers of every kernel of a library, by architecture and mangled name."""
    found: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [tool, "--extract-elf", "all", Path(library).resolve()],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=300,
        )
        for image in Path(folder).glob("*.cubin"):
            arch = image.suffixes[-2].removeprefix(".sm_")  # libpmpp.12.sm_90a.cubin
            found |= {(arch, symbol): count for symbol, count in barriers_of(image.read_bytes()).items()}
    return found


def parse_usage(dump: str, barriers: Mapping[tuple[str, str], int]) -> list[Kernel]:
    """Kernels of the output of `cuobjdump --dump-resource-usage`; KeyError if the barriers of one are missing."""
    kernels = []
    arch = ""
    for match in re.finditer(r"^arch = sm_(\w+)|Function (\w+):\s*\n\s*(REG:.*)", dump, re.MULTILINE):
        if match[1]:
            arch = match[1]
            continue
        found = {name: int(value) for name, value in re.findall(r"([A-Z]+(?:\[\d\])?):(\d+)", match[3])}
        shared = found["SHARED"]
        # From sm_90 on the tool counts the 1 KiB that the system reserves of each block.
        if int(re.sub(r"\D", "", arch)) >= 90 and shared >= 1024:
            shared -= 1024
        constant = found.get("CONSTANT[0]", 0)
        name, count = demangled(match[2]), barriers[arch, match[2]]
        kernels.append(Kernel(arch, name, found["REG"], found["STACK"], shared, constant, count))
    return sorted(kernels, key=lambda kernel: (kernel.arch, kernel.name))


def render(kernels: Sequence[Kernel], reason: str) -> str:
    """The file's text, one kernel a line."""
    rows = ",\n".join("  " + json.dumps([getattr(kernel, name) for name in _FIELDS]) for kernel in kernels)
    fields = json.dumps(list(_FIELDS))
    return f'{{\n "reason": {json.dumps(reason)},\n "fields": {fields},\n "kernels": [\n{rows}\n ]\n}}\n'


def main(arguments: Sequence[str]) -> int:
    """Writes the file for a library; a missing tool is no error of the build."""
    if len(arguments) != 2:
        print("usage: _kernels.py LIBRARY OUTPUT.json", file=sys.stderr)
        return 2
    library, output = arguments
    tool = find_cuobjdump()
    kernels: list[Kernel] = []
    reason = "cuobjdump was not there when the library was built"
    if tool is not None:
        done = subprocess.run(
            [tool, "--dump-resource-usage", library], capture_output=True, text=True, check=False, timeout=300
        )
        try:
            kernels = parse_usage(done.stdout, read_barriers(tool, library))
            reason = "" if kernels else "the library has no CUDA kernels"
        except KeyError as error:
            reason = f"{tool} extracts no image with the kernel {error}"
    Path(output).write_text(render(kernels, reason), encoding="utf-8")
    return 0


# ---- at run time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelTable:
    """The kernels of a build; `reason` says why there are none."""

    kernels: tuple[Kernel, ...]
    reason: str

    def image_for(self, capability: int) -> tuple[str | None, str]:
        """The image whose figures to show for a GPU, and a remark where the GPU would not run that very image."""
        archs = sorted({kernel.arch for kernel in self.kernels}, key=_number)
        if not archs:
            return None, self.reason
        exact = [arch for arch in archs if _number(arch) == capability]
        if exact:
            return exact[-1], ""
        # An image runs on later GPUs of its major version as well.
        family = [
            arch
            for arch in archs
            if _number(arch) // 10 == capability // 10 and _number(arch) < capability and arch.isdigit()
        ]
        if family:
            return family[-1], ""
        nearest = min(archs, key=lambda arch: abs(_number(arch) - capability))
        return nearest, f"those of the image for sm_{nearest}, since the binary has none for sm_{capability}"


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))


@lru_cache(maxsize=1)
def read_kernels(package: Path) -> KernelTable:
    """The table that the build left in the package; an empty one with the reason if there is none."""
    try:
        content = json.loads((package / FILE).read_text(encoding="utf-8"))
        if content.get("fields") != list(_FIELDS):
            return KernelTable((), f"{FILE} is from a build of another version of torch_pmpp; build again")
        return KernelTable(tuple(Kernel(*row) for row in content["kernels"]), str(content["reason"]))
    except FileNotFoundError:
        return KernelTable((), "the build left no kernels.json")
    except (ValueError, KeyError, TypeError) as error:
        return KernelTable((), f"{FILE} is damaged ({type(error).__name__}: {error})")


_MATMUL_TYPES = {
    "float16": "pmpp::Float16",
    "bfloat16": "pmpp::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "pmpp::Complex<float>",
    "complex128": "pmpp::Complex<double>",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
}
_TRANSPOSE_TYPES = {
    1: "unsigned char",
    2: "unsigned short",
    4: "unsigned int",
    8: "unsigned long",
    16: "pmpp::transposition::Bytes16",
}
_TILES = {"shared": ("32", "0"), "padded": ("32", "1"), "padded16": ("16", "1"), "strided": ("32", "1")}


def _narrowed(kernels: list[Kernel], condition: Sequence[bool]) -> list[Kernel]:
    """The kernels for which the condition holds, unless it holds for none: it then says nothing about them."""
    return [kernel for kernel, holds in zip(kernels, condition, strict=True) if holds] or kernels


def matmul_kernels(
    table: KernelTable, arch: str, algorithm: str, dtype: str, layout: str, plan: Mapping[str, int]
) -> list[Kernel]:
    """The kernels that a plan of `torch.ops.pmpp._plan_on` may run: one, or more where the plan does not tell them
    apart."""
    word = "mma64" if algorithm == "mma" and dtype in ("float64", "complex128") else algorithm
    found = [kernel for kernel in table.kernels if kernel.arch == arch and kernel.base == f"tiled_matmul_{word}_kernel"]
    # Kernels are templates of the dtype, but for those that serve a single one.
    if any(kernel.arguments[0] in _MATMUL_TYPES.values() for kernel in found):
        found = [kernel for kernel in found if kernel.arguments[0] == _MATMUL_TYPES[dtype]]
        rest = 1
    else:
        rest = 0
    # Then, where there is one, the row of their table of tiles, and how each operand lies.
    found = _narrowed(found, [kernel.arguments[rest : rest + 1] == [str(plan["config"])] for kernel in found])
    if algorithm == "mma":
        order = [str(layout[0] == "N").lower(), str(layout[1] == "T").lower()]  # whether k runs fastest
    else:
        order = [str(layout[0] == "T").lower(), str(layout[1] == "N").lower()]  # whether m or n does
    return _narrowed(found, [kernel.arguments[rest + 1 : rest + 3] == order for kernel in found])


def helper_kernels(table: KernelTable, arch: str, algorithm: str, dtype: str, plan: Mapping[str, int]) -> list[Kernel]:
    """The kernels that such a plan runs besides: those that copy or split operands first, and those, one of which adds
    up the sums of the pieces of k."""
    bases = []
    if algorithm == "emulated":
        bases.append("tiled_matmul_split_kernel")
    if plan["a_packed"] or plan["b_packed"]:
        bases.append("tiled_matmul_repack_kernel")
    if plan["splits"] > 1 and plan["cluster"] != plan["splits"]:
        bases.append("tiled_matmul_emulated_reduce_kernel" if algorithm == "emulated" else "tiled_matmul_reduce_kernel")
    return [
        kernel
        for base in bases
        for kernel in table.kernels
        if kernel.arch == arch
        and kernel.base == base
        and (not kernel.arguments or kernel.arguments[0] == _MATMUL_TYPES[dtype])
    ]


def transpose_kernels(
    table: KernelTable, arch: str, algorithm: str, method: str, size: int, plan: Mapping[str, int]
) -> list[Kernel]:
    """The same for a transpose; `method` is that of `vectorized` as the plan's text names it, else empty."""
    kind = _TILES.get(method or algorithm)
    element = _TRANSPOSE_TYPES[size]
    if method == "driver copy":
        return []
    if kind is not None:
        base, rest = "padded_transpose_tile_kernel", list(kind)
    else:
        word = {"narrow source": "narrow_source", "narrow destination": "narrow_dest"}.get(method, method or algorithm)
        base, rest = f"padded_transpose_{word}_kernel", []
    found = [
        kernel
        for kernel in table.kernels
        # staged is for single bytes alone and does not say so.
        if kernel.arch == arch and kernel.base == base and (method == "staged" or kernel.arguments[0] == element)
    ]
    if rest:
        return [kernel for kernel in found if kernel.arguments[1:] == rest]
    # Tiles: bytes along a source row and along a destination row, threads, and last the halo, where there is one.
    shape = [str(plan["tile_n"] * size), str(plan["tile_m"] * size), str(plan["block_x"])]
    first = 0 if method == "staged" else 1
    found = _narrowed(found, [kernel.arguments[first : first + 3] == shape for kernel in found])
    # Strips of few columns: whether the destination lies on boundaries.
    last = ["true", "false"][plan["halo"] > 0] if method == "narrow source" else str(plan["halo"])
    return _narrowed(found, [kernel.arguments[-1] == last for kernel in found])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
