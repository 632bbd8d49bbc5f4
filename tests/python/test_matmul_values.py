"""tiled_matmul: values over dtypes, sizes and strides, against float64 and exact integers."""

import threading

import numpy
import oracle
import pytest
import torch
from support import (
    FLOATING_DTYPES,
    HALF_DTYPES,
    MATMUL_DTYPES,
    edge_shapes,
    on_each_algorithm,
    on_each_device,
)

import torch_pmpp
from benchmarks import cases

OP = "tiled_matmul"

PRIME_SHAPES = [(97, 101, 103), (2, 3, 211), (131, 5, 7), (1, 257, 31), (191, 1, 193)]


def matmul(a, b, algorithm):
    return torch_pmpp.tiled_matmul(a, b, algorithm=algorithm)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_row_dtypes_every_dtype_is_offered(device, dtype, algorithm):
    a = oracle.matrix(3, 4, dtype, device)
    b = oracle.matrix(4, 5, dtype, device)
    result = matmul(a, b, algorithm)
    assert result.dtype == dtype
    oracle.assert_product(result, a, b)


@on_each_device
def test_row_dtypes_auto_and_naive_take_all_eleven(device):
    for dtype in MATMUL_DTYPES:
        assert "naive" in torch_pmpp.algorithms(OP, device, dtype)
        for algorithm in ("auto", "naive"):
            a = oracle.matrix(4, 4, dtype, device)
            oracle.assert_product(matmul(a, a, algorithm), a, a)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_sizes_around_every_tile(device, dtype, algorithm):
    for m, n, k in edge_shapes():
        a = oracle.matrix(m, k, dtype, device)
        b = oracle.matrix(k, n, dtype, device)
        oracle.assert_product(matmul(a, b, algorithm), a, b)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_prime_sizes(device, dtype, algorithm):
    for m, n, k in PRIME_SHAPES:
        a = oracle.matrix(m, k, dtype, device)
        b = oracle.matrix(k, n, dtype, device)
        oracle.assert_product(matmul(a, b, algorithm), a, b)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_row_strides_every_pair_of_layouts(device, dtype, algorithm):
    shapes = [(17, 9, 33), (5, 40, 16), (1, 7, 3), (32, 1, 8)]
    count = 0
    for a_layout in oracle.LAYOUTS:
        for b_layout in oracle.LAYOUTS:
            m, n, k = shapes[count % len(shapes)]
            count += 1
            a = oracle.matrix(m, k, dtype, device, a_layout)
            b = oracle.matrix(k, n, dtype, device, b_layout)
            oracle.assert_product(matmul(a, b, algorithm), a, b)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_row_strides_wide_tiles_in_the_plain_layouts(device, dtype, algorithm):
    for a_layout in ("row_major", "column_major", "sliced", "column_major_odd_base"):
        for b_layout in ("row_major", "column_major", "odd_base", "column_major_sliced"):
            a = oracle.matrix(130, 129, dtype, device, a_layout)
            b = oracle.matrix(129, 66, dtype, device, b_layout)
            oracle.assert_product(matmul(a, b, algorithm), a, b)


def case_list_shapes(device, dtype, algorithm):
    """The entries of the case list that this device multiplies in well under a second."""
    every_shape = {shape for group in cases.MATMUL_GROUPS.values() for shape in group} | {cases.SEED_SHAPE}
    common = dtype in (torch.float32, torch.bfloat16)
    products = {"cpu": (3e7, 3e8), "cuda": (1.2e9, 7e10)}[device][common]
    elements = {"cpu": 2e7, "cuda": 2e8}[device]
    shapes = {(m, n, k) for m, n, k in every_shape if m * n * k <= products and m * k + k * n + m * n <= elements}
    if algorithm == "auto" or device == "cuda":
        shapes.add(cases.SEED_SHAPE)
    return sorted(shapes)


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_case_list_entries(device, dtype, algorithm):
    shapes = case_list_shapes(device, dtype, algorithm)
    assert len(shapes) >= 3
    for m, n, k in shapes:
        a = oracle.plain_matrix(m, k, dtype, device)
        b = oracle.plain_matrix(k, n, dtype, device)
        result = matmul(a, b, algorithm)
        oracle.assert_product(result, a, b, on_device=True)


@on_each_algorithm(OP, (torch.float32, torch.bfloat16, torch.float64, torch.int8))
@pytest.mark.parametrize("layout", cases.MATMUL_LAYOUTS)
def test_case_list_layouts(device, dtype, algorithm, layout):
    for m, n, k in ((128, 128, 128), (131, 65, 257), (16, 300, 129)):
        a = oracle.matrix(m, k, dtype, device, oracle.CASE_LAYOUTS[layout[0]])
        b = oracle.matrix(k, n, dtype, device, oracle.CASE_LAYOUTS[layout[1]])
        oracle.assert_product(matmul(a, b, algorithm), a, b)


