"""padded_transpose on CUDA: sizes, slices and strides that its fast kernels tell apart, bit for bit.

References are made of plain words of the same memory, so that no NaN, sign or payload can be lost in a comparison.
"""

import functools

import pytest
import torch
from support import SIZED_DTYPES, name_of, needs_cuda, needs_memory

import torch_pmpp

# auto leaves small matrices to padded; these tests are of vectorized, also where they are small.
TRANSPOSE = functools.partial(torch.ops.pmpp.padded_transpose, algorithm="vectorized")
PLAN = functools.partial(torch.ops.pmpp._padded_transpose_plan, algorithm="vectorized")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}

pytestmark = [needs_cuda, pytest.mark.cuda]
each_size = pytest.mark.parametrize("dtype", SIZED_DTYPES, ids=name_of)


def memory(rows, columns, dtype):
    """A matrix of random bits, and the same memory as words: (rows, columns), and 2 of them for 16 bytes."""
    raw = torch.empty(rows * columns * dtype.itemsize, dtype=torch.uint8, device="cuda").random_(0, 256)
    words = raw.view(WORDS[dtype.itemsize])
    return raw.view(dtype).view(rows, columns), words.view(rows, columns, *((2,) if dtype.itemsize == 16 else ()))


def words_of(x):
    """A row-major matrix as words."""
    assert x.is_contiguous()
    return x.view(WORDS[x.dtype.itemsize]).view(*x.shape, *((2,) if x.dtype.itemsize == 16 else ()))


def check(x, words):
    result = TRANSPOSE(x)
    assert torch.equal(words_of(result), words.transpose(0, 1)), f"{tuple(x.shape)} strides {x.stride()} {x.dtype}"


def test_more_than_2_31_elements_in_blocks_of_rows():
    rows, columns, step = 65536, 40000, 2000
    needs_memory(5 * rows * columns)
    x = torch.empty(rows, columns, dtype=torch.uint8, device="cuda").random_(0, 256)
    assert x.numel() > 1 << 31
    result = TRANSPOSE(x)
    for first in range(0, columns, step):
        block = slice(first, first + step)
        assert torch.equal(result[block], x[:, block].t()), first
    # An odd base and an odd pitch on either side.
    view = x[1:, 3:]
    out = torch.zeros(columns, rows, dtype=torch.uint8, device="cuda")[3:, 1:]
    assert out.data_ptr() % 16 != 0
    TRANSPOSE(view, out=out)
    assert torch.equal(out, result[3:, 1:])


@each_size
@pytest.mark.parametrize("shape", [(2_200_000, 33), (33, 2_200_000)], ids=str)
def test_long_and_narrow(dtype, shape):
    needs_memory(5 * 2_200_000 * 33 * dtype.itemsize)
    check(*memory(*shape, dtype))


@each_size
def test_slices_with_odd_offsets(dtype):
    x, words = memory(523, 771, dtype)
    for offset in (0, 1, 2, 3, 5, 7, 8, 15, 16, 17):
        for rows, columns in (
            (slice(offset, None), slice(None)),
            (slice(None), slice(offset, None)),
            (slice(offset, 301), slice(offset, 640 + offset)),
            (slice(3, 300), slice(offset, offset + 33)),
            (slice(offset, offset + 5), slice(7, None)),
            (slice(offset, offset + 1), slice(None)),
            (slice(None), slice(offset, offset + 1)),
        ):
            check(x[rows, columns], words[rows, columns])
            # The same as a transposed view: nothing changes places.
            check(x[rows, columns].t(), words[rows, columns].transpose(0, 1))


@each_size
def test_slices_of_a_larger_result_leave_the_rest_alone(dtype):
    for rows, columns in ((257, 513), (64, 640), (3, 1001), (1001, 3), (33, 400), (1, 77), (77, 1)):
        x, words = memory(rows, columns, dtype)
        for down, right in ((0, 1), (1, 0), (1, 3), (2, 8), (5, 16), (16, 5)):
            storage, after = memory(columns + 19, rows + 21, dtype)
            expected = after.clone()
            own = slice(down, down + columns), slice(right, right + rows)
            expected[own] = words.transpose(0, 1)
            out = storage[own]
            TRANSPOSE(x, out=out)
            assert torch.equal(after, expected), f"{rows}x{columns} at {down}, {right}"
            # A column-major result.
            storage, after = memory(rows + 21, columns + 19, dtype)
            expected = after.clone()
            own = slice(right, right + rows), slice(down, down + columns)
            expected[own] = words
            TRANSPOSE(x, out=storage[own].t())
            assert torch.equal(after, expected), f"{rows}x{columns} at {right}, {down}, column-major"


