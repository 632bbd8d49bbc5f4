"""out=: the contract's row for both operators, beside what torch.mm does."""

import random
import re
import warnings

import oracle
import pytest
import torch
from support import MATMUL_DTYPES, SIZED_DTYPES, on_each_algorithm, on_each_device
from test_matmul_errors import raises
from torch.utils.flop_counter import FlopCounterMode

import torch_pmpp

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose


@on_each_algorithm("tiled_matmul", MATMUL_DTYPES)
def test_row_out_keeps_its_strides_and_is_returned(device, dtype, algorithm):
    for layout in oracle.RESULT_LAYOUTS:
        for m, n, k in ((17, 9, 20), (1, 33, 2), (33, 1, 8), (32, 16, 64), (5, 6, 0)):
            a = oracle.matrix(m, k, dtype, device)
            b = oracle.matrix(k, n, dtype, device, "column_major")
            guarded = oracle.GuardedResult(m, n, dtype, device, layout)
            assert MATMUL(a, b, algorithm=algorithm, out=guarded.out) is guarded.out
            guarded.check_surroundings()
            oracle.assert_product(guarded.out, a, b)
            # Where the result lies changes no bit of it, except where a and b change places for one that lies down its
            # columns, and what each gives to a product differs.
            changes_places = algorithm == "emulated" or (
                device == "cuda" and dtype.is_complex and algorithm in ("auto", "simt")
            )
            if not changes_places:
                oracle.assert_same_bits(guarded.out, MATMUL(a, b, algorithm=algorithm))


@on_each_algorithm("padded_transpose", SIZED_DTYPES)
def test_row_transpose_out_keeps_its_strides_and_is_returned(device, dtype, algorithm):
    for layout in oracle.RESULT_LAYOUTS:
        for in_layout in ("row_major", "column_major", "stepped", "stride0_rows"):
            for rows, columns in ((17, 34), (1, 9), (9, 1), (64, 32)):
                x, expected = oracle.byte_matrix(rows, columns, dtype, device, in_layout)
                guarded = oracle.GuardedResult(columns, rows, dtype, device, layout)
                assert TRANSPOSE(x, algorithm=algorithm, out=guarded.out) is guarded.out
                guarded.check_surroundings()
                assert torch.equal(oracle.raw_bytes(guarded.out), expected.flatten())


@on_each_algorithm("padded_transpose", SIZED_DTYPES)
def test_row_transpose_out_of_vectors_and_scalars(device, dtype, algorithm):
    for shape in ((), (5,), (0,)):
        x = torch.ones(shape, device=device).to(dtype)
        out = torch.zeros(shape, device=device).to(dtype)
        assert TRANSPOSE(x, algorithm=algorithm, out=out) is out
        assert torch.equal(out, x)


def warning_texts(call, capfd):
    """Texts of PyTorch's warnings: torch.ops prints them (its own operators' too), torch.mm raises Python warnings."""
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    printed = re.findall(r"Warning: (.*?) \(function", capfd.readouterr().err)
    return printed + [str(w.message).split(" (Triggered")[0] for w in caught]


@on_each_device
def test_row_out_of_a_wrong_shape_is_resized_with_the_warning_of_pytorch(device, capfd):
    a, b = torch.randn(4, 3, device=device), torch.randn(3, 5, device=device)
    x = torch.randn(5, 4, device=device)
    for shape in ((2, 2), (5, 4), (20,), (4, 5, 1), (7, 9), (0,), (0, 3), (), (4, 5)):
        theirs = torch.empty(shape, device=device)
        expected = warning_texts(lambda theirs=theirs: torch.ops.aten.mm.out(a, b, out=theirs), capfd)
        assert len(expected) == (shape != (4, 5) and 0 not in shape)
        for call, values in ((MATMUL, (a, b)), (TRANSPOSE, (x,))):
            out = torch.empty(shape, device=device)
            texts = warning_texts(lambda call=call, values=values, out=out: call(*values, out=out), capfd)
            assert texts == expected, shape
            assert out.shape == theirs.shape
            assert out.stride() == theirs.stride()
            assert torch.allclose(out, theirs if call is MATMUL else x.t(), atol=1e-5)


@on_each_device
def test_row_out_dtype_must_match_exactly(device):
    a = torch.randn(2, 3, device=device)
    for dtype, name in (
        (torch.float64, "Double"),
        (torch.float16, "Half"),
        (torch.int32, "Int"),
        (torch.complex64, "ComplexFloat"),
    ):
        out = torch.empty(2, 2, dtype=dtype, device=device)
        raises(
            RuntimeError, f"tiled_matmul: expected out to have dtype Float, but got {name}", MATMUL, a, a.t(), out=out
        )
        with pytest.raises(RuntimeError):
            torch.mm(a, a.t(), out=out)


