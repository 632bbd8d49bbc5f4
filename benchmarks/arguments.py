"""What the command lines of the benchmark tools share. Needs no torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Answers wrong arguments with one line instead of a usage block."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def names(allowed: Sequence[str] | None = None) -> Callable[[str], list[str]]:
    """Type of an argument that lists names, separated by commas; None allows any."""

    def parse(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        for name in found:
            if allowed is not None and name not in allowed:
                raise argparse.ArgumentTypeError(f"unknown name {name!r}; expected some of {', '.join(allowed)}")
        return found

    return parse


def counts(text: str) -> list[int]:
    """Type of an argument that lists whole numbers from 1 on, separated by commas."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on, such as 1,2, but got {text}")
    return list(dict.fromkeys(map(int, parts)))


def positive(text: str) -> float:
    """Type of an argument that is a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, but got {text}")
    return value
