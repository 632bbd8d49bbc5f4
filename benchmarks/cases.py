"""The shapes that matter, by name. Tests use them for correctness, benchmarks for speed. Needs no torch."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

ELEMENT_SIZES: dict[str, int] = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
}
MATMUL_DTYPES: tuple[str, ...] = tuple(ELEMENT_SIZES)
HALF_DTYPES = ("bfloat16", "float16")
# One dtype for each element size that a transpose tells apart.
TRANSPOSE_DTYPES: dict[int, str] = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64", 16: "complex128"}
MATMUL_LAYOUTS = ("NN", "NT", "TN", "TT")  # which operand is a transposed view: a first, then b
TRANSPOSE_LAYOUTS = ("contiguous", "pitched", "transposed", "strided")

# (m, n, k): a is (m, k), b is (k, n).
SEED_SHAPE = (2398, 132, 1298)  # 2398x1298 @ 1298x132
SQUARES = tuple((n, n, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192))
LANGUAGE_MODEL_M = (1, 16, 64, 128, 512, 2048, 8192)
LANGUAGE_MODEL_NK = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
LANGUAGE_MODEL = tuple((m, n, k) for n, k in LANGUAGE_MODEL_NK for m in LANGUAGE_MODEL_M)
ODD = ((4095, 4097, 4099), (8191, 8191, 8191), (1000, 1000, 1000), (511, 513, 1025), (2398, 1298, 132))
VOCABULARY = ((1024, 50257, 768), (1024, 50257, 4096))
SKINNY = ((1048576, 64, 64), (64, 64, 1048576), (16, 16, 1048576), (128, 128, 65536))
FLAT = ((4096, 4096, 64), (8192, 8192, 128))
# Every k around 4096: what an operand that is not on 16-byte boundaries costs, and what a step of k that is not full.
K_SWEEP_SIDE, K_SWEEP = 4096, range(4032, 4161)
MATMUL_GROUPS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "seed": (SEED_SHAPE,),
    "square": SQUARES,
    "language-model": LANGUAGE_MODEL,
    "odd": ODD,
    "vocabulary": VOCABULARY,
    "skinny": SKINNY,
    "flat": FLAT,
}

# More shapes of the same groups in 16 bits, on CUDA: with these there are several for every goal that report.py judges.
CUDA_HALF_GROUPS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "odd": (
        (255, 255, 255),
        (257, 383, 511),
        (1001, 1001, 1001),
        (1023, 1025, 1027),
        (2047, 2047, 2047),
        (2049, 2049, 2049),
        (4096, 4097, 4096),
        (4097, 4096, 4096),
    ),
    "vocabulary": ((1024, 32003, 4096), (4096, 50257, 1024)),
}

# What a CPU's goals that report.py judges speak of, and other lists leave out: float32 in the middle, small, and with
# few rows or columns; 16-bit floats in every layout; other dtypes where PyTorch's calls are not too long.
CPU_MIDDLE = (*((n, n, n) for n in (512, 1000, 1024, 2048)), (511, 513, 1025), (1023, 1025, 1027))
CPU_SMALL = tuple((n, n, n) for n in (8, 16, 33, 64, 100, 128, 200, 255, 256))
CPU_THIN = tuple(
    shape for few in (1, 4, 16) for shape in ((few, 1024, 1024), (few, 4096, 1024), (1024, few, 1024), (4096, few, 512))
)
CPU_HALF = ((256, 256, 256), (512, 512, 512), (511, 513, 1025))
CPU_DTYPE = ((256, 256, 256), (512, 512, 512), (511, 513, 1025), (1024, 1024, 1024))
CPU_SMALL_TRANSPOSES = ((16, 16), (33, 31), (64, 64), (100, 100), (3, 1000), (1000, 3))

# (m, n): x is (m, n), the result (n, m).
TRANSPOSE_GROUPS: dict[str, tuple[tuple[int, int], ...]] = {
    "seed": ((2398, 1298), (1298, 132)),
    "square": tuple((n, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192, 16384)),
    "odd": ((8191, 8193), (4097, 8195), (1000, 1000), (511, 513)),
    "skinny": tuple(shape for n in (3, 16, 64) for shape in ((1048576, n), (n, 1048576))),
    "wide": ((4096, 14336), (2000, 100000), (100003, 129)),
}
# One side of a narrow matrix, and the other.
NARROW_LENGTH, NARROW_SIDES = 1048576, (3, 4, 8, 16, 33, 64)
# More shapes of the same groups, for which a CPU would take too long: with these there are several for every goal
# that report.py judges. The rows of 8198x8202 are even, yet most of them begin off every 16-byte boundary.
CUDA_TRANSPOSE_GROUPS: dict[str, tuple[tuple[int, int], ...]] = {
    "odd": (
        *((n, n) for n in (1023, 2047, 4095)),
        (8191, 8192),
        (8192, 8191),
        (16383, 16385),
        (129, 100003),
    ),
    "skinny": tuple(
        shape
        for n in NARROW_SIDES
        for shape in ((NARROW_LENGTH, n), (n, NARROW_LENGTH))
        if shape not in TRANSPOSE_GROUPS["skinny"]
    ),
    "wide": ((14336, 4096), (100000, 2000), (8198, 8202), (512, 262144)),
}

# The classic kernels and what follows them, each one idea more than the last.
MATMUL_LADDER = {"cuda": ("naive", "tiled", "tiled_dynamic", "simt"), "cpu": ("naive", "blocked")}
# Steps that only 16-bit floats have.
HALF_LADDER = {"cuda": ("mma", "wgmma"), "cpu": ()}
TRANSPOSE_LADDER = {"cuda": ("naive", "shared", "padded", "padded16", "vectorized"), "cpu": ("naive", "blocked")}
LADDER_SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), SEED_SHAPE)

# Every layout and dtype need not meet every shape: these few tell them apart.
_LAYOUT_SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (1000, 1000, 1000), (511, 513, 1025), (16, 4096, 4096))
# The main squares in 16 bits, in every layout, and one of them with bases one element past an aligned one.
_HALF_LAYOUT_SHAPES = ((2048, 2048, 2048), (8192, 8192, 8192))
_HALF_OFFSET_SHAPE = (4096, 4096, 4096)
# Multiples of 8, which TMA reads where they lie, whose rows start off the cache's lines of 128 bytes.
_HALF_OFF_LINE_SHAPES = ((3000, 3000, 3000), (4104, 4104, 4104), (5000, 5000, 5000))
_DTYPE_SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (511, 513, 1025), SEED_SHAPE)
# Complex products that tensor cores may do as real ones, in every layout.
_COMPLEX64_SHAPES = ((2048, 2048, 2048), (2047, 2047, 2047))
_TF32_SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (1000, 1000, 1000), (16, 4096, 4096))
# Those of the goals, in every layout: the tensor cores take tf32 only along k, and TMA only on 16-byte boundaries.
_TF32_LAYOUT_SHAPES = ((2048, 2048, 2048), (4096, 4096, 4096), (1001, 1001, 1001), (2047, 2047, 2047))
_TRANSPOSE_LAYOUT_SHAPES = ((4096, 4096), (8191, 8193))
# Read from one element past an aligned base, as a slice is.
_TRANSPOSE_OFFSET_SHAPE = (8192, 8192)
# So small that what a call costs the host is all there is to see.
_TRANSPOSE_HOST_SHAPE = (16, 16)
# Below this many multiply-adds (or elements) a call is so short that launching it shows: a CUDA graph tells the
# kernel's part, and host time the caller's.
_GRAPH_MULTIPLY_ADDS = 512**3
_GRAPH_ELEMENTS = 512 * 512


@dataclass(frozen=True)
class Case:
    """One thing to measure. Fields as in the results file; a transpose has no k (0)."""

    op: str
    group: str
    m: int
    n: int
    k: int = 0
    dtype: str = "float32"
    layout: str = "NN"
    precision: str | None = None  # float32 products only: "ieee" or "tf32"
    offset: int = 0
    batch: int = 1
    mode: str = "call"
    algorithm: str = "auto"

    @property
    def element_size(self) -> int:
        """Bytes of one element."""
        return ELEMENT_SIZES[self.dtype]

    @property
    def flops(self) -> int:
        """Real multiplications and additions; a complex multiply-add is eight of them. 0 for a transpose."""
        return self.batch * (8 if self.dtype.startswith("complex") else 2) * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Fewest bytes that must move: every operand read once, the result written once."""
        if self.op == "padded_transpose":
            return 2 * self.batch * self.m * self.n * self.element_size
        return self.batch * (self.m * self.k + self.k * self.n + self.m * self.n) * self.element_size

    @property
    def shape(self) -> str:
        """`2398x132x1298` (m, n, k) or `8192x8192` (m, n)."""
        return f"{self.m}x{self.n}" + (f"x{self.k}" if self.op == "tiled_matmul" else "")

    @property
    def name(self) -> str:
        """What `--cases` patterns are matched against, and what the progress display shows."""
        layout = self.layout + (f"+{self.offset}" if self.offset else "")
        parts = [self.op, self.group, self.shape, self.dtype, layout, self.algorithm, self.mode]
        return "/".join(parts + ([self.precision] if self.precision == "tf32" else []))


