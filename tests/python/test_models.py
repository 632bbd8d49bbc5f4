"""The pages that benchmarks/models.py makes of comparisons of whole models and of PyTorch's own checks."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = {
    "model": "gpt2",
    "options": ["batch=8"],
    "device": "NVIDIA H200",
    "torch": "2.11.0+cu130",
    "date": "2026-11-30",
    "source_digest": "0" * 64,
    "dtype": "float32",
    "autocast": "bfloat16",
    "tf32": False,
    "parameters": 124_439_808,
    "rows": [
        {"mode": "eager", "what": "forward", "pytorch": 0.012, "ours": 0.010, "relative": 1e-3, "largest": 0.5},
        {"mode": "compiled", "what": "training", "pytorch": 0.1, "ours": 0.2, "relative": 2e-3, "largest": 0.25},
    ],
    "products": [
        {
            "function": "bmm",
            "batch": 4,
            "m": 1,
            "n": 2,
            "k": 3,
            "dtype": "bfloat16",
            "layout": "NT",
            "count": 12,
            "pytorch": 3e-6,
            "ours": 6e-6,
        }
    ],
    "agrees": True,
}
COUNT = {"op": "mm", "dtype": "float32", "off_passed": 1999, "off_failed": 1, "on_passed": 1998, "on_failed": 2}
CHECKS = {"device": "cpu", "torch": "2.11.0", "counts": [{**COUNT, "only_off": ["out 3"]}]}


@pytest.fixture(scope="module")
def models():
    sys.path.insert(0, str(ROOT))
    from benchmarks import models

    yield models
    sys.path.remove(str(ROOT))


@pytest.fixture
def results(tmp_path):
    for folder, name, content in (("models", "gpu-gpt2", RECORD), ("opinfo-switch", "cpu", CHECKS)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.fixture
def readme(models, tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{models.BEGIN}\nold\n{models.END}\nafter\n")
    return path


def test_page_and_readme_show_times_distances_products_and_checks(models, results, readme):
    arguments = ["--results", str(results), "--readme", str(readme)]
    assert models.main([*arguments, "--check"]) == 1
    assert models.main(arguments) == 0
    assert models.main([*arguments, "--check"]) == 0
    page, text = (results / "models" / "gpu-gpt2.md").read_text(), readme.read_text()
    for each in (page, text):
        assert (
            "| gpt2 | float32, autocast to bfloat16 | eager | forward | 12.0 | 10.0 | 1.20 | 1.0e-03 | 5.0e-01 |"
            in each
        )
        assert "| compiled | training | 100 | 200 | 0.50 |" in each
        assert "NVIDIA H200, PyTorch 2.11.0+cu130, 2026-11-30, sources `000000000000`, **stale**" in each
    assert "| `bmm` | 4 x 1 x 2 x 3 | bfloat16 | NT | 12 | 3.0 | 6.0 | 0.50 |" in page
    assert "124.4 million parameters" in page
    assert "results agree within" in page
    assert "Products of one training step" in page
    assert "| cpu | `mm` | 1,999 | 1 | 1,998 | 2 | 1 |" in text
    assert "| cpu | all | 1,999 | 1 | 1,998 | 2 | 1 |" in text
    assert f"[gpu-gpt2]({results.as_posix()}/models/gpu-gpt2.md)" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "Not run" not in text


def test_checks_that_were_not_run_are_named(models, results, readme):
    missing = ["mm complex128 3/8", "addmm (decomposed) int8", "mm float64 1/8", "nn.functional.linear bool"]
    partial = {**CHECKS, "device": "cuda", "missing": missing}
    (results / "opinfo-switch" / "cuda.json").write_text(json.dumps(partial))
    assert models.main(["--results", str(results), "--readme", str(readme)]) == 0
    expected = "parts of an operator and dtype: `mm` 2, `addmm (decomposed)` 1, `nn.functional.linear` 1."
    assert f"\nNot run on cuda, {expected}\n" in readme.read_text()


def test_figures_of_the_same_sources_are_not_stale_and_disagreement_is_shown(models, results):
    record = {**RECORD, "agrees": False, "rows": RECORD["rows"][:1]}
    page = models.document("name", record, RECORD["source_digest"])
    assert "stale" not in page
    assert "results **do not agree** within" in page
    assert "Products of one forward pass" in page
    assert models.numbers({"dtype": "float32", "autocast": None, "tf32": True}) == "float32 (tf32)"


@pytest.mark.parametrize(
    ("content", "text"), [("{", "is damaged"), ("[]", "is damaged"), ('{"model": "gpt2"}', "lacks agrees, date")]
)
def test_a_file_that_is_no_record_is_named(models, results, content, text, capsys):
    path = results / "models" / "other.json"
    path.write_text(content)
    assert models.main(["--results", str(results)]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert str(path) in error


def test_a_readme_without_markers_is_refused(models, results, readme, capsys):
    readme.write_text("no markers")
    assert models.main(["--results", str(results), "--readme", str(readme)]) == 2
    assert "expected one <!-- models:begin -->" in capsys.readouterr().err


def test_committed_pages_and_readme_are_what_it_makes(models, capsys):
    assert models.main(["--check"]) == 0, capsys.readouterr().err
