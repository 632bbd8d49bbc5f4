"""What the commands share: arguments that answer mistakes with one line, and JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Answers wrong arguments with one line instead of a usage block."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def at_least(least: int, most: int = 2**40) -> Callable[[str], int]:
    """Type of an argument that is a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, but got {text!r}")
        return value

    return parse


def print_json(value: Any) -> None:
    """One JSON object, indented."""
    print(json.dumps(value, indent=1, allow_nan=False))
