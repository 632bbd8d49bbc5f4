"""One random case of either operator as plain JSON, and the check that runs it."""

import json

import oracle
import torch

import torch_pmpp

REPEAT = "python -m pytest -q tests/python/test_fuzz.py --fuzz-case '{}'"


def repeat_line(case: dict) -> str:
    """The one line that runs this case again."""
    return "repeat: " + REPEAT.format(json.dumps(case, separators=(",", ":")))


def run(case: dict) -> None:
    """Checks one case; raises what is wrong. Nothing but the case decides what is run."""
    torch.manual_seed(case["seed"])
    check = {"tiled_matmul": _run_matmul, "padded_transpose": _run_transpose}[case["op"]]
    check(case, getattr(torch, case["dtype"]), case["device"])


def _run_matmul(case: dict, dtype: torch.dtype, device: str) -> None:
    m, n, k = case["m"], case["n"], case["k"]
    fill = oracle.whole_numbers(7) if case["exact"] else None
    a = oracle.matrix(m, k, dtype, device, case["a"], fill)
    b = oracle.matrix(k, n, dtype, device, case["b"], fill)
    if case["out"] is None:
        result = torch_pmpp.tiled_matmul(a, b, algorithm=case["algorithm"])
        oracle.assert_fresh_row_major(result, a, b)
        again = torch_pmpp.tiled_matmul(a, b, algorithm=case["algorithm"])
        oracle.assert_same_bits(again, result, "the second run")
    else:
        guarded = oracle.GuardedResult(m, n, dtype, device, case["out"])
        result = torch_pmpp.tiled_matmul(a, b, algorithm=case["algorithm"], out=guarded.out)
        guarded.check_surroundings()
    oracle.assert_product(result, a, b)
    if case["exact"] and (dtype.is_floating_point or dtype.is_complex):
        # |sum| <= 2 * 7 * 7 * k is exact in every accumulator: only the one rounding to 16 bits is left.
        expected = oracle.reference(a, b).to(dtype)
        assert torch.equal(oracle.host(result), expected), f"whole numbers differ; {oracle.describe(a, b)}"


def _run_transpose(case: dict, dtype: torch.dtype, device: str) -> None:
    x, expected = oracle.byte_matrix(case["m"], case["n"], dtype, device, case["a"])
    if case["out"] is None:
        result = torch_pmpp.padded_transpose(x, algorithm=case["algorithm"])
        oracle.assert_transposed_bytes(result, expected, x)
        return
    guarded = oracle.GuardedResult(case["n"], case["m"], dtype, device, case["out"])
    torch_pmpp.padded_transpose(x, algorithm=case["algorithm"], out=guarded.out)
    guarded.check_surroundings()
    got = oracle.raw_bytes(guarded.out)
    assert torch.equal(got, expected.flatten()), f"bits differ; x strides {x.stride()}, out strides {guarded.strides}"
