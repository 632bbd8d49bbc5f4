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
# Six tiles, each for both orders of both operands, and partial sums read by four and by one; both for two dtypes.
TENSOR_CORE_KERNELS = {"mma": 6 * 4 * 2, "reduce": 2 * 2}
# 1, 2, 4, 8, 16 bytes, and the last three in halves; shared, padded and padded16 are one template. vectorized has a
# kernel for each element size that a method serves, tiles of two or three sizes, and staged and gather each of them for
# destinations on boundaries and off them.
TRANSPOSE_KERNELS = {
    "naive": 8,
    "tile": 8 * 3,
    "aligned": 5 * 2,
    "staged": 1 * 3 * 2,
    "gather": 3 * 3 * 2,
    "narrow_source": 5,
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
    for kernel, count in TENSOR_CORE_KERNELS.items():
        of_kernel = [name for name in names if f"tiled_matmul_{kernel}_kernel" in name]
        assert len(of_kernel) == count * images, kernel
    for kernel, count in TRANSPOSE_KERNELS.items():
        of_kernel = [name for name in names if f"padded_transpose_{kernel}_kernel" in name]
        assert len(of_kernel) == count * images, kernel


@pytest.mark.skipif(torch_pmpp.build_info.cuda is None, reason="this build has no CUDA kernels")
@pytest.mark.skipif(cuobjdump() is None, reason="cuobjdump of the CUDA toolkit is not installed")
def test_mma_kernels_use_the_tensor_cores():
    """Every image of every mma kernel multiplies 16 x 8 x 16 at a time, from matrices loaded whole."""
    dump = subprocess.run([cuobjdump(), "-sass", LIBRARY], capture_output=True, text=True, check=True, timeout=600)
    found = 0
    for code in re.split(r"Function : ", dump.stdout)[1:]:
        if "tiled_matmul_mma_kernel" in code.split("\n", 1)[0]:
            found += 1
            assert "HMMA.16816.F32" in code, code[:200]
            assert "LDSM" in code, code[:200]
    assert found == TENSOR_CORE_KERNELS["mma"] * len(torch_pmpp.build_info.archs)


def test_library_is_the_one_that_is_loaded():
    assert str(LIBRARY) in {str(pathlib.Path(path).resolve()) for path in torch.ops.loaded_libraries}
