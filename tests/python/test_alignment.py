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
from support import name_of

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
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, f"exit status {run.returncode} (-11: crashed)\n{run.stderr[-2000:]}"
