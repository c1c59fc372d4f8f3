"""The report of `tilewright verify` as text."""

from __future__ import annotations

from tilewright.receipt.drawing import Cell, Column, Pen, number
from tilewright.receipt.evidence import SizeCheck, Verification
from tilewright.receipt.verify_report import Counted, MutantRow, PerTile, VerifyReport

_VERDICT = {"passed": "good", "failed": "bad", "not_run": "warn"}
MOST_LINES = 12  # of the traffic table


def render_verify(report: VerifyReport, *, width: int = 100, color: bool = False) -> str:
    """Every size set with its verdict, hazards in words, counters, mutants, and one sentence at the end."""
    pen = Pen(width, color)
    reason = f": {report.arch_reason.rstrip('.')}" if report.arch_reason else ""
    lines = pen.labelled("arch", f"{report.arch}{reason}")
    place = f"{report.kernel.file}:{report.kernel.line}" if report.kernel.line is not None else report.kernel.file
    lines += pen.labelled("kernel", f"{report.kernel.name}  {place}", "bold")
    if report.against is not None:
        lines += pen.labelled("against", f"{report.against.name}  {report.against.file}")
    order = report.schedule.replace("_", " ") or "lock-step, then warp after warp"
    ran = f"emulator, {order}" if report.executor == "emulator" else "GPU: values only, races are not looked for"
    lines += pen.labelled("ran on", ran)
    if report.verify.checks:
        lines += ["", *pen.table(_sizes(report.verify, report.against is not None)), ""]
    lines += _problems(report, pen)
    lines += _counted(report.counted, pen) if report.counted is not None else []
    lines += _mutants(report.mutants, pen) if report.mutants else []
    if report.notes:
        lines += pen.bullets("notes", report.notes)
    lines += _result(report, pen)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _sizes(verify: Verification, has_baseline: bool) -> list[Column]:
    checks = verify.checks
    same = "baseline's\nbits" if has_baseline else "same bits\nagain"
    return [
        Column("sizes", tuple(Cell(c.size) for c in checks)),
        Column("verdict", tuple(Cell(c.verdict, _VERDICT[c.verdict]) for c in checks)),
        Column(same, tuple(_bits(c) for c in checks)),
        Column("error", tuple(Cell(_small(c.max_abs_error)) for c in checks)),
        Column("allowed\nnear zero", tuple(Cell(_small(c.bound)) for c in checks)),
    ]


def _bits(check: SizeCheck) -> Cell:
    if check.bit_identical is None:
        return Cell("-", "dim")
    return Cell("yes", "good") if check.bit_identical else Cell("no", "bad")


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _problems(report: VerifyReport, pen: Pen) -> list[str]:
    lines: list[str] = []
    for hazard in report.verify.hazards:
        place = f"{report.kernel.file}:{hazard.line}: " if hazard.line is not None else ""
        lines += pen.labelled("" if lines else "hazards", f"{place}{hazard.kind}: {hazard.message}", "bad")
    told: set[str] = {hazard.message for hazard in report.verify.hazards}
    for check in report.verify.checks:
        if check.message and check.message not in told:
            told.add(check.message)
            style = "bad" if check.verdict == "failed" else "dim"
            lines += pen.labelled("" if lines else "sizes", f"{check.size}: {check.message}", style)
    base = report.baseline
    if base is not None and (base.verdict != "passed" or base.hazards):
        text = base.reason or (base.hazards[0].message if base.hazards else base.verdict)
        lines += pen.labelled("baseline", text, "bad")
    return lines


