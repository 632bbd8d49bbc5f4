"""Hand-written matrix multiplication and transposition as PyTorch operators.

Importing this package loads libpmpp.so, which registers `torch.ops.pmpp.tiled_matmul` and
`torch.ops.pmpp.padded_transpose`; the functions here are the same operators with type hints and help texts.

    import torch, torch_pmpp
    c = torch_pmpp.tiled_matmul(a, b)        # as torch.mm(a, b)
    t = torch_pmpp.padded_transpose(x)       # as x.t().contiguous(), always in fresh memory

`cmake_prefix_path` is the folder to hand to CMake (`-DCMAKE_PREFIX_PATH=`) so that `find_package(pmpp)` finds the
C++ library that this package carries.
"""

from __future__ import annotations

from ._library import PACKAGE, load

build_info = load()

from ._flops import register_flop_formulas  # noqa: E402  (the operators exist only once the library is loaded)
from ._operators import algorithms, padded_transpose, tiled_matmul, transpose  # noqa: E402
from ._rewrite import rewrite_transposes, transposing_backend  # noqa: E402
from ._sharding import register_sharding_rules_with_dtensor  # noqa: E402
from ._switch import Stats, replace_mm, reset_stats, stats  # noqa: E402

register_flop_formulas()
register_sharding_rules_with_dtensor()

__version__: str = build_info.version
cmake_prefix_path: str = str(PACKAGE)

__all__ = [
    "Stats",
    "__version__",
    "algorithms",
    "cmake_prefix_path",
    "padded_transpose",
    "replace_mm",
    "reset_stats",
    "rewrite_transposes",
    "stats",
    "tiled_matmul",
    "transpose",
    "transposing_backend",
]
