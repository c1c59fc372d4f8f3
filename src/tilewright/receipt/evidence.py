"""What running, disassembling and timing a kernel showed: shared by the baseline, the variants and the controls.

``None`` stands for "not known" or "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["passed", "failed", "not_run"]
ProofVerdict = Literal["overlap", "no_overlap", "unknown"]
MeasureVerdict = Literal["faster", "same", "slower", "ambiguous", "not_run"]


@dataclass(frozen=True)
class Resources:
    """Per thread: registers, spill and stack bytes. Per block: shared bytes as launched."""

    registers: int | None = None
    smem_bytes: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None


@dataclass(frozen=True)
class Hazard:
    """A race on shared memory, or a missing wait, with the source line where it shows."""

    kind: str
    line: int | None
    message: str


@dataclass(frozen=True)
class SizeCheck:
    """Verification at one set of sizes; ``bound`` is what ``max_abs_error`` had to stay under."""

    size: str
    verdict: Verdict
    bit_identical: bool | None = None
    max_abs_error: float | None = None
    bound: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Verification:
    """What running it showed.

    Attributes:
        executor: ``emulator`` or ``gpu``; None when nothing ran.
        sizes: names of the size sets that ran.
        bit_identical: against the baseline (for the baseline: against its own second run).
        max_abs_error: against the reference, else against the baseline; the largest over the sizes.
        tolerance: what replaced bit-identity where the baseline is not deterministic, and why; else empty.
        reason: why it did not run, or what failed.
        races_at: size sets at which the emulator looked for races; beside a verdict of a GPU, the small ones.
    """

    verdict: Verdict = "not_run"
    executor: str | None = None
    sizes: tuple[str, ...] = ()
    bit_identical: bool | None = None
    max_abs_error: float | None = None
    hazards: tuple[Hazard, ...] = ()
    checks: tuple[SizeCheck, ...] = ()
    tolerance: str = ""
    reason: str = ""
    races_at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stall:
    """Stall cycles that the compiler put on one kind of instruction in the steady-state loop."""

    opcode: str
    count: int
    min_cycles: int
    max_cycles: int
    mean_cycles: float | None = None


@dataclass(frozen=True)
class CopyCount:
    """Copies of one kind per trip of the steady-state loop."""

    opcode: str
    width_bytes: int
    count: int


@dataclass(frozen=True)
class Proof:
    """What the SASS of the steady-state loop shows.

    Attributes:
        tiles_in_flight: how many tiles' copies are outstanding while a tile is computed.
        mma_while_in_flight: math instructions between a copy's issue and the wait that retires it.
        mma_per_tile: matrix instructions (FMA where there are none) per tile.
        math_kind: opcode of the math: ``IMMA``, ``HMMA``, ``FFMA``.
        ops_per_load: math instructions per global load instruction in the steady state.
        copies: what moves the tiles.
        wait: the wait that retires the copies: ``DEPBAR.LE SB0, 0x1``.
        tiles_per_trip: tiles that one trip of the compiled loop handles, for the compiler may unroll.
        excerpt: annotated SASS.
        reason: what the verdict rests on, or why there is none.
        attempts: what was tried when the compiler had undone the overlap, in order.
    """

    verdict: ProofVerdict = "unknown"
    tiles_in_flight: int | None = None
    mma_while_in_flight: int | None = None
    barriers_between: int | None = None
    mma_per_tile: int | None = None
    baseline_mma_per_tile: int | None = None
    stalls: tuple[Stall, ...] = ()
    excerpt: str = ""
    math_kind: str = ""
    ops_per_load: float | None = None
    copies: tuple[CopyCount, ...] = ()
    wait: str = ""
    tiles_per_trip: int | None = None
    reason: str = ""
    attempts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """Times of one size, baseline and variants interleaved in one run.

    Attributes:
        iqr_us: interquartile range of the samples, microseconds.
        roofline_share: share of the attainable rate, 0 to 1.
        speedup: baseline's median over this one's.
        date: ISO 8601.
        reason: why it was not run, or why the verdict is ambiguous.
    """

    size: str = ""
    median_us: float | None = None
    min_us: float | None = None
    iqr_us: float | None = None
    samples: int = 0
    gflops: float | None = None
    gbps: float | None = None
    roofline_share: float | None = None
    speedup: float | None = None
    card: str = ""
    driver: str = ""
    date: str = ""
    verdict: MeasureVerdict = "not_run"
    reason: str = ""
