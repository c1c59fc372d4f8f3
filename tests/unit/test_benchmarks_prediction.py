"""The record of the prediction: what it has to reach, and that its figures follow from its cases."""

from __future__ import annotations

import json
import shutil
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RECORD = BENCHMARKS / "results" / "h200-prediction.json"


@pytest.fixture(scope="module")
def scripts() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    import prediction
    import prediction_score

    yield prediction, prediction_score
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return record


def test_the_record_says_where_it_was_measured_and_how_it_was_split(kept: dict[str, Any]) -> None:
    assert kept["card"] == "NVIDIA H200"
    assert kept["driver"]
    assert kept["date"]
    assert "13.0.88" in kept["toolchain"]
    assert not set(kept["split"]["a"]) & set(kept["split"]["b"])
    assert {case["origin"] for case in kept["cases"]} == {*kept["split"]["a"], *kept["split"]["b"]}


def test_the_summary_follows_from_the_cases(kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]) -> None:
    prediction, score = scripts
    for name, side in (("calibrated on a, tested on b", "b"), ("calibrated on b, tested on a", "a")):
        rows = [case for case in kept["cases"] if prediction.side_of(case["origin"]) == side]
        assert score.summary(rows) == kept["summary"][name]
    late = [case for case in kept["cases"] if case["name"] in kept["late"]]
    assert score.summary(late) == kept["summary"]["of the former, the late ones"]


def test_the_spreads_of_a_side_follow_from_its_cases(
    kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]
) -> None:
    prediction, score = scripts
    for side in "ab":
        rows = [case for case in kept["cases"] if prediction.side_of(case["origin"]) == side]
        found = score.spreads_of(
            [{**row, "predicted": row["predicted_by_own_side"]} for row in rows], prediction.kind_of
        )
        assert found.keys() == kept["spreads"][side].keys()
        for kind, spread in found.items():
            assert spread == pytest.approx(kept["spreads"][side][kind], abs=1e-3)


def test_the_page_shows_the_recorded_figures(kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]) -> None:
    prediction, score = scripts
    page = (BENCHMARKS.parent / "docs" / "prediction.md").read_text("utf-8")
    for side in "ab":
        rows = [case for case in kept["cases"] if prediction.side_of(case["origin"]) == side]
        told = score.score_lines(rows, 0)
        if side == "b":
            told += [*score.miss_lines(rows), *score.kind_lines(rows, prediction.kind_of)]
        for line in told:
            assert line in page
    assert f"fitted on {kept['fitted_on']['a']} cases" in page
    late, mean = (
        kept["summary"][name] for name in ("of the former, the late ones", "mean of two fits, shipped before, on b")
    )
    text = " ".join(page.split())
    assert f"Five of the public kernels, {late['cases']} cases" in text
    own = late["regret"]["the decision"]
    assert f"{own['mean'] - 1:.1%} behind the best on average, {own['max']:.2f} at worst" in text
    assert f"{late['coverage']:.0%} of the ranges hold" in text
    own = mean["regret"]["the decision"]
    assert f"a public case at {own['max']:.2f} ({own['mean'] - 1:.1%} on average)" in text


def test_the_page_tells_what_speaks_against_the_decision(
    kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]
) -> None:
    prediction, score = scripts
    from tilewright.plan.compiled import load_model, ranked

    text = " ".join((BENCHMARKS.parent / "docs" / "prediction.md").read_text("utf-8").split())
    sides: dict[str, list[Any]] = {"a": [], "b": []}
    for case in kept["cases"]:
        sides[prediction.side_of(case["origin"])].append(case)

    def regrets(rows: list[Any], key: str, model: Any) -> list[float]:
        return [score.regret(row, ranked(row[key], prediction.ARCH, model)[0]) for row in rows]

    model = load_model()
    own = regrets(sides["a"], "predicted_by_own_side", model)
    beyond = sum(value > 1.25 for value in own)
    assert (
        f"{mean(own) - 1:.1%} behind the best on average, {max(own):.2f} at worst, and {beyond} of {len(own)}" in text
    )
    rash = replace(model, spreads={kind: replace(s, caution=0.0) for kind, s in model.spreads.items()})
    found = regrets(sides["b"], "predicted", rash)
    assert sum(value > 1.25 for value in found) == 1
    assert f"one public case is at {max(found):.2f} ({mean(found) - 1:.1%} on average)" in text
    rest = regrets([case for case in sides["b"] if case["name"] != "K15"], "predicted", model)
    assert f"Without it: {len(rest)} cases, {mean(rest) - 1:.1%}." in text


