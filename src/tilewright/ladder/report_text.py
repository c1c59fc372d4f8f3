"""The reports of `ladder` as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.ladder.bench_text import render_points
from tilewright.ladder.report import LadderBench, LadderList, LadderRun, LadderShow, RungRecord, ShownRung, TimedRung
from tilewright.receipt.drawing import Cell, Column, Pen, factor, number

_STYLES = {"passed": "good", "failed": "bad", "not_run": "warn"}
_DIFF_STYLES = {"+": "good", "-": "bad", "@": "dim"}


def render_list(report: LadderList, *, width: int = 100, color: bool = False) -> str:
    """A line a family."""
    pen = Pen(width, color)
    if not report.families:
        return "There is no family.\n"
    columns = [
        Column("family", tuple(Cell(f.name, "bold") for f in report.families)),
        Column("rungs", tuple(Cell(str(len(f.rungs))) for f in report.families)),
        Column("dtypes", tuple(Cell(", ".join(f.dtypes)) for f in report.families)),
        Column("computes", tuple(Cell(f.op) for f in report.families)),
    ]
    return _page(pen.table(columns))


def render_show(report: LadderShow, *, width: int = 100, color: bool = False) -> str:
    """The first rung's source, and each later one's difference to the rung before."""
    pen = Pen(width, color)
    lines = pen.labelled("family", f"{report.family}: {report.title}", "bold")
    lines += pen.labelled("computes", report.op)
    for rung in report.rungs:
        lines += ["", *_shown(rung, pen)]
    if report.written:
        lines += ["", *pen.bullets("written", report.written)]
    return _page(lines)


def _shown(rung: ShownRung, pen: Pen) -> list[str]:
    lines = pen.labelled("rung", f"{rung.rung}: {rung.technique}", "bold")
    lines += pen.labelled("changes", rung.changes)
    lines += pen.listed("dtypes", [*rung.dtypes, *([f"from {rung.min_arch} on"] if rung.min_arch else [])])
    lines += pen.labelled("generated", f"from {rung.generated_from}") if rung.generated_from else []
    lines += pen.bullets("shows", rung.claims) if rung.claims else []
    lines += [""]
    if not rung.diff:
        return lines + rung.source.splitlines()
    return lines + [pen.paint(line, _DIFF_STYLES.get(line[:1], "")) for line in rung.diff.splitlines()]


def render_run(report: LadderRun, *, width: int = 100, color: bool = False) -> str:
    """A table of the rungs, what each one changed, and what its claims came to."""
    pen = Pen(width, color)
    lines = pen.labelled("family", f"{report.family}: {report.title}", "bold")
    lines += pen.labelled("computes", report.op)
    for (dtype, size, arch), rows in _grouped(report.rungs).items():
        sizes = " ".join(f"{name}={value}" for name, value in rows[0].sizes.items())
        lines += ["", *pen.labelled("sizes", f"{size}: {sizes}; {dtype}; {arch}, {report.executor}")]
        lines += pen.table(_run_columns(rows))
    told = dict.fromkeys(r.rung for r in report.rungs)
    lines += [""]
    for name in told:
        rung = next(r for r in report.rungs if r.rung == name)
        lines += pen.labelled(name, f"{rung.technique}. {rung.changes}")
        claims = [f"{'holds' if c.holds else 'FAILS'}: {c.claim} (found {c.found:.4g})" for c in _claims(report, name)]
        lines += pen.bullets("", claims) if claims else []
        wrong = [r for r in report.rungs if r.rung == name and r.message]
        for r in wrong:
            lines += pen.labelled("", f"{r.verdict.replace('_', ' ')} ({r.dtype}, {r.size}): {r.message}", "warn")
    return _page(lines)


def _claims(report: LadderRun, name: str) -> Iterable:  # type: ignore[type-arg]
    seen = {}
    for rung in report.rungs:
        if rung.rung == name:
            seen.update({(c.claim, c.found): c for c in rung.claims})
    return seen.values()


def _grouped(rungs: Iterable[RungRecord]) -> dict[tuple[str, str, str], list[RungRecord]]:
    found: dict[tuple[str, str, str], list[RungRecord]] = {}
    for rung in rungs:
        found.setdefault((rung.dtype, rung.size, rung.arch), []).append(rung)
    return found


def _run_columns(rows: list[RungRecord]) -> list[Column]:
    def counted(name: str) -> tuple[Cell, ...]:
        return tuple(Cell(_figure(row.counters, name)) for row in rows)

    return [
        Column("rung", tuple(Cell(row.rung, "bold") for row in rows)),
        Column("verdict", tuple(Cell(row.verdict.replace("_", " "), _STYLES[row.verdict]) for row in rows)),
        Column("claims", tuple(_claim_cell(row) for row in rows)),
        Column("\ninstructions", counted("instructions"), 1),
        Column("sectors a\nload", counted("global_load_sectors_per_request"), 1),
        Column("sectors a\nstore", counted("global_store_sectors_per_request"), 1),
        Column("bank\nconflicts", counted("shared_conflicts"), 1),
        Column("registers\n(bytes shared)", tuple(Cell(_resources(row)) for row in rows), 1),
        Column("largest\nerror", tuple(Cell(number(row.max_abs_error)) for row in rows), 1),
    ]


def _resources(row: RungRecord) -> str:
    return "-" if row.registers is None else f"{row.registers} ({number(row.smem_bytes)})"


def _claim_cell(row: RungRecord) -> Cell:
    if not row.claims:
        return Cell("-")
    held = sum(claim.holds for claim in row.claims)
    return Cell(f"{held}/{len(row.claims)}", "good" if held == len(row.claims) else "bad")


def _figure(counters: Mapping[str, float], name: str) -> str:
    value = counters.get(name)
    return "-" if value is None else number(int(value) if float(value).is_integer() else value)


def render_bench(report: LadderBench, *, width: int = 100, color: bool = False) -> str:
    """Times on a card, the rungs of one element type and size in a table."""
    pen = Pen(width, color)
    lines = pen.labelled("family", f"{report.family}: {report.title}", "bold")
    lines += pen.labelled("card", f"{report.card}, driver {report.driver}, {report.date}; interleaved, from a cold L2")
    groups: dict[tuple[str, str], list[TimedRung]] = {}
    for rung in report.rungs:
        groups.setdefault((rung.dtype, rung.size), []).append(rung)
    for (dtype, size), rows in groups.items():
        sizes = " ".join(f"{name}={value}" for name, value in rows[0].sizes.items())
        lines += ["", *pen.labelled("sizes", f"{size}: {sizes}; {dtype}")]
        lines += pen.table(
            [
                Column("rung", tuple(Cell(row.rung, "bold") for row in rows)),
                Column("verdict", tuple(Cell(row.verdict.replace("_", " "), _STYLES[row.verdict]) for row in rows)),
                Column("median us", tuple(Cell(number(row.median_us)) for row in rows)),
                Column("iqr us", tuple(Cell(number(row.iqr_us)) for row in rows)),
                Column("GB/s", tuple(Cell(number(row.gbps)) for row in rows)),
                Column("GFLOPS", tuple(Cell(number(row.gflops)) for row in rows)),
                Column("speedup", tuple(Cell(factor(row.speedup)) for row in rows)),
                Column("predicted us", tuple(Cell(number(row.predicted_us)) for row in rows)),
                Column("bound", tuple(Cell(row.predicted_bound or "-") for row in rows)),
            ]
        )
        for row in rows:
            lines += pen.labelled(row.rung, row.message, "warn") if row.message else []
    return _page(lines + render_points(report, pen))


def _page(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"
