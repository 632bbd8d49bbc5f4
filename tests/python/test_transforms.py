"""torch.func and the ways of running without or with less recording: each agrees with torch.mm and t().contiguous()."""

import itertools
import re
import warnings

import pytest
import torch
from support import on_each_algorithm, on_each_device
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
PAIRS = ((MATMUL, torch.mm), (TRANSPOSE, lambda x: x.t().contiguous()))


def real(*shape, device):
    return torch.randn(shape, dtype=torch.float64, device=device)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


class CountCalls(TorchDispatchMode):
    """The names of the pmpp operators that reach the kernels."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "pmpp":
            self.calls.append(func._schema.name.removeprefix("pmpp::"))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _no_loop_over_the_batch():
    """PyTorch warns when an operator has no rule and vmap runs it once for each element."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*performance drop.*")
        yield


def launches(call):
    """Result, and how many kernels of either operator ran for it."""
    torch.ops.pmpp._reset_stats()
    result = call()
    return result, sum(n for name, n in torch.ops.pmpp._stats().items() if name.startswith("kernel/"))


def stepped(x, dim):
    """The same values, spread over twice the memory along `dim`."""
    return torch.repeat_interleave(x, 2, dim).movedim(dim, 0)[::2].movedim(0, dim)


# ---- vmap ----------------------------------------------------------------------------------------------------------


def insert(shape, position, size):
    shape = list(shape)
    shape.insert(position, size)
    return shape


@on_each_algorithm("tiled_matmul", (torch.float64,))
def test_row_vmap_over_both_operands_is_one_launch(device, dtype, algorithm):
    for da, db, do in itertools.product((0, 1, 2), (0, 1, 2, -1), (0, 1, 2)):
        a, b = real(*insert((3, 4), da, 5), device=device), real(*insert((4, 2), db % 3, 5), device=device)
        ours, count = launches(
            lambda a=a, b=b, da=da, db=db, do=do: vmap(
                lambda x, y: MATMUL(x, y, algorithm=algorithm), in_dims=(da, db), out_dims=do
            )(a, b)
        )
        theirs = vmap(torch.mm, in_dims=(da, db), out_dims=do)(a, b)
        assert count == 1
        assert ours.shape == theirs.shape
        close(ours, theirs)


@on_each_algorithm("tiled_matmul", (torch.float64,))
def test_row_vmap_over_one_operand_is_one_launch(device, dtype, algorithm):
    def ours(x, y):
        return MATMUL(x, y, algorithm=algorithm)

    for dim, do in itertools.product((0, 1, 2), repeat=2):
        for left in (True, False):
            batched = real(*insert((3, 4) if left else (4, 2), dim, 5), device=device)
            single = real(*((4, 2) if left else (3, 4)), device=device)
            dims = (dim, None) if left else (None, dim)
            # Also batches that no view can merge with another dimension: expanded, and every other matrix of more.
            for changed in (batched, batched.narrow(dim, 0, 1).expand_as(batched), stepped(batched, dim)):
                operands = tuple(changed if x is batched else x for x in (batched, single)[:: 1 if left else -1])
                result, count = launches(
                    lambda operands=operands, dims=dims, do=do: vmap(ours, in_dims=dims, out_dims=do)(*operands)
                )
                assert count == 1
                close(result, vmap(torch.mm, in_dims=dims, out_dims=do)(*operands))


def test_row_vmap_over_one_operand_is_a_single_product_where_strides_allow():
    """More rows, or more columns, of one matrix: no batch, and no copy of the other operand."""
    a, b = real(5, 3, 4, device="cpu"), real(4, 2, device="cpu")
    left = real(3, 4, device="cpu")
    cases = (
        ((0, None), a, b, "tiled_matmul"),
        ((1, None), real(3, 5, 4, device="cpu"), b, "tiled_matmul"),
        ((2, None), real(3, 4, 5, device="cpu"), b, "_batched_matmul"),
        ((0, None), a[:, :2], b, "_batched_matmul"),
        ((None, 1), left, real(4, 5, 2, device="cpu"), "tiled_matmul"),
        ((None, 2), left, real(4, 2, 5, device="cpu"), "tiled_matmul"),
        ((None, 0), left, real(5, 4, 2, device="cpu"), "_batched_matmul"),
        ((None, 0), left, real(5, 2, 4, device="cpu").mT, "tiled_matmul"),
    )
    for dims, x, y, name in cases:
        with CountCalls() as counter:
            ours = vmap(MATMUL, in_dims=dims)(x, y)
        assert counter.calls == [name], dims
        close(ours, vmap(torch.mm, in_dims=dims)(x, y))