OVERLAPS = {
    "the same tensor": lambda s: (s[:9].view(3, 3), s[:9].view(3, 3)),
    "its transpose": lambda s: (s[:9].view(3, 3), s[:9].view(3, 3).t()),
    "one element at the end": lambda s: (s[:9].view(3, 3), s[8:17].view(3, 3)),
    "one element at the start": lambda s: (s[8:17].view(3, 3), s[:9].view(3, 3)),
    "a shifted column slice": lambda s: (s[:30].view(3, 10)[:, 0:3], s[:30].view(3, 10)[:, 2:5]),
    "every other column": lambda s: (s[:18].view(3, 6)[:, ::2], s[:18].view(3, 6)[:, ::2]),
    "an expanded input inside": lambda s: (s[4:5].view(1, 1).expand(3, 3), s[:9].view(3, 3)),
}
APART = {
    "two halves": lambda s: (s[:9].view(3, 3), s[9:18].view(3, 3)),
    "neighbouring columns": lambda s: (s[:18].view(3, 6)[:, :3], s[:18].view(3, 6)[:, 3:]),
    "interleaved columns": lambda s: (s[:18].view(3, 6)[:, ::2], s[:18].view(3, 6)[:, 1::2]),
    "interleaved rows": lambda s: (s[:18].view(6, 3)[::2], s[:18].view(6, 3)[1::2]),
}


@on_each_device
@pytest.mark.parametrize("where", OVERLAPS)
def test_row_out_that_overlaps_an_input_is_refused(device, where):
    storage = torch.randn(40, device=device)
    x, out = OVERLAPS[where](storage)
    other = torch.randn(3, 3, device=device)
    before = storage.clone()

    def text(op, name):
        return (
            f"{op}: out overlaps {name} in memory; give it storage of its own "
            + re.escape(f"(out: shape [3, 3], strides {list(out.stride())}; {name}: ")
            + f".*{re.escape(str(list(x.stride())))}.*"
        )

    raises(RuntimeError, text("tiled_matmul", "a"), MATMUL, x, other, out=out)
    raises(RuntimeError, text("tiled_matmul", "b"), MATMUL, other, x, out=out)
    raises(RuntimeError, text("padded_transpose", "x"), TRANSPOSE, x, out=out)
    assert torch.equal(storage, before), "a refused call must not write"


def conj_or_neg(x, bit):
    """A view of x's memory that has the bit, and the values of the view without it."""
    if bit == "conj":
        return x.conj(), torch.complex(x.real, -x.imag)
    return torch._neg_view(x), -x


@on_each_device
@pytest.mark.parametrize("where", OVERLAPS)
@pytest.mark.parametrize("bit", ["conj", "neg"])
@pytest.mark.parametrize("which", ["operand", "out", "both"])
def test_row_out_that_overlaps_through_a_conj_or_neg_view_is_refused(device, which, bit, where):
    """The dispatcher resolves such views into copies; the memory that counts is the original's."""
    storage = torch.randn(40, dtype=torch.complex64, device=device)
    x, out = OVERLAPS[where](storage)
    other = torch.randn(3, 3, dtype=torch.complex64, device=device)
    if which != "out":
        x = conj_or_neg(x, bit)[0]
    if which != "operand":
        out = conj_or_neg(out, bit)[0]
    before = storage.clone()
    raises(RuntimeError, "tiled_matmul: out overlaps a in memory.*", MATMUL, x, other, out=out)
    raises(RuntimeError, "tiled_matmul: out overlaps b in memory.*", MATMUL, other, x, out=out)
    raises(RuntimeError, "padded_transpose: out overlaps x in memory.*", TRANSPOSE, x, out=out)
    assert torch.equal(storage, before), "a refused call must not write"


@on_each_device
@pytest.mark.parametrize("where", APART)
@pytest.mark.parametrize("bit", ["conj", "neg"])
@pytest.mark.parametrize("which", ["operand", "out", "both"])
def test_row_out_apart_from_a_conj_or_neg_view_is_accepted(device, which, bit, where):
    storage = torch.randn(40, dtype=torch.complex64, device=device)
    x, out = APART[where](storage)
    value = x.clone()
    if which != "out":
        x, value = conj_or_neg(x, bit)
    if which != "operand":
        out = conj_or_neg(out, bit)[0]
    before = x.clone()
    assert MATMUL(x, x, out=out) is out
    expected = torch.mm(value.to(torch.complex128), value.to(torch.complex128))
    assert torch.allclose(out.to(torch.complex128), expected, atol=1e-5)
    assert TRANSPOSE(x, out=out) is out
    assert torch.equal(out, value.t())
    assert torch.equal(x, before)


