"""Times of several calls side by side: interleaved (A B A B), medians, caches cleared where that can be done.

Every function takes the calls to compare and returns their median times in seconds, in the same order. Interleaving
makes a drifting clock or a warming chip hit every side alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache

import torch

Call = Callable[[], object]

MIN_REPETITIONS = 3
MAX_REPETITIONS = 100
# Overwritten before every timed call, so that no operand is left in the L2 cache of any GPU today (H200: 60 MB,
# B200: 126 MB). Writing it takes some 60 us on an H200, in which the host gets ahead: events then time the device,
# not the host.
FLUSH_BYTES = 256 * 2**20
_CALLS_PER_GRAPH = 20
_CALLS_PER_HOST_BATCH = 50  # few enough that the launch queue (about 1,000 deep) never fills and blocks the host


def repetitions(seconds_per_round: float, budget: float) -> int:
    """How many rounds fit into `budget` seconds, at least 3 and at most 100."""
    if seconds_per_round <= 0:
        return MAX_REPETITIONS
    return max(MIN_REPETITIONS, min(MAX_REPETITIONS, int(budget / seconds_per_round)))


@cache
def _flush_buffer(device: int) -> torch.Tensor:
    return torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=torch.device("cuda", device))


def flush_l2() -> None:
    """Queues the overwriting of the current device's L2 cache."""
    _flush_buffer(torch.cuda.current_device()).zero_()


def _interleave(calls: Sequence[Call], rounds: int, time_one: Callable[[Call], float]) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, kept in zip(calls, times, strict=True):
            kept.append(time_one(call))
    return times


def time_cpu(calls: Sequence[Call], *, budget: float) -> list[float]:
    """On the CPU, by the wall clock.

    Each timed call follows one of its own that is not timed, so that every side finds its operands in the caches, as
    far as they fit, and its threads awake. Otherwise a slow serial baseline falls upon the other side: 256 x 256 x 256
    in float16 on two threads took 420 us after PyTorch's product of 20 ms, and 180 us after itself.
    """

    def time_one(call: Call) -> float:
        call()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    first = _interleave(calls, 1, time_one)
    rounds = repetitions(2 * sum(kept[0] for kept in first), budget)
    rest = _interleave(calls, rounds - 1, time_one)
    return [statistics.median(one + more) for one, more in zip(first, rest, strict=True)]


def _event_pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def time_cuda(calls: Sequence[Call], *, budget: float, flush: bool = True) -> list[float]:
    """On the current device by CUDA events, the L2 cache cleared before every call unless `flush` is off."""
    start = time.perf_counter()
    for warm_up in (True, False):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for call in calls:
            if flush and not warm_up:
                flush_l2()
            call()
    torch.cuda.synchronize()
    rounds = repetitions(time.perf_counter() - start, budget)
    events = [[_event_pair() for _ in calls] for _ in range(rounds)]
    # Queued as a whole, without waiting in between: a wait would let the clock drop and put launch time into the
    # figures.
    for row in events:
        for call, (begin, end) in zip(calls, row, strict=True):
            if flush:
                flush_l2()
            begin.record()
            call()
            end.record()
    torch.cuda.synchronize()
    columns = zip(*events, strict=True)
    return [statistics.median(begin.elapsed_time(end) for begin, end in column) * 1e-3 for column in columns]


def time_graph(calls: Sequence[Call], *, budget: float) -> list[float]:
    """One call inside a CUDA graph of 20: the device's part alone. Operands stay in the L2 cache, for every side."""
    graphs = []
    for call in calls:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()  # one-time work (handles, workspaces) must not be captured
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_CALLS_PER_GRAPH):
                call()
        graphs.append(graph)
    return [
        seconds / _CALLS_PER_GRAPH
        for seconds in time_cuda([graph.replay for graph in graphs], budget=budget, flush=False)
    ]


def time_host(calls: Sequence[Call], *, budget: float) -> list[float]:
    """What one call costs the host until it returns; the device finishes in its own time."""

    def time_one(call: Call) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_CALLS_PER_HOST_BATCH):
            call()
        return (time.perf_counter() - start) / _CALLS_PER_HOST_BATCH

    first = _interleave(calls, 1, time_one)  # warm-up
    rounds = repetitions(sum(kept[0] for kept in first) * _CALLS_PER_HOST_BATCH, budget)
    times = [statistics.median(kept) for kept in _interleave(calls, rounds, time_one)]
    torch.cuda.synchronize()
    return times
