"""One rung at one set of sizes, as the reports have it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ladder.claims import Evidence, check_claims
from tilewright.ladder.family import Family, Rung
from tilewright.ladder.report import ClaimRecord, RungRecord


def record_of(family: Family, rung: Rung, dtype: str, size: str, evidence: Evidence) -> RungRecord:
    """Run a rung in the emulator and check what it claims; ``not_run`` where it does not take dtype or sizes.

    Raises:
        TilewrightError: what building raises.
    """
    sizes = family.sizes[size]
    blank = RungRecord(rung.name, rung.technique, rung.changes, dtype, size, sizes, "", "not_run")
    why = f"it takes {', '.join(rung.dtypes)}" if dtype not in rung.dtypes else rung.misfit(sizes)
    if why:
        return replace(blank, message=why)
    compiled = evidence.compiled(family, rung, dtype)
    done = evidence.run(family, rung, dtype, size)
    record = replace(
        blank,
        arch=compiled.arch,
        verdict="passed" if done.passed else "not_run" if done.is_unsupported else "failed",
        message=done.message,
        max_abs_error=done.max_abs if done.tolerance else None,
        tolerance=done.tolerance,
        registers=compiled.registers,
        smem_bytes=int(evidence.resource(family, rung, dtype, "smem_bytes", size)),
        spill_bytes=compiled.spill_bytes,
        counters=done.counters,
    )
    if not done.passed:
        return record
    claims = tuple(ClaimRecord(c.claim.text, c.found, c.holds) for c in check_claims(family, rung, evidence))
    return replace(record, claims=claims)
