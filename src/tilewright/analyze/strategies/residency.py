"""Strategies about how many blocks run at once: registers, shared memory, the grid, the last wave."""

from __future__ import annotations

from dataclasses import replace

from tilewright.analyze.demand import demand_of
from tilewright.analyze.facts import Facts, evidence, floor_evidence
from tilewright.analyze.floors import gain
from tilewright.analyze.hot_loop import LOCAL
from tilewright.analyze.record import Evidence, SetAside
from tilewright.analyze.strategies.judge import Judged, recommend
from tilewright.arch.occupancy import register_cliff, smem_cliff

_TABLES = "occupancy tables"
# Beyond this share of the warps that an SM holds, more of them are rarely worth anything (SPEC of the tile choice).
ENOUGH_SHARE = 0.5
# A block that runs fewer trips than this is not cut any further: its prologue and its reduction would weigh more.
LEAST_TRIPS = 4
FULL_WAVES = 4.0
# Registers that a compiler can mostly do without, as a share; where the source is here, it is asked instead.
EASY_CUT = 0.2


def cap_registers(facts: Facts) -> Judged:
    """One more block per SM, where registers alone stand in its way."""
    fit = facts.fit
    if fit is None:
        return SetAside("cap_registers", "how many threads a block has is not known")
    if not fit.blocks_per_sm or "registers" not in fit.limits:
        return SetAside("cap_registers", "no block fits on an SM")
    wanted = fit.blocks_per_sm + 1
    others = {name: blocks for name, blocks in fit.limits.items() if name != "registers"}
    tightest = min(others, key=lambda name: others[name])
    cap = register_cliff(facts.arch, facts.warps * facts.arch.warp_size, wanted)
    shown: tuple[Evidence, ...] = (
        evidence("registers a thread", facts.registers, "the compiler"),
        evidence("blocks per SM", fit.blocks_per_sm, f"{_TABLES}, limited by {fit.limiter}"),
        evidence(f"registers that let {wanted} blocks fit", cap, _TABLES),
    )
    if others[tightest] < wanted:
        return SetAside("cap_registers", f"registers are not all that stands in the way: {tightest} does too", shown)
    few = _not_filled(facts, wanted)
    if few is not None:
        return SetAside("cap_registers", few[0], (*shown, few[1]))
    if fit.share >= ENOUGH_SHARE:
        why = f"{fit.warps_per_sm} of {facts.arch.max_warps_per_sm} warps are resident: more are rarely worth anything"
        return SetAside("cap_registers", why, shown)
    capped = facts.capped
    if capped is None and cap < (1 - EASY_CUT) * facts.registers:
        lost = facts.registers - cap
        why = f"{lost} of {facts.registers} registers would have to go, and no source is here to ask the compiler with"
        return SetAside("cap_registers", why, shown)
    if capped is not None and capped.problem:
        return SetAside("cap_registers", capped.problem, shown)
    demand = facts.demand
    if capped is not None and capped.loop is not None:
        trips = demand.trips if demand.is_whole else None
        demand = demand_of(capped.loop, facts.arch, facts.device, facts.warps, trips, facts.traffic)
        spilled = f", {capped.spill_bytes} B spilled a thread" if capped.spill_bytes else ", nothing spilled"
        inside = capped.loop.count(LOCAL)
        if inside > facts.loop.count(LOCAL):
            why = f"held to {cap} registers the compiler spills in the hot loop ({inside} accesses per trip)"
            return SetAside("cap_registers", why, shown)
        shown += (
            evidence("registers when capped", f"{capped.registers}{spilled}", "compiled"),
            evidence("of that in its hot loop", inside, "SASS of that build"),
        )
    speedup = gain(facts.before, demand, replace(facts.setting, blocks_per_sm=wanted))
    return recommend(
        facts,
        "cap_registers",
        speedup,
        (*shown, *floor_evidence(facts, "latency")),
        how=f"__launch_bounds__({facts.threads}, {wanted}): the compiler keeps to {cap} registers.",
        effort="small",
        low=speedup / facts.spread if capped is not None else min(speedup / facts.spread, 1.0),
        high=max(speedup, min(speedup * facts.spread, wanted / fit.blocks_per_sm)),
    )


def shrink_shared(facts: Facts) -> Judged:
    """One more block per SM, where shared memory alone stands in its way."""
    fit = facts.fit
    if fit is None:
        return SetAside("shrink_shared", "how many threads a block has is not known")
    if not fit.blocks_per_sm:
        return SetAside("shrink_shared", f"not one block fits on an SM: {fit.limiter} stop it, and the launch fails")
    if fit.limiter != "shared":
        return SetAside("shrink_shared", f"shared memory is not the limiter, {fit.limiter} are")
    wanted = fit.blocks_per_sm + 1
    most = smem_cliff(facts.arch, facts.threads, facts.registers, wanted)
    shown: tuple[Evidence, ...] = (
        evidence("shared bytes of a block", facts.smem_bytes, "the compiler and the launch"),
        evidence("blocks per SM", fit.blocks_per_sm, f"{_TABLES}, limited by shared"),
    )
    how = "Half of BK (or of BM), fewer stages, or scratch that shares the tiles' bytes: {:,} bytes or less."
    if most is None:
        both = _with_a_cap(facts, wanted)
        if both is None:
            others = min(v for k, v in fit.limits.items() if k != "shared")
            why = f"the other limits allow {others} blocks: shared memory is not alone"
            return SetAside("shrink_shared", why, shown)
        most, cap, source = both
        shown += (evidence(f"registers that let {wanted} blocks fit, too", cap, source),)
        how += (
            f" With it __launch_bounds__({facts.threads}, {wanted}): {facts.registers} registers stand in the way, too."
        )
    shown += (evidence(f"bytes that let {wanted} blocks fit", most, _TABLES),)
    few = _not_filled(facts, wanted)
    if few is not None:
        return SetAside("shrink_shared", few[0], (*shown, few[1]))
    if fit.share >= ENOUGH_SHARE:
        why = f"{fit.warps_per_sm} of {facts.arch.max_warps_per_sm} warps are resident: more are rarely worth anything"
        return SetAside("shrink_shared", why, shown)
    speedup = gain(facts.before, facts.demand, replace(facts.setting, blocks_per_sm=wanted))
    return recommend(
        facts,
        "shrink_shared",
        speedup,
        (*shown, *floor_evidence(facts, "latency")),
        how=how.format(most),
        effort="small",
        low=min(speedup / facts.spread, 1.0),  # half a tile has twice the barriers, and less reuse
        high=max(speedup, min(speedup * facts.spread, wanted / fit.blocks_per_sm)),
    )


