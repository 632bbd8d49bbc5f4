#!/usr/bin/env python3
"""Makes the pages and the README's tables of whole models and of PyTorch's own checks under the switch.

    python -m torch_pmpp compare gpt2 --mode both --json benchmarks/results/models/<gpu>-gpt2-<dtype>.json
    python benchmarks/opinfo_switch.py --json benchmarks/results/opinfo-switch/<device>.json
    python benchmarks/models.py --readme     # benchmarks/results/models/*.md, and the README between its two markers
    python benchmarks/models.py --check      # writes nothing; fails if a file is not what would be written

Needs no torch.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.arguments import Parser  # noqa: E402
from benchmarks.digest import source_digest  # noqa: E402
from benchmarks.report import _table as table  # noqa: E402
from benchmarks.report import replace_section  # noqa: E402
from benchmarks.results import write_atomically  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- models:begin -->", "<!-- models:end -->"
RATIO = (
    "Ratio is PyTorch's time divided by ours, distance the largest ||ours - PyTorch|| / ||PyTorch|| "
    "(norms below a hundredth of the largest count as that hundredth) of an output"
)
RECORD_FIELDS = {
    *("model", "options", "parameters", "dtype", "rows", "products", "agrees"),
    *("device", "torch", "date", "source_digest"),
}
Record = dict[str, Any]


def read(folder: Path, fields: set[str]) -> dict[Path, Record]:
    """The JSON files of a folder by path; raises ValueError for one that lacks one of `fields`."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            missing = fields - record.keys()
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} is damaged ({error})") from error
        if missing:
            raise ValueError(f"{path} lacks {', '.join(sorted(missing))}")
        found[path] = record
    return found


def numbers(record: Record) -> str:
    """How the model computes: the dtype of its weights, and what products are cast to."""
    words = record["dtype"]
    if record.get("autocast"):
        words += f", autocast to {record['autocast']}"
    return words + (" (tf32)" if record.get("tf32") else "")


def source(record: Record, digest: str | None) -> str:
    """Where, when and of which sources the figures were taken, and whether those are other ones now."""
    stale = "" if record["source_digest"] == digest else ", **stale**: not those in this folder"
    sources = f"sources `{record['source_digest'][:12]}`{stale}"
    return f"{record['device']}, PyTorch {record['torch']}, {record['date']}, {sources}"


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    value = seconds * 1e3
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f}"


def runs(records: Sequence[Record]) -> list[str]:
    """One row for each way of running each model. Losses are shown as well as wins."""
    rows = [
        [
            record["model"],
            numbers(record),
            row["mode"],
            row["what"],
            milliseconds(row["pytorch"]),
            milliseconds(row["ours"]),
            f"{row['pytorch'] / row['ours']:.2f}",
            f"{row['relative']:.1e}",
            f"{row['largest']:.1e}",
        ]
        for record in records
        for row in record["rows"]
    ]
    columns = ("model", "dtype", "mode", "what", "PyTorch, ms", "pmpp, ms", "ratio", "distance", "largest difference")
    return [*table(columns, rows, 4), ""]


def products(record: Record) -> list[str]:
    """The products inside one model, the largest share of the arithmetic first as they were measured."""
    rows = []
    for product in record["products"]:
        batch = f"{product['batch']} x " if product["batch"] > 1 else ""
        rows.append(
            [
                f"`{product['function']}`",
                f"{batch}{product['m']} x {product['n']} x {product['k']}",
                product["dtype"],
                product["layout"],
                str(product["count"]),
                f"{product['pytorch'] * 1e6:,.1f}",
                f"{product['ours'] * 1e6:,.1f}",
                f"{product['pytorch'] / product['ours']:.2f}",
            ]
        )
    columns = ("function", "m x n x k", "dtype", "layout", "count", "PyTorch, us", "pmpp, us", "ratio")
    return [*table(columns, rows, 4), ""]


def document(name: str, record: Record, digest: str | None) -> str:
    """The page of one record."""
    command = " ".join(["python -m torch_pmpp compare", record["model"], *record["options"]])
    size = f"{record['parameters'] / 1e6:.1f} million parameters"
    agree = "agree" if record["agrees"] else "**do not agree**"
    trained = any(row["what"] == "training" for row in record["rows"])
    lines = [
        f"# {name}",
        "",
        f"`{command}`, {numbers(record)}: {size} ({source(record, digest)}).",
        "",
        f"{RATIO} (forward) or gradient (training); results {agree} within the rounding of the dtype.",
        "",
        *runs([record]),
        f"Products of one {'training step' if trained else 'forward pass'}, timed one by one. "
        "Layout of each operand: N row-major, T transposed, S neither.",
        "",
        *products(record),
    ]
    return "\n".join(lines).rstrip() + "\n"


