"""The operators on DTensors: placements, values and gradients beside torch.mm and t(), in two processes."""

import itertools
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from ranks import Ranks
from support import HAS_CUDA, NO_CUDA

import torch_pmpp

if not torch.distributed.is_available():
    pytest.skip("this PyTorch was built without torch.distributed", allow_module_level=True)

import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

MATMUL = torch.ops.pmpp.tiled_matmul
TRANSPOSE = torch.ops.pmpp.padded_transpose
PACKAGE = pathlib.Path(torch_pmpp.__file__).resolve().parent
PLACEMENTS = (Replicate(), Shard(0), Shard(1), Partial())
# Even and uneven shards, sizes smaller than the number of processes, no elements, nothing to sum over.
SHAPES = ((8, 6, 10), (3, 5, 7), (1, 3, 1), (1, 1, 1), (0, 3, 2), (3, 0, 2))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    processes = Ranks(tmp_path_factory.mktemp("gloo"))
    yield processes
    processes.close()


def whole(*shape, dtype=torch.float64):
    """Small whole numbers: sums are exact in whatever order the processes take them."""
    real = torch.randint(-5, 6, shape).to(dtype)
    return real + 1j * torch.randint(-5, 6, shape) if dtype.is_complex else real


def place(x, placement, mesh):
    """A leaf with the value of `x`; of a partial sum each process holds a share of another size."""
    if placement.is_partial():
        share = whole(*x.shape, dtype=x.dtype)
        result = DTensor.from_local(x - share if mesh.get_rank() == 0 else share, mesh, [placement])
    else:
        result = distribute_tensor(x, mesh, [placement])
    return result.detach().requires_grad_(x.is_floating_point() or x.is_complex())


def product_and_gradients(matmul, a, b, weight):
    result = matmul(a, b)
    full = result.full_tensor()
    return result, full, torch.autograd.grad(full, (a, b), weight)


def same_placements(x, y):
    assert x.placements == y.placements, f"{x.placements} instead of {y.placements}"


# ---- tiled_matmul


def check_products(m, k, n):
    mesh = init_device_mesh("cpu", (2,))
    a, b, weight = whole(m, k), whole(k, n), whole(m, n)
    for p, q in itertools.product(PLACEMENTS, PLACEMENTS):
        operands = place(a, p, mesh), place(b, q, mesh)
        ours, full, gradients = product_and_gradients(MATMUL, *operands, weight)
        theirs, _, their_gradients = product_and_gradients(torch.mm, *operands, weight)
        same_placements(ours, theirs)
        assert torch.equal(full, a @ b), (p, q)
        wanted = weight @ b.t(), a.t() @ weight
        for gradient, beside, expected in zip(gradients, their_gradients, wanted, strict=True):
            same_placements(gradient, beside)
            assert torch.equal(gradient.full_tensor(), expected), (p, q)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_row_distribution_of_products_and_gradients_is_that_of_mm(ranks, shape):
    ranks.run(check_products, *shape)


def check_contract(dtype):
    mesh = init_device_mesh("cpu", (2,))
    # So small that bfloat16 is exact too.
    a, b, weight = whole(3, 5, dtype=dtype), whole(5, 3, dtype=dtype), whole(3, 3, dtype=dtype)
    for p, q, expected in (
        (Shard(0), Replicate(), Shard(0)),
        (Replicate(), Shard(1), Shard(1)),
        (Shard(1), Shard(0), Partial()),
        (Replicate(), Replicate(), Replicate()),
        # Linear in each operand: what is yet to be added up may be multiplied first.
        (Partial(), Replicate(), Partial()),
        (Replicate(), Partial(), Partial()),
    ):
        x, y = place(a, p, mesh), place(b, q, mesh)
        result = MATMUL(x, y)
        assert result.placements == (expected,)
        # The operator ran on the shards as they are, and nothing was sent.
        local = MATMUL(x.to_local(), y.to_local())
        assert torch.equal(result.to_local(), local)
        assert torch.equal(result.full_tensor(), MATMUL(a, b))
        if x.requires_grad:
            gradients = torch.autograd.grad(result.full_tensor(), (x, y), weight)
            wanted = weight @ b.t().conj(), a.t().conj() @ weight
            for gradient, want in zip(gradients, wanted, strict=True):
                assert torch.equal(gradient.full_tensor(), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32], ids=str)
def test_row_distribution_rules_of_the_contract(ranks, dtype):
    ranks.run(check_contract, dtype)


