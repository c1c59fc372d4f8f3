"""What the verb `ladder` reports: frozen records, printed as JSON or drawn by ``report_text``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Verdict = Literal["passed", "failed", "not_run"]
Kind = Literal["rung", "op", "eager", "compile", "autotune", "triton", "copy"]
Outcome = Literal["won", "level", "lost", "not_run"]


@dataclass(frozen=True)
class FamilyEntry:
    """A line of `ladder list`."""

    name: str
    title: str
    op: str
    dtypes: tuple[str, ...]
    rungs: tuple[str, ...]


@dataclass(frozen=True)
class LadderList:
    families: tuple[FamilyEntry, ...]


@dataclass(frozen=True)
class ShownRung:
    """A rung's source.

    Attributes:
        before: the rung that ``diff`` is against; None for the first, which has its ``source`` alone.
        claims: in words.
    """

    rung: str
    file: str
    technique: str
    changes: str
    before: str | None
    generated_from: str | None
    min_arch: str | None
    dtypes: tuple[str, ...]
    claims: tuple[str, ...]
    source: str
    diff: str


@dataclass(frozen=True)
class LadderShow:
    """``written``: the files that were written, where that was asked for."""

    family: str
    title: str
    op: str
    rungs: tuple[ShownRung, ...]
    written: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimRecord:
    """A claim in words, what was found, whether it holds."""

    claim: str
    found: float
    holds: bool


@dataclass(frozen=True)
class RungRecord:
    """A rung that was run.

    Attributes:
        size: name of the set. sizes: its values.
        verdict: of the run: ``not_run`` where the rung does not take the sizes, or the emulator lacks something.
        message: what is wrong, or why it was not run. max_abs_error: to the float64 reference. tolerance: in words.
        registers, smem_bytes, spill_bytes: per thread, per block (dynamic ones included), per thread.
        counters: see ``running.counters_of``.
        claims: of `ladder.toml`, checked; empty unless the run passed.
    """

    rung: str
    technique: str
    changes: str
    dtype: str
    size: str
    sizes: Mapping[str, int]
    arch: str
    verdict: Verdict
    message: str = ""
    max_abs_error: float | None = None
    tolerance: str = ""
    registers: int | None = None
    smem_bytes: int | None = None
    spill_bytes: int | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    claims: tuple[ClaimRecord, ...] = ()

    @property
    def holds(self) -> bool:
        """It passed, and shows what it claims."""
        return self.verdict == "passed" and all(claim.holds for claim in self.claims)


@dataclass(frozen=True)
class LadderRun:
    family: str
    title: str
    op: str
    executor: str
    rungs: tuple[RungRecord, ...]


@dataclass(frozen=True)
class TimedRung:
    """A rung's time on a card, from a cold L2, interleaved with the others.

    Attributes:
        verdict: of the runs at the small sets that stand before the timing; a rung that failed is not timed.
            ``not_run`` where it does not take the sizes or needs another card: ``message`` says which.
        gbps: unique bytes, 10**9 a second. gflops: 10**9 a second.
        speedup: over the first rung that was timed, the median over the rounds; low and high: 95 %.
        predicted_us, predicted_bound: see ``predicting``; None where the card's rates were not measured.
    """

    rung: str
    technique: str
    dtype: str
    size: str
    sizes: Mapping[str, int]
    verdict: Verdict
    message: str = ""
    median_us: float | None = None
    min_us: float | None = None
    iqr_us: float | None = None
    samples: int = 0
    gbps: float | None = None
    gflops: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    predicted_us: float | None = None
    predicted_bound: str = ""


@dataclass(frozen=True)
class TimedContender:
    """One of those that took turns at one set of sizes.

    Attributes:
        kind: ``rung`` is the kernel that ``Ladder.call`` picks, ``op`` the same through ``tilewright.ops``; ``eager``,
            ``compile``, ``autotune`` and ``triton`` are peers; ``copy`` moves as many bytes on the device, a yardstick.
        verdict: ``failed`` where its results are wrong, ``not_run`` where it could not be called.
        is_captured: in a CUDA graph; the times of one that is not hold the host's share.
        median_us, min_us, iqr_us: of one call. gbps: the family's unique bytes. gflops: the family's operations.
        host_us: of a call by a Python program, until it returns; None where that was not measured.
    """

    name: str
    kind: Kind
    verdict: Verdict = "not_run"
    message: str = ""
    is_captured: bool = True
    median_us: float | None = None
    min_us: float | None = None
    iqr_us: float | None = None
    samples: int = 0
    gbps: float | None = None
    gflops: float | None = None
    host_us: float | None = None


@dataclass(frozen=True)
class PeerPoint:
    """The rung that is picked for a set of sizes, against every peer of its group.

    Attributes:
        size: name of the set; "" for one of a sweep. group: see ``peers.Peer``.
        is_cold: each call from a cold L2; else calls follow each other in a graph, their data in the L2.
        calls: in one graph.
        rung: that was picked. predicted_us, predicted_bound: of it, see ``predicting``.
        outcome: ``won``, ``level`` (within 1 %) or ``lost``; ``not_run`` where ours or every peer is missing.
        best_peer: the fastest. ratio: its time over ours, the median over the rounds; low and high: 95 %.
        copy_share: the fastest copy's time over ours.
    """

    dtype: str
    size: str
    sizes: Mapping[str, int]
    group: str
    is_cold: bool
    calls: int
    total_bytes: float
    flops: float
    rung: str
    contenders: tuple[TimedContender, ...] = ()
    outcome: Outcome = "not_run"
    message: str = ""
    best_peer: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    copy_share: float | None = None
    predicted_us: float | None = None
    predicted_bound: str = ""


@dataclass(frozen=True)
class LadderBench:
    """Times on a card: of the rungs among themselves, and of the best ones against peers.

    Attributes:
        copy_gbps, launch_us: of the card in this run, for the predictions; None where peers were not asked for.
        torch, triton: versions. compiled: how ``torch.compile`` was asked: auto, static, off.
    """

    family: str
    title: str
    card: str
    driver: str
    date: str
    rungs: tuple[TimedRung, ...]
    points: tuple[PeerPoint, ...] = ()
    torch: str = ""
    triton: str = ""
    compiled: str = ""
    copy_gbps: float | None = None
    launch_us: float | None = None


def joined(reports: Sequence[LadderBench]) -> LadderBench:
    """Benches of one family on one card, each of other element types, as one; the last one's date and rates.

    Raises:
        ValueError: for those of other families, cards, or versions of the peers.
    """
    last = reports[-1]
    said = {(r.family, r.card, r.torch, r.triton, r.compiled) for r in reports}
    if len(said) > 1:
        raise ValueError(f"benches of {last.family} that do not belong together: {sorted(said)}")
    rungs = tuple(rung for report in reports for rung in report.rungs)
    return replace(last, rungs=rungs, points=tuple(point for report in reports for point in report.points))


def split(report: LadderBench) -> dict[str, LadderBench]:
    """The same by element type: the reverse of `joined`."""
    dtypes = dict.fromkeys([r.dtype for r in report.rungs] + [p.dtype for p in report.points])
    return {
        dtype: replace(
            report,
            rungs=tuple(r for r in report.rungs if r.dtype == dtype),
            points=tuple(p for p in report.points if p.dtype == dtype),
        )
        for dtype in dtypes
    }