@on_each_device
def test_row_vmap_nested(device):
    a, b = real(2, 3, 4, 5, device=device), real(2, 3, 5, 6, device=device)
    combinations = [
        ((0, 0), (0, 0), a, b),
        ((0, None), (0, 0), a, b[0]),
        ((None, 0), (0, 0), a[0], b),
        ((0, None), (None, 0), a[:, 0], b[0]),
        ((None, 0), (0, None), a[0], b[:, 0]),
        ((0, 0), (0, None), a, b[:, 0]),
        ((0, 0), (None, 0), a[:, 0], b),
        ((1, 1), (2, 0), a.permute(2, 1, 3, 0), b),
        ((3, 0), (0, 1), a.permute(1, 2, 3, 0), b.transpose(1, 2)),
    ]
    for outer, inner, x, y in combinations:
        close(*(vmap(vmap(op, in_dims=inner), in_dims=outer)(x, y) for op in (MATMUL, torch.mm)))
    x, y, z = real(2, 3, 2, 4, 5, device=device), real(5, 4, device=device), real(2, 4, 5, device=device)
    close(vmap(vmap(vmap(MATMUL, (0, None)), (0, None)), (0, None))(x, y), x @ y)
    close(vmap(vmap(vmap(lambda p, q: MATMUL(p, q.t())), (0, None)), (0, None))(x, z), x @ z.mT)


@on_each_algorithm("padded_transpose", (torch.float64, torch.int16))
def test_row_transpose_vmap_is_one_launch(device, dtype, algorithm):
    for shape in ((3, 4), (3,), ()):
        for dim, do in itertools.product(range(len(shape) + 1), repeat=2):
            x = (real(*insert(shape, dim, 5), device=device) * 100).to(dtype)
            result, count = launches(
                lambda x=x, dim=dim, do=do: vmap(lambda x: TRANSPOSE(x, algorithm=algorithm), in_dims=dim, out_dims=do)(
                    x
                )
            )
            assert count == 1
            assert torch.equal(result, vmap(lambda x: x.t().contiguous(), in_dims=dim, out_dims=do)(x))
            assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    x = (real(2, 3, 4, 5, device=device) * 100).to(dtype)
    assert torch.equal(vmap(vmap(TRANSPOSE))(x), x.mT)
    nested = [vmap(vmap(op, in_dims=2), in_dims=1, out_dims=2)(x) for op in (TRANSPOSE, PAIRS[1][1])]
    assert torch.equal(*nested)


@on_each_device
def test_row_vmap_of_empty_operands(device):
    for batch, m, k, n in ((5, 0, 4, 2), (5, 3, 0, 2), (5, 3, 4, 0), (1, 3, 4, 2)):
        a, b = real(batch, m, k, device=device), real(batch, k, n, device=device)
        for dims, x, y in (((0, 0), a, b), ((0, None), a, b[0]), ((None, 0), a[0], b)):
            close(vmap(MATMUL, dims)(x, y), vmap(torch.mm, dims)(x, y))
        assert torch.equal(vmap(TRANSPOSE)(a), a.mT)


@on_each_device
def test_row_vmap_errors(device):
    a, b = real(5, 3, 4, device=device), real(5, 4, 2, device=device)
    cases = [
        (lambda: vmap(MATMUL)(a, b[:, :3]), "tiled_matmul: a and b shapes cannot be multiplied (3x4 and 3x2)"),
        (lambda: vmap(MATMUL)(a[0], b[:3]), "tiled_matmul: a must be a matrix, but it has 1 dimension(s) (shape [4])"),
        (lambda: vmap(MATMUL)(a, b.float()), "tiled_matmul: expected a and b to have the same dtype"),
        (lambda: vmap(MATMUL, (0, None))(a, b[0].float()), "tiled_matmul: expected a and b to have the same dtype"),
        (lambda: vmap(lambda x, y: MATMUL(x, y, algorithm="fast"))(a, b), "tiled_matmul: unknown algorithm 'fast'"),
        (
            lambda: vmap(TRANSPOSE)(a[None]),
            "padded_transpose: expected a tensor with at most 2 dimensions, but x has 3",
        ),
        (lambda: vmap(lambda x: TRANSPOSE(x, algorithm="fast"))(a), "padded_transpose: unknown algorithm 'fast'"),
    ]
    for call, text in cases:
        with pytest.raises((RuntimeError, ValueError), match=re.escape(text)):
            call()
    if device == "cuda":
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            vmap(MATMUL)(a, b.cpu())


