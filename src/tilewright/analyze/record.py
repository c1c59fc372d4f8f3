"""What `tilewright analyze` returns, as one JSON record; text and Markdown are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.receipt.record import SCHEMA, Kernel, Tool

InputKind = Literal["cuda", "cubin", "triton_cache", "triton"]
Bound = Literal["memory", "compute", "latency"]


@dataclass(frozen=True)
class Evidence:
    """One number that a strategy rests on: what it is, its value, and where it comes from."""

    what: str
    value: str
    source: str


@dataclass(frozen=True)
class Strategy:
    """A change that is worth making.

    Attributes:
        key: ``pipeline``, ``cap_registers``, ``widen``, …
        speedup: expected, as a factor; ``low`` and ``high`` its range.
        effort: ``small`` (a line, a constant, a command) or ``large`` (the kernel is restructured by hand).
        conflicts: other strategies that this one gets in the way of, or takes the gain of, and why.
        remedy: its place in the order of remedies, from 1 (coalescing) on; 0 outside of it.
    """

    key: str
    title: str
    speedup: float
    low: float
    high: float
    effort: Literal["small", "large"]
    evidence: tuple[Evidence, ...]
    conflicts: dict[str, str] = field(default_factory=dict)
    how: str = ""
    remedy: int = 0


@dataclass(frozen=True)
class SetAside:
    """A strategy that was looked at and is not worth making here, and why."""

    key: str
    reason: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Launch:
    """Blocks, threads and dynamic shared bytes, and where they come from."""

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    source: str = ""

    @property
    def blocks(self) -> int | None:
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int | None:
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Baseline:
    """Figures of the kernel as it is. Sizes: of the sidecar's set, or as given."""

    launch: Launch
    sizes: dict[str, int] = field(default_factory=dict)
    registers: int | None = None
    smem_bytes: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    time_us: float | None = None
    time_source: str = ""


@dataclass(frozen=True)
class Count:
    """A quantity of the whole launch, and where it comes from; None where it cannot be derived."""

    value: float | None
    source: str


@dataclass(frozen=True)
class RoofRow:
    """One roof: a memory level and a precision.

    Attributes:
        level: ``DRAM``, ``L2``; precision: a key of the card's peaks.
        intensity: operations per byte of that level; ridge: peak over bandwidth.
        attainable: operations per second, ``min(peak, intensity * bandwidth)``.
        share: measured rate over it, where a time was given.
        is_memory_bound: the intensity lies below the ridge.
    """

    level: str
    precision: str
    intensity: float
    peak: float
    bytes_per_s: float
    ridge: float
    attainable: float
    is_memory_bound: bool
    share: float | None = None


@dataclass(frozen=True)
class Roofline:
    """Work of the launch, unique DRAM bytes (outputs included), and what the card makes of them."""

    flops: Count
    dram_bytes: Count
    operations: dict[str, float] = field(default_factory=dict)
    rows: tuple[RoofRow, ...] = ()
    least_us: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Cliff:
    """An edge of occupancy: with ``value`` of a resource, so many blocks per SM instead of the present ones."""

    resource: str
    value: int
    blocks: int
    text: str


@dataclass(frozen=True)
class Residency:
    """What fits on an SM."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    limiter: str
    limits: dict[str, int]
    cliffs: tuple[Cliff, ...] = ()
    waves: float | None = None
    tail_share: float | None = None


@dataclass(frozen=True)
class Ratios:
    """The two ratios, which are never mixed up."""

    flop_per_byte: float | None = None
    flop_per_byte_source: str = ""
    ops_per_load: float | None = None
    ops_per_load_source: str = ""


@dataclass(frozen=True)
class MixRow:
    """One kind of instruction in a trip of the hot loop: how many, and their stall counts (cycles)."""

    opcode: str
    count: int
    whole_kernel: int
    stall_min: int
    stall_max: int
    stall_sum: int


@dataclass(frozen=True)
class Sass:
    """The machine code.

    Attributes:
        kind: ``k_loop``, ``loop`` or ``straight``: what the trip is.
        trip_cycles: of one warp alone, and of these: issuing, waiting for global memory, for shared memory and units.
        overlap: verdict of the overlap proof; tiles_in_flight with it.
        load_bytes: mean width of the trip's global loads per lane.
    """

    kind: str
    line: int | None
    instructions: int
    trip_cycles: float
    trip_issue_cycles: float
    trip_global_wait: float
    trip_near_wait: float
    loads_in_flight: int
    load_bytes: float | None
    overlap: str
    tiles_in_flight: int | None
    mix: tuple[MixRow, ...] = ()
    setmaxnreg: str = ""


@dataclass(frozen=True)
class SharedCliff:
    """How many blocks fit by the shared bytes of a block: (blocks per SM, the most bytes with which they fit)."""

    smem_bytes: int
    ladder: tuple[tuple[int, int], ...]
    text: str


@dataclass(frozen=True)
class Memory:
    """Accesses, counted in the emulator.

    Attributes:
        source: which set and blocks. lines: the source lines that waste most.
        sectors_per_request, ideal_sectors_per_request: of global memory.
        passes_per_request, ideal…: wavefronts of shared memory over those without conflicts (1.0: no conflict).
        reuse: bytes that lanes ask for over unique bytes: 1.0 where each is used once.
    """

    source: str
    requests: float
    sectors_per_request: float | None
    ideal_sectors_per_request: float | None
    conflict_factor: float | None
    reuse: float | None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What holds it back, and by which floors.

    Attributes:
        floors_us: least time by cause; of one trip in cycles (``floors_unit``) where the launch is not known.
    """

    bound: Bound
    by: str
    reason: str
    floors: dict[str, float] = field(default_factory=dict)
    floors_unit: Literal["us", "cycles"] = "cycles"


@dataclass(frozen=True, kw_only=True)
class AnalyzeReport:
    """`tilewright analyze FILE`."""

    schema: int = SCHEMA
    tool: Tool
    kernel: Kernel
    input: InputKind
    arch: str
    arch_reason: str = ""
    device: str = ""
    device_reason: str = ""
    baseline: Baseline
    roofline: Roofline
    residency: Residency | None = None
    ratios: Ratios = field(default_factory=Ratios)
    sass: Sass
    shared_cliff: SharedCliff | None = None
    memory: Memory | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    verdict: Verdict
    strategies: tuple[Strategy, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timings_s: dict[str, float] = field(default_factory=dict)
