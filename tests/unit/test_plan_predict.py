"""The model: close to what was measured on one kernel, and sound in its directions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_samples import SM_90, igemm, igemm_budget, sgemm, sgemm_budget

from tilewright.arch.arch import load_arch
from tilewright.plan.budget import Budget, budget
from tilewright.plan.facts import PlanFacts
from tilewright.plan.predict import (
    ASYNC_WAITED,
    BASELINE,
    VARIANTS,
    WIDENED,
    Schedule,
    estimated_inputs,
    predicted_speedup,
    tile_cost,
)

BY_KEY = {schedule.key: schedule for schedule in (*VARIANTS, WIDENED, ASYNC_WAITED)}


def speedup(facts: PlanFacts, plan: Budget, key: str) -> float:
    baseline, variant = tile_cost(facts, plan, SM_90, BASELINE), tile_cost(facts, plan, SM_90, BY_KEY[key])
    assert baseline is not None
    assert variant is not None
    return predicted_speedup(facts, baseline, variant)


@pytest.mark.parametrize(
    ("key", "facts", "measured"),
    [
        ("widen", igemm(), 1.55),
        ("async_waited", igemm(), 1.77),
        ("cp_async2", igemm(), 1.80),
        ("cp_async4", igemm(), 1.80),
        ("cp_async2", igemm(widened_bytes=None, async_bytes=4), 1.54),
        ("ldg", igemm(widened_bytes=None, async_bytes=None), 1.11),
    ],
)
def test_the_int8_kernel_on_an_h200_within_a_sixth(key: str, facts: PlanFacts, measured: float) -> None:
    assert speedup(facts, igemm_budget(), key) == pytest.approx(measured, rel=1 / 6)


def test_fma_kernels_gain_little() -> None:
    for key in ("ldg", "cp_async2", "cp_async4"):
        assert speedup(sgemm(), sgemm_budget(), key) == pytest.approx(1.02, abs=0.04)


def test_without_bank_conflicts_the_measured_figures_are_missed() -> None:
    # The mutant that shows what the conflicts are for: free shared reads promise three times the speed.
    blind = replace(igemm(), shared_loads={})
    assert speedup(blind, igemm_budget(), "cp_async2") > 2.5


def test_width_counts_in_the_model() -> None:
    wide = speedup(igemm(load_bytes=16), igemm_budget(), "widen")
    assert wide == pytest.approx(1.0)
    assert speedup(igemm(), igemm_budget(), "widen") > 1.4


def test_more_stages_help_where_latency_is_left_over() -> None:
    # One block per SM with a short compute phase: nothing else hides the wait.
    facts = replace(igemm(), shared_loads={"LDSM.16.M88.4": 2}, compute_instructions=40, pitch_a_bytes=48)
    plan = budget(SM_90, threads=128, registers=64, smem_single_bytes=40960, staged_bytes=4096)
    facts = replace(facts, blocks=132, sms=132)
    assert speedup(facts, plan, "cp_async2") > 1.1 * speedup(facts, plan, "async_waited")
    assert speedup(facts, plan, "cp_async3") > speedup(facts, plan, "cp_async2")


def test_the_cliff_costs() -> None:
    arch = load_arch("sm_86")
    facts = replace(sgemm(), num_tiles=None)
    roomy = budget(arch, threads=128, registers=64, smem_single_bytes=8192, staged_bytes=1024)
    steep = budget(arch, threads=128, registers=64, smem_single_bytes=28672, staged_bytes=28672)
    ring = BY_KEY["cp_async2"]
    kept, lost = tile_cost(facts, roomy, arch, ring), tile_cost(facts, steep, arch, ring)
    assert kept is not None
    assert lost is not None
    assert lost.blocks_per_sm == 1
    assert lost.cycles > kept.cycles


def test_what_cannot_be_built_has_no_cost() -> None:
    plan = igemm_budget()
    assert tile_cost(igemm(async_bytes=None), plan, SM_90, BY_KEY["cp_async2"]) is None
    assert tile_cost(igemm(), plan, replace(SM_90, has_cp_async=False), BY_KEY["cp_async2"]) is None
    assert tile_cost(igemm(), plan, SM_90, Schedule("ring", 80, 79, "async")) is None
    full = replace(igemm(), variant_registers={"ldg": 256})
    assert tile_cost(full, plan, SM_90, BY_KEY["ldg"]) is None


def test_registers_of_compiled_variants_are_used() -> None:
    plain, heavy = (
        tile_cost(replace(igemm(), variant_registers=registers), igemm_budget(), SM_90, BY_KEY["ldg"])
        for registers in ({}, {"ldg": 168})
    )
    assert plain is not None
    assert heavy is not None
    # 4096 bytes over 128 threads are 8 registers: 72 of them, seven blocks.
    assert (plain.blocks_per_sm, heavy.blocks_per_sm) == (7, 3)


def test_what_is_not_known_is_named() -> None:
    assert estimated_inputs(igemm()) == ()
    bare = PlanFacts(copies=igemm().copies, element_bytes=1, math_kind="wmma", BM=64, BN=64, BK=32)
    assert len(estimated_inputs(bare)) == 4
    assert speedup(bare, igemm_budget(), "cp_async2") > 1.3


@settings(max_examples=40, deadline=None)
@given(
    compute=st.floats(10, 2000),
    latency=st.integers(50, 2000),
    tiles=st.integers(2, 1000),
    stages=st.integers(2, 7),
)
def test_overlap_never_loses_in_the_steady_state(compute: float, latency: int, tiles: int, stages: int) -> None:
    arch = replace(SM_90, l2_latency_cycles=latency)
    facts = replace(igemm(), compute_instructions=compute, num_tiles=tiles)
    plan = budget(arch, threads=128, registers=128, smem_single_bytes=4096, staged_bytes=4096)
    rings = [
        tile_cost(facts, plan, arch, Schedule("ring", s, flight, "async"))
        for s, flight in ((2, 0), (stages, stages - 1), (stages + 1, stages))
    ]
    waited, ring, deeper = (cost.cycles for cost in rings if cost is not None)
    assert deeper <= ring <= waited


def test_pipes_by_hand() -> None:
    baseline = tile_cost(igemm(), igemm_budget(), SM_90, BASELINE)
    ring = tile_cost(igemm(), igemm_budget(), SM_90, BY_KEY["cp_async2"])
    assert baseline is not None
    assert ring is not None
    # Four warps; 144 passes of reads each. A byte load takes a request, a pass to return and a pass to store; a
    # 16-byte cp.async a request and four passes.
    assert baseline.shared == pytest.approx(4 * (144 + 32 * 3))
    assert ring.shared == pytest.approx(4 * (144 + 2 * 5))
    assert baseline.issue == pytest.approx(768 + 130 + 12)
    assert baseline.math == pytest.approx(64 * 64 * 32 / SM_90.int8_mac_per_cycle)
    assert baseline.memory == pytest.approx(4096 / SM_90.l2_bytes_per_cycle)
    # 32 byte loads, two in flight: 16 waits, one after the other.
    assert baseline.alone == pytest.approx(16 * SM_90.l2_latency_cycles + 768 + max(4 * 144, 130))
    assert ring.alone == pytest.approx(max(SM_90.l2_latency_cycles, 4 * 144) + 2 * 24)


def test_one_copy_that_cp_async_cannot_carry_is_enough() -> None:
    first, second = igemm().copies
    mixed = replace(igemm(), copies=(first, replace(second, async_bytes=None)))
    assert tile_cost(mixed, igemm_budget(), SM_90, BY_KEY["cp_async2"]) is None
