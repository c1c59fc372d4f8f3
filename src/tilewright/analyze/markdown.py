"""The report as Markdown, for issues, pull requests and notes."""

from __future__ import annotations

from tilewright.analyze.record import AnalyzeReport
from tilewright.analyze.sections import Section, Table, aside_text, gain_text, headline, sections, strategy_lines
from tilewright.receipt.drawing import printable


def render_markdown(report: AnalyzeReport) -> str:
    """The same sections as the text."""
    bound, first = headline(report)
    lines = [f"# {_escaped(report.kernel.name)}", "", f"**{_escaped(bound)}**", "", f"First: {_escaped(first)}", ""]
    for section in sections(report):
        lines += [f"## {section.title}", "", *_section(section)]
        if section.title == "Decision matrix":
            lines += _matrix(report)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"- {label}: {_escaped(text)}" for label, text in section.facts]
    for table in section.tables:
        lines += ["", *_table(table)] if lines else _table(table)
    if section.remarks:
        lines += [""] if lines else []
        lines += [f"- {_escaped(text)}" for text in section.remarks]
    return [*lines, ""]


def _table(table: Table) -> list[str]:
    def row(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"

    return [row(table.headers), "|" + "---|" * len(table.headers), *map(row, table.rows)]


def _matrix(report: AnalyzeReport) -> list[str]:
    lines: list[str] = []
    for place, strategy in enumerate(report.strategies, 1):
        lines += [f"### {place}. {strategy.title} (`{strategy.key}`, {gain_text(strategy)})", ""]
        lines += [f"- {_escaped(text)}" for text in strategy_lines(strategy)]
        lines.append("")
    if report.set_aside:
        lines += ["### Set aside", "", *(f"- {_escaped(aside_text(item))}" for item in report.set_aside), ""]
    return lines


def _escaped(text: str) -> str:
    """So that a name or a formula is neither a table's edge nor an emphasis."""
    out = printable(text)
    for letter in ("\\", "|", "*", "<", "`"):
        out = out.replace(letter, "\\" + letter)
    return out
