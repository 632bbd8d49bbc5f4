"""Reference results in float64 (exact for integers), for the demonstration and the benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Unit roundoff of the arithmetic inside and of the one rounding at the end (16-bit types add up in
# float32).
_INNER_UNIT = {torch.float64: 2.0**-53, torch.complex128: 2.0**-53}
_FLOAT32_UNIT = 2.0**-24
_RESULT_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_TF32_OPERAND_UNIT = 2.0**-11
_SMALLEST_FLOAT16 = 2.0**-24  # below it float16 has nothing but zero


@dataclass(frozen=True)
class Judgement:
    """`error` is ||c - reference|| / ||reference||, or for integers the fraction of wrong elements."""

    passed: bool
    error: float


def is_integer(dtype: torch.dtype) -> bool:
    """Whether products of this dtype must be exact (modulo 2^bits)."""
    return not (dtype.is_floating_point or dtype.is_complex)


def integer_bound(dtype: torch.dtype, k: int) -> int:
    """Largest absolute value for which k products still add up exactly in float64 (53 bits)."""
    return min(2 ** ((52 - max(k - 1, 1).bit_length()) // 2), torch.iinfo(dtype).max)


def random_matrix(
    rows: int,
    columns: int,
    dtype: torch.dtype,
    device: torch.device | str,
    generator: torch.Generator,
    *,
    k: int = 1,
) -> Tensor:
    """Random (rows, columns) matrix: normal, or for integers uniform within `integer_bound(dtype, k)`."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (rows, columns), dtype=torch.uint8, device=device, generator=generator).bool()
    if is_integer(dtype):
        bound = integer_bound(dtype, k)
        low = 0 if torch.iinfo(dtype).min == 0 else -bound
        return torch.randint(low, bound + 1, (rows, columns), dtype=dtype, device=device, generator=generator)
    return torch.randn(rows, columns, dtype=dtype, device=device, generator=generator)


class MatmulReference:
    """The product in double precision and an error bound for each element.

    `rows` restricts both to some rows of the result (a 1-D index tensor): for products whose reference would take
    longer than everything else. `tf32` widens the bound by the rounding of the operands to 11 bits.
    """

    def __init__(self, a: Tensor, b: Tensor, *, rows: Tensor | None = None, tf32: bool = False) -> None:
        self.dtype = a.dtype
        self.rows = rows
        a = a if rows is None else a[rows]
        wide = torch.complex128 if self.dtype.is_complex else torch.float64
        wide_a, wide_b = a.to(wide), b.to(wide)
        self.product = torch.mm(wide_a, wide_b)
        if is_integer(self.dtype):
            self.exact = self.product.to(torch.int64).to(self.dtype)
            return
        magnitude = torch.mm(wide_a.abs(), wide_b.abs())
        k = a.shape[1]
        # Worst case of k products and k - 1 additions (Higham, "Accuracy and Stability of Numerical Algorithms",
        # 3.1); twice that for complex numbers, and because float64 has an equally inexact reference.
        unit = _INNER_UNIT.get(self.dtype, _FLOAT32_UNIT)
        bound = magnitude * (2 * (k + 2) * unit + (2 * _TF32_OPERAND_UNIT if tf32 else 0.0))
        bound += self.product.abs() * _RESULT_UNIT.get(self.dtype, 0.0) * (1 + 2.0**-10)
        if self.dtype == torch.float16:
            bound += _SMALLEST_FLOAT16
        self.bound = bound

    def judge(self, result: Tensor) -> Judgement:
        """Compares a whole result (all rows) of the product."""
        result = result if self.rows is None else result[self.rows]
        if is_integer(self.dtype):
            wrong = int((result != self.exact).sum())
            return Judgement(wrong == 0, wrong / max(result.numel(), 1))
        difference = result.to(self.product.dtype) - self.product
        # A NaN compares false, so a poisoned element fails.
        passed = bool((difference.abs() <= self.bound).all())
        scale = float(torch.linalg.vector_norm(self.product))
        error = float(torch.linalg.vector_norm(difference)) / scale if scale > 0 else 0.0
        return Judgement(passed and math.isfinite(error), error)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(x: Tensor) -> Tensor:
    """The same memory as integers, to compare bit for bit (NaN equals itself, -0.0 differs from 0.0)."""
    x = x.resolve_conj().resolve_neg().contiguous()
    if x.element_size() == 16:
        return torch.view_as_real(x).view(torch.int64)
    return x.view(_BITS[x.element_size()])


def judge_transpose(result: Tensor, x: Tensor) -> Judgement:
    """`error` is the fraction of elements that differ in any bit from those of `x.t()`."""
    expected = x.t()
    if result.shape != expected.shape or result.dtype != expected.dtype or not result.is_contiguous():
        return Judgement(False, 1.0)
    same = torch.equal(bits_of(result), bits_of(expected))
    return Judgement(same, 0.0 if same else float((bits_of(result) != bits_of(expected)).double().mean()))