@on_each_device
@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_row_out_of_another_shape_or_dtype_beside_a_conj_or_neg_view(device, bit):
    x, value = conj_or_neg(torch.randn(3, 3, dtype=torch.complex64, device=device), bit)
    out = torch.empty(0, dtype=torch.complex64, device=device)
    assert torch.equal(TRANSPOSE(x, out=out), value.t())
    assert out.shape == (3, 3)
    out = torch.empty(0, dtype=torch.complex64, device=device)
    assert torch.allclose(MATMUL(x, x, out=out), value @ value, atol=1e-5)
    assert out.shape == (3, 3)
    wrong = torch.zeros(3, 3, dtype=torch.complex128, device=device)
    raises(RuntimeError, "tiled_matmul: expected out to have dtype ComplexFloat, .*", MATMUL, x, x, out=wrong)
    raises(RuntimeError, "padded_transpose: expected out to have dtype ComplexFloat, .*", TRANSPOSE, x, out=wrong)
    raises(RuntimeError, "tiled_matmul: a and b shapes cannot be multiplied .*", MATMUL, x, x[:2], out=wrong)
    assert not wrong.any()
    # Resized, out would grow over the operand in the storage that they share.
    storage = torch.randn(18, dtype=torch.complex64, device=device)
    x = conj_or_neg(storage[9:].view(3, 3), bit)[0]
    before = x.clone()
    raises(RuntimeError, "padded_transpose: out overlaps x in memory.*", TRANSPOSE, x, out=storage[8:9])
    assert torch.equal(x, before)


@on_each_device
def test_row_out_beside_a_conj_view_under_a_dispatch_mode_is_refused_alike(device):
    """A TorchDispatchMode sees every call; the tensors below it have memory all the same."""
    a = torch.randn(3, 3, dtype=torch.complex64, device=device)
    before = a.clone()
    with FlopCounterMode(display=False) as counter:
        raises(RuntimeError, "tiled_matmul: out overlaps a in memory.*", MATMUL, a.conj(), a, out=a)
        raises(RuntimeError, "padded_transpose: out overlaps x in memory.*", TRANSPOSE, a.conj(), out=a)
        wrong = torch.zeros(3, 3, device=device)
        raises(
            RuntimeError, "tiled_matmul: expected out to have dtype ComplexFloat, .*", MATMUL, a.conj(), a, out=wrong
        )
        out = torch.empty_like(a)
        MATMUL(a.conj(), a, out=out)
    assert torch.equal(a, before)
    assert not wrong.any()
    assert torch.allclose(out, a.conj() @ a, atol=1e-5)
    assert counter.get_total_flops() > 0


def test_row_out_beside_a_conj_view_without_memory_is_checked():
    """Meta and fake tensors: nothing to compare, but dtype and device are known."""
    a = torch.empty(3, 3, dtype=torch.complex64, device="meta")
    raises(
        RuntimeError,
        "tiled_matmul: expected out to have dtype ComplexFloat, .*",
        MATMUL,
        a.conj(),
        a,
        out=torch.empty(3, 3, device="meta"),
    )
    raises(
        RuntimeError,
        "padded_transpose: expected out to have dtype ComplexFloat, .*",
        TRANSPOSE,
        a.conj(),
        out=torch.empty(3, 3, device="meta"),
    )
    elsewhere = torch.empty(0, dtype=torch.complex64)
    raises(
        RuntimeError,
        "tiled_matmul: expected all tensors to be on the same device.*",
        MATMUL,
        a.conj(),
        a,
        out=elsewhere,
    )
    assert elsewhere.shape == (0,)
    out = torch.empty(3, 3, dtype=torch.complex64, device="meta")
    x = torch.randn(3, 3, dtype=torch.complex64)
    raises(
        RuntimeError, "padded_transpose: expected all tensors to be on the same device.*", TRANSPOSE, x.conj(), out=out
    )
    assert MATMUL(a.conj(), a, out=out) is out

    def compiled(x, out):
        MATMUL(x.conj(), x, out=out)
        return out

    call = torch.compile(compiled, backend="aot_eager", fullgraph=True)
    assert torch.allclose(call(x, torch.empty_like(x)), x.conj() @ x, atol=1e-5)
    with pytest.raises(RuntimeError, match="expected out to have dtype ComplexFloat"):
        call(x, torch.zeros(3, 3))


