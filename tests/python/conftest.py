"""Options, the choice of devices and the random seed of the whole Python suite."""

import os
import pathlib
import sys

# Read when torch loads OpenMP. These are many tiny calls: idle threads that spin between them cost a busy machine
# several times the whole suite.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Inductor would start as many compilers for each worker of pytest-xdist as there are cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import pytest
import torch

# At the end of the path: an installed torch_pmpp goes first, else the one built in place is found.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))


def pytest_addoption(parser):
    group = parser.getgroup("pmpp")
    group.addoption(
        "--device",
        choices=("all", "cpu", "cuda"),
        default="all",
        help="run only the tests of one device (tests that belong to none count as cpu)",
    )
    group.addoption(
        "--fuzz-examples",
        type=int,
        default=1000,
        help="number of random cases of test_fuzz.py per device, both operators together, and again of plans",
    )
    group.addoption(
        "--fuzz-seed",
        type=int,
        default=None,
        help="other random cases than the usual ones, for instance in several processes at a time",
    )
    group.addoption(
        "--fuzz-case",
        metavar="JSON",
        default=None,
        help="repeat one case that test_fuzz.py printed, and nothing else",
    )


def _device_of(item) -> str:
    callspec = getattr(item, "callspec", None)
    device = callspec.params.get("device") if callspec else None
    if device is None:
        return "cuda" if item.get_closest_marker("cuda") else "cpu"
    return torch.device(device).type


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: a test that needs a CUDA device, whatever its parameters")


def pytest_collection_modifyitems(config, items):
    repeats = config.getoption("--fuzz-case") is not None
    wanted = config.getoption("--device")

    def keep(item):
        # Without a case there is nothing to repeat, and with one there is nothing else to do.
        if (item.name == "test_repeat_one_case") != repeats:
            return False
        return repeats or wanted in ("all", _device_of(item))

    # Many random cases take longer than the time of a test; stopped by it, hypothesis would go on with the last one.
    examples = config.getoption("--fuzz-examples")
    for item in items:
        if item.path.name == "test_fuzz.py":
            item.add_marker(pytest.mark.timeout(max(600, examples)))
    config.hook.pytest_deselected(items=[item for item in items if not keep(item)])
    items[:] = [item for item in items if keep(item)]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(20250807)
    # The float64 and float32 references on CUDA must not run in TF32, whatever the build's default.
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Device memory that other processes have taken is no fault of a test; what this one alone cannot get is one."""
    try:
        return (yield)
    except torch.OutOfMemoryError:
        from support import memory_of_others

        others = memory_of_others()
        if others < 2 << 30:
            raise
        pytest.skip(f"out of device memory, of which other processes hold {others >> 20} MiB")


@pytest.fixture(autouse=True, scope="module")
def _return_device_memory():
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _return_much_device_memory():
    """At once: other processes may wait for it."""
    yield
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 1 << 30:
        torch.cuda.empty_cache()
