"""tiled_matmul: every refused call, by type and text; the order of the checks; what is not registered."""

import re

import oracle
import pytest
import torch
from support import HAS_CUDA, NO_CUDA, needs_cuda, on_each_device

import torch_pmpp

MATMUL = torch.ops.pmpp.tiled_matmul
ALGORITHMS_TEXT = (
    r"unknown algorithm 'fast'; expected one of auto, naive, tiled, tiled_dynamic(, \w+)*, blocked(, \w+)*"
)
UNSUPPORTED = {
    torch.bool: "Bool",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
    torch.complex32: "ComplexHalf",
    torch.float8_e4m3fn: "Float8_e4m3fn",
    torch.float8_e5m2: "Float8_e5m2",
}


def empty(*shape, **options):
    return torch.empty(shape, **options)


def raises(kind, text, call, *args, **kwargs):
    """The call fails with exactly this type (ValueError for ValueError's sake) and a message that is this pattern."""
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert type(caught.value) is kind, repr(caught.value)
    first_line = str(caught.value).splitlines()[0]
    assert re.fullmatch(text, first_line), f"{first_line!r} does not read as {text!r}"


def still_works(device):
    a, b = oracle.matrix(5, 6, torch.float32, device), oracle.matrix(6, 7, torch.float32, device)
    oracle.assert_product(MATMUL(a, b), a, b)


@on_each_device
def test_row_ranks_shapes_only_matrices(device):
    m, v, s, c = (empty(*shape, device=device) for shape in ((3, 3), (3,), (), (2, 3, 4)))
    text = r"tiled_matmul: {} must be a matrix, but it has {} dimension\(s\) \(shape \[{}\]\)"
    for bad, dims, shape in ((v, 1, "3"), (s, 0, ""), (c, 3, "2, 3, 4")):
        raises(RuntimeError, text.format("a", dims, shape), MATMUL, bad, m)
        raises(RuntimeError, text.format("b", dims, shape), MATMUL, m, bad)
        raises(RuntimeError, text.format("a", dims, shape), MATMUL, bad, m, out=empty(3, 3, device=device))
    raises(RuntimeError, text.format("a", 3, "2, 3, 4"), MATMUL, c, v)
    still_works(device)


@on_each_device
def test_row_ranks_shapes_inner_sizes_agree(device):
    text = r"tiled_matmul: a and b shapes cannot be multiplied \({}x{} and {}x{}\)"
    for a, b in (((2, 3), (4, 5)), ((0, 3), (4, 0)), ((2, 0), (1, 5)), ((3, 3), (1, 3))):
        raises(RuntimeError, text.format(*a, *b), MATMUL, empty(*a, device=device), empty(*b, device=device))
        with pytest.raises(RuntimeError, match=text.format(*a, *b).removeprefix("tiled_matmul: a and b ")):
            torch.mm(empty(*a, device=device), empty(*b, device=device))
    still_works(device)


def test_row_devices_meta_beside_cpu():
    text = "tiled_matmul: expected all tensors to be on the same device, but a is on {} and b is on {}"
    here, there = empty(2, 3), empty(3, 4, device="meta")
    raises(RuntimeError, text.format("cpu", "meta"), MATMUL, here, there)
    raises(RuntimeError, text.format("meta", "cpu"), MATMUL, there.t().contiguous().t()[:, :2], empty(2, 3))
    text = "tiled_matmul: expected all tensors to be on the same device, but a is on {} and out is on {}"
    raises(RuntimeError, text.format("cpu", "meta"), MATMUL, here, empty(3, 4), out=empty(2, 4, device="meta"))
    raises(RuntimeError, text.format("meta", "cpu"), MATMUL, there, empty(4, 2, device="meta"), out=empty(3, 2))
    still_works("cpu")


