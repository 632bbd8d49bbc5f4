"""The public functions: thin, typed fronts of the registered operators."""

from __future__ import annotations

import torch
from torch import Tensor

from ._library import no_cuda_reason

OPERATORS = ("tiled_matmul", "padded_transpose")

# Overloads looked up once: resolving one through torch.ops on every call costs about a microsecond.
_tiled_matmul = torch.ops.pmpp.tiled_matmul.default
_tiled_matmul_out = torch.ops.pmpp.tiled_matmul.out
_padded_transpose = torch.ops.pmpp.padded_transpose.default
_padded_transpose_out = torch.ops.pmpp.padded_transpose.out


def tiled_matmul(a: Tensor, b: Tensor, *, algorithm: str = "auto", out: Tensor | None = None) -> Tensor:
    """Product of two matrices, as `torch.mm(a, b)` gives it.

    Args:
        a: Matrix of shape (m, k) on the CPU or a CUDA device, any strides. float16, bfloat16, float32, float64,
            complex64, complex128, uint8, int8, int16, int32 or int64.
        b: Matrix of shape (k, n), same dtype and device as `a`.
        algorithm: A name from `algorithms("tiled_matmul", a.device, a.dtype)`, or "auto" for the fastest.
        out: Where to put the result: same dtype and device, no memory shared with `a` or `b`. Keeps its strides; is
            resized, with PyTorch's warning, if its shape is not (m, n). Not while gradients are recorded.

    Returns:
        The (m, n) product: a new row-major tensor, or `out`. 16-bit floating-point types are accumulated in float32
        and rounded once; integers wrap around. The same inputs always give the same bits.

    Raises:
        RuntimeError: An operand is not a matrix, or shapes, devices or dtypes do not fit; the message names them.
        NotImplementedError: The dtype is not supported, or this algorithm cannot do it on this device; the message
            lists those that can.
        ValueError: `algorithm` is not a name of one.

    Source: the tiled kernels follow Kirk and Hwu, "Programming Massively Parallel Processors".
    """
    if out is None:
        return _tiled_matmul(a, b, algorithm=algorithm)
    return _tiled_matmul_out(a, b, algorithm=algorithm, out=out)


def padded_transpose(x: Tensor, *, algorithm: str = "auto", out: Tensor | None = None) -> Tensor:
    """Transpose of a matrix in memory of its own, as `x.t().contiguous()` gives it.

    Args:
        x: Tensor of at most two dimensions on the CPU or a CUDA device, any strides, any dtype whose elements have
            1, 2, 4, 8 or 16 bytes. Elements are moved bit for bit (NaN payloads survive); conjugate and negative
            views are resolved.
        algorithm: A name from `algorithms("padded_transpose", x.device, x.dtype)`, or "auto" for the fastest.
        out: Where to put the result, under the conditions that `tiled_matmul` states.

    Returns:
        The (n, m) transpose of an (m, n) matrix: always a new row-major tensor (or `out`), also where
        `x.t().contiguous()` would return a view. A tensor of no or one dimension comes back as a copy.

    Raises:
        RuntimeError: `x` has more than two dimensions, or `out` does not fit.
        NotImplementedError: The element size is not supported, or this algorithm cannot do it on this device.
        ValueError: `algorithm` is not a name of one.

    Source: the shared-memory tile with one column of padding is Ruetsch and Micikevicius, "Optimizing Matrix
    Transpose in CUDA" (NVIDIA, 2009).
    """
    if out is None:
        return _padded_transpose(x, algorithm=algorithm)
    return _padded_transpose_out(x, algorithm=algorithm, out=out)


def transpose(x: Tensor, *, algorithm: str = "auto") -> Tensor:
    """Exactly `x.t().contiguous()`: the view `x.t()` where that is contiguous already, else `padded_transpose(x)`.

    Args, errors and dtypes as for `padded_transpose`; `algorithm` is looked at only where something is moved. Because
    the result may share memory with `x`, this is a function and not an operator of its own: an operator must not
    return its input.
    """
    if isinstance(x, Tensor) and x.dim() <= 2:
        view = x.t()
        if view.is_contiguous():
            return view
    return padded_transpose(x, algorithm=algorithm)


def algorithms(op: str, device: torch.device | str | int, dtype: torch.dtype) -> list[str]:
    """Names of the algorithms that can do `dtype` on `device`, in the order of the ladder; "auto" is not listed.

    Args:
        op: "tiled_matmul" or "padded_transpose".
        device: A CPU or CUDA device, such as "cpu", "cuda" or `tensor.device`.
        dtype: Such as torch.float32.

    Returns:
        A list of names; empty if the operator does not support the dtype.

    Raises:
        ValueError: `op` is not an operator, or pmpp has no kernels for that type of device.
        TypeError: `dtype` is not a torch.dtype.
        RuntimeError: A CUDA device is asked for where there is none, or of a build for the CPU alone.
    """
    if op not in OPERATORS:
        raise ValueError(f"algorithms: unknown operator {op!r}; expected one of {', '.join(OPERATORS)}")
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"algorithms: expected dtype to be a torch.dtype such as torch.float32, but got {dtype!r}")
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"algorithms: no kernels for devices of type {device.type!r}; expected cpu or cuda")
    if device.type == "cuda" and (reason := no_cuda_reason()) is not None:
        raise RuntimeError(f"algorithms: {device} was asked for, but {reason}")
    return list(torch.ops.pmpp._algorithms(op, device, dtype))
