"""The contract is what the operators promise, row by row. Every row has tests that carry its name."""

import pathlib
import re

import pytest

# What the operators promise, tiled_matmul first -> what its tests are called after `test_row_`.
ROWS = {
    "dtypes, CPU and CUDA alike": "dtypes",
    "accumulation": "accumulation",
    "order of checks": "order_of_checks",
    "result": "result",
    "ranks, shapes": "ranks_shapes",
    "devices": "devices",
    "strides": "strides",
    "size": "size",
    "out=": "out",
    "NaN, Inf": "nan_inf",
    "conj and neg views, zero tensors": "conj_neg_zero",
    "sparse, quantized, nested": "sparse_quantized_nested",
    "autograd": "autograd",
    "torch.func": "func",
    "vmap": "vmap",
    "autocast": "autocast",
    "torch.compile": "compile",
    "export": "export",
    "CUDA": "cuda",
    "determinism": "determinism",
    "float32 mode": "float32_mode",
    "profiling": "profiling",
    "distribution": "distribution",
    "transpose: any dtype, bit for bit": "transpose_dtypes",
    "transpose: always fresh memory": "transpose_fresh_memory",
    "transpose: the parity function": "transpose_parity",
    "transpose: ranks": "transpose_ranks",
    "transpose: conj and neg bits": "transpose_conj_and_neg",
    "transpose: zero tensors": "transpose_zero_tensors",
    "transpose: any strides": "transpose_strides",
    "transpose: size": "transpose_size",
    "transpose: out=": "transpose_out",
    "transpose: backward is the same operator": "transpose_autograd",
    "transpose: vmap": "transpose_vmap",
    "transpose: meta": "transpose_meta",
    "transpose: compile": "transpose_compile",
    "transpose: DTensor": "transpose_distribution",
    "transpose: no autocast rule": "transpose_no_autocast",
    "transpose: quantized and sparse": "transpose_quantized",
    "transpose: algorithms": "transpose_algorithm",
    "transpose: determinism": "transpose_determinism",
    "transpose: order of checks": "transpose_order_of_checks",
}


@pytest.fixture(scope="module")
def names():
    folder = pathlib.Path(__file__).parent
    return {
        name
        for file in folder.glob("test_*.py")
        for name in re.findall(r"^def test_row_(\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }


@pytest.mark.parametrize("row", ROWS)
def test_the_row_has_tests_of_its_name(names, row):
    assert any(name == ROWS[row] or name.startswith(ROWS[row] + "_") for name in names)


def test_every_test_of_a_row_belongs_to_a_known_row(names):
    for name in names:
        assert any(name == prefix or name.startswith(prefix + "_") for prefix in ROWS.values()), name