def test_row_out_of_another_layout_beside_a_conj_view_is_refused_by_the_dispatcher():
    x = torch.randn(3, 3, dtype=torch.complex64)
    text = r"Could not run 'pmpp::{}.out' with arguments from the '.*' backend"
    with pytest.raises(NotImplementedError, match=text.format("tiled_matmul")):
        MATMUL(x.conj(), x, out=x.to_sparse())
    with pytest.raises(NotImplementedError, match=text.format("tiled_matmul")):
        MATMUL(x.conj(), x.to_sparse_csr(), out=torch.empty_like(x))
    with pytest.raises(NotImplementedError, match=text.format("padded_transpose")):
        TRANSPOSE(torch._neg_view(torch.randn(3, 3)), out=torch.randn(3, 3).to_mkldnn())


@on_each_device
@pytest.mark.parametrize("where", APART)
def test_row_out_in_the_same_storage_but_apart_is_accepted(device, where):
    """torch.mm writes there too."""
    storage = torch.randn(40, device=device)
    x, out = APART[where](storage)
    expected = x.double() @ x.double()
    before = x.clone()
    MATMUL(x, x, out=out)
    assert torch.allclose(out.double(), expected, atol=1e-5)
    assert torch.equal(x, before)
    TRANSPOSE(x, out=out)
    assert torch.equal(out, before.t())
    assert torch.equal(x, before)


@on_each_device
def test_row_out_that_overlaps_itself_is_refused(device):
    a = torch.randn(3, 3, device=device)
    storage = torch.randn(20, device=device)
    for strides in ((0, 1), (1, 0), (0, 0), (1, 1), (2, 1), (1, 2)):
        out = storage.as_strided((3, 3), strides)
        text = "{}: out overlaps itself in memory: several of its elements share one address " + re.escape(
            f"(shape [3, 3], strides {list(strides)})"
        )
        raises(RuntimeError, text.format("tiled_matmul"), MATMUL, a, a, out=out)
        raises(RuntimeError, text.format("padded_transpose"), TRANSPOSE, a, out=out)
    # A stride that is never taken does no harm.
    out = storage.as_strided((1, 3), (0, 1))
    MATMUL(a[:1], a, out=out)
    assert torch.allclose(out, a[:1] @ a, atol=1e-5)
    TRANSPOSE(a[:, :1], out=out)
    assert torch.equal(out, a[:, :1].t())


@on_each_device
def test_row_out_interleaved_without_sharing_is_accepted(device):
    """Strides (3, 2) of a (2, 2) result: neither is a multiple of the other, and no two elements meet."""
    a = torch.randn(2, 2, device=device)
    out = torch.empty(9, device=device).as_strided((2, 2), (3, 2))
    MATMUL(a, a, out=out)
    assert torch.allclose(out, a @ a, atol=1e-5)


@on_each_device
def test_row_out_overlap_is_decided_exactly(device):
    """Random views of one storage, against sets of addresses: refused if and only if two elements meet."""
    storage = torch.zeros(64, device=device)
    numbers = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(400):
        views = []
        for _ in range(2):
            strides = numbers.choice(
                ((1, 3), (3, 1), (2, 6), (6, 2), (9, 2), (2, 9), (4, 3), (7, 3), (5, 5), (0, 4), (8, 1))
            )
            views.append(storage.as_strided((3, 3), strides, numbers.randrange(0, 24)))
        x, out = views
        cells = [
            [v.storage_offset() + i * v.stride(0) + j * v.stride(1) for i in range(3) for j in range(3)] for v in views
        ]
        refused = len(set(cells[1])) < 9 or bool(set(cells[0]) & set(cells[1]))
        seen[refused] += 1
        for call in (lambda x=x, out=out: MATMUL(x, x, out=out), lambda x=x, out=out: TRANSPOSE(x, out=out)):
            if refused:
                with pytest.raises(RuntimeError, match="out overlaps"):
                    call()
            else:
                call()
    assert min(seen.values()) > 40


GRAD_TEXT = (
    r"{}\(\): functions with out=... arguments don't support automatic differentiation, "
    r"but one of the arguments requires grad."
)


