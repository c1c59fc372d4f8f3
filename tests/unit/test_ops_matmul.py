"""``tilewright.ops.matmul``: shapes, views instead of copies, fake kernels. What computes is a stand-in on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.ladder.compiling import constants_of
from tilewright.ladder.launching import runs_code
from tilewright.ladder.matmul_op import Request, arrays_of, explain_matmul, make_matmul, request_of
from tilewright.ladder.products import pick
from tilewright.ladder.references.matmul import matmul as reference
from tilewright.ladder.specs import bound_launches, operation_spec, rung_spec
from tilewright.ladder.views import DeviceView, bound_operation

torch = pytest.importorskip("torch")


def stand_in(request: Request, alpha: float, beta: float, rung: str | None) -> None:
    """The family's reference on the very arrays that a kernel would get."""
    none = np.empty(0)
    arrays = (request.a, request.b, request.bias, request.c)
    a, b, bias, c = (none if t is None else t.double().numpy() for t in arrays)
    activation = request.product.sizes("matmul")["activation"]
    made = reference(a, b, bias, c, alpha=alpha, beta=beta, activation=activation)["y"]
    request.y.copy_(torch.from_numpy(made))


@pytest.fixture(scope="module")
def matmul() -> Any:
    return make_matmul(stand_in, "tilewright_test::matmul")


def half(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float32).to(torch.bfloat16)


