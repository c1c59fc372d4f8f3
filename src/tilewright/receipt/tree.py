"""The record of one run over a folder, and the table that is drawn from it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_MISSING, EXIT_OK, EXIT_REFUSED
from tilewright.receipt.record import Receipt, Variant

SCHEMA = 1
# What a script most needs to hear of comes first: a failed check, a tool that is missing, a file that cannot be read.
WORST_FIRST = (EXIT_CHECK_FAILED, EXIT_MISSING, EXIT_BAD_INPUT, EXIT_REFUSED, EXIT_OK)
GAP = 2
# However narrow the terminal: a verdict's code has to be seen.
VERDICT_WIDTH = 40


@dataclass(frozen=True)
class TreeError:
    """A file or kernel without a receipt, and why."""

    file: str
    kernel: str
    code: str
    message: str
    line: int | None = None
    hint: str = ""
    exit_code: int = EXIT_BAD_INPUT


@dataclass(frozen=True)
class TreeReport:
    """``tilewright pipeline DIR``.

    Attributes:
        receipts: of the kernels with a K-loop, by file and line.
        errors: what could not be worked on.
        without_k_loop: kernels in which there is nothing to pipeline; their receipts are left out.
        files: CUDA files that were read.
        exit_code: the worst of the kernels'.
    """

    root: str
    receipts: tuple[Receipt, ...]
    errors: tuple[TreeError, ...]
    without_k_loop: int
    files: int
    exit_code: int
    schema: int = SCHEMA


def worst(codes: list[int]) -> int:
    """The exit code of several runs."""
    strange = [code for code in codes if code not in WORST_FIRST]  # a defect of Tilewright
    return max(strange) if strange else next((code for code in WORST_FIRST if code in codes), EXIT_OK)


def render_tree(report: TreeReport, width: int) -> str:
    """The table: place, kernel, verdict, best variant."""
    rows = sorted([*map(_row, report.receipts), *map(_error_row, report.errors)], key=lambda r: r[0])
    lines: list[str] = []
    if rows:
        table = [("place", "kernel", "best", "verdict")]
        table += [(f"{file}:{line}" if line else file, kernel, best, why) for (file, line), kernel, best, why in rows]
        widths = [max(len(row[i]) for row in table) for i in range(3)]
        for row in table:
            head = "".join(cell.ljust(w + GAP) for cell, w in zip(row[:3], widths, strict=True))
            lines.append(_cut(head + row[3], max(width, len(head) + VERDICT_WIDTH)).rstrip())
        lines.append("")
    accepted = sum(any(v.status == "accepted" for v in r.variants) for r in report.receipts)
    told = [
        f"{report.files} files",
        f"{len(report.receipts)} kernels with a K-loop, {accepted} with an accepted variant",
    ]
    if report.without_k_loop:
        told.append(f"{report.without_k_loop} kernels without a K-loop")
    if report.errors:
        told.append(f"{len(report.errors)} not worked on")
    return "\n".join([*lines, "; ".join(told)]) + "\n"


Row = tuple[tuple[str, int], str, str, str]


def _row(receipt: Receipt) -> Row:
    place = (receipt.kernel.file, receipt.kernel.line or 0)
    return place, receipt.kernel.name, _best(receipt), _verdict(receipt)


def _error_row(error: TreeError) -> Row:
    return (error.file, error.line or 0), error.kernel or "-", "-", f"[{error.code}] {' '.join(error.message.split())}"


def _verdict(receipt: Receipt) -> str:
    accepted = [v.label for v in receipt.variants if v.status == "accepted"]
    failed = [v.label for v in receipt.variants if v.status == "failed"]
    if failed:
        return f"failed: {', '.join(failed)}"
    if receipt.refusal is not None:
        line = f", line {receipt.refusal.line}" if receipt.refusal.line else ""
        return f"refused [{receipt.refusal.code}{line}] {receipt.refusal.message}"
    if receipt.baseline.verify.verdict == "failed":
        return f"baseline failed: {receipt.baseline.verify.reason}"
    if receipt.decision is not None and receipt.decision.verdict == "do_not_pipeline":
        return f"do not pipeline: {next(iter(receipt.decision.reasons), '')}"
    if accepted:
        return f"accepted: {', '.join(accepted)}"
    built = [v.label for v in receipt.variants if v.status == "built"]
    if built:
        return f"built, not verified: {', '.join(built)}"
    first = next((v.refusal for v in receipt.variants if v.refusal is not None), None)
    return f"refused [{first.code}] {first.message}" if first is not None else "refused"


def _best(receipt: Receipt) -> str:
    """The fastest of what was timed, else what the decision ranks first, of the variants that can be had."""
    usable = [v for v in receipt.variants if v.status in ("accepted", "built")]
    timed: list[tuple[float, Variant]] = [(v.measure.speedup, v) for v in usable if v.measure.speedup is not None]
    if timed:
        speedup, variant = max(timed, key=lambda pair: pair[0])
        return f"{variant.label} {speedup:.2f}x"
    decision = receipt.decision
    guessed = [v.label for v in usable if v.label in decision.predicted] if decision is not None else []
    if decision is not None and guessed:
        label = min(guessed, key=decision.rank)
        return f"{label} ~{decision.predicted[label].speedup or 0.0:.2f}x"
    return "-"


def _cut(text: str, width: int) -> str:
    text = " ".join(text.split("\n"))
    return text if len(text) <= width else text[: width - 3] + "..."