@on_each_device
def test_row_vmap_out_is_refused_as_mm_refuses_it(device):
    a, b = real(5, 3, 4, device=device), real(4, 2, device=device)
    for op in (MATMUL, torch.mm):
        with pytest.raises(RuntimeError, match="fallback path doesn't work on out="):
            vmap(lambda x, op=op: op(x, b, out=torch.empty(3, 2, dtype=a.dtype, device=device)))(a)
    with pytest.raises(RuntimeError, match="fallback path doesn't work on out="):
        vmap(lambda x: TRANSPOSE(x, out=torch.empty(4, 3, dtype=a.dtype, device=device)))(a)


@on_each_device
def test_row_vmap_tensors_that_escape_are_refused(device):
    kept = []
    vmap(lambda x: kept.append(x) or x)(real(5, 3, 3, device=device))
    for call in (lambda x: MATMUL(x, x), TRANSPOSE, lambda x: torch.mm(x, x)):
        with pytest.raises(RuntimeError, match=r"outside of that vmap|escaped"):
            call(kept[0])


# ---- derivatives ---------------------------------------------------------------------------------------------------


def product_power(op):
    return lambda a, b: op(a, b).pow(3).sum()


@on_each_device
def test_row_func_grad_vmap_of_grad_and_grad_of_vmap(device):
    a, b = real(5, 3, 4, device=device), real(5, 4, 2, device=device)
    for argnums in (0, 1, (0, 1)):
        for dims, x, y in (((0, 0), a, b), ((0, None), a, b[0]), ((None, 0), a[0], b)):
            close(*(grad(product_power(op), argnums)(a[0], b[0]) for op in (MATMUL, torch.mm)))
            close(*(vmap(grad(product_power(op), argnums), dims)(x, y) for op in (MATMUL, torch.mm)))
            close(*(grad(product_power(vmap(op, dims)), argnums)(x, y) for op in (MATMUL, torch.mm)))
            close(
                *(vmap(vmap(grad(product_power(op), argnums)), (0, 0))(a[None], b[None]) for op in (MATMUL, torch.mm))
            )
            close(
                *(
                    grad(
                        lambda x, y, op=op, dims=dims: vmap(grad(product_power(op)), dims)(x, y).pow(2).sum(), argnums
                    )(x, y)
                    for op in (MATMUL, torch.mm)
                )
            )
    for ours in (vmap(grad(lambda x: TRANSPOSE(x).pow(3).sum())), grad(lambda x: vmap(TRANSPOSE)(x).pow(3).sum())):
        close(ours(a), 3 * a.pow(2))


@on_each_device
def test_row_func_vmap_of_grad_over_both_is_batched_launches_alone(device):
    """One for the product and one for each gradient, whatever the size of the batch."""
    a, b = real(7, 3, 4, device=device), real(7, 4, 2, device=device)
    for argnums, expected in ((0, 2), (1, 2), ((0, 1), 3)):
        _, count = launches(lambda argnums=argnums: vmap(grad(product_power(MATMUL), argnums))(a, b))
        assert count == expected


@on_each_device
def test_row_func_jacobians_and_hessians(device):
    a, b = real(3, 4, device=device), real(4, 2, device=device)
    for argnums in (0, 1, (0, 1)):
        for transform in (jacrev, jacfwd):
            close(*(transform(op, argnums)(a, b) for op in (MATMUL, torch.mm)))
            close(*(transform(product_power(op), argnums)(a, b) for op in (MATMUL, torch.mm)))
        close(*(hessian(product_power(op), argnums)(a, b) for op in (MATMUL, torch.mm)))
    batch = (real(2, 3, 4, device=device), real(2, 4, 2, device=device))
    close(*(vmap(hessian(product_power(op)))(*batch) for op in (MATMUL, torch.mm)))
    close(*(jacrev(jacfwd(product_power(op)))(a, b) for op in (MATMUL, torch.mm)))
    close(*(jacfwd(jacrev(product_power(op)))(a, b) for op in (MATMUL, torch.mm)))
    for transform in (jacrev, jacfwd):
        close(*(transform(op)(a) for op in (TRANSPOSE, PAIRS[1][1])))
    close(*(hessian(lambda x, op=op: (op(x) * x.t()).sum())(a) for op in (TRANSPOSE, PAIRS[1][1])))


