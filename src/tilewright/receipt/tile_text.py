"""The report of `tilewright tile` as text and as Markdown, drawn from the same record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.receipt.drawing import Cell, Column, Pen, kib, number
from tilewright.receipt.tile_report import TileReport
from tilewright.tile.candidate import Candidate

# Header, group (tables that are too wide are split by it), and the cell's text.
_COLUMNS: tuple[tuple[str, int, Callable[[Candidate], str]], ...] = (
    ("candidate", 0, lambda c: c.label),
    ("predicted\nus", 1, lambda c: f"{c.time_us:.4g}"),
    ("limited\nby", 1, lambda c: c.bound_by),
    ("shared", 1, lambda c: kib(c.smem_bytes)),
    ("registers", 1, lambda c: _registers(c)),
    ("blocks\nper SM", 1, lambda c: f"{c.blocks_per_sm} ({c.limiter})"),
    ("occu-\npancy", 1, lambda c: f"{c.occupancy:.0%}"),
    ("blocks", 2, lambda c: str(c.blocks)),
    ("waves", 2, lambda c: f"{c.waves:.2f}"),
    ("last\nwave", 2, lambda c: f"{c.tail:.0%}"),
    ("last tile\nused", 2, lambda c: " ".join(f"{d.upper()} {s:.0%}" for d, s in c.useful.items() if s < 1) or "all"),
    ("vectors\nB", 2, lambda c: "/".join(str(w) for w in c.vector_bytes.values())),
    ("L2\nMB", 2, lambda c: f"{c.l2_bytes / 1e6:.4g}"),
    ("DRAM\nMB", 2, lambda c: f"{c.dram_bytes / 1e6:.4g}"),
)


def render_tile(report: TileReport, *, width: int = 100, color: bool = False) -> str:
    """Table, choice, partition, rules and what was written."""
    pen = Pen(width, color)
    lines = pen.labelled("op", _title(report), "bold")
    lines += pen.labelled("card", f"{report.device} ({report.arch}), {report.device_reason}")
    if report.advice:
        lines += pen.bullets("before you", report.advice)
    lines += ["", *pen.table(_columns(report.candidates))]
    lines += ["", *pen.labelled("legal", f"{report.legal} candidates; of each block shape the fastest is shown.")]
    chosen = report.choice.candidate
    lines += pen.labelled("choice", f"{chosen.label}: {chosen.time_us:.4g} us predicted", "good")
    lines += pen.bullets("because", report.choice.reasons)
    lines += pen.bullets("rivals", [f"{rival.label}: {rival.reason}" for rival in report.choice.rivals])
    if chosen.smem_by_stages:
        stages = [
            f"{count} stages {kib(size)}" + (" (too much)" if size > report.smem_max_bytes else "")
            for count, size in chosen.smem_by_stages.items()
        ]
        lines += pen.listed("shared", stages)
    lines += pen.bullets("warnings", chosen.warnings)
    lines += pen.bullets("partition", _partition(report))
    if report.ranges:
        lines += ["", *pen.table(_ranges(report)), ""]
    lines += pen.bullets("rules", report.rules)
    lines += pen.labelled("skeleton", _skeleton(report))
    lines += pen.labelled("plan", f"{len(report.plan.trials)} trials, the most promising first.")
    if report.skeleton.files:
        lines += pen.bullets("written", report.skeleton.files)
    if report.notes:
        lines += pen.bullets("notes", report.notes)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render_tile_markdown(report: TileReport) -> str:
    """The same as Markdown."""
    chosen = report.choice.candidate
    lines = [f"## {_title(report)}", "", f"{report.device} ({report.arch}), {report.device_reason}.", ""]
    lines += _bullets(report.advice)
    lines += _markdown_table(_columns(report.candidates))
    lines += ["", f"{report.legal} candidates are legal.", ""]
    lines += [f"**{chosen.label}**: {chosen.time_us:.4g} us predicted.", "", *_bullets(report.choice.reasons)]
    lines += _bullets([f"`{rival.label}`: {rival.reason}" for rival in report.choice.rivals])
    lines += _bullets(chosen.warnings) + _bullets(_partition(report))
    if report.ranges:
        lines += [*_markdown_table(_ranges(report)), ""]
    lines += _bullets(report.rules) + _bullets([_skeleton(report), *report.notes])
    return "\n".join(lines).rstrip() + "\n"


def _title(report: TileReport) -> str:
    dims = " ".join(f"{name.upper()}={value}" for name, value in report.dims.items())
    dynamic = f", {report.dynamic.upper()} varies" if report.dynamic else ""
    return f"{report.op} {dims} {report.dtype}, {report.target}{dynamic}"


def _registers(candidate: Candidate) -> str:
    if candidate.registers_compiled is None:
        return f"~{candidate.registers}"
    spilled = f" +{candidate.spill_bytes} B spilled" if candidate.spill_bytes else ""
    return f"{candidate.registers_compiled}{spilled}"


def _columns(candidates: Sequence[Candidate]) -> list[Column]:
    return [Column(head, tuple(Cell(text(c)) for c in candidates), group) for head, group, text in _COLUMNS]


def _ranges(report: TileReport) -> list[Column]:
    rows = report.ranges
    name = report.dynamic.upper()

    def column(head: str, texts: Sequence[str]) -> Column:
        return Column(head, tuple(Cell(text) for text in texts))

    return [
        column(f"{name} from", [str(row.low) for row in rows]),
        column("to", [str(row.high) for row in rows]),
        column("tile", [row.label for row in rows]),
        column("predicted us\nat the end", [number(row.time_us) for row in rows]),
        column("at most behind\nthe best", [f"{row.worst - 1:.1%}" for row in rows]),
    ]


def _partition(report: TileReport) -> list[str]:
    part = report.partition
    lines = [f"{part.kind}: grid ({', '.join(part.grid)}). {part.order}"]
    return lines + [text for text in (part.reduction, part.persistent) if text]


def _skeleton(report: TileReport) -> str:
    made = report.skeleton
    if made.refusal:
        return made.refusal
    if not made.files:
        return f"{made.kernel}; --out DIR writes it with its sidecar, for `tilewright verify`."
    return f"{made.kernel}: `tilewright verify {made.files[1]}` runs it."


def _bullets(texts: Sequence[str]) -> list[str]:
    return [*(f"- {text}" for text in texts), ""] if texts else []


def _markdown_table(columns: Sequence[Column]) -> list[str]:
    heads = [column.header.replace("-\n", "").replace("\n", " ") for column in columns]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(row[i].text for i in range(len(columns))) + " |" for row in _rows(columns)]


def _rows(columns: Sequence[Column]) -> list[tuple[Cell, ...]]:
    return list(zip(*(column.cells for column in columns), strict=True))
