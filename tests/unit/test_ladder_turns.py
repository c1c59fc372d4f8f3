"""Who holds the card while a bench of peers runs: PyTorch on the host plays it, and every call looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.gpu.device import GpuInfo
from tilewright.ladder import graphs, peer_bench
from tilewright.ladder.arena import Arena
from tilewright.ladder.comparing import Contender
from tilewright.ladder.compiled_peers import PeerOptions, compiling_aside
from tilewright.ladder.family import load_family
from tilewright.measure.turns import FileTurns
from tilewright.settings import Settings

torch = pytest.importorskip("torch")
INFO = GpuInfo(
    0, "a card", "sm_90", "580", (13, 0), 132, 60 << 20, 1 << 37, 1980, 227 << 10, 228 << 10, 1 << 10, 65536, 2048, 32
)  # fmt: skip
SIZES = {"R": 7, "C": 33, "ld_x": 33}


class Watched:
    """A card that notes how it was held at each call, by what was called."""

    def __init__(self, turns: FileTurns) -> None:
        self.turns, self.seen = turns, dict[str, set[str]]()

    def called(self, what: str) -> None:
        self.seen.setdefault(what, set()).add(self.turns.held)


class Graph:
    """Captures nothing: it calls again."""

    def capture_begin(self, **_: Any) -> None:
        return

    capture_end = reset = capture_begin

    def replay(self) -> None:
        time.sleep(1e-4)


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self, _: Any) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return

    def elapsed_time(self, other: Any) -> float:
        return float(other.at - self.at) * 1000.0


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    card = Watched(FileTurns(tmp_path / "turns", 2, held_s=None))

    def noting(what: str, value: Any = None) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            card.called(what)
            return value

        return call

    stream = SimpleNamespace(synchronize=noting("synchronize"), cuda_stream=0)
    cuda = {
        "Stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "current_stream": lambda: stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph_pool_handle": lambda: None,
        "synchronize": noting("synchronize"),
        "memory_reserved": lambda: 1 << 36,
        "empty_cache": noting("empty_cache"),
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("ones", "empty"):
        make = getattr(torch, name)

        def made(*sizes: Any, make: Any = make, **more: Any) -> Any:
            if more.get("device") == "cuda":
                card.called("allocate")
                more["device"] = "cpu"
            return make(*sizes, **more)

        monkeypatch.setattr(torch, name, made)

    class Here(Arena):
        def __init__(self, torch: Any, family: Any, dtype: str, sizes: Any) -> None:
            card.called("arena")
            super().__init__(torch, family, dtype, sizes, "cpu")

        def rung(self, compiled: Any, executor: Any) -> Contender:
            def call() -> None:
                card.called("rung")
                for view, result in zip(self.made(), self.exact(), strict=True):
                    view.copy_(result)

            return Contender("ours", "rung", call, lambda _: self.made(), self.poison)

    timed = graphs.GraphClock.time_us

    def time_us(self: Any, name: str) -> float:
        card.called("time")
        return timed(self, name)

    monkeypatch.setattr(peer_bench, "Arena", Here)
    monkeypatch.setattr(peer_bench, "GpuExecutor", noting("context"))
    monkeypatch.setattr(peer_bench, "build_copy", noting("build"))
    monkeypatch.setattr(peer_bench, "load_copy", lambda *_: noting("copy"))
    monkeypatch.setattr(peer_bench, "counted", noting("counted", ()))
    monkeypatch.setattr(peer_bench.GraphClock, "time_us", time_us)
    monkeypatch.setattr(peer_bench, "host_us", noting("host", 1.0))
    monkeypatch.setattr(graphs, "RATE_BYTES", 1000)
    monkeypatch.setattr(graphs, "LEAST_FLUSH_BYTES", 1000)
    yield card
    assert card.turns.held == ""


def test_the_card_is_held_for_all_that_is_done_there(watched: Watched, tmp_path: Path) -> None:
    options = PeerOptions(compiled="off", seconds=0.02)
    softmax, sets = load_family("softmax"), [("", SIZES), ("", {**SIZES, "R": 9})]
    done = peer_bench.bench_peers(
        softmax, ("float32",), sets, INFO, Settings.from_environment(), options, lambda _: None, turns=watched.turns
    )
    assert [p.message for p in done.points] == ["", ""]
    assert all(c.verdict == "passed" for p in done.points for c in p.contenders)
    seen = watched.seen
    assert seen["time"] == seen["host"] == {"alone"}
    assert seen["counted"] == seen["build"] == {""}, "nobody else could time meanwhile"
    assert seen["arena"] == {"shared"}
    assert seen["rung"] == {"shared"}
    assert not any("" in held for what, held in seen.items() if what not in ("counted", "build"))
    assert "empty_cache" in seen  # half of the card is more than a half of a quarter of it


def test_who_finds_no_memory_waits_for_that_of_others(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def softmax(*_: Any) -> Any:  # a peer that would be left out, and we would win
        tries.append(1)
        if len(tries) < 3:
            raise torch.OutOfMemoryError("too large")
        return torch.softmax(*_, dim=-1)

    (peer,) = peer_bench.peers_of("softmax")
    late = replace(peer, formula=lambda c: (softmax(c.inputs[0]),))
    monkeypatch.setattr(peer_bench, "peers_of", lambda _: (late,))
    monkeypatch.setattr(peer_bench, "WAITS_S", (0.0,) * 4)
    done = peer_bench.bench_peers(
        load_family("softmax"),
        ("float32",),
        [("", SIZES)],
        INFO,
        Settings.from_environment(),
        PeerOptions(compiled="off", seconds=0.02),
        lambda _: None,
        turns=watched.turns,
    )
    (point,) = done.points
    assert point.best_peer == "torch.softmax"
    assert not peer_bench.is_short_of_memory(done.points)
    assert len(tries) > 3


def test_compilers_step_aside_and_have_the_card_alone_then(tmp_path: Path) -> None:
    callback = pytest.importorskip("torch._dynamo.callback")
    turns = FileTurns(tmp_path, 2, held_s=None)
    handler = callback.callback_handler
    before = len(handler.start_callbacks)
    with compiling_aside(turns, PeerOptions()), turns.shared():
        with turns.shared():
            handler.run_start_callbacks(None)
            assert turns.held == ""
            handler.run_end_callbacks(None)
            assert turns.held == "alone"
        assert turns.held == "shared"
        with turns.alone():  # what is tuned while it is compiled keeps the card
            handler.run_start_callbacks(None)
            assert turns.held == "alone"
            handler.run_end_callbacks(None)
    assert len(handler.start_callbacks) == before
