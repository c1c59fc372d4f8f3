"""The report for terminals and pipes."""

from __future__ import annotations

from tilewright.analyze.record import AnalyzeReport
from tilewright.analyze.sections import Section, Table, aside_text, headline, sections, strategy_lines
from tilewright.receipt.drawing import Cell, Column, Pen


def render_text(report: AnalyzeReport, *, width: int = 100, color: bool = False) -> str:
    """Every section, with the verdict and the first advice on top."""
    pen = Pen(width, color)
    place = f"{report.kernel.file}:{report.kernel.line}" if report.kernel.line is not None else report.kernel.file
    bound, first = headline(report)
    lines = pen.labelled("kernel", f"{report.kernel.name}  {place}", "bold")
    lines += pen.labelled("bound", bound, "warn")
    lines += pen.labelled("first", first, "good" if report.strategies else "")
    for section in sections(report):
        lines += ["", pen.paint(section.title, "bold"), *_section(section, pen)]
        if section.title == "Decision matrix":
            lines += _matrix(report, pen)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _section(section: Section, pen: Pen) -> list[str]:
    lines: list[str] = []
    for label, text in section.facts:
        lines += pen.labelled(label, text)
    for table in section.tables:
        lines += pen.table(_columns(table))
    return lines + pen.bullets("", section.remarks)


def _columns(table: Table) -> list[Column]:
    return [Column(header, tuple(Cell(row[at]) for row in table.rows)) for at, header in enumerate(table.headers)]


def _matrix(report: AnalyzeReport, pen: Pen) -> list[str]:
    lines: list[str] = []
    for place, strategy in enumerate(report.strategies, 1):
        lines += ["", *pen.labelled(f"{place}.", f"{strategy.title} ({strategy.key})", "bold")]
        lines += pen.bullets("", strategy_lines(strategy))
    if report.set_aside:
        lines += ["", *pen.bullets("set aside", [aside_text(item) for item in report.set_aside])]
    return lines
