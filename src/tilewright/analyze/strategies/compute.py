"""Strategies about the work itself: pipelining, thread tiles, tensor cores, specialised warps, spills, functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilewright.analyze.demand import WARP
from tilewright.analyze.facts import Facts, evidence, floor_evidence
from tilewright.analyze.floors import gain, without_global_wait
from tilewright.analyze.hot_loop import GLOBAL_LOADS, LOCAL
from tilewright.analyze.record import Evidence, SetAside
from tilewright.analyze.strategies.judge import Judged, recommend
from tilewright.analyze.tiled_gains import TiledGains
from tilewright.sass.operands import access_bytes, is_matrix, scalar_math

_SASS = "SASS, hot loop"
MIN_TILES = 2
# 8 x 8 results a thread read 16 words for 64 multiply-adds.
WORDS_PER_FMA = 0.25
# Beyond the last, one more load in flight finds its requests already queued.
MOST_IN_FLIGHT = 8
_NONE_BUILT = "neither by cp.async nor through registers did it build and overlap (`tilewright pipeline` says why)"


def pipeline(facts: Facts, tiled: TiledGains | None) -> Judged:
    """Loads of the next tile while this one is computed."""
    if facts.loop.kind != "k_loop":
        return SetAside("pipeline", "there is no K-loop: no tile is loaded into shared memory and computed on")
    proof = facts.proof
    if proof.verdict == "overlap":
        flying = evidence("tiles in flight", proof.mean_in_flight, f"overlap proof; retired by {proof.wait}")
        return SetAside("pipeline", "copies overlap the math already", (flying,))
    if tiled is None:
        return SetAside("pipeline", "the K-loop was not understood: nothing can be predicted")
    if not tiled.best:
        return SetAside("pipeline", f"{_NONE_BUILT if tiled.is_built else 'no variant fits'}: nothing can be predicted")
    if facts.tiled is not None and facts.tiled.num_tiles is not None and facts.tiled.num_tiles < MIN_TILES:
        return SetAside("pipeline", f"num_tiles is {facts.tiled.num_tiles}: there is no next tile to fetch")
    found = tiled.pipeline
    widens = tiled.widen is not None and tiled.widen.speedup > 1.01
    shown: tuple[Evidence, ...] = (
        evidence("overlap of copies and math", proof.verdict.replace("_", " "), "overlap proof"),
        *_waits(facts),
        *_ratio(facts),
        evidence("variant", tiled.best, tiled.source),
    )
    if widens:
        shown += (evidence("of the gain, beside wider loads", f"{tiled.alone.speedup:.2f}x", tiled.source),)
    rivals = ", ".join(name for name in tiled.compared if name != tiled.best)
    how = f"By {tiled.best}" + (f", which ranks before {rivals}. " if rivals else ". ")
    how += (
        "`tilewright pipeline` writes and verifies it."
        if facts.can_rewrite
        else "Of the source `tilewright pipeline` makes it."
    )
    effort: Literal["small", "large"] = "small" if facts.can_rewrite else "large"
    return recommend(facts, "pipeline", found.speedup, shown, how=how, effort=effort, low=found.low, high=found.high)


def loads_in_flight(facts: Facts) -> Judged:
    """A loop that loads straight into registers, a few bytes at a time."""
    if facts.loop.kind == "k_loop":
        return None
    loads = facts.loop.of(GLOBAL_LOADS)
    if not loads or facts.loop.kind == "straight":
        return SetAside("loads_in_flight", "no loop loads from global memory")
    demand = facts.demand
    shown = (
        *_waits(facts),
        evidence("loads per trip", len(loads), _SASS),
        *floor_evidence(facts, "latency"),
    )
    if len(loads) >= MOST_IN_FLIGHT:
        return SetAside("loads_in_flight", f"a trip has {len(loads)} loads under way already", shown)
    better = without_global_wait(demand, 1 - len(loads) / MOST_IN_FLIGHT)
    return recommend(
        facts,
        "loads_in_flight",
        gain(facts.before, better, facts.setting),
        shown,
        how="Unroll the loop by four to eight with the loads first (or prefetch the next trip's into registers).",
        effort="small",
    )


def thread_tile(facts: Facts) -> Judged:
    """Multiply-adds outside the tensor cores that read shared memory too often."""
    trip = facts.loop.trip
    fmas = sum(map(scalar_math, trip))
    if not fmas or any(map(is_matrix, trip)):
        return SetAside("thread_tile", "the math of the hot loop is not multiply-adds of threads")
    words = sum(access_bytes(i) / 4 for i in trip if i.opcode == "LDS")
    if not words:
        return SetAside("thread_tile", "the hot loop reads nothing from shared memory")
    shown = (
        evidence("words from shared memory per multiply-add", words / fmas, _SASS),
        *floor_evidence(facts, "l1", "fma"),
    )
    if words / fmas <= 1.5 * WORDS_PER_FMA:
        return SetAside("thread_tile", "a thread already computes a patch that reuses its registers", shown)
    reads = sum(max(1.0, access_bytes(i) / 4) for i in trip if i.opcode == "LDS")
    count = sum(i.opcode == "LDS" for i in trip)
    kept = WORDS_PER_FMA * fmas / words
    d = facts.demand
    rounds = facts.warps * d.trips
    better = replace(
        d,
        lsu=max(d.lsu - rounds * reads * (1 - kept), d.lsu * kept),
        issue=d.issue - rounds * count * (1 - kept) / facts.arch.schedulers_per_sm,
        alone=d.alone - d.near_wait * (1 - kept),
    )
    return recommend(
        facts,
        "thread_tile",
        gain(facts.before, better, facts.setting),
        shown,
        how="8 x 8 results a thread, read as float4: 16 words feed 64 multiply-adds. The block tile grows with it.",
        effort="large",
    )


def tensor_cores(facts: Facts) -> Judged:
    """Multiply-adds on 16-bit or 8-bit data that HMMA or IMMA would do."""
    trip = facts.loop.trip
    if any(map(is_matrix, trip)):
        return SetAside("tensor_cores", "the math is on the tensor cores already")
    fmas = sum(i.opcode in ("FFMA", "HFMA2", "IDP", "IMAD") for i in trip)
    narrow = {name: size for name, size in facts.inputs.items() if size <= 2}
    if not fmas or facts.loop.kind != "k_loop":
        return SetAside("tensor_cores", "the hot loop is no product of tiles")
    # Four 8-bit products in an instruction: whatever type the words are declared as.
    is_bytes = any(i.opcode == "IDP" for i in trip)
    if facts.inputs and not narrow and not is_bytes:
        return SetAside("tensor_cores", "no input is 16 bits wide or narrower: TF32 would cost accuracy")
    loads = [i for i in trip if i.opcode in GLOBAL_LOADS | {"LDGSTS"}]
    is_packed = is_bytes or any(i.opcode == "HFMA2" for i in trip) or any(access_bytes(i) < 4 for i in loads)
    if not facts.inputs and not is_packed:
        return SetAside("tensor_cores", "the type of the inputs is not known: a sidecar says it")
    lanes = sum(max(scalar_math(i), 1) for i in trip if i.opcode in ("FFMA", "HFMA2", "IDP", "IMAD"))
    widths = [1] if is_bytes else list(narrow.values()) or [2]
    rate = facts.arch.int8_mac_per_cycle if max(widths) == 1 else facts.arch.fp16_mac_per_cycle
    d = facts.demand
    rounds = facts.warps * d.trips
    saved = rounds * fmas / facts.arch.schedulers_per_sm
    pipes = {name: cycles for name, cycles in d.pipes.items() if name not in ("fma", "multiply")}
    pipes["tensor"] = rounds * lanes * WARP / rate
    shared = sum(max(1.0, access_bytes(i) / 4) for i in trip if i.opcode == "LDS")
    issued = sum(max(i.stall, 1) for i in trip if i.opcode in ("FFMA", "HFMA2", "IDP", "IMAD"))
    better = replace(
        d,
        issue=d.issue - 0.9 * saved,
        pipes=pipes,
        lsu=d.lsu - 0.75 * rounds * shared,  # ldmatrix brings a fragment where LDS brought a word
        alone=max(d.alone - 0.9 * d.trips * issued, d.alone / 8),
    )
    speedup = gain(facts.before, better, facts.setting)
    shown = (
        evidence("multiply-adds of threads per trip", fmas, _SASS),
        evidence(
            "inputs of 16 bits or fewer",
            ", ".join(narrow) or ("8-bit products, IDP" if is_bytes else "by the width of the loads"),
            "sidecar or SASS",
        ),
        *floor_evidence(facts, "fma", "multiply", "issue"),
    )
    return recommend(
        facts,
        "tensor_cores",
        speedup,
        shown,
        how="WMMA, or ldmatrix and mma.sync: a warp's instruction does what 64 or more multiply-adds of it did.",
        effort="large",
        high=speedup * facts.spread * 1.3,
    )


def warp_specialise(facts: Facts) -> Judged:
    """Copies issued by warps that compute nothing."""
    return _by_few(facts, "warp_specialise", "one warp group copies, the others compute, joined by mbarriers", 1.0)


def tma(facts: Facts) -> Judged:
    """One thread's instruction instead of a copy loop in every thread."""
    return _by_few(facts, "tma", "one elected thread issues a box copy per operand and stage", 0.9)


