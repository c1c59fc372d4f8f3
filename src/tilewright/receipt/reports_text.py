"""The reports of `tilewright prove` and `tilewright inspect` as text."""

from __future__ import annotations

from tilewright.receipt.drawing import Cell, Column, Pen, kib, number, printable
from tilewright.receipt.reports import Copy, InspectedKernel, InspectReport, ProvenKernel, ProveReport
from tilewright.receipt.text import loop_text, proof_text, tile_text
from tilewright.receipt.variants_text import PERMITTED_ONLY, refusal_lines

_PROOF_STYLES = {"overlap": "good", "no_overlap": "bad", "unknown": "warn"}


def render_prove(report: ProveReport, *, width: int = 100, color: bool = False) -> str:
    """Verdict, figures and annotated excerpt of every kernel that was asked for."""
    pen = Pen(width, color)
    reason = f": {report.arch_reason.rstrip('.')}" if report.arch_reason else ""
    lines = pen.labelled("arch", f"{report.arch}{reason}")
    for kernel in report.kernels:
        lines += ["", *_proven(kernel, pen)]
    if not report.kernels:
        lines += pen.labelled("result", "No kernel was found.", "warn")
    if report.notes:
        lines += pen.bullets("notes", report.notes)
    overlap = any(kernel.proof.verdict == "overlap" for kernel in report.kernels)
    if overlap and not any(PERMITTED_ONLY in line for line in lines):
        lines += ["", PERMITTED_ONLY]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _proven(kernel: ProvenKernel, pen: Pen) -> list[str]:
    proof, resources = kernel.proof, kernel.resources
    lines = pen.labelled("kernel", kernel.name, "bold")
    lines += pen.labelled("proof", proof_text(proof), _PROOF_STYLES[proof.verdict])
    if proof.reason and proof.verdict != "unknown":
        lines += pen.labelled("", proof.reason)
    figures = (
        (f"{proof.math_kind or 'math instructions'} per tile", proof.mma_per_tile),
        ("while in flight", proof.mma_while_in_flight),
        ("barriers between", proof.barriers_between),
        ("math instructions per global load", proof.ops_per_load),
        ("registers", resources.registers),
        ("B spilled", resources.spill_bytes),
    )
    parts = [f"{number(value)} {name}" for name, value in figures if value is not None]
    parts += [f"{kib(resources.smem_bytes)} shared"] if resources.smem_bytes is not None else []
    lines += pen.listed("figures", parts)
    if proof.copies:
        copies = [f"{copy.count} {copy.opcode} of {copy.width_bytes} B" for copy in proof.copies]
        lines += pen.listed("copies", [*copies, *([f"retired by {proof.wait}"] if proof.wait else [])])
    if proof.stalls:
        stalls = [f"{s.opcode} {_cycles(s.min_cycles, s.max_cycles)} cycles ({s.count})" for s in proof.stalls]
        lines += pen.listed("stalls", stalls)
    lines += [f"  {printable(line.expandtabs(4))}" for line in proof.excerpt.splitlines()]
    return lines


def _cycles(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def render_inspect(report: InspectReport, *, width: int = 100, color: bool = False) -> str:
    """Every kernel: tile, K-loop, phases and copies, or why it was not understood."""
    pen = Pen(width, color)
    lines: list[str] = []
    for kernel in report.kernels:
        lines += [""] if lines else []
        lines += _inspected(report.file, kernel, pen)
    if not report.kernels:
        lines += pen.labelled("result", f"{report.file} has no kernel.", "warn")
    if report.notes:
        lines += pen.bullets("notes", report.notes)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _inspected(file: str, kernel: InspectedKernel, pen: Pen) -> list[str]:
    place = f"{file}:{kernel.line}" if kernel.line is not None else file
    lines = pen.labelled("kernel", f"{kernel.name}  {place}", "bold")
    if kernel.tile is not None:
        lines += pen.labelled("tile", tile_text(kernel.tile))
    if kernel.loop is not None:
        lines += pen.labelled("K-loop", loop_text(kernel.loop))
    if kernel.refusal is not None:
        lines += refusal_lines("refused", file, kernel.refusal, pen)
    if kernel.copies:
        lines += pen.table(_copies(kernel.copies))
    remarks: dict[str, list[str]] = {}
    for copy in kernel.copies:
        if copy.note:
            remarks.setdefault(copy.note, []).append(str(copy.line))
    lines += pen.bullets("copies", [f"line {', '.join(where)}: {note}" for note, where in remarks.items()])
    if kernel.notes:
        lines += pen.bullets("notes", kernel.notes)
    return lines


def _copies(copies: tuple[Copy, ...]) -> list[Column]:
    def column(header: str, texts: list[str]) -> Column:
        return Column(header, tuple(Cell(text) for text in texts))

    return [
        column("copy", [f"{copy.source} -> {copy.destination}" for copy in copies]),
        column("line", [str(copy.line) for copy in copies]),
        column("element", [copy.element for copy in copies]),
        column("bytes per\ncopy", [number(copy.bytes_per_copy) for copy in copies]),
        column("contiguous\nbytes", [number(copy.contiguous_bytes) for copy in copies]),
    ]
