"""Elementwise operations, embedding and histogram as PyTorch operators on a card, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
DTYPES = ("float32", "float16", "bfloat16")
UNARY = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "gelu": torch.nn.functional.gelu,
}
BINARY = {"add": torch.add, "silu_mul": lambda a, b: torch.nn.functional.silu(a) * b}
SHAPES = ((), (1,), (31,), (33,), (0,), (3, 5, 7), (1000, 1003), (1 << 21,), (3 << 20, 5))


def operator(name: str) -> Any:
    from tilewright import ops

    return getattr(ops, name)


def values(shape: tuple[int, ...], dtype: str) -> Any:
    """Of all sizes, and what is not finite."""
    x = torch.randn(shape, device="cuda") * 3
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 1e-41, 6e-8], device="cuda")
    x.view(-1)[: x.numel() // 2 : 5] = special[
        torch.arange(x.view(-1)[: x.numel() // 2 : 5].numel(), device="cuda") % 6
    ]
    return x.to(getattr(torch, dtype))


def check(name: str, *inputs: Any) -> None:
    """The operator, where PyTorch computes in float64."""
    function: Any = {**UNARY, **BINARY}[name]
    y = operator(name)(*inputs)
    need = function(*(x.double() for x in inputs))
    assert y.shape == need.shape
    assert y.dtype == inputs[0].dtype
    eps = torch.finfo(y.dtype).eps
    torch.testing.assert_close(y.double(), need.to(y.dtype).double(), rtol=4 * eps, atol=4e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_shapes_and_special_values(card: GpuInfo, name: str, dtype: str) -> None:
    for shape in SHAPES:
        check(name, *(values(shape, dtype) for _ in range(2 if name in BINARY else 1)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_views_that_begin_anywhere_and_other_orders(card: GpuInfo, name: str, dtype: str) -> None:
    count = 2 if name in BINARY else 1
    for begin in (1, 2, 3, 5, 8):
        check(name, *(values((100_003,), dtype)[begin:] for _ in range(count)))
    if count == 2:
        check(name, values((100_004,), dtype)[1:], values((100_003,), dtype))
    turned = [values((77, 130), dtype).t() for _ in range(count)]
    check(name, *turned)
    assert operator(name)(*turned).stride() == turned[0].stride()
    check(name, *(values((2, 8, 9, 5), dtype).to(memory_format=torch.channels_last) for _ in range(count)))


def test_what_is_refused(card: GpuInfo) -> None:
    x = values((64, 100), "float32")
    with pytest.raises(TilewrightError, match="strides"):
        operator("gelu")(x[:, ::2])
    with pytest.raises(TilewrightError, match="agree in their first dimensions"):
        operator("add")(x, x[0])
    with pytest.raises(TilewrightError, match="float32 is needed"):
        operator("add")(x, x.half())
    with pytest.raises(TilewrightError, match="does not take"):
        operator("relu")(x.double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(card: GpuInfo, dtype: str) -> None:
    embedding = operator("embedding")
    for table, columns, count in ((1, 1, 1), (7, 3, 31), (1000, 768, 513), (300, 33, 77), (64, 4096, 5000)):
        weight = torch.randn(table, columns, device="cuda").to(getattr(torch, dtype))
        indices = torch.randint(0, table, (count,), device="cuda")
        assert torch.equal(embedding(indices, weight), weight[indices])
    indices = torch.randint(0, 64, (3, 5, 2), device="cuda")
    wide = torch.randn(64, 100, device="cuda").to(getattr(torch, dtype))
    assert torch.equal(embedding(indices, wide[:, :40]), wide[:, :40][indices])
    assert torch.equal(embedding(indices, wide[:, 1:41]), wide[:, 1:41][indices])
    assert embedding(indices[:0], wide).shape == (0, 5, 2, 100)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_histogram(card: GpuInfo, dtype: str) -> None:
    histogram = operator("histogram")
    for count, bins in ((1, 1), (31, 33), (0, 5), (100_003, 16), (1 << 22, 256), (5_000_001, 200), (1 << 20, 1000)):
        x = torch.randint(0, min(bins + 20, 256), (count,), device="cuda").to(getattr(torch, dtype))
        need = torch.bincount(x.long(), minlength=bins)[:bins]
        assert torch.equal(histogram(x, bins), need)
        assert torch.equal(histogram(x[1:], bins), torch.bincount(x[1:].long(), minlength=bins)[:bins])
    same = torch.full((1 << 22,), 3, device="cuda", dtype=getattr(torch, dtype))
    assert histogram(same, 8).tolist() == [0, 0, 0, 1 << 22, 0, 0, 0, 0]


def test_histogram_of_many_bins_and_of_values_without_one(card: GpuInfo) -> None:
    histogram = operator("histogram")
    x = torch.randint(-5000, 105_000, (3_000_001,), device="cuda", dtype=torch.int32)
    for bins in (1, 5000, 12_287, 12_288, 100_000):
        inside = x[(x >= 0) & (x < bins)].long()
        assert torch.equal(histogram(x, bins), torch.bincount(inside, minlength=bins))


def test_more_elements_than_32_bits_count(card: GpuInfo) -> None:
    count = (1 << 32) + 4099
    if torch.cuda.mem_get_info()[0] < 5 * count:
        pytest.skip("it takes 21 GB")
    x = torch.zeros(count, device="cuda", dtype=torch.float16)
    x[-5000:] = torch.randn(5000, device="cuda", dtype=torch.float16)
    x[:3] = -2
    y = operator("relu")(x)
    assert torch.equal(y[-5000:], torch.relu(x[-5000:]))
    assert int((y != 0).sum()) == int((x[-5000:] > 0).sum())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what PyTorch's compiler itself imports
def test_under_torch_compile(card: GpuInfo) -> None:
    silu_mul, embedding, histogram = (operator(name) for name in ("silu_mul", "embedding", "histogram"))
    weight = torch.randn(50, 64, device="cuda", dtype=torch.bfloat16)
    indices = torch.randint(0, 50, (7, 9), device="cuda")

    def gate(indices: Any) -> Any:
        rows = embedding(indices, weight)
        return silu_mul(rows, rows + 1)

    need = gate(indices)
    assert torch.equal(torch.compile(gate, fullgraph=True)(indices), need)
    x = indices.int()
    assert torch.equal(torch.compile(lambda x: histogram(x, 50) + 1, fullgraph=True)(x), histogram(x, 50) + 1)
