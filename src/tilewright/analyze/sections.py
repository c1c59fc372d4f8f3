"""The report as sections of facts and tables, in the order that people read them; text and Markdown draw these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analyze.record import AnalyzeReport, Count, Evidence, RoofRow, SetAside, Strategy
from tilewright.receipt.drawing import kib, number


@dataclass(frozen=True)
class Table:
    """Headers and rows of equal length."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A title, facts (label and text), tables, and remarks."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()


def sections(report: AnalyzeReport) -> tuple[Section, ...]:
    """Baseline, roofline, occupancy, ratios, SASS, the shared-memory cliff, accesses, the decision matrix."""
    made = (
        _baseline(report),
        _roofline(report),
        _occupancy(report),
        _ratios(report),
        _sass(report),
        _cliff(report),
        _memory(report),
        _matrix(report),
        Section("Mind", remarks=report.warnings),
        Section("Assumed", remarks=report.assumptions),
        Section("Notes", remarks=report.notes),
    )
    return tuple(s for s in made if s.facts or s.tables or s.remarks)


def headline(report: AnalyzeReport) -> tuple[str, str]:
    """(what holds it back, what to do first)."""
    bound = f"{report.verdict.bound}-bound: {report.verdict.reason}"
    if not report.strategies:
        if report.memory is None:
            return bound, "nothing that the machine code alone shows; accesses were not counted (see the notes)"
        return bound, "nothing here is expected to help"
    first = report.strategies[0]
    return bound, f"{first.title}: {gain_text(first)}"


def gain_text(strategy: Strategy) -> str:
    """``1.55x (1.29-1.86)``."""
    return f"{strategy.speedup:.2f}x ({strategy.low:.2f}-{strategy.high:.2f})"


def evidence_text(item: Evidence) -> str:
    return f"{item.what}: {item.value} [{item.source}]"


def _baseline(report: AnalyzeReport) -> Section:
    base, launch = report.baseline, report.baseline.launch
    facts = [("arch", f"{report.arch} ({report.arch_reason})")]
    if report.device:
        facts.append(("card", f"{report.device} ({report.device_reason})"))
    elif report.device_reason:
        facts.append(("card", report.device_reason))
    grid = "not known" if launch.grid is None else " x ".join(map(str, launch.grid))
    block = "not known" if launch.block is None else " x ".join(map(str, launch.block))
    blocks = f" = {launch.blocks:,} blocks" if launch.blocks is not None else ""
    facts.append(("launch", f"grid {grid}{blocks}, block {block}" + (f" ({launch.source})" if launch.source else "")))
    if base.sizes:
        facts.append(("sizes", ", ".join(f"{k} = {v:,}" for k, v in base.sizes.items())))
    parts = [f"{number(base.registers)} registers a thread", f"{kib(base.smem_bytes)} shared a block"]
    parts += [f"{number(base.spill_bytes)} B spilled a thread"] if base.spill_bytes is not None else []
    facts.append(("uses", ", ".join(parts)))
    if base.time_us is not None:
        facts.append(("time", f"{base.time_us:,.4g} us ({base.time_source})"))
    facts += [(name.replace("_", " "), f"{value:,.4g} (ncu)") for name, value in report.metrics.items()]
    return Section("Baseline", tuple(facts))


def _roofline(report: AnalyzeReport) -> Section:
    roof = report.roofline
    facts = [
        ("operations", _counted(roof.flops, _unit(*roof.operations))),
        ("DRAM bytes", _counted(roof.dram_bytes, "B, unique")),
    ]
    if roof.least_us is not None:
        facts.append(("least time", f"{roof.least_us:,.4g} us by the roofs below"))
    remarks = (roof.reason,) if roof.reason else ()
    if not roof.rows:
        return Section("Roofline", tuple(facts), remarks=remarks)
    headers = ("level", "precision", "ops/B", "ridge", "peak", "bandwidth", "attainable", "side", "reached")
    return Section("Roofline", tuple(facts), (Table(headers, tuple(map(_roof_row, roof.rows))),), remarks)


def _roof_row(row: RoofRow) -> tuple[str, ...]:
    side = "memory" if row.is_memory_bound else "compute"
    share = "-" if row.share is None else f"{row.share:.0%}"
    rate = f"{_unit(row.precision)}/s"
    speeds = (_big(row.peak, rate), _big(row.bytes_per_s, "B/s"), _big(row.attainable, rate))
    return (row.level, row.precision, f"{row.intensity:.4g}", f"{row.ridge:.4g}", *speeds, side, share)


def _unit(*precisions: str) -> str:
    """Operations of integers are no FLOPs."""
    return "OP" if any(name.startswith("int") for name in precisions) else "FLOP"


def _occupancy(report: AnalyzeReport) -> Section:
    fit = report.residency
    if fit is None:
        return Section("Occupancy")
    limits = ", ".join(f"{name} {count}" for name, count in fit.limits.items())
    facts = [
        ("fits", f"{fit.blocks_per_sm} blocks, {fit.warps_per_sm} warps per SM ({fit.share:.0%})"),
        ("limiter", f"{fit.limiter} (blocks by each: {limits})"),
    ]
    facts += [("next", cliff.text) for cliff in fit.cliffs]
    if fit.waves is not None:
        facts.append(("waves", f"{fit.waves:.2f}; the last one fills {fit.tail_share or 0:.0%} of the places"))
    return Section("Occupancy", tuple(facts))


