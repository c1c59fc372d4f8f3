"""Strategies about how bytes travel: coalescing, tiling, width, banks, fusion."""

from __future__ import annotations

from dataclasses import replace

from tilewright.analyze.demand import PASS_BYTES, SECTOR_BYTES, WARP, global_passes
from tilewright.analyze.facts import Facts, evidence, floor_evidence
from tilewright.analyze.floors import floors, gain
from tilewright.analyze.hot_loop import GLOBAL_LOADS, width_bytes
from tilewright.analyze.record import Evidence, SetAside
from tilewright.analyze.strategies.judge import Judged, recommend
from tilewright.analyze.tiled_gains import TiledGains
from tilewright.sass.operands import MATRIX, access_bytes

_SASS = "SASS, hot loop"
WASTE = 1.25  # sectors touched over those that would do
REUSED = 1.5  # bytes asked for over unique bytes
CONFLICTED = 1.1  # passes over those without conflicts
NARROW_BYTES = 4
VECTOR_BYTES = 16
# Of the reads, a tile leaves 5 in 8 (four words of a row at a time), an 8 x 8 patch a thread 1 in 8.
SHARED_READS, PATCH_READS = 0.625, 0.125
WORTH_TILING = 1.1
NOT_COUNTED = "nothing was run here that counts it: a sidecar (or a kernel that one can be drafted for) would"


def coalesce(facts: Facts) -> Judged:
    """Sectors per request against the fewest that could hold the bytes."""
    traffic = facts.traffic
    if traffic is None and "sectors_per_load" in facts.metrics:
        return _coalesce_by_profile(facts)
    if traffic is None:
        return SetAside("coalesce", f"sectors per request are not known: {NOT_COUNTED}")
    if not traffic.requests:
        return SetAside("coalesce", "no access to global memory was counted")
    touched, ideal = traffic.sectors / traffic.requests, traffic.ideal_sectors / traffic.requests
    shown = (
        evidence("sectors per request", touched, facts.traffic_source),
        evidence("sectors that would do", ideal, facts.traffic_source),
    )
    # Two rows that a warp reads one element of each take two sectors where one could hold both: no pattern to mend.
    if traffic.sectors < WASTE * traffic.ideal_sectors or touched - ideal < 1:
        return SetAside("coalesce", "accesses are coalesced already", shown)
    share = traffic.ideal_sectors / traffic.sectors
    lsu = max(facts.demand.lsu - (traffic.sectors - traffic.ideal_sectors), 1.0)
    better = replace(facts.demand, l2_bytes=facts.demand.l2_bytes * share, lsu=lsu)
    low = max(1.0, gain(facts.before, better, facts.setting))
    # Of a sector, the bytes that another warp wants may still be in L2 when it comes, or the sector travels again:
    # between all and none, which the model leaves open.
    dram = facts.setting.dram_bytes
    worst = replace(facts.setting, dram_bytes=None if dram is None else dram / share)
    high = max(low, floors(facts.demand, worst).total / floors(better, facts.setting).total)
    speedup = (low * high) ** 0.5
    return recommend(
        facts,
        "coalesce",
        speedup,
        (*shown, *floor_evidence(facts, "l2", "l1", "dram")),
        how="Let consecutive threads take consecutive elements of a row; turn a transposed access in shared memory.",
        effort="small",
        low=max(1.0, min(low, speedup / facts.spread)),
        high=max(high, speedup * facts.spread),
    )


