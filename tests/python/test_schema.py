"""Schemas, opcheck, meta kernels against real strides, symbolic sizes, fake CUDA tensors, a first torch.compile."""

import oracle
import pytest
import torch
from support import FLOATING_DTYPES, MATMUL_DTYPES, all_dtypes, on_each_algorithm, on_each_device
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.flop_counter import FlopCounterMode

import torch_pmpp

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
SCHEMAS = {
    MATMUL.default: 'pmpp::tiled_matmul(Tensor a, Tensor b, *, str algorithm="auto") -> Tensor',
    MATMUL.out: 'pmpp::tiled_matmul.out(Tensor a, Tensor b, *, str algorithm="auto", Tensor(a!) out) -> Tensor(a!)',
    TRANSPOSE.default: 'pmpp::padded_transpose(Tensor x, *, str algorithm="auto") -> Tensor',
    TRANSPOSE.out: 'pmpp::padded_transpose.out(Tensor x, *, str algorithm="auto", Tensor(a!) out) -> Tensor(a!)',
}


@pytest.mark.parametrize("overload", SCHEMAS, ids=str)
def test_schemas_are_those_of_the_contract(overload):
    assert str(overload._schema) == SCHEMAS[overload]


@pytest.mark.parametrize("overload", SCHEMAS, ids=str)
def test_row_compile_operators_are_marked_compliant(overload):
    """Without the tag torch.compile may fall back to a graph break or to real strides that it has to guess."""
    assert torch.Tag.pt2_compliant_tag in overload.tags


def opcheck_inputs(device, dtype):
    differentiable = dtype.is_floating_point or dtype.is_complex
    for m, n, k, layout in (
        (3, 4, 5, "row_major"),
        (4, 2, 3, "column_major"),
        (0, 3, 2, "row_major"),
        (3, 2, 0, "row_major"),
    ):
        a = oracle.matrix(m, k, dtype, device, layout)
        b = oracle.matrix(k, n, dtype, device, layout)
        yield a.requires_grad_(differentiable), b.requires_grad_(differentiable)


@on_each_algorithm("tiled_matmul", (torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int32))
def test_row_compile_opcheck_tiled_matmul(device, dtype, algorithm):
    for a, b in opcheck_inputs(device, dtype):
        torch.library.opcheck(MATMUL.default, (a, b), {"algorithm": algorithm}, rtol=1e-2, atol=1e-2)


@on_each_algorithm("padded_transpose", (torch.float32, torch.complex64, torch.int8))
def test_row_compile_opcheck_padded_transpose(device, dtype, algorithm):
    for x, _ in opcheck_inputs(device, dtype):
        torch.library.opcheck(TRANSPOSE.default, (x,), {"algorithm": algorithm})
    for shape in ((), (3,)):
        torch.library.opcheck(
            TRANSPOSE.default, (torch.ones(shape, device=device).to(dtype),), {"algorithm": algorithm}
        )


@on_each_algorithm("tiled_matmul", (torch.float32, torch.int32))
def test_row_compile_opcheck_out_overloads(device, dtype, algorithm):
    for a, b in opcheck_inputs(device, dtype):
        a, b = a.detach(), b.detach()
        for out in (a.new_empty(a.shape[0], b.shape[1]), a.new_empty(b.shape[1], a.shape[0]).t()):
            torch.library.opcheck(MATMUL.out, (a, b), {"algorithm": algorithm, "out": out.fill_(1)})
    transposes = torch_pmpp.algorithms("padded_transpose", device, dtype)
    x = oracle.matrix(3, 5, dtype, device)
    for name in ["auto", *transposes]:
        torch.library.opcheck(TRANSPOSE.out, (x,), {"algorithm": name, "out": x.new_zeros(5, 3)})


@on_each_algorithm("tiled_matmul", MATMUL_DTYPES)
def test_row_compile_meta_agrees_with_real_results(device, dtype, algorithm):
    for m, n, k in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1), (0, 0, 0)):
        for layout in ("row_major", "column_major", "stepped", "stride0_rows"):
            a, b = oracle.matrix(m, k, dtype, device, layout), oracle.matrix(k, n, dtype, device, layout)
            real = MATMUL(a, b, algorithm=algorithm)
            meta = MATMUL(a.to("meta"), b.to("meta"), algorithm=algorithm)
            assert meta.device.type == "meta"
            assert (meta.shape, meta.stride(), meta.dtype, meta.storage_offset()) == (
                real.shape,
                real.stride(),
                dtype,
                0,
            )
            out = torch.empty(n, m, dtype=dtype, device="meta").t()
            assert MATMUL(a.to("meta"), b.to("meta"), algorithm=algorithm, out=out) is out
            assert out.shape == (m, n)


@on_each_device
def test_row_transpose_meta_agrees_with_real_results(device):
    for dtype in all_dtypes():
        for shape in ((3, 4), (1, 4), (4, 1), (0, 3), (3, 0), (0, 0), (3,), (0,), ()):
            x = torch.empty(shape, dtype=dtype, device=device)
            real, meta = TRANSPOSE(x), TRANSPOSE(torch.empty(shape, dtype=dtype, device="meta"))
            assert (meta.shape, meta.stride(), meta.dtype) == (real.shape, real.stride(), dtype)


def test_row_compile_meta_tensors_are_differentiable():
    a = torch.empty(3, 4, device="meta", requires_grad=True)
    b = torch.empty(4, 5, device="meta", requires_grad=True)
    TRANSPOSE(MATMUL(a, b)).sum().backward()
    assert a.grad.shape == a.shape
    assert b.grad.shape == b.shape


