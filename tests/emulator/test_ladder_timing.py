"""The timing of rungs, with a card that is played by the emulator: who is judged, timed, left out, and from what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tilewright.emulator.executor import EmulatorExecutor
from tilewright.errors import TilewrightError
from tilewright.gpu.device import GpuInfo
from tilewright.gpu.driver import DeviceError
from tilewright.ladder import timing
from tilewright.ladder.family import Family, Limit, load_family
from tilewright.ladder.predicting import CardRates
from tilewright.ladder.report_text import render_bench
from tilewright.launch.bind import BoundLaunch
from tilewright.measure.measure import Plan
from tilewright.settings import Settings

INFO = GpuInfo(
    0, "a card", "sm_86", "580", (13, 0), 82, 1 << 20, 1 << 34, 1700, 99 << 10, 100 << 10, 1 << 10, 65536, 1536, 16
)  # fmt: skip
SMALL = {"M": 64, "N": 96, "ld_x": 96}


class Played(EmulatorExecutor):
    """The emulator, with what a stopwatch asks of a card. ``launched``: what was put on its stream."""

    is_dead = False

    def __init__(self, info: GpuInfo) -> None:
        super().__init__(info.arch)
        self.info = info
        self.stream_handle = 7
        self.launched: list[str] = []
        self.now_ms = 0.0
        self.device = self.stream = self

    def kernel(self, program: Any, launch: BoundLaunch) -> str:
        return str(program.kernel)

    def launch(self, kernel: str, launch: BoundLaunch, arrays: object, arguments: list[Any]) -> None:
        assert all(isinstance(argument, np.generic) for argument in arguments)
        self.launched.append(kernel)
        self.now_ms += launch.grid[0] * launch.block[0] * 1e-6

    def create_event(self, options: object) -> Moment:
        return Moment()

    def record(self, moment: Moment) -> None:
        moment.at_ms = self.now_ms

    def bury(self, fault: Exception) -> str:
        return str(fault)


@dataclass
class Moment:
    at_ms: float = 0.0

    def __sub__(self, other: Moment) -> float:
        return self.at_ms - other.at_ms


class Arrays:
    """Addresses, and nothing behind them."""

    def __init__(self, stream: object) -> None:
        self.names: list[str] = []

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def lay_out(self, launch: BoundLaunch, arrays: Mapping[str, np.ndarray], poison: int) -> None:
        assert set(arrays) < {buffer.name for buffer in launch.buffers}
        self.names = [buffer.name for buffer in launch.buffers]

    def pointer(self, name: str) -> int:
        return 4096 * (1 + self.names.index(name))


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    seen: dict[str, Any] = {"fills": [], "allocated": 0, "released": 0}

    def allocate(count_bytes: int) -> int:
        seen["allocated"] += 1
        return 1 << 30

    def release(pointer: int) -> None:
        seen["released"] += 1

    def executor(info: GpuInfo) -> Played:
        seen["executor"] = Played(info)
        return seen["executor"]

    monkeypatch.setattr(timing, "GpuExecutor", executor)
    monkeypatch.setattr(timing, "card_rates", lambda _: CardRates(4e12, 2.0, 8e12, 1e12, 2.5e11, {"fp32": 6e13}))
    monkeypatch.setattr(timing, "DeviceArrays", Arrays)
    monkeypatch.setattr(timing, "allocate", allocate)
    monkeypatch.setattr(timing, "release", release)
    monkeypatch.setattr(timing, "synchronize", lambda stream: None)
    monkeypatch.setattr(timing, "fill", lambda pointer, value, count, stream: seen["fills"].append((value, count)))
    return seen


def timed(family: Family) -> Any:
    plan = Plan(warmup_rounds=1, min_rounds=10, max_rounds=10, budget_s=100)
    sizes = ("default",)
    settings = Settings.from_environment()
    return timing.bench(family, family.rungs, ("float32",), sizes, INFO, settings, lambda _: None, plan)


def small_transpose() -> Family:
    family = load_family("transpose")
    return replace(family, rungs=family.rungs[:3], sizes={"default": SMALL, "ragged": {"M": 5, "N": 33, "ld_x": 40}})


def test_rungs_are_judged_then_timed_by_turns(card: dict[str, Any]) -> None:
    report = timed(small_transpose())
    assert [r.verdict for r in report.rungs] == ["passed"] * 3
    assert (report.card, report.driver) == ("a card", "580")
    assert len(card["executor"].launched) == 3 * 11
    assert card["allocated"] == card["released"] == 1  # what drives everything out of the L2
    first, second, _ = report.rungs
    assert first.samples == 10
    assert first.speedup == 1.0
    assert first.median_us == pytest.approx(96 * 1e-3)
    assert first.gbps == pytest.approx(2 * 64 * 96 * 4 / (96 * 1e-3) / 1e3)
    assert first.gflops is None
    assert second.speedup == pytest.approx(1.0)


def test_a_wrong_rung_is_not_timed(card: dict[str, Any], tmp_path: Any) -> None:
    family = small_transpose()
    broken = tmp_path / "02_shared.cu"
    text = family.rungs[1].file.read_text("utf-8").replace("tile[threadIdx.x][at]", "tile[at][threadIdx.x]")
    broken.write_text(text, "utf-8")
    rungs = (family.rungs[0], replace(family.rungs[1], file=broken), replace(family.rungs[2], limits={"N": Limit(64)}))
    (tmp_path.parent / "include").mkdir(exist_ok=True)
    report = timed(replace(family, rungs=rungs))
    assert [r.verdict for r in report.rungs] == ["passed", "failed", "not_run"]
    assert "ragged" in report.rungs[1].message
    assert report.rungs[2].message == "N = 96; 03_padded takes at most 64"
    assert set(card["executor"].launched) == {"transpose"}
    assert len(card["executor"].launched) == 11


def test_a_rung_that_takes_the_context_with_it_is_named(
    card: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = small_transpose()
    broken = tmp_path / "02_shared.cu"
    broken.write_text(family.rungs[1].file.read_text("utf-8").replace("tile[threadIdx.x][at]", "tile[at][threadIdx.x]"))
    (tmp_path.parent / "include").mkdir(exist_ok=True)
    rungs = (family.rungs[0], replace(family.rungs[1], file=broken), family.rungs[2])
    monkeypatch.setattr(Played, "is_dead", True)
    with pytest.raises(
        TilewrightError, match=r"transpose 02_shared, float32, took the card's context .* ragged"
    ) as told:
        timed(replace(family, rungs=rungs))
    assert (told.value.code, told.value.exit_code) == ("ladder/card_fault", 1)


def test_a_card_that_is_lost_while_timing_says_which_rungs_ran(
    card: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        monkeypatch.setattr(Played, "is_dead", True)
        raise DeviceError("CUDA_ERROR_LAUNCH_FAILED", "719")

    monkeypatch.setattr(timing, "sample", lost)
    why = "transpose 01_naive or 02_shared or 03_padded, float32, took the card's context .* while timing"
    with pytest.raises(TilewrightError, match=why):
        timed(small_transpose())


def test_a_rung_that_takes_no_smaller_set_is_judged_at_its_own(card: dict[str, Any], tmp_path: Any) -> None:
    family = small_transpose()
    needs = {"rows of the length that it is built for": "(EXACT == 0) + (M == EXACT)"}
    exact = replace(family.rungs[1], defines={"EXACT": 0}, sized={"EXACT": "M"}, needs=needs)
    broken = tmp_path / "02_shared.cu"
    text = exact.file.read_text("utf-8")
    broken.write_text(text.replace("tile[threadIdx.x][at]", "tile[EXACT ? at : threadIdx.x][EXACT ? threadIdx.x : at]"))
    (tmp_path.parent / "include").mkdir(exist_ok=True)
    rows = [timed(replace(family, rungs=(rung,))).rungs[0] for rung in (exact, replace(exact, file=broken))]
    assert [row.verdict for row in rows] == ["passed", "failed"]
    assert rows[1].message.startswith("the sizes that it is built for: ")


def test_a_rung_of_another_card_is_not_run_and_none_that_failed(card: dict[str, Any]) -> None:
    """The card is an sm_86: `sm_80` is code that it runs, and what lies beyond it says nothing of the rung."""
    family = small_transpose()
    least = (None, "sm_120a", "sm_90")
    rungs = tuple(replace(rung, min_arch=arch) for rung, arch in zip(family.rungs, least, strict=True))
    report = timed(replace(family, rungs=(*rungs, replace(rungs[2], name="04_older", min_arch="sm_80"))))
    assert [r.verdict for r in report.rungs] == ["passed", "not_run", "not_run", "passed"]
    assert [r.message for r in report.rungs[1:3]] == [
        f"not here: it needs {arch}, and the card is sm_86" for arch in least[1:]
    ]
    assert report.rungs[1].median_us is None
    assert len(card["executor"].launched) == 2 * 11
    text = render_bench(report, width=150)
    assert "not here: it needs sm_120a" in text
    assert "failed" not in text


def test_a_rung_that_chooses_by_its_cost_alone_is_timed_with_what_it_chose(
    card: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has choices, and nothing that is `sized`. The file's own defines are the emulator's."""
    family = small_transpose()
    rung = replace(family.rungs[1], choices=({"TW_OF": 8}, {"TW_OF": 4}), cost={"work": "TW_OF * N"}, sized={})
    seen = []

    class Seen(timing.RungStopwatch):
        def __enter__(self) -> timing.RungStopwatch:
            seen.extend(one.spec.rung for one in self._rungs.values())
            return super().__enter__()

    monkeypatch.setattr(timing, "RungStopwatch", Seen)
    report = timed(replace(family, rungs=(rung,)))
    assert report.rungs[0].verdict == "passed"
    assert [(one.defines["TW_OF"], one.told) for one in seen] == [(4, 4 * SMALL["N"])]


