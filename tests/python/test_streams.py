"""The contract's CUDA row: streams, graphs, threads, devices, sizes beyond 32 bits. Threads on the CPU too."""

import threading

import oracle
import pytest
import torch
from support import (
    HAS_CUDA,
    IN_WORKER,
    NO_CUDA,
    free_memory_moves,
    needs_cuda,
    needs_memory,
    on_each_algorithm,
    on_each_device,
)

import torch_pmpp

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
CUDA = ("cuda",)
# Clock cycles: some 50 ms, and longer ones for a machine that is busy with other processes.
SLEEPS = (100_000_000, 400_000_000, 1_600_000_000)


def warm_stream(work):
    """A stream on which the work ran once: loading a kernel and the first allocation may wait for the device."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1)
        work()
    torch.cuda.synchronize()
    return stream


def on_a_stream_behind(stream, operand, before, after, work):
    """What `work` returns on a stream that first sleeps and then writes the operand; fails if it waits for the device.

    On another stream it would read the old operand. A call that waits does so however long the sleep is, while a
    process that others keep from running sees only a short one end.
    """
    for cycles in SLEEPS:
        operand.copy_(before)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
            operand.copy_(after)
            result = work()
            running = not stream.query()
        stream.synchronize()
        if running:
            return result
    pytest.fail("the call waited for the device")


@on_each_algorithm("tiled_matmul", (torch.float32, torch.bfloat16), CUDA)
def test_row_cuda_matmul_runs_on_the_current_stream(device, dtype, algorithm):
    fill = oracle.whole_numbers(5)
    a, b = (oracle.matrix(65, 65, dtype, device, fill=fill) for _ in range(2))
    new_a = oracle.matrix(65, 65, dtype, device, fill=fill)
    expected = oracle.reference(new_a, b)
    stream = warm_stream(lambda: MATMUL(a, b, algorithm=algorithm))
    result = on_a_stream_behind(stream, a, a.clone(), new_a, lambda: MATMUL(a, b, algorithm=algorithm))
    assert torch.equal(oracle.host(result), expected.to(dtype))


@on_each_algorithm("padded_transpose", (torch.float32, torch.uint8), CUDA)
def test_row_cuda_transpose_runs_on_the_current_stream(device, dtype, algorithm):
    x = oracle.matrix(200, 99, dtype, device)
    new_x = oracle.matrix(200, 99, dtype, device)
    stream = warm_stream(lambda: TRANSPOSE(x, algorithm=algorithm))
    result = on_a_stream_behind(stream, x, x.clone(), new_x, lambda: TRANSPOSE(x, algorithm=algorithm))
    assert torch.equal(result, new_x.t())


@on_each_algorithm("tiled_matmul", (torch.float32, torch.float64, torch.int8), CUDA)
def test_row_cuda_graph_capture_and_replay(device, dtype, algorithm):
    a, b = oracle.matrix(70, 33, dtype, device), oracle.matrix(33, 50, dtype, device)
    transposes = ["auto", *torch_pmpp.algorithms("padded_transpose", device, dtype)]
    warm = MATMUL(a, b, algorithm=algorithm)
    for name in transposes:
        TRANSPOSE(warm, algorithm=name)
    out = torch.empty(70, 50, dtype=dtype, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = MATMUL(a, b, algorithm=algorithm)
        transposed = [TRANSPOSE(product, algorithm=name) for name in transposes]
        MATMUL(a, b, algorithm=algorithm, out=out)
    for _ in range(3):
        a.copy_(oracle.matrix(70, 33, dtype, device))
        b.copy_(oracle.matrix(33, 50, dtype, device))
        graph.replay()
        torch.cuda.synchronize()
        oracle.assert_product(product, a, b)
        oracle.assert_same_bits(out, product)
        assert all(torch.equal(x, product.t()) for x in transposed)


@needs_cuda
@pytest.mark.cuda
def test_row_cuda_backward_in_a_graph():
    a = torch.randn(40, 30, device="cuda", requires_grad=True)
    b = torch.randn(30, 20, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.autograd.grad(MATMUL(a, b).sum(), (a, b))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients = torch.autograd.grad(MATMUL(a, b).square().sum(), (a, b))
    graph.replay()
    expected = torch.autograd.grad(torch.mm(a, b).square().sum(), (a, b))
    for x, y in zip(gradients, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-3)


@needs_cuda
@pytest.mark.cuda
def test_row_cuda_no_synchronisation():
    a = torch.randn(64, 64, device="cuda")
    MATMUL(a, a)
    TRANSPOSE(a)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for name in ("auto", *torch_pmpp.algorithms("tiled_matmul", "cuda", a.dtype)):
            MATMUL(a, a.t(), algorithm=name)
        for name in ("auto", *torch_pmpp.algorithms("padded_transpose", "cuda", a.dtype)):
            TRANSPOSE(a, algorithm=name)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@pytest.mark.cuda
def test_row_cuda_no_allocation_outside_the_caching_allocator():
    """By the free memory of the whole GPU, which other processes may change meanwhile. A leak is there each time; one
    time is enough to say so where the free memory stays as it is while this process is idle."""
    a = torch.randn(2048, 2048, device="cuda")
    out = torch.empty_like(a)

    def work():
        for name in ("auto", *torch_pmpp.algorithms("tiled_matmul", "cuda", a.dtype)):
            MATMUL(a, a, algorithm=name, out=out)
        for name in ("auto", *torch_pmpp.algorithms("padded_transpose", "cuda", a.dtype)):
            TRANSPOSE(a, algorithm=name, out=out)
        torch.cuda.synchronize()

    def taken():
        return -torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()

    work()
    for _ in range(10):
        before = taken()
        for _ in range(5):
            work()
        more = taken() - before
        if more < 1 << 22:
            return
        moves = free_memory_moves()
        if not (moves or IN_WORKER):
            break
    if moves:
        pytest.skip("other processes take and return device memory")
    pytest.fail(f"{more} bytes were taken besides those of the caching allocator")


def in_threads(work, count):
    errors = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@on_each_device
def test_row_cuda_several_threads_each_with_its_own_work(device):
    inputs = []
    for index in range(4):
        a = oracle.matrix(33 + 7 * index, 40, torch.float32, device)
        b = oracle.matrix(40, 21 + index, torch.float32, device)
        inputs.append((a, b))
    if device == "cuda":
        torch.cuda.synchronize()

    def work(index):
        a, b = inputs[index]
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):
            for _ in range(20):
                x, y = a.clone().requires_grad_(), b.clone()
                result = MATMUL(x, y)
                result.sum().backward()
                transposed = TRANSPOSE(result.detach())
            if stream is not None:
                stream.synchronize()
        oracle.assert_product(result.detach(), a, b)
        assert torch.equal(transposed, result.detach().t())
        assert torch.allclose(x.grad, y.sum(1).expand_as(x), atol=1e-4)
        with pytest.raises(ValueError, match="unknown algorithm"):
            MATMUL(a, b, algorithm="none such")

    in_threads(work, len(inputs))


@pytest.mark.cuda
@pytest.mark.skipif(
    not HAS_CUDA or torch.cuda.device_count() < 2, reason="needs two CUDA devices" if HAS_CUDA else NO_CUDA
)
def test_row_cuda_device_guard():
    """Tensors on the second device while the first is current, and the current device is left as it was."""
    torch.cuda.set_device(0)
    a, b = oracle.matrix(65, 33, torch.float32, "cuda:1"), oracle.matrix(33, 17, torch.float32, "cuda:1")
    for name in ("auto", *torch_pmpp.algorithms("tiled_matmul", "cuda:1", a.dtype)):
        result = MATMUL(a, b, algorithm=name)
        assert result.device == torch.device("cuda:1")
        oracle.assert_product(result, a, b)
        out = torch.empty_like(result)
        oracle.assert_same_bits(MATMUL(a, b, algorithm=name, out=out), result)
    for name in ("auto", *torch_pmpp.algorithms("padded_transpose", "cuda:1", a.dtype)):
        assert torch.equal(TRANSPOSE(a, algorithm=name), a.t())
    assert torch.cuda.current_device() == 0


def assert_int8_product(result, a, b):
    """All of the result, in pieces: with |sum| <= 64 * 128 * 128 float32 is exact."""
    assert a.shape[1] <= 64
    rows = min(a.shape[0], 1 << 20)
    columns = min((1 << 26) // rows, 1 << 20)
    for row in range(0, a.shape[0], rows):
        for column in range(0, b.shape[1], columns):
            piece = torch.mm(a[row : row + rows].float(), b[:, column : column + columns].float())
            got = result[row : row + rows, column : column + columns]
            assert torch.equal(got, piece.to(torch.int32).to(torch.int8)), (row, column)


def random_int8(rows, columns):
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8, device="cuda")


BIG = (1 << 31) + 4096


@on_each_algorithm("tiled_matmul", (torch.int8,), CUDA)
@pytest.mark.parametrize("which", ["a", "b", "out", "a_strided"])
def test_row_size_more_than_2_31_elements_and_65535_row_tiles(device, dtype, algorithm, which):
    needs_memory(6 << 30)
    if which == "a":
        a, b = random_int8(BIG // 64 + 3, 64), random_int8(64, 8)  # over two million row tiles of 16
    elif which == "b":
        a, b = random_int8(8, 64), random_int8(64, BIG // 64 + 3)
    elif which == "out":
        a, b = random_int8((1 << 17) + 5, 5), random_int8(5, (1 << 14) + 9)
    else:
        # Few elements far apart: the offset of a row alone is beyond 32 bits.
        a, b = random_int8(33, BIG // 32)[:, :: BIG // 32 // 60][:, :60], random_int8(60, 40)
    if which != "a_strided":
        assert max(a.numel(), b.numel(), a.shape[0] * b.shape[1]) > 1 << 31
    assert_int8_product(MATMUL(a, b, algorithm=algorithm), a, b)


@on_each_algorithm("tiled_matmul", (torch.float32, torch.bfloat16), CUDA)
def test_row_size_more_than_65535_row_tiles_in_floating_point(device, dtype, algorithm):
    needs_memory(2 << 30)
    fill = 65535 * 32 + 100
    a = torch.randint(-8, 9, (fill, 17), device=device).to(dtype)
    b = torch.randint(-8, 9, (17, 5), device=device).to(dtype)
    expected = torch.mm(a.double(), b.double()).to(dtype)
    assert torch.equal(MATMUL(a, b, algorithm=algorithm), expected)
    # The same number of column tiles.
    assert torch.equal(MATMUL(b.t(), a.t(), algorithm=algorithm), expected.t())


@on_each_algorithm("padded_transpose", (torch.int8, torch.bfloat16), CUDA)
@pytest.mark.parametrize(
    "shape", [(3, BIG // 3 + 1), (BIG // 3 + 1, 3), (65535 * 32 + 77, 1030), (47000, 46001)], ids=str
)
def test_row_transpose_size_more_than_2_31_elements_and_65535_row_tiles(device, dtype, algorithm, shape):
    needs_memory((4 + 4 * dtype.itemsize) * BIG)
    x = torch.randint(-128, 128, shape, dtype=torch.int8, device=device)
    x = x if dtype == torch.int8 else x.to(dtype)
    assert x.numel() > 1 << 31
    result = TRANSPOSE(x, algorithm=algorithm)
    assert result.is_contiguous()
    assert torch.equal(result, x.t())
