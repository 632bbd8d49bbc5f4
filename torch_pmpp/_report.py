"""`python -m torch_pmpp report`: a results file as one HTML page that shows itself without anything from elsewhere.

Tables are those of benchmarks/report.py, plots are drawn into the page. With a second file, every case that both have
stands side by side.
"""

from __future__ import annotations

import argparse
import io
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from . import _roofline
from ._devices import device_called
from ._library import source_tree
from ._output import Parser, print_json

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .8rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: .2rem .6rem; text-align: left; white-space: nowrap; }
th.figure, td.figure { text-align: right; font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, monospace; font-size: .93em; }
blockquote { border-left: 4px solid #c33; margin: .8rem 0; padding: .2rem 1rem; }
figure { margin: 1rem 0; background: #fff; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
"""


# ---- Markdown, as benchmarks/report.py writes it ---------------------------------------------------------------------


def inline(text: str) -> str:
    """Bold words, code and links of one line; a link to a file beside the page becomes its words alone."""
    parts = re.split(r"(`[^`]*`)", text)
    for index, part in enumerate(parts):
        if part.startswith("`") and part.endswith("`") and len(part) > 1:
            parts[index] = f"<code>{escape(part[1:-1])}</code>"
            continue
        safe = escape(part, quote=False)
        safe = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
        parts[index] = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", safe)
    return "".join(parts)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def to_html(lines: Sequence[str]) -> str:
    """Headings, tables, quotes and paragraphs; pictures are left out, since the page draws its own."""
    out: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("|") and index + 1 < len(lines) and set(lines[index + 1]) <= set("|-: "):
            right = [cell.endswith(":") for cell in _cells(lines[index + 1])]
            tags = [' class="figure"' if each else "" for each in right]
            head = "".join(f"<th{tag}>{inline(cell)}</th>" for tag, cell in zip(tags, _cells(line), strict=True))
            out.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
            index += 2
            while index < len(lines) and lines[index].startswith("|"):
                row = zip(tags, _cells(lines[index]), strict=True)
                out.append("<tr>" + "".join(f"<td{tag}>{inline(cell)}</td>" for tag, cell in row) + "</tr>")
                index += 1
            out.append("</tbody></table>")
            continue
        heading = re.match(r"(#+) (.*)", line)
        if heading:
            level = len(heading[1])
            out.append(f"<h{level}>{inline(heading[2])}</h{level}>")
        elif line.startswith("> "):
            out.append(f"<blockquote>{inline(line[2:])}</blockquote>")
        elif line.strip() and not line.startswith("!["):
            out.append(f"<p>{inline(line)}</p>")
        index += 1
    return "\n".join(out)


# ---- comparing two files -------------------------------------------------------------------------------------------


def compared(ours: Iterable[Mapping[str, Any]], theirs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cases that both files have, with the times of both; `change` is the other file's time over this one's."""
    fields = ("op", "dtype", "precision", "layout", "offset", "m", "n", "k", "batch", "mode", "algorithm")

    def key(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(record.get(name) for name in fields)

    other = {key(record): record for record in theirs}
    rows = []
    for record in ours:
        match = other.get(key(record))
        if match is None or not record["ours_us"] or not match["ours_us"]:
            continue
        rows.append(
            {
                **{name: record.get(name) for name in fields},
                "a_us": record["ours_us"],
                "b_us": match["ours_us"],
                "change": match["ours_us"] / record["ours_us"],
            }
        )
    return rows


def _comparison(rows: Sequence[Mapping[str, Any]], a: str, b: str) -> list[str]:
    if not rows:
        return ["## A and B", "", "The files have no case in common.", ""]
    changes = [row["change"] for row in rows]
    lines = [
        "## A and B",
        "",
        f"A is {a}, B is {b}. A change above 1 says that A is faster; the geometric mean over {len(rows)} common "
        f"cases is **{statistics.geometric_mean(changes):.3f}**.",
        "",
        "| operator | shape | dtype | layout | mode | algorithm | A, us | B, us | change |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for row in sorted(rows, key=lambda each: each["change"]):
        shape = " x ".join(str(row[name]) for name in "mnk" if row[name] is not None)
        dtype = row["dtype"] + (" (tf32)" if row["precision"] == "tf32" else "")
        cells = [f"`{row['op']}`", shape, dtype, row["layout"], row["mode"], f"`{row['algorithm']}`"]
        lines.append("| " + " | ".join([*cells, *(f"{row[name]:.4g}" for name in ("a_us", "b_us", "change"))]) + " |")
    return [*lines, ""]


# ---- the page ------------------------------------------------------------------------------------------------------


def svg_of(figure: Any) -> str:
    """A figure of matplotlib as an element of a page, the same text each time."""
    import matplotlib
    import matplotlib.pyplot as plt

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "pmpp", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    # Without the prologue, and without the metadata, which name vocabularies elsewhere.
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def _unique_ids(svg: str, prefix: str) -> str:
    """Pictures of one page must not share the names that they refer to."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    return re.sub(r'(xlink:href="#|url\(#)([^")]+)', rf"\g<1>{prefix}-\2", svg)


def page(title: str, pictures: Sequence[tuple[str, str]], lines: Sequence[str]) -> str:
    """The HTML text: pictures as (caption, SVG), then the Markdown lines."""
    figures = "\n".join(
        f"<figure>\n{_unique_ids(svg, f'p{index}')}\n<figcaption>{escape(caption)}</figcaption></figure>"
        for index, (caption, svg) in enumerate(pictures)
    )
    head, _, rest = to_html(lines).partition("</h1>")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{STYLE}</style></head>\n<body>\n{head}</h1>\n{figures}\n{rest}\n</body></html>\n"
    )


def build(path: Path, against: Path | None, benchmarks: Any, with_plots: bool) -> tuple[str, dict[str, Any]]:
    """The page of a results file, and what of it is worth printing. `benchmarks` is the module benchmarks.report."""
    results = benchmarks.Results.read(path)
    digest = benchmarks.source_digest(benchmarks.ROOT)
    lines = benchmarks.document(results, digest).splitlines()
    rows: list[dict[str, Any]] = []
    if against is not None:
        other = benchmarks.Results.read(against)
        rows = compared(results.records, other.records)
        named = [
            f"{each.path.name} ({each.header.get('gpu') or each.header.get('cpu')}, {each.header['date']}, sources "
            f"`{each.header['source_digest'][:12]}`)"
            for each in (results, other)
        ]
        lines += _comparison(rows, *named)
    pictures = [(caption, svg_of(draw())) for caption, draw in _pictures(results, benchmarks)] if with_plots else []
    title = f"pmpp: {results.header.get('gpu') or results.header.get('cpu')}, {results.header['date']}"
    facts = {
        "records": len(results.records),
        "pictures": len(pictures),
        "common_cases": len(rows),
        "mean_change": statistics.geometric_mean([row["change"] for row in rows]) if rows else None,
    }
    return page(title, pictures, lines), facts


def _pictures(results: Any, benchmarks: Any) -> list[tuple[str, Callable[[], Any]]]:
    found: list[tuple[str, Callable[[], Any]]] = []
    device = device_called(results.header.get("gpu") or "")
    if device is not None and (measured := _roofline.points(results.records, device)):
        found.append(("The ladder below the roofs", lambda: _roofline.figure(device, measured, device.title)))
    found.append(("Rates and ratios", lambda: benchmarks.rates_figure(results)))
    if benchmarks.has_transpose_plot(results):
        found.append(("Transposes beside a copy", lambda: benchmarks.transposes_figure(results)))
    if benchmarks.has_k_plot(results):
        found.append(("Products over k beside torch.mm", lambda: benchmarks.k_figure(results)))
    return found


# ---- the command ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m torch_pmpp report`."""
    result = Parser(
        prog="python -m torch_pmpp report", description="One HTML page of all plots and tables of a results file."
    )
    result.add_argument("results", type=Path, help="a results file, as `bench` writes it")
    result.add_argument("--against", type=Path, metavar="FILE", help="another one, to compare with case by case")
    result.add_argument("--output", type=Path, metavar="FILE.html", help="the page (default: <results>.html here)")
    result.add_argument("--no-plot", action="store_true", help="tables alone, without matplotlib")
    result.add_argument("--json", action="store_true", help="print one JSON object about the page")
    return result


def run(arguments: Sequence[str]) -> int:
    """Writes the page; returns the exit code."""
    options = parser().parse_args(arguments)
    program = "python -m torch_pmpp report"
    root = source_tree()
    if root is None or not (root / "benchmarks" / "report.py").is_file():
        print(
            f"{program}: the tables are made by the source tree, and this is an installed package without it; run it "
            "in a checkout",
            file=sys.stderr,
        )
        return 2
    # First on the path: other distributions are known to install a top-level `benchmarks`.
    sys.path.insert(0, str(root))
    from benchmarks import report as benchmarks

    output = options.output or Path(f"{options.results.stem}.html")
    try:
        if not options.no_plot:
            _roofline.use_without_display()
        text, facts = build(options.results, options.against, benchmarks, not options.no_plot)
    except ImportError:
        print(f"{program}: matplotlib is not installed (pip install matplotlib, or --no-plot)", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"{program}: not a results file of this version: it lacks {error}", file=sys.stderr)
        return 2
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"{program}: cannot write {output}: {error.strerror}", file=sys.stderr)
        return 1
    if options.json:
        print_json({"file": str(output), "bytes": len(text.encode()), **facts})
        return 0
    print(f"{output}: {facts['records']} records, {facts['pictures']} plots, {len(text.encode()) / 1e6:.1f} MB")
    if options.against:
        mean = facts["mean_change"]
        words = "" if mean is None else f", geometric mean of B's time over A's {mean:.3f}"
        print(f"{facts['common_cases']} cases in both files{words}")
    return 0
