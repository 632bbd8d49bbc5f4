"""The tool that times every plan of a product (benchmarks/plans.py)."""

import json

import pytest
import torch

from benchmarks import plans


def test_products_are_read_as_they_are_written():
    assert plans.Product.parse("NT:3x4x5") == plans.Product("NT", 3, 4, 5, 0)
    assert plans.Product.parse("TN:30x40x50+1").offset == 1
    for text in ("NN:3x4", "XY:3x4x5", "NN:0x4x5", "3x4x5", "NN:3x4x5+"):
        with pytest.raises(ValueError, match="expected a product such as"):
            plans.Product.parse(text)
    assert [plans.Product.parse(text) for text in plans.PRODUCTS]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_operands_lie_as_the_product_says(layout):
    a, b = plans.Product.parse(f"{layout}:6x7x8+1").operands(torch.device("cpu"), torch.bfloat16)
    assert (a.shape, b.shape) == ((6, 8), (8, 7))
    assert a.stride() == ((1, 6) if layout[0] == "T" else (8, 1))
    assert b.stride() == ((1, 8) if layout[1] == "T" else (7, 1))
    assert a.data_ptr() % 4 == 2


def test_wrong_results_are_seen():
    a, b = torch.randn(9, 40), torch.randn(40, 7)
    right = a @ b
    assert plans.is_right(right, a, b)
    for wrong in (1.001 * right, right.fill_diagonal_(float("nan"))):
        assert not plans.is_right(wrong, a, b)


def test_complex_products_are_judged_by_both_parts():
    a, b = plans.Product.parse("NN:9x7x40").operands(torch.device("cpu"), torch.complex64)
    right = a @ b
    assert plans.is_right(right, a, b)
    assert not plans.is_right(right + 0.001j * right.abs().max(), a, b)


def test_every_plan_is_timed_and_saved(tmp_path, capsys):
    path = tmp_path / "plans.json"
    arguments = ["--device", "cpu", "--dtype", "float32", "--products", "NN:30x20x10,TT:5x6x7+1", "--seconds", "0.001"]
    assert plans.main([*arguments, "--output", str(path)]) == 0
    saved = json.loads(path.read_text())["products"]
    assert [each["product"]["layout"] for each in saved] == ["NN", "TT"]
    for each in saved:
        assert each["plans_us"]
        assert all(time > 0 for time in each["plans_us"].values())
        assert each["wrong"] == []
    assert capsys.readouterr().out.count("PyTorch") == 2


def test_wrong_arguments_are_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        plans.main(["--device", "cpu", "--products", "NN:3x4"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "NT:1024x512x64" in error
    assert error.count("\n") == 1
