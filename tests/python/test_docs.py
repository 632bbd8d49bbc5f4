"""The pages of docs/: made parts are up to date, links lead somewhere, no figure is written by hand."""

import pathlib
import re
import sys

import pytest

# First on the path: other distributions are known to install a top-level `benchmarks`.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import docs
from benchmarks.results import Results

ROOT = docs.ROOT
PAGES = docs.pages()
RESULTS = Results.read(ROOT / "benchmarks" / "results" / docs.RESULTS)


def test_there_are_ten_pages_and_each_is_in_the_list_once():
    assert [page.name.split("-")[0] for page in PAGES] == [str(number) for number in range(1, 11)]
    index = (docs.DOCS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\d+-[^)]*\.md)\)", index) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_code_a_measured_step_a_picture_and_leads_on(page):
    text = page.read_text(encoding="utf-8")
    assert "<!-- code: " in text
    assert "<!-- steps: " in text
    assert "![" in text
    last = "README.md" if page == PAGES[-1] else PAGES[PAGES.index(page) + 1].name
    assert f"({last})" in text.splitlines()[-1]
    # Short: a page is read in a few minutes.
    assert len(docs.without_blocks(text).split()) < 600


def test_made_parts_and_pictures_are_what_the_sources_and_results_make():
    """`python benchmarks/report.py --docs` renews them."""
    for path, text in docs.wanted(RESULTS).items():
        assert path.read_text(encoding="utf-8") == text, f"{path} is not up to date"


@pytest.mark.parametrize("page", [*PAGES, docs.DOCS / "README.md"], ids=lambda page: page.stem)
def test_links_lead_to_files_and_lines(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    for link in links:
        target, _, anchor = link.partition("#")
        assert not link.startswith("http"), f"{link}: pages refer to this repository alone"
        path = (page.parent / target).resolve()
        # The plot of the measured ladder is drawn with matplotlib, as those of the results are.
        assert path.is_file(), link
        if lines := re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor):
            count = len(path.read_text(encoding="utf-8").splitlines())
            assert 1 <= int(lines[1]) <= int(lines[2] or lines[1]) <= count, link
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_measured_figure_is_written_by_hand(page):
    """Rates, times and shares stand in made blocks; the textbook's own figures are those that its tests know."""
    by_hand = docs.without_blocks(page.read_text(encoding="utf-8"))
    found = set(re.findall(r"[\d,.]+ ?(?:TFLOP/s|GFLOP/s|GB/s|TB/s|us|ms|%)(?!\w)", by_hand))
    textbook = {"1,555 GB/s", "19,500 GFLOP/s", "389 GFLOP/s", "62 %", "50 %"}
    assert found <= textbook, found - textbook


def test_numbers_of_a_block_follow_the_results():
    """Other results give another block: the figures come from the file and nowhere else."""
    changed = Results(RESULTS.path, RESULTS.header, [dict(record) for record in RESULTS.records])
    before = docs.steps_block("tiled_matmul float32 4096 naive tiled", changed)
    for record in changed.records:
        if record["op"] == "tiled_matmul":
            record["ours_us"] *= 2
    after = docs.steps_block("tiled_matmul float32 4096 naive tiled", changed)

    def rate(lines, name):
        return float(next(line for line in lines if line.startswith(f"| `{name}`")).split("|")[3])

    for name in ("naive", "tiled"):
        assert rate(after, name) == pytest.approx(rate(before, name) / 2, rel=0.01)
    record = next(
        each
        for each in RESULTS.records
        if (each["algorithm"], each["dtype"]) == ("tiled", "float32")
        and each["m"] == each["n"] == each.get("k") == 4096
    )
    assert rate(before, "tiled") == pytest.approx(2 * 4096**3 / record["ours_us"] / 1e6, rel=0.01)


def test_excerpt_follows_its_lines(tmp_path):
    (tmp_path / "a.cpp").write_text("zero\n  one {\n#pragma x\n    two\n  }\nlast }\n", encoding="utf-8")
    assert docs.code_block("a.cpp | one { | }", tmp_path) == [
        "[`a.cpp`, lines 2 to 5](../a.cpp#L2-L5)",
        "",
        "```cpp",
        "one {",
        "#pragma x",
        "  two",
        "}",
        "```",
    ]
    (tmp_path / "a.cpp").write_text("added\nzero\n  one {\n  }\n", encoding="utf-8")
    assert docs.code_block("a.cpp | one { | }", tmp_path)[0] == "[`a.cpp`, lines 3 to 4](../a.cpp#L3-L4)"
    assert docs.code_block("a.cpp | one { | one", tmp_path)[0] == "[`a.cpp`, line 3](../a.cpp#L3)"
    assert docs.code_block("a.cpp | added | added +1", tmp_path)[0] == "[`a.cpp`, lines 1 to 2](../a.cpp#L1-L2)"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("<!-- code: a.cpp | none | } -->\n<!-- end -->", "a.cpp has 0 lines with 'none'"),
        ("<!-- code: a.cpp | x | } -->\n<!-- end -->", "a.cpp has 2 lines with 'x'"),
        ("<!-- code: a.cpp | y | none -->\n<!-- end -->", "no line with 'none' after 'y'"),
        ("<!-- code: b.cpp | x | } -->\n<!-- end -->", "b.cpp: No such file"),
        ("<!-- code: a.cpp | x -->\n<!-- end -->", "expected code: PATH"),
        (
            "<!-- steps: tiled_matmul float32 4096 fast -->\n<!-- end -->",
            "has no tiled_matmul of 4096 in float32 by fast",
        ),
        ("<!-- steps: tiled_matmul float32 4096 fast? slow -->\n<!-- end -->", "in float32 by slow"),
        ("<!-- turns: padded -->\n", "is not closed"),
        ("<!-- other: padded -->\n<!-- end -->", "its kind is not"),
    ],
)
def test_broken_blocks_say_what_is_wrong(block, message, tmp_path):
    (tmp_path / "a.cpp").write_text("x\nx\ny\n", encoding="utf-8")
    text = block if block.endswith("-->") else block + "text\n"
    # A block that is not closed swallows nothing of what follows.
    if "is not closed" in message:
        text += "<!-- turns: shared -->\n<!-- end -->\n<!-- end -->"
    with pytest.raises(docs.BrokenPage, match=re.escape(message)):
        docs.fill(text, RESULTS, tmp_path)


def test_pictures_are_well_formed_and_used():
    import xml.etree.ElementTree as ElementTree

    used = {
        pathlib.Path(link).stem
        for page in PAGES
        for link in re.findall(r"\]\(images/([^)]+)\)", page.read_text("utf-8"))
    }
    assert used == {*docs.PICTURES, docs.ROOFLINE}
    for name, draw in docs.PICTURES.items():
        root = ElementTree.fromstring(draw())
        width, height = float(root.get("width")), float(root.get("height"))
        for element in root.iter("{http://www.w3.org/2000/svg}rect"):
            if element.get("x") is not None:
                assert float(element.get("x")) + float(element.get("width")) <= width, name
                assert float(element.get("y")) + float(element.get("height")) <= height, name