def _ratios(report: AnalyzeReport) -> Section:
    r = report.ratios
    facts = [("flop_per_byte", f"{r.flop_per_byte:.4g} ({r.flop_per_byte_source})")] if r.flop_per_byte else []
    facts += [("ops_per_load", f"{r.ops_per_load:.4g} ({r.ops_per_load_source})")] if r.ops_per_load is not None else []
    return Section("Compute to load", tuple(facts) or (("ratios", "no tile and no K-loop: neither ratio is defined"),))


_KINDS = {"k_loop": "K-loop", "loop": "loop", "straight": "whole kernel (it has no loop)"}


def _sass(report: AnalyzeReport) -> Section:
    sass = report.sass
    line = f" at line {sass.line}" if sass.line is not None else ""
    cycles = (
        f"{sass.trip_cycles:,.0f} cycles for one warp alone: {sass.trip_issue_cycles:,.0f} issuing, "
        f"{sass.trip_global_wait:,.0f} waiting for global memory, "
        f"{sass.trip_near_wait:,.0f} for shared memory and units"
    )
    facts = [
        ("hot code", f"{_KINDS[sass.kind]}{line}, {sass.instructions:,} instructions a trip"),
        ("trip", cycles),
        ("loads", f"{number(sass.load_bytes)} bytes a lane, at most {sass.loads_in_flight} in flight"),
    ]
    if sass.kind == "k_loop":
        tiles = f", {sass.tiles_in_flight} tiles in flight" if sass.tiles_in_flight else ""
        facts.append(("overlap", f"{sass.overlap.replace('_', ' ')}{tiles}"))
    rows = tuple(
        (row.opcode, str(row.count), str(row.whole_kernel), _stalls(row.stall_min, row.stall_max), str(row.stall_sum))
        for row in sass.mix
    )
    table = Table(("instruction", "per trip", "in kernel", "stall", "stall cycles"), rows)
    return Section("Machine code", tuple(facts), (table,) if rows else ())


def _stalls(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _cliff(report: AnalyzeReport) -> Section:
    cliff = report.shared_cliff
    if cliff is None:
        return Section("Shared-memory cliff")
    ladder = ", ".join(f"{blocks}: {kib(most)}" for blocks, most in cliff.ladder)
    return Section("Shared-memory cliff", (("now", cliff.text), ("blocks", f"{ladder} a block at most")))


def _memory(report: AnalyzeReport) -> Section:
    m = report.memory
    if m is None:
        return Section("Accesses", (("counted", "nothing; see the notes"),))
    facts = [("counted", m.source)]
    if m.sectors_per_request is not None and m.ideal_sectors_per_request is not None:
        told = f"{m.sectors_per_request:.3g} sectors per request, {m.ideal_sectors_per_request:.3g} would do"
        facts.append(("global", told))
    shared = "not used" if m.conflict_factor is None else f"{m.conflict_factor:.3g} passes where 1 would do"
    facts.append(("shared", shared))
    if m.reuse is not None:
        facts.append(("reuse", f"{m.reuse:.3g} bytes asked for per unique byte"))
    return Section("Accesses", tuple(facts), remarks=m.lines)


def _matrix(report: AnalyzeReport) -> Section:
    floors = ", ".join(f"{name} {value:,.4g}" for name, value in report.verdict.floors.items())
    facts = [
        ("bound by", f"{report.verdict.bound}: {report.verdict.reason}"),
        ("floors", f"{floors} ({report.verdict.floors_unit})"),
    ]
    rows = tuple(
        (str(n), s.key, gain_text(s), s.effort, ", ".join(s.conflicts) or "-")
        for n, s in enumerate(report.strategies, 1)
    )
    tables = (Table(("", "strategy", "expected", "change", "conflicts with"), rows),) if rows else ()
    return Section("Decision matrix", tuple(facts), tables)


def strategy_lines(strategy: Strategy) -> Sequence[str]:
    """How, why, and what it gets in the way of."""
    lines = [strategy.how] if strategy.how else []
    lines += [evidence_text(item) for item in strategy.evidence]
    lines += [f"against {key}: {why}" for key, why in strategy.conflicts.items()]
    return lines


def aside_text(item: SetAside) -> str:
    shown = "; ".join(f"{e.what} {e.value}" for e in item.evidence)
    return f"{item.key}: {item.reason}" + (f" ({shown})" if shown else "")


_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _counted(count: Count, unit: str) -> str:
    return f"not known ({count.source})" if count.value is None else f"{_big(count.value, unit)} ({count.source})"


def _big(value: float, unit: str) -> str:
    """``137 GFLOP``; decimal prefixes, as the cards' datasheets have them."""
    for size, prefix in _UNITS:
        if value >= size:
            return f"{value / size:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
