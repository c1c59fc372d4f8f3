"""Rungs against peers on a card: captured, checked, timed; and what is wrong there is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright import ops
from tilewright.gpu.device import GpuInfo
from tilewright.ladder import peer_bench
from tilewright.ladder.family import load_family
from tilewright.ladder.peers import Peer, peers_of
from tilewright.ladder.report import PeerPoint
from tilewright.settings import Settings

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
SIZES = {"R": 128, "C": 1024, "ld_x": 1024}
LARGE = {"R": 16384, "C": 4096, "ld_x": 4096}


def points(card: GpuInfo, compiled: Any = "off", sets: tuple[dict[str, int], ...] = (SIZES, LARGE)) -> list[PeerPoint]:
    options = peer_bench.PeerOptions(None, compiled, False, 0.2, lambda name: getattr(ops, name))
    named = [("", sizes) for sizes in sets]
    settings = Settings.from_environment()
    done = peer_bench.bench_peers(load_family("softmax"), ("float16",), named, card, settings, options, print)
    assert done.copy_gbps > 100
    assert 0.2 < done.launch_us < 20
    return list(done.points)


def test_small_and_large_sizes(card: GpuInfo) -> None:
    small, large = points(card)
    assert (small.is_cold, large.is_cold) == (False, True)
    for point in (small, large):
        told = {c.kind: c for c in point.contenders}
        assert {k: c.verdict for k, c in told.items()} == dict.fromkeys(("rung", "op", "eager", "copy"), "passed")
        assert all(c.is_captured for c in told.values())
        assert point.ratio == pytest.approx(told["eager"].median_us / told["rung"].median_us, rel=0.3)
        assert 0.02 < point.predicted_us / told["rung"].median_us < 1.3
    assert next(c for c in small.contenders if c.kind == "op").host_us > 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what PyTorch's compiler itself imports
def test_a_compiled_peer_passes_at_sizes_that_change(card: GpuInfo) -> None:
    for point in points(card, "auto", (SIZES, {**SIZES, "R": 77}, {"R": 31, "C": 500, "ld_x": 500})):
        assert next(c for c in point.contenders if c.kind == "compile").verdict == "passed"


def test_a_wrong_peer_is_refused(card: GpuInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = peers_of("softmax")
    idle = Peer("nothing", lambda c: (torch.zeros_like(c.inputs[0]),))
    monkeypatch.setattr(peer_bench, "peers_of", lambda _: (right, replace(idle)))
    (point,) = points(card, sets=(SIZES,))
    told = {c.name: c for c in point.contenders}
    assert told["nothing"].verdict == "failed"
    assert "elements of y are wrong" in told["nothing"].message
    assert point.best_peer == "torch.softmax"
