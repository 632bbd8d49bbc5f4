"""References, error bounds and input makers that know nothing of the library under test."""

from collections.abc import Callable

import numpy
import torch
from support import INTEGER_DTYPES, name_of

# A layout says where element (i, j) of an r x c matrix lies: (row stride, column stride, first element).
LAYOUTS: dict[str, Callable[[int, int], tuple[int, int, int]]] = {
    "row_major": lambda r, c: (c, 1, 0),
    "column_major": lambda r, c: (1, r, 0),
    "odd_base": lambda r, c: (c, 1, 1),
    "column_major_odd_base": lambda r, c: (1, r, 3),
    "sliced": lambda r, c: (c + 5, 1, 2),
    "column_major_sliced": lambda r, c: (1, r + 3, 1),
    "stepped": lambda r, c: (3 * c + 1, 3, 1),
    "stride0_rows": lambda r, c: (0, 1, 1),
    "stride0_columns": lambda r, c: (1, 0, 0),
    "stride0_both": lambda r, c: (0, 0, 2),
    "overlapping": lambda r, c: (1, 1, 0),
    # The view is taken from a slice that starts after it: its offset relative to that slice is negative.
    "negative_offset": lambda r, c: (c + 2, 1, 3),
}
# As the case list names them: whether a and b lie transposed.
CASE_LAYOUTS = {"N": "row_major", "T": "column_major"}
# Layouts in which no two elements share an address: a result can lie so.
RESULT_LAYOUTS = (
    "row_major",
    "column_major",
    "odd_base",
    "sliced",
    "column_major_sliced",
    "stepped",
    "negative_offset",
)


def extent(rows: int, columns: int, row_stride: int, column_stride: int, offset: int) -> int:
    """Elements of storage that such a matrix needs."""
    if rows == 0 or columns == 0:
        return offset
    return offset + (rows - 1) * row_stride + (columns - 1) * column_stride + 1


def addresses(rows: int, columns: int, row_stride: int, column_stride: int, offset: int) -> torch.Tensor:
    i = torch.arange(rows)[:, None] * row_stride
    j = torch.arange(columns)[None, :] * column_stride
    return (offset + i + j).flatten()


def batched_addresses(own: torch.Tensor, batch: tuple[int, int] | None) -> torch.Tensor:
    """Those of `batch`, (matrices, elements from one to the next), or of one matrix alone."""
    if batch is None:
        return own
    return (torch.arange(batch[0])[:, None] * batch[1] + own).flatten()


def poison(dtype: torch.dtype) -> float | int:
    """What lies around an operand and in a result beforehand: it must never be seen."""
    return torch.iinfo(dtype).max - 1 if dtype in INTEGER_DTYPES else float("nan")


def strided(storage: torch.Tensor, rows: int, columns: int, geometry, moved_back: bool = False) -> torch.Tensor:
    row_stride, column_stride, offset = geometry
    base = storage[len(storage) // 2 :] if moved_back else storage
    return base.as_strided((rows, columns), (row_stride, column_stride), offset)


def strided_batch(storage: torch.Tensor, rows: int, columns: int, geometry, batch: tuple[int, int]) -> torch.Tensor:
    row_stride, column_stride, offset = geometry
    return storage.as_strided((batch[0], rows, columns), (batch[1], row_stride, column_stride), offset)


def matrix(rows, columns, dtype, device="cpu", layout="row_major", fill=None, batch=None) -> torch.Tensor:
    """A matrix in a named layout (or a geometry triple), with poison in all storage that does not belong to it.

    With `batch`, (matrices, elements from one to the next), that many of them as one tensor.
    """
    geometry = LAYOUTS[layout](rows, columns) if isinstance(layout, str) else layout
    own = batched_addresses(addresses(rows, columns, *geometry), batch)
    end = extent(rows, columns, *geometry) + (0 if batch is None else (batch[0] - 1) * batch[1])
    storage = torch.full((end + 4,), poison(dtype), dtype=dtype)
    if batch is not None or (geometry[0] < columns and geometry[1] < rows):  # elements may share an address
        own = own.unique()
    storage[own] = (fill or random_numbers)(len(own), dtype)
    if batch is not None:
        return strided_batch(storage.to(device), rows, columns, geometry, batch)
    return strided(storage.to(device), rows, columns, geometry, layout == "negative_offset")


def plain_matrix(rows: int, columns: int, dtype: torch.dtype, device="cpu", transposed: bool = False) -> torch.Tensor:
    """A large dense matrix, filled on the device itself."""
    shape = (columns, rows) if transposed else (rows, columns)
    if dtype in INTEGER_DTYPES:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min, info.max, shape, dtype=dtype, device=device)
    else:
        x = torch.randn(shape, dtype=dtype, device=device)
    return x.t() if transposed else x


