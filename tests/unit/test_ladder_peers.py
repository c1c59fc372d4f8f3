"""Rungs against peers: what samples say, who is refused, sizes of the sweeps, what is taken out of a tutorial."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.gpu import device
from tilewright.ladder import comparing
from tilewright.ladder.bench_text import grouped, markdown_points, refused, summary
from tilewright.ladder.comparing import Contender, contest, mismatch
from tilewright.ladder.compiled_peers import PeerOptions
from tilewright.ladder.family import load_families, load_family
from tilewright.ladder.graphs import MOST_CALLS, protocol_for
from tilewright.ladder.pacing import LEAST_S, Pace
from tilewright.ladder.peer_bench import largest_first
from tilewright.ladder.peers import peers_of
from tilewright.ladder.ratio_plot import plot_ratios
from tilewright.ladder.report import LadderBench, PeerPoint, TimedContender
from tilewright.ladder.report_text import render_bench
from tilewright.ladder.specs import figure
from tilewright.ladder.sweep import sets_of, sweep_sizes
from tilewright.ladder.tutorials import extracted, load_tutorial
from tilewright.measure.measure import Plan
from tilewright.receipt.record import to_json
from tilewright.settings import Settings
from tilewright.verification.tolerance import Tolerance
from tilewright.workflow.climbing import bench_family

RIGHT = np.array([1.0, 2.0, np.nan, np.inf])
POINT = PeerPoint("float32", "", {"R": 2, "C": 3}, "", True, 1, 8000.0, 4000.0, "04_best")
PLAN = Plan(warmup_rounds=0, min_rounds=6, max_rounds=8, budget_s=10.0)


class FakeClock:
    """Each contender takes what it is said to, a little more in every second round; all drift alike."""

    def __init__(self, times: Mapping[str, float], failed: Mapping[str, str] | None = None) -> None:
        self.times, self.failed, self.asked = dict(times), dict(failed or {}), 0

    def time_us(self, name: str) -> float:
        is_slow = self.asked // len(self.times) % 2
        self.asked += 1
        return self.times[name] * (1 + 0.1 * is_slow)


def contender(name: str, kind: Any, results: np.ndarray | None = RIGHT) -> Contender:
    return Contender(name, kind, lambda: results, None if results is None else lambda made: [made])


def check(one: Contender) -> str:
    if one.outputs is None:
        return ""
    (got,) = one.outputs(one.call())
    with np.errstate(invalid="ignore"):
        return mismatch("y", got, RIGHT, Tolerance(1e-3, 1e-3, ""))


def ran(times: Mapping[str, float], *others: Contender, ours: Contender | None = None, **clock: Any) -> PeerPoint:
    those = (ours or contender("04_best", "rung"), *others, contender("copy", "copy", None))
    return contest(POINT, those, check, lambda ready: FakeClock(times, **clock), PLAN)


TIMES = {"04_best": 10.0, "eager": 20.0, "compiled": 12.0, "copy": 9.0}
PEERS = (contender("eager", "eager"), contender("compiled", "compile"))


def test_the_ratio_is_the_fastest_peers_time_over_ours() -> None:
    point = ran(TIMES, *PEERS)
    assert point.best_peer == "compiled"
    assert point.ratio == pytest.approx(1.2)
    assert (point.ratio_low, point.ratio_high) == (pytest.approx(1.2), pytest.approx(1.2))
    assert point.outcome == "won"
    assert point.copy_share == pytest.approx(0.9)  # a yardstick, and no peer, though it is the fastest of all
    ours = point.contenders[0]
    assert (ours.verdict, ours.samples) == ("passed", 8)
    assert ours.median_us == pytest.approx(10.5)
    assert ours.gbps == pytest.approx(8000 / 10.5 / 1e3)


@pytest.mark.parametrize(("theirs", "outcome"), [(9.0, "lost"), (9.95, "level"), (10.05, "level"), (10.2, "won")])
def test_a_loss_is_a_loss(theirs: float, outcome: str) -> None:
    point = ran({**TIMES, "compiled": theirs}, *PEERS)
    assert (point.outcome, point.ratio) == (outcome, pytest.approx(theirs / 10))


def test_a_wrong_peer_is_refused_however_fast() -> None:
    wrong = RIGHT + np.array([0.5, 0, 0, 0])
    point = ran({**TIMES, "compiled": 1.0}, PEERS[0], contender("compiled", "compile", wrong))
    told = {c.name: c for c in point.contenders}
    assert told["compiled"].verdict == "failed"
    assert told["compiled"].message == "1 of 4 elements of y are wrong: 1.5 instead of 1"
    assert told["compiled"].median_us is None
    assert (point.best_peer, point.ratio) == ("eager", pytest.approx(2.0))


def test_a_wrong_rung_wins_nothing() -> None:
    point = ran(TIMES, *PEERS, ours=contender("04_best", "rung", np.zeros(4)))
    assert (point.outcome, point.ratio, point.best_peer) == ("not_run", None, "")
    assert point.contenders[0].verdict == "failed"
    assert "elements of y are wrong" in point.message
    assert all(c.median_us is None for c in point.contenders)


def test_what_raises_or_cannot_be_captured_takes_no_part() -> None:
    def broken() -> Any:
        raise RuntimeError("no kernel\n image")

    stuck = replace(contender("triton", "triton"), call=broken)
    point = ran(TIMES, *PEERS, stuck, failed={"eager": "OutOfMemoryError: too large"})
    told = {c.name: (c.verdict, c.message) for c in point.contenders}
    assert told["triton"] == ("not_run", "RuntimeError: no kernel image")
    assert told["eager"] == ("not_run", "OutOfMemoryError: too large")
    assert point.best_peer == "compiled"
    assert refused([point, point])[0] == "eager: not run: OutOfMemoryError: too large (2 of the sizes, first R=2 C=3)"
    alone = ran(TIMES, stuck)
    assert (alone.outcome, alone.message) == ("not_run", "no peer could be timed")


def test_nobody_can_hide_behind_the_results_of_another() -> None:
    """The arena's outputs are poisoned before each check: a kernel that writes nothing is found out."""
    held = {"y": RIGHT.copy()}

    def poison() -> None:
        held["y"] = np.full(4, -1.0)

    idle = Contender("04_best", "rung", lambda: None, lambda _: [held["y"]], poison)

    def checked(one: Contender) -> str:
        one.prepare()
        return check(one)

    assert contest(POINT, [idle, *PEERS], checked, lambda _: FakeClock(TIMES), PLAN).outcome == "not_run"
    careless = replace(idle, prepare=lambda: None)  # the twin without it would pass on what is left from before
    held["y"] = RIGHT.copy()
    assert contest(POINT, [careless, *PEERS], checked, lambda _: FakeClock(TIMES), PLAN).outcome == "won"