def _coalesce_by_profile(facts: Facts) -> Judged:
    """The same where nothing was run here, but ncu counted the loads' sectors."""
    touched = facts.metrics["sectors_per_load"]
    mean = width_bytes([i for i in facts.loop.trip if i.opcode in GLOBAL_LOADS or i.opcode == "LDGSTS"]) or 4.0
    shown = (
        evidence("sectors per load", touched, "ncu"),
        evidence("sectors that would do", mean, f"32 lanes of {mean:.3g} bytes, SASS"),
    )
    if touched < WASTE * mean or touched - mean < 1:
        return SetAside("coalesce", "loads are coalesced already", shown)
    # The floors took them as coalesced: as they are, they take so much more.
    apart = facts.warps * facts.demand.trips * (touched - mean)
    worse = replace(facts.demand, l2_bytes=facts.demand.l2_bytes * touched / mean, lsu=facts.demand.lsu + apart)
    speedup = floors(worse, facts.setting).total / facts.before.total
    how = "Let consecutive threads take consecutive elements of a row; turn a transposed access in shared memory."
    return recommend(facts, "coalesce", speedup, shown, how=how, effort="small", low=speedup**0.5)


def tile(facts: Facts) -> Judged:
    """Bytes asked for again and again that shared memory could give."""
    if facts.stages_tiles and facts.loop.kind == "k_loop":
        return SetAside("tile", "tiles are staged in shared memory already")
    reuse = facts.reuse
    if reuse is None:
        return SetAside("tile", f"how often a byte is used is not known: {NOT_COUNTED}")
    counted = facts.traffic_source or "SASS, the grid"
    shown = (
        evidence("bytes asked for per unique byte", reuse, f"{counted}; {facts.dram_bytes.source}"),
        *floor_evidence(facts, "dram", "l2"),
    )
    if reuse < REUSED:
        return SetAside("tile", "tiling brings nothing: each byte is used once, so there is none to keep", shown)
    if facts.traffic is None:
        return SetAside("tile", f"by how much reads would shrink is not known: {NOT_COUNTED}", shown)
    demand = facts.demand
    reads = min(global_passes(facts.traffic), demand.lsu)
    best = replace(
        demand,
        l2_bytes=facts.traffic.sectors * SECTOR_BYTES / reuse,
        lsu=demand.lsu - reads * (1 - SHARED_READS),
        alone=demand.alone - demand.global_wait * (1 - 1 / min(reuse, 8.0)),
    )
    setting = replace(facts.setting, l1_share=0.0)
    speedup = gain(facts.before, best, setting)
    if speedup < WORTH_TILING:
        return SetAside("tile", f"the model expects {speedup:.2f}x of it: too little for a change that large", shown)
    patches = gain(facts.before, replace(best, lsu=demand.lsu - reads * (1 - PATCH_READS)), setting)
    return recommend(
        facts,
        "tile",
        speedup,
        shown,
        how="Stage a tile per block in shared memory, use each byte of it from there as often as the tile is wide; "
        "then let each thread compute a patch.",
        effort="large",
        low=max(1.0, speedup / facts.spread),
        high=max(patches, speedup * facts.spread),
    )


def widen(facts: Facts, tiled: TiledGains | None) -> Judged:
    """Narrow loads: each costs an instruction, and a pass of the pipe, however few bytes it brings."""
    loads = [i for i in facts.loop.trip if i.opcode in GLOBAL_LOADS or i.opcode == "LDGSTS"]
    mean = width_bytes(loads)
    if mean is None:
        return SetAside("widen", "the hot loop has no global loads")
    narrow = [i for i in loads if access_bytes(i) < NARROW_BYTES]
    shown: tuple[Evidence, ...] = (
        evidence("bytes per lane and load", mean, _SASS, "B"),
        evidence("loads per trip", len(loads), _SASS),
        evidence("of them narrower than 4 bytes", len(narrow), _SASS),
    )
    if not facts.demand.trips:
        return SetAside("widen", "at these sizes the loop makes no trip", shown)
    how = "Let each thread move 16 contiguous bytes (uint4, float4); the copy loop shrinks accordingly."
    if facts.loop.kind == "k_loop" and tiled is not None:
        if tiled.widen is None:
            why = "the loads are 16 bytes wide" if mean >= VECTOR_BYTES else "wider loads are not proved to be legal"
            return SetAside("widen", why, shown)
        found = tiled.widen
        shown += (evidence("expected of the K-loop", f"{found.speedup:.2f}x", tiled.source),)
        return recommend(facts, "widen", found.speedup, shown, how=how, effort="small", low=found.low, high=found.high)
    if mean >= VECTOR_BYTES:
        return SetAside("widen", "the loads are 16 bytes wide", shown)
    traffic = facts.traffic
    if traffic is not None and traffic.sectors >= WASTE * traffic.ideal_sectors:
        return SetAside("widen", "lanes do not lie side by side: coalesce first", shown)
    times = VECTOR_BYTES / mean
    math = sum(i.opcode in _MATH or MATRIX.match(i.opcode) is not None for i in facts.loop.trip)
    kept = (math + (len(facts.loop.trip) - math) / times) / max(len(facts.loop.trip), 1)
    passes = sum(max(1.0, WARP * access_bytes(i) / PASS_BYTES) for i in loads)
    fewer = facts.warps * facts.demand.trips * (passes - WARP * mean * len(loads) / PASS_BYTES)
    demand = facts.demand
    better = replace(
        demand,
        issue=demand.issue * kept,
        lsu=max(demand.lsu - fewer, demand.lsu / times),
        alone=demand.alone * kept,
        global_wait=demand.global_wait * kept,
    )
    return recommend(
        facts,
        "widen",
        gain(facts.before, better, facts.setting),
        (*shown, *floor_evidence(facts, "latency", "issue", "l1")),
        how=how,
        effort="small",
    )


