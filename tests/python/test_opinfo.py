"""PyTorch's own samples: OpInfo `mm` through tiled_matmul, OpInfo `t` (made contiguous) through padded_transpose."""

import oracle
import pytest
import torch
from support import MATMUL_DTYPES, SIZED_DTYPES, on_each_algorithm, on_each_device
from torch.testing._internal.common_methods_invocations import op_db

import torch_pmpp

MM = next(op for op in op_db if op.name == "mm" and not op.variant_test_name)
T = next(op for op in op_db if op.name == "t" and not op.variant_test_name)
T_DTYPES = tuple(sorted(T.supported_dtypes("cpu"), key=str))


def samples(op, device, dtype):
    differentiable = dtype.is_floating_point or dtype.is_complex
    found = list(op.sample_inputs(device, dtype, requires_grad=differentiable))
    assert found
    return found


def test_the_contract_covers_every_dtype_of_the_mm_opinfo():
    assert set(MATMUL_DTYPES) >= set(MM.supported_dtypes("cpu")) | set(MM.supported_dtypes("cuda"))


@on_each_algorithm("tiled_matmul", MATMUL_DTYPES)
def test_mm_sample_inputs_and_their_gradients(device, dtype, algorithm):
    for sample in samples(MM, device, dtype):
        a, (b,) = sample.input, sample.args
        result = torch_pmpp.tiled_matmul(a, b, algorithm=algorithm)
        oracle.assert_product(result, a.detach().resolve_conj(), b.detach().resolve_conj())
        assert result.requires_grad == (a.requires_grad or b.requires_grad)
        if device == "cuda" and not result.requires_grad:
            continue  # torch.mm has no integers there
        theirs = torch.mm(a, b)
        assert result.shape == theirs.shape
        assert result.stride() == theirs.stride()
        assert result.dtype == theirs.dtype
        if result.requires_grad:
            gradient = torch.randn(result.shape, dtype=dtype, device=device)
            ours = torch.autograd.grad(result, (a, b), gradient)
            for x, y in zip(ours, torch.autograd.grad(theirs, (a, b), gradient), strict=True):
                torch.testing.assert_close(x, y, rtol=4 * torch.finfo(dtype).eps, atol=400 * torch.finfo(dtype).eps)


@on_each_algorithm("padded_transpose", T_DTYPES)
def test_t_sample_inputs_and_their_gradients(device, dtype, algorithm):
    for sample in samples(T, device, dtype):
        x = sample.input
        result = torch_pmpp.padded_transpose(x, algorithm=algorithm)
        theirs = x.t().contiguous()
        oracle.assert_same_bits(result.detach().resolve_conj(), theirs.detach().resolve_conj())
        oracle.assert_fresh_row_major(result, x)
        assert result.requires_grad == theirs.requires_grad
        if result.requires_grad:
            gradient = torch.ones_like(theirs) * 3
            (ours,) = torch.autograd.grad(result, x, gradient)
            (expected,) = torch.autograd.grad(theirs, x, gradient)
            torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def mm_error_calls(device):
    """What the OpInfo of this torch calls an error of mm, and, as its list may be empty, the classic ones."""
    if MM.error_inputs_func is not None:
        for error in MM.error_inputs(device):
            yield error.sample_input.input, *error.sample_input.args
    for a, b in (((3,), (3, 3)), ((3, 3), (3,)), ((2, 3, 4), (4, 2)), ((), ()), ((2, 3), (4, 5)), ((0, 3), (2, 0))):
        yield torch.randn(a, device=device), torch.randn(b, device=device)
    a = torch.randn(3, 3, device=device)
    for dtype in (torch.float64, torch.int32, torch.bool):
        yield a, a.to(dtype)
    yield a.bool(), a.bool()


@on_each_device
def test_mm_error_inputs_raise_the_same_type(device):
    for a, b in mm_error_calls(device):
        with pytest.raises(RuntimeError) as theirs:  # or a kind of it: NotImplementedError
            torch.mm(a, b)
        with pytest.raises(RuntimeError, match="tiled_matmul") as ours:
            torch_pmpp.tiled_matmul(a, b)
        assert type(ours.value) is type(theirs.value)


@on_each_device
def test_t_error_inputs_raise_the_same_type(device):
    errors = list(T.error_inputs(device))
    assert errors
    for error in errors:
        with pytest.raises(error.error_type, match="padded_transpose: expected a tensor with at most 2 dimensions"):
            torch_pmpp.padded_transpose(error.sample_input.input, *error.sample_input.args)


@on_each_algorithm("padded_transpose", SIZED_DTYPES)
def test_t_samples_of_noncontiguous_inputs(device, dtype, algorithm):
    for sample in samples(T, device, dtype):
        x = sample.noncontiguous().input
        oracle.assert_same_bits(
            torch_pmpp.padded_transpose(x, algorithm=algorithm).detach(), x.detach().t().contiguous()
        )


@on_each_algorithm("tiled_matmul", MATMUL_DTYPES)
def test_mm_samples_of_noncontiguous_inputs(device, dtype, algorithm):
    for sample in samples(MM, device, dtype):
        moved = sample.noncontiguous()
        a, b = moved.input, moved.args[0]
        result = torch_pmpp.tiled_matmul(a, b, algorithm=algorithm)
        oracle.assert_product(result, a.detach().resolve_conj(), b.detach().resolve_conj())
