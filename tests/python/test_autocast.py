"""Autocast: products are cast as torch.mm casts them, transposes never are."""

import pytest
import torch
from support import COMPLEX_DTYPES, INTEGER_DTYPES, REAL_DTYPES, on_each_device

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
LOW = (torch.bfloat16, torch.float16)


def matrices(device, first=torch.float32, second=None):
    a = (torch.randn(9, 7, device=device) * 4).to(first)
    return a, (torch.randn(7, 5, device=device) * 4).to(second or first)


def outcome(op, a, b):
    """The dtype of the result, or the kind of error."""
    try:
        return op(a, b).dtype
    except RuntimeError as error:
        return type(error)


@on_each_device
@pytest.mark.parametrize("low", LOW)
def test_row_autocast_every_pair_of_dtypes_as_mm(device, low):
    dtypes = REAL_DTYPES + COMPLEX_DTYPES + INTEGER_DTYPES
    with torch.autocast(device, dtype=low):
        for first in dtypes:
            for second in dtypes:
                a, b = matrices(device, first, second)
                ours, theirs = outcome(MATMUL, a, b), outcome(torch.mm, a, b)
                if device == "cuda" and first == second and first in INTEGER_DTYPES:
                    assert ours == first  # torch.mm has no integers there
                elif isinstance(theirs, type):
                    assert isinstance(ours, type)
                    assert issubclass(ours, RuntimeError)
                else:
                    assert ours == theirs, (first, second)
    assert MATMUL(*matrices(device)).dtype == torch.float32


@on_each_device
@pytest.mark.parametrize("low", LOW)
def test_row_autocast_value_is_the_product_of_the_cast_operands(device, low):
    a, b = matrices(device)
    with torch.autocast(device, dtype=low):
        result = MATMUL(a, b)
        batched = torch.func.vmap(MATMUL)(a[None], b[None])
    assert result.dtype == batched.dtype == low
    assert torch.equal(result, MATMUL(a.to(low), b.to(low)))
    assert torch.equal(batched[0], result)


@on_each_device
def test_row_autocast_float64_complex_and_integers_stay(device):
    for dtype in (torch.float64, *COMPLEX_DTYPES, *INTEGER_DTYPES):
        a, b = matrices(device, dtype)
        expected = MATMUL(a, b)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert torch.equal(MATMUL(a, b), expected)


@on_each_device
def test_row_autocast_nested_and_disabled_inside(device):
    a, b = matrices(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert MATMUL(a, b).dtype == torch.bfloat16
        with torch.autocast(device, enabled=False):
            assert MATMUL(a, b).dtype == torch.float32
            with torch.autocast(device, dtype=torch.float16):
                assert MATMUL(a, b).dtype == torch.float16
            assert MATMUL(a, b).dtype == torch.float32
        assert MATMUL(a, b).dtype == torch.bfloat16
        with torch.autocast("cuda" if device == "cpu" else "cpu", enabled=False):
            assert MATMUL(a, b).dtype == torch.bfloat16
    assert MATMUL(a, b).dtype == torch.float32


@on_each_device
def test_row_autocast_out_has_no_rule_as_in_mm(device):
    a, b = matrices(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        for op in (MATMUL, torch.mm):
            out = torch.empty(9, 5, device=device)
            assert op(a, b, out=out).dtype == torch.float32
            with pytest.raises(RuntimeError):
                op(a, b, out=torch.empty(9, 5, device=device, dtype=torch.bfloat16))


@on_each_device
def test_row_autocast_gradients_have_the_dtype_of_the_leaves(device):
    results = []
    for op in (MATMUL, torch.mm):
        torch.manual_seed(5)
        a, b = (x.requires_grad_() for x in matrices(device))
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden = op(a, b)
            loss = op(hidden.relu(), b.t()).float().pow(2).mean()
        assert hidden.dtype == torch.bfloat16
        loss.backward()
        assert a.grad.dtype == b.grad.dtype == torch.float32
        results.append((a.grad, b.grad))
    # Two roundings to bfloat16 on the way, whose order of summation differs between the two libraries.
    for x, y in zip(*results, strict=True):
        assert float((x - y).norm() / y.norm()) < 2e-2


@on_each_device
def test_row_autocast_casts_a_weight_once(device):
    """The cache of autocast holds the cast of a leaf: the same tensor is saved by both products."""
    weight = torch.randn(7, 7, device=device, requires_grad=True)
    x = torch.randn(3, 7, device=device, requires_grad=True)
    saved = []
    with (
        torch.autocast(device, dtype=torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t),
    ):
        MATMUL(x, weight)
        MATMUL(x, weight)
    weights = [t for t in saved if t.shape == (7, 7) and t.dtype == torch.bfloat16]
    assert len(weights) == 2
    assert weights[0].data_ptr() == weights[1].data_ptr()


@on_each_device
def test_row_autocast_compiled(device):
    a, b = matrices(device)

    def call(a, b):
        with torch.autocast(device, dtype=torch.bfloat16):
            return MATMUL(a, b)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b), call(a, b))
    torch._dynamo.reset()


@on_each_device
def test_row_transpose_no_autocast_keeps_the_dtype(device):
    with torch.autocast(device, dtype=torch.bfloat16):
        for dtype in (*REAL_DTYPES, *COMPLEX_DTYPES, torch.int8):
            assert TRANSPOSE(torch.ones(3, 4, device=device).to(dtype)).dtype == dtype
