"""Links of the README and the changelog lead somewhere; the table of what is supported names tests that are there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def headings(text):
    """The anchors that GitHub makes of the headings: lower case, punctuation dropped, spaces as hyphens."""
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", lines, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_links_lead_to_files_and_headings_that_exist(page):
    if not (ROOT / page).is_file():
        pytest.skip("the tests run outside a checkout")
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    assert links or page != "README.md"
    for link in links:
        path, _, anchor = link.partition("#")
        target = ROOT / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in headings(target.read_text(encoding="utf-8")), link


def supported():
    """(feature, device, cell) of the table."""
    if not (ROOT / "README.md").is_file():
        return []
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## What is supported\n")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    devices = rows[0][1:]
    return [(row[0], device, cell) for row in rows[2:] for device, cell in zip(devices, row[1:], strict=True)]


@pytest.mark.parametrize(("feature", "column", "cell"), supported(), ids=lambda value: value[:24])
def test_every_yes_links_to_a_test_of_that_device(feature, column, cell):
    assert column in ("CPU", "CUDA")
    links = LINK.findall(cell)
    assert ("yes" in cell) == bool(links), cell
    assert len(re.findall(r"\byes\b", cell)) == len(links)
    for link in links:
        assert link.startswith("tests/"), link
        text = (ROOT / link).read_text(encoding="utf-8")
        assert re.search(r"^def test_|\bTEST(_P)?\(|\bint main\(", text, re.MULTILINE), link
        if column == "CUDA":
            assert re.search(r"on_each_(device|algorithm)|needs_cuda|mark\.cuda|kCUDA|HAS_CUDA", text), link


def test_the_table_is_there():
    if not (ROOT / "README.md").is_file():
        pytest.skip("the tests run outside a checkout")
    assert len(supported()) >= 30
