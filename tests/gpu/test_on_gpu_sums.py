"""Sums and dot products on a card: any rank and stride, more than 2**31 elements, several streams, graphs."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo

pytestmark = pytest.mark.gpu
LENGTHS = (0, 1, 31, 33, 1000, 4096, 20001, 70000, 1 << 20, 10_000_019)
HUGE = 2**31 + 77


@pytest.fixture(scope="module")
def torch(card: GpuInfo) -> Any:
    return pytest.importorskip("torch")


def close(torch: Any, got: Any, expected: Any) -> bool:
    """Within roundings of the element type, and of float32 on the way, of values around 1 in size."""
    if not got.isfinite():  # beyond the element type's largest
        return bool(got == expected.to(got.dtype))
    eps = torch.finfo(got.dtype).eps
    bound = 2 * eps * expected.abs().double() + 1e-6 * max(expected.numel(), 1)
    return bool((got.double() - expected.double()).abs() <= bound + 1e-5 * expected.abs().double())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_length_and_beginning(torch: Any, dtype: str) -> None:
    from tilewright import ops

    for count in LENGTHS:
        whole = torch.rand(count + 9, device="cuda").to(getattr(torch, dtype)) / 64
        for first in (0, 1, 3, 8):
            x, other = whole[first : first + count], whole[9 - first : 9 - first + count]
            assert close(torch, ops.reduce(x), x.double().sum()), (count, first)
            assert close(torch, ops.dot(x, other), x.double() @ other.double()), (count, first)


def test_any_rank_and_order(torch: Any) -> None:
    from tilewright import ops

    x = torch.randn(6, 35, 20, device="cuda") + 1
    for view in (x, x.permute(2, 0, 1), x.transpose(0, 1), x[2], x[:, 3, 5], x.flatten()[::7], x[0, 0, 0]):
        assert close(torch, ops.reduce(view), view.double().sum())
    with pytest.raises(TilewrightError, match="contiguous copy"):
        ops.reduce(x[:, :, :5])
    assert close(torch, ops.dot(x[:, 0, 0], x[0, :6, 1]), x[:, 0, 0].double() @ x[0, :6, 1].double())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rows(torch: Any, dtype: str) -> None:
    from tilewright import ops

    for rows, columns in ((1, 1), (3, 31), (700, 33), (5000, 64), (33, 1000), (4, 5001), (7, 300_001), (390, 20_000)):
        whole = (torch.rand(rows, columns + 3, device="cuda") / 64).to(getattr(torch, dtype))
        for x in (whole, whole[:, 1:], whole[:, :columns], whole[:, 3:].contiguous()):
            expected = x.double().sum(-1)
            bound = (2 * torch.finfo(x.dtype).eps + 1e-5) * expected.abs() + 1e-6
            assert bool(((ops.reduce_rows(x).double() - expected).abs() <= bound).all()), (rows, columns)
    x = torch.randn(3, 5, 40, device="cuda").to(getattr(torch, dtype))
    assert ops.reduce_rows(x).shape == (3, 5)
    assert torch.equal(ops.reduce_rows(x), ops.reduce_rows(x.flatten(0, 1)).view(3, 5))
    with pytest.raises(TilewrightError, match="strides"):
        ops.reduce_rows(x.transpose(1, 2))


def test_more_than_2_31_elements(torch: Any) -> None:
    from tilewright import ops

    x = torch.zeros(HUGE, device="cuda", dtype=torch.float16)
    x[::2_000_003] = 1
    expected = float(x[::2_000_003].float().sum()) + 5
    x[-1] = 5  # behind what 32 bits can count, and no multiple of the step
    assert float(ops.reduce(x)) == expected
    assert float(ops.dot(x[2**31 :], torch.ones_like(x[2**31 :]))) == float(x[2**31 :].float().sum())
    assert float(ops.reduce_rows(x[: 2**31].view(2, 2**30)).sum()) == float(x[: 2**31].float().sum())
    assert float(ops.dot(x, x)) == pytest.approx(expected + 20, abs=2)


def test_the_bits_are_the_same_every_time(torch: Any) -> None:
    from tilewright import ops

    x = torch.randn(30_000_001, device="cuda")
    assert len({float(ops.reduce(x)) for _ in range(50)}) == 1
    assert len({float(ops.dot(x[1:], x[:-1])) for _ in range(50)}) == 1


def test_two_streams_at_once_do_not_meet(torch: Any) -> None:
    from tilewright import ops

    arrays = [torch.full((300_000,), float(i + 1), device="cuda") for i in range(4)]
    streams = [torch.cuda.Stream() for _ in arrays]
    made: list[list[Any]] = [[] for _ in arrays]
    torch.cuda.synchronize()
    for _ in range(200):
        for stream, x, results in zip(streams, arrays, made, strict=True):
            with torch.cuda.stream(stream):
                results.append(ops.reduce(x))
    torch.cuda.synchronize()
    for index, results in enumerate(made):
        assert {float(r) for r in results} == {300_000.0 * (index + 1)}


def test_graphs_that_are_replayed_at_once_do_not_meet(torch: Any) -> None:
    from tilewright import ops

    arrays = [torch.full((300_000,), float(i + 1), device="cuda") for i in range(2)]
    ops.reduce(arrays[0])  # compiled before
    torch.cuda.synchronize()
    graphs, results = [], []
    for x in arrays:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append([ops.reduce(x) for _ in range(20)])  # more than one allocation of kept memory holds
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for index, made in enumerate(results):
        assert {float(r) for r in made} == {300_000.0 * (index + 1)}


def test_special_values(torch: Any) -> None:
    from tilewright import ops

    for count in (40, 300_000):
        for special in (float("nan"), float("inf"), float("-inf")):
            x = torch.ones(count, device="cuda")
            x[count // 2] = special
            assert torch.equal(ops.reduce(x).isnan(), x.sum().isnan())
            assert special != special or float(ops.reduce(x)) == special
        tiny = torch.full((count,), 1e-44, device="cuda")
        assert float(ops.reduce(tiny)) == float(tiny.sum()) > 0
