"""Random shapes, strides, offsets, dtypes and algorithms for both operators.

`--fuzz-examples N` sets the number of cases, `--fuzz-case JSON` repeats the one that a failure printed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import fuzz_cases
import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from support import MATMUL_DTYPES, SIZED_DTYPES, algorithms, all_dtypes, name_of, on_each_device

import torch_pmpp

# Most sizes sit at the edges of tiles, the rest anywhere.
SIZES = st.one_of(st.sampled_from((0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)), st.integers(0, 80))
INNER_SIZES = st.one_of(SIZES, st.integers(0, 400))
SHARE = {"tiled_matmul": 0.6, "padded_transpose": 0.4}


@st.composite
def geometries(draw, rows, columns, injective=False):
    """(row stride, column stride, offset): dense, pitched, stepped, or, for inputs, with addresses shared."""
    step, pad = draw(st.integers(1, 3)), draw(st.integers(0, 9))
    kinds = ["rows", "columns"] if injective else ["rows", "columns", "any"]
    kind = draw(st.sampled_from(kinds))
    if kind == "rows":
        strides = (max(columns, 1) * step + pad, step)
    elif kind == "columns":
        strides = (step, max(rows, 1) * step + pad)
    else:
        strides = (draw(st.integers(0, 90)), draw(st.integers(0, 90)))
    return [*strides, draw(st.integers(0, 17))]


@st.composite
def random_cases(draw, op, device):
    m, n = draw(SIZES), draw(SIZES)
    if op == "tiled_matmul":
        dtype = draw(st.sampled_from(MATMUL_DTYPES))
    else:
        dtype = draw(st.one_of(st.sampled_from(SIZED_DTYPES), st.sampled_from(all_dtypes())))
    case = {
        "op": op,
        "device": device,
        "dtype": name_of(dtype),
        "algorithm": draw(st.sampled_from(algorithms(op, device, dtype))),
        "m": m,
        "n": n,
    }
    if op == "tiled_matmul":
        case["k"] = k = draw(INNER_SIZES)
        case["a"], case["b"] = draw(geometries(m, k)), draw(geometries(k, n))
        case["out"] = draw(st.one_of(st.none(), geometries(m, n, injective=True)))
        case["exact"] = draw(st.booleans())
    else:
        case["a"] = draw(geometries(m, n))
        case["out"] = draw(st.one_of(st.none(), geometries(n, m, injective=True)))
    case["seed"] = draw(st.integers(0, 2**31 - 1))
    return case


def fuzz(op, device, examples, run=fuzz_cases.run):
    """Runs that many cases, always the same ones; a failure is the smallest found, as one line that repeats it."""
    smallest = {}

    @hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(random_cases(op, device))
    def attempt(case):
        try:
            run(case)
        except Exception:
            smallest["case"] = case  # hypothesis runs the smallest failing case last
            raise

    try:
        attempt()
    except Exception as error:
        if "case" not in smallest:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        pytest.fail(f"{fuzz_cases.repeat_line(smallest['case'])}  # {reason}", pytrace=False)


@on_each_device
@pytest.mark.parametrize("op", SHARE)
def test_random_cases(request, device, op):
    fuzz(op, device, max(1, round(request.config.getoption("--fuzz-examples") * SHARE[op])))


def test_repeat_one_case(request):
    """Collected with --fuzz-case alone, which collects nothing else (conftest.py)."""
    fuzz_cases.run(json.loads(request.config.getoption("--fuzz-case")))


def test_a_failing_case_prints_one_line_that_repeats_it():
    """With a check that objects to k > 20, the smallest objection is found and its line runs."""

    def picky(case):
        fuzz_cases.run(case)
        assert case["k"] <= 20, "more\nthan twenty"

    with pytest.raises(pytest.fail.Exception) as caught:
        fuzz("tiled_matmul", "cpu", 100, picky)
    message = str(caught.value)
    assert "\n" not in message
    assert "more than twenty" in message
    command, text = re.fullmatch(r"repeat: (.*) --fuzz-case '(.*?)'  # .*", message).groups()
    assert json.loads(text)["k"] > 20
    root = pathlib.Path(__file__).resolve().parents[2]
    # The same torch_pmpp as here, wherever this run found it.
    found = str(pathlib.Path(torch_pmpp.__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (found, os.environ.get("PYTHONPATH"))))}
    wrong = json.dumps(json.loads(text) | {"dtype": "no such type"})
    for case, code in ((text, 0), (wrong, 1)):
        run = subprocess.run(
            [sys.executable, *command.split()[1:], "-p", "no:cacheprovider", "--fuzz-case", case],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert run.returncode == code, run.stdout + run.stderr


@pytest.mark.parametrize("op", SHARE)
def test_the_fuzz_finds_a_wrong_result(op, monkeypatch):
    """The check itself: an operator that is wrong in one element of some shapes is caught."""
    right = getattr(torch_pmpp, op)

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        if result.dim() == 2 and result.shape[0] > 8 and result.shape[1] > 8:
            last = result[-1, -1:].contiguous().view(torch.uint8)
            result[-1, -1:] = (last ^ 1).view(result.dtype) if result.dtype != torch.bool else ~result[-1, -1:]
        return result

    monkeypatch.setattr(torch_pmpp, op, wrong)
    with pytest.raises(pytest.fail.Exception, match="repeat: python -m pytest"):
        fuzz(op, "cpu", 60)
