"""The switch that makes PyTorch's own products run on these kernels, and the counts of what ran."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

import torch

DEVICES = ("cpu", "cuda")


class ReplaceMm(contextlib.ContextDecorator):
    """What `replace_mm` returns: a context manager, a decorator, and an on/off pair."""

    def __init__(self, device: str | Sequence[str] = "cuda") -> None:
        names = (device,) if isinstance(device, str) else tuple(device)
        for name in names:
            if name not in DEVICES:
                raise ValueError(f"replace_mm: no kernels for device {name!r}; expected cpu or cuda")
        if not names:
            raise ValueError("replace_mm: expected a device, but got none")
        self._devices = tuple(torch.device(name) for name in dict.fromkeys(names))

    def _change(
        self, what: Literal["on", "off", "enter", "leave"], undo: Literal["on", "off", "enter", "leave"]
    ) -> None:
        done = []
        try:
            for device in self._devices:
                torch.ops.pmpp._replace_mm(device, what)
                done.append(device)
        except RuntimeError:
            for device in done:
                torch.ops.pmpp._replace_mm(device, undo)
            raise

    def on(self) -> None:
        """Switches on until `off()`."""
        self._change("on", "off")

    def off(self) -> None:
        """Ends what `on()` began, here or on another object for the same devices."""
        self._change("off", "on")

    def __enter__(self) -> ReplaceMm:
        self._change("enter", "leave")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._change("leave", "enter")


def replace_mm(device: str | Sequence[str] = "cuda") -> ReplaceMm:
    """Makes `mm`, `addmm`, `bmm` and `baddbmm` of PyTorch run on pmpp's kernels.

    With them go their `out=` and in-place forms, `linear`, `matmul`, `@`, `einsum`, their backward passes, and code
    compiled by `torch.compile`, of a model that is left as it is. As a context manager, a decorator, or an on/off pair:

        with torch_pmpp.replace_mm():
            model(x).sum().backward()

        switch = torch_pmpp.replace_mm()
        switch.on()
        ...
        switch.off()

    Args:
        device: "cuda" (the default), "cpu", or a sequence of them.

    `alpha`, `beta` and a bias are applied inside the kernel. What pmpp does not take (layouts that are not strided,
    integers on CUDA, empty operands, mixed dtypes, an `out` that would be resized or lies over an operand, ...) goes to
    PyTorch's own kernel, which raises PyTorch's own errors; `stats()` counts it by reason.

    The switch belongs to the process: all threads see it, and a call that is under way ends as it began. Blocks are
    counted: they may nest, overlap between threads and lie inside an on/off pair, and PyTorch's kernels are back,
    exactly, when every block is left (also by an exception) and the pair is off. The pair itself is not counted.

    Raises:
        RuntimeError: on() when the pair is on, off() when it is not, or a device that this build or machine cannot
            serve. Nothing is changed then.
        ValueError: `device` is neither "cpu" nor "cuda".
    """
    return ReplaceMm(device)


@dataclass(frozen=True)
class Stats:
    """Calls since the start or `reset_stats()`; names that were never counted are absent.

    `kernels`: (operator, device, algorithm) -> launches, explicit calls and replaced ones together.
    `taken`: (function, device) -> calls of PyTorch's function that ran here; `out=` and in-place forms count with it.
    `fallbacks`: (function, device, reason) -> calls that went on to PyTorch's own kernel.
    """

    kernels: dict[tuple[str, str, str], int] = field(default_factory=dict)
    taken: dict[tuple[str, str], int] = field(default_factory=dict)
    fallbacks: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"kernel    {op} {algorithm} on {device}: {n}" for (op, device, algorithm), n in self.kernels.items()]
        lines += [f"taken     {function} on {device}: {n}" for (function, device), n in self.taken.items()]
        lines += [
            f"fallback  {function} on {device}: {n}, {REASONS[reason]}"
            for (function, device, reason), n in self.fallbacks.items()
        ]
        return "\n".join(lines) or "nothing was counted"


REASONS = {
    "dtype": "dtypes that differ, or one that the function or pmpp does not multiply",
    "shape": "shapes that do not fit; PyTorch raises the error",
    "empty": "an empty operand",
    "layout": "not strided, or not aligned to its elements",
    "device": "operands on several devices, or a device that the library has no code for",
    "out": "an out that is resized, of another dtype, or over an operand",
    "scalar": "an alpha of 0, or a factor that the dtype does not hold",
    "names": "named dimensions",
}


def stats() -> Stats:
    """What ran since the start or the last `reset_stats()`, on all threads. Counting is one atomic addition a call."""
    found = Stats()
    for name, count in sorted(torch.ops.pmpp._stats().items()):
        kind, device, *rest = name.split("/")
        if kind == "kernel":
            found.kernels[rest[0], device, rest[1]] = count
        elif kind == "taken":
            found.taken[rest[0], device] = count
        else:
            found.fallbacks[rest[0], device, rest[1]] = count
    return found


def reset_stats() -> None:
    """Sets all counts to 0."""
    torch.ops.pmpp._reset_stats()
