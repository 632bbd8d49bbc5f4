"""replace_mm(): PyTorch's own functions on these kernels, until it is switched off; and the counts of stats()."""

import contextlib
import copy
import itertools
import re
import threading
import warnings

import pytest
import torch
from support import COMPLEX_DTYPES, INTEGER_DTYPES, REAL_DTYPES, needs_cuda, on_each_device
from torch import nn

import torch_pmpp
from torch_pmpp._library import no_cuda_reason

HAS_NAMES = hasattr(torch.Tensor, "refine_names")


@pytest.fixture(autouse=True)
def _off_before_and_after():
    torch_pmpp.reset_stats()
    yield
    torch_pmpp.reset_stats()
    x = torch.ones(2, 2)
    torch.mm(x, x)
    assert torch_pmpp.stats() == torch_pmpp.Stats(), "the switch was left on"


def taken(device):
    return {function: n for (function, on), n in torch_pmpp.stats().taken.items() if on == device}


def fallbacks(device):
    return {(function, why): n for (function, on, why), n in torch_pmpp.stats().fallbacks.items() if on == device}


def random(*shape, dtype=torch.float32, device="cpu"):
    if dtype in INTEGER_DTYPES:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, dtype=dtype, device=device)
    return torch.randn(shape, dtype=dtype, device=device)


def close(ours, theirs):
    dtype = ours.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        assert torch.equal(ours, theirs)
        return
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(ours, theirs, rtol=32 * eps, atol=256 * eps)


# ---- what is replaced ----------------------------------------------------------------------------------------------


def expressions(device, dtype):
    """Every replaced function, its out= form, and what is made of them: name of the function -> calls of it."""
    a, b = random(5, 7, dtype=dtype, device=device), random(7, 3, dtype=dtype, device=device)
    x, y = random(4, 5, 7, dtype=dtype, device=device), random(4, 7, 3, dtype=dtype, device=device)
    c, bias, z = (random(*s, dtype=dtype, device=device) for s in ((5, 3), (3,), (4, 5, 3)))
    out, out3 = torch.empty_like(c), torch.empty_like(z)
    alpha, beta = (3, -2) if dtype in INTEGER_DTYPES else (1.5, -0.25)
    if dtype == torch.uint8:
        beta = 2
    return [
        ("mm", lambda: torch.mm(a, b)),
        ("mm", lambda: a @ b),
        ("mm", lambda: torch.mm(a, b, out=out)),
        ("mm", lambda: torch.mm(b.t(), a.t(), out=out.t()).t()),
        ("mm", lambda: torch.matmul(x, b)),
        ("mm", lambda: nn.functional.linear(a, b.t())),
        ("bmm", lambda: torch.bmm(x, y)),
        ("bmm", lambda: torch.bmm(x, y, out=out3)),
        ("bmm", lambda: x @ y),
        ("bmm", lambda: torch.bmm(x.transpose(0, 1).contiguous().transpose(0, 1), y.mT.contiguous().mT)),
        ("bmm", lambda: torch.bmm(a.expand(4, 5, 7), y)),
        ("bmm", lambda: torch.einsum("bij,bjk->bik", x, y)),
        ("bmm", lambda: torch.einsum("ij,jk->ik", a, b)),
        ("addmm", lambda: torch.addmm(c, a, b)),
        ("addmm", lambda: torch.addmm(bias, a, b, alpha=alpha, beta=beta)),
        ("addmm", lambda: torch.addmm(bias[:1], a, b, alpha=alpha)),
        ("addmm", lambda: torch.addmm(c[:, :1], a, b, beta=beta)),
        ("addmm", lambda: torch.addmm(c, a, b, beta=0)),
        ("addmm", lambda: torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out)),
        ("addmm", lambda: torch.addmm(c.clone().t().contiguous().t(), a, b, beta=beta)),
        ("addmm", lambda: nn.functional.linear(a, b.t(), bias)),
        ("baddbmm", lambda: torch.baddbmm(z, x, y, alpha=alpha, beta=beta)),
        ("baddbmm", lambda: torch.baddbmm(bias, x, y, beta=beta)),
        ("baddbmm", lambda: torch.baddbmm(c, x, y, alpha=alpha)),
        ("baddbmm", lambda: torch.baddbmm(z[:, :1], x, y, out=out3)),
        ("addmm", lambda: c.clone().addmm_(a, b, alpha=alpha, beta=beta)),
        ("addmm", lambda: torch.empty_like(c.t()).t().copy_(c).addmm_(a, b)),
        ("baddbmm", lambda: z.clone().baddbmm_(x, y, alpha=alpha, beta=beta)),
    ]


