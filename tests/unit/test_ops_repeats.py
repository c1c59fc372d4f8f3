"""Repeated calls of an operator, with PyTorch: what computes is a stand-in that reads addresses on the CPU."""

from __future__ import annotations

import ctypes
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright import ops
from tilewright.errors import TilewrightError
from tilewright.ladder import repeats
from tilewright.ladder.family import load_family
from tilewright.ladder.matmul_op import Launcher, Request, make_matmul

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def hosts_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "ALIGNED_BYTES", 64)  # what PyTorch's allocator on the host gives


def at(address: int, shape: Any, strides: Any) -> Any:
    """Memory at an address as a tensor, float32."""
    count = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_float * count).from_address(address)
    return torch.frombuffer(raw, dtype=torch.float32).as_strided(shape, strides)


class Norm:
    """In the place of ``rmsnorm``'s kernels, ``x * weight + epsilon``: by tensors at first, by addresses then."""

    def __init__(self) -> None:
        self.first = self.again = 0

    def __call__(self, family: str, tensors: dict[str, Any], numbers: dict[str, float]) -> Any:
        self.first += 1
        x, weight, y = tensors["x"], tensors["weight"], tensors["y"]
        epsilon = numbers.get("epsilon", 1e-5)
        y.copy_(x.detach() * weight.detach() + epsilon)
        if x.dtype != torch.float32:
            return None
        like = [(tuple(each.shape), each.stride()) for each in (x, weight, y)]

        def again(pointers: Any, stream: int) -> None:
            self.again += 1
            one, two, out = (at(*each) for each in zip(pointers, *zip(*like, strict=True), strict=True))
            out.copy_(one * two + epsilon)

        return again


_NORM = Norm()


@pytest.fixture(scope="module")
def operator() -> Any:
    return ops.make_operator(load_family("rmsnorm"), _NORM)


@pytest.fixture
def norm(operator: Any) -> Iterator[Any]:
    operator.repeats._kept.clear()
    _NORM.first = _NORM.again = 0
    return operator


def values(*shape: int) -> tuple[Any, Any]:
    return torch.randn(shape), torch.randn(shape[-1])


def test_repeats_are_computed_on_their_own_arrays(norm: Any) -> None:
    weights = torch.randn(16)
    for _ in range(3):
        for x in (
            torch.randn(4, 16),
            torch.randn(6, 16),
            torch.randn(8, 16)[::2],
            torch.randn(5, 16)[1:],  # to a kernel, what the first is
            torch.randn(4, 17)[:, 1:],
        ):
            y = norm(x, weights)
            assert torch.equal(y, x * weights + 1e-5)
            assert y.is_contiguous()
    assert (_NORM.first, _NORM.again) == (4, 11)