@needs_cuda
@pytest.mark.cuda
def test_row_devices_cuda_beside_cpu():
    text = "tiled_matmul: expected all tensors to be on the same device, but a is on {} and b is on {}"
    here, there = empty(2, 3), empty(3, 4, device="cuda")
    raises(RuntimeError, text.format("cpu", "cuda:0"), MATMUL, here, there)
    raises(RuntimeError, text.format("cuda:0", "cpu"), MATMUL, there.t(), here.t())
    raises(RuntimeError, text.format("cuda:0", "cpu"), MATMUL, empty(2, 0, device="cuda"), empty(0, 2))
    text = "tiled_matmul: expected all tensors to be on the same device, but a is on {} and out is on {}"
    raises(RuntimeError, text.format("cpu", "cuda:0"), MATMUL, here, here.t(), out=empty(2, 2, device="cuda"))
    raises(RuntimeError, text.format("cuda:0", "cpu"), MATMUL, there, there.t(), out=empty(3, 3))
    still_works("cuda")
    still_works("cpu")


@pytest.mark.cuda
@pytest.mark.skipif(
    not HAS_CUDA or torch.cuda.device_count() < 2, reason="needs two CUDA devices" if HAS_CUDA else NO_CUDA
)
def test_row_devices_two_gpus():
    a, b = empty(2, 3, device="cuda:0"), empty(3, 4, device="cuda:1")
    text = "tiled_matmul: expected all tensors to be on the same device, but a is on cuda:0 and b is on cuda:1"
    raises(RuntimeError, text, MATMUL, a, b)


@on_each_device
def test_row_dtypes_must_agree(device):
    a, b = empty(2, 3, device=device), empty(3, 4, dtype=torch.float64, device=device)
    text = "tiled_matmul: expected a and b to have the same dtype, but got a {} and b {}"
    raises(RuntimeError, text.format("Float", "Double"), MATMUL, a, b)
    raises(RuntimeError, text.format("Double", "Float"), MATMUL, b.t(), a.t())
    raises(RuntimeError, text.format("Float", "Half"), MATMUL, a, b.half())
    raises(RuntimeError, text.format("Long", "Int"), MATMUL, a.long(), b.int())
    raises(RuntimeError, text.format("Float", "Bool"), MATMUL, a, b.bool())
    with pytest.raises(RuntimeError):
        torch.mm(a, b)
    still_works(device)


@on_each_device
@pytest.mark.parametrize("dtype", UNSUPPORTED, ids=UNSUPPORTED.values())
def test_row_dtypes_others_are_not_implemented(device, dtype):
    a = torch.zeros(2 * 2 * dtype.itemsize, dtype=torch.uint8, device=device).view(dtype).view(2, 2)
    raises(NotImplementedError, f"\"tiled_matmul\" not implemented for '{UNSUPPORTED[dtype]}'", MATMUL, a, a)
    raises(
        NotImplementedError, f"\"tiled_matmul\" not implemented for '{UNSUPPORTED[dtype]}'", MATMUL, a, a, out=a.clone()
    )
    still_works(device)


@on_each_device
def test_algorithm_unknown(device):
    a = empty(2, 2, device=device)
    for name in ("fast", "", "Auto", "naive "):
        text = "tiled_matmul: " + ALGORITHMS_TEXT.replace("'fast'", re.escape(f"'{name}'"))
        raises(ValueError, text, MATMUL, a, a, algorithm=name)
        raises(ValueError, text, MATMUL, a, a, algorithm=name, out=a.clone())
        raises(ValueError, text, torch_pmpp.tiled_matmul, a, a, algorithm=name)
    still_works(device)


@on_each_device
def test_algorithm_of_another_device_says_which_there_are(device):
    a = empty(2, 2, device=device)
    offered = torch_pmpp.algorithms("tiled_matmul", device, torch.float32)
    foreign = "tiled" if device == "cpu" else "blocked"
    assert foreign not in offered
    available = ", ".join(offered)
    text = (
        f"tiled_matmul: algorithm '{foreign}' is not available for Float on {device}(:0)?; available: auto, {available}"
    )
    raises(NotImplementedError, text, MATMUL, a, a, algorithm=foreign)
    raises(NotImplementedError, text, MATMUL, a, a, algorithm=foreign, out=a.clone())
    still_works(device)