@on_each_device
def test_row_func_jvp_and_forward_ad(device):
    a, b = real(3, 4, device=device), real(4, 2, device=device)
    da, db = torch.randn_like(a), torch.randn_like(b)
    close(*(jvp(op, (a, b), (da, db)) for op in (MATMUL, torch.mm)))
    close(*(jvp(lambda x, op=op: op(x, b), (a,), (da,)) for op in (MATMUL, torch.mm)))
    close(*(jvp(op, (a,), (da,)) for op in (TRANSPOSE, PAIRS[1][1])))
    close(
        *(
            jvp(lambda x, op=op: jvp(lambda y: op(y, b).pow(2), (x,), (da,))[1], (a,), (da,))
            for op in (MATMUL, torch.mm)
        )
    )
    close(*(vjp(op, a, b)[1](torch.ones(3, 2, dtype=a.dtype, device=device)) for op in (MATMUL, torch.mm)))
    batch = torch.stack([a, da])
    close(*(vmap(lambda x, op=op: jvp(lambda y: op(y, b), (x,), (da,))[1])(batch) for op in (MATMUL, torch.mm)))
    tangents = []
    for op in (MATMUL, torch.mm):
        with forward_ad.dual_level():
            dual = op(forward_ad.make_dual(a, da), forward_ad.make_dual(b, db))
            tangents.append(forward_ad.unpack_dual(dual).tangent)
    close(*tangents)
    with forward_ad.dual_level(), torch.no_grad():
        dual = TRANSPOSE(forward_ad.make_dual(a, da))
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, da.t())
    # Tangents of one operand cost one product more, of both two; without any there is none.
    with forward_ad.dual_level():
        for x, y, expected in ((a, b, 1), (forward_ad.make_dual(a, da), b, 2), (a, forward_ad.make_dual(b, db), 2)):
            with CountCalls() as counter:
                MATMUL(x, y)
            assert counter.calls == ["tiled_matmul"] * expected


@on_each_device
def test_row_func_per_sample_gradients_of_a_model(device):
    class Model(torch.nn.Module):
        def __init__(self, multiply):
            super().__init__()
            self.multiply = multiply
            self.weight = torch.nn.Parameter(real(4, 3, device=device))

        def forward(self, x):
            return self.multiply(x, self.weight).tanh()

    samples = real(6, 2, 4, device=device)
    results = []
    for multiply in (MATMUL, torch.mm):
        torch.manual_seed(1)
        model = Model(multiply)
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters, x, model=model):
            return functional_call(model, parameters, (x,)).pow(2).sum()

        results.append(vmap(grad(loss), (None, 0))(parameters, samples)["weight"])
    close(*results)