def test_numbers_however_they_are_given(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    for again in (lambda: norm(x, weight, 1e-5), lambda: norm(x, weight, epsilon=1e-5)):
        assert torch.equal(again(), x * weight + 1e-5)
    assert (_NORM.first, _NORM.again) == (1, 2)
    for epsilon in (0.5, 2, 0.0, -0.0):
        for _ in range(2):
            assert torch.equal(norm(x, weight, epsilon=epsilon), x * weight + epsilon)
    assert _NORM.first == 5
    zeros = torch.zeros(4, 16), torch.ones(16)
    negative = -torch.zeros(4, 16), torch.ones(16)
    for pair in (zeros, negative):
        for epsilon in (0.0, -0.0, 0.0):
            want = pair[0] + epsilon
            assert torch.equal(torch.signbit(norm(*pair, epsilon)), torch.signbit(want)), epsilon


def test_wrong_calls_are_pytorchs_to_refuse(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    for wrong in (
        lambda: norm(x),
        lambda: norm(x, weight, 1e-5, 3),
        lambda: norm(x, weight, 1e-5, epsilon=1e-5),
        lambda: norm(x, weight, eps=1e-5),
        lambda: norm(x, [1.0]),
        lambda: norm(x, weight, [1e-5]),
    ):
        with pytest.raises((RuntimeError, TypeError)):
            wrong()
    assert torch.equal(norm(weight=weight, x=x), x * weight + 1e-5)
    with pytest.raises(TilewrightError, match="'weight' of rmsnorm has 2 dimensions"):
        norm(x, x)


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_mode_sees_a_repeat(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    with Recorder() as recorder:
        norm(x, weight)
    assert "tilewright.rmsnorm.default" in recorder.seen


def test_a_tracer_sees_a_repeat(norm: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, weight = values(4, 16)
    norm(x, weight)
    graph = make_fx(lambda x: norm(x, weight))(x)
    assert "rmsnorm" in graph.code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        traced = torch.jit.trace(lambda x: norm(x, weight), x, check_trace=False)
    assert "rmsnorm" in str(traced.graph)


def test_fake_tensors_are_never_a_repeat(norm: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, weight = values(4, 16)
    norm(x, weight)
    with FakeTensorMode() as mode:
        fake = norm(mode.from_tensor(x), mode.from_tensor(weight))
    assert type(fake) is not torch.Tensor
    assert norm(x.to("meta"), weight.to("meta")).device.type == "meta"
    assert _NORM.again == 0


def test_the_profiler_names_a_repeat(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        norm(x, weight)
    assert "tilewright::rmsnorm" in {event.key for event in profile.key_averages()}


def test_transforms_and_views_that_are_not_what_memory_holds(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    assert torch.equal(torch.func.functionalize(norm)(x, weight), x * weight + 1e-5)
    negated = x._neg_view()
    assert torch.equal(norm(negated, weight), -x * weight + 1e-5)
    with torch.inference_mode():
        for _ in range(2):
            made = norm(x, weight)
            assert made.is_inference()
            assert torch.equal(made, x * weight + 1e-5)
    assert not norm(x, weight).is_inference()


def test_a_backward_pass_of_a_repeat_is_refused(norm: Any) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    learned = x.clone().requires_grad_()
    for given in ((learned, weight), (x, torch.nn.Parameter(weight))):
        with pytest.raises(RuntimeError, match="no autograd formula"):
            norm(*given).sum().backward()
    before = _NORM.again
    with torch.no_grad():
        assert not norm(learned, torch.nn.Parameter(weight)).requires_grad
    assert _NORM.again == before + 1


def test_subclasses_see_a_repeat(norm: Any) -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    x, weight = values(4, 16)
    norm(x, weight)
    assert type(norm(x.as_subclass(Own), weight)) is Own


def test_forward_mode_is_refused_in_a_repeat(norm: Any) -> None:
    from torch.autograd import forward_ad

    x, weight = values(4, 16)
    norm(x, weight)
    with forward_ad.dual_level(), pytest.raises(TilewrightError, match="forward mode"):
        norm(x, weight)


def test_a_compiled_graph_repeats(norm: Any) -> None:
    compiled = torch.compile(lambda x, w: norm(x * 2, w) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (5, 7, 5, 7):
        x, weight = values(rows, 16)
        assert torch.equal(compiled(x, weight), x * 2 * weight + 1e-5 + 1)
    assert (_NORM.first, _NORM.again) == (2, 2)


@contextmanager
def learning(x: Any) -> Iterator[None]:
    x.requires_grad_()
    yield
    x.requires_grad_(False)


GUARDS = {
    "_overrides": (lambda: 0, lambda x: torch.overrides.BaseTorchFunctionMode()),
    "_asked_of_all": (lambda: SimpleNamespace(raw_repr=lambda: 1 << 26), lambda x: Recorder()),
    "_is_profiled": (lambda: False, lambda x: torch.profiler.profile()),
    "_wants_gradients": (lambda: False, learning),
}


@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_is_needed(norm: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = values(4, 16)
    norm(x, weight)
    blind, around = GUARDS[name]
    with around(x):
        assert norm.repeats.direct((x, weight), (1e-5,)) is None
    assert norm.repeats.direct((x, weight), (1e-5,))
    monkeypatch.setattr(norm.repeats, name, blind)
    with around(x):
        assert norm.repeats.direct((x, weight), (1e-5,)), "the guard is another one's"


def product(request: Request, alpha: float, beta: float, rung: str | None) -> Any:
    """In the place of ``matmul``'s kernels, in float32."""
    views = [request.a, request.b, request.bias, request.c, request.y]
    like = [None if view is None else (tuple(view.shape), view.stride()) for view in views]
    activation = request.product.activation

    def again(pointers: Any, stream: int) -> None:
        a, b, bias, c, y = (each and at(where, *each) for where, each in zip(pointers, like, strict=True))
        sums = alpha * (a @ b)
        sums = sums if c is None else sums + beta * c
        sums = sums if bias is None else sums + bias
        y.copy_(sums.relu() if activation == "relu" else sums)

    again([0 if view is None else view.data_ptr() for view in views], 0)
    return again


@pytest.fixture(scope="module")
def matmul() -> Any:
    return make_matmul(product, "tilewright_test::matmul_again")


def test_products_are_repeated_on_their_own_arrays(matmul: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = []
    true = matmul.repeats.again
    monkeypatch.setattr(matmul.repeats, "again", lambda *given: hits.append(true(*given)) or hits[-1])
    calls: list[tuple[Any, ...]] = [
        ((5, 8), lambda: torch.randn(8, 16), {}),
        ((5, 8), lambda: torch.randn(16, 8).t(), {}),
        ((3, 5, 8), lambda: torch.randn(8, 16), {}),
        ((5, 8), lambda: torch.randn(8, 16), {"bias": 16}),
        ((5, 8), lambda: torch.randn(8, 16), {"c": 16}),
        ((5, 8), lambda: torch.randn(8, 16), {"c": 16, "beta": 0.5}),
        ((5, 8), lambda: torch.randn(8, 16), {"c": 16, "beta": 0.0}),
        ((5, 8), lambda: torch.randn(8, 16), {"alpha": 2.0}),
        ((5, 8), lambda: torch.randn(8, 16), {"activation": "relu"}),
    ]
    for turn in range(2):
        for shape, weights, more in calls:
            a, b = torch.randn(shape), weights()
            named = {name: torch.randn(each) if name in ("bias", "c") else each for name, each in more.items()}
            got = matmul(a, b, **named)
            want = named.get("alpha", 1.0) * (a @ b)
            if "c" in named:
                want = want + named.get("beta", 1.0) * named["c"]
            want = want + named["bias"] if "bias" in named else want
            want = want.relu() if "activation" in named else want
            assert torch.allclose(got, want, atol=1e-5), (turn, shape, more)
    assert sum(hit is not None for hit in hits) == len(calls)
    with pytest.raises(TilewrightError, match="no activation 'tanh'"):
        matmul(torch.randn(5, 8), torch.randn(8, 16), activation="tanh")


def test_each_argument_of_a_product_makes_it_another_one(matmul: Any) -> None:
    a, b, c, bias = torch.randn(5, 8), torch.randn(8, 16), torch.randn(5, 16), torch.randn(16)
    usual = {"alpha": 1.0, "beta": 0.0, "activation": "none", "rung": None, "bias": bias, "c": c}
    others = {"alpha": 2.0, "beta": -0.0, "activation": "relu", "rung": "01_strided", "bias": None, "c": None}
    matmul.repeats._kept.clear()
    for count, (name, value) in enumerate([("beta", 0.0), *others.items()], start=1):
        for _ in range(2):
            matmul(a, b, **{**usual, name: value})
        assert len(matmul.repeats._kept) == count, name


def test_the_arrays_of_a_product_go_to_a_familys_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[dict[str, int]] = []
    launched = SimpleNamespace(again=lambda at, stream: places.append(dict(at)))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: SimpleNamespace(cuda_stream=0))
    matmul = make_matmul(launcher := Launcher(), "tilewright_test::matmul_places")
    launcher._ladder = SimpleNamespace(runs_on=lambda card: lambda arch: True, launched=lambda *_, **named: launched)
    a, b = (torch.randn(64, 64).bfloat16() for _ in range(2))
    c, bias = torch.randn(64, 64).bfloat16(), torch.randn(64).bfloat16()
    for more in ({}, {"bias": bias, "c": c}, {"bias": bias, "c": c, "beta": 0.0}):
        made = [matmul(a, b, **more) for _ in range(2)][1]
        want = {"a": a.data_ptr(), "b": b.data_ptr()}
        if more:
            kept = c.data_ptr() if more.get("beta") is None else 0
            want |= {"bias": bias.data_ptr(), "c": kept, "y": made.data_ptr()}
        else:
            want |= {"c": made.data_ptr()}
        assert places.pop() == want


def test_what_is_kept_keeps_no_array(norm: Any, matmul: Any) -> None:
    x, weight = values(4, 16)
    made = [norm(x, weight), matmul(x, torch.randn(16, 8))]
    gone = [weakref.ref(each) for each in (x, weight, *made)]
    del x, weight, made
    assert [each() for each in gone] == [None] * 4
