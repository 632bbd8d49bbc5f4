"""`python -m torch_pmpp compare MODEL`: a model on PyTorch's kernels and on ours, its code untouched."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ._info import cpu_model
from ._library import no_cuda_reason, read_build_info, source_tree
from ._output import Parser
from ._switch import replace_mm, reset_stats, stats
from ._text import Table, duration, verdict, verdict_style

# Largest distance ||ours - PyTorch|| / ||PyTorch|| of an output or gradient that rounding explains, with dozens of
# layers to add it up. A wrong kernel gives about 1.
_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 0.1, torch.float16: 0.05}
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TF32_TOLERANCE = 1e-2
_SMALL = 1e-2
_IMAGE = 224
# Seconds of a round of one product: fifty times what it takes to launch a kernel and to wait for it.
_PRODUCT_ROUND = 1e-3


class ModelError(Exception):
    """A model that cannot be made, with the reason for the user."""


# ---- models --------------------------------------------------------------------------------------------------------


def _make_from_file(path: Path, function: str, options: dict[str, int]) -> tuple[nn.Module, tuple[Any, ...]]:
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # classes of the file name it as their module
    spec.loader.exec_module(module)
    maker = getattr(module, function, None)
    if maker is None:
        raise ModelError(f"{path} has no function {function}(batch, ...) that returns a model and its inputs")
    try:
        model, inputs = maker(**options)
    except TypeError as error:
        raise ModelError(f"{path}: {function}({', '.join(options)}): {error}") from error
    return model, tuple(inputs)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"{name} is not installed") from error


def _make_torchvision(name: str, options: dict[str, int]) -> tuple[nn.Module, tuple[Any, ...]]:
    size = options.get("size", _IMAGE)
    model = _import("torchvision").models.get_model(name, weights=None)
    return model, (torch.randn(options.get("batch", 8), 3, size, size),)


def _make_timm(name: str, options: dict[str, int]) -> tuple[nn.Module, tuple[Any, ...]]:
    model = _import("timm").create_model(name, pretrained=False)
    shape = tuple(model.default_cfg["input_size"])
    return model, (torch.randn(options.get("batch", 8), *shape),)


def _make_transformers(name: str, options: dict[str, int]) -> tuple[nn.Module, tuple[Any, ...]]:
    library = _import("transformers")
    batch = options.pop("batch", 8)
    length = options.pop("length", 128)
    config = library.AutoConfig.for_model(name, **options)
    model = library.AutoModel.from_config(config)
    if getattr(config, "vocab_size", None):
        return model, (torch.randint(config.vocab_size, (batch, length)),)
    size = getattr(config, "image_size", _IMAGE)
    return model, (torch.randn(batch, getattr(config, "num_channels", 3), size, size),)


_LIBRARIES = {"torchvision": _make_torchvision, "timm": _make_timm, "transformers": _make_transformers}


def make_model(name: str, options: dict[str, int]) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model with random weights and inputs for it, on the CPU.

    Args:
        name: `gpt2` (examples/python/gpt2.py of a checkout), `torchvision:NAME`, `timm:NAME`, `transformers:TYPE`, or
            `FILE.py` or `FILE.py:FUNCTION` with a function (`make`) that returns a module and a tuple of inputs.
        options: Handed to that function; of the libraries, `batch`, `length`, `size` and, for transformers, fields
            of the configuration.

    Raises:
        ModelError: The name means nothing, a library is not installed, or the function does not take the options.
    """
    library, _, rest = name.partition(":")
    torch.manual_seed(0)
    try:
        if library in _LIBRARIES and rest:
            return _LIBRARIES[library](rest, dict(options))
    except (ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ModelError(f"{library} cannot make {rest!r}: {error}") from error
    if name == "gpt2":
        root = source_tree()
        if root is None:
            raise ModelError(
                "gpt2 is a file of the source tree, and this is an installed package; name FILE.py instead"
            )
        return _make_from_file(root / "examples" / "python" / "gpt2.py", "make", options)
    file, _, function = name.partition(":")
    if file.endswith(".py"):
        return _make_from_file(Path(file), function or "make", options)
    raise ModelError(
        f"unknown model {name!r}; expected gpt2, torchvision:NAME, timm:NAME, transformers:TYPE or FILE.py[:FUNCTION]"
    )


# ---- what is inside ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Product:
    """One kind of product inside a model: function, batch, m, n, k, dtype, how each operand lies (N row-major, T
    transposed, S neither), and whether something is added."""

    function: str
    batch: int
    m: int
    n: int
    k: int
    dtype: str
    layout: str

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.n} x {self.k}"


