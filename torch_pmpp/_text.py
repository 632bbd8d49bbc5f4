"""Tables for people: coloured ones on a terminal, plain aligned text anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field


def is_fancy() -> bool:
    """Whether standard output is a terminal that may be coloured (see no-color.org) and rich is installed."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


@dataclass
class Table:
    """A table that prints itself. `right` names the columns that are set flush right (figures)."""

    title: str
    columns: Sequence[str]
    right: frozenset[str] = frozenset()
    rows: list[tuple[Sequence[str], str]] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        """Appends a row; `style` is a rich style, ignored in plain text."""
        if len(cells) != len(self.columns):
            raise ValueError(f"expected {len(self.columns)} cells, but got {len(cells)}")
        self.rows.append((cells, style))

    def plain(self) -> str:
        """The table as aligned text."""
        widths = [
            max(len(row[i]) for row in [self.columns, *(cells for cells, _ in self.rows)])
            for i in range(len(self.columns))
        ]

        def line(cells: Sequence[str]) -> str:
            padded = (
                cell.rjust(width) if name in self.right else cell.ljust(width)
                for cell, width, name in zip(cells, widths, self.columns, strict=True)
            )
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, line(self.columns), rule, *(line(cells) for cells, _ in self.rows)])

    def print(self) -> None:
        """Prints to standard output."""
        if not is_fancy():
            print(self.plain(), end="\n\n", flush=True)
            return
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=Text(self.title), title_justify="left", title_style="bold", header_style="bold")
        for name in self.columns:
            table.add_column(Text(name), justify="right" if name in self.right else "left", overflow="fold")
        for cells, style in self.rows:
            table.add_row(*(Text(cell) for cell in cells), style=style)
        Console().print(table)


def duration(seconds: float | None) -> str:
    """A time with three digits and a fitting unit; a dash for None."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale or unit == "us":
            value = seconds / scale
            digits = 0 if value >= 100 else 1 if value >= 10 else 2
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable")


def verdict(ratio: float | None) -> str:
    """Words for a ratio of baseline time to ours; within 5 % counts as even, the spread of repeated runs."""
    if ratio is None:
        return "-"
    if ratio >= 1.05:
        return f"{ratio:.2f}x faster"
    if ratio <= 1 / 1.05:
        return f"{1 / ratio:.2f}x slower"
    return "even"


def verdict_style(ratio: float | None) -> str:
    """Colour that goes with `verdict`."""
    words = verdict(ratio)
    return "green" if words.endswith("faster") else "yellow" if words.endswith("slower") else ""