@on_each_device
def test_row_order_of_checks_the_first_wrong_thing_is_named(device):
    """Each call is wrong in two neighbouring ways: ndim, shape, device, dtype, algorithm, out."""
    a, b, v = empty(2, 3, device=device), empty(3, 4, device=device), empty(3, device=device)
    elsewhere = {"device": "meta"}
    raises(RuntimeError, "tiled_matmul: a must be a matrix.*", MATMUL, v, a)  # ndim before shape
    raises(RuntimeError, "tiled_matmul: b must be a matrix.*", MATMUL, a, empty(3, dtype=torch.float64, **elsewhere))
    raises(RuntimeError, "tiled_matmul: a and b shapes.*", MATMUL, a, empty(4, 5, **elsewhere))  # shape before device
    raises(RuntimeError, "tiled_matmul: a and b shapes.*", MATMUL, a, empty(4, 5, device=device, dtype=torch.float64))
    with pytest.raises(RuntimeError):
        torch.mm(a, empty(4, 5, device=device, dtype=torch.float64))
    # device before dtype
    raises(RuntimeError, ".*same device, but a is on.*", MATMUL, a, empty(3, 4, dtype=torch.float64, **elsewhere))
    # dtypes that differ before one that is not supported, both before the algorithm
    raises(RuntimeError, ".*same dtype, but got a Float and b Bool", MATMUL, a, b.bool())
    raises(RuntimeError, ".*same dtype, but got a Float and b Double", MATMUL, a, b.double(), algorithm="fast")
    raises(NotImplementedError, ".*not implemented for 'Bool'", MATMUL, a.bool(), b.bool(), algorithm="fast")
    # algorithm before out
    raises(
        ValueError,
        ".*" + ALGORITHMS_TEXT,
        MATMUL,
        a,
        b,
        algorithm="fast",
        out=empty(2, 4, device=device, dtype=torch.float64),
    )
    # within out: dtype, device, overlap
    wrong = empty(2, 4, dtype=torch.float64, **elsewhere)
    raises(RuntimeError, "tiled_matmul: expected out to have dtype Float, but got Double", MATMUL, a, b, out=wrong)
    still_works(device)


@on_each_device
def test_row_order_of_checks_empty_results_return_before_dtype_and_algorithm(device):
    """No dtype and no algorithm is looked at: mixed dtypes, unsupported dtypes and unknown algorithms all pass."""
    for a_dtype, b_dtype in (
        (torch.float32, torch.float64),
        (torch.bool, torch.bool),
        (torch.uint16, torch.float32),
        (torch.complex32, torch.int8),
        (torch.float8_e4m3fn, torch.float8_e4m3fn),
    ):
        for m, n, k in ((0, 4, 3), (3, 0, 4), (0, 0, 5), (0, 4, 0), (3, 4, 0), (0, 0, 0)):
            a = torch.empty(m, k, dtype=a_dtype, device=device)
            b = torch.empty(k, n, dtype=b_dtype, device=device)
            for algorithm in ("auto", "naive", "tiled", "blocked", "fast"):
                result = MATMUL(a, b, algorithm=algorithm)
                assert result.shape == (m, n)
                assert result.dtype == a_dtype
                assert result.device == a.device
                oracle.assert_fresh_row_major(result, a, b)
                assert not result.view(torch.uint8).any()  # zeros for K = 0
                out = torch.ones(m * n * a_dtype.itemsize, dtype=torch.uint8, device=device).view(a_dtype).view(m, n)
                assert MATMUL(a, b, algorithm=algorithm, out=out) is out
                assert not out.view(torch.uint8).any()


