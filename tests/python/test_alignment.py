"""Complex numbers whose address is a multiple of their parts' size only, as NumPy and other libraries hand them over.

torch.mm and x.t().contiguous() read them; an instruction that wants 16-byte alignment would end the process, so each
case runs in one of its own.
"""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from support import name_of, needs_cuda

import torch_pmpp

SCRIPT = """
import sys, torch, torch_pmpp
dtype, op, algorithm = getattr(torch, sys.argv[1]), sys.argv[2], sys.argv[3]
part = dtype.itemsize // 2
real = dtype.to_real()
rows, columns = 35, 33
memory = bytearray(dtype.itemsize * (rows * columns + 1))

def view(kind, count):
    return torch.frombuffer(memory, dtype=kind, count=count, offset=part)

x = view(dtype, rows * columns).view(rows, columns)
if x.data_ptr() % dtype.itemsize == 0:
    memory = bytearray(8) + memory
    x = view(dtype, rows * columns).view(rows, columns)
numbers = torch.randint(-9, 10, (rows, columns, 2)).to(real)
view(real, 2 * rows * columns).copy_(numbers.flatten())
aligned = torch.view_as_complex(numbers)
if op == "tiled_matmul":
    got = torch_pmpp.tiled_matmul(x, x.t(), algorithm=algorithm)
    want = torch.mm(aligned, aligned.t())
else:
    got, want = torch_pmpp.padded_transpose(x, algorithm=algorithm), aligned.t()
assert x.data_ptr() % dtype.itemsize == part, "the memory happens to be aligned"
assert torch.equal(got, want)
"""
CASES = [
    pytest.param(op, dtype, algorithm, id=f"{op}-{name_of(dtype)}-{algorithm}")
    for op in ("tiled_matmul", "padded_transpose")
    for dtype in (torch.complex64, torch.complex128)
    for algorithm in torch_pmpp.algorithms(op, "cpu", dtype)
]


@pytest.mark.parametrize(("op", "dtype", "algorithm"), CASES)
def test_row_strides_bases_aligned_to_half_an_element(op, dtype, algorithm):
    found = str(pathlib.Path(torch_pmpp.__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (found, os.environ.get("PYTHONPATH"))))}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, name_of(dtype), op, algorithm],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, f"exit status {run.returncode} (-11: crashed)\n{run.stderr[-2000:]}"


@pytest.mark.parametrize("op", ["tiled_matmul", "padded_transpose"])
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.complex128, torch.int16, torch.int64]
)
def test_row_strides_bases_at_any_byte_on_the_cpu(op, dtype):
    """PyTorch's CPU operators accept memory that starts at an odd byte, so ours do."""
    rows, columns = 37, 41
    aligned = torch.randint(-9, 10, (rows, columns)).to(dtype)
    memory = bytearray(aligned.numel() * dtype.itemsize + 16)
    address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    offset = 1 if address % 2 == 0 else 2
    start = memoryview(memory)[offset : offset + aligned.numel() * dtype.itemsize]
    start[:] = aligned.numpy().tobytes()
    x = torch.frombuffer(memory, dtype=dtype, count=aligned.numel(), offset=offset).view(rows, columns)
    assert x.data_ptr() % 2 == 1
    for algorithm in torch_pmpp.algorithms(op, "cpu", dtype):
        if op == "tiled_matmul":
            got = torch_pmpp.tiled_matmul(x, x.t(), algorithm=algorithm)
            want = torch_pmpp.tiled_matmul(aligned, aligned.t(), algorithm=algorithm)
        else:
            got, want = torch_pmpp.padded_transpose(x, algorithm=algorithm), aligned.t()
        assert torch.equal(got, want), algorithm


class ForeignMemory:
    """CUDA memory as another library hands it over: `tensor` seen from `offset` bytes on."""

    def __init__(self, tensor: torch.Tensor, offset: int, shape: tuple[int, ...], typestr: str) -> None:
        self.owner = tensor
        data = (tensor.data_ptr() + offset, False)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": data, "version": 3}


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize(("dtype", "typestr"), [(torch.complex64, "<c8"), (torch.complex128, "<c16")])
def test_row_strides_complex_bases_aligned_to_half_an_element_on_cuda(dtype, typestr):
    part = dtype.itemsize // 2
    rows, columns = 35, 33
    numbers = torch.randint(-9, 10, (rows, columns, 2), device="cuda").to(dtype.to_real())
    memory = torch.zeros(2 * rows * columns + 2, dtype=dtype.to_real(), device="cuda")
    memory[1:-1] = numbers.flatten()
    x = torch.as_tensor(ForeignMemory(memory, part, (rows, columns), typestr), device="cuda")
    assert x.data_ptr() % dtype.itemsize == part
    aligned = torch.view_as_complex(numbers)
    for algorithm in torch_pmpp.algorithms("tiled_matmul", "cuda", dtype):
        assert torch.equal(torch_pmpp.tiled_matmul(x, x.t(), algorithm=algorithm), torch.mm(aligned, aligned.t()))
        square = torch.zeros(2 * columns**2 + 2, dtype=dtype.to_real(), device="cuda")
        out = torch.as_tensor(ForeignMemory(square, part, (columns, columns), typestr), device="cuda")
        torch_pmpp.tiled_matmul(x.t(), x, algorithm=algorithm, out=out)
        # PyTorch's own kernels do not read such a tensor.
        result = torch.view_as_complex(square[1:-1].clone().view(columns, columns, 2))
        assert torch.equal(result, torch.mm(aligned.t(), aligned))
        assert square[0] == square[-1] == 0
    for algorithm in torch_pmpp.algorithms("padded_transpose", "cuda", dtype):
        assert torch.equal(torch_pmpp.padded_transpose(x, algorithm=algorithm), aligned.t())
        pair = torch_pmpp.padded_transpose(x[:, :1], algorithm=algorithm)
        assert torch.equal(pair, aligned[:, :1].t())


@pytest.mark.cuda
@needs_cuda
def test_error_bases_off_an_element_on_cuda_are_refused_and_the_device_goes_on_working():
    memory = torch.ones(64, dtype=torch.float32, device="cuda")
    x = torch.as_tensor(ForeignMemory(memory, 1, (4, 4), "<f4"), device="cuda")
    with pytest.raises(RuntimeError, match=r"tiled_matmul: expected the data of a to start at a multiple of 4 bytes"):
        torch_pmpp.tiled_matmul(x, memory[:16].view(4, 4))
    with pytest.raises(
        RuntimeError, match=r"padded_transpose: expected the data of x to start at a multiple of 2 bytes"
    ):
        torch_pmpp.padded_transpose(x)
    assert torch.equal(
        torch_pmpp.tiled_matmul(memory[:16].view(4, 4), memory[:16].view(4, 4)), torch.full((4, 4), 4.0).cuda()
    )
