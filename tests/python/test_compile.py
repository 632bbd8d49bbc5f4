"""torch.compile with inductor: one graph for all sizes, gradients, layouts, names in a profile, modes."""

import pytest
import torch
from support import needs_cuda, on_each_device
from torch._dynamo.testing import CompileCounterWithBackend

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
SHAPES = ((7, 6, 5), (9, 4, 8), (33, 17, 3), (2, 2, 2))


@pytest.fixture(autouse=True)
def _fresh_compiler(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(x, weight, algorithm="auto"):
    return TRANSPOSE(torch.relu(MATMUL(x, weight, algorithm=algorithm)) * 2)


def operands(m, k, n, device):
    x = torch.randn(m, k, device=device, requires_grad=True)
    return x, torch.randn(k, n, device=device, requires_grad=True)


def assert_same(compiled, *arguments):
    """Values, layout and gradients are those of the eager function."""
    got, want = compiled(*arguments), layer(*arguments)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    leaves = arguments[:2]
    gradients = zip(
        torch.autograd.grad(got.square().sum(), leaves), torch.autograd.grad(want.square().sum(), leaves), strict=True
    )
    for x, y in gradients:
        torch.testing.assert_close(x, y)


@on_each_device
def test_row_compile_one_graph_serves_all_sizes(device):
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for shape in SHAPES:
        assert_same(compiled, *operands(*shape, device))
    assert counter.frame_count == 1
    (graph,) = counter.graphs
    calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert len([target for target in calls if target in (MATMUL, TRANSPOSE)]) == 2


@on_each_device
def test_row_compile_second_size_makes_the_last_graph(device):
    """Left to itself, torch.compile takes the first size for a constant and the next for a variable."""
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for shape in SHAPES:
        assert_same(compiled, *operands(*shape, device))
    assert counter.frame_count == 2


@on_each_device
def test_row_compile_each_algorithm_has_its_own_graph(device):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for algorithm in ("auto", "naive", "auto", "naive"):
        assert_same(compiled, *operands(5, 4, 3, device), algorithm)
    assert counter.frame_count == 2
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="unknown algorithm 'fast'"):
        compiled(*operands(5, 4, 3, device), "fast")


@on_each_device
def test_row_compile_operands_of_any_layout(device):
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    x = torch.randn(6, 9, device=device).t()
    weight = torch.randn(6, 2 * 7 + 1, device=device)[:, 1::2]
    for a, b in ((x, weight), (x.detach().contiguous(), weight), (x[:, :1].expand(9, 6), weight)):
        assert_same(compiled, a.requires_grad_(), b.requires_grad_())


@on_each_device
def test_row_profiling_compiled_operators_keep_their_names(device):
    compiled = torch.compile(layer, fullgraph=True)
    arguments = operands(8, 8, 8, device)
    compiled(*arguments).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        compiled(*arguments).sum().backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["pmpp::tiled_matmul"] == 3
    assert counts["pmpp::padded_transpose"] == 2
    assert not {"aten::mm", "aten::addmm", "aten::bmm"} & counts.keys()


MODES = [
    *(pytest.param("cpu", mode, id=f"cpu-{mode}") for mode in ("reduce-overhead", "max-autotune")),
    *(
        pytest.param("cuda", mode, id=f"cuda-{mode}", marks=[needs_cuda, pytest.mark.cuda])
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    ),
]


@pytest.mark.parametrize(("device", "mode"), MODES)
def test_row_compile_modes(device, mode):
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    # CUDA graphs are recorded at the second call and replayed from the third on.
    for _ in range(4):
        assert_same(compiled, *operands(24, 16, 8, device))