def opinfo(records: Sequence[Record]) -> list[str]:
    """Counts of PyTorch's own checks, one row for each device and operator."""
    rows = []
    for record in records:
        counts = record["counts"]
        fields = ("off_passed", "off_failed", "on_passed", "on_failed")
        for op in [*dict.fromkeys(count["op"] for count in counts), None]:
            chosen = [count for count in counts if op is None or count["op"] == op]
            totals = [f"{sum(count[field] for count in chosen):,}" for field in fields]
            broken = sum(len(count["only_off"]) for count in chosen)
            rows.append([record["device"], "all" if op is None else f"`{op}`", *totals, str(broken)])
    columns = ("device", "operator", "off: passed", "failed", "on: passed", "failed", "fail only when on")
    lines = [*table(columns, rows, 2), ""]
    for record in records:
        if missing := record.get("missing"):
            # A part is named by operator, dtype, and its share where gradients are checked by differences.
            operators = Counter(re.sub(r" \w+( \d+/\d+)?$", "", part) for part in missing)
            parts = ", ".join(f"`{operator}` {count}" for operator, count in operators.items())
            lines += [f"Not run on {record['device']}, parts of an operator and dtype: {parts}.", ""]
    return lines


def _checked_sources(record: Record) -> str:
    digest = record.get("source_digest")
    return f"sources `{digest[:12]}`" if digest else "sources not recorded"


def readme_section(models: dict[Path, Record], checks: dict[Path, Record], digest: str | None, folder: str) -> str:
    """What stands between the README's markers."""
    lines = []
    sources = dict.fromkeys(source(record, digest) for record in models.values())
    for where in sources:
        chosen = {path: record for path, record in models.items() if source(record, digest) == where}
        pages = ", ".join(f"[{path.stem}]({folder}/models/{path.stem}.md)" for path in chosen)
        lines += [
            f"Whole models on {where}. {RATIO} or gradient:",
            "",
            *runs(list(chosen.values())),
            f"Every product inside them: {pages}",
            "",
        ]
    if checks:
        lines += [
            "Samples and errors of PyTorch's own OpInfo entries, values beside float64 within ten times its default "
            "tolerances, and its gradcheck, with the switch off and on (`python benchmarks/opinfo_switch.py`; "
            + "; ".join(f"{record['device']}: {_checked_sources(record)}" for record in checks.values())
            + "):",
            "",
            *opinfo(list(checks.values())),
        ]
    return "\n".join(lines).rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages; returns 0 if all is well, 1 if a check failed, 2 if something is missing."""
    parser = Parser(prog="models", description="Make pages and tables of whole models under the switch.")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: benchmarks/results")
    parser.add_argument(
        "--readme",
        type=Path,
        nargs="?",
        const=ROOT / "README.md",
        metavar="FILE",
        help="also rewrite the section between the markers in this file (default: README.md)",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not what would be written"
    )
    options = parser.parse_args(arguments)
    digest = source_digest(ROOT)
    readme: Path | None = options.readme or (ROOT / "README.md" if options.check else None)
    try:
        models = read(options.results / "models", RECORD_FIELDS)
        checks = read(options.results / "opinfo-switch", {"device", "counts"})
        wanted = {path.with_suffix(".md"): document(path.stem, models[path], digest) for path in models}
        if readme is not None:
            folder = "benchmarks/results" if readme.resolve().parent == ROOT else options.results.as_posix()
            section = readme_section(models, checks, digest, folder)
            wanted[readme] = replace_section(readme.read_text(encoding="utf-8"), section, BEGIN, END)
    except (OSError, ValueError) as error:
        print(f"models: {error}", file=sys.stderr)
        return 2
    if options.check:
        old = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
        for path in old:
            print(f"models: {path} is not up to date; run python benchmarks/models.py --readme", file=sys.stderr)
        return 1 if old else 0
    for path, text in wanted.items():
        write_atomically(path, text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
