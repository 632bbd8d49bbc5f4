"""One random case of either operator, or of one plan of products, as plain JSON, and the check that runs it."""

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
    checks = {"tiled_matmul": _run_matmul, "tiled_matmul_plan": _run_plan, "padded_transpose": _run_transpose}
    check = checks[case["op"]]
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


def _run_plan(case: dict, dtype: torch.dtype, device: str) -> None:
    """alpha * (a @ b) + beta * c by one of the algorithm's plans, twice. A geometry ends with the batch stride."""
    m, n, k, count = case["m"], case["n"], case["k"], case["batch"]
    fill = oracle.whole_numbers(7) if case["exact"] else None

    def operand(rows, columns, geometry):
        return oracle.matrix(rows, columns, dtype, device, geometry[:3], fill, batch=(count, geometry[3]))

    a, b = operand(m, k, case["a"]), operand(k, n, case["b"])
    c = None if case["c"] is None else operand(m, n, case["c"])
    guarded = oracle.GuardedResult(m, n, dtype, device, case["out"][:3], batch=(count, case["out"][3]))
    out = guarded.out
    plans = torch.ops.pmpp._tiled_matmul_plans(a, b, case["algorithm"], out=out)
    assert plans, f"{case['algorithm']} has no plan"
    index = case["index"] % len(plans)
    scalars = {"c": c, "alpha": case["alpha"], "beta": case["beta"]}
    torch.ops.pmpp._tiled_matmul_with_plan(a, b, case["algorithm"], index, **scalars, out=out)
    first = oracle.host(out)
    out.fill_(oracle.poison(dtype))
    torch.ops.pmpp._tiled_matmul_with_plan(a, b, case["algorithm"], index, **scalars, out=out)
    what = f"{plans[index]}; strides a {a.stride()} b {b.stride()} out {out.stride()}"
    assert torch.equal(oracle.host(out).view(torch.int16), first.view(torch.int16)), f"the second run differs; {what}"
    guarded.check_surroundings()
    if not case["exact"]:
        for i in range(count):
            oracle.assert_product(first[i], oracle.host(a[i]), oracle.host(b[i]))
        return
    # Whole numbers below 2^24 throughout: exact in float32, so that one rounding is left.
    expected = case["alpha"] * torch.bmm(oracle.host(a).double(), oracle.host(b).double())
    if c is not None and case["beta"] != 0:
        expected += case["beta"] * oracle.host(c).double()
    assert torch.equal(first, expected.to(dtype)), f"whole numbers differ; {what}"


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
