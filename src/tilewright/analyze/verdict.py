"""Memory-, compute- or latency-bound: by the floors, or by a profile where there is one."""

from __future__ import annotations

from tilewright.analyze.facts import FLOOR_NAMES, Facts
from tilewright.analyze.record import Bound, Verdict
from tilewright.analyze.strategies.memory import REUSED

_BOUNDS: dict[str, Bound] = {"dram": "memory", "l2": "memory", "l1": "memory", "latency": "latency"}
# SPEC of the profiling method: 20 points apart decide; both below 40 are latency; DRAM above 70 is the wall.
APART, BOTH_LOW, DRAM_WALL = 20.0, 40.0, 70.0


def verdict(facts: Facts) -> Verdict:
    """The class, what it rests on, and the floors."""
    found = facts.before
    unit, scale = "cycles", 1.0
    if facts.demand.is_whole and facts.blocks is not None and facts.device is not None:
        unit, scale = "us", 1e6 / facts.device.boost_clock_hz
    shown = {name: round(cycles * scale, 3) for name, cycles in sorted(found.cycles.items(), key=lambda x: -x[1])}
    by_profile = _by_profile(facts)
    if by_profile is not None:
        bound, reason = by_profile
        return Verdict(bound, "profile", reason, shown, "us" if unit == "us" else "cycles")
    bound = _BOUNDS.get(found.highest, "compute")
    names = list(shown)
    if facts.fit is not None and not facts.fit.blocks_per_sm:
        reason = f"not one block fits on an SM of {facts.arch.name}, {facts.fit.limiter} stop it: the launch fails"
        return Verdict(bound, facts.fit.limiter, reason, shown, "us" if unit == "us" else "cycles")
    reason = f"{FLOOR_NAMES.get(names[0], names[0])} takes longest: {_figure(shown[names[0]], unit)}"
    if len(names) > 1:
        reason += f"; next is {FLOOR_NAMES.get(names[1], names[1])}, {_figure(shown[names[1]], unit)}"
    if names[0] == "dram" and facts.reuse is not None and facts.reuse < REUSED:
        reason += ". Each byte is used once: tiling brings nothing"
    return Verdict(bound, names[0], reason, shown, "us" if unit == "us" else "cycles")


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def _by_profile(facts: Facts) -> tuple[Bound, str] | None:
    sm, mem, dram = (facts.metrics.get(name) for name in ("sm_percent", "memory_percent", "dram_percent"))
    if sm is None or mem is None:
        return None
    head = f"ncu: SM {sm:.0f} %, memory {mem:.0f} %"
    if dram is not None and dram > DRAM_WALL:
        return "memory", f"{head}, DRAM {dram:.0f} %: above {DRAM_WALL:.0f} % it is the bandwidth wall"
    if sm < BOTH_LOW and mem < BOTH_LOW:
        return "latency", f"{head}: both below {BOTH_LOW:.0f} %"
    if abs(sm - mem) >= APART:
        return ("compute" if sm > mem else "memory"), f"{head}: {APART:.0f} points or more apart"
    return ("compute" if sm > mem else "memory"), f"{head}: close together, the kernel is balanced"
