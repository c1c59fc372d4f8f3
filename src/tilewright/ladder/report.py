"""What the verb `ladder` reports: frozen records, printed as JSON or drawn by ``report_text``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["passed", "failed", "not_run"]


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
        gbps: unique bytes, 10**9 a second. gflops: 10**9 a second.
        speedup: over the first rung that was timed, the median over the rounds; low and high: 95 %.
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


@dataclass(frozen=True)
class LadderBench:
    family: str
    title: str
    card: str
    driver: str
    date: str
    rungs: tuple[TimedRung, ...]