@pytest.mark.parametrize(
    ("got", "why"),
    [
        ([1.0, 2.0, np.nan, np.inf], ""),
        ([1.0005, 2.0, np.nan, np.inf], ""),
        ([1.0, 2.0, 0.0, np.inf], "1 of 4"),
        ([1.0, 2.0, np.nan, -np.inf], "1 of 4"),
        ([np.nan, np.nan, np.nan, np.nan], "3 of 4"),
        ([1.0, 2.0], "has the shape (2,) instead of (4,)"),
    ],
)
def test_mismatches(got: list[float], why: str) -> None:
    with np.errstate(invalid="ignore"):
        found = mismatch("y", np.array(got), RIGHT, Tolerance(1e-3, 1e-3, ""))
    assert found.startswith(why) if why != "has the shape (2,) instead of (4,)" else why in found
    assert bool(found) == bool(why)


def test_long_outputs_are_compared_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "PART", 4)
    need = np.arange(10.0).reshape(2, 5)
    got, seen = need.astype(np.float32), list[int]()

    def widened(part: np.ndarray) -> np.ndarray:
        seen.append(part.size)
        return part.astype(np.float64)

    assert mismatch("y", got, need, Tolerance(0.0, 0.0, ""), widened) == ""
    assert seen == [4, 4, 2]
    got[1, 1] = got[1, 3] = -1  # in the second part, and in the third
    told = mismatch("y", got, need, Tolerance(0.0, 0.0, ""), widened)
    assert told == "2 of 10 elements of y are wrong: -1 instead of 6"