def spills(facts: Facts) -> Judged:
    """Local memory in the hot loop."""
    inside = facts.loop.count(LOCAL)
    shown: tuple[Evidence, ...] = (
        evidence("loads and stores of local memory per trip", inside, _SASS),
        evidence("spilled", facts.spill_bytes, "the compiler", "B a thread"),
    )
    if not inside:
        where = "the hot loop touches no local memory" if facts.spill_bytes else "nothing is spilled"
        return SetAside("spills", where, shown)
    d = facts.demand
    rounds = facts.warps * d.trips
    loads = sum(i.opcode == "LDL" for i in facts.loop.trip)
    better = replace(
        d,
        lsu=d.lsu - rounds * inside,
        issue=d.issue - rounds * inside / facts.arch.schedulers_per_sm,
        alone=max(
            d.alone - d.trips * min(loads * facts.arch.smem_latency_cycles, d.near_wait / max(d.trips, 1.0)),
            d.alone / 4,
        ),
    )
    return recommend(
        facts,
        "spills",
        gain(facts.before, better, facts.setting),
        shown,
        how="More threads per block (smaller patches), a smaller BK or unroll factor, constant indices into arrays, "
        "or a looser __launch_bounds__.",
        effort="small",
    )


def special_functions(facts: Facts) -> Judged:
    """Exponentials, reciprocals and roots on a pipe of 16 lanes."""
    cycles = facts.before.cycles
    if "mufu" not in cycles:
        return SetAside("special_functions", "the hot loop has no special functions")
    count = sum(i.opcode == "MUFU" for i in facts.loop.trip)
    shown = (evidence("MUFU per trip", count, _SASS), *floor_evidence(facts, "mufu", "dram", "latency"))
    better = replace(facts.demand, pipes={**facts.demand.pipes, "mufu": facts.demand.pipes["mufu"] * 0.6})
    return recommend(
        facts,
        "special_functions",
        gain(facts.before, better, facts.setting),
        shown,
        how="ex2 on inputs scaled once by log2(e), --use_fast_math where its error is allowed, one reciprocal per row, "
        "or a polynomial on the multiply-add pipe for a part of them.",
        effort="small",
    )


