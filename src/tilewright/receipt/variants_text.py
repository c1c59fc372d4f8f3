"""The receipt's table of variants, with what stands around it: refusals, where the gain came from, the SASS excerpt."""

from __future__ import annotations

from dataclasses import replace

from tilewright.receipt.checklist import judged_variant
from tilewright.receipt.drawing import Cell, Column, Pen, factor, kib, number, printable
from tilewright.receipt.evidence import Verification
from tilewright.receipt.record import Attribution, Receipt, Refusal, Variant

PERMITTED_ONLY = "Order proves that overlap is permitted; only timing shows that it happens."

_EMPTY = frozenset({"-", "not run"})
_STATUS_STYLES = {"accepted": "good", "built": "warn", "refused": "warn", "failed": "bad"}
# Header and group: what running it showed (0), what compiling it showed (1). A narrow terminal gets one table for each.
_COLUMNS = (
    ("variant", 0),
    ("bits", 0),
    ("hazards", 0),
    ("tiles in\nflight", 1),
    ("math/\ntile", 1),
    ("regs", 1),
    ("spills", 1),
    ("smem", 1),
    ("predicted", 0),
    ("measured", 0),
    ("status", 1),
)


def variants_table(receipt: Receipt, pen: Pen) -> list[str]:
    """One row per variant that was made, ``*`` at the choice; then what failed, and what was refused and why."""
    made = [variant for variant in receipt.variants if variant.status != "refused"]
    lines = pen.table(_columns(receipt, made, pen)) if made else []
    for variant in made:
        if variant.status == "failed":
            lines += pen.labelled(variant.label, _failure(variant), "bad")
        for hazard in variant.verify.hazards:
            place = f"line {hazard.line}: " if hazard.line is not None else ""
            lines += pen.labelled(variant.label, f"{place}{hazard.kind}: {hazard.message}", "bad")
        if variant.notes:
            lines += pen.bullets(variant.label, variant.notes)
    return lines + _refused(receipt, pen)


def _columns(receipt: Receipt, made: list[Variant], pen: Pen) -> list[Column]:
    cells = zip(*(_row(receipt, variant) for variant in made), strict=True)
    columns = [Column(header, column, group) for (header, group), column in zip(_COLUMNS, cells, strict=True)]
    if pen.fits(columns):
        return columns
    # A narrow terminal goes without the columns that say nothing; the summary says what did not run.
    return [column for column in columns if any(cell.text not in _EMPTY for cell in column.cells)]


def _refused(receipt: Receipt, pen: Pen) -> list[str]:
    """Refusals, those with the same reason together."""
    labels: dict[Refusal, list[str]] = {}
    for variant in receipt.variants:
        if variant.refusal is not None:
            labels.setdefault(variant.refusal, []).append(variant.label)
    lines: list[str] = []
    for refusal, names in labels.items():
        named = replace(refusal, message=f"{', '.join(names)}: {refusal.message}")
        lines += refusal_lines("" if lines else "refused", receipt.kernel.file, named, pen)
    return lines


def refusal_lines(label: str, file: str, refusal: Refusal, pen: Pen) -> list[str]:
    """Code and message with the source line, the hint on a line of its own."""
    place = f"{file}:{refusal.line}: " if refusal.line is not None else ""
    lines = pen.labelled(label, f"{place}[{refusal.code}] {refusal.message}", "warn")
    return lines + (pen.labelled("", refusal.hint) if refusal.hint else [])


def _row(receipt: Receipt, variant: Variant) -> list[Cell]:
    chosen = receipt.choice is not None and receipt.choice.label == variant.label
    name = Cell(f"{variant.label} *" if chosen else variant.label, "bold" if chosen else "")
    status = Cell(variant.status, _STATUS_STYLES[variant.status])
    proof, resources = variant.proof, variant.resources
    return [
        name,
        _bits(variant.verify),
        _hazards(variant.verify),
        Cell(number(proof.tiles_in_flight), "bad" if _undone(variant) else ""),
        _math_per_tile(variant),
        Cell(number(resources.registers)),
        Cell(number(resources.spill_bytes), "bad" if resources.spill_bytes else ""),
        Cell(kib(resources.smem_bytes)),
        Cell(_predicted(receipt, variant)),
        _measured(variant),
        status,
    ]


def _undone(variant: Variant) -> bool:
    """Whether a variant that should overlap does not."""
    move = variant.stages == 1 and variant.name in ("widen", "retile", "cap_registers")
    return variant.proof.verdict == "no_overlap" and not move


