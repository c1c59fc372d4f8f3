"""Predicted times of launches: rounds of blocks, edges, the ranking and its ranges."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from math import exp, log
from pathlib import Path

import pytest
from plan_samples import SM_90, igemm, igemm_budget

from tilewright.arch.arch import load_arch
from tilewright.plan import compiled
from tilewright.plan.compiled import (
    BASELINE,
    Built,
    Model,
    Spread,
    kind_of,
    launch_cycles,
    load_model,
    ranked,
    speedups,
)
from tilewright.plan.decide import decide, decide_built
from tilewright.plan.pipes import cycles_per_trip
from tilewright.sass.schedule import Schedule, Slot

MODEL = load_model()
RATES = Path(compiled.__file__).with_name("rates.toml")
FMA = Slot("fma", 1, weight=1)


def kernel(instructions: int = 200, loads: int = 0, blocks: int | None = 132, math: float | None = 20_000.0) -> Built:
    waited = Slot("global", 1, write=0, lines=4, sectors=16), FMA._replace(waits=1)
    trip = (*waited * loads, *[FMA] * instructions)
    return Built(Schedule(trip, (), loads + instructions, 50, 50, "FFMA"), 64, 16384, 128, blocks, math)


def test_a_launch_is_its_rounds_and_what_stands_round_the_loops() -> None:
    one = kernel()
    loop = cycles_per_trip(one.schedule, 4, 1, MODEL.rates) / one.schedule.math_per_trip
    alone = 20_000 * loop + MODEL.block_cycles + MODEL.edge_cycles * 100
    assert launch_cycles(BASELINE, one, SM_90, MODEL) == pytest.approx(alone + MODEL.launch_cycles)
    many = launch_cycles(BASELINE, replace(one, blocks=132 * 8 * 5), SM_90, MODEL)
    more = launch_cycles(BASELINE, replace(one, blocks=132 * 8 * 10), SM_90, MODEL)
    assert many is not None
    assert more is not None
    assert more - MODEL.launch_cycles == pytest.approx(2 * (many - MODEL.launch_cycles))


def test_a_last_round_of_few_blocks_costs_less_than_a_whole_one() -> None:
    def at(blocks: int) -> float:
        found = launch_cycles(BASELINE, kernel(loads=3, blocks=blocks), SM_90, MODEL)
        assert found is not None
        return found

    whole = 132 * 8
    assert at(whole) < at(whole + 1) < at(2 * whole)
    assert at(whole + 1) == at(whole + 132)


def test_a_loop_whose_simulation_comes_to_no_end_is_not_predicted() -> None:
    # Warps that wait for bulk copies which nobody issues: the one that copies stands at the barrier for good.
    waits = FMA, Slot("issue", 1, phase=True), Slot("issue", 1, joins=True)
    stuck = replace(kernel(), schedule=Schedule(waits, (), 1, 0, 0, "FFMA", 1.0), threads=1024)
    assert cycles_per_trip(stuck.schedule, 32, 1, MODEL.rates) == float("inf")
    assert launch_cycles("tma2", stuck, SM_90, MODEL) is None
    assert launch_cycles("tma2", replace(stuck, blocks=None), SM_90, MODEL) is None
    assert speedups({BASELINE: stuck, "ldg": kernel()}, SM_90, MODEL) == {}
    assert speedups({BASELINE: kernel(), "tma2": stuck}, SM_90, MODEL) == {}


def test_what_does_not_fit_is_not_predicted() -> None:
    assert launch_cycles(BASELINE, replace(kernel(), smem_bytes=300_000), SM_90, MODEL) is None
    assert speedups({BASELINE: replace(kernel(), smem_bytes=300_000), "ldg": kernel()}, SM_90, MODEL) == {}
    assert speedups({"ldg": kernel()}, SM_90, MODEL) == {}
    assert speedups({BASELINE: kernel(), "ldg": replace(kernel(), smem_bytes=300_000)}, SM_90, MODEL) == {}


def test_a_shorter_loop_is_faster_and_a_crossed_cliff_is_slower() -> None:
    waits = kernel(loads=4, blocks=132 * 8)
    builds = {BASELINE: waits, "ldg": kernel(blocks=132 * 8), "cp_async2": replace(waits, smem_bytes=200_000)}
    found = speedups(builds, SM_90, MODEL)
    assert found["ldg"] > 1.2
    assert found["cp_async2"] < 0.7
    assert ranked(found, SM_90, MODEL) == ("ldg", BASELINE, "cp_async2")


def plain(caution: float = 0.0) -> Model:
    return replace(MODEL, spreads={"other": Spread(-0.2, 0.3, 0.0), "bulk": Spread(-0.5, 0.1, caution)})


def test_of_equals_the_one_that_takes_less_comes_first() -> None:
    found = {"cp_async4": 1.2, "cp_async2": 1.201, "ldg": 1.0, "widen": 1.001}
    assert ranked(found, SM_90, plain()) == ("cp_async2", "cp_async4", BASELINE, "ldg", "widen")


def test_a_gain_that_is_often_not_there_is_ranked_with_caution() -> None:
    found = {"bulk2": 1.2, "ldg": 1.1}
    assert ranked(found, SM_90, plain())[0] == "bulk2"
    assert ranked(found, SM_90, plain(0.2))[0] == "ldg"


def test_kinds_and_ranges() -> None:
    assert [kind_of(label) for label in ("ldg/early", "cp_async3", "retile", "cap_registers")] == [
        "ldg", "cp_async", "retile", "cap_registers",
    ]  # fmt: skip
    here, there = MODEL.spread("ldg", SM_90), MODEL.spread("ldg", load_arch("sm_86"))
    assert there.low == pytest.approx(MODEL.elsewhere * here.low)
    assert there.high - there.low > here.high - here.low


def test_rates_of_other_architectures_follow_their_tables() -> None:
    ampere = load_arch("sm_86")
    rates = MODEL.on(ampere)
    assert rates.global_latency / MODEL.rates.global_latency == ampere.l2_latency_cycles / SM_90.l2_latency_cycles
    assert rates.matrix_macs_per_cycle < MODEL.rates.matrix_macs_per_cycle
    assert MODEL.on(SM_90) is MODEL.rates


def test_the_shipped_model_says_what_it_stands_on() -> None:
    assert MODEL.cards == ("NVIDIA H200",)
    assert MODEL.cases >= 100
    assert {"ldg", "ldg_single", "cp_async", "bulk", "tma", "other"} <= MODEL.spreads.keys()
    for spread in MODEL.spreads.values():
        assert spread.low < 0 < spread.high
        assert spread.caution >= 0


def test_the_decision_takes_what_was_compiled_over_what_was_expected() -> None:
    waits = kernel(loads=4, blocks=132 * 8)
    builds = {BASELINE: waits, "ldg": waits, "ldg/early": kernel(blocks=132 * 8), "cp_async2": waits}
    before = decide(igemm(), igemm_budget(), SM_90)
    found = decide_built(igemm(), igemm_budget(), SM_90, builds)
    early = speedups(builds, SM_90, MODEL)["ldg/early"]
    assert found.ranking[0] == "ldg/early"
    assert found.best == "ldg"
    assert found.predicted["ldg"].speedup == pytest.approx(early)
    assert log(found.predicted["ldg"].low / early) == pytest.approx(MODEL.spread("ldg", SM_90).low)
    assert found.predicted["cp_async3"] == before.predicted["cp_async3"]  # was not compiled
    assert any("calibrated on" in reason and "NVIDIA H200" in reason for reason in found.reasons)
    assert not any("before anything is compiled" in reason for reason in found.reasons)


def test_without_a_readable_baseline_the_decision_stays() -> None:
    assert decide_built(igemm(), igemm_budget(), SM_90, {"ldg": kernel()}) == decide(igemm(), igemm_budget(), SM_90)


def test_nothing_worth_its_risk_leaves_the_baseline_first() -> None:
    builds = {BASELINE: kernel(), "ldg": kernel(loads=4), "cp_async2": kernel(loads=6)}
    found = decide_built(igemm(), igemm_budget(), SM_90, builds)
    assert found.ranking[0] == BASELINE
    assert found.verdict == "do_not_pipeline"
    assert any("baseline stays first" in reason for reason in found.reasons)
    assert found.reasons[0].startswith("The published thresholds alone say otherwise")


def gaining() -> dict[str, Built]:
    return {BASELINE: kernel(loads=6, blocks=132 * 8), "ldg": kernel(blocks=132 * 8)}


def test_without_a_pipelined_build_the_verdict_is_what_was_expected() -> None:
    builds = {BASELINE: kernel(), "widen": kernel()}
    before, found = decide(igemm(), igemm_budget(), SM_90), decide_built(igemm(), igemm_budget(), SM_90, builds)
    assert (found.verdict, found.reasons[0]) == (before.verdict, before.reasons[0])
    assert found.best is None


def test_unknown_ops_per_load_tells_what_the_builds_promise() -> None:
    found = decide_built(replace(igemm(), ops_per_load=None), igemm_budget(), SM_90, gaining())
    assert found.verdict == "pipeline"
    assert found.reasons[0].startswith("ops_per_load is not known")
    assert f"{found.predicted['ldg'].speedup:.2f}x" in found.reasons[0]
    assert not any("thresholds alone" in reason for reason in found.reasons)


def test_thresholds_are_blamed_only_for_what_they_say() -> None:
    few = decide_built(replace(igemm(), num_tiles=3), igemm_budget(), SM_90, gaining())
    assert few.verdict == "try_both"
    assert few.reasons[0].endswith("no gain is promised.")
    # The thresholds say "pipeline" here, and so do the builds.
    assert decide_built(igemm(), igemm_budget(), SM_90, gaining()).verdict == "pipeline"
    assert not any("thresholds alone" in reason for reason in few.reasons)


def test_the_shipped_rates_are_those_fitted_on_the_kernels_made_here() -> None:
    record = json.loads((Path(__file__).parents[2] / "benchmarks/results/h200-prediction.json").read_text("utf-8"))
    assert record["shipped"] == "a"
    own = {**asdict(MODEL.rates), "block_cycles": MODEL.block_cycles}
    for name, value in record["fitted"]["a"].items():
        assert own[name] == pytest.approx(value, rel=1e-6)
    assert MODEL.spreads.keys() == record["spreads"]["a"].keys()
    for kind, spread in record["spreads"]["a"].items():
        assert asdict(MODEL.spreads[kind]) == pytest.approx(spread, abs=6e-5)
    calibrated = re.findall(r"^(\w+) = .*kind = \"calibrated\"", RATES.read_text("utf-8"), re.MULTILINE)
    assert set(calibrated) == record["fitted"]["a"].keys()
    seen = [case for case in record["cases"] if case["origin"] in record["split"]["a"]]
    assert len(seen) == MODEL.cases


def test_what_is_scored_on_the_public_kernels_is_the_shipped_model() -> None:
    record = json.loads((Path(__file__).parents[2] / "benchmarks/results/h200-prediction.json").read_text("utf-8"))
    tested = [case for case in record["cases"] if case["origin"] in record["split"]["b"]]
    assert len(tested) >= 100
    for case in tested:
        assert list(ranked(case["predicted"], SM_90, MODEL)) == case["ranking"]
        for label, speedup in case["predicted"].items():
            spread = MODEL.spread(label, SM_90)
            assert case["ranges"][label] == pytest.approx(
                [speedup * exp(spread.low), speedup * exp(spread.high)], rel=5e-4
            )
