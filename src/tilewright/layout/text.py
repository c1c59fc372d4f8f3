"""Reports of layouts as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.drawing import Grid, text_of
from tilewright.layout.reports import BanksReport, LayoutReport, ProofReport, SolveReport, ThreadsReport

_LABEL = 10


def layout_text(report: LayoutReport, grids: Sequence[Grid]) -> str:
    lines = [report.layout]
    cosize = "not computed" if report.cosize is None else report.cosize
    lines.append(_line("size", f"{report.size}, cosize {cosize}, rank {report.rank}, depth {report.depth}"))
    return "\n".join([*lines, *_tables(grids)]) + "\n"


def threads_text(report: ThreadsReport, grids: Sequence[Grid]) -> str:
    lines = [f"{report.name}: {report.threads} threads"]
    for operand in report.operands:
        tile = f"({operand.row_name}, {operand.col_name}) = {operand.rows} x {operand.cols}"
        lines.append(_line(operand.name, f"{operand.layout}  of {tile}, {operand.element_bits}-bit elements"))
    lines += [_line("note", note) for note in report.notes]
    if report.source:
        lines.append(_line("source", report.source))
    for grid in grids:
        lines += ["", grid.title, text_of(grid)]
    return "\n".join(lines) + "\n"


def banks_text(report: BanksReport) -> str:
    verdict = "no bank conflict" if report.conflict_free else f"{report.passes / max(1, report.ideal):.2f} x the ideal"
    lines = [
        _line("shared", report.shared),
        _line("access", f"{report.access}, {report.width_bytes} bytes a lane"),
        _line("passes", f"{report.passes} of {report.requests} requests; without conflicts {report.ideal}: {verdict}"),
    ]
    if report.worst is not None and not report.conflict_free:
        phases = " + ".join(map(str, report.worst.phases))
        lines.append(_line("worst", f"a request of {phases} passes; bank {report.worst.busiest_bank} is the busiest"))
        lines.append(_line("addresses", " ".join("-" if a is None else str(a) for a in report.worst.addresses)))
    return "\n".join(lines) + "\n"


def solve_text(report: SolveReport) -> str:
    size = f"{report.rows} x {report.cols} elements of {report.element_bytes} bytes, {report.tile_bytes} bytes"
    lines = [_line("tile", size), _line("accesses", ", ".join(report.patterns)), ""]
    head = ("", "layout (elements)", "pitch", "extra bytes", "passes", "phases", "verdict")
    lines += _aligned([head, *(_row(proof) for proof in report.proofs)])
    lines += ["", _verdict(report)]
    details = [detail for proof in report.proofs if proof.kind == report.verdict for detail in _proof(proof)]
    lines += [f"{name:<{max(_LABEL, *(len(n) for n, _ in details))}} {text}" for name, text in details]
    return "\n".join(lines) + "\n"


def _row(proof: ProofReport) -> tuple[str, ...]:
    worse = [name for name, phases, passes, _ in proof.by_pattern if passes > phases]
    verdict = "free of conflicts" if proof.conflict_free else f"conflicts: {', '.join(worse)}"
    figures = (proof.pitch_bytes, proof.cost_bytes, proof.passes, proof.phases)
    return (proof.kind, proof.layout or "(no whole elements)", *map(str, figures), verdict)


def _verdict(report: SolveReport) -> str:
    tried = f"{report.paddings_tried} paddings and {report.swizzles_tried} swizzles were tried, which is all there are"
    if report.verdict == "plain":
        return _line("verdict", "nothing to do: the tile as it is has no conflict")
    if report.verdict == "none":
        return _line("verdict", f"none is free of conflicts in every access: {tried}")
    return _line("verdict", f"{report.verdict} ({tried})")


def _proof(proof: ProofReport) -> list[tuple[str, str]]:
    details = [(name, f"{phases} phases, each in one pass") for name, phases, _, _ in proof.by_pattern]
    if proof.byte_swizzle:
        details.append(("bytes", f"{proof.byte_swizzle} on byte offsets from the start of the tile"))
    details.append(("proof", f"all {proof.requests} requests of a warp looked at; aligned, no two bytes share a place"))
    return details


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}} {text}"


def _tables(grids: Sequence[Grid]) -> list[str]:
    return [line for grid in grids for line in ("", text_of(grid))]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = {0, 1, len(rows[0]) - 1}
    return [
        "  ".join(f"{x:<{w}}" if i in left else f"{x:>{w}}" for i, (x, w) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in rows
    ]  # fmt: skip