def byte_matrix(rows, columns, dtype, device="cpu", layout="row_major") -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix of random bits and its transpose as plain bytes, (columns, rows, element size)."""
    geometry = LAYOUTS[layout](rows, columns) if isinstance(layout, str) else layout
    size = dtype.itemsize
    count = extent(rows, columns, *geometry) + 4
    # A bool has two bit patterns; anything else is not a bool.
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count * size,), dtype=torch.uint8)
    row_stride, column_stride, offset = geometry
    values = raw.as_strided((rows, columns, size), (row_stride * size, column_stride * size, 1), offset * size)
    x = strided(raw.to(device).view(dtype), rows, columns, geometry, layout == "negative_offset")
    return x, values.permute(1, 0, 2).contiguous()


def random_numbers(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers, or integers over the whole range, so that every product wraps around."""
    if dtype in INTEGER_DTYPES:
        info = torch.iinfo(dtype)
        words = numpy.random.default_rng(int(torch.randint(2**31, ()))).integers(
            info.min, info.max, count, dtype=name_of(dtype), endpoint=True
        )
        return torch.from_numpy(words)
    return torch.randn(count, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)


def whole_numbers(largest: int) -> Callable[[int, torch.dtype], torch.Tensor]:
    """Integers from -largest to largest (from 0 for uint8), as any dtype."""

    def fill(count: int, dtype: torch.dtype) -> torch.Tensor:
        low = 0 if dtype == torch.uint8 else -largest
        real = torch.randint(low, largest + 1, (count,), dtype=torch.int64)
        if dtype.is_complex:
            imaginary = torch.randint(low, largest + 1, (count,), dtype=torch.int64)
            return torch.complex(real.double(), imaginary.double()).to(dtype)
        return real.to(dtype)

    return fill


def host(x: torch.Tensor) -> torch.Tensor:
    return x.detach().cpu()


