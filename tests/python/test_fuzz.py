"""Random shapes, strides, offsets, dtypes and algorithms for both operators, and plans of products.

`--fuzz-examples N` sets the number of cases, `--fuzz-seed N` takes others, `--fuzz-case JSON` repeats the one that a
failure printed.
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
from support import HALF_DTYPES, MATMUL_DTYPES, SIZED_DTYPES, algorithms, all_dtypes, name_of, on_each_device

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


# Around the edges of the tiles of mma and wgmma, and of their steps of k; some of k so long that it is cut.
TILE_SIZES = st.one_of(
    st.sampled_from((1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257)), st.integers(1, 150)
)
TILE_INNER_SIZES = st.one_of(TILE_SIZES, st.integers(1, 700))


@st.composite
def batched_geometries(draw, count, rows, columns, injective=False):
    """(row stride, column stride, offset, batch stride); half of them with lines on multiples of 16 bytes."""
    aligned = draw(st.booleans())
    if aligned:
        by_rows, spare = draw(st.booleans()), 8 * draw(st.integers(0, 2))
        pitch = -(-(columns if by_rows else rows) // 8) * 8 + spare
        strides, offset = ([pitch, 1] if by_rows else [1, pitch]), 8 * draw(st.integers(0, 2))
    else:
        *strides, offset = draw(geometries(rows, columns, injective))
    kinds = ["after", "between"] if injective else ["after", "between", "shared"]
    kind = draw(st.sampled_from(kinds))
    if kind == "shared":
        return [*strides, offset, 0]
    if kind == "between":  # a line of each matrix in turn
        line = 0 if strides[0] >= strides[1] else 1
        # One line alone may have any stride, also one that is shorter than itself.
        apart = max(strides[line], ((rows, columns)[1 - line] - 1) * strides[1 - line] + 1)
        strides[line] = apart * count
        return [*strides, offset, apart]
    extent = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
    spare = draw(st.integers(0, 9))
    return [*strides, offset, -(-extent // 8) * 8 + 8 * spare if aligned else extent + spare]


@st.composite
def random_plan_cases(draw, device):
    """One plan of the two most demanding algorithms of a device, in batches and with the whole epilogue."""
    dtype = draw(st.sampled_from(HALF_DTYPES))
    m, n, k = draw(TILE_SIZES), draw(TILE_SIZES), draw(TILE_INNER_SIZES)
    count = draw(st.sampled_from((1, 1, 1, 2, 3)))
    exact = draw(st.booleans())
    case = {
        "op": "tiled_matmul_plan",
        "device": device,
        "dtype": name_of(dtype),
        "algorithm": draw(st.sampled_from(algorithms("tiled_matmul", device, dtype)[-2:])),
        "index": draw(st.integers(0, 99)),
        "m": m,
        "n": n,
        "k": k,
        "batch": count,
        "a": draw(batched_geometries(count, m, k)),
        "b": draw(batched_geometries(count, k, n)),
        "out": draw(batched_geometries(count, m, n, injective=True)),
        "c": draw(st.one_of(st.none(), batched_geometries(count, m, n))) if exact else None,
        "alpha": draw(st.integers(-3, 3)) if exact else 1,
        "beta": draw(st.integers(-2, 2)) if exact else 0,
        "exact": exact,
    }
    case["seed"] = draw(st.integers(0, 2**31 - 1))
    return case


def fuzz(op, device, examples, run=fuzz_cases.run, seed=None):
    """Runs that many cases, those of the seed, always the same ones; a failure is the smallest found, as one line that
    repeats it."""
    smallest = {}

    @hypothesis.settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(random_plan_cases(device) if op == "tiled_matmul_plan" else random_cases(op, device))
    def attempt(case):
        try:
            run(case)
        except Exception:
            smallest["case"] = case  # hypothesis runs the smallest failing case last
            raise

    if seed is not None:
        attempt = hypothesis.seed(seed)(attempt)
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
    examples = max(1, round(request.config.getoption("--fuzz-examples") * SHARE[op]))
    fuzz(op, device, examples, seed=request.config.getoption("--fuzz-seed"))


@on_each_device
def test_random_plans(request, device):
    """As many cases again, each with one of all the plans that could run it, not with the one that is chosen."""
    options = request.config
    fuzz("tiled_matmul_plan", device, options.getoption("--fuzz-examples"), seed=options.getoption("--fuzz-seed"))


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
            timeout=300,
            check=False,
        )
        assert run.returncode == code, run.stdout + run.stderr


def test_a_seed_names_its_cases():
    def cases(seed):
        seen = []
        fuzz("tiled_matmul", "cpu", 20, seen.append, seed)
        return seen

    assert cases(None) == cases(None)
    assert cases(7) == cases(7)
    assert len({json.dumps(cases(seed)) for seed in (None, 7, 8)}) == 3


def test_the_fuzz_finds_a_wrong_plan():
    """The check itself: a result that is wrong in one element is caught, and so is a write outside of it."""
    right = torch.ops.pmpp._tiled_matmul_with_plan

    def spoils(element):
        def run(case):
            def wrong(a, b, algorithm, index, *, out, **scalars):
                right(a, b, algorithm, index, out=out, **scalars)
                element(out).add_(4096)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch.ops.pmpp, "_tiled_matmul_with_plan", wrong)
                fuzz_cases.run(case)

        return run

    last = spoils(lambda out: out[-1, -1, -1:])
    outside = spoils(lambda out: out.as_strided((1,), (1,), len(out.untyped_storage()) // 2 - 3))
    for run in (last, outside):
        with pytest.raises(pytest.fail.Exception, match="repeat: python -m pytest"):
            fuzz("tiled_matmul_plan", "cpu", 60, run)


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
