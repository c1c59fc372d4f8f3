"""How calls are captured and timed: the order of what is put on the stream, on a stand-in for PyTorch."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.ladder.comparing import Contender
from tilewright.ladder.graphs import GraphClock, Protocol, card_rates
from tilewright.ladder.yardstick import copies

CALL_US = {"a": 3.0, "b": 5.0, "copy": 500.0, "launch": 2.0}


class FakeTorch:
    """Notes what is asked of it; a graph takes as long as the calls that it captured."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now_us, self.uint8 = 0.0, "uint8"
        self.graph: Any = None
        fake = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, _: Any) -> None:
                fake.log.append("record")
                self.at_us = fake.now_us

            def synchronize(self) -> None:
                fake.log.append("wait")

            def elapsed_time(self, other: Any) -> float:
                return float(other.at_us - self.at_us) / 1000.0

        class Graph:
            def __init__(self) -> None:
                self.held: list[str] = []

            def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
                assert (pool, capture_error_mode) == ("pool", "thread_local")
                fake.graph = self

            def capture_end(self) -> None:
                fake.graph = None

            def replay(self) -> None:
                fake.log.append(f"graph {self.held[0]}*{len(self.held)}")
                fake.now_us += sum(CALL_US[name] for name in self.held)

            def reset(self) -> None:
                fake.log.append("reset")

        now = SimpleNamespace(cuda_stream=7)
        self.cuda = SimpleNamespace(
            Event=Event, CUDAGraph=Graph, graph_pool_handle=lambda: "pool", current_stream=lambda: now
        )

    def called(self, name: str) -> None:
        if self.graph is not None:
            self.graph.held.append(name)
        else:
            self.log.append(f"call {name}")
            self.now_us += CALL_US[name]

    def tensor(self, name: str) -> Any:
        def flushed() -> None:
            self.log.append("flush")
            self.now_us += 60

        step = SimpleNamespace(zero_=flushed, numel=lambda: 1 << 30, data_ptr=lambda: 16)
        step.copy_, step.add_ = (lambda _: self.called("copy")), (lambda _: self.called("launch"))
        return step

    def ones(self, *_: Any, **__: Any) -> Any:
        return self.tensor("ones")

    empty = empty_like = ones


def clock_of(torch: FakeTorch, protocol: Protocol, *names: str, **changes: Any) -> GraphClock:
    those = {n: replace(Contender(n, "eager", lambda n=n: torch.called(n)), **changes) for n in names}
    stream = SimpleNamespace(synchronize=lambda: None)
    return GraphClock(torch, stream, those, protocol, torch.tensor("flush"))


def test_small_sizes_run_once_untimed_and_count_a_call() -> None:
    torch = FakeTorch()
    clock = clock_of(torch, Protocol(False, 4), "a", "b")
    torch.log.clear()
    assert clock.time_us("a") == pytest.approx(3.0)
    assert torch.log == ["graph a*4", "record", "graph a*4", "record", "wait"]
    assert clock.time_us("b") == pytest.approx(5.0)
    assert clock.is_captured == {"a": True, "b": True}
    clock.close()
    assert torch.log[-2:] == ["reset", "reset"]


def test_large_sizes_find_a_cold_cache() -> None:
    torch = FakeTorch()
    clock = clock_of(torch, Protocol(True, 1), "a")
    torch.log.clear()
    assert clock.time_us("a") == pytest.approx(3.0)
    assert torch.log == ["flush", "record", "graph a*1", "record", "wait"]


def test_what_cannot_be_captured_is_called_and_said_so() -> None:
    torch = FakeTorch()
    clock = clock_of(torch, Protocol(False, 4), "a", is_captured=False)
    torch.log.clear()
    assert clock.time_us("a") == pytest.approx(3.0)
    assert torch.log == ["call a"] * 4 + ["record"] + ["call a"] * 4 + ["record", "wait"]
    assert clock.is_captured == {"a": False}


def test_a_capture_that_fails_is_a_reason_and_ends() -> None:
    torch = FakeTorch()

    def waits() -> None:
        if torch.graph is not None:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    clock = clock_of(torch, Protocol(False, 4), "a", call=waits)
    assert clock.failed == {"a": "RuntimeError: operation not permitted when stream is capturing"}
    assert torch.graph is None


def test_rates_of_the_card() -> None:
    torch = FakeTorch()
    stream = SimpleNamespace(synchronize=lambda: None)
    dram_bytes, launch_us = card_rates(torch, stream, 60 << 20)
    assert dram_bytes == pytest.approx(2 * 2**30 / 500e-6)
    assert launch_us == pytest.approx(2.0)
    assert "graph copy*1" not in torch.log  # which the driver may leave to a copy engine, that is slow


@pytest.mark.parametrize(("kernel_us", "best_us"), [(480.0, 480.0), (600.0, 500.0), (None, 500.0)])
def test_the_rate_is_that_of_the_fastest_copy(
    monkeypatch: pytest.MonkeyPatch, kernel_us: float | None, best_us: float
) -> None:
    torch = FakeTorch()

    def kernel(target: int, source: int, count_bytes: int, stream: int) -> None:
        assert (target, source, count_bytes, stream) == (16, 16, 1 << 30, 7)
        if kernel_us is None:
            raise RuntimeError("no image")
        torch.called("kernel")

    monkeypatch.setitem(CALL_US, "kernel", kernel_us or 0.0)
    dram_bytes, _ = card_rates(torch, SimpleNamespace(synchronize=lambda: None), 60 << 20, kernel)
    assert dram_bytes == pytest.approx(2 * 2**30 / (best_us * 1e-6))


def test_copies_are_captured_where_the_data_stays_in_the_cache() -> None:
    torch = FakeTorch()
    told = {
        is_cold: {c.name: c.is_captured for c in copies(torch, 100, is_cold, lambda *_: None)}
        for is_cold in (True, False)
    }
    assert told == {True: {"copy": False, "copy kernel": True}, False: {"copy": True, "copy kernel": True}}


def test_who_takes_far_longer_than_expected_has_fewer_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(CALL_US, "slow", 9_700.0)
    clock = clock_of(torch, Protocol(False, 64), "a", "slow")
    torch.log.clear()
    assert (clock.time_us("a"), clock.time_us("slow")) == (pytest.approx(3.0), pytest.approx(9_700.0))
    assert [line for line in torch.log if line.startswith("graph")] == ["graph a*64"] * 2 + ["graph slow*4"] * 2