def check_algorithm():
    """The placements that "auto" found are remembered; the name must reach the shards all the same."""
    mesh = init_device_mesh("cpu", (2,))
    a, b = whole(4, 6), whole(6, 4)
    for p, q in ((Shard(0), Replicate()), (Shard(0), Shard(0)), (Shard(1), Shard(0))):
        x, y = place(a, p, mesh), place(b, q, mesh)
        for name in ("auto", *torch_pmpp.algorithms("tiled_matmul", "cpu", a.dtype)):
            assert torch.equal(MATMUL(x, y, algorithm=name).full_tensor(), a @ b)
        with pytest.raises(NotImplementedError, match="algorithm 'tiled' is not available for Double"):
            MATMUL(x, y, algorithm="tiled")
        for name in ("auto", *torch_pmpp.algorithms("padded_transpose", "cpu", a.dtype)):
            assert torch.equal(TRANSPOSE(x, algorithm=name).full_tensor(), a.t())
        with pytest.raises(NotImplementedError, match="algorithm 'padded' is not available"):
            TRANSPOSE(x, algorithm="padded")


def test_row_distribution_algorithm_reaches_the_shards(ranks):
    ranks.run(check_algorithm)


def check_refusals():
    mesh = init_device_mesh("cpu", (2,))
    x = place(whole(4, 6), Shard(0), mesh).detach()
    with pytest.raises(RuntimeError, match=r"a and b shapes cannot be multiplied \(4x6 and 4x6\)"):
        MATMUL(x, x)
    y = place(whole(6, 4), Replicate(), mesh).detach()
    out = place(whole(4, 4), Shard(0), mesh).detach()
    for matmul in (MATMUL, torch.mm):
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
            matmul(x, y.to_local())
    # As mm refuses it, up to releases that move `out` to whatever placement the result has.
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"):
        MATMUL(x, y, out=out)
    assert torch.equal(MATMUL(x, y).full_tensor(), x.full_tensor() @ y.full_tensor())


def test_row_distribution_refuses_what_mm_refuses(ranks):
    ranks.run(check_refusals)


# ---- padded_transpose


def check_transposes(shape, dtype):
    mesh = init_device_mesh("cpu", (2,))
    x = whole(*shape, dtype=dtype)
    reduced = {"sum": 2 * x + 1, "max": x + 1, "min": x, "product": x * (x + 1)}
    cases = [(Replicate(), x)] + [(Shard(dim), x) for dim in range(len(shape))]
    cases += [(Partial(name), value) for name, value in reduced.items()]
    for placement, value in cases:
        if placement.is_partial():
            source = DTensor.from_local(x + mesh.get_rank(), mesh, [placement])
        else:
            source = distribute_tensor(x, mesh, [placement])
        source = source.detach().requires_grad_(dtype.is_floating_point)
        result, beside = TRANSPOSE(source), source.t()
        assert torch.equal(result.full_tensor(), value.t()), placement
        # Later releases replicate what has fewer elements than there are processes before they transpose it.
        if not placement.is_shard() or shape[placement.dim] >= 2:
            same_placements(result, beside)
            assert result.to_local().shape == beside.to_local().shape
        assert result.shape == beside.shape
        assert result.to_local().is_contiguous()
        assert result.is_contiguous()
        if source.requires_grad and placement in (Replicate(), Shard(0), Shard(1), Partial()):
            weight = whole(*value.t().shape)
            (gradient,) = torch.autograd.grad(result.full_tensor(), source, weight)
            (other,) = torch.autograd.grad(beside.full_tensor(), source, weight)
            if beside.placements == result.placements:
                same_placements(gradient, other)
            assert torch.equal(gradient.full_tensor(), weight.t())


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("shape", [(8, 6), (3, 5), (1, 4), (1, 1), (0, 3), (5,), (1,), ()], ids=str)
def test_row_transpose_distribution_is_that_of_t(ranks, shape, dtype):
    ranks.run(check_transposes, shape, dtype)


# ---- models


class Linear(torch.nn.Linear):
    def forward(self, x):
        return MATMUL(x, TRANSPOSE(self.weight)) + self.bias


def make_mlp(device):
    torch.manual_seed(3)
    return torch.nn.Sequential(Linear(6, 14), torch.nn.GELU(), Linear(14, 5)).to(device, torch.float64)


def check_mlp(device_type):
    """Three steps of training, the hidden layer split over the processes, beside the same on one device."""
    mesh = init_device_mesh(device_type, (2,))
    device = torch.device(device_type, mesh.get_rank() if device_type == "cuda" else None)
    single, parallel = make_mlp(device), make_mlp(device)
    parallelize_module(parallel, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert parallel[0].weight.placements == (Shard(0),)
    assert parallel[2].weight.placements == (Shard(1),)
    assert parallel[0].weight.to_local().shape == (7, 6)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (single, parallel)]
    torch.manual_seed(4)
    for _ in range(3):
        x, y = torch.randn(9, 6, dtype=torch.float64), torch.randn(9, 5, dtype=torch.float64)
        losses = []
        for model, optimizer in zip((single, parallel), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append((model(x.to(device)) - y.to(device)).square().mean())
            losses[-1].backward()
            optimizer.step()
        torch.testing.assert_close(losses[1], losses[0])
    for ours, expected in zip(parallel.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), expected.grad)
        torch.testing.assert_close(ours.full_tensor(), expected)
    assert not torch.equal(expected, make_mlp(device)[2].bias)