@each_size
def test_destinations_halfway_between_sectors(dtype):
    """Rows that begin at a multiple of 16 bytes that is not one of 32, and fill whole tiles."""
    start = 16 // dtype.itemsize
    for rows in (512, 640, 1024):
        x, words = memory(rows, 4001, dtype)
        storage = torch.zeros(4001, rows + 2 * start, dtype=dtype, device="cuda")
        out = storage[:, start : start + rows]
        TRANSPOSE(x, out=out)
        got = words_of(storage)
        assert torch.equal(got[:, start : start + rows], words.transpose(0, 1)), rows
        assert not got[:, :start].any()
        assert not got[:, start + rows :].any()


@each_size
def test_transposed_stepped_and_expanded_inputs(dtype):
    x, words = memory(211, 307, dtype)
    check(x.t(), words.transpose(0, 1))
    check(x[::2], words[::2])
    check(x[:, ::3], words[:, ::3])
    check(x[1::4, 5::2], words[1::4, 5::2])
    check(x[::3].t(), words[::3].transpose(0, 1))
    for row in (0, 1, 2):
        check(x[row : row + 1].expand(400, -1), words[row : row + 1].expand(400, *words.shape[1:]))
        check(x[:, row : row + 1].expand(-1, 400), words[:, row : row + 1].expand(-1, 400, *words.shape[2:]))
    check(x[4:5, 7:8].expand(65, 300), words[4:5, 7:8].expand(65, 300, *words.shape[2:]))


def views():
    """A copy of the driver, a narrow strip of each kind, tiles on and off boundaries, rows with a pitch."""
    return {
        "driver copy": torch.randn(515, 700, device="cuda").t(),
        "narrow source": torch.randn(10_000, 33, device="cuda"),
        "narrow destination": torch.randn(33, 10_000, device="cuda"),
        "aligned": torch.randn(1024, 2048, device="cuda"),
        "gather": torch.randn(1023, 2047, device="cuda"),
        "copy": torch.randn(515, 700, device="cuda")[:, 3:690].t(),
    }


@pytest.mark.parametrize("method", ["driver copy", "narrow source", "narrow destination", "aligned", "gather", "copy"])
def test_side_streams_and_graphs_give_the_same_bits(method):
    x = views()[method]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        aside = TRANSPOSE(x)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(aside, x.t())

    out = torch.empty(x.shape[1], x.shape[0], device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = TRANSPOSE(x)
        TRANSPOSE(x, out=out)
    for _ in range(2):
        x.copy_(torch.randn(x.shape, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, x.t())
        assert torch.equal(out, x.t())


def test_plans_name_the_method():
    if "vectorized" not in torch_pmpp.algorithms("padded_transpose", "cuda", torch.float32):
        pytest.skip("this GPU cannot run vectorized")
    for method, x in views().items():
        # A result of its own would be contiguous, so that even of a view with a pitch nothing but the input is seen.
        assert PLAN(x).startswith(f"vectorized {method} "), method
    square = torch.zeros(1025, 1040, dtype=torch.uint8, device="cuda")
    for x, expected in (
        (square[:1024, :1024], "aligned"),
        (square[:1024, 1:1025], "staged"),
        (square[:1023], "staged"),
        (square[:, ::2], "strided"),
        (square[:1].expand(1024, -1), "aligned"),
        (square.view(torch.int16)[:, 1:], "gather"),
        (square.view(torch.complex128), "narrow source"),
        (square[:1], "driver copy"),
        (square[0], "driver copy"),
        (square[0, 0], "driver copy"),
    ):
        assert PLAN(x).startswith(f"vectorized {expected} "), (PLAN(x), tuple(x.shape), x.stride())