@on_each_device
def test_row_func_gradients_through_batches_are_differentiable_and_economic(device):
    """backward through vmap outside of torch.func: only the wanted side, through the batched operator."""
    for needs_a, needs_b in ((True, False), (False, True), (True, True)):
        a, b = real(5, 3, 4, device=device), real(5, 4, 2, device=device)
        a.requires_grad_(needs_a)
        b.requires_grad_(needs_b)
        with CountCalls() as counter:
            vmap(MATMUL)(a, b).pow(2).sum().backward()
        assert counter.calls == ["_batched_matmul"] * (1 + needs_a + needs_b)
        assert (a.grad is not None, b.grad is not None) == (needs_a, needs_b)
    a, b = real(5, 3, 4, device=device).requires_grad_(), real(5, 4, 2, device=device).requires_grad_()
    assert torch.autograd.gradcheck(vmap(MATMUL), (a, b))
    assert torch.autograd.gradgradcheck(vmap(MATMUL), (a, b))
    z = torch.randn(2, 3, 4, dtype=torch.complex128, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(vmap(lambda x: MATMUL(x.conj(), x.mT)), (z,), check_batched_grad=True)
    assert torch.autograd.gradcheck(vmap(TRANSPOSE), (a,), check_batched_grad=True, check_forward_ad=True)
    assert torch.autograd.gradcheck(
        MATMUL,
        (a[0].detach().requires_grad_(), b[0].detach().requires_grad_()),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


@on_each_device
def test_row_func_batched_operators_pass_opcheck(device):
    a, b = real(2, 3, 4, device=device).requires_grad_(), real(2, 4, 2, device=device).requires_grad_()
    torch.library.opcheck(torch.ops.pmpp._batched_matmul.default, (a, b))
    torch.library.opcheck(torch.ops.pmpp._batched_transpose.default, (a,))


@on_each_device
def test_row_func_vmap_and_grad_inside_a_compiled_function(device):
    a, b = real(5, 3, 4, device=device), real(5, 4, 2, device=device)
    compiled = torch.compile(vmap(grad(product_power(MATMUL))), fullgraph=True, backend="aot_eager")
    close(compiled(a, b), vmap(grad(product_power(torch.mm)))(a, b))
    torch._dynamo.reset()


# ---- modes ---------------------------------------------------------------------------------------------------------


@on_each_device
def test_row_autograd_inference_mode(device):
    with torch.inference_mode():
        a, b = real(3, 4, device=device), real(4, 2, device=device)
        results = MATMUL(a, b), TRANSPOSE(a), MATMUL(a, b, out=torch.empty(3, 2, dtype=a.dtype, device=device))
        assert all(x.is_inference() and not x.requires_grad for x in results)
    weight = real(4, 2, device=device).requires_grad_()
    for op in (MATMUL, torch.mm):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            op(a, weight)
    assert not MATMUL(a, b).requires_grad


@on_each_device
@pytest.mark.parametrize("reentrant", [False, True])
def test_row_autograd_checkpointing(device, reentrant):
    gradients = []
    for matmul, transpose in ((MATMUL, TRANSPOSE), (torch.mm, PAIRS[1][1])):
        torch.manual_seed(2)
        a, b = real(3, 4, device=device).requires_grad_(), real(2, 4, device=device).requires_grad_()

        def block(a, b, matmul=matmul, transpose=transpose):
            return matmul(a, transpose(b)).tanh()

        checkpoint(block, a, b, use_reentrant=reentrant).sum().backward()
        gradients.append((a.grad, b.grad))
    close(*gradients)


@on_each_device
def test_row_autograd_saved_tensor_hooks(device):
    a, b = real(3, 4, device=device).requires_grad_(), real(4, 2, device=device).requires_grad_()
    packed = []

    def pack(x):
        packed.append(x)
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i] * 2):
        result = MATMUL(a, b)
    assert len(packed) == 2
    result.sum().backward()
    ones = torch.ones(3, 2, dtype=a.dtype, device=device)
    close(a.grad, 2 * ones @ b.detach().t())
    close(b.grad, 2 * a.detach().t() @ ones)
    with torch.autograd.graph.save_on_cpu():
        result = MATMUL(a, b)
    a.grad = None
    result.sum().backward()
    close(a.grad, ones @ b.detach().t())


@on_each_device
def test_row_autograd_errors_are_those_of_mm(device):
    a, b = real(3, 4, device=device).requires_grad_(), real(4, 2, device=device)
    out = torch.empty(3, 2, dtype=a.dtype, device=device)
    for op in (MATMUL, torch.mm):
        with pytest.raises(RuntimeError, match=r"functions with out=\.\.\. arguments don't support automatic"):
            op(a, b, out=out)
        with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
            op(a.detach(), b).sum().backward()
        with pytest.raises(RuntimeError, match=r"shape|size"):
            torch.autograd.grad(op(a, b), a, torch.ones(2, 3, dtype=a.dtype, device=device))
        result = op(a, b).sum()
        torch.autograd.grad(result, a)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(result, a)
        with pytest.raises(RuntimeError, match=r"differentiated Tensors?.* appears to not have been used"):
            torch.autograd.grad(op(a, b).sum(), real(2, 2, device=device).requires_grad_())


@on_each_device
def test_row_autograd_hooks_on_tensors_and_nodes(device):
    seen = []
    a, b = real(3, 4, device=device).requires_grad_(), real(4, 2, device=device).requires_grad_()
    result = MATMUL(a, b)
    assert result.grad_fn.name() == "TiledMatmulBackward"
    assert [edge[0].variable is leaf for edge, leaf in zip(result.grad_fn.next_functions, (a, b), strict=True)] == [
        True
    ] * 2
    result.register_hook(lambda g: seen.append("result") or g * 2)
    result.grad_fn.register_hook(lambda grads_in, grads_out: seen.append(("node", len(grads_in), len(grads_out))))
    result.sum().backward()
    assert seen == ["result", ("node", 2, 1)]
    close(a.grad, 2 * torch.ones_like(result) @ b.detach().t())