def test_row_distribution_tensor_parallel_mlp(ranks):
    ranks.run(check_mlp, "cpu")


@pytest.mark.cuda
@pytest.mark.skipif(
    not HAS_CUDA or torch.cuda.device_count() < 2, reason="needs two CUDA devices" if HAS_CUDA else NO_CUDA
)
def test_row_distribution_tensor_parallel_mlp_on_two_gpus(tmp_path):
    processes = Ranks(tmp_path, "nccl")
    try:
        processes.run(check_mlp, "cuda")
    finally:
        processes.close()


def check_compiled():
    mesh = init_device_mesh("cpu", (2,))
    a, b, c = whole(6, 4), whole(4, 8), whole(8, 3)

    def two_layers(x, y, z):
        return TRANSPOSE(MATMUL(MATMUL(x, y), z))

    operands = place(a, Replicate(), mesh), place(b, Shard(1), mesh), place(c, Shard(0), mesh)
    result = torch.compile(two_layers, backend="aot_eager", fullgraph=True)(*operands)
    assert result.placements == (Partial(),)
    assert torch.equal(result.full_tensor(), (a @ b @ c).t())
    gradients = torch.autograd.grad(result.full_tensor().sum(), operands)
    wanted = torch.autograd.grad(two_layers(*operands).full_tensor().sum(), operands)
    for gradient, want in zip(gradients, wanted, strict=True):
        same_placements(gradient, want)
        assert torch.equal(gradient.full_tensor(), want.full_tensor())


def test_row_distribution_compiled_in_one_graph(ranks):
    ranks.run(check_compiled)


# ---- in interpreters of their own


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{pathlib.Path(__file__).parent}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def mesh_of_four():
    """Placements alone, on a mesh of two by two: the processes other than this one are pretended."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    pairs = list(itertools.product(PLACEMENTS, PLACEMENTS))
    count = 0
    for p in pairs:
        x = DTensor.from_local(torch.ones(4, 4), mesh, p, run_check=False)
        same_placements(TRANSPOSE(x), x.t())
        for q in pairs:
            y = DTensor.from_local(torch.ones(4, 4), mesh, q, run_check=False)
            if x.shape[1] == y.shape[0]:
                same_placements(MATMUL(x, y), torch.mm(x, y))
                count += 1
    strided = DTensor.from_local(torch.ones(4, 4), mesh, (_StridedShard(0, split_factor=2), Shard(0)), run_check=False)
    assert TRANSPOSE(strided).placements == (_StridedShard(1, split_factor=2), Shard(1))
    replicated = DTensor.from_local(torch.ones(4, 4), mesh, run_check=False)
    same_placements(MATMUL(strided, replicated), torch.mm(strided, replicated))
    print(count)


def test_row_distribution_on_a_mesh_of_two_dimensions_is_that_of_mm():
    assert int(run_python("import test_dtensor; test_dtensor.mesh_of_four()")) >= 64


HAVE_RULES = (
    "known = DTensor._op_dispatcher.sharding_propagator;"
    "assert torch.ops.pmpp.tiled_matmul.default in known.op_single_dim_strategy_funcs;"
    "assert torch.ops.pmpp.padded_transpose.default in known.op_strategy_funcs"
)


@pytest.mark.parametrize(
    "imports",
    [
        "import torch, torch_pmpp; from torch.distributed.tensor import DTensor",
        "import torch; from torch.distributed.tensor import DTensor; import torch_pmpp",
        "import torch, torch_pmpp, torch.distributed.tensor.parallel; from torch.distributed._tensor import DTensor",
    ],
)
def test_row_distribution_rules_are_there_in_whatever_order_one_imports(imports):
    run_python(f"{imports}; {HAVE_RULES}")


def test_dtensor_is_not_imported_with_the_package():
    assert run_python("import torch_pmpp, sys; print('torch.distributed.tensor' in sys.modules)") == "False"


def test_package_works_without_dtensor():
    code = "import sys; sys.modules['torch.distributed.tensor'] = None; import torch, torch_pmpp; a = torch.ones(2, 2);"
    assert run_python(code + "print(torch_pmpp.tiled_matmul(a, a).sum().item())") == "8.0"