def _counted(counted: Counted, pen: Pen) -> list[str]:
    """Traffic by source line, the heaviest first; then the mix."""
    rows = sorted(counted.lines, key=lambda row: -(row.sectors + row.wavefronts))[:MOST_LINES]
    rows = sorted(rows, key=lambda row: row.line or 0)
    lines = pen.labelled(
        "counted", f"{counted.size}, {counted.blocks:,} blocks: {counted.thread_instructions:,.0f} thread-instructions"
    )
    if rows:
        lines += [
            "",
            *pen.table(
                [
                    Column("line", tuple(Cell(number(row.line)) for row in rows)),
                    Column("sectors per\nrequest", tuple(_per(row.sectors, row.requests) for row in rows)),
                    Column("at best", tuple(_per(row.ideal_sectors, row.requests) for row in rows)),
                    Column("bank\nconflicts", tuple(_conflicts(row.wavefronts, row.ideal_wavefronts) for row in rows)),
                    Column("bytes", tuple(Cell(f"{row.bytes:,.0f}") for row in rows)),
                ]
            ),
            "",
        ]
    total = sum(counted.mix.values()) or 1
    mix = [
        f"{name} {n / total:.0%}" for name, n in sorted(counted.mix.items(), key=lambda kv: -kv[1]) if n / total >= 0.01
    ]
    lines += pen.listed("mix", mix)
    flops = [f"{n:,.0f} {kind}" for kind, n in counted.flops.items()]
    lines += pen.listed("operations", flops) if flops else []
    lines += pen.listed("per tile", _per_tile(counted.per_tile)) if counted.per_tile is not None else []
    return lines


def _per_tile(tile: PerTile) -> list[str]:
    """Of one block."""
    parts = [
        (tile.global_bytes_read, "bytes read"),
        (tile.global_bytes_written, "bytes written"),
        (tile.sectors, f"sectors (at best {tile.ideal_sectors:,.0f})"),
        (tile.shared_bytes, "bytes of shared memory"),
        (tile.wavefronts, f"wavefronts (at best {tile.ideal_wavefronts:,.0f})"),
        *((n, kind) for kind, n in tile.flops.items()),
    ]
    return [f"{n:,.0f} {what}" for n, what in parts if n]


def _per(part: float, whole: float) -> Cell:
    return Cell(f"{part / whole:.1f}") if whole else Cell("-", "dim")


def _conflicts(have: float, best: float) -> Cell:
    if not best:
        return Cell("-", "dim")
    return Cell("none", "good") if have <= best else Cell(f"{have / best:.1f}x", "warn")


def _mutants(rows: tuple[MutantRow, ...], pen: Pen) -> list[str]:
    caught = sum(row.caught for row in rows)
    harmless = sum(row.is_equivalent and not row.caught for row in rows)
    tail = f", {harmless} harmless by construction" if harmless else ""
    lines = pen.labelled("mutants", f"{len(rows)} made, {caught} found{tail}")
    shown = [row for row in rows if not row.caught] + [row for row in rows if row.caught]
    return [
        *lines,
        "",
        *pen.table(
            [
                Column("mutant", tuple(Cell(row.name) for row in shown)),
                Column("line", tuple(Cell(number(row.line)) for row in shown)),
                Column("found by", tuple(_found(row) for row in shown)),
            ]
        ),
        "",
    ]


def _found(row: MutantRow) -> Cell:
    if row.caught:
        return Cell(", ".join(row.by), "good")
    return Cell("harmless", "dim") if row.is_equivalent else Cell("not found", "warn")


def _result(report: VerifyReport, pen: Pen) -> list[str]:
    verify = report.verify
    lines = pen.labelled("result", *_sentence(report))
    if verify.tolerance:
        lines += pen.labelled("", verify.tolerance)
    total = report.timings_s.get("total")
    return [*lines, *(pen.labelled("time", f"{total:.1f} s", "dim") if total is not None else [])]


def _sentence(report: VerifyReport) -> tuple[str, str]:
    verify = report.verify
    if verify.verdict == "not_run":
        return f"Not verified: {verify.reason}", "warn"
    if verify.verdict == "failed" or verify.hazards:
        return f"FAILED: {verify.reason}", "bad"
    count = len(verify.sizes)
    sets = f"{count} size set{'s' if count != 1 else ''}"
    races = ", no hazard" if report.executor == "emulator" else ", races not looked for"
    if report.against is None:
        return f"Passed at {sets}{races}.", "good"
    same = "the baseline's bits" if verify.bit_identical else "within the tolerance of the baseline"
    return f"Passed: {same} at {sets}{races}.", "good"
