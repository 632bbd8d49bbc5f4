"""padded_transpose: every dtype, size and stride, bit for bit, always in fresh memory."""

import oracle
import pytest
import torch
from support import EDGE_SIZES, SIZED_DTYPES, all_dtypes, name_of, on_each_algorithm, on_each_device

import torch_pmpp
from benchmarks import cases

OP = "padded_transpose"
ALL_DTYPES = all_dtypes()

PRIME_SHAPES = [(97, 101), (2, 211), (211, 2), (131, 7), (1, 257), (257, 1), (3, 1009)]


def check(x, expected, algorithm):
    oracle.assert_transposed_bytes(torch_pmpp.padded_transpose(x, algorithm=algorithm), expected, x)


def test_every_dtype_of_the_contract_is_among_those_tested():
    names = {name_of(dtype) for dtype in ALL_DTYPES}
    assert names >= {"bool", "uint16", "uint32", "uint64", "complex32", "complex64", "complex128"}
    assert names >= {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
    assert {dtype.itemsize for dtype in ALL_DTYPES} == {1, 2, 4, 8, 16}


@on_each_algorithm(OP, ALL_DTYPES)
def test_row_transpose_dtypes_move_bit_for_bit(device, dtype, algorithm):
    for rows, columns in ((3, 5), (33, 31), (64, 17), (1, 9), (9, 1)):
        for layout in ("row_major", "column_major", "stepped"):
            check(*oracle.byte_matrix(rows, columns, dtype, device, layout), algorithm)


@on_each_algorithm(OP, SIZED_DTYPES)
def test_sizes_around_every_tile(device, dtype, algorithm):
    for rows in (*EDGE_SIZES, 127, 129):
        for columns in (*EDGE_SIZES, 128, 255):
            check(*oracle.byte_matrix(rows, columns, dtype, device), algorithm)


@on_each_algorithm(OP, SIZED_DTYPES)
def test_prime_sizes(device, dtype, algorithm):
    for rows, columns in PRIME_SHAPES:
        check(*oracle.byte_matrix(rows, columns, dtype, device), algorithm)


@on_each_algorithm(OP, SIZED_DTYPES)
def test_row_transpose_strides_every_layout(device, dtype, algorithm):
    for layout in oracle.LAYOUTS:
        for rows, columns in ((33, 31), (17, 64), (5, 130), (130, 5), (1, 33), (33, 1), (0, 4), (4, 0)):
            check(*oracle.byte_matrix(rows, columns, dtype, device, layout), algorithm)


@on_each_algorithm(OP, SIZED_DTYPES)
def test_case_list_entries(device, dtype, algorithm):
    limit = 1 << (21 if device == "cpu" else 28)
    shapes = {shape for group in cases.TRANSPOSE_GROUPS.values() for shape in group if shape[0] * shape[1] <= limit}
    assert len(shapes) >= 5
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    for rows, columns in sorted(shapes):
        if dtype.itemsize == 16:
            parts = torch.randint(-(2**62), 2**62, (rows, columns, 2), device=device)
            x = parts.view(dtype).squeeze(-1)
            expected = parts.transpose(0, 1)
        else:
            word = words[dtype.itemsize]
            info = torch.iinfo(word)
            parts = torch.randint(info.min, info.max, (rows, columns), dtype=word, device=device)
            x, expected = parts.view(dtype), parts.t()
        result = torch_pmpp.padded_transpose(x, algorithm=algorithm)
        got = result.view(torch.int64).view(columns, rows, 2) if dtype.itemsize == 16 else result.view(expected.dtype)
        assert result.is_contiguous()
        assert torch.equal(got, expected), f"{rows}x{columns}"


@on_each_algorithm(OP, (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128))
def test_row_transpose_dtypes_nan_payloads_and_signed_zeros_survive(device, dtype, algorithm):
    x, _ = oracle.byte_matrix(34, 19, dtype, device)
    part = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.to_real().itemsize]
    info = torch.finfo(dtype)
    width = dtype.to_real().itemsize * 8
    fraction = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}[dtype.to_real()]
    exponent = ((1 << (width - 1 - fraction)) - 1) << fraction
    words = x.view(part)
    signalling = torch.randint(1, 1 << (fraction - 1), words.shape, device=device).to(part)
    words.copy_(signalling | exponent)
    words[::3] |= torch.iinfo(part).min  # the sign bit
    words[1::5] = torch.iinfo(part).min  # minus zero
    assert x.isnan().any()
    assert info.bits
    expected = words.cpu().view(34, 19, -1).permute(1, 0, 2).contiguous().view(torch.uint8)
    check(x, expected, algorithm)


@on_each_algorithm(OP, ALL_DTYPES)
def test_row_transpose_fresh_memory_always(device, dtype, algorithm):
    """Also where x.t() is contiguous already and PyTorch would return the input itself."""
    for rows, columns, layout in (
        (1, 6, "row_major"),
        (6, 1, "row_major"),
        (1, 1, "row_major"),
        (0, 4, "row_major"),
        (4, 0, "row_major"),
        (0, 0, "row_major"),
        (5, 6, "column_major"),
        (1, 6, "stepped"),
        (6, 1, "stepped"),
    ):
        x, expected = oracle.byte_matrix(rows, columns, dtype, device, layout)
        result = torch_pmpp.padded_transpose(x, algorithm=algorithm)
        oracle.assert_transposed_bytes(result, expected, x)


