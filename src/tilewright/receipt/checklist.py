"""The eight items that every receipt carries, judged from the record alone."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.receipt.evidence import Verification
from tilewright.receipt.record import ChecklistItem, Receipt, Variant

# In the order of the work; the texts are part of the receipt's contract.
ITEMS = (
    "smem under the cliff",
    "buffers alternate",
    "prologue fills stage 0",
    "epilogue computes the last tile",
    "results match at small and target size",
    "overlap in SASS",
    "faster than the baseline",
    "no spills",
)


def judged_variant(receipt: Receipt) -> Variant | None:
    """The variant that the checklist speaks of: the choice, else the made one that the decision ranks first."""
    made = [variant for variant in receipt.variants if variant.status in ("accepted", "built")]
    if receipt.choice is not None:
        made = [variant for variant in made if variant.label == receipt.choice.label] or made
    decision = receipt.decision
    if decision is None:
        return made[0] if made else None
    return min(made, key=lambda variant: decision.rank(variant.label), default=None)  # min keeps the first of equals


def build_checklist(receipt: Receipt) -> tuple[ChecklistItem, ...]:
    """Judge the eight items for `judged_variant`; an item is None where nothing that ran could tell."""
    variant = judged_variant(receipt)
    if variant is None:
        return tuple(ChecklistItem(item, None, "no variant was made") for item in ITEMS)
    judgements: Iterable[tuple[bool | None, str]] = (
        _under_the_cliff(receipt, variant),
        _structure(variant, needs_two_buffers=True),
        _structure(variant),
        _structure(variant),
        _results(variant.verify),
        _overlap(variant),
        _faster(variant),
        _no_spills(variant),
    )
    return tuple(
        ChecklistItem(item, holds, f"{variant.label}: {reason}")
        for item, (holds, reason) in zip(ITEMS, judgements, strict=True)
    )


def _under_the_cliff(receipt: Receipt, variant: Variant) -> tuple[bool | None, str]:
    # ldg_single and its like keep one buffer, so their row of the budget is that of one stage.
    row = next((row for row in receipt.budget if row.stages == variant.stages), None)
    if row is None:
        return None, "no budget was computed"
    blocks = f"{row.blocks_per_sm} blocks per SM at {row.smem_bytes:,} B"
    return row.fits and not row.crosses_cliff, blocks


def _structure(variant: Variant, *, needs_two_buffers: bool = False) -> tuple[bool | None, str]:
    """Prologue, epilogue and alternation show in the results: a mistake in any of them changes bits (or races)."""
    if needs_two_buffers and variant.stages < 2:
        return None, "one buffer, nothing alternates"
    verify = variant.verify
    if verify.verdict == "not_run":
        return None, "by construction; nothing here ran it"
    if verify.verdict == "passed" and not verify.hazards:
        if verify.races_at:
            values = "" if verify.executor == "emulator" else f" ({verify.executor})"
            return True, f"no wrong element{values} and no race (emulator)"
        return True, f"no wrong element ({verify.executor}; races were not looked for)"
    return False, verify.reason or "a check failed"


def _results(verify: Verification) -> tuple[bool | None, str]:
    if verify.verdict == "not_run":
        return None, verify.reason or "nothing here ran it"
    if verify.verdict == "failed":
        return False, verify.reason or "results differ"
    missing = {"small", "default"} - set(verify.sizes)
    if missing:
        return None, f"ran {', '.join(verify.sizes) or 'nothing'}, not {', '.join(sorted(missing))}"
    return True, f"{'same bits' if verify.bit_identical else 'within tolerance'} at {', '.join(verify.sizes)}"


def _overlap(variant: Variant) -> tuple[bool | None, str]:
    proof = variant.proof
    if variant.stages == 1 and variant.name in ("widen", "retile", "cap_registers"):
        return None, "no pipeline: every tile is waited for, as in the baseline"
    if proof.verdict == "unknown":
        return None, proof.reason or "not proved"
    tiles = proof.tiles_in_flight
    number = "some tiles" if tiles is None else "1 tile" if tiles == 1 else f"{tiles} tiles"
    return proof.verdict == "overlap", f"{number} in flight during the compute phase"


def _faster(variant: Variant) -> tuple[bool | None, str]:
    measure = variant.measure
    if measure.verdict in ("not_run", "ambiguous"):
        return None, measure.reason or measure.verdict.replace("_", " ")
    speedup = f"{measure.speedup:.2f}x" if measure.speedup is not None else measure.verdict
    return measure.verdict == "faster", f"{speedup} on {measure.card}" if measure.card else speedup


def _no_spills(variant: Variant) -> tuple[bool | None, str]:
    spill_bytes = variant.resources.spill_bytes
    if spill_bytes is None:
        return None, "not known"
    return spill_bytes == 0, f"{spill_bytes:,} B spilled"
