"""The decision matrix: every strategy judged, those worth making ranked, their conflicts named."""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.analyze.facts import Facts
from tilewright.analyze.hot_loop import GLOBAL_LOADS, width_bytes
from tilewright.analyze.record import SetAside, Strategy
from tilewright.analyze.strategies import compute, memory, residency
from tilewright.analyze.strategies.judge import Judged
from tilewright.analyze.strategies.memory import VECTOR_BYTES
from tilewright.analyze.tiled_gains import tiled_gains

# A kernel that is restructured has to promise more than a line that is added, to come before it: the gain of a large
# change counts for this share of its logarithm.
LARGE_CHANGE = 0.7
# What the others build on comes first where it is worth so much: with one block per SM nothing runs beside a barrier,
# whatever is done inside the block; and copies of single bytes can be neither asynchronous nor bulk.
GROUNDWORK = 1.15
BYTE_WISE = 2.0

# Of two that are both worth making: what the first does to the second.
CONFLICTS = {
    (
        "pipeline",
        "widen",
    ): "a pipelined rewrite moves up to 16 bytes at a time: it brings these wider loads along",
    ("pipeline", "cap_registers"): "staging the next tile in registers costs what the cap saves; cp.async does not",
    ("pipeline", "shrink_shared"): "each stage repeats the tiles' bytes: shrink first, then see how many stages fit",
    ("pipeline", "more_blocks"): "split-K leaves fewer tiles to each block: at least 4 should remain",
    ("cap_registers", "thread_tile"): "a larger patch per thread takes the registers that the cap saves",
    ("cap_registers", "tensor_cores"): "accumulator fragments take other registers: cap after the change",
    ("cap_registers", "loads_in_flight"): "loads in flight wait in registers",
    ("cap_registers", "spills"): "a cap makes spills worse",
    ("shrink_shared", "tile"): "tiles take shared memory",
    (
        "bank_conflicts",
        "widen",
    ): "padding must keep rows 16-byte aligned, or the vector accesses fault: prefer a swizzle",
    ("bank_conflicts", "tma"): "a tensor map writes its own swizzle: pad no rows",
    ("thread_tile", "tensor_cores"): "fragments replace the thread tile: do one or the other",
    ("tile", "fuse"): "at the DRAM wall tiling changes nothing",
    ("tma", "widen"): "a tensor map copies boxes: widths of loads no longer matter",
}


def ranked(facts: Facts) -> tuple[tuple[Strategy, ...], tuple[SetAside, ...]]:
    """(worth making, the best first; looked at and set aside)."""
    tiled = tiled_gains(facts)
    judged: list[Judged] = [
        memory.coalesce(facts),
        memory.tile(facts),
        memory.widen(facts, tiled),
        compute.thread_tile(facts),
        memory.bank_conflicts(facts),
        compute.pipeline(facts, tiled),
        compute.loads_in_flight(facts),
        residency.cap_registers(facts),
        residency.shrink_shared(facts),
        compute.tensor_cores(facts),
        compute.warp_specialise(facts),
        compute.tma(facts),
        residency.more_blocks(facts),
        residency.balance_waves(facts),
        compute.spills(facts),
        compute.special_functions(facts),
        memory.fuse(facts),
    ]
    found = [s for s in judged if isinstance(s, Strategy)]
    worth = sorted(found, key=lambda s: (_is_groundwork(s, facts), _rank(s)), reverse=True)
    return tuple(_with_conflicts(worth)), tuple(s for s in judged if isinstance(s, SetAside))


def _rank(strategy: Strategy) -> float:
    return math.log(strategy.speedup) * (LARGE_CHANGE if strategy.effort == "large" else 1.0)


def _is_groundwork(strategy: Strategy, facts: Facts) -> bool:
    """Whether the gain of other strategies hangs on this one."""
    if strategy.speedup < GROUNDWORK:
        return False
    if strategy.key in ("cap_registers", "shrink_shared"):
        return facts.fit is not None and facts.fit.blocks_per_sm == 1
    loads = facts.loop.of(GLOBAL_LOADS | {"LDGSTS"})
    return strategy.key == "widen" and (width_bytes(loads) or VECTOR_BYTES) < BYTE_WISE


def _with_conflicts(strategies: list[Strategy]) -> list[Strategy]:
    keys = {s.key for s in strategies}
    found: dict[str, dict[str, str]] = {key: {} for key in keys}
    for (one, other), why in CONFLICTS.items():
        if one in keys and other in keys:
            found[one][other] = why
            found[other][one] = why
    return [replace(s, conflicts=found[s.key]) for s in strategies]