def exact_integer_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product modulo 2^bits, where a and b are.

    By limbs of 16 bits: a sum of K products of two limbs is below K * 2^32 and so exact in float64, which multiplies
    fast everywhere (64-bit integers do not, and CUDA has no integer product at all). Limb products are added up as
    int64, which wraps around, and 2^bits divides 2^64.
    """
    assert a.shape[1] <= 1 << 21, "a float64 sum would round"
    bits = torch.iinfo(a.dtype).bits
    shifts = range(0, bits, 16)
    a_limbs = [((a.long() >> shift) & 0xFFFF).double() for shift in shifts]
    b_limbs = [((b.long() >> shift) & 0xFFFF).double() for shift in shifts]
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
    for i, left in enumerate(a_limbs):
        for j, right in enumerate(b_limbs):
            if 16 * (i + j) < bits:
                total += torch.mm(left, right).long() << (16 * (i + j))
    return total.to(a.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def reference(a: torch.Tensor, b: torch.Tensor, on_device: bool = False) -> torch.Tensor:
    """a @ b in float64 or complex128."""
    if not on_device:
        a, b = host(a), host(b)
    return torch.mm(_wide(a), _wide(b))


def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def accumulator(dtype: torch.dtype) -> torch.dtype:
    return {torch.float16: torch.float32, torch.bfloat16: torch.float32}.get(dtype, dtype)


def error_bound(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """c * K * u * (|a| @ |b|) in the accumulator's u, and one rounding of the result for 16-bit dtypes.

    c is 1 for a real dot product in any order (the classic gamma_K, with one addition to spare) and
    2 * sqrt(2) for the same in complex numbers, whose products round too. float32 sums from tensor cores are cut off,
    not rounded, by up to two units of the last place (K = 1 on an H200), which takes three more.
    """
    dtype = a.dtype
    inner = a.shape[1]
    u = unit_roundoff(accumulator(dtype))
    spare = 5 if dtype in (torch.float32, torch.complex64) else 2
    factor = (2.83 if dtype.is_complex else 1.0) * (inner + spare) * u
    bound = factor * torch.mm(_wide(a).abs(), _wide(b).abs())
    if accumulator(dtype) != dtype:
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        bound = bound * (1 + torch.finfo(dtype).eps) + unit_roundoff(dtype) * exact.abs() + smallest / 2
    return bound


def describe(a: torch.Tensor, b: torch.Tensor) -> str:
    return (
        f"a {tuple(a.shape)} strides {a.stride()} offset {a.storage_offset()}, "
        f"b {tuple(b.shape)} strides {b.stride()} offset {b.storage_offset()}, {a.dtype} on {a.device}"
    )


def assert_product(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, on_device: bool = False) -> None:
    """The result is a @ b: exactly for integers, within the error bound of float64 arithmetic otherwise."""
    assert result.shape == (a.shape[0], b.shape[1]), describe(a, b)
    assert (result.dtype, result.device) == (a.dtype, a.device), describe(a, b)
    if not on_device:
        result, a, b = host(result), host(a), host(b)
    if a.dtype in INTEGER_DTYPES:
        assert_same_bits(result, exact_integer_product(a, b), describe(a, b))
        return
    exact = torch.mm(_wide(a), _wide(b))
    error = (_wide(result) - exact).abs()
    bound = error_bound(a, b, exact)
    wrong = ~(error <= bound)  # a NaN is wrong too
    if wrong.any():
        i, j = (int(x) for x in wrong.nonzero()[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} elements are beyond the bound, first [{i}, {j}]: "
            f"{result[i, j].item()} for {exact[i, j].item()}, error {error[i, j].item():.3g}, "
            f"allowed {bound[i, j].item():.3g}; {describe(a, b)}"
        )


def raw_bytes(x: torch.Tensor) -> torch.Tensor:
    """The bytes in the order of rows, whatever dtype and strides: NaN payloads and signs of zero count."""
    size = x.element_size()
    memory = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.detach().untyped_storage())
    strides = (*(stride * size for stride in x.stride()), 1)
    return memory.as_strided((*x.shape, size), strides, x.storage_offset() * size).cpu().flatten()


def assert_same_bits(result: torch.Tensor, expected: torch.Tensor, message: str = "") -> None:
    assert result.shape == expected.shape, f"{tuple(result.shape)} for {tuple(expected.shape)}; {message}"
    assert result.dtype == expected.dtype, f"{result.dtype} for {expected.dtype}; {message}"
    got, want = raw_bytes(result), raw_bytes(expected)
    if not torch.equal(got, want):
        first = int((got != want).nonzero()[0]) // result.element_size()
        i, j = divmod(first, max(result.shape[-1], 1))
        raise AssertionError(f"bits differ, first at [{i}, {j}]; {message}")


def assert_transposed_bytes(result: torch.Tensor, expected: torch.Tensor, x: torch.Tensor) -> None:
    """The result holds exactly these bytes, (columns, rows, element size), in fresh row-major memory."""
    what = f"x {tuple(x.shape)} strides {x.stride()} offset {x.storage_offset()} {x.dtype} on {x.device}"
    assert tuple(result.shape) == tuple(expected.shape[:-1]), what
    assert (result.dtype, result.device) == (x.dtype, x.device), what
    assert_fresh_row_major(result, x)
    got = raw_bytes(result)
    if not torch.equal(got, expected.flatten()):
        first = int((got != expected.flatten()).nonzero()[0]) // x.element_size()
        i, j = divmod(first, max(x.shape[0], 1))
        raise AssertionError(f"bits differ, first at [{i}, {j}]; {what}")


def assert_fresh_row_major(result: torch.Tensor, *inputs: torch.Tensor) -> None:
    """As torch.empty makes it: the strides of `torch.empty(shape)`, offset 0, storage shared with nobody."""
    assert result.stride() == torch.empty(result.shape, device="meta").stride()
    assert result.storage_offset() == 0
    assert not result._is_view()
    assert not result.is_conj()
    assert not result.is_neg()
    for x in inputs:
        assert result is not x
        if result.numel() and x.numel():
            assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


class GuardedResult:
    """An `out` in a given layout, poisoned before, amid storage that must not be touched."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, device: str, layout, batch=None) -> None:
        geometry = LAYOUTS[layout](rows, columns) if isinstance(layout, str) else layout
        count = extent(rows, columns, *geometry) + (0 if batch is None else (batch[0] - 1) * batch[1]) + 16
        pattern = torch.randint(0, 2 if dtype == torch.bool else 256, (count * dtype.itemsize,), dtype=torch.uint8)
        self._own = batched_addresses(addresses(rows, columns, *geometry), batch)
        if dtype.is_floating_point or dtype.is_complex:
            typed = pattern.view(dtype)
            if dtype.itemsize > 1 and dtype != torch.complex32:
                typed[self._own] = poison(dtype)
        self._before = pattern.view(-1, dtype.itemsize)
        self.storage = pattern.clone().to(device)
        if batch is None:
            self.out = strided(self.storage.view(dtype), rows, columns, geometry, layout == "negative_offset")
        else:
            self.out = strided_batch(self.storage.view(dtype), rows, columns, geometry, batch)
        self.strides = self.out.stride()
        self.address = self.out.data_ptr()

    def check_surroundings(self) -> None:
        """Nothing outside the result was written, and the result lies where and as it did."""
        assert self.out.stride() == self.strides
        assert self.out.data_ptr() == self.address
        after = host(self.storage).view(self._before.shape)
        outside = torch.ones(len(after), dtype=torch.bool)
        outside[self._own] = False
        touched = (after != self._before).any(dim=1) & outside
        assert not touched.any(), f"wrote outside out, at element {int(touched.nonzero()[0])} of its storage"
