"""Large results on the CPU: memory of huge pages that is kept for the next result (ops/result_memory.h)."""

import os
import pickle
import threading

import pytest
import torch

import torch_pmpp  # noqa: F401  (registers the operators)

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
BATCHED_TRANSPOSE = torch.ops.pmpp._batched_transpose

OWN_MAPPING_BYTES = 4 << 20
KEPT_BYTES = 1 << 30
HUGE_PAGE = 2 << 20


def transposable(rows: int, columns: int = 1024, start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + rows * columns, dtype=torch.int32).view(rows, columns)


def is_right(result: torch.Tensor, x: torch.Tensor) -> bool:
    return torch.equal(result, x.t())


@pytest.mark.parametrize("batched", [False, True])
def test_memory_is_used_again(batched):
    x = transposable(1111)
    if batched:
        x = x.unsqueeze(0)
    call = BATCHED_TRANSPOSE if batched else TRANSPOSE
    result = call(x)
    assert result.numel() * 4 >= OWN_MAPPING_BYTES
    address = result.data_ptr()
    assert address % HUGE_PAGE == 0
    del result
    result = call(x + 1)
    assert result.data_ptr() == address
    assert torch.equal(result, (x + 1).mT)


def test_products_share_the_memory():
    a, b = torch.ones(1200, 8, dtype=torch.int32), torch.full((8, 1000), 3, dtype=torch.int32)
    result = MATMUL(a, b)
    address = result.data_ptr()
    del result
    x = transposable(1200, 1000)
    result = TRANSPOSE(x)
    assert result.data_ptr() == address
    assert is_right(result, x)
    other = MATMUL(a, b)
    assert other.data_ptr() != address
    assert bool((other == 24).all())
    assert is_right(result, x)


def test_living_results_have_memory_of_their_own():
    inputs = [transposable(1024 + 8 * i, start=i) for i in range(5)]
    results = [TRANSPOSE(x) for x in inputs]
    del results[1], inputs[1]
    results += [TRANSPOSE(x + 7) for x in inputs]
    inputs += [x + 7 for x in inputs]
    assert len({result.data_ptr() for result in results}) == len(results)
    assert all(is_right(result, x) for result, x in zip(results, inputs, strict=True))


def test_views_keep_the_memory():
    x = transposable(1500)
    row = TRANSPOSE(x)[3]
    for _ in range(3):
        TRANSPOSE(x + 1)
    assert torch.equal(row, x[:, 3])


def test_results_are_resized_as_others_are():
    x = transposable(1024)
    result = TRANSPOSE(x)
    result.resize_(2048, 1024)
    assert is_right(result[:1024], x)
    result.untyped_storage().resize_(64)
    assert torch.equal(result.resize_(16), x[:16, 0])


def test_results_are_copied_shared_and_pickled_as_others_are():
    x = transposable(1030)
    result = TRANSPOSE(x)
    assert is_right(pickle.loads(pickle.dumps(result)), x)
    assert is_right(result.clone(), x)
    assert is_right(result.share_memory_(), x)


def test_small_results_come_from_torch():
    x = transposable(OWN_MAPPING_BYTES // 4 // 1024 - 1)
    assert is_right(TRANSPOSE(x), x)


def test_more_than_is_kept():
    x = torch.zeros(1, dtype=torch.uint8).expand(KEPT_BYTES + 1, 1)
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") < 3 * KEPT_BYTES:
        pytest.skip("not enough memory")
    for _ in range(2):
        result = TRANSPOSE(x)
        assert result.shape == (1, KEPT_BYTES + 1)
        assert int(result[0, -1]) == 0
        del result


def test_threads_do_not_get_in_each_others_way():
    wrong = []

    def work(start: int) -> None:
        x = transposable(1024 + start, start=start)
        for _ in range(12):
            if not is_right(TRANSPOSE(x), x):
                wrong.append(start)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_child_process_has_results_of_its_own():
    x = transposable(1024)
    kept = TRANSPOSE(x)
    TRANSPOSE(x)  # leaves a mapping behind
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        status = 1
        try:
            status = 0 if is_right(TRANSPOSE(x + 1), x + 1) and is_right(kept, x) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_right(TRANSPOSE(x), x)
    assert is_right(kept, x)


def test_the_profiler_sees_the_memory():
    x = transposable(1024)
    with torch.profiler.profile(profile_memory=True) as profile:
        TRANSPOSE(x)
    assert any(event.cpu_memory_usage >= OWN_MAPPING_BYTES for event in profile.key_averages()) or any(
        event.self_cpu_memory_usage >= OWN_MAPPING_BYTES for event in profile.events()
    )
