"""The pass that turns t().contiguous() in graphs into padded_transpose."""

import pytest
import torch
from support import needs_cuda, on_each_device
from torch.fx.experimental.proxy_tensor import make_fx

import torch_pmpp

TRANSPOSE = torch.ops.pmpp.padded_transpose
ROW_MAJOR = torch.contiguous_format
WAYS = {
    "t": lambda x: x.t().contiguous(),
    "T": lambda x: x.T.contiguous(),
    "mT": lambda x: x.mT.contiguous(),
    "transpose": lambda x: x.transpose(0, 1).contiguous(),
    "transpose_negative": lambda x: torch.transpose(x, -1, -2).contiguous(),
    "keywords": lambda x: x.transpose(dim0=1, dim1=0).contiguous(memory_format=ROW_MAJOR),
    "swapaxes": lambda x: torch.swapaxes(x, 0, 1).contiguous(),
    "permute": lambda x: x.permute(1, 0).contiguous(),
    "permute_tuple": lambda x: torch.permute(x, (1, -2)).contiguous(),
    "clone": lambda x: x.t().clone(memory_format=ROW_MAJOR),
    "torch_clone": lambda x: torch.clone(x.t(), memory_format=ROW_MAJOR),
}
LEFT_ALONE = {
    "clone_keeps_strides": lambda x: x.t().clone(),
    "not_exchanged": lambda x: x.transpose(0, 0).contiguous(),
    "no_permutation": lambda x: x.permute(0, 1).contiguous(),
    "no_transpose": lambda x: x[::2].contiguous(),
    "contiguous_already": lambda x: x.t().contiguous().t().t().contiguous().t(),
    "three_dimensions": lambda x: x[None].transpose(1, 2).contiguous(),
    "vector": lambda x: x[0].t().contiguous(),
    "not_contiguous": lambda x: x.t() * 2,
}


@pytest.fixture(autouse=True)
def _fresh_compiler(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def dynamo_rewrites(function, x, **options):
    """How many places of dynamo's graph were rewritten, and the result of running it."""
    counts = []

    def backend(module, example_inputs):
        counts.append(torch_pmpp.rewrite_transposes(module))
        return module

    result = torch.compile(function, backend=backend, fullgraph=True, **options)(x)
    assert len(counts) == 1
    return counts[0], result


@on_each_device
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_way_of_writing_it_is_rewritten_in_dynamos_graph(device, way, dynamic):
    x = torch.randn(5, 3, device=device)
    count, result = dynamo_rewrites(WAYS[way], x, dynamic=dynamic)
    assert count == 1
    assert torch.equal(result, x.t())
    assert result.is_contiguous()


@on_each_device
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_it_is_rewritten_in_a_graph_of_aten(device, way):
    x = torch.randn(5, 3, device=device)
    module = make_fx(WAYS[way], tracing_mode="fake")(x)
    assert torch_pmpp.rewrite_transposes(module) == 1
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert targets == [TRANSPOSE.default]
    assert torch.equal(module(x), x.t())
    assert torch_pmpp.rewrite_transposes(module) == 0


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_anything_else_is_left_alone(case):
    x = torch.randn(5, 3)
    count, result = dynamo_rewrites(LEFT_ALONE[case], x)
    # The one in `contiguous_already` that copies is rewritten, its twin that returns the view is not.
    assert count == (1 if case == "contiguous_already" else 0)
    assert torch.equal(result, LEFT_ALONE[case](x))


def test_a_transpose_that_costs_nothing_stays_a_view():
    x = torch.randn(3, 5).t()
    count, result = dynamo_rewrites(WAYS["t"], x)
    assert count == 0
    assert result.data_ptr() == x.data_ptr()


def test_conjugate_views_and_meta_tensors_are_left_alone():
    z = torch.randn(3, 5, dtype=torch.complex64)
    assert torch_pmpp.rewrite_transposes(make_fx(lambda z: z.conj().t().contiguous(), tracing_mode="fake")(z)) == 0
    meta = make_fx(WAYS["t"], tracing_mode="fake")(torch.empty(3, 5, device="meta"))
    assert torch_pmpp.rewrite_transposes(meta) == 0


def test_a_graph_without_recorded_tensors_is_left_alone():
    module = torch.fx.symbolic_trace(WAYS["t"])
    code = module.code
    assert torch_pmpp.rewrite_transposes(module) == 0
    assert module.code == code


def test_a_view_that_something_else_uses_stays():
    def function(x):
        view = x.t()
        return view.contiguous(), view + 1

    x = torch.randn(5, 3)
    module = make_fx(function, tracing_mode="fake")(x)
    assert torch_pmpp.rewrite_transposes(module) == 1
    first, second = module(x)
    assert torch.equal(first, x.t())
    assert torch.equal(second, x.t() + 1)


BACKENDS = [pytest.param("cpu", id="cpu"), pytest.param("cuda", id="cuda", marks=[needs_cuda, pytest.mark.cuda])]


@pytest.mark.parametrize("device", BACKENDS)
def test_the_backend_compiles_a_model_forward_and_backward(device):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6, 4))

        def forward(self, x):
            return (x @ self.weight.t().contiguous().t()).relu().t().contiguous()

    torch.manual_seed(1)
    model = Model().to(device)
    x = torch.randn(7, 6, device=device, requires_grad=True)
    compiled = torch.compile(model, backend=torch_pmpp.transposing_backend, fullgraph=True)
    torch_pmpp.reset_stats()
    got = compiled(x)
    ours = torch.autograd.grad(got.pow(2).sum(), (x, model.weight))
    ran = torch_pmpp.stats().kernels
    assert sum(n for (op, _, _), n in ran.items() if op == "padded_transpose") == 4
    want = model(x)
    torch.testing.assert_close(got, want)
    for a, b in zip(ours, torch.autograd.grad(want.pow(2).sum(), (x, model.weight)), strict=True):
        torch.testing.assert_close(a, b)
