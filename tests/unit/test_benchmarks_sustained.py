"""Products under load: what the energy counter's steps come to, and the record on its page."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest

from tilewright.ladder.sustained import Sustained, SustainedBench, SustainedPoint, markdown_sustained
from tilewright.measure.ratios import Ratio

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("hgemm_sustained", ROOT / "benchmarks/hgemm_sustained.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(ROOT / "benchmarks"))
    return module


def test_watts_are_those_between_two_steps_of_the_counter(script: ModuleType) -> None:
    # A step before the load began, read late; then 600 W, in steps of 50 ms, and 10 ms more of which nothing is known.
    readings = [(0.01, 5_000), (0.03, 5_000), (0.05, 17_000), (0.07, 17_000), (0.1, 47_000), (0.15, 77_000)]
    assert script.watts_of([*readings, (0.16, 77_000)]) == pytest.approx(600.0)
    assert script.watts_of(readings[:4]) is None
    assert script.watts_of([]) is None


def test_shapes_are_as_many_as_were_asked_for_and_the_largest_first(script: ModuleType) -> None:
    assert len(set(script.CASES)) == len(script.CASES)
    assert len({shape for _, shape in script.CASES}) >= 40
    assert {shape for _, shape in script.CASES[:6]} == {(n, n, n) for n in (4096, 8192, 16384)}


def bench(ratio: float) -> SustainedBench:
    ours = Sustained(187.26, 0.14812, 693.1, 1545, 61)
    times = {"ours": ours, "torch": Sustained(193.8, 0.16), "cublaslt": Sustained(1999.0)}
    ratios = {"torch": Ratio(ratio, 1.03, 1.04), "cublaslt": Ratio(1.02, 1.01, 1.03)}
    offers = (193.0, None)
    large = SustainedPoint("bfloat16", (4096, 4096, 4096), "25_pingpong", {"TW_BN": 8}, 7, times, ratios, offers)
    single, wrong = {"ours": Sustained(2.5)}, {"torch": "wrong"}
    alone = SustainedPoint("bfloat16", (1, 8, 8), "30_direct", {}, 7, single, {}, messages=wrong)
    return SustainedBench("So it was.", "a card", "580", "2026-12-01", "2.11", (large, alone))


def test_a_record_is_read_back_and_drawn(script: ModuleType, tmp_path: Path) -> None:
    script.written(bench(1.0352189), tmp_path / "record.json")
    again = msgspec.json.decode((tmp_path / "record.json").read_bytes(), type=SustainedBench)
    assert again == bench(1.0352)
    lines = markdown_sustained(again)
    told = "bfloat16, against torch.mm: 1 shapes, geometric mean 1.035x; the worst 1.035x at 4096x4096x4096; against"
    assert told in "\n".join(lines)
    assert (
        "| 4096x4096x4096 | 25_pingpong | 187.3 | 193.8 | 1.035x (1.030 to 1.040) | 1,999 | 1.020x (1.010 to 1.030) "
        "| 0.1481 / 0.16 / - | 693.1 / - / - | 1,545 / - / - | 61 |"
    ) in lines
    assert "| 1x8x8 | 30_direct | 2.5 | - | - | - | - | - / - / - | - / - / - | - / - / - | - |" in lines
    assert "- bfloat16 1x8x8, torch: wrong" in lines


def test_a_contender_runs_alone_before_it_is_timed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock follows what ran before."""
    seen: list[str] = []
    graph = SimpleNamespace(replay=lambda: seen.append("replay"))
    clock = object.__new__(script.LoadClock)
    clock._graphs = {"ours": (graph, 5)}

    def elapsed_us(call: Callable[[], None], times: int) -> float:
        seen.append("timed")
        call()
        return 100.0 / times

    monkeypatch.setattr(clock, "_elapsed_us", elapsed_us)
    assert clock.time_us("ours") == 20.0
    assert seen == [*["replay"] * script.LEADS, "timed", "replay"]
    assert script.LEADS >= 3


def test_points_are_kept_where_they_were_timed_alike_and_the_rung_is_the_same(
    script: ModuleType, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    card = SimpleNamespace(name="a card", driver="580")
    script.written(replace(bench(1.03), protocol=script.PROTOCOL), record)
    (large,) = script.kept_of(record, card)  # not the one without a ratio
    rung = SimpleNamespace(name="25_pingpong", defines={"TW_BN": 8, "OTHER": 1})
    shape = (4096, 4096, 4096)
    assert script.known([large], "bfloat16", shape, rung) == large
    assert script.known([large], "float16", shape, rung) is None
    assert script.known([large], "bfloat16", shape, SimpleNamespace(name=rung.name, defines={"TW_BN": 16})) is None
    assert script.known([large], "bfloat16", shape, SimpleNamespace(name="24_persistent", defines=rung.defines)) is None
    for other in (
        replace(bench(1.03), protocol="otherwise"),
        replace(bench(1.03), protocol=script.PROTOCOL, driver="1"),
    ):
        script.written(other, record)
        with pytest.raises(SystemExit, match="nothing that can be kept"):
            script.kept_of(record, card)
    assert script.kept_of(None, card) == ()