def _product(group: str, shape: tuple[int, int, int], dtype: str, **fields: str) -> Case:
    m, n, k = shape
    precision = fields.pop("precision", "ieee" if dtype == "float32" else None)
    return Case("tiled_matmul", group, m, n, k, dtype, precision=precision, **fields)  # type: ignore[arg-type]


def _transpose(group: str, shape: tuple[int, int], dtype: str, *, layout: str = "contiguous", **fields: str) -> Case:
    return Case("padded_transpose", group, *shape, dtype=dtype, layout=layout, **fields)  # type: ignore[arg-type]


def _small(case: Case) -> bool:
    if case.op == "tiled_matmul":
        return case.m * case.n * case.k <= _GRAPH_MULTIPLY_ADDS
    return case.m * case.n <= _GRAPH_ELEMENTS


def _with_modes(case: Case, device: str) -> Iterator[Case]:
    yield case
    if device == "cuda" and _small(case):
        yield replace(case, mode="graph")
        yield replace(case, mode="host")


def matmul_ladder(device: str, dtype: str) -> tuple[str, ...]:
    """The steps that a dtype has, in order."""
    return MATMUL_LADDER[device] + (HALF_LADDER[device] if dtype in HALF_DTYPES else ())


def _half_cases() -> Iterator[Case]:
    """What the goals of 16-bit products need beyond the lists that every dtype shares."""
    for group, shapes in CUDA_HALF_GROUPS.items():
        for shape in shapes:
            yield from _with_modes(_product(group, shape, "bfloat16"), "cuda")
    for shape in _HALF_LAYOUT_SHAPES:
        yield from (_product("layout", shape, "bfloat16", layout=layout) for layout in MATMUL_LAYOUTS[1:])
    for layout in MATMUL_LAYOUTS:
        yield replace(_product("offset", _HALF_OFFSET_SHAPE, "bfloat16", layout=layout), offset=1)
    yield from (_product("off-line", shape, "bfloat16") for shape in _HALF_OFF_LINE_SHAPES)
    for k in K_SWEEP:
        if k != K_SWEEP_SIDE:  # that one is a square of the list
            yield _product("k-sweep", (K_SWEEP_SIDE, K_SWEEP_SIDE, k), "bfloat16")


