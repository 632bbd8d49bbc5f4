"""tiled_matmul: results that are known to the last bit, special values, poison and repetition."""

import numpy
import oracle
import pytest
import torch
from support import (
    COMPLEX_DTYPES,
    FLOATING_DTYPES,
    HALF_DTYPES,
    INTEGER_DTYPES,
    MATMUL_DTYPES,
    REAL_DTYPES,
    edge_shapes,
    on_each_algorithm,
)

import torch_pmpp

OP = "tiled_matmul"


def matmul(a, b, algorithm):
    return torch_pmpp.tiled_matmul(a, b, algorithm=algorithm)


def exact_float_product(a, b):
    """The product of small whole numbers, exact in float64, rounded once to the dtype (nearest, ties to even)."""
    return oracle.reference(a, b).to(a.dtype)


@on_each_algorithm(OP, FLOATING_DTYPES)
def test_whole_numbers_to_the_last_bit_around_every_tile(device, dtype, algorithm):
    # |sum| <= 2 * 65 * 15 * 15 < 2^24: exact in every accumulator, in any order.
    fill = oracle.whole_numbers(15)
    for m, n, k in edge_shapes():
        a = oracle.matrix(m, k, dtype, device, fill=fill)
        b = oracle.matrix(k, n, dtype, device, fill=fill)
        expected = exact_float_product(a, b)
        oracle.assert_same_bits(oracle.host(matmul(a, b, algorithm)) + 0, expected + 0, oracle.describe(a, b))


