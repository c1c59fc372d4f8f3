"""Repeated calls of operators on a card: new arrays, streams, graphs and threads, and what is no repeat."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tilewright.gpu.device import GpuInfo

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def torch(card: GpuInfo) -> Any:
    return pytest.importorskip("torch")


def test_repeats_have_their_own_arrays(torch: Any) -> None:
    from tilewright import ops

    kept = []  # so that outputs lie somewhere else each time
    for turn in range(3):
        for dtype in (torch.float32, torch.bfloat16):
            whole = torch.randn(65, 520, device="cuda", dtype=dtype)
            for x in (whole, whole[:, :512], whole[1:, 8:], whole.view(-1)[1:], whole[::2]):
                y = x.clone()
                kept.append(ops.add(x.contiguous(), y))
                assert torch.equal(kept[-1], x + y), (turn, dtype, x.shape)
            x, weight = whole[:, :512].contiguous(), torch.randn(512, device="cuda", dtype=dtype)
            for epsilon in (1e-5, 1.0):
                need = torch.nn.functional.rms_norm(x.double(), (512,), weight.double(), epsilon)
                got = ops.rmsnorm(x, weight, epsilon).double()
                assert torch.allclose(got, need, rtol=0.01, atol=1e-5), (turn, epsilon)


def test_products_that_are_repeated(torch: Any) -> None:
    from tilewright import ops

    for way in range(2):
        for _ in range(3):
            a, b = (torch.randn(256, 512, device="cuda").half() for _ in range(2))
            c, bias = torch.randn(256, 256, device="cuda").half(), torch.randn(256, device="cuda").half()
            more = {"c": c, "beta": 0.5 * way, "bias": bias}
            need = a.double() @ b.double().t() + 0.5 * way * c.double() + bias.double()
            assert torch.allclose(ops.matmul(a, b.t(), **more).double(), need, rtol=0.01, atol=0.05)
            assert torch.allclose(ops.matmul(a, b.t()).double(), a.double() @ b.double().t(), rtol=0.01, atol=0.05)


def test_a_repeat_is_in_the_order_of_the_current_stream(torch: Any) -> None:
    from tilewright import ops

    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(2):
        ops.add(x, y)
        with torch.cuda.stream(side):  # what only a first call there does, it has done
            torch.cuda._sleep(1000)
            x.fill_(2.0)
            ops.add(x, y)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)  # half a second, for a host that others keep busy
        x.fill_(3.0)
        got = ops.add(x, y)
    assert not side.query(), "the stream has still to sleep"
    side.synchronize()
    assert torch.equal(got, y + 3.0)


def test_a_repeat_in_a_graph(torch: Any) -> None:
    from tilewright import ops

    x, y = (torch.randn(4096, device="cuda") for _ in range(2))
    ops.add(x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ops.add(x, y)
    x.fill_(1.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, y + 1.0)


def test_a_thread_without_a_context_repeats(torch: Any) -> None:
    from tilewright import ops

    x, y = (torch.randn(4096, device="cuda") for _ in range(2))
    need = ops.add(x, y)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(ops.add(x, y))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(got) == 4
    assert all(torch.equal(each, need) for each in got)


def test_another_card_is_no_repeat(torch: Any) -> None:
    from tilewright import ops

    if torch.cuda.device_count() < 2:
        pytest.skip("it needs two cards")
    for card in (0, 1, 0, 1):
        x, y = (torch.randn(4096, device=f"cuda:{card}") for _ in range(2))
        assert torch.equal(ops.add(x, y), x + y)
        assert torch.cuda.current_device() == 0
