"""Peers in text and in Markdown: a line a set of sizes, every loss shown as one, and who was refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.ladder.report import LadderBench, PeerPoint, TimedContender
from tilewright.receipt.drawing import Cell, Column, Pen, factor, number

_STYLES = {"won": "good", "level": "", "lost": "bad", "not_run": "warn"}
_HEADS = (
    "sizes",
    "rung",
    "us",
    "GB/s",
    "best peer",
    "its us",
    "ratio",
    "outcome",
    "of copy",
    "op us",
    "predicted us",
    "bound",
)


def grouped(points: Iterable[PeerPoint]) -> dict[tuple[str, str], list[PeerPoint]]:
    """By element type and group of peers."""
    found: dict[tuple[str, str], list[PeerPoint]] = {}
    for point in points:
        found.setdefault((point.dtype, point.group), []).append(point)
    return found


def summary(points: Sequence[PeerPoint]) -> str:
    """``37 sizes: 30 won, 5 level, 2 lost, the worst 0.93x at R=1 C=4096``."""
    counts = [(name, sum(p.outcome == name for p in points)) for name in ("won", "level", "lost", "not_run")]
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts if count)
    worst = min((p for p in points if p.ratio is not None), key=lambda p: p.ratio or 0.0, default=None)
    tail = f", the worst {factor(worst.ratio)} at {sizes_text(worst)}" if worst is not None else ""
    return f"{len(points)} sizes: {told}{tail}"


def sizes_text(point: PeerPoint) -> str:
    return " ".join(f"{name}={value}" for name, value in point.sizes.items())


def refused(points: Iterable[PeerPoint]) -> list[str]:
    """Who took no part, and why: once for each reason, with the number of sizes, and the first of them."""
    found: dict[str, list[PeerPoint]] = {}
    for point in points:
        reasons = [f"{c.name}: {c.verdict.replace('_', ' ')}: {c.message}" for c in point.contenders if c.message]
        for reason in reasons or ([point.message] if point.message else []):
            found.setdefault(reason, []).append(point)
    return [f"{reason} ({_told(those)})" for reason, those in found.items()]


def _told(points: Sequence[PeerPoint]) -> str:
    return f"{len(points)} of the sizes, {'first ' if len(points) > 1 else ''}{sizes_text(points[0])}"


def overhead(points: Sequence[PeerPoint]) -> str:
    """Host microseconds of a call, of those that were measured at the first set of sizes that has them; "" for none."""
    point = next((p for p in points if any(c.host_us is not None for c in p.contenders)), None)
    if point is None:
        return ""
    calls = (f"{c.name} {number(c.host_us)} us" for c in point.contenders if c.host_us is not None)
    return f"{', '.join(calls)} ({sizes_text(point)})"


def render_points(report: LadderBench, pen: Pen) -> list[str]:
    """Lines of text."""
    if not report.points:
        return []
    versions = [f"PyTorch {report.torch}", f"Triton {report.triton}" if report.triton else ""]
    told = f"{', '.join(filter(None, versions))}; torch.compile {report.compiled}; "
    told += f"a device copy {number(report.copy_gbps)} GB/s, a launch {number(report.launch_us)} us"
    lines = ["", *pen.labelled("peers", told)]
    for (dtype, group), points in grouped(report.points).items():
        rows = [_cells(p) for p in points]
        columns = [
            Column(head, tuple(Cell(row[i], _style(head, p)) for row, p in zip(rows, points, strict=True)))
            for i, head in enumerate(_HEADS)
        ]
        style = "bad" if any(p.outcome == "lost" for p in points) else ""
        lines += ["", *pen.labelled(f"{dtype} {group}".strip(), summary(points), style), *pen.table(columns)]
        lines += pen.labelled("a call", overhead(points)) if overhead(points) else []
        for text in refused(points):
            lines += pen.labelled("refused", text, "warn")
    return lines


def markdown_points(report: LadderBench) -> list[str]:
    """The same as a part of a page."""
    if not report.points:
        return []
    lines = ["", "## Against PyTorch and Triton", ""]
    lines += [
        f"On {report.card} (driver {report.driver}, {report.date}), PyTorch {report.torch}, Triton {report.triton}, "
        f"`torch.compile` {report.compiled}, the largest sizes first. Contenders are captured in CUDA graphs (only the "
        "driver's copy of large data is called), and they take turns: several calls in a graph where the data stays in "
        "the L2, one call from a cold L2 where it does not. The ratio is the "
        'fastest peer\'s time over ours, its median over the rounds: below 1 we lose. "op" is the same through '
        "`tilewright.ops`, with what it allocates. The prediction is the least time "
        f"that bytes and operations allow, at the copy's {number(report.copy_gbps)} GB/s, and a launch.",
    ]
    for (dtype, group), points in grouped(report.points).items():
        lines += ["", f"{dtype}{', ' + group.upper() if group else ''}: {summary(points)}.", ""]
        lines += ["| " + " | ".join(_HEADS) + " |", "|" + "---|" * len(_HEADS)]
        for point in (p for p in points if p.outcome != "not_run"):
            cells = _cells(point)
            lines.append("| " + " | ".join(f"**{c}**" if c == "lost" else c for c in cells) + " |")
        lines += ["", f"A call costs the host {overhead(points)}."] if overhead(points) else []
        lines += ["", *(f"- {text}" for text in refused(points))] if refused(points) else []
    return lines


def _style(head: str, point: PeerPoint) -> str:
    return _STYLES[point.outcome] if head in ("ratio", "outcome") else ""


def _cells(point: PeerPoint) -> tuple[str, ...]:
    ours = _named(point, point.rung)
    best = _named(point, point.best_peer)
    op = next((c for c in point.contenders if c.kind == "op"), None)
    return (
        sizes_text(point),
        point.rung or "-",
        number(ours.median_us if ours else None),
        number(ours.gbps if ours else None),
        point.best_peer or "-",
        number(best.median_us if best else None),
        factor(point.ratio),
        point.outcome.replace("_", " "),
        "-" if point.copy_share is None else f"{point.copy_share:.0%}",
        number(op.median_us if op else None),
        number(point.predicted_us),
        point.predicted_bound or "-",
    )


def _named(point: PeerPoint, name: str) -> TimedContender | None:
    return next((c for c in point.contenders if c.name == name), None)
