"""The machine code of the CUDA kernels in the library, as cuobjdump reports it."""

import pathlib
import re
import shutil
import subprocess
import sysconfig

import pytest
import torch

import torch_pmpp

LIBRARY = pathlib.Path(torch_pmpp.__file__).parent / "lib" / "libpmpp.so"
MATMUL_KERNELS = ("naive", "tiled", "tiled_dynamic")
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "tiled_matmul"


def tile_rows(table: str, file: str) -> list[list[str]]:
    """Rows of a table of tiles in a header of the kernels, as their fields: a kernel is compiled for each."""
    text = (SOURCES / file).read_text(encoding="utf-8")
    rows = re.search(rf"{table}\[\] = \{{(.*?)\n\}};", text, re.DOTALL)
    assert rows is not None, f"{table} in {file}"
    return [row.split(", ") for row in re.findall(r"\{(\d[^}]*)\}", rows[1])]


def tiles(table: str, file: str) -> int:
    return len(tile_rows(table, file))


def simt_kernels() -> int:
    """float32 for three orders of each operand; of the others, so many have sums of one, two or four words."""
    count = 0
    for *_, words, only_float32 in tile_rows("kSimtTiles", "simt.hpp"):
        others = {"1": 6, "2": 3, "4": 1}[words]
        count += (9 if words == "1" else 0) + (0 if only_float32 == "true" else others)
    return count


def wgmma_kernels() -> int:
    """Both orders of both operands, for two dtypes, but for the order for which the largest shared tile would spill.

    float32 is not realigned, has one order of b, and an a of the other order where there are registers for it.
    """
    rows = tile_rows("kWgmmaTiles", "wgmma.hpp")
    single = [row for row in rows if "true" not in row]
    fed = [row for row in single if int(row[0]) < 192 and int(row[4]) <= (1 if row[3] == "0" else 2)]
    spilling = [row for row in rows if int(row[0]) == 192 and int(row[3]) > 1]
    return len(rows) * 4 * 2 - len(spilling) * 2 + len(single) + len(fed)


# Each tile for both orders of both operands, for two dtypes, those of mma64 for one; partial sums read by 16 bytes and
# one by one, by one group of threads and by several.
TILE_KERNELS = {
    "simt": simt_kernels(),
    "mma": tiles("kMmaTiles", "mma.hpp") * 4 * 2,
    "mma64": tiles("kMma64Tiles", "mma64.hpp") * 4,
    "wgmma": wgmma_kernels(),
    "reduce": 11 * 2 * 2,
}
# 1, 2, 4, 8, 16 bytes, and the last three in halves; shared, padded and padded16 are one template. vectorized has a
# kernel for each element size that a method serves, tiles of two or three sizes, and staged and gather each of them for
# destinations on boundaries and off them, as narrow_source does.
TRANSPOSE_KERNELS = {
    "naive": 8,
    "tile": 8 * 3,
    "aligned": 5 * 2,
    "staged": 1 * 3 * 2,
    "gather": 3 * 3 * 2,
    "narrow_source": 5 * 2,
    "narrow_dest": 5,
    "copy": 5,
}


def cuobjdump() -> str | None:
    """The tool of the CUDA toolkit, or the one that the Python package nvidia-cuda-cuobjdump brings."""
    packaged = pathlib.Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "cuobjdump"
    return shutil.which("cuobjdump") or (str(packaged) if packaged.is_file() else None)


@pytest.mark.skipif(torch_pmpp.build_info.cuda is None, reason="this build has no CUDA kernels")
@pytest.mark.skipif(cuobjdump() is None, reason="cuobjdump of the CUDA toolkit is not installed")
def test_kernels_keep_everything_in_registers():
    """No stack frame and no spill: an array that went to local memory would cost more than the kernel saves."""
    dump = subprocess.run(
        [cuobjdump(), "--dump-resource-usage", LIBRARY], capture_output=True, text=True, check=True, timeout=120
    )
    usage = re.findall(r"Function (\w+):\s*\n?\s*(REG:.*)", dump.stdout)
    assert usage, dump.stdout[:2000]
    for name, resources in usage:
        fields = dict(field.split(":", 1) for field in resources.split() if ":" in field)
        assert fields["STACK"] == "0", (name, resources)
        assert fields["LOCAL"] == "0", (name, resources)
    names = [name for name, _ in usage]
    images = len(torch_pmpp.build_info.archs)
    for kernel in MATMUL_KERNELS:
        of_kernel = [name for name in names if f"tiled_matmul_{kernel}_kernel" in name]
        assert len(of_kernel) == 11 * images, f"{kernel}: one for each dtype"
    for kernel, count in TILE_KERNELS.items():
        of_kernel = [name for name in names if f"tiled_matmul_{kernel}_kernel" in name]
        assert len(of_kernel) == count * images, kernel
    for kernel, count in TRANSPOSE_KERNELS.items():
        of_kernel = [name for name in names if f"padded_transpose_{kernel}_kernel" in name]
        assert len(of_kernel) == count * images, kernel


# What the machine code of a kernel cannot do without: products of the tensor cores, and how operands reach them.
INSTRUCTIONS = {
    "mma": ("HMMA.16816.F32", "LDSM"),
    "mma64": ("DMMA.", "LDGSTS"),
    "wgmma": ("HGMMA.64x", "UTMALDG", "SYNCS"),
}


@pytest.mark.skipif(torch_pmpp.build_info.cuda is None, reason="this build has no CUDA kernels")
@pytest.mark.skipif(cuobjdump() is None, reason="cuobjdump of the CUDA toolkit is not installed")
def test_tensor_core_kernels_use_the_tensor_cores():
    """Every image of mma and mma64, and of wgmma where there is one for sm_90a: elsewhere its kernels are empty."""
    dump = subprocess.run([cuobjdump(), "-sass", LIBRARY], capture_output=True, text=True, check=True, timeout=600)
    found = dict.fromkeys(INSTRUCTIONS, 0)
    architecture = ""
    for part in re.split(r"\n(?=\s*(?:code for|Function :))", dump.stdout):
        architecture = match[1] if (match := re.match(r"\s*code for (\w+)", part)) else architecture
        kernel = re.match(r"\s*Function : \w*tiled_matmul_(mma|mma64|wgmma)_kernel", part)
        if kernel is None or (kernel[1] == "wgmma" and architecture != "sm_90a"):
            continue
        found[kernel[1]] += 1
        for instruction in INSTRUCTIONS[kernel[1]]:
            assert instruction in part, part[:200]
    archs = torch_pmpp.build_info.archs
    for kernel in ("mma", "mma64"):
        assert found[kernel] == TILE_KERNELS[kernel] * len(archs)
    assert found["wgmma"] == TILE_KERNELS["wgmma"] * archs.count("90a")


def test_library_is_the_one_that_is_loaded():
    assert str(LIBRARY) in {str(pathlib.Path(path).resolve()) for path in torch.ops.loaded_libraries}