def test_losses_and_refusals_are_shown() -> None:
    lost = ran({**TIMES, "compiled": 8.0}, *PEERS)
    won = replace(ran(TIMES, *PEERS), sizes={"R": 7, "C": 9}, predicted_us=8.5, predicted_bound="dram")
    wrong = ran(TIMES, PEERS[0], contender("compiled", "compile", np.zeros(4)))
    report = LadderBench("f", "F", "a card", "580", "2026", (), (lost, won, wrong), "2.11", "3.6", "auto", 4280.0, 1.5)
    assert summary(report.points) == "3 sizes: 2 won, 1 lost, the worst 0.80x at R=2 C=3"
    text = render_bench(report, width=160)
    line = next(line for line in text.splitlines() if "0.80x" in line and "lost" in line and line.startswith("R=2"))
    assert "compiled" in line
    assert "8.5" in next(line for line in text.splitlines() if line.startswith("R=7"))
    assert "compiled: failed: 4 of 4 elements" in text
    page = "\n".join(markdown_points(report))
    assert "| 0.80x | **lost** |" in page
    assert "| 8.5 | dram |" in page
    assert "compiled: failed: 4 of 4 elements" in page
    assert list(grouped(report.points)) == [("float32", "")]


def test_sets_that_were_left_out_for_one_reason_are_one_line() -> None:
    late = [replace(POINT, sizes={"R": r}, message="not begun: out of time") for r in range(1, 38)]
    broken = replace(POINT, message="OutOfMemoryError: too large")
    assert refused([*late, broken]) == [
        "not begun: out of time (37 of the sizes, first R=1)",
        "OutOfMemoryError: too large (1 of the sizes, R=2 C=3)",
    ]


def test_the_fastest_copy_is_the_yardstick() -> None:
    kernel = contender("copy kernel", "copy", None)
    point = ran({**TIMES, "copy": 14.0, "copy kernel": 9.5}, *PEERS, kernel)
    assert point.copy_share == pytest.approx(0.95)
    assert ran({**TIMES, "copy": 9.0, "copy kernel": 9.5}, *PEERS, kernel).copy_share == pytest.approx(0.9)
    assert ran(TIMES, *PEERS, kernel, failed={"copy kernel": "no image"}).copy_share == pytest.approx(0.9)


def paced(seconds: float, until: float, costs: list[float]) -> tuple[list[float], float]:
    """What sets are given that cost so much beside their timing, and when they are done."""
    now = 0.0
    pace = Pace(seconds, until, len(costs), lambda: now)
    given = []
    for cost in costs:
        given.append(pace.begin())
        now += given[-1] + cost
        pace.end()
    return given, now


def test_where_time_is_short_all_sets_get_less() -> None:
    given, end = paced(0.05, math.inf, [0.2] * 40)
    assert set(given) == {0.05}
    given, end = paced(0.05, 100.0, [0.2] * 40)
    assert set(given) == {0.05}
    given, end = paced(0.05, 9.0, [0.2] * 40)  # 8 of them are the sets' own
    assert end <= 9.0
    assert given[-1] == pytest.approx(0.025, rel=0.3)
    given, end = paced(0.05, 9.0, [*[0.2] * 20, *[0.1] * 20])  # what they cost is learnt anew
    assert end <= 9.0
    assert given[-1] == 0.05
    given, end = paced(0.05, 2.0, [0.2] * 40)
    assert set(given[1:]) == {LEAST_S}