@on_each_device
def test_row_order_of_checks_empty_results_still_check_shape_device_and_out(device, capfd, recwarn):
    a, b = empty(3, 0, device=device), empty(0, 4, device=device)
    raises(RuntimeError, "tiled_matmul: a and b shapes.*", MATMUL, a, empty(1, 4, device=device))
    raises(RuntimeError, ".*same device, but a is on.* and b is on meta", MATMUL, a, empty(0, 4, device="meta"))
    wrong = empty(3, 4, dtype=torch.float64, device=device)
    raises(RuntimeError, "tiled_matmul: expected out to have dtype Float, but got Double", MATMUL, a, b, out=wrong)
    raises(
        RuntimeError, ".*same device, but a is on.* and out is on meta", MATMUL, a, b, out=empty(3, 4, device="meta")
    )
    shared = empty(1, 4, device=device).expand(3, 4)
    raises(RuntimeError, "tiled_matmul: out overlaps itself in memory.*", MATMUL, a, b, out=shared)
    out = torch.full((2, 2), float("nan"), device=device)
    MATMUL(a, b, out=out)
    assert out.shape == (3, 4)
    assert not out.any()
    # Calls of torch.ops print a warning from C++ in PyTorch 2.11, and give it to Python's warnings in 2.15.
    warned = [capfd.readouterr().err, *(str(each.message) for each in recwarn)]
    assert any("was resized since it had shape [2, 2]" in text for text in warned)


@on_each_device
def test_row_sparse_quantized_nested_are_not_registered(device):
    dense = torch.eye(3, device=device)
    unregistered = [dense.to_sparse(), dense.to_sparse_csr(), torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)]
    unregistered.append(torch.nested.nested_tensor([dense, dense]))
    if device == "cpu":
        unregistered.append(dense.to_mkldnn())
    for x in unregistered:
        for pair in ((x, x), (x, dense), (dense, x)):
            with pytest.raises(
                NotImplementedError, match="Could not run 'pmpp::tiled_matmul' with arguments from the '"
            ):
                MATMUL(*pair)
    jagged = torch.nested.nested_tensor([dense, dense], layout=torch.jagged)
    with pytest.raises(NotImplementedError):
        MATMUL(jagged, jagged)
    still_works(device)


@on_each_device
def test_schema_misuse_is_refused_by_the_dispatcher(device):
    a = empty(2, 2, device=device)
    for call in (
        lambda: MATMUL(a),
        lambda: MATMUL(a, a, "naive"),
        lambda: MATMUL(a, 2.0),
        lambda: MATMUL(a, a, algorithm=1),
    ):
        with pytest.raises((RuntimeError, TypeError)):
            call()
    still_works(device)


@on_each_device
def test_meta_tensors_get_the_same_errors(device):
    """What fails on the device fails in the same words without data."""
    wrong = {
        "ndim": lambda d: MATMUL(empty(3, device=d), empty(3, 3, device=d)),
        "shape": lambda d: MATMUL(empty(2, 3, device=d), empty(4, 5, device=d)),
        "dtype": lambda d: MATMUL(empty(2, 3, device=d), empty(3, 5, dtype=torch.float64, device=d)),
        "unsupported": lambda d: MATMUL(
            empty(2, 3, dtype=torch.bool, device=d), empty(3, 5, dtype=torch.bool, device=d)
        ),
        "algorithm": lambda d: MATMUL(empty(2, 3, device=d), empty(3, 5, device=d), algorithm="fast"),
        "out": lambda d: MATMUL(
            empty(2, 3, device=d), empty(3, 5, device=d), out=empty(2, 5, dtype=torch.int32, device=d)
        ),
    }
    for name, call in wrong.items():
        messages = []
        for where in (device, "meta"):
            with pytest.raises((RuntimeError, ValueError)) as caught:  # NotImplementedError is a RuntimeError
                call(where)
            messages.append((type(caught.value), str(caught.value).splitlines()[0]))
        assert messages[0] == messages[1], name
