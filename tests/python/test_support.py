"""What the other tests lean on where several processes share a machine and its GPU."""

import itertools
import sys
import time

import pytest
import support
import torch

GIB = 1 << 30


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 16 GiB of which others hold what the list says, one entry for each time that it is asked for."""

    def pretend(held, reserved=0):
        entries = itertools.chain(held, itertools.repeat(held[-1]))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (16 * GIB - reserved - next(entries), 16 * GIB))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    return pretend


def test_memory_of_others_is_neither_free_nor_this_process_s(gpu):
    gpu([3 * GIB], reserved=2 * GIB)
    assert support.memory_of_others() == 3 * GIB


def test_memory_that_others_return_is_waited_for(gpu):
    gpu([0])
    support.needs_memory(8 * GIB)
    gpu([12 * GIB, 12 * GIB, 4 * GIB])
    support.needs_memory(8 * GIB)
    gpu([12 * GIB])
    with pytest.raises(pytest.skip.Exception, match="needs 8192 MiB of device memory, 4096 MiB are free"):
        support.needs_memory(8 * GIB, seconds=0.5)


def test_memory_that_the_gpu_does_not_have_is_not_waited_for(gpu):
    gpu([0])
    start = time.monotonic()
    with pytest.raises(pytest.skip.Exception, match="needs 32768 MiB"):
        support.needs_memory(32 * GIB)
    assert time.monotonic() - start < 30


def test_movement_of_free_memory_is_seen(gpu):
    gpu([GIB])
    assert not support.free_memory_moves(seconds=0.1)
    gpu([GIB, GIB, 2 * GIB])
    assert support.free_memory_moves()


def test_process_that_hangs_fails_with_what_it_printed():
    """And with where it stands; a child that keeps the output open is ended with it."""
    code = (
        "import subprocess, sys, time\n"
        "def waits_in_vain():\n"
        "    time.sleep(600)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('begun', flush=True)\n"
        "waits_in_vain()\n"
    )
    start = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="took longer than 5 s") as caught:
        support.run_process([sys.executable, "-X", "faulthandler", "-c", code], 5)
    assert time.monotonic() - start < 100
    assert "\nbegun\n" in str(caught.value)
    assert "in waits_in_vain" in str(caught.value)


def test_process_that_ends_returns_its_output():
    done = support.run_process([sys.executable, "-c", "import sys; print(1); sys.exit('two')"], 60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "1\n", "two\n")


def test_out_of_memory_is_a_failure_unless_others_hold_it(out_of_memory, gpu):
    gpu([GIB])
    with pytest.raises(torch.OutOfMemoryError):
        out_of_memory()
    gpu([3 * GIB])
    with pytest.raises(pytest.skip.Exception, match="of which other processes hold 3072 MiB"):
        out_of_memory()


@pytest.fixture
def out_of_memory():
    """The hook of conftest.py around a test that runs out of device memory."""
    import conftest

    def run():
        hook = conftest.pytest_runtest_call(None)
        next(hook)
        hook.throw(torch.OutOfMemoryError("CUDA out of memory"))

    return run