def _cpu_cases() -> Iterator[Case]:
    """What the goals of products on a CPU need beyond the lists that every device shares."""
    for shape in CPU_MIDDLE:
        yield from (_product("middle", shape, "float32", layout=layout) for layout in MATMUL_LAYOUTS)
    for group, shapes in (("small", CPU_SMALL), ("thin", CPU_THIN)):
        for shape in shapes:
            yield from (_product(group, shape, "float32", layout=layout) for layout in ("NN", "NT"))
    for dtype in ("float32", *HALF_DTYPES):  # the goals compare 16-bit floats with float32
        for shape in CPU_HALF:
            yield from (_product("layout", shape, dtype, layout=layout) for layout in MATMUL_LAYOUTS)
    for dtype in MATMUL_DTYPES:
        if dtype in ("float32", *HALF_DTYPES):
            continue
        for shape in CPU_DTYPE:
            yield from (_product("dtype", shape, dtype, layout=layout) for layout in ("NN", "NT"))


def matmul_cases(device: str) -> list[Case]:
    """All products to measure on "cuda" or "cpu", the most telling first (a run may be cut short)."""
    cases: list[Case] = []
    for dtype in ("float32", "bfloat16"):
        for shape in LADDER_SHAPES:
            cases += [_product("ladder", shape, dtype, algorithm=name) for name in matmul_ladder(device, dtype)]
    for dtype in ("float32", "bfloat16"):
        for group, shapes in MATMUL_GROUPS.items():
            for shape in shapes:
                cases += _with_modes(_product(group, shape, dtype), device)
    for dtype in ("float32", "bfloat16"):
        for shape in _LAYOUT_SHAPES:
            cases += [_product("layout", shape, dtype, layout=layout) for layout in MATMUL_LAYOUTS[1:]]
    for dtype in MATMUL_DTYPES:
        if dtype not in ("float32", "bfloat16"):
            cases += [_product("dtype", shape, dtype) for shape in _DTYPE_SHAPES]
    if device == "cuda":
        for shape in _COMPLEX64_SHAPES:
            cases += [_product("dtype", shape, "complex64", layout=layout) for layout in MATMUL_LAYOUTS]
        tf32 = [(shape, "NN") for shape in _TF32_SHAPES]
        tf32 += [(shape, layout) for shape in _TF32_LAYOUT_SHAPES for layout in MATMUL_LAYOUTS]
        for shape, layout in dict.fromkeys(tf32):
            cases.append(_product("tf32", shape, "float32", layout=layout, precision="tf32"))
        cases += _half_cases()
    else:
        # Under their first name: the lists overlap.
        known = {replace(case, group="") for case in cases}
        for case in _cpu_cases():
            if replace(case, group="") not in known:
                known.add(replace(case, group=""))
                cases.append(case)
    return cases


