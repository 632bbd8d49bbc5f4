"""Command line: `python -m torch_pmpp COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import torch

from . import build_info
from ._library import no_cuda_reason, source_tree
from ._operators import OPERATORS, algorithms
from ._output import Parser, print_json
from ._text import Table

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
)


# Commands with arguments of their own: each is loaded only when it is asked for, and its run(arguments) does it.
_COMMANDS = {
    "compare": ("_compare", "run a model on PyTorch's kernels and on ours"),
    "explain": (
        "_explain",
        "what each algorithm does with one product or transpose: bytes, roofs, plan, occupancy, time",
    ),
    "roofline": ("_roofline", "plot the roofs of a GPU and the measured points of a results file"),
    "occupancy": ("_occupancy", "blocks that a multiprocessor holds at once, and what limits them"),
    "conflicts": ("_conflicts", "bank conflicts of a tile in shared memory, simulated and drawn"),
    "report": ("_report", "one HTML page of a results file, with plots and tables"),
}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m torch_pmpp", description="Hand-written matrix products and transposes for PyTorch.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    demonstration = commands.add_parser(
        "demo", help="run both operators, check the results against float64, time them beside PyTorch"
    )
    demonstration.add_argument("--json", action="store_true", help="print one JSON object")
    commands.add_parser(
        "bench", add_help=False, help="run the benchmark of a source tree; `bench --help` lists its options"
    )
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, add_help=False, help=f"{text}; `{name} --help` lists the options")
    listing = commands.add_parser("algorithms", help="list the algorithms for each operator, device and dtype")
    listing.add_argument("--op", choices=OPERATORS, help="only this operator")
    listing.add_argument("--device", choices=("cpu", "cuda"), help="only this device (default: all that are there)")
    listing.add_argument("--dtype", choices=DTYPES, help="only this dtype")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    about = commands.add_parser(
        "info", help="show what the library was built for, what this machine has, and whether they fit"
    )
    about.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _bench(arguments: Sequence[str]) -> int:
    root = source_tree()
    if root is None or not (root / "benchmarks" / "run.py").is_file():
        print(
            "python -m torch_pmpp bench: the benchmarks are part of the source tree, and this is an installed package "
            "without them; run `make bench` in a checkout",
            file=sys.stderr,
        )
        return 2
    # First on the path: other distributions are known to install a top-level `benchmarks`.
    sys.path.insert(0, str(root))
    from benchmarks import run

    return run.main(arguments)


def _algorithms(op: str | None, device: str | None, dtype: str | None, as_json: bool) -> int:
    no_cuda = no_cuda_reason()
    if device == "cuda" and no_cuda is not None:
        print(f"python -m torch_pmpp algorithms: {no_cuda}", file=sys.stderr)
        return 1
    devices = [device] if device else ["cpu"] + (["cuda"] if no_cuda is None else [])
    found = []
    table = Table(
        "Algorithms, each step of the ladder one idea more than the last", ("operator", "device", "dtype", "algorithms")
    )
    for each_op in [op] if op else OPERATORS:
        for each_device in devices:
            for each_dtype in [dtype] if dtype else DTYPES:
                names = algorithms(each_op, each_device, getattr(torch, each_dtype))
                found.append({"op": each_op, "device": each_device, "dtype": each_dtype, "algorithms": names})
                table.add(each_op, each_device, each_dtype, ", ".join(["auto", *names]) if names else "none")
    if as_json:
        print_json({"algorithms": found})
    else:
        table.print()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0 fine, 1 a check failed, 2 wrong arguments."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Handed on before argparse sees them: its REMAINDER swallows no option that comes first.
    if arguments[:1] == ["bench"]:
        return _bench(arguments[1:])
    if arguments and arguments[0] in _COMMANDS:
        module = importlib.import_module(f".{_COMMANDS[arguments[0]][0]}", __package__)
        return int(module.run(arguments[1:]))
    parsed = _parser().parse_args(arguments)
    if parsed.command == "demo":
        from . import _demo

        return _demo.run(as_json=parsed.json)
    if parsed.command == "info":
        from . import _info

        return _info.show(build_info, as_json=parsed.json)
    return _algorithms(parsed.op, parsed.device, parsed.dtype, parsed.json)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # The reader went away (`| head`): not worth a traceback, and the flush at exit must not raise another.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