@on_each_algorithm(OP, FLOATING_DTYPES)
def test_large_and_small_magnitudes(device, dtype, algorithm):
    """Operands near both ends of the exponent range, with products that are representable."""
    largest = torch.finfo(dtype).max
    small = torch.finfo(dtype).smallest_normal
    for a_scale, b_scale in ((largest / 64, 1 / 64), (small, 8.0), (largest / 4, small * 4)):
        a = oracle.matrix(19, 24, dtype, device)
        b = oracle.matrix(24, 17, dtype, device)
        a.mul_(a_scale).clamp_(-largest, largest) if not dtype.is_complex else a.mul_(a_scale)
        b.mul_(b_scale)
        result = matmul(a, b, algorithm)
        exact = oracle.reference(a, b)
        # Products below the normal range round absolutely: one step of the subnormal numbers for each.
        underflow = 24 * small * torch.finfo(dtype).eps * 4
        bound = oracle.error_bound(oracle.host(a), oracle.host(b), exact) + underflow
        assert ((oracle.host(result).to(exact.dtype) - exact).abs() <= bound).all()


@on_each_algorithm(OP, FLOATING_DTYPES)
def test_error_is_of_the_order_of_torch_mm(device, dtype, algorithm):
    """Beside the bound: the error in the Frobenius norm is at most a few times that of torch.mm.

    One serial accumulator has about 0.2 * sqrt(K) units in the last place on normal data, a blocked
    sum has fewer: a factor of 8 parts these from a sum in a narrower type or a lost term.
    """
    m, n, k = 48, 56, 700
    a = oracle.matrix(m, k, dtype, device)
    b = oracle.matrix(k, n, dtype, device)
    # float64 itself is judged here as well, by a wider type still.
    wide = numpy.clongdouble if dtype.is_complex else numpy.longdouble
    cast = torch.complex128 if dtype.is_complex else torch.float64

    def widened(x):
        return oracle.host(x).to(cast).numpy().astype(wide)

    exact = widened(a) @ widened(b)
    size = float(numpy.linalg.norm(exact.astype(numpy.complex128)))

    def error(result):
        return float(numpy.linalg.norm((widened(result) - exact).astype(numpy.complex128))) / size

    ours, theirs = error(matmul(a, b, algorithm)), error(torch.mm(a, b))
    limit = 1.1 if dtype in HALF_DTYPES else 8
    assert ours <= limit * theirs + oracle.unit_roundoff(oracle.accumulator(dtype))


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_row_result_is_fresh_and_row_major(device, dtype, algorithm):
    for m, n, k in ((5, 7, 3), (1, 7, 3), (7, 1, 3), (1, 1, 1), (0, 4, 3), (4, 0, 3), (0, 0, 0), (4, 5, 0)):
        for layout in ("row_major", "column_major", "stepped"):
            a = oracle.matrix(m, k, dtype, device, layout)
            b = oracle.matrix(k, n, dtype, device, layout)
            result = matmul(a, b, algorithm)
            assert result.shape == (m, n)
            oracle.assert_fresh_row_major(result, a, b)
            assert result.stride() == torch.mm(torch.empty(m, k), torch.empty(k, n)).stride()


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_operands_are_left_alone(device, dtype, algorithm):
    a = oracle.matrix(33, 17, dtype, device, "sliced")
    b = oracle.matrix(17, 9, dtype, device, "column_major")
    a_before, b_before = a.clone(), b.clone()
    versions = a._version, b._version
    matmul(a, b, algorithm)
    oracle.assert_same_bits(a, a_before)
    oracle.assert_same_bits(b, b_before)
    assert (a._version, b._version) == versions


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_same_tensor_as_both_operands(device, dtype, algorithm):
    a = oracle.matrix(35, 35, dtype, device)
    oracle.assert_product(matmul(a, a, algorithm), a, a)
    oracle.assert_product(matmul(a, a.t(), algorithm), a, a.t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_products_in_threads_with_small_stacks(dtype):
    """A program may give its threads as little as 256 KiB: the packed panels lie elsewhere."""
    a = torch.ones(300, 300, dtype=dtype)
    results = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(torch_pmpp.tiled_matmul(a, a)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert torch.equal(results[0], torch.full((300, 300), 300, dtype=dtype))
