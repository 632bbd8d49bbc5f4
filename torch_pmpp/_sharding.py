"""Sharding rules, so that the operators take and return `torch.distributed.tensor.DTensor`s.

Importing DTensor takes half a second and most programs never use it, so the rules are registered when
`torch.distributed.tensor` is imported, be that before this package or after it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

_DTENSOR = "torch.distributed.tensor"


def register_sharding_rules() -> None:
    """Registers the rules for both operators; imports DTensor.

    The `out` overloads have no rules, nor has `aten.mm.out`.
    """
    # The public register_sharding keeps an operator off the dispatcher's short path: 44 us a call instead of 16 us.
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder as AnyShard
    from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy
    from torch.distributed.tensor._ops.utils import generate_redistribute_costs, register_op_strategy
    from torch.distributed.tensor.placement_types import Placement, _StridedShard

    @register_single_dim_strategy(torch.ops.pmpp.tiled_matmul.default, allow_unbacked_sharding=True)
    def tiled_matmul(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
        """The rules of `aten.mm`, in its order, which decides between rules of one price.

        Each holds the placements of result, a and b on one dimension of a mesh. PyTorch adds the rule in which all are
        replicated, combines the rules over the mesh, drops those that a size is too small for, and takes the one that
        moves the least data.
        """
        rules: list[list[Any]] = [
            [Partial(), AnyShard(1), AnyShard(0)],
            [AnyShard(0), AnyShard(0), Replicate()],
            [AnyShard(1), Replicate(), AnyShard(1)],
        ]
        # The product is linear in each operand, so a sum or a mean over the processes may be taken afterwards.
        for reduction in ("sum", "avg"):
            rules.append([Partial(reduction), Partial(reduction), Replicate()])
            rules.append([Partial(reduction), Replicate(), Partial(reduction)])
        return rules

    def from_and_to(placement: Placement, last: int) -> tuple[Placement, Placement]:
        if isinstance(placement, _StridedShard):
            return placement, _StridedShard(last - placement.dim, split_factor=placement.split_factor)
        if isinstance(placement, Shard):
            return placement, Shard(last - placement.dim)
        # Not the subclasses of Partial: that of an embedding holds a mask for the rows of what is transposed.
        keep = placement if type(placement) is Partial else Replicate()
        return keep, keep

    @register_op_strategy(torch.ops.pmpp.padded_transpose.default)
    def padded_transpose(schema: OpSchema) -> OpStrategy:
        """As `aten.t`: nothing is moved between processes, and a sharded dimension goes where the transpose puts it."""
        x = schema.args_schema[0]
        assert isinstance(x, OpStrategy)
        strategies = []
        for given in x.strategies:
            spec = given.output_spec
            pairs = [from_and_to(placement, spec.ndim - 1) for placement in spec.placements]
            source = DTensorSpec(spec.mesh, tuple(source for source, _ in pairs), tensor_meta=spec.tensor_meta)
            result = DTensorSpec(spec.mesh, tuple(result for _, result in pairs))
            costs = [generate_redistribute_costs(x, source)]
            strategies.append(OpSpec(output_specs=result, input_specs=(source,), redistribute_cost=costs))
        return OpStrategy(strategies)


class _AfterImport(MetaPathFinder):
    """Finds DTensor's package where the path has it, and registers the rules once the package has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _DTENSOR:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register_sharding_rules()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_sharding_rules_with_dtensor() -> None:
    """Registers the rules now if DTensor is imported already, else as soon as it is."""
    if sys.modules.get(_DTENSOR) is not None:
        register_sharding_rules()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())