@on_each_algorithm(OP, FLOATING_DTYPES)
@pytest.mark.parametrize("k", [255, 970, 4097, 16384, 65537, 104116])
def test_row_accumulation_whole_numbers_at_large_k(device, dtype, algorithm, k):
    """The sums need more bits than a 16-bit type has and fewer than float32: exact inside, rounded once."""
    largest = 12 if k <= 65537 else 9
    assert 2 * k * largest * largest < 2**25
    fill = oracle.whole_numbers(largest)
    for m, n in ((5, 3), (17, 18)) if k < 60000 else ((5, 3),):
        a = oracle.matrix(m, k, dtype, device, "row_major", fill=fill)
        b = oracle.matrix(k, n, dtype, device, "column_major", fill=fill)
        # A bias of one sign makes the sums large, so that most of them do need the rounding.
        a.real.abs_() if dtype.is_complex else a.abs_()
        b[: k // 2] = b[: k // 2].real.abs().to(dtype) if dtype.is_complex else b[: k // 2].abs()
        exact = oracle.reference(a, b)
        assert exact.abs().max() < 2**24
        if dtype == torch.float16:
            # Keep the result finite: a power of two scales exactly.
            a.mul_(2.0**-10)
            exact = exact * 2.0**-10
        expected = exact.to(dtype)
        oracle.assert_same_bits(oracle.host(matmul(a, b, algorithm)) + 0, expected + 0, oracle.describe(a, b))


@on_each_algorithm(OP, HALF_DTYPES)
def test_row_accumulation_sums_beyond_the_half_range_come_back(device, dtype, algorithm):
    """+-32000 at k = 65,537: partial sums leave float16's range, the result does not."""
    k = 65537
    a = torch.full((3, k), 32000.0, dtype=dtype, device=device)
    a[:, k // 2 :] = -32000.0
    a[:, k // 2] = 0
    b = torch.ones((k, 2), dtype=dtype, device=device)
    b[-1] = 0  # one more positive term than negative ones
    step = float(a[0, 0])
    expected = torch.full((3, 2), step * (k // 2 - (k - k // 2 - 2)), dtype=torch.float64)
    assert expected.abs().max() == step
    oracle.assert_same_bits(oracle.host(matmul(a, b, algorithm)), expected.to(dtype))


@on_each_algorithm(OP, HALF_DTYPES)
def test_row_accumulation_rounds_once_to_nearest_even(device, dtype, algorithm):
    """a ties-to-even table: 1 + x for x around half a step, with the tie broken far below the type's precision."""
    eps = torch.finfo(dtype).eps
    terms = torch.tensor(
        [
            [1.0, eps / 2, 0.0],  # a tie: down to even
            [1.0, eps / 2, eps / 128],  # just above: up
            [1.0 + eps, eps / 2, 0.0],  # a tie: up to even
            [1.0 + eps, eps / 2, -eps / 128],  # just below: down
            [-1.0, -eps / 2, -eps / 128],
            [1.0, eps / 4, eps / 4],  # each alone would be lost
        ],
        dtype=torch.float64,
    )
    a = terms.to(dtype).to(device)
    assert torch.equal(oracle.host(a).double(), terms)
    b = torch.ones(3, 4, dtype=dtype, device=device)
    expected = torch.tensor([1.0, 1 + eps, 1 + 2 * eps, 1 + eps, -1 - eps, 1.0], dtype=torch.float64)
    result = oracle.host(matmul(a, b, algorithm)).double()
    assert torch.equal(result, expected[:, None].expand(6, 4))


@on_each_algorithm(OP, HALF_DTYPES)
def test_row_accumulation_results_overflow_to_infinity_and_reach_subnormals(device, dtype, algorithm):
    info = torch.finfo(dtype)
    largest, step = info.max, info.smallest_normal * info.eps
    a = torch.tensor(
        [[largest, largest], [-largest, -largest], [step, step], [largest, -largest]], dtype=dtype, device=device
    )
    b = torch.ones(2, 3, dtype=dtype, device=device)
    result = oracle.host(matmul(a, b, algorithm)).double()
    if dtype == torch.float16:  # in bfloat16 the sum 2 * max leaves float32's range as well: infinity too
        assert 2 * largest < torch.finfo(torch.float32).max
    expected = torch.tensor([float("inf"), float("-inf"), 2 * step, 0.0], dtype=torch.float64)
    assert torch.equal(result, expected[:, None].expand(4, 3))


@on_each_algorithm(OP, INTEGER_DTYPES)
def test_row_dtypes_integers_wrap_around(device, dtype, algorithm):
    for m, n, k in [(1, 1, 1), (3, 4, 1000), (33, 31, 257), (2, 2, 65537)]:
        a = oracle.matrix(m, k, dtype, device)
        b = oracle.matrix(k, n, dtype, device, "column_major")
        oracle.assert_product(matmul(a, b, algorithm), a, b)


@on_each_algorithm(OP, INTEGER_DTYPES)
def test_row_dtypes_integers_at_the_ends_of_their_range(device, dtype, algorithm):
    """Against Python's unbounded integers, reduced modulo 2^bits by hand."""
    info = torch.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, -1 if info.min else 3]
    rows = [[ends[(i + step * j) % len(ends)] for j in range(len(ends))] for i, step in ((0, 1), (1, 3), (2, 5))]
    columns = [[ends[(3 * i + j) % len(ends)] for j in range(4)] for i in range(len(ends))]
    expected = []
    for row in rows:
        expected.append([])
        for j in range(4):
            total = sum(x * columns[i][j] for i, x in enumerate(row)) % (1 << info.bits)
            expected[-1].append(total - (1 << info.bits) if total > info.max else total)
    a = torch.tensor(rows, dtype=dtype, device=device)
    b = torch.tensor(columns, dtype=dtype, device=device)
    assert oracle.host(matmul(a, b, algorithm)).tolist() == expected


def test_the_exact_oracle_itself_agrees_with_python_and_numpy():
    a = torch.full((1, 3), 2**62 + 7, dtype=torch.int64)
    total = 3 * (2**62 + 7) ** 2 % 2**64
    assert int(oracle.exact_integer_product(a, a.t())) == int(numpy.uint64(total).astype(numpy.int64))
    b = torch.full((1, 2), -128, dtype=torch.int8)
    assert int(oracle.exact_integer_product(b, b.t())) == 0
    for dtype in INTEGER_DTYPES:
        a, b = oracle.matrix(9, 70, dtype), oracle.matrix(70, 8, dtype)
        words = a.long().numpy() @ b.long().numpy()  # NumPy's integers wrap around
        assert torch.equal(oracle.exact_integer_product(a, b), torch.from_numpy(words).to(dtype))


# Places on both sides of the edges of tiles of 8, 16 and 32 in a 37 x 35 matrix.
PLACES = [(0, 0), (7, 8), (8, 7), (15, 16), (16, 31), (31, 15), (32, 32), (36, 34), (0, 34), (36, 0)]
SPECIALS = [float("nan"), float("inf"), float("-inf")]


def same_class_and_values(result, expected):
    """Equal as IEEE arithmetic sees it: NaN where NaN, the same infinity where infinite, finite elsewhere."""
    result = result.to(expected.dtype)
    return (
        torch.equal(result.isnan(), expected.isnan())
        and torch.equal(result.isinf(), expected.isinf())
        and torch.equal(result[expected.isinf()], expected[expected.isinf()])
        and torch.equal(result[expected.isfinite()], expected[expected.isfinite()])
    )


@on_each_algorithm(OP, REAL_DTYPES)
def test_row_nan_inf_one_special_value_reaches_exactly_its_outputs(device, dtype, algorithm):
    m, k, n = 37, 35, 33
    fill = oracle.whole_numbers(2)  # with zeros: 0 * inf is NaN
    for layout in ("row_major", "column_major", "sliced"):
        a = oracle.matrix(m, k, dtype, device, layout, fill=fill)
        b = oracle.matrix(k, n, dtype, device, layout, fill=fill)
        for row, column in PLACES:
            for special in SPECIALS:
                spoiled = a.clone()
                spoiled[row, column] = special
                result = oracle.host(matmul(spoiled, b, algorithm))
                assert same_class_and_values(result, oracle.reference(spoiled, b)), (special, "a", row, column)
                row_b, column_b = min(column, k - 1), min(row, n - 1)
                spoiled = b.clone()
                spoiled[row_b, column_b] = special
                result = oracle.host(matmul(a, spoiled, algorithm))
                assert same_class_and_values(result, oracle.reference(a, spoiled)), (special, "b", row_b, column_b)


@on_each_algorithm(OP, COMPLEX_DTYPES)
def test_row_nan_inf_in_complex_numbers_stay_in_their_row_or_column(device, dtype, algorithm):
    m, k, n = 37, 35, 33
    for special in (
        complex(float("nan"), 1),
        complex(1, float("nan")),
        complex(float("inf"), 0),
        complex(0, float("-inf")),
    ):
        for row, column in PLACES:
            a = oracle.matrix(m, k, dtype, device)
            b = oracle.matrix(k, n, dtype, device)
            a[row, column] = special
            finite = oracle.host(matmul(a, b, algorithm)).isfinite()
            expected = torch.ones(m, n, dtype=torch.bool)
            expected[row] = False
            assert torch.equal(finite, expected)
            a = oracle.matrix(m, k, dtype, device)
            b[column, min(row, n - 1)] = special
            finite = oracle.host(matmul(a, b, algorithm)).isfinite()
            expected = torch.ones(m, n, dtype=torch.bool)
            expected[:, min(row, n - 1)] = False
            assert torch.equal(finite, expected)


@on_each_algorithm(OP, REAL_DTYPES)
def test_row_nan_inf_infinities_of_both_signs_make_nan(device, dtype, algorithm):
    a = torch.ones(9, 40, dtype=dtype, device=device)
    a[4, 1], a[4, 38] = float("inf"), float("-inf")
    a[5, 39] = float("-inf")
    b = torch.ones(40, 9, dtype=dtype, device=device)
    result = oracle.host(matmul(a, b, algorithm))
    assert same_class_and_values(result, oracle.reference(a, b))


@on_each_algorithm(OP, REAL_DTYPES)
def test_row_nan_inf_everywhere_in_the_ragged_tail_beside_the_matrix(device, dtype, algorithm):
    """The storage around a, b and out is NaN (oracle.matrix, GuardedResult): padding must never leak in."""
    fill = oracle.whole_numbers(3)
    for size in (1, 7, 9, 15, 17, 31, 33, 63, 65):
        a = oracle.matrix(size, size, dtype, device, "sliced", fill=fill)
        b = oracle.matrix(size, size, dtype, device, "column_major_sliced", fill=fill)
        result = oracle.host(matmul(a, b, algorithm))
        assert torch.equal(result.double(), oracle.reference(a, b))


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_poisoned_memory_is_written_everywhere(device, dtype, algorithm):
    """The result's memory held NaN (or the largest integers) before: nothing of it may be left or added to."""
    for m, n, k in [(33, 31, 17), (64, 64, 64), (1, 65, 9), (9, 1, 0), (129, 127, 1)]:
        a = oracle.matrix(m, k, dtype, device)
        b = oracle.matrix(k, n, dtype, device)
        for _ in range(3):
            # A freed block of the very size is what the next allocation of that size gets.
            blocks = [torch.full((m, n), oracle.poison(dtype), dtype=dtype, device=device) for _ in range(4)]
            del blocks
            oracle.assert_product(matmul(a, b, algorithm), a, b)
        for layout in oracle.RESULT_LAYOUTS:
            guarded = oracle.GuardedResult(m, n, dtype, device, layout)
            torch_pmpp.tiled_matmul(a, b, algorithm=algorithm, out=guarded.out)
            oracle.assert_product(guarded.out, a, b)
            guarded.check_surroundings()


@on_each_algorithm(OP, MATMUL_DTYPES)
def test_row_determinism_two_runs_give_the_same_bits(device, dtype, algorithm):
    for m, n, k in [(65, 63, 129), (3, 5, 20000), (200, 130, 70)]:
        a = oracle.matrix(m, k, dtype, device)
        b = oracle.matrix(k, n, dtype, device)
        first = matmul(a, b, algorithm)
        for _ in range(4):
            oracle.assert_same_bits(matmul(a, b, algorithm), first)


@on_each_algorithm(OP, FLOATING_DTYPES, devices=("cpu",))
def test_row_determinism_does_not_depend_on_the_number_of_threads(device, dtype, algorithm):
    a = oracle.matrix(190, 300, dtype, device)
    b = oracle.matrix(300, 150, dtype, device)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = matmul(a, b, algorithm)
        torch.set_num_threads(max(threads, 2))
        oracle.assert_same_bits(matmul(a, b, algorithm), alone)
    finally:
        torch.set_num_threads(threads)


@on_each_algorithm(OP, COMPLEX_DTYPES)
def test_row_conj_neg_zero_views_are_resolved(device, dtype, algorithm):
    a = oracle.matrix(9, 17, dtype, device)
    b = oracle.matrix(17, 8, dtype, device)
    for left in (a, a.conj(), b.mH):
        for right in (b, b.conj(), a.mH):
            if left.shape[1] != right.shape[0]:
                continue
            result = matmul(left, right, algorithm)
            oracle.assert_product(result, left.resolve_conj(), right.resolve_conj())
            oracle.assert_fresh_row_major(result, a, b)
    negative = a.conj().imag  # a real view with the neg bit and a stride of 2
    assert negative.is_neg()
    real = b.real
    result = matmul(negative, real, algorithm)
    oracle.assert_product(result, negative.resolve_neg(), real)
    assert not result.is_neg()


@on_each_algorithm(OP, (torch.float32, torch.float64))
def test_row_conj_neg_zero_tensors_are_materialised(device, dtype, algorithm):
    zero = torch._efficientzerotensor((5, 7), dtype=dtype, device=device)
    b = oracle.matrix(7, 4, dtype, device)
    result = matmul(zero, b, algorithm)
    assert not result._is_zerotensor()
    assert torch.equal(oracle.host(result), torch.zeros(5, 4, dtype=dtype))
    assert torch.equal(oracle.host(matmul(b.t(), zero.t(), algorithm)), torch.zeros(4, 5, dtype=dtype))
