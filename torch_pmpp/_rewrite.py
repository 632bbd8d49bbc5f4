"""Rewrites `x.t().contiguous()` in FX graphs into `padded_transpose(x)`.

Why a pass over graphs, and not a rule like `replace_mm()`: PyTorch has no function of its own for this. `contiguous()`
calls `aten::clone`, which every copy of any tensor in the program goes through (deepcopy, optimizers, autograd), and
which has one implementation for all devices; a kernel for it on one device would have to stand in for all of those
callers and hand nearly all of them on. In compiled code there is no clone to catch: inductor makes the copy itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_aten = torch.ops.aten


def _value(node: Any) -> Tensor | None:
    """The fake tensor that tracing has recorded for a node: dynamo and AOTAutograd name it differently."""
    if not isinstance(node, Node):
        return None
    value = node.meta.get("val", node.meta.get("example_value"))
    return value if isinstance(value, Tensor) else None


def _swaps(dimensions: Sequence[Any]) -> bool:
    """Whether these arguments of transpose() exchange the two dimensions of a matrix."""
    return (
        len(dimensions) == 2 and all(isinstance(d, int) for d in dimensions) and {d % 2 for d in dimensions} == {0, 1}
    )


def _transposed_by(node: Any) -> Node | None:
    """x, where `node` is a view x.t() of a matrix x, written in any way; else None."""
    if not isinstance(node, Node) or not node.args or not isinstance(node.args[0], Node):
        return None
    x, *rest = node.args
    value = _value(x)
    if value is None or value.dim() != 2:
        return None
    target, rest = node.target, [*rest, *node.kwargs.values()]
    if node.op == "call_method":
        transposes = target == "t" or (target in ("transpose", "swapaxes", "swapdims") and _swaps(rest))
        transposes = transposes or (target == "permute" and _is_reversal(rest))
    elif target in (getattr, torch.Tensor.__getattribute__):
        transposes = rest in (["T"], ["mT"])
    # x.T and x.mT: dynamo of PyTorch 2.15 writes the packets, that of 2.11 getattr.
    elif target in (torch.t, _aten.t.default, _aten.numpy_T.default, _aten.mT.default, _aten.numpy_T, _aten.mT):
        transposes = True
    elif target in (torch.transpose, torch.swapaxes, torch.swapdims, _aten.transpose.int):
        transposes = _swaps(rest)
    else:
        transposes = target in (torch.permute, _aten.permute.default) and _is_reversal(rest)
    return x if transposes and isinstance(x, Node) else None


def _is_reversal(dimensions: Sequence[Any]) -> bool:
    flat = dimensions[0] if len(dimensions) == 1 else dimensions
    return isinstance(flat, Sequence) and len(flat) == 2 and [d % 2 for d in flat if isinstance(d, int)] == [1, 0]


def _made_contiguous_by(node: Node) -> Any:
    """v, where `node` is v.contiguous() or a clone of v into row-major order; else None."""
    formats = [*node.args[1:], *node.kwargs.values()]
    contiguous = formats in ([], [torch.contiguous_format])
    copied = formats == [torch.contiguous_format]
    if node.op == "call_method":
        wanted = (node.target == "contiguous" and contiguous) or (node.target == "clone" and copied)
    elif node.op == "call_function":
        wanted = (node.target is _aten.contiguous.default and contiguous) or (
            node.target in (torch.clone, _aten.clone.default) and copied
        )
    else:
        wanted = False
    return node.args[0] if wanted and node.args else None


def rewrite_transposes(module: GraphModule) -> int:
    """Replaces every `x.t().contiguous()` of a matrix x in the graph by `torch.ops.pmpp.padded_transpose(x)`.

    Understands the graphs of dynamo (`t`, `T`, `mT`, `transpose`, `swapaxes`, `permute` followed by `contiguous`) and
    those of AOTAutograd and inductor (`aten.t`, `aten.transpose`, `aten.permute` followed by `aten.clone`). Left alone:
    tensors that are not matrices on the CPU or a CUDA device, a transpose that is contiguous already and so costs
    nothing, and conjugate or negative views. The view stays where something else uses it.

    Args:
        module: Changed in place and recompiled. Its nodes carry the fake tensors that tracing has recorded; a graph
            from `torch.fx.symbolic_trace` has none and is left as it is.

    Returns:
        How many were replaced.
    """
    count = 0
    for node in list(module.graph.nodes):
        view = _made_contiguous_by(node)
        x = _transposed_by(view)
        if x is None:
            continue
        source, transposed = _value(x), _value(view)
        assert source is not None
        if transposed is None or transposed.is_contiguous() or source.layout is not torch.strided:
            continue
        if source.device.type not in ("cpu", "cuda") or source.is_conj() or source.is_neg():
            continue
        with module.graph.inserting_before(node):
            replacement = module.graph.call_function(torch.ops.pmpp.padded_transpose.default, (x,))
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)
        if isinstance(view, Node) and not view.users:
            module.graph.erase_node(view)
        count += 1
    if count:
        module.graph.lint()
        module.recompile()
    return count


def transposing_backend(module: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
    """A backend for `torch.compile`: `rewrite_transposes`, then inductor.

        torch.compile(model, backend=torch_pmpp.transposing_backend)

    `options` are inductor's, as `torch.compile(..., options={...})` takes them. Returns the compiled function.
    """
    from torch._inductor.compile_fx import compile_fx

    rewrite_transposes(module)
    return compile_fx(module, list(example_inputs), config_patches=options.get("options") or None)
