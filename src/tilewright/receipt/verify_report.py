"""What `tilewright verify` returns, as a JSON record."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.receipt.evidence import Verification
from tilewright.receipt.record import SCHEMA, Kernel, Tool


@dataclass(frozen=True)
class LineTraffic:
    """Memory traffic of one source line in the counted run.

    Attributes:
        requests: of warps to global memory. sectors: of 32 bytes that they touched; ideal_sectors: that would do.
        wavefronts: passes over shared memory; ideal_wavefronts: without bank conflicts.
        bytes: that threads asked for.
    """

    line: int | None
    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class PerTile:
    """What one tile of the K-loop adds to one thread block: the difference between runs of more tiles and of fewer.

    ``flops`` are by kind of arithmetic, integer operations of tensor cores among them; the rest is as in
    ``LineTraffic`` and ``Counted``.
    """

    requests: float = 0
    sectors: float = 0
    ideal_sectors: float = 0
    wavefronts: float = 0
    ideal_wavefronts: float = 0
    global_bytes_read: float = 0
    global_bytes_written: float = 0
    shared_bytes: float = 0
    thread_instructions: float = 0
    flops: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted:
    """Counters of one emulated run.

    Attributes:
        size: the size set; blocks: thread blocks that ran.
        mix: class of instruction → thread-instructions.
        flops: by kind of arithmetic (``fp32``, ``tensor_f16``, …), integer operations of tensor cores (``tensor_s8``)
            among them; a multiply-add is two.
        per_tile: where the K-loop is understood.
    """

    size: str
    blocks: int
    lines: tuple[LineTraffic, ...] = ()
    mix: dict[str, float] = field(default_factory=dict)
    thread_instructions: float = 0
    flops: dict[str, float] = field(default_factory=dict)
    global_bytes_read: float = 0
    global_bytes_written: float = 0
    shared_bytes: float = 0
    per_tile: PerTile | None = None


@dataclass(frozen=True)
class MutantRow:
    """A broken twin and what found it: hazard kinds, ``values``, ``error``; nothing where it was missed.

    ``is_equivalent``: harmless by construction, so that nothing can find it.
    """

    name: str
    description: str
    line: int | None
    caught: bool
    by: tuple[str, ...] = ()
    message: str = ""
    is_equivalent: bool = False


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """`tilewright verify FILE`.

    Attributes:
        against: the baseline that it was compared with, and ``baseline`` what running that showed; None where FILE was
            run alone, against itself and its reference.
        schedule: how threads were ordered; "" for the default, lock-step and then warp after warp.
    """

    schema: int = SCHEMA
    tool: Tool
    kernel: Kernel
    arch: str
    arch_reason: str = ""
    executor: str = ""
    schedule: str = ""
    verify: Verification = field(default_factory=Verification)
    against: Kernel | None = None
    baseline: Verification | None = None
    counted: Counted | None = None
    mutants: tuple[MutantRow, ...] = ()
    notes: tuple[str, ...] = ()
    timings_s: dict[str, float] = field(default_factory=dict)