def _by_few(facts: Facts, key: str, what: str, share: float) -> Judged:
    """The copy instructions (and their addresses) of a pipelined loop, taken off the warps that compute."""
    if not facts.arch.has_bulk:
        return SetAside(key, f"needs sm_90 or later, this is {facts.arch.name}")
    if facts.loop.kind != "k_loop":
        return SetAside(key, "there is no K-loop")
    if any(i.opcode == "UTMALDG" for i in facts.loop.whole) or any(i.opcode == "USETMAXREG" for i in facts.loop.whole):
        return SetAside(key, "the kernel copies by tensor map, or has specialised warps, already")
    if facts.proof.verdict != "overlap":
        return SetAside(key, "pipeline first: until copies overlap the math, who issues them decides nothing")
    copies = sum(i.opcode == "LDGSTS" for i in facts.loop.trip) + facts.loop.staged
    integer = sum(i.opcode in _ADDRESSES for i in facts.loop.trip)
    saved = copies + 0.5 * integer
    d = facts.demand
    kept = 1 - share * saved / max(len(facts.loop.trip), 1)
    better = replace(d, issue=d.issue * kept, alone=d.alone - share * (1 - kept) * (d.alone - d.global_wait))
    shown = (
        evidence("copies per trip", copies, _SASS),
        evidence("address instructions per trip", integer, _SASS),
        *floor_evidence(facts, "issue", "tensor"),
    )
    speedup = gain(facts.before, better, facts.setting)
    return recommend(facts, key, speedup, shown, how=f"{what[0].upper()}{what[1:]}.", effort="large", low=1.0)


def _waits(facts: Facts) -> tuple[Evidence, ...]:
    d = facts.demand
    return (evidence("of a trip alone, waiting for global memory", f"{d.global_wait / max(d.alone, 1.0):.0%}", _SASS),)


def _ratio(facts: Facts) -> tuple[Evidence, ...]:
    if facts.proof.ops_per_load is None:
        return ()
    return (evidence("ops_per_load", facts.proof.ops_per_load, _SASS),)


_ADDRESSES = frozenset({"IADD3", "LEA", "ISETP", "SHF", "LOP3", "VIADD", "IMAD", "SEL"})
