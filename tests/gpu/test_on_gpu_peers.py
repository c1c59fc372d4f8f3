"""Rungs against peers on a card: captured, checked, timed; and what is wrong there is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import ops
from tilewright.gpu.device import GpuInfo
from tilewright.gpu.driver import settle
from tilewright.ladder import peer_bench
from tilewright.ladder.compiled_peers import PeerOptions
from tilewright.ladder.family import load_family
from tilewright.ladder.peers import Peer, peers_of
from tilewright.ladder.report import PeerPoint
from tilewright.ladder.yardstick import load_copy
from tilewright.measure.turns import FileTurns, Turns
from tilewright.settings import Settings

# What PyTorch's compiler warns of as it works (that it splits a softmax, what it imports itself) is no error of ours,
# and one that is raised there would have the peer refused.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
SIZES = {"R": 128, "C": 1024, "ld_x": 1024}
LARGE = {"R": 16384, "C": 4096, "ld_x": 4096}


def points(
    card: GpuInfo,
    compiled: Any = "off",
    sets: tuple[dict[str, int], ...] = (SIZES, LARGE),
    turns: Turns | None = None,
) -> list[PeerPoint]:
    options = PeerOptions(None, compiled, False, 0.2, lambda name: getattr(ops, name))
    named = [("", sizes) for sizes in sets]
    settings = Settings.from_environment()
    softmax = load_family("softmax")
    done = peer_bench.bench_peers(softmax, ("float16",), named, card, settings, options, print, turns=turns)
    assert done.copy_gbps > 100
    assert 0.2 < done.launch_us < 20
    return list(done.points)


def test_small_and_large_sizes(card: GpuInfo) -> None:
    small, large = points(card)
    assert (small.is_cold, large.is_cold) == (False, True)
    for point in (small, large):
        told = {c.kind: c for c in point.contenders}
        assert {k: c.verdict for k, c in told.items()} == dict.fromkeys(("rung", "op", "eager", "copy"), "passed"), (
            point
        )
        assert all(c.is_captured for k, c in told.items() if k != "copy")
        copies = {c.name: c.median_us for c in point.contenders if c.kind == "copy"}
        assert set(copies) == {"copy", "copy kernel"}
        assert None not in copies.values(), point
        assert point.ratio == pytest.approx(told["eager"].median_us / told["rung"].median_us, rel=0.3)
        assert 0.02 < point.predicted_us / told["rung"].median_us < 1.3
    assert next(c for c in small.contenders if c.kind == "op").host_us > 1


def test_a_compiled_peer_passes_at_sizes_that_change(card: GpuInfo) -> None:
    for point in points(card, "auto", (SIZES, {**SIZES, "R": 77}, {"R": 31, "C": 500, "ld_x": 500})):
        told = next(c for c in point.contenders if c.kind == "compile")
        assert (told.verdict, told.message) == ("passed", "")


def test_the_copy_kernel_copies(card: GpuInfo) -> None:
    copy = load_copy(card.arch, Settings.from_environment())
    for count in (1, 100, (1 << 20) + 7):
        source = torch.randint(1, 255, (count + 16,), dtype=torch.uint8, device="cuda")
        target = torch.zeros_like(source)
        copy(target.data_ptr(), source.data_ptr(), count, torch.cuda.current_stream().cuda_stream)
        assert bool((target[:count] == source[:count]).all())
        assert not bool(target[count:].any())


def test_the_yardstick_is_what_the_card_can_do(card: GpuInfo) -> None:
    """No kernel that reads as much as it writes moves more: a rate that is far below what a rung does is none."""
    _, large = points(card)
    ours = next(c for c in large.contenders if c.kind == "rung")
    copy_us = min(c.min_us for c in large.contenders if c.kind == "copy")
    assert copy_us < 1.15 * ours.min_us


def test_turns_at_the_card(card: GpuInfo, tmp_path: Path) -> None:
    """What is timed has the card alone, all else shares it, and nothing is held afterwards."""
    turns = FileTurns(tmp_path, 2, settle, held_s=None)
    (point,) = points(card, "auto", (SIZES,), turns)
    assert {c.verdict for c in point.contenders} == {"passed"}
    assert turns.held == ""
    other = FileTurns(tmp_path, held_s=None)
    with other.alone():
        pass
    assert turns.seconds["waiting"] < 1
    assert turns.seconds["shared"] > 0
    assert turns.seconds["alone"] >= 0.1


def test_a_wrong_peer_is_refused(card: GpuInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = peers_of("softmax")
    idle = Peer("nothing", lambda c: (torch.zeros_like(c.inputs[0]),))
    monkeypatch.setattr(peer_bench, "peers_of", lambda _: (right, replace(idle)))
    (point,) = points(card, sets=(SIZES,))
    told = {c.name: c for c in point.contenders}
    assert told["nothing"].verdict == "failed"
    assert "elements of y are wrong" in told["nothing"].message
    assert point.best_peer == "torch.softmax"
