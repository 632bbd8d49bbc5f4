#!/usr/bin/env python3
"""Digest of the sources that decide what libpmpp.so computes and how fast.

`python3 benchmarks/digest.py` prints one line of hexadecimal: SHA-256 over every source file in csrc/, ops/ and
registration/. The build stores it in build_info.json and a results file stores it beside its figures, so figures that
were taken with other sources can be told apart. Standard library only: the build calls it before torch is there.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("csrc", "ops", "registration")
# Only what the compiler reads: a note or an editor's backup copy must not make figures stale.
SOURCE_SUFFIXES = frozenset({".h", ".hpp", ".cuh", ".cu", ".c", ".cc", ".cpp", ".inl"})


def source_files(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yields (path relative to `root` with forward slashes, path) in the order in which they are hashed."""
    found = {}
    for folder in SOURCE_FOLDERS:
        for path in (root / folder).rglob("*"):
            relative = path.relative_to(root)
            hidden = any(part.startswith(".") for part in relative.parts)
            if path.suffix in SOURCE_SUFFIXES and not hidden and path.is_file():
                found[relative.as_posix()] = path
    yield from sorted(found.items())


def source_digest(root: Path = ROOT) -> str:
    """SHA-256 over names and contents; raises FileNotFoundError if `root` has no sources (an installed package)."""
    digest = hashlib.sha256()
    count = 0
    for name, path in source_files(root):
        content = path.read_bytes()
        # Lengths first: otherwise a byte moved from a name into the content would go unnoticed.
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode())
        digest.update(content)
        count += 1
    if count == 0:
        raise FileNotFoundError(f"no source file in {', '.join(SOURCE_FOLDERS)} under {root}")
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    """Prints the digest of the tree that holds this file, or of the tree given as the only argument."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: digest.py [ROOT]", file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        print(source_digest(Path(arguments[0]) if arguments else ROOT))
    except FileNotFoundError as error:
        print(f"digest.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
