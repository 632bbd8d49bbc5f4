"""`python -m torch_pmpp compare` and the GPT-2 example."""

import json
import os
import pathlib
import sys
import types

import pytest
import torch
from support import on_each_device, run_process
from torch import nn

import torch_pmpp
from torch_pmpp import _compare
from torch_pmpp.__main__ import main
from torch_pmpp._library import PACKAGE

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2_FILE = ROOT / "examples" / "python" / "gpt2.py"
# An installed package has no examples: there the model is a file like any other.
GPT2 = "gpt2" if _compare.source_tree() else str(GPT2_FILE)
SMALL = ["batch=2", "length=16", "layers=2", "width=32", "heads=4", "vocabulary=100"]


def compare(capsys, *arguments):
    code = main(["compare", *arguments, "--seconds", "0.01"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@on_each_device
@pytest.mark.parametrize("options", [[], ["--autocast", "bfloat16"], ["--dtype", "float64"], ["--tf32"]], ids=" ".join)
def test_gpt2_agrees_and_its_products_are_listed(capsys, tmp_path, device, options):
    record = tmp_path / "record.json"
    code, out, err = compare(capsys, GPT2, *SMALL, "--device", device, "--json", str(record), *options)
    assert (code, err) == (0, "")
    assert "Results agree within the rounding" in out
    figures = json.loads(record.read_text())
    assert figures["agrees"]
    assert figures["source_digest"] == torch_pmpp.build_info.source_digest
    assert (figures["tf32"], figures["torch"]) == ("--tf32" in options, torch.__version__)
    assert [(row["mode"], row["what"]) for row in figures["rows"]] == [("eager", "forward"), ("eager", "training")]
    assert all(row["pytorch"] > 0 and row["ours"] > 0 for row in figures["rows"])
    # Four products a layer and the head, each with two gradients. On a GPU PyTorch has no fused attention for float64,
    # so that its two products a layer are seen as well.
    attention = 2 if device == "cuda" and "float64" in options else 0
    assert sum(p["count"] for p in figures["products"]) == 3 * ((4 + attention) * 2 + 1)
    heads = [p for p in figures["products"] if (p["function"], p["m"], p["n"], p["k"]) == ("mm", 32, 100, 32)]
    assert [p["count"] for p in heads] == [1]
    dtype = "bfloat16" if "bfloat16" in options else "float64" if "float64" in options else "float32"
    assert {p["dtype"] for p in figures["products"]} == {dtype}
    assert "32 x 100 x 32" in out
    assert f"taken     addmm on {device}" in out


@on_each_device
def test_gpt2_compiled(capsys, device, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    code, out, _ = compare(capsys, GPT2, *SMALL, "--device", device, "--mode", "compiled", "--what", "training")
    torch._dynamo.reset()
    assert code == 0
    assert "compiled  training" in out


@on_each_device
def test_the_example_trains_alike_with_the_switch(device):
    done = run_process(
        [sys.executable, GPT2_FILE, "--device", device, "--steps", "2"],
        300,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert done.returncode == 0, done.stderr
    assert "taken     addmm" in done.stdout


def write_model(tmp_path, body):
    path = tmp_path / "model_of_a_test.py"
    path.write_text(f"import torch\nfrom torch import nn\n\n{body}\n")
    return path


def test_a_file_of_the_user(capsys, tmp_path):
    path = write_model(
        tmp_path,
        "def build(batch=3, width=8):\n    return nn.Sequential(nn.Linear(width, 5), nn.Dropout(), nn.Linear(5, 2)), "
        "(torch.randn(batch, width),)",
    )
    code, out, err = compare(capsys, f"{path}:build", "width=6", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "3 x 5 x 6" in out
    assert "3 x 2 x 5" in out


def test_a_model_whose_results_differ_is_reported(capsys, tmp_path):
    path = write_model(
        tmp_path,
        "class Odd(nn.Module):\n    calls = 0\n\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.ones(2, 2))\n\n    def forward(self, x):\n        Odd.calls += 1\n"
        "        return (x @ self.w) * Odd.calls\n\n\ndef make():\n    return Odd(), (torch.ones(2, 2),)",
    )
    code, out, _ = compare(capsys, str(path), "--device", "cpu", "--what", "forward")
    assert code == 1
    assert "Results lie further apart than the rounding of float32" in out


def test_wrong_models_and_options_are_named_in_one_line(capsys, tmp_path, monkeypatch):
    for name in ("torchvision", "timm", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    path = write_model(tmp_path, "def make(batch=1):\n    return nn.Identity(), (torch.ones(batch, 1),)")
    cases = {
        ("bert",): "unknown model 'bert'; expected gpt2, torchvision:NAME",
        ("nowhere.py",): "there is no file nowhere.py",
        (f"{path}:other",): "has no function other(batch, ...)",
        (str(path), "depth=3"): "unexpected keyword argument 'depth'",
        (str(path), "batch"): "expected an option of the form name=3, but got 'batch'",
        (str(path), "batch=two"): "expected an option of the form name=3",
        ("torchvision:resnet18",): "torchvision is not installed",
        ("timm:vit",): "timm is not installed",
        ("transformers:bert",): "transformers is not installed",
    }
    for arguments, text in cases.items():
        code, out, err = compare(capsys, *arguments, "--device", "cpu")
        assert (code, out) == (2, "")
        assert text in err
        assert err.count("\n") == 1


class Stub(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 3)) if tokens else nn.LazyLinear(3)
        self.default_cfg = {"input_size": (3, 8, 8)}

    def forward(self, x):
        return {"hidden": self.body(x if x.dtype == torch.int64 else x.flatten(1)), "ids": x.shape}


def test_models_of_other_libraries_are_built_without_weights(capsys, monkeypatch):
    asked = []

    def note(*arguments, **options):
        asked.append((arguments, options))
        return Stub(tokens=False)

    class Config:
        @staticmethod
        def for_model(name, **options):
            asked.append((name, options))
            return types.SimpleNamespace(vocab_size=11)

    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=types.SimpleNamespace(get_model=note)))
    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=note))
    monkeypatch.setitem(
        sys.modules,
        "transformers",
        types.SimpleNamespace(
            AutoConfig=Config, AutoModel=types.SimpleNamespace(from_config=lambda config: Stub(tokens=True))
        ),
    )
    for name, inputs in (
        ("torchvision:resnet18", (2, 3, 224, 224)),
        ("timm:vit", (2, 3, 8, 8)),
        ("transformers:bert", (2, 6)),
    ):
        options = {"batch": 2, "length": 6, "layers": 1} if name.startswith("trans") else {"batch": 2}
        model, (x,) = _compare.make_model(name, options)
        assert tuple(x.shape) == inputs
        assert len(_compare._tensors(model(x))) == 1
    assert asked == [
        (("resnet18",), {"weights": None}),
        (("vit",), {"pretrained": False}),
        ("bert", {"layers": 1}),
    ]


def test_rounds_of_short_calls_hold_as_many_as_fill_them(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(_compare.time, "perf_counter", lambda: clock[0])
    calls = []

    def call():
        calls.append(None)
        clock[0] += 0.001

    theirs, ours = _compare.time_both(call, "cpu", 0.0, least=0.01)
    assert theirs == pytest.approx(0.001)
    assert ours == pytest.approx(0.001)
    assert len(calls) == 2 * 2 + 2 * 3 * 10
    calls.clear()
    _compare.time_both(call, "cpu", 0.05)
    assert 48 <= len(calls) - 2 <= 52


@on_each_device
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torchvision:resnet18", ["batch=2", "size=64"]),
        ("timm:vit_tiny_patch16_224", ["batch=1"]),
        (
            "transformers:bert",
            [
                *("batch=2", "length=16", "num_hidden_layers=2", "hidden_size=32"),
                *("num_attention_heads=4", "intermediate_size=64", "vocab_size=100"),
            ],
        ),
        (
            "transformers:vit",
            ["batch=1", "num_hidden_layers=1", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_installed_libraries(capsys, device, name, options):
    pytest.importorskip(name.partition(":")[0])
    code, out, err = compare(capsys, name, *options, "--device", device)
    assert (code, err) == (0, "")
    assert "Results agree within the rounding" in out
    assert f" on {device}: " in out


def test_distance_sees_nan_and_the_largest_element():
    ones = torch.ones(4)
    assert _compare.distance([ones], [ones]) == (0.0, 0.0)
    assert _compare.distance([ones * torch.nan], [ones]) == (float("inf"), float("inf"))
    relative, largest = _compare.distance([ones, torch.tensor([3.0, 4.0])], [ones, torch.tensor([3.0, 5.0])])
    assert largest == 1.0
    assert relative == pytest.approx(1 / 34**0.5)
    # Rounding alone, beside a tensor of some size.
    noise = torch.full((4,), 1e-9)
    assert _compare.distance([ones, -noise], [ones, noise])[0] == pytest.approx(2e-7, rel=1e-3)
    assert _compare.distance([-noise], [noise])[0] == pytest.approx(2.0)


def test_recorded_products_are_repeated_in_the_same_layout():
    a, b = torch.randn(4, 3), torch.randn(5, 3).t()
    with _compare.RecordProducts() as recorder:
        torch.mm(a, b)
        torch.addmm(torch.ones(5), a, b, beta=2)
        torch.bmm(a.expand(2, 4, 3), torch.randn(2, 3, 5)[:, :, ::2])
        torch.mm(a, b)
    assert {(p.function, p.layout, p.batch): n for p, n in recorder.counts.items()} == {
        ("mm", "NT", 1): 2,
        ("addmm", "NT", 1): 1,
        ("bmm", "NS", 2): 1,
    }
    for product in recorder.counts:
        shape = (2, 4, 3) if product.function == "bmm" else (4, 5)
        assert recorder.again(product)().shape == shape
    torch_pmpp.reset_stats()