@on_each_device
@pytest.mark.parametrize("dtype", REAL_DTYPES + COMPLEX_DTYPES + INTEGER_DTYPES, ids=str)
def test_every_function_runs_here_and_gives_the_same(device, dtype):
    if device == "cuda" and dtype in INTEGER_DTYPES:
        pytest.skip("PyTorch refuses integers on CUDA, and so does the switch")
    for number, (function, call) in enumerate(expressions(device, dtype)):
        expected = call().clone()
        torch_pmpp.reset_stats()
        with torch_pmpp.replace_mm(device):
            result = call().clone()
        assert taken(device) == {function: 1}, number
        assert fallbacks(device) == {}
        assert sum(torch_pmpp.stats().kernels.values()) == 1
        assert result.stride() == expected.stride()
        close(result, expected)


@on_each_device
def test_addend_may_be_the_result(device):
    a, b, c = random(5, 7, device=device), random(7, 3, device=device), random(5, 3, device=device)
    expected = torch.addmm(c, a, b, alpha=0.5, beta=2)
    with torch_pmpp.replace_mm(device):
        close(torch.addmm(c, a, b, alpha=0.5, beta=2, out=c), expected)
    assert taken(device) == {"addmm": 1}


@on_each_device
def test_in_place_forms_are_recorded_and_checked_as_pytorchs(device):
    a, b, c = random(5, 7, device=device), random(7, 3, device=device), random(5, 3, device=device)

    def gradients():
        leaves = [x.clone().requires_grad_() for x in (a, b, c)]
        total = leaves[2] * 2
        version = total._version
        assert total.addmm_(leaves[0], leaves[1], alpha=0.5, beta=3) is total
        assert total._version == version + 1
        return torch.autograd.grad(total.square().sum(), leaves)

    expected = gradients()
    with torch_pmpp.replace_mm(device):
        for ours, theirs in zip(gradients(), expected, strict=True):
            close(ours, theirs)
    assert taken(device) == {"addmm": 1, "mm": 2}