def _layout(x: Tensor) -> str:
    rows, columns = x.shape[-2:]
    if x.stride(-1) == 1 or columns == 1:
        return "N"
    return "T" if x.stride(-2) == 1 or rows == 1 else "S"


class RecordProducts(TorchDispatchMode):
    """Counts the products that a model computes, forward and backward, and keeps how the operands of each kind lie."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[Product, int] = {}
        self.calls: dict[Product, tuple[Any, list[Any], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes the call and makes it."""
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if func.namespace == "aten" and name in ("mm", "addmm", "bmm", "baddbmm"):
            a, b = args[-2:] if name in ("mm", "bmm") else args[1:3]
            product = Product(
                name,
                a.shape[0] if a.dim() == 3 else 1,
                a.shape[-2],
                b.shape[-1],
                a.shape[-1],
                str(a.dtype).removeprefix("torch."),
                _layout(a) + _layout(b),
            )
            self.counts[product] = self.counts.get(product, 0) + 1
            if product not in self.calls:
                # Shape and strides alone: holding the operands would keep every activation of the model alive.
                kept = [(tuple(x.shape), x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x for x in args]
                self.calls[product] = (func, kept, kwargs)
        return func(*args, **kwargs)

    def again(self, product: Product) -> Callable[[], Any]:
        """The call that computes such a product on random operands that lie alike."""
        func, kept, kwargs = self.calls[product]
        args = []
        for x in kept:
            if isinstance(x, tuple):
                shape, stride, dtype, device = x
                room = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
                args.append(torch.randn(room, device=device).to(dtype).as_strided(shape, stride))
            else:
                args.append(x)
        return lambda: func(*args, **kwargs)


# ---- running -------------------------------------------------------------------------------------------------------


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_both(call: Callable[[], Any], device: str, seconds: float, least: float = 0.0) -> tuple[float, float]:
    """Median seconds of a call on PyTorch's kernels and on ours, in turn; at least three rounds.

    With `least`, a round is as many calls as fill that many seconds: what a single call of some microseconds costs to
    launch and to wait for is then not taken for its own time.
    """
    times: tuple[list[float], list[float]] = ([], [])
    sides: tuple[Callable[[], AbstractContextManager[Any]], ...] = (nullcontext, lambda: replace_mm(device))

    def run(side: Callable[[], AbstractContextManager[Any]], calls: int) -> float:
        with side():
            _synchronize(device)
            start = time.perf_counter()
            for _ in range(calls):
                call()
            _synchronize(device)
            return (time.perf_counter() - start) / calls

    calls = 1
    for side in sides:
        run(side, 1)  # warms up
        if least > 0:
            calls = max(calls, round(least / run(side, 1)))
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or time.perf_counter() < end:
        for side, kept in zip(sides, times, strict=True):
            kept.append(run(side, calls))
    return statistics.median(times[0]), statistics.median(times[1])


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() or output.is_complex() else []
    if isinstance(output, dict):
        return [x for item in output.values() for x in _tensors(item)]
    if isinstance(output, (list, tuple)):
        return [x for item in output for x in _tensors(item)]
    return []


def distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> tuple[float, float]:
    """Over pairs of tensors, the largest ||ours - theirs|| / ||theirs|| and the largest difference of an element.

    A tensor below a hundredth of the largest one is measured against that hundredth: the gradient of a key's bias in
    attention, say, is zero but for rounding, which no two kernels share.
    """
    relative = largest = 0.0
    scales = [float(torch.linalg.vector_norm(y.detach().double())) for y in theirs]
    least = _SMALL * max((scale for scale in scales if scale < float("inf")), default=0.0)
    for x, y, own in zip(ours, theirs, scales, strict=True):
        if y.numel() == 0:
            continue
        difference = (x.detach() - y.detach()).double()
        scale = max(own, least)
        norm = float(torch.linalg.vector_norm(difference))
        # NaN counts as infinitely far.
        step = norm / scale if scale > 0 else norm
        relative = max(relative, step if step == step else float("inf"))
        element = float(difference.abs().max())
        largest = max(largest, element if element == element else float("inf"))
    return relative, largest


@dataclass
class Side:
    """The model and how to run it."""

    model: nn.Module
    inputs: tuple[Any, ...]
    device: str
    autocast: torch.dtype | None
    compiled: bool
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.run = torch.compile(self.model) if self.compiled else self.model
        # A learning rate of 0: all the work of a step, and the same weights at every one.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, weight_decay=0.0)

    def _output(self) -> Any:
        with torch.autocast(self.device, dtype=self.autocast, enabled=self.autocast is not None):
            return self.run(*self.inputs)

    def forward(self) -> list[Tensor]:
        """Outputs, without recording gradients."""
        with torch.no_grad():
            return _tensors(self._output())

    def backward(self) -> list[Tensor]:
        """Gradients of the parameters: of the model's loss(output, *inputs), or of the mean square of its output."""
        self.optimizer.zero_grad(set_to_none=True)
        output = self._output()
        own_loss = getattr(self.model, "loss", None)
        if callable(own_loss):
            loss = own_loss(output, *self.inputs)
        else:
            loss = sum((x.float().square().mean() for x in _tensors(output) if x.requires_grad), torch.zeros(()))
        loss.backward()
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def step(self) -> None:
        """One training step."""
        self.backward()
        self.optimizer.step()


@dataclass(frozen=True)
class Row:
    """Figures of one way of running a model; times in seconds, distances as `distance` gives them."""

    mode: str
    what: str
    pytorch: float
    ours: float
    relative: float
    largest: float


def measure(side: Side, what: str, seconds: float) -> Row:
    """Compares results of one run on each side, then the times of both."""
    compute = side.forward if what == "forward" else side.backward
    torch.manual_seed(1)  # dropout
    theirs = [x.detach().clone() for x in compute()]
    torch.manual_seed(1)
    with replace_mm(side.device):
        ours = [x.detach().clone() for x in compute()]
    relative, largest = distance(ours, theirs)
    del ours, theirs
    pytorch_time, our_time = time_both(side.forward if what == "forward" else side.step, side.device, seconds)
    return Row("compiled" if side.compiled else "eager", what, pytorch_time, our_time, relative, largest)


def parser(prog: str) -> argparse.ArgumentParser:
    """Options of the command."""
    result = Parser(prog=prog, description=__doc__)
    result.add_argument(
        "model", metavar="MODEL", help="gpt2, torchvision:NAME, timm:NAME, transformers:TYPE or FILE.py[:FUNCTION]"
    )
    result.add_argument("options", nargs="*", metavar="NAME=N", help="handed to the model: batch=2 length=256 layers=4")
    result.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    result.add_argument("--dtype", choices=sorted(_DTYPES), default="float32", help="of weights and inputs")
    result.add_argument("--autocast", choices=("bfloat16", "float16"), help="run the model under autocast")
    result.add_argument("--tf32", action="store_true", help="let products of float32 round to TF32 (CUDA)")
    result.add_argument("--mode", choices=("eager", "compiled", "both"), default="eager")
    result.add_argument("--what", choices=("forward", "training", "both"), default="both")
    result.add_argument("--seconds", type=float, default=2.0, help="for the repetitions of each figure (2)")
    result.add_argument("--json", type=Path, help="also write all figures there")
    return result


def _model_options(pairs: Sequence[str]) -> dict[str, int]:
    options = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name.isidentifier() or not value.lstrip("-").isdigit():
            raise ModelError(f"expected an option of the form name=3, but got {pair!r}")
        options[name] = int(value)
    return options


def run(arguments: Sequence[str], prog: str = "python -m torch_pmpp compare") -> int:
    """The command; 0 if results agree within rounding, 1 if they do not, 2 for wrong arguments."""
    options = parser(prog).parse_args(arguments)
    no_cuda = no_cuda_reason()
    device = options.device or ("cpu" if no_cuda else "cuda")
    if device == "cuda" and no_cuda:
        print(f"{prog}: {no_cuda}", file=sys.stderr)
        return 1
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = options.tf32
    try:
        return _compare(options, device, prog)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _compare(options: argparse.Namespace, device: str, prog: str) -> int:
    dtype = _DTYPES[options.dtype]
    try:
        model, inputs = make_model(options.model, _model_options(options.options))
    except ModelError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    model = model.to(device, dtype)
    inputs = tuple(
        x.to(device, dtype if x.is_floating_point() else x.dtype) if isinstance(x, Tensor) else x for x in inputs
    )
    autocast = _DTYPES[options.autocast] if options.autocast else None
    training = options.what != "forward"
    model.train(training)

    parameters = sum(p.numel() for p in model.parameters())
    where = torch.cuda.get_device_name() if device == "cuda" else cpu_model()
    print(f"{options.model}: {parameters / 1e6:.1f} million parameters, {options.dtype}", end="")
    print(f", autocast to {options.autocast}" if options.autocast else "", end="")
    print(", TF32" if options.tf32 else "", f" on {where}", sep="", end="\n\n")

    eager = Side(model, inputs, device, autocast, compiled=False)
    recorder = RecordProducts()
    reset_stats()
    with recorder:
        (eager.backward if training else eager.forward)()

    rows = []
    for mode in ("eager", "compiled") if options.mode == "both" else (options.mode,):
        side = eager if mode == "eager" else Side(model, inputs, device, autocast, compiled=True)
        for what in ("forward", "training") if options.what == "both" else (options.what,):
            rows.append(measure(side, what, options.seconds))
    speed = Table(
        "Time of one run, and how far outputs (forward) or gradients (training) lie apart",
        ("mode", "what", "PyTorch", "pmpp", "pmpp is", "distance", "largest difference"),
        right=frozenset({"PyTorch", "pmpp", "distance", "largest difference"}),
    )
    for row in rows:
        ratio = row.pytorch / row.ours
        speed.add(
            row.mode,
            row.what,
            duration(row.pytorch),
            duration(row.ours),
            verdict(ratio),
            f"{row.relative:.1e}",
            f"{row.largest:.1e}",
            style=verdict_style(ratio),
        )
    speed.print()
    counted = stats()

    products = Table(
        "Products inside " + ("one training step" if training else "one forward pass"),
        ("function", "m x n x k", "dtype", "layout", "count", "PyTorch", "pmpp", "pmpp is"),
        right=frozenset({"count", "PyTorch", "pmpp"}),
    )
    figures = []
    # The largest share of the arithmetic first.
    order = sorted(recorder.counts, key=lambda p: -recorder.counts[p] * p.batch * p.m * p.n * p.k)
    for product in order:
        count = recorder.counts[product]
        again = recorder.again(product)
        theirs, ours = time_both(again, device, options.seconds / len(order), least=_PRODUCT_ROUND)
        figures.append({**asdict(product), "count": count, "pytorch": theirs, "ours": ours})
        products.add(
            product.function,
            str(product),
            product.dtype,
            product.layout,
            str(count),
            duration(theirs),
            duration(ours),
            verdict(theirs / ours),
            style=verdict_style(theirs / ours),
        )
    products.print()
    print(counted, end="\n\n")

    bound = max(_TOLERANCES[autocast or dtype], _TF32_TOLERANCE if options.tf32 else 0.0)
    agrees = all(row.relative <= bound for row in rows)
    words = "agree within" if agrees else "lie further apart than"
    print(f"Results {words} the rounding of {options.autocast or options.dtype}, bound {bound:g}.")
    if options.json:
        record = {
            "model": options.model,
            "options": options.options,
            "device": where,
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "source_digest": read_build_info().source_digest,
            "dtype": options.dtype,
            "autocast": options.autocast,
            "tf32": options.tf32,
            "parameters": parameters,
            "rows": [asdict(row) for row in rows],
            "products": figures,
            "agrees": agrees,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if agrees else 1