def test_what_has_to_be_zero_is_cleared_as_a_part_of_the_rung(card: dict[str, Any]) -> None:
    family = small_transpose()
    one = family.rungs[0]
    launch = one.launches[0]
    args = [{**a, "role": "inout", "fill": "zeros()"} if a["name"] == "y" else a for a in launch.args]
    clearing = replace(one, launches=(replace(launch, args=tuple(args)),))
    report = timed(replace(family, rungs=(clearing,)))
    assert report.rungs[0].verdict == "passed"
    assert card["fills"].count((0, 64 * 96 * 4)) == 11


def test_a_rung_built_for_one_length_meets_no_longer_rows(card: dict[str, Any]) -> None:
    """They would stop the card, which then refuses everything else. What does not take a set at all is left out."""
    whole = load_family("layernorm")
    sets = {
        "default": {"R": 4, "C": 1024, "ld_x": 1024},
        "longer": {"R": 2, "C": 1531, "ld_x": 1531},
        "ragged": {"R": 3, "C": 515, "ld_x": 520},
    }
    rungs = (whole.rungs[0], whole.rung("03"), whole.rung("07"))
    report = timed(replace(whole, rungs=rungs, sizes=sets))
    assert [(r.verdict, r.message) for r in report.rungs] == [("passed", "")] * 3
    longest = {"default": {"R": 1, "C": 4096, "ld_x": 4096}, "short": {"R": 2, "C": 200, "ld_x": 200}}
    report = timed(replace(whole, rungs=(whole.rung("06"),), sizes=longest))
    assert [r.verdict for r in report.rungs] == ["not_run"]
    assert report.rungs[0].message == "C = 4096; 06_lanes takes at most 1024"
