"""The rooms' own types → the receipt's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.receipt import evidence, record

if TYPE_CHECKING:
    from tilewright.build.artifact import Artifact
    from tilewright.kloop.kernel import Refusal, TiledKernel
    from tilewright.measure.measure import Measurement
    from tilewright.plan.budget import Budget
    from tilewright.plan.decide import Decision
    from tilewright.sass.proof import OverlapProof
    from tilewright.verification.verdict import Verification


def refusal_record(refusal: Refusal) -> record.Refusal:
    return record.Refusal(refusal.code, refusal.message, refusal.line, refusal.hint)


def proof_record(proof: OverlapProof, baseline_mma: int | None, attempts: tuple[str, ...] = ()) -> evidence.Proof:
    known = proof.verdict != "unknown"
    return evidence.Proof(
        verdict=proof.verdict,
        tiles_in_flight=proof.tiles_in_flight if known else None,
        mma_while_in_flight=proof.mma_while_in_flight if known else None,
        barriers_between=proof.barriers_between if known else None,
        mma_per_tile=proof.mma_per_tile if known else None,
        baseline_mma_per_tile=baseline_mma,
        stalls=tuple(evidence.Stall(s.opcode, s.count, s.min, s.max, s.mean) for s in proof.stalls),
        excerpt=proof.excerpt,
        math_kind=proof.math_kind,
        ops_per_load=proof.ops_per_load,
        copies=tuple(evidence.CopyCount(c.opcode, c.width_bytes, c.count) for c in proof.copies),
        wait=proof.wait,
        tiles_per_trip=proof.tiles_per_trip or None,
        reason=" ".join(proof.notes),
        attempts=attempts,
    )


def resources_record(artifact: Artifact, dynamic_bytes: int) -> evidence.Resources:
    r = artifact.resources
    return evidence.Resources(r.registers, r.smem_bytes + dynamic_bytes, r.spill_bytes, r.stack_bytes)


def tile_record(kernel: TiledKernel, math: str) -> record.Tile:
    tile = kernel.tile
    dims = {a.name: a.elements for a in kernel.staged}
    return record.Tile(tile.bm, tile.bn, tile.bk, dims, tile.threads, dict(tile.elements), math)


def loop_record(kernel: TiledKernel, num_tiles: int | None) -> record.Loop:
    lines = kernel.lines
    first, second = (kernel.line_of(b.start) for b in (kernel.loop.first_barrier, kernel.loop.second_barrier))
    phases = (
        record.Phase("load", *lines["load"]),
        record.Phase("sync", first, first),
        record.Phase("compute", *lines["compute"]),
        record.Phase("sync", second, second),
    )
    return record.Loop(*lines["loop"], phases, num_tiles)


def budget_records(budget: Budget) -> tuple[tuple[record.BudgetRow, ...], tuple[record.Proposal, ...]]:
    cliff = budget.cliff.smem_bytes if budget.cliff is not None else None
    rows = tuple(
        record.BudgetRow(
            r.stages, r.smem_bytes, r.blocks_per_sm, r.warps_per_sm, r.limiter, r.fits, r.crosses_cliff, cliff
        )
        for r in budget.rows
    )
    return rows, tuple(
        record.Proposal(p.kind, p.stages, p.smem_bytes, p.blocks_per_sm, p.cost) for p in budget.proposals
    )


def decision_record(decision: Decision, made: set[str]) -> record.Decision:
    """The decision, with predictions for the variants that were asked for."""
    gain = decision.gain
    # Of two orders of one variant the better one; labels of builds as they are in `predicted`.
    order = dict.fromkeys(label.split("/")[0] for label in decision.ranking)
    return record.Decision(
        decision.verdict,
        decision.flop_per_byte,
        decision.ops_per_load,
        decision.warps_per_sm,
        {k: record.Prediction(p.speedup, p.low, p.high) for k, p in decision.predicted.items() if k in made},
        record.PredictedGain(gain.width, gain.async_copy, gain.overlap) if gain is not None else None,
        tuple(decision.reasons),
        tuple(label for label in order if label in made or label == "baseline"),
        decision.card.name if decision.card is not None else "",
        decision.card.sms if decision.card is not None else None,
        decision.card.reason if decision.card is not None else "",
    )


def verification_record(v: Verification) -> evidence.Verification:
    return evidence.Verification(
        v.verdict,
        v.executor,
        v.sizes,
        v.bit_identical,
        v.max_abs_error,
        tuple(evidence.Hazard(h.kind, h.line, h.message) for h in v.hazards),
        tuple(
            evidence.SizeCheck(c.size, c.verdict, c.bit_identical, c.max_abs_error, c.bound, c.message)
            for c in v.checks
        ),
        v.tolerance,
        v.reason,
        v.races_at,
    )


def measurement_record(m: Measurement) -> evidence.Measurement:
    return evidence.Measurement(
        m.size,
        m.median_us,
        m.min_us,
        m.iqr_us,
        m.samples,
        m.gflops,
        m.gbps,
        m.roofline_share,
        m.speedup,
        m.card,
        m.driver,
        m.date,
        m.verdict,
        m.reason,
    )
