"""padded_transpose: every refused call, by type and text, and what is not registered."""

import re

import pytest
import torch
from support import needs_cuda, on_each_device
from test_matmul_errors import empty, raises

import torch_pmpp

TRANSPOSE = torch.ops.pmpp.padded_transpose
ALGORITHMS_TEXT = (
    r"unknown algorithm 'fast'; expected one of auto, naive, shared, padded, padded16, vectorized(, \w+)*, "
    r"blocked(, \w+)*"
)


def still_works(device):
    x = torch.randn(5, 7, device=device)
    assert torch.equal(TRANSPOSE(x), x.t())


@on_each_device
def test_row_transpose_ranks_at_most_two_dimensions(device):
    for shape in ((2, 3, 4), (1, 1, 1, 1), (0, 2, 3), (2, 3, 4, 5)):
        x = empty(*shape, device=device)
        got = f"x has {len(shape)} (shape {list(shape)})"
        text = re.escape(f"padded_transpose: expected a tensor with at most 2 dimensions, but {got}")
        raises(RuntimeError, text, TRANSPOSE, x)
        raises(RuntimeError, text, TRANSPOSE, x, out=empty(1, device=device))
        raises(RuntimeError, text, torch_pmpp.padded_transpose, x)
    still_works(device)


@on_each_device
def test_row_transpose_algorithm_unknown(device):
    x = empty(2, 3, device=device)
    for name in ("fast", "", "Padded"):
        text = "padded_transpose: " + ALGORITHMS_TEXT.replace("'fast'", re.escape(f"'{name}'"))
        raises(ValueError, text, TRANSPOSE, x, algorithm=name)
        raises(ValueError, text, TRANSPOSE, x, algorithm=name, out=empty(3, 2, device=device))
    still_works(device)


@on_each_device
def test_row_transpose_algorithm_of_another_device_says_which_there_are(device):
    x = empty(2, 3, device=device)
    offered = torch_pmpp.algorithms("padded_transpose", device, torch.float32)
    foreign = "padded" if device == "cpu" else "blocked"
    assert foreign not in offered
    available = ", ".join(offered)
    text = f"padded_transpose: algorithm '{foreign}' is not available for Float on {device}(:0)?; "
    text += f"available: auto, {available}"
    raises(NotImplementedError, text, TRANSPOSE, x, algorithm=foreign)
    still_works(device)


@on_each_device
def test_row_transpose_out_dtype_and_device(device):
    x = empty(2, 3, device=device)
    wrong = empty(3, 2, dtype=torch.float64, device=device)
    raises(RuntimeError, "padded_transpose: expected out to have dtype Float, but got Double", TRANSPOSE, x, out=wrong)
    wrong = empty(3, 2, dtype=torch.int32, device=device)  # the same size is not the same dtype
    raises(RuntimeError, "padded_transpose: expected out to have dtype Float, but got Int", TRANSPOSE, x, out=wrong)
    text = (
        f"padded_transpose: expected all tensors to be on the same device, but x is on {device}(:0)? and out is on meta"
    )
    raises(RuntimeError, text, TRANSPOSE, x, out=empty(3, 2, device="meta"))
    still_works(device)


@needs_cuda
@pytest.mark.cuda
def test_row_transpose_out_on_another_device():
    text = "padded_transpose: expected all tensors to be on the same device, but x is on {} and out is on {}"
    raises(RuntimeError, text.format("cpu", "cuda:0"), TRANSPOSE, empty(2, 3), out=empty(3, 2, device="cuda"))
    raises(RuntimeError, text.format("cuda:0", "cpu"), TRANSPOSE, empty(2, 3, device="cuda"), out=empty(3, 2))
    still_works("cuda")


@on_each_device
def test_row_transpose_order_of_checks(device):
    x, cube = empty(2, 3, device=device), empty(2, 3, 4, device=device)
    wrong = empty(3, 2, dtype=torch.float64, device="meta")
    raises(RuntimeError, ".*at most 2 dimensions.*", TRANSPOSE, cube, algorithm="fast")
    raises(
        ValueError,
        ".*" + ALGORITHMS_TEXT,
        TRANSPOSE,
        x,
        algorithm="fast",
        out=empty(3, 2, dtype=torch.float64, device=device),
    )
    raises(RuntimeError, ".*expected out to have dtype.*", TRANSPOSE, x, out=wrong)
    still_works(device)


@on_each_device
def test_row_transpose_order_of_checks_empty_results_return_before_the_algorithm(device):
    for shape in ((0, 3), (3, 0), (0, 0), (0,)):
        for algorithm in ("auto", "naive", "padded", "blocked", "fast"):
            assert TRANSPOSE(empty(*shape, device=device), algorithm=algorithm).shape == shape[::-1]


@on_each_device
def test_row_transpose_quantized_sparse_and_nested_are_not_registered(device):
    dense = torch.eye(3, device=device)
    unregistered = [dense.to_sparse(), dense.to_sparse_csr(), torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)]
    unregistered.append(torch.nested.nested_tensor([dense, dense]))
    if device == "cpu":
        unregistered.append(dense.to_mkldnn())
    for x in unregistered:
        with pytest.raises(
            NotImplementedError, match="Could not run 'pmpp::padded_transpose' with arguments from the '"
        ):
            TRANSPOSE(x)
    with pytest.raises(NotImplementedError):
        TRANSPOSE(torch.nested.nested_tensor([dense, dense], layout=torch.jagged))
    still_works(device)


@on_each_device
def test_meta_tensors_get_the_same_errors(device):
    wrong = {
        "ndim": lambda d: TRANSPOSE(empty(2, 3, 4, device=d)),
        "algorithm": lambda d: TRANSPOSE(empty(2, 3, device=d), algorithm="fast"),
        "out": lambda d: TRANSPOSE(empty(2, 3, device=d), out=empty(3, 2, dtype=torch.int32, device=d)),
    }
    for name, call in wrong.items():
        messages = []
        for where in (device, "meta"):
            with pytest.raises((RuntimeError, ValueError)) as caught:  # NotImplementedError is a RuntimeError
                call(where)
            messages.append((type(caught.value), str(caught.value).splitlines()[0]))
        assert messages[0] == messages[1], name