def test_the_readme_tells_the_recorded_figures(kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]) -> None:
    prediction, score = scripts
    text = " ".join((BENCHMARKS.parent / "README.md").read_text("utf-8").split())
    text = text[text.index("**How good the decision is**") :]
    found, other = (kept["summary"][f"calibrated on {a}, tested on {b}"] for a, b in ("ab", "ba"))
    rules, late = found["regret"], kept["summary"]["of the former, the late ones"]
    own, back = rules["the decision"], other["regret"]["the decision"]

    def percent(value: float, digits: int = 0) -> str:
        return f"{100 * value:.{digits}f} %"

    rows = [case for case in kept["cases"] if prediction.side_of(case["origin"]) == "b"]
    bulk = [
        {**row, "ranges": {k: v for k, v in row["ranges"].items() if prediction.kind_of(k) == "bulk"}} for row in rows
    ]
    for told in (
        f"tested on {found['cases']} (kernel, size) cases of {found['origins']} public origins",
        f"took {percent(own['mean'] - 1, 1)} longer than the best one on average",
        f"on average and {percent(own['max'] - 1)} at worst",
        f"always the deepest `cp.async` took {percent(rules['always the deepest cp.async']['mean'] - 1)} longer",
        f"never touching the kernel {percent(rules['always the baseline']['mean'] - 1)}.",
        f"{percent(found['coverage'])} of the predicted ranges held",
        f"(of `bulk` only {percent(score.coverage(bulk))})",
        f"over the {late['cases']} that came last it is {percent(late['regret']['the decision']['mean'] - 1, 1)} and "
        f"{percent(late['regret']['the decision']['max'] - 1)}",
        f"{percent(back['mean'] - 1, 1)} on average over ours, but {percent(back['max'] - 1)} at worst, and "
        f"{back['beyond_1.25']} of {other['cases']} beyond 25 %",
    ):
        assert told in text


def test_the_decision_is_close_to_the_best_and_better_than_rules(kept: dict[str, Any]) -> None:
    found = kept["summary"]["calibrated on a, tested on b"]
    assert found["cases"] >= 100
    assert found["origins"] >= 10
    rules = found["regret"]
    own = rules["the decision"]["mean"]
    assert own <= 1.05
    assert rules["the decision"]["max"] <= 1.25
    assert all(own < other["mean"] for name, other in rules.items() if name != "the decision")
    assert found["coverage"] >= 0.80


def test_a_worse_ranking_is_noticed(kept: dict[str, Any], scripts: tuple[ModuleType, ModuleType]) -> None:
    _, score = scripts
    rows = deepcopy(kept["cases"])
    for row in rows:
        row["ranking"].reverse()
        row["ranges"] = {label: [high, high] for label, (_, high) in row["ranges"].items()}
    worse = score.summary(rows)
    assert worse["regret"]["the decision"]["mean"] > 1.5
    assert worse["coverage"] < 0.1


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_fast_simulation_is_the_shipped_one(scripts: tuple[ModuleType, ModuleType]) -> None:
    prediction, _ = scripts
    from tilewright.plan.compiled import Built, launch_cycles, load_model
    from tilewright.plan.pipes import cycles_per_trip
    from tilewright.sass.schedule import Schedule, Slot

    fma = Slot("fma", 1, weight=1)
    copy = Slot("async", 1, lines=4, sectors=16, wavefronts=4), Slot("issue", 1, commits=True)
    read = Slot("shared", 2, write=1, wavefronts=3, words=2), fma._replace(waits=2, clash=True)
    load = Slot("global", 1, write=0, read=2, lines=2, sectors=8), Slot("matrix", 2, waits=5, macs=2048, weight=1)
    tail = Slot("alu", 1), Slot("multiply", 4), Slot("special", 2, write=3), Slot("uniform", 1, waits=8)
    barrier = Slot("issue", 1, joins=True)
    bulk = Slot("issue", 1, phase=True), Slot("issue", 1, bulk_bytes=2048, bulk_rows=16)
    trips = [
        ((*copy, Slot("issue", 1, leaves=1), barrier, *read * 4, *[fma] * 60, *load, *tail), (), 0.0),
        ((*bulk, *read * 3, *[fma] * 50, barrier), (bulk[0], *read * 3, *[fma] * 50, barrier), 2.0),
    ]
    fast, rates = prediction.Fast(), load_model().rates
    some = tuple(slot._replace(own=slot.pipe in ("async", "global", "shared")) for slot in trips[0][0])
    trips.append((some, tuple(slot for slot in some if not slot.own), 0.0))
    for slots, others, ahead in trips:
        schedule = Schedule(slots, others, 60, 0, 0, "FFMA", ahead, 0.25 if slots is some else 1.0)
        for warps, blocks in ((1, 3), (4, 1), (8, 2), (8, 5), (32, 1)):
            own = cycles_per_trip(schedule, warps, blocks, rates)
            assert fast(schedule, warps, blocks, rates) == pytest.approx(own, rel=1e-9)
    model = load_model()
    for blocks in (1, 132 * 8, 132 * 20 + 5):
        build = Built(Schedule(trips[0][0], (), 60, 40, 30, "FFMA"), 64, 30_000, 128, blocks, 6000.0)
        whole = launch_cycles("cp_async2", build, prediction.ARCH, model)
        assert prediction.launch_cycles("cp_async2", build, model, fast) == pytest.approx(whole, rel=1e-9)