SHAPES = [
    ((5, 7), (7, 9)),
    ((3, 5, 7), (7, 9)),
    ((2, 3, 5, 7), (7, 9)),
    ((3, 5, 7), (3, 7, 9)),
    ((1, 5, 7), (3, 7, 9)),
    ((5, 7), (3, 7, 9)),
    ((0, 7), (7, 9)),
    ((5, 0), (0, 9)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_shapes_are_those_of_pytorch(matmul: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, w = half(*a), half(*b)
    assert torch.allclose(matmul(x, w).double(), x.double() @ w.double(), rtol=1e-2, atol=1e-6)
    torch.library.opcheck(matmul.operator, (x, w, None, None, 1.0, 1.0, "none", None))


def test_an_epilogue(matmul: Any) -> None:
    x, w, bias, c = half(5, 7), half(9, 7), half(9), half(9)
    got = matmul(x, w.t(), bias=bias, c=c, alpha=0.5, beta=-2, activation="gelu").double()
    sums = 0.5 * x.double() @ w.double().t() - 2 * c.double() + bias.double()
    assert torch.allclose(got, torch.nn.functional.gelu(sums), rtol=1e-2, atol=1e-6)
    broken = torch.full((5, 9), float("nan"), dtype=torch.bfloat16)
    assert torch.isfinite(matmul(x, w.t(), c=broken, beta=0)).all(), "a c that is not asked for is not read"


def test_under_torch_compile(matmul: Any) -> None:
    def layer(x: Any, w: Any, bias: Any) -> Any:
        return matmul(x * 2, w.t(), bias=bias, activation="relu") + 1

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    w, bias = half(9, 8), half(9)
    for rows in (3, 6):
        x = half(rows, 8)
        assert torch.equal(compiled(x, w, bias), layer(x, w, bias))


def layout(a: Any, b: Any, **more: Any) -> tuple[str, int]:
    request = request_of(a, b, more.get("bias"), more.get("c"), 1.0, 1.0, "none")
    for given, got in ((a, request.a), (b, request.b)):
        assert given.data_ptr() == got.data_ptr(), "a copy"
    return request.product.layout, request.product.batches


def test_layouts_are_seen_in_strides_and_nothing_is_copied() -> None:
    x, w = half(16, 24), half(24, 32)
    assert layout(x, w) == ("NN", 1)
    assert layout(x, half(32, 24).t()) == ("NT", 1)
    assert layout(half(24, 16).t(), w) == ("TN", 1)
    assert layout(half(24, 16).t(), half(32, 24).t()) == ("TT", 1)
    assert layout(half(16, 48)[:, ::2], w) == ("SN", 1)
    assert layout(half(4, 16, 24), w) == ("NN", 1)  # its rows are one matrix's
    assert layout(half(4, 20, 24)[:, :16], w) == ("NN", 4)  # here they are not: b stands for all four
    assert layout(half(16, 4, 24).transpose(0, 1), w) == ("NN", 4)
    assert layout(half(4, 24, 16).transpose(1, 2), half(4, 32, 24).transpose(1, 2)) == ("TT", 4)


def bound_to(request: Request) -> str:
    """The rung that a call on a card would launch on these arrays, bound as it would be there; its maps, too."""
    found = pick(request.product, lambda least: runs_code(least, "sm_90"), None)
    family, sizes = found.family, request.product.sizes(found.family.name)
    views = {
        name: DeviceView(4096, tuple(t.shape), t.stride(), str(t.dtype).removeprefix("torch."), 0, t)
        for name, t in arrays_of(request, family.name).items()
    }
    whole = bound_operation(family, operation_spec(family, request.product.dtype), views, sizes)
    spec = rung_spec(family, found.rung, request.product.dtype)
    assert dict(whole.sizes) == sizes
    bound_launches(spec, whole.sizes, constants_of(spec))
    return found.name


def test_arrays_are_what_a_rung_takes() -> None:
    bias, row = half(520), half(520)
    taken = set()
    for a, b in ((half(1, 64), half(64, 520)), (half(300, 64), half(520, 64).t()), (half(64, 9).t(), half(64, 520))):
        for more in ((None, None), (bias, None), (None, row), (bias, half(a.shape[0], 520))):
            taken.add(bound_to(request_of(a, b, *more, 1.0, 0.5, "silu" if more[0] is None else "none")))
            taken.add(bound_to(request_of(a, b, *more, 2.0, 0.5, "none")))
    for a, b in (
        (half(1, 33), half(33, 7)),
        (half(3, 64), half(72, 64).t()),
        (half(300, 65), half(520, 65).t()),
        (half(601, 603), half(707, 603).t()),
        (half(33, 1), half(1, 9)),
        (half(5, 33)[:, ::2], half(17, 9)),
        (half(3, 5, 7), half(7, 9)),
        (half(3, 5, 8), half(3, 16, 8).transpose(1, 2)),
        (half(5, 8), half(3, 8, 16)),
        (half(5, 4, 8).transpose(0, 1), half(8, 16)),
        (half(2048, 64), half(64, 4096)),
        (half(1000, 512), half(512, 1024)),
        (half(1000, 512), half(512, 2056)),
        (half(2048, 1024), half(1024, 2056)),
        (half(2048, 4096), half(4096, 4096)),
        (half(2048, 64), half(4096, 64).t()),
        (half(2, 2048, 64), half(2, 4100, 64).transpose(1, 2)),
    ):
        for c in (None, half(b.shape[-1])):
            taken.add(bound_to(request_of(a, b, None, c, 1.0, 1.0, "none")))
    named = {"20_persistent", "21_split_k", "22_direct", "23_little", "24_packed"}
    plain = {"25_pingpong", "36_back_and_forth", "37_fitted", "38_turned"}
    assert {*(f"matmul/{name}" for name in named), *(f"hgemm/{name}" for name in plain)} <= taken, taken


def test_an_explanation_without_a_card() -> None:
    x, w = half(256, 512), half(1024, 512)
    told = explain_matmul(x, w.t(), bias=half(1024), activation="silu", rung="20_persistent", arch="sm_90a")
    assert (told.rung, told.layout, told.epilogue) == ("matmul/20_persistent", "NT", "silu(a @ b + bias)")
    assert explain_matmul(x, w.t(), arch="sm_86").rung == "matmul/02_cp_async"
    assert explain_matmul(x[:, ::2], w[:, ::2].t(), arch="sm_86").rung == "matmul/23_little"
    for rung in ("20_persistent", None):
        on_meta = explain_matmul(x.to("meta"), w.t().to("meta"), arch="sm_90a", rung=rung)
        assert on_meta == explain_matmul(x, w.t(), arch="sm_90a", rung=rung)
    with pytest.raises(TilewrightError, match=r"a lies on no card.*arch='sm_90a'"):
        explain_matmul(x, w.t())
    with pytest.raises(TilewrightError, match="nothing is launched"):
        explain_matmul(x[:0], w.t(), arch="sm_90a")


WRONG = [
    (lambda x, w: ((x, w), {}), r"a has the shape \(5, 7\) and b \(9, 7\): K differs"),
    (lambda x, w: ((x[0], w.t()), {}), "arrays of 1 and 2 dimensions"),
    (lambda x, w: ((x.expand(2, 5, 7), w.t().expand(3, 7, 9)), {}), "batches of 2 and 3 matrices"),
    (lambda x, w: ((x, w.t().half()), {}), "a is torch.bfloat16 on cpu, and b torch.float16"),
    (lambda x, w: ((x, w.t()), {"bias": x[:, 0]}), r"bias has the shape \(5,\); it needs \(9,\)"),
    (lambda x, w: ((x, w.t()), {"bias": half(18)[::2]}), "bias has gaps"),
    (lambda x, w: ((x, w.t()), {"activation": "tanh"}), "no activation 'tanh'.*gelu_tanh"),
    (lambda x, w: ((half(2, 3, 8, 7)[:, :, :5], w.t()), {}), "its rows lie in no line"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_no_product_is_refused(matmul: Any, arguments: Any, message: str) -> None:
    given, named = arguments(half(5, 7), half(9, 7))
    with pytest.raises(TilewrightError, match=message):
        matmul(*given, **named)


def test_in_the_hosts_memory_there_is_no_kernel() -> None:
    from tilewright import ops

    with pytest.raises(TilewrightError, match="'a' lies in the host's memory"):
        ops.matmul(half(5, 7), half(7, 9))