def symbolic(mode, *tensors):
    fakes = [mode.from_tensor(x) for x in tensors]
    assert all(isinstance(size, torch.SymInt) for fake in fakes for size in fake.shape)
    return fakes


def test_row_compile_meta_keeps_symbolic_sizes():
    environment = ShapeEnv()
    # Sizes that differ get symbols of their own.
    real = torch.empty(5, 7), torch.empty(7, 11), torch.empty(13, 17)
    with FakeTensorMode(shape_env=environment, static_shapes=False) as mode:
        a, b, x = symbolic(mode, *real)
        product, transposed = MATMUL(a, b), TRANSPOSE(x)
        for size in (*product.shape, *transposed.shape):
            assert isinstance(size, torch.SymInt), "a size was specialised"
        assert product.shape[0].node.expr == a.shape[0].node.expr
        assert product.shape[1].node.expr == b.shape[1].node.expr
        assert transposed.shape[0].node.expr == x.shape[1].node.expr
        assert transposed.shape[1].node.expr == x.shape[0].node.expr
        assert product.stride(0).node.expr == b.shape[1].node.expr
        assert product.stride(1) == 1
        assert not environment.replacements or all(not e.is_number for e in environment.replacements.values())


def test_row_compile_fake_tensors_report_shape_errors():
    with FakeTensorMode():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            MATMUL(torch.empty(2, 3), torch.empty(4, 5))
        with pytest.raises(RuntimeError, match="at most 2 dimensions"):
            TRANSPOSE(torch.empty(2, 3, 4))


def test_row_compile_fake_cuda_tensors_need_no_gpu():
    with FakeTensorMode():
        for dtype in MATMUL_DTYPES:
            a, b = torch.empty(3, 4, dtype=dtype, device="cuda"), torch.empty(4, 5, dtype=dtype, device="cuda")
            for result in (MATMUL(a, b), MATMUL(b.t(), a.t()).t()):
                assert result.device.type == "cuda"
                assert result.shape == (3, 5)
                assert result.dtype == dtype
            result = TRANSPOSE(a)
            assert result.device.type == "cuda"
            assert result.shape == (4, 3)
            assert result.is_contiguous()
        for algorithm in ("naive", "tiled", "tiled_dynamic", "simt"):
            a = torch.empty(3, 3, device="cuda", requires_grad=True)
            result = MATMUL(a, a, algorithm=algorithm)
            assert result.device.type == "cuda"
            assert result.requires_grad
        with pytest.raises(RuntimeError) as caught:
            MATMUL(torch.empty(3, 4, device="cuda"), torch.empty(4, 5))
        assert "cuda:0" in str(caught.value)
        assert "cpu" in str(caught.value)


COMPILED = (torch.float32, torch.complex64)


@on_each_algorithm("tiled_matmul", COMPILED)
def test_row_compile_matmul_and_backward_in_one_graph_with_dynamic_shapes(device, dtype, algorithm):
    def step(a, b):
        return (MATMUL(a, b, algorithm=algorithm) * 2).abs().sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for m, n, k in ((3, 4, 5), (7, 6, 8), (9, 2, 4)):
        inputs = [torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for shape in ((m, k), (k, n))]
        got, want = compiled(*inputs), step(*inputs)
        torch.testing.assert_close(got, want)
        for x, y in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs), strict=True):
            torch.testing.assert_close(x, y)


@on_each_algorithm("padded_transpose", COMPILED)
def test_row_transpose_compile_and_backward_in_one_graph_with_dynamic_shapes(device, dtype, algorithm):
    def step(x):
        return (TRANSPOSE(x, algorithm=algorithm) * 3).abs().sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((3, 4), (7, 6), (9, 2)):
        x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
        got, want = compiled(x), step(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, x), torch.autograd.grad(want, x))


@on_each_device
def test_row_profiling_operators_show_up_under_their_own_names(device):
    a = torch.randn(8, 8, device=device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        MATMUL(a, a)
        TRANSPOSE(a)
        torch_pmpp.tiled_matmul(a, a, out=torch.empty_like(a))
    names = {event.key for event in profile.key_averages()}
    assert {"pmpp::tiled_matmul", "pmpp::padded_transpose"} <= names
    assert not {"aten::mm", "aten::addmm", "aten::bmm"} & names, "the work must be our own"


@on_each_device
def test_row_profiling_flop_formula_is_that_of_mm(device):
    a = torch.randn(3, 4, device=device, requires_grad=True)
    b = torch.randn(4, 5, device=device, requires_grad=True)
    totals = []
    for matmul in (MATMUL, torch.mm):
        with FlopCounterMode(display=False) as counter:
            matmul(a, b).sum().backward()
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1] == 3 * 2 * 3 * 4 * 5


@on_each_algorithm("tiled_matmul", FLOATING_DTYPES)
def test_introspection_lists_algorithms_that_run_and_plans_that_name_them(device, dtype, algorithm):
    a, b = oracle.matrix(33, 17, dtype, device), oracle.matrix(17, 9, dtype, device)
    plan = torch.ops.pmpp._tiled_matmul_plan(a, b, algorithm=algorithm)
    assert plan
    assert "\n" not in plan
    if algorithm != "auto":
        assert algorithm in plan
    names = torch_pmpp.algorithms("tiled_matmul", device, dtype)
    assert "auto" not in names
    assert len(set(names)) == len(names)
    assert any(name in plan for name in names)