def test_the_picture_has_a_dot_a_size() -> None:
    lost = ran({**TIMES, "compiled": 8.0}, *PEERS)
    points = [replace(lost, total_bytes=10.0**n) for n in range(1, 9)] + [replace(lost, dtype="float16", ratio=9.0)]
    root = ElementTree.fromstring(plot_ratios("R & S", [*points, replace(lost, ratio=None)]))
    kind = "{http://www.w3.org/2000/svg}"
    dots = [(float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in root.iter(f"{kind}circle")]
    assert len(dots) == 2 + 9  # a legend a type
    rule = next(line for line in root.iter(f"{kind}line") if line.get("stroke-width") == "1.5")
    one = float(rule.get("y1", "0"))
    assert all(y > one for _, y in dots[1:9]), "what we lose lies below the line"
    assert dots[-1][1] < one
    assert all(0 < x < 720 and 0 < y < 300 for x, y in dots)
    assert plot_ratios("none", [replace(lost, ratio=None)]) == ""


def test_a_record_comes_back_as_it_was() -> None:
    point = ran({**TIMES, "compiled": 8.0}, *PEERS)
    report = LadderBench("f", "F", "a card", "580", "2026", (), (point,), "2.11", "3.6", "auto", 4280.0, 1.5)
    assert msgspec.json.decode(to_json(report).encode(), type=LadderBench) == report


def test_host_times_stand_in_their_own_line() -> None:
    op = TimedContender("tilewright.ops.f", "op", "passed", median_us=2.0, host_us=31.0)
    point = replace(ran(TIMES, *PEERS), contenders=(op, replace(op, name="eager", kind="eager", host_us=7.0)))
    report = LadderBench("f", "F", "a card", "580", "2026", (), (point,))
    assert "tilewright.ops.f 31 us, eager 7 us (R=2 C=3)" in render_bench(report, width=120)


@pytest.mark.parametrize("family", load_families(), ids=lambda f: f.name)
def test_every_family_has_peers_and_a_sweep(family: Any) -> None:
    assert peers_of(family.name), "no formula says what is right"
    sizes = sweep_sizes(family)
    assert len(sizes) >= 30
    assert len({tuple(s.items()) for s in sizes}) == len(sizes)
    moved = [figure(family.bytes, family, s, family.dtypes[0]) for s in sizes]
    assert min(moved) < 1000
    if family.name != "sgemm":
        assert max(moved) > 500e6  # beyond any L2
    assert any(any(v & (v - 1) for v in s.values()) for s in sizes), "powers of two alone"


def test_a_sweep_of_other_sizes_is_refused() -> None:
    family = load_family("softmax")
    with pytest.raises(TilewrightError, match="its sizes are R, C, ld_x"):
        sets_of(family, {"names": ["R", "C"], "rows": [[1, 2]]})
    given = sets_of(family, {"names": ["R", "C", "ld_x"], "derived": {"ld_x": "C"}, "rows": [[1, 2], [1, 2, 5]]})
    assert given == ({"R": 1, "C": 2, "ld_x": 2}, {"R": 1, "C": 2, "ld_x": 5})


def test_small_data_stays_in_the_cache_and_large_data_does_not() -> None:
    l2 = 60 << 20
    assert protocol_for(1e9, 250.0, l2) == replace(protocol_for(1e9, 1.0, l2), calls=1)
    assert protocol_for(1e9, 250.0, l2).is_cold
    small = protocol_for(1e4, 2.0, l2)
    assert (small.is_cold, small.calls) == (False, MOST_CALLS)
    assert protocol_for(20e6, 10.0, l2).calls == 15


TUTORIAL = '''
"""A tutorial."""
import os
import os.path as path

SCALE = 3
KEPT = path.join("a", "b")
NOISE = os.environ["NO_SUCH_VARIABLE"]


def decorate(function):
    return function


def helper(x, by=SCALE):
    return by * x


@decorate
def kernel(x):
    SCALE = 1
    return helper(x) + SCALE


class Wrapped:
    @staticmethod
    def apply(x):
        return kernel(x)


run = Wrapped.apply
raise SystemExit("a benchmark")
'''


def test_a_tutorial_gives_what_a_function_needs_and_runs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(TUTORIAL)
    run: Callable[[int], int] = load_tutorial(tmp_path, "one.py", "run", tmp_path / "cache")
    assert run(2) == 7
    text = extracted(TUTORIAL, "run")
    assert "@decorate\ndef kernel" in text
    assert not any(word in text for word in ("import", "KEPT", "NOISE", "SystemExit"))
    assert "import os.path as path" in extracted(TUTORIAL, "KEPT")


def test_a_tutorial_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="cannot be read: No such file"):
        load_tutorial(tmp_path, "two.py", "run", tmp_path)
    with pytest.raises(TilewrightError, match="has no 'other'"):
        extracted(TUTORIAL, "other", "one.py")
    with pytest.raises(TilewrightError, match=r"one\.py:1 is no Python"):
        extracted("def (", "other", "one.py")


def test_without_pytorch_it_says_so_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(device, "find_gpu", lambda: object())
    settings = Settings.from_environment()
    with pytest.raises(TilewrightError, match="Peers need PyTorch") as caught:
        bench_family("softmax", peers=PeerOptions(), settings=settings)
    assert (caught.value.exit_code, "--alone" in caught.value.hint) == (3, True)


def test_sets_are_timed_from_the_largest_one_and_element_type_by_element_type() -> None:
    family = load_family("softmax")
    sizes = [{"R": r, "C": c, "ld_x": c} for r, c in ((4096, 4096), (1, 1), (64, 1000), (65536, 4096))]
    named = [(dtype, "", each) for dtype in ("float16", "float32") for each in sizes]
    assert largest_first(family, named) == [3, 0, 2, 1, 7, 4, 6, 5]