@on_each_device
def test_functions_that_pytorch_builds_of_these(device):
    """What is not replaced by name but computes by one of the four: each call of them is ours."""
    a, b, c = random(5, 7, device=device), random(7, 3, device=device), random(5, 3, device=device)
    x, y = random(4, 5, 7, device=device), random(4, 7, 3, device=device)
    bilinear = nn.Bilinear(7, 7, 3, device=device)
    calls = [
        lambda: torch.addbmm(c, x, y),
        lambda: torch.linalg.multi_dot([a, b, c.t()]),
        lambda: torch.tensordot(x, y, dims=([2], [1])),
        lambda: torch.chain_matmul(a, b, c.t()),
        lambda: torch.inner(a, b.t()),
        lambda: nn.functional.linear(x, b.t()),
        lambda: bilinear(a, a).detach(),
    ]
    for number, call in enumerate(calls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # chain_matmul is deprecated
            expected = call()
            torch_pmpp.reset_stats()
            with torch_pmpp.replace_mm(device):
                result = call()
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        assert taken(device), number
        assert fallbacks(device) == {}, number


@on_each_device
def test_nan_in_an_addend_with_beta_0_is_not_read(device):
    a, b, c = random(5, 7, device=device), random(7, 3, device=device), torch.full((5, 3), torch.nan, device=device)
    with torch_pmpp.replace_mm(device):
        result = torch.addmm(c, a, b, beta=0)
    close(result, a @ b)


@on_each_device
def test_conjugate_and_negative_views(device):
    a, b = (random(4, 4, dtype=torch.complex128, device=device) for _ in range(2))
    calls = [lambda: a.conj() @ b.mH, lambda: torch.addmm(a.conj(), b, a.mH), lambda: a.conj().imag @ b.imag]
    expected = [call() for call in calls]
    with torch_pmpp.replace_mm(device):
        for call, want in zip(calls, expected, strict=True):
            close(call(), want)
    assert taken(device) == {"mm": 2, "addmm": 1}


# ---- what is not ---------------------------------------------------------------------------------------------------


def refusals(device):
    """Calls that are PyTorch's: the reason, and the call, which may raise."""
    a, b, c = random(5, 7, device=device), random(7, 3, device=device), random(5, 3, device=device)
    x = random(2, 5, 7, device=device)
    square = random(6, 6, device=device)
    return [
        ("shape", lambda: torch.mm(a, a)),
        ("shape", lambda: torch.mm(a, b[0])),
        ("shape", lambda: torch.bmm(x, x)),
        ("shape", lambda: torch.bmm(x, b)),
        ("shape", lambda: torch.addmm(c[:2], a, b)),
        ("shape", lambda: torch.addmm(x, a, b)),
        ("dtype", lambda: torch.mm(a, b.double())),
        ("dtype", lambda: torch.mm(a.bool(), b.bool())),
        ("dtype", lambda: torch.addmm(c.double(), a, b)),
        ("empty", lambda: torch.mm(a[:0], b)),
        ("empty", lambda: torch.mm(a[:, :0], b[:0])),
        ("empty", lambda: torch.addmm(c, a[:, :0], b[:0], beta=2)),
        ("out", lambda: torch.mm(a, b, out=torch.empty(0, device=device))),
        ("out", lambda: torch.mm(a, b, out=torch.empty(5, 3, dtype=torch.float64, device=device))),
        ("out", lambda: torch.mm(square, square, out=square)),
        ("out", lambda: c[:, :1].clone().addmm_(a, b)),
        ("out", lambda: square.clone()[:, :1].expand(6, 6).addmm_(square, square)),
        ("out", lambda: x[:1, :, :3].clone().baddbmm_(x, b.expand(2, 7, 3))),
        ("scalar", lambda: torch.addmm(c, a, b, alpha=0)),
        ("scalar", lambda: torch.addmm(c, a, b, alpha=1j)),
        # Later releases of PyTorch have no named dimensions.
        *([("names", lambda: torch.mm(a.refine_names("m", "k"), b).rename(None))] if HAS_NAMES else []),
        ("device", lambda: torch.mm(a, b.to("meta"))),
    ]


def outcome(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resized outs and named tensors warn
        try:
            return call().clone()
        except Exception as error:
            return type(error), str(error)


@on_each_device
def test_what_is_not_taken_is_pytorchs_with_its_errors(device):
    for (reason, plain), (_, switched) in zip(refusals(device), refusals(device), strict=True):
        torch.manual_seed(3)
        expected = outcome(plain)
        torch_pmpp.reset_stats()
        with torch_pmpp.replace_mm(device):
            result = outcome(switched)
        assert taken(device) == {}
        if isinstance(expected, tuple):
            assert result == expected
        else:
            assert result.shape == expected.shape
        if reason == "device":
            continue  # a meta operand never gets as far as a kernel of this device
        assert [why for _, why in fallbacks(device)] == [reason], reason


def test_integers_with_fractional_factors_are_pytorchs():
    a = random(3, 3, dtype=torch.int32)
    expected = outcome(lambda: torch.addmm(a, a, a, alpha=1.5))
    with torch_pmpp.replace_mm("cpu"):
        result = outcome(lambda: torch.addmm(a, a, a, alpha=1.5))
    assert fallbacks("cpu") == {("addmm", "scalar"): 1}
    assert torch.equal(result, expected) if isinstance(expected, torch.Tensor) else result == expected


@on_each_device
def test_sparse_operands_never_get_here(device):
    a, b = random(4, 4, device=device), random(4, 4, device=device)
    expected = torch.sparse.mm(a.to_sparse(), b)
    with torch_pmpp.replace_mm(device):
        close(torch.sparse.mm(a.to_sparse(), b), expected)
        close(torch.mm(a.to_sparse_csr(), b), expected)
    assert taken(device) == {}


@on_each_device
def test_nothing_recurses_and_pytorchs_kernel_keeps_its_own(device):
    """PyTorch computes a large bmm of some dtypes by one product for each matrix: those belong to its own kernel."""
    a = random(3, 40, 40, dtype=torch.float64, device=device)
    with torch_pmpp.replace_mm(device):
        torch.baddbmm(a, a, a, alpha=0)
        torch.bmm(a, a, out=torch.empty(0, dtype=a.dtype, device=device))
    assert taken(device) == {}
    assert sum(fallbacks(device).values()) == 2


# ---- on, off, nested, threads --------------------------------------------------------------------------------------


def is_on(device):
    before = sum(taken(device).values())
    x = torch.ones(2, 2, device=device)
    torch.mm(x, x)
    return sum(taken(device).values()) > before


@on_each_device
def test_on_and_off(device):
    switch = torch_pmpp.replace_mm(device)
    assert not is_on(device)
    switch.on()
    try:
        assert is_on(device)
        with pytest.raises(RuntimeError, match=rf"replace_mm: already on for {device}; nothing was changed"):
            torch_pmpp.replace_mm(device).on()
        assert is_on(device)
    finally:
        switch.off()
    assert not is_on(device)
    with pytest.raises(RuntimeError, match=rf"replace_mm: not on for {device}; nothing was changed"):
        switch.off()
    assert not is_on(device)


@on_each_device
def test_blocks_nest_within_each_other_and_within_the_pair(device):
    switch = torch_pmpp.replace_mm(device)
    with switch:
        with switch, torch_pmpp.replace_mm(device):
            assert is_on(device)
        assert is_on(device)
        switch.on()
        assert is_on(device)
    assert is_on(device)
    with switch:
        switch.off()
        assert is_on(device)
    assert not is_on(device)


@on_each_device
def test_the_original_is_back_after_an_exception(device):
    a, b = random(33, 47, device=device), random(47, 29, device=device)
    expected = torch.mm(a, b)
    on = []

    def fail():
        on.append(is_on(device))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch_pmpp.replace_mm(device):
        fail()
    assert on == [True]
    with pytest.raises(RuntimeError, match="cannot be multiplied"), torch_pmpp.replace_mm(device):
        torch.mm(a, a)
    assert not is_on(device)
    assert torch.equal(torch.mm(a, b), expected)


@on_each_device
def test_as_a_decorator(device):
    @torch_pmpp.replace_mm(device)
    def inside():
        return is_on(device)

    assert inside()
    assert inside()
    assert not is_on(device)


def test_the_registrations_are_taken_back():
    """The dispatcher's own table reads the same before and after."""

    def table():
        return {
            name: torch._C._dispatch_dump(f"aten::{name}")
            for name in (
                *("mm", "mm.out", "addmm", "addmm.out", "addmm_"),
                *("bmm", "bmm.out", "baddbmm", "baddbmm.out", "baddbmm_"),
            )
        }

    before = table()
    with torch_pmpp.replace_mm("cpu"):
        assert all(during != before[name] for name, during in table().items())
    assert table() == before


def test_switching_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch_pmpp.replace_mm("cpu"):
            pass


def test_one_device_is_switched_and_not_the_other():
    with torch_pmpp.replace_mm("cpu"):
        assert is_on("cpu")
        if no_cuda_reason() is None:
            assert not is_on("cuda")


@on_each_device
def test_threads_that_compute_while_others_switch(device):
    """Each call runs one way or the other, and gives the same for whole numbers."""
    a = torch.randint(-4, 5, (16, 16), device=device).double()
    expected = (a.cpu().long() @ a.cpu().long()).double().to(device)
    stop = threading.Event()
    failures = []
    computed = itertools.count()

    def compute():
        while not stop.is_set():
            for result in (torch.mm(a, a), torch.bmm(a[None], a[None])[0], torch.addmm(a, a, a, beta=0)):
                if not torch.equal(result, expected):
                    failures.append(result)
            next(computed)

    def switch():
        try:
            for _ in range(300):
                with torch_pmpp.replace_mm(device):
                    torch.mm(a, a)
        except Exception as error:
            failures.append(error)

    computing = [threading.Thread(target=compute) for _ in range(2)]
    switching = [threading.Thread(target=switch) for _ in range(2)]
    for thread in computing + switching:
        thread.start()
    for thread in switching:
        thread.join()
    stop.set()
    for thread in computing:
        thread.join()
    assert failures == []
    assert next(computed) > 0
    assert not is_on(device)


def test_wrong_devices_are_refused_and_change_nothing():
    for device in ("mps", "meta", "cuda:0", ("cpu", "xpu")):
        with pytest.raises(ValueError, match="expected cpu or cuda"):
            torch_pmpp.replace_mm(device)
    with pytest.raises(ValueError, match="got none"):
        torch_pmpp.replace_mm(())
    with pytest.raises(RuntimeError, match="replace_mm: no kernels for devices of type meta; expected cpu or cuda"):
        torch.ops.pmpp._replace_mm(torch.device("meta"), "on")
    with pytest.raises(ValueError, match="unknown change 'sideways'"):
        torch.ops.pmpp._replace_mm(torch.device("cpu"), "sideways")
    assert not is_on("cpu")


@pytest.mark.skipif(no_cuda_reason() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_changes_nothing():
    text = "built for the CPU alone" if torch_pmpp.build_info.cuda is None else "PyTorch sees no CUDA device"
    for switch in (torch_pmpp.replace_mm(), torch_pmpp.replace_mm(("cpu", "cuda"))):
        for change in (switch.on, switch.__enter__):
            with pytest.raises(RuntimeError, match=f"replace_mm: .*{re.escape(text)}; nothing was changed"):
                change()
        assert not is_on("cpu")
    with pytest.raises(RuntimeError, match="not on for cuda"):
        torch_pmpp.replace_mm().off()


# ---- models --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One layer of a transformer as people write it: linear, matmul, @ and einsum."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width, bias=False)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.query_key_value(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.mT / (width // self.heads) ** 0.5, -1)
        x = x + self.project(torch.einsum("bhts,bhsd->bthd", weights, v).reshape(b, t, width))
        return x + self.mix(x)


def train(model, x, call=None):
    model = copy.deepcopy(model)
    call = call(model) if call else model
    loss = call(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def assert_same_training(ours, theirs):
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


@on_each_device
def test_an_unmodified_model_trains_eager(device):
    model = Block().to(device)
    x = torch.randn(2, 8, 32, device=device)
    expected = train(model, x)
    with torch_pmpp.replace_mm(device):
        assert_same_training(train(model, x), expected)
    counts = taken(device)
    # Two layers with a bias, two without, whatever linear makes of each; two gradients for each product.
    assert sum(counts.values()) == 6 * 3
    assert counts["bmm"] == 2 * 3
    assert fallbacks(device) == {}


@on_each_device
def test_an_unmodified_model_trains_compiled(device, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    model = Block().to(device)
    x = torch.randn(2, 8, 32, device=device)
    expected = train(model, x)
    torch._dynamo.reset()
    compiled = []

    def compile_once(model):
        compiled.append(torch.compile(model, fullgraph=True))
        return compiled[-1]

    with torch_pmpp.replace_mm(device):
        assert_same_training(train(model, x, compile_once), expected)
        assert sum(taken(device).values()) >= 12
        assert fallbacks(device) == {}
    # The same code runs on PyTorch's kernels once the switch is off.
    torch_pmpp.reset_stats()
    with torch.no_grad():
        compiled[0](x)
    assert torch_pmpp.stats().taken == {}
    torch._dynamo.reset()


@pytest.mark.cuda
@needs_cuda
def test_an_unmodified_model_trains_in_cuda_graphs(tmp_path_factory, monkeypatch):
    """Recorded at the second call and replayed from then on, with the kernels that were on while it was recorded."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    model = Block().cuda()
    x = torch.randn(2, 8, 32, device="cuda")
    expected = train(model, x)
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    with torch_pmpp.replace_mm():
        for _ in range(4):
            model.zero_grad(set_to_none=True)
            loss = compiled(x).square().mean()
            loss.backward()
            assert_same_training([loss.detach(), *(p.grad for p in model.parameters())], expected)
    assert taken("cuda")
    assert fallbacks("cuda") == {}
    torch._dynamo.reset()


@pytest.mark.cuda
@pytest.mark.skipif(
    no_cuda_reason() is not None or torch.cuda.device_count() < 2, reason=no_cuda_reason() or "needs two CUDA devices"
)
def test_operands_on_another_device_than_the_current_one():
    torch.cuda.set_device(0)
    for function, call in expressions("cuda:1", torch.float32):
        expected = call().clone()
        torch_pmpp.reset_stats()
        with torch_pmpp.replace_mm():
            result = call().clone()
        assert taken("cuda") == {function: 1}
        assert result.device == torch.device("cuda:1")
        close(result, expected)
    assert torch.cuda.current_device() == 0


@on_each_device
@pytest.mark.parametrize("kind", ["gru", "attention", "conv_and_linear"])
def test_modules_of_torch_nn(device, kind):
    modules = {
        "gru": lambda: nn.GRU(8, 16, batch_first=True),
        "attention": lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True),
        "conv_and_linear": lambda: nn.Sequential(nn.Conv1d(5, 3, 1), nn.Flatten(), nn.Linear(3 * 16, 4)),
    }
    torch.manual_seed(4)
    module = modules[kind]().to(device)
    x = torch.randn(3, 5, 8 if kind == "gru" else 16, device=device)

    def result():
        y = module(x)
        return (y[0] if isinstance(y, tuple) else y).square().mean()

    expected = torch.autograd.grad(result(), tuple(module.parameters()))
    with torch_pmpp.replace_mm(device):
        for ours, theirs in zip(torch.autograd.grad(result(), tuple(module.parameters())), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    if not (device == "cuda" and kind == "gru"):  # cuDNN's
        assert sum(taken(device).values()) > 0


@on_each_device
def test_autocast_and_functional_transforms_under_the_switch(device):
    x, weight = random(6, 8, device=device), random(8, 8, device=device)

    def results():
        with torch.autocast(device, dtype=torch.bfloat16):
            low = x @ weight
        gradients = torch.func.vmap(torch.func.grad(lambda row: (row[None] @ weight).square().sum()))(x)
        return low, gradients

    expected = results()
    with torch_pmpp.replace_mm(device):
        ours = results()
    assert ours[0].dtype == torch.bfloat16
    torch.testing.assert_close(ours[0], expected[0], rtol=2e-2, atol=2e-2)
    close(ours[1], expected[1])
    assert fallbacks(device) == {}


# ---- counts --------------------------------------------------------------------------------------------------------


@on_each_device
def test_stats_name_kernels_functions_and_reasons(device):
    a = random(4, 4, device=device)
    plan = torch.ops.pmpp._tiled_matmul_plan(a, a).split()[0]
    torch_pmpp.tiled_matmul(a, a)
    torch_pmpp.tiled_matmul(a, a, algorithm="naive")
    torch_pmpp.padded_transpose(a, algorithm="naive")
    with torch_pmpp.replace_mm(device), contextlib.suppress(RuntimeError):
        torch.mm(a, a)
        torch.mm(a, a[:2])
    found = torch_pmpp.stats()
    assert found.kernels["tiled_matmul", device, plan] == 2
    assert found.kernels["tiled_matmul", device, "naive"] == 1
    assert found.kernels["padded_transpose", device, "naive"] == 1
    assert found.taken == {("mm", device): 1}
    assert found.fallbacks == {("mm", device, "shape"): 1}
    for part in (
        f"{plan} on {device}: 2",
        f"taken     mm on {device}: 1",
        f"fallback  mm on {device}: 1, shapes that do",
    ):
        assert part in str(found)
    torch_pmpp.reset_stats()
    assert torch_pmpp.stats() == torch_pmpp.Stats()
    assert str(torch_pmpp.stats()) == "nothing was counted"


@on_each_device
def test_stats_lose_no_call_of_any_thread(device):
    a = random(4, 4, device=device)

    def work():
        for _ in range(200):
            torch_pmpp.tiled_matmul(a, a, algorithm="naive")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch_pmpp.stats().kernels == {("tiled_matmul", device, "naive"): 800}


def test_every_reason_has_words():
    from torch_pmpp._switch import REASONS

    counted = {why for why, _ in refusals("cpu")} | {"layout", "names"}
    assert counted == set(REASONS)