def transpose_cases(device: str) -> list[Case]:
    """All transposes to measure on "cuda" or "cpu", the most telling first."""
    cases: list[Case] = []
    for dtype in ("float32", "bfloat16"):
        for m, _, k in LADDER_SHAPES:
            cases += [_transpose("ladder", (m, k), dtype, algorithm=name) for name in TRANSPOSE_LADDER[device]]
    # The classic comparison of the padded tile with a copy.
    cases += [_transpose("ladder", (8192, 8192), "float32", algorithm=name) for name in TRANSPOSE_LADDER[device]]
    for size in (4, 2, 1, 8, 16):
        dtype = TRANSPOSE_DTYPES[size]
        for groups in (TRANSPOSE_GROUPS, CUDA_TRANSPOSE_GROUPS if device == "cuda" else {}):
            for group, shapes in groups.items():
                for shape in shapes:
                    cases += _with_modes(_transpose(group, shape, dtype), device)
        if device == "cuda":
            cases.append(replace(_transpose("offset", _TRANSPOSE_OFFSET_SHAPE, dtype), offset=1))
            cases.append(_transpose("host", _TRANSPOSE_HOST_SHAPE, dtype, mode="host"))
    if device == "cpu":
        cases += [
            _transpose("small", shape, dtype) for dtype in TRANSPOSE_DTYPES.values() for shape in CPU_SMALL_TRANSPOSES
        ]
    for dtype in TRANSPOSE_DTYPES.values():
        for shape in _TRANSPOSE_LAYOUT_SHAPES:
            cases += [_transpose("layout", shape, dtype, layout=layout) for layout in TRANSPOSE_LAYOUTS[1:]]
    return cases


def all_cases(device: str) -> list[Case]:
    """Products and transposes, ladders before everything else."""
    cases = transpose_cases(device) + matmul_cases(device)
    return sorted(cases, key=lambda case: case.group != "ladder")


def select(
    cases: Iterable[Case],
    *,
    ops: Iterable[str] = (),
    dtypes: Iterable[str] = (),
    patterns: Iterable[str] = (),
) -> list[Case]:
    """Cuts a list down. No value means everything; a pattern is a part of a name or a shell pattern for all of it."""
    ops, dtypes, patterns = list(ops), list(dtypes), list(patterns)
    return [
        case
        for case in cases
        if (not ops or case.op in ops)
        and (not dtypes or case.dtype in dtypes)
        and (not patterns or any(p in case.name or fnmatch.fnmatchcase(case.name, p) for p in patterns))
    ]