@on_each_device
def test_row_out_with_requires_grad_is_refused_as_pytorch_does(device):
    a = torch.randn(3, 3, device=device)
    tracked = a.clone().requires_grad_()
    for inputs, out in (((tracked, a), a.clone()), ((a, tracked), a.clone()), ((a, a), a.clone().requires_grad_())):
        raises(RuntimeError, GRAD_TEXT.format("mm"), torch.mm, *inputs, out=out)
        raises(RuntimeError, GRAD_TEXT.format("tiled_matmul"), MATMUL, *inputs, out=out)
    raises(RuntimeError, GRAD_TEXT.format("padded_transpose"), TRANSPOSE, tracked, out=a.clone())
    raises(RuntimeError, GRAD_TEXT.format("padded_transpose"), TRANSPOSE, a, out=a.clone().requires_grad_())
    with torch.no_grad():
        out = a.clone().requires_grad_()
        MATMUL(tracked, a, out=out)
        assert torch.allclose(out, a @ a, atol=1e-5)
        assert out.requires_grad
        assert out.grad_fn is None
        TRANSPOSE(tracked, out=out)
        assert torch.equal(out, a.t())


@on_each_device
def test_row_out_counts_as_a_write_for_the_version_check(device):
    a = torch.randn(3, 3, device=device)
    for call in (lambda out: MATMUL(a, a, out=out), lambda out: TRANSPOSE(a, out=out)):
        ours, theirs = a.clone(), a.clone()
        call(ours)
        torch.mm(a, a, out=theirs)
        assert ours._version == theirs._version == 1
        x = torch.randn(3, 3, device=device, requires_grad=True)
        saved = a.clone()
        product = (x * saved).sum()
        call(saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


@on_each_device
def test_row_out_with_the_conj_or_neg_bit_gets_the_right_values(device):
    a = torch.randn(3, 4, dtype=torch.complex64, device=device)
    b = torch.randn(4, 5, dtype=torch.complex64, device=device)
    out = torch.zeros(3, 5, dtype=torch.complex64, device=device).conj()
    MATMUL(a, b, out=out)
    assert torch.allclose(out, a @ b, atol=1e-5)
    out = torch.zeros(4, 3, dtype=torch.complex64, device=device).conj()
    TRANSPOSE(a, out=out)
    assert torch.equal(out.resolve_conj(), a.t())


@on_each_device
def test_row_out_through_the_python_functions(device):
    a = torch.randn(3, 3, device=device)
    out = torch.empty_like(a)
    assert torch_pmpp.tiled_matmul(a, a, out=out) is out
    assert torch.allclose(out, a @ a, atol=1e-5)
    assert torch_pmpp.padded_transpose(a, out=out) is out
    assert torch.equal(out, a.t())


@on_each_device
@pytest.mark.parametrize("n", [3, 64, 300])
@pytest.mark.parametrize("kept", [0, 2])
def test_row_out_resized_in_the_storage_of_an_operand(device, n, kept):
    """Growing `out` moves the storage, and with it the operand that shares it: neither may be read where it was."""
    base = torch.arange(n * n + kept, dtype=torch.float64, device=device) % 7
    a = base[: n * n].view(n, n)
    want = a.cpu() @ a.cpu()
    out = base[n * n :]
    assert out.numel() == kept
    assert MATMUL(a, a, out=out) is out
    assert torch.equal(out.cpu(), want)

    base = torch.arange(n * n + kept, dtype=torch.float64, device=device) % 7
    x = base[: n * n].view(n, n)
    want = x.t().contiguous().cpu()
    out = base[n * n :]
    TRANSPOSE(x, out=out)
    assert torch.equal(out.cpu(), want)


def test_row_out_column_slices_of_a_tall_matrix_do_not_overlap():
    """More rows than could be compared one by one."""
    big = torch.zeros(2**24 + 10, 4)
    big[:, ::2] = 1
    torch.ops.pmpp.tiled_matmul.out(big[:, ::2], torch.ones(2, 2), out=big[:, 1::2])
    assert torch.equal(big[-1], torch.tensor([1.0, 2.0, 1.0, 2.0]))
    with pytest.raises(RuntimeError, match="out overlaps a in memory"):
        torch.ops.pmpp.tiled_matmul.out(big[:, :2], torch.ones(2, 2), out=big[:, 1:3])


def test_error_undefined_tensors_are_named():
    a = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="tiled_matmul: expected b to be a tensor, but got None"):
        torch.ops.pmpp.tiled_matmul(a, None)
    with pytest.raises(RuntimeError, match="tiled_matmul: expected out to be a tensor, but got None"):
        torch.ops.pmpp.tiled_matmul.out(a, a, out=None)