def _with_a_cap(facts: Facts, wanted: int) -> tuple[int, int, str] | None:
    """(shared bytes, registers, who says that they can be had) that let so many blocks fit; None where more is wrong.

    Registers that stand in the way as well are no reason against smaller tiles: both can be mended at once.
    """
    assert facts.fit is not None
    cap = register_cliff(facts.arch, facts.warps * facts.arch.warp_size, wanted)
    tight = {name for name, count in facts.fit.limits.items() if count < wanted}
    if tight != {"shared", "registers"}:
        return None
    capped, source = facts.capped, f"{_TABLES}; the compiler was not asked"
    if capped is not None:
        spills = capped.loop is not None and capped.loop.count(LOCAL) > facts.loop.count(LOCAL)
        if capped.problem or spills:
            return None
        source = f"{_TABLES}; compiled"
    elif cap < (1 - EASY_CUT) * facts.registers:
        return None
    most = smem_cliff(facts.arch, facts.threads, cap, wanted)
    return None if most is None else (most, cap, source)


def more_blocks(facts: Facts) -> Judged:
    """A grid that leaves SMs idle."""
    if facts.blocks is None or facts.device is None:
        return SetAside("more_blocks", "the launch, or the card, is not known")
    sms = facts.device.sms
    shown = (
        evidence("blocks of the launch", facts.blocks, "the launch"),
        evidence("SMs", sms, facts.device.name),
        evidence("trips of the hot loop", facts.demand.trips, "derived") if facts.demand.is_whole else _unknown_trips(),
    )
    if facts.blocks >= sms:
        return SetAside("more_blocks", "every SM has a block", shown)
    free = sms * facts.setting.blocks_per_sm // max(facts.blocks, 1)
    parts = min(max(sms // facts.blocks, 1) if free < 2 else free, int(facts.demand.trips // LEAST_TRIPS))
    if facts.loop.kind == "straight" or not facts.demand.is_whole or parts < 2:
        why = "too few blocks for the card, and too little work in each to cut it: a larger problem, a batch, or fusion"
        return SetAside("more_blocks", why, shown)
    d = facts.demand
    cut = replace(
        d,
        issue=d.issue / parts,
        lsu=d.lsu / parts,
        l2_bytes=d.l2_bytes / parts,
        pipes={name: cycles / parts for name, cycles in d.pipes.items()},
        alone=d.alone / parts,
        global_wait=d.global_wait / parts,
    )
    # Every part writes its sums, and they are read again to be added.
    sums = 2 * (parts - 1) * facts.output_bytes
    dram = facts.setting.dram_bytes
    after = replace(facts.setting, blocks=facts.blocks * parts, dram_bytes=None if dram is None else dram + sums)
    speedup = gain(facts.before, cut, after)
    return recommend(
        facts,
        "more_blocks",
        speedup,
        (*shown, *floor_evidence(facts, "latency")),
        how=f"Split the loop over about {parts} times as many blocks (split-K), or take smaller tiles.",
        effort="large",
        low=max(1.0, speedup / facts.spread / 1.2),  # adding them takes a launch, or atomics
    )


def balance_waves(facts: Facts) -> Judged:
    """A last wave that is nearly empty."""
    if facts.blocks is None or facts.device is None or facts.fit is None or not facts.fit.blocks_per_sm:
        return SetAside("balance_waves", "the launch, or the card, is not known")
    per_wave = facts.device.sms * facts.fit.blocks_per_sm
    waves = facts.blocks / per_wave
    shown = (evidence("waves", waves, f"{facts.blocks:,} blocks over {per_wave:,} places"),)
    if waves <= 1 or waves > FULL_WAVES:
        why = "all blocks run at once" if waves <= 1 else f"{waves:.1f} waves: the last one weighs little"
        return SetAside("balance_waves", why, shown)
    whole = -(-facts.blocks // per_wave)
    # An emptier SM runs its blocks faster, so that only a part of the idle places is lost.
    speedup = (whole / waves) ** 0.5
    return recommend(
        facts,
        "balance_waves",
        speedup,
        shown,
        how="A tile size that fills the waves, a persistent kernel that cuts the tail into smaller tiles, or stream-K.",
        effort="large",
        low=1.0,
        high=whole / waves,
    )


def _not_filled(facts: Facts, wanted: int) -> tuple[str, Evidence] | None:
    """Why a further place on an SM would stay empty, with the number it rests on."""
    if facts.blocks is None or facts.device is None:
        return None
    sms = facts.device.sms
    if facts.blocks > sms * (wanted - 1):
        return None
    shown = evidence("blocks of the launch", facts.blocks, f"the launch, on {sms} SMs")
    return f"the launch has {facts.blocks:,} blocks for {sms} SMs: a further place on an SM would stay empty", shown


def _unknown_trips() -> Evidence:
    return Evidence("trips of the hot loop", "not known", "no sizes")