def bank_conflicts(facts: Facts) -> Judged:
    """Passes over shared memory that padding or a swizzle would save."""
    traffic = facts.traffic
    if traffic is None:
        return SetAside("bank_conflicts", f"conflicts are not known: {NOT_COUNTED}")
    if not traffic.ideal_wavefronts:
        return SetAside("bank_conflicts", "shared memory is not used")
    shown = (
        evidence("passes over shared memory per block", traffic.wavefronts, facts.traffic_source),
        evidence("without conflicts", traffic.ideal_wavefronts, facts.traffic_source),
    )
    if traffic.wavefronts < CONFLICTED * traffic.ideal_wavefronts:
        return SetAside("bank_conflicts", "there are none to speak of", shown)
    saved = traffic.wavefronts - traffic.ideal_wavefronts
    # A warp waits for its own replays, too.
    alone = max(facts.demand.alone - saved / facts.warps, facts.demand.alone / 4)
    better = replace(facts.demand, lsu=facts.demand.lsu - saved, alone=alone)
    return recommend(
        facts,
        "bank_conflicts",
        gain(facts.before, better, facts.setting),
        (*shown, *floor_evidence(facts, "l1")),
        how="Pad the rows by one access (keep 16-byte alignment for vectors and ldmatrix), or swizzle the columns.",
        effort="small",
    )


def fuse(facts: Facts) -> Judged:
    """Where DRAM is the wall and every byte is used once, only fewer bytes help."""
    found = facts.before
    if facts.dram_bytes.value is None or "dram" not in found.cycles:
        return SetAside("fuse", "whether DRAM is the wall is not known: the launch, its bytes or the card are not")
    shown = floor_evidence(facts, "dram")
    rest = max(cycles for name, cycles in found.cycles.items() if name != "dram")
    if found.highest != "dram":
        return SetAside("fuse", "DRAM is not what holds it back", shown)
    share = facts.output_share
    if share is None:
        return SetAside(
            "fuse", "DRAM is the wall: only fewer bytes help; what part of them is written is not known", shown
        )
    after = max(found.cycles["dram"] * (1 - share), rest)
    speedup = found.cycles["dram"] / after
    source = facts.dram_bytes.source if facts.output_bytes else _SASS
    return recommend(
        facts,
        "fuse",
        speedup,
        (*shown, evidence("of the unique bytes are written", f"{share:.0%}", source)),
        how="If the next kernel reads this output, compute it there: neither is written nor read again. "
        "Nothing else moves a kernel at the DRAM wall.",
        effort="large",
        low=1.0,
        high=speedup * 1.1,
    )


_MATH = frozenset({"FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2", "IMAD", "IDP", "MUFU", "DFMA", "DADD", "DMUL"})