def _bits(verify: Verification) -> Cell:
    if verify.verdict == "not_run":
        return Cell("not run", "warn")
    if verify.verdict == "failed":
        return Cell("differ" if verify.bit_identical is False else "failed", "bad")
    return Cell("same", "good") if verify.bit_identical else Cell("close")


def _hazards(verify: Verification) -> Cell:
    if verify.hazards:
        return Cell(str(len(verify.hazards)), "bad")
    # A GPU run shows wrong bits, not races: only where the emulator ran too may it say "none".
    return Cell("none", "good") if verify.races_at else Cell("-", "dim")


def _math_per_tile(variant: Variant) -> Cell:
    now, before = variant.proof.mma_per_tile, variant.proof.baseline_mma_per_tile
    if now is not None and before is not None and now != before:
        return Cell(f"{now} (was {before})", "bad")
    return Cell(number(now))


def _promises(receipt: Receipt) -> bool:
    """Whether there are tiles enough at the default sizes for a prediction to be a promise."""
    from tilewright.plan.decide import TILES_FOR_A_GAIN

    tiles = receipt.loop.num_tiles if receipt.loop else None
    return tiles is None or tiles >= TILES_FOR_A_GAIN


def _predicted(receipt: Receipt, variant: Variant) -> str:
    if not _promises(receipt):
        return "-"
    predicted = receipt.decision.predicted if receipt.decision else {}
    prediction = predicted.get(variant.label)
    if prediction is None or prediction.low is None or prediction.high is None:
        return "-"
    return f"{prediction.low:.2f}-{prediction.high:.2f}x"


def _measured(variant: Variant) -> Cell:
    measure = variant.measure
    if measure.speedup is None:
        return Cell("not run" if measure.verdict == "not_run" else measure.verdict, "warn")
    style = {"faster": "good", "slower": "bad"}.get(measure.verdict, "")
    word = "" if measure.verdict == "faster" else f" {measure.verdict}"
    return Cell(f"{factor(measure.speedup)}{word}", style)


def _failure(variant: Variant) -> str:
    failed = [check for check in variant.verify.checks if check.verdict == "failed"]
    if failed:
        return "; ".join(f"{check.size}: {check.message or 'results differ'}" for check in failed)
    return variant.verify.reason or variant.proof.reason or "a check failed"


def attribution_lines(receipt: Receipt, pen: Pen) -> list[str]:
    """Which step each part of the judged variant's gain came from; the prediction where no control was timed."""
    variant = judged_variant(receipt)
    if variant is None:
        return []
    gain = variant.attribution
    if gain is not None:
        parts = (("width", gain.width), ("asynchronous copy", gain.async_copy), ("overlap", gain.overlap))
        factors = [f"{name} {factor(value)}" for name, value in (*parts, ("stages", gain.stages)) if value is not None]
        if factors:
            return pen.labelled("gain", f"{variant.label}: {' * '.join(factors)}{_occupancy(gain)}")
    predicted = receipt.decision.gain if receipt.decision else None
    if predicted is None or not _promises(receipt):
        return []
    parts = (("width", predicted.width), ("asynchronous copy", predicted.async_copy), ("overlap", predicted.overlap))
    factors = [f"{name} ~{factor(value)}" for name, value in parts if value is not None]
    return pen.labelled("gain", f"{' * '.join(factors)} (predicted, not measured)") if factors else []


def _occupancy(gain: Attribution) -> str:
    if gain.warps_per_sm_before is None or gain.warps_per_sm_after is None:
        return ""
    return f"; warps per SM {gain.warps_per_sm_before} before, {gain.warps_per_sm_after} after"


def excerpt_lines(receipt: Receipt, pen: Pen, verbose: bool) -> list[str]:
    """The annotated SASS of the choice; of every variant when asked."""
    lines: list[str] = []
    for variant in receipt.variants:
        chosen = receipt.choice is not None and variant.label == receipt.choice.label
        if variant.proof.excerpt and (verbose or chosen):
            lines += ["", pen.paint(f"SASS of {variant.label}, steady state", "bold")]
            lines += ["  " + printable(line.expandtabs(4)) for line in variant.proof.excerpt.splitlines()]
    # The disassembler's room may have said it under the excerpt itself.
    if lines and not any(PERMITTED_ONLY in line for line in lines):
        lines.append(PERMITTED_ONLY)
    return lines