@on_each_device
def test_row_transpose_parity_function_returns_the_view_that_pytorch_returns(device):
    for rows, columns, layout in (
        (5, 6, "row_major"),
        (5, 6, "column_major"),
        (1, 6, "row_major"),
        (6, 1, "row_major"),
        (0, 4, "row_major"),
        (5, 6, "stepped"),
        (1, 1, "stepped"),
    ):
        x = oracle.matrix(rows, columns, torch.float32, device, layout)
        theirs = x.t().contiguous()
        ours = torch_pmpp.transpose(x)
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()
        assert (ours.data_ptr() == x.data_ptr()) == (theirs.data_ptr() == x.data_ptr())
    for x in (
        torch.arange(3.0, device=device),
        torch.tensor(2.0, device=device),
        torch.arange(6.0, device=device)[::2],
    ):
        theirs, ours = x.t().contiguous(), torch_pmpp.transpose(x)
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()
        assert (ours.data_ptr() == x.data_ptr()) == (theirs.data_ptr() == x.data_ptr())


@on_each_algorithm(OP, ALL_DTYPES)
def test_row_transpose_ranks_0d_and_1d_come_back_as_a_copy(device, dtype, algorithm):
    size = dtype.itemsize
    raw = torch.randint(0, 2, (24 * size,), dtype=torch.uint8)
    storage = raw.clone().to(device).view(dtype)
    for shape, strides, offset in (
        ((), (), 0),
        ((), (), 3),
        ((7,), (1,), 0),
        ((7,), (3,), 2),
        ((7,), (0,), 1),
        ((0,), (1,), 0),
        ((1,), (5,), 0),
    ):
        x = storage.as_strided(shape, strides, offset)
        expected = raw.as_strided((*shape, size), (*(s * size for s in strides), 1), offset * size).contiguous()
        result = torch_pmpp.padded_transpose(x, algorithm=algorithm)
        assert result.shape == x.shape
        assert result.dtype == dtype
        oracle.assert_fresh_row_major(result, x)
        assert torch.equal(oracle.raw_bytes(result), expected.flatten())


@on_each_algorithm(OP, (torch.complex32, torch.complex64, torch.complex128))
def test_row_transpose_conj_and_neg_views_are_resolved(device, dtype, algorithm):
    x, _ = oracle.byte_matrix(19, 34, torch.int8, device)
    real, imaginary = x.double(), x.double().flip(0)
    z = torch.complex(real, imaginary).to(dtype)
    for view in (z.conj(), z.mH, z.conj()[1::2, ::3]):
        assert view.is_conj()
        result = torch_pmpp.padded_transpose(view, algorithm=algorithm)
        oracle.assert_fresh_row_major(result, z)
        assert torch.equal(result.to(torch.complex128), view.to(torch.complex128).t())
    negative = z.conj().imag
    assert negative.is_neg()
    result = torch_pmpp.padded_transpose(negative, algorithm=algorithm)
    oracle.assert_fresh_row_major(result, z)
    assert torch.equal(result, negative.t())


@on_each_algorithm(OP, (torch.float32,))
def test_row_transpose_zero_tensors_are_materialised(device, dtype, algorithm):
    result = torch_pmpp.padded_transpose(
        torch._efficientzerotensor((5, 7), dtype=dtype, device=device), algorithm=algorithm
    )
    assert not result._is_zerotensor()
    assert torch.equal(result, torch.zeros(7, 5, dtype=dtype, device=device))


@on_each_algorithm(OP, SIZED_DTYPES)
def test_poisoned_memory_is_written_everywhere(device, dtype, algorithm):
    for rows, columns in ((33, 31), (64, 64), (1, 65), (129, 15), (8, 1000)):
        x, expected = oracle.byte_matrix(rows, columns, dtype, device)
        for _ in range(3):
            # A freed block of the very size is what the next allocation of that size gets.
            blocks = [
                torch.full((columns * rows * dtype.itemsize,), 0xA5, dtype=torch.uint8, device=device) for _ in range(4)
            ]
            del blocks
            check(x, expected, algorithm)
        for layout in oracle.RESULT_LAYOUTS:
            guarded = oracle.GuardedResult(columns, rows, dtype, device, layout)
            torch_pmpp.padded_transpose(x, algorithm=algorithm, out=guarded.out)
            guarded.check_surroundings()
            got = oracle.raw_bytes(guarded.out)
            assert torch.equal(got, expected.flatten()), layout


@on_each_algorithm(OP, SIZED_DTYPES)
def test_row_transpose_determinism_and_inputs_left_alone(device, dtype, algorithm):
    x, expected = oracle.byte_matrix(130, 67, dtype, device, "sliced")
    before, version = x.clone().view(torch.uint8), x._version
    for _ in range(3):
        check(x, expected, algorithm)
    assert torch.equal(x.contiguous().view(torch.uint8), before)
    assert x._version == version


@on_each_device
def test_row_transpose_no_autocast_rule(device):
    x = torch.randn(3, 4, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch_pmpp.padded_transpose(x).dtype == torch.float32


@on_each_device
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1, 1), (0, 2, 3)], ids=str)
def test_row_transpose_ranks_three_dimensions_are_an_error_like_that_of_t(device, shape):
    x = torch.empty(shape, device=device)
    with pytest.raises(RuntimeError):
        x.t()
    with pytest.raises(RuntimeError):
        torch_pmpp.padded_transpose(x)
