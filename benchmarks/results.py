"""The results file: one JSON object of facts about the run and a list of flat records."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

HEADER_FIELDS = ("gpu", "driver", "torch", "cuda", "date", "source_digest")
RECORD_FIELDS = (
    "op",
    "device",
    "dtype",
    "element_size",
    "precision",
    "layout",
    "offset",
    "m",
    "n",
    "k",
    "batch",
    "threads",
    "mode",
    "algorithm",
    "plan",
    "ours_us",
    "baseline",
    "baseline_us",
    "ratio",
    "roof_us",
    "roof_fraction",
    "error",
    "baseline_error",
)
TRANSPOSE_FIELDS = ("copy_us", "copy_fraction")
KEY_FIELDS = (
    "op",
    "device",
    "dtype",
    "precision",
    "layout",
    "offset",
    "m",
    "n",
    "k",
    "batch",
    "threads",
    "mode",
    "algorithm",
)
# Figures are comparable only while these stay the same.
SAME_RUN_FIELDS = ("source_digest", "gpu", "cpu", "simd", "isa", "driver", "torch", "cuda")


def key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a record measures: two records with one key are two measurements of the same thing."""
    return tuple(record.get(name) for name in KEY_FIELDS)


def significant(value: float | None, digits: int = 4) -> float | None:
    """Rounds to significant digits: more would be noise, and noise in every line of a diff."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


@dataclass
class Results:
    """A results file in memory. `save` is atomic: whoever reads, or is interrupted, finds the old or the new file."""

    path: Path
    header: dict[str, Any]
    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Raises OSError if it cannot be read and ValueError, with the path, if it is no results file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            records = content.pop("records")
            if not isinstance(records, list):
                raise TypeError("records is not a list")
            if not all("op" in record for record in records):
                raise TypeError("a record names no operator")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is not a results file ({type(error).__name__}: {error})") from error
        return cls(path, content, records)

    @classmethod
    def resume(cls, path: Path, header: dict[str, Any]) -> tuple[Results, str | None]:
        """Goes on with the file at `path` if it was taken under the same conditions, else starts anew.

        Returns the results and, where old records are dropped, the reason.
        """
        if not path.exists():
            return cls(path, header), None
        old = cls.read(path)
        changed = [name for name in SAME_RUN_FIELDS if old.header.get(name) != header.get(name)]
        if changed:
            return cls(path, header), f"{len(old.records)} records dropped: other {', '.join(changed)}"
        return cls(path, header, old.records), None

    def keys(self) -> set[tuple[Any, ...]]:
        """Keys of all records."""
        return {key_of(record) for record in self.records}

    def put(self, record: Record) -> None:
        """Adds a record, or replaces the one with the same key in its place, and saves."""
        key = key_of(record)
        for index, other in enumerate(self.records):
            if key_of(other) == key:
                self.records[index] = record
                break
        else:
            self.records.append(record)
        self.save()

    def render(self) -> str:
        """The file's text: one record a line, so that a diff shows which figures moved."""
        lines = [f" {json.dumps(name)}: {json.dumps(value, allow_nan=False)}," for name, value in self.header.items()]
        rows = ",\n".join("  " + json.dumps(record, allow_nan=False) for record in self.records)
        return "{\n" + "\n".join(lines) + '\n "records": [\n' + rows + "\n ]\n}\n"

    def save(self) -> None:
        """Writes beside the file, flushes to the disk, then takes its place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, self.render())


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` by a file with this text; an interruption leaves the old file whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
