"""One candidate of the table: what it takes, what fits, how the work falls into waves, and its predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import occupancy

# A last tile that is used less than this is mostly padding (SPEC: (N % TILE) / TILE below 0.1 is a warning).
USEFUL_LEAST = 0.1
OCCUPANCY_LOW = 0.25
OCCUPANCY_START = 0.5
OCCUPANCY_ENOUGH = 0.75


@dataclass(frozen=True)
class Candidate:
    """A row of the table.

    Attributes:
        label: short, unique within one table: ``128x256x32 w2x4 s4``.
        parameters: the tile by its parameters' names, as the skeleton and ``tilewright tune`` take them.
        smem_bytes: per block as launched. smem_by_stages: the same for other depths of the ring.
        registers: per thread, estimated. registers_compiled, spill_bytes: what ptxas gave it; None where not compiled.
        needs_opt_in: more shared memory than a launch gets without ``cudaFuncSetAttribute``.
        occupancy: resident warps over the most that an SM holds, 0 to 1; ``limiter`` stops one more block.
        waves: rounds of blocks over the whole card; ``tail``: share of the last round's places that hold a block.
        useful: by dim, the used share of the last tile; 1.0 where it divides.
        vector_bytes: by operand, the widest aligned access of its rows.
        l2_bytes: asked of L2 by all blocks. dram_bytes: fetched and written.
        terms_us: by pipe, what the busiest SM would take if only that one mattered, and what comes on top.
        bound_by: the largest term.
    """

    label: str
    parameters: Mapping[str, int]
    threads: int
    smem_bytes: int
    registers: int
    needs_opt_in: bool
    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float
    limiter: str
    blocks: int
    waves: float
    tail: float
    useful: Mapping[str, float]
    vector_bytes: Mapping[str, int]
    l2_bytes: float
    dram_bytes: float
    time_us: float
    terms_us: Mapping[str, float]
    bound_by: str
    smem_by_stages: Mapping[int, int] = field(default_factory=dict)
    registers_compiled: int | None = None
    spill_bytes: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fit:
    """Resident blocks and warps of one SM, and how a launch falls into waves."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    limiter: str
    needs_opt_in: bool
    waves: float
    tail: float


def fit(arch: Arch, sms: int, threads: int, registers: int, smem_bytes: int, blocks: int) -> Fit:
    """Occupancy and waves of a launch of ``blocks`` blocks."""
    found = occupancy(arch, threads, registers, smem_bytes)
    places = max(found.blocks_per_sm, 1) * sms
    last = blocks % places
    return Fit(
        blocks_per_sm=found.blocks_per_sm,
        warps_per_sm=found.warps_per_sm,
        share=found.share,
        limiter=found.limiter,
        needs_opt_in=found.needs_opt_in,
        waves=blocks / places,
        tail=last / places if last else 1.0,
    )


def useful_share(extent: int, tile: int) -> float:
    """The used share of the last tile along a dim: ``(extent % tile) / tile``, 1.0 where it divides."""
    left = extent % tile
    return left / tile if left else 1.0


def vector_bytes(row_elements: int, item_bytes: int) -> int:
    """The widest power of two up to 16 bytes that divides a row: what keeps every row's accesses aligned."""
    row_bytes = row_elements * item_bytes
    width = 16
    while row_bytes % width:
        width //= 2
    return width


def common_warnings(
    arch: Arch,
    found: Fit,
    sms: int,
    blocks: int,
    useful: Mapping[str, float],
    ilp: str,
    smaller: str = "a smaller tile, or split-K",
) -> list[str]:
    """The rules that hold for every op.

    Args:
        ilp: what hides latency beside warps, where the kernel has it (``"its 64 sums per thread"``); else "".
        smaller: what would make more blocks of the same work.
    """
    warnings = [
        f"The last tile of {dim.upper()} is used to {share:.0%} only."
        for dim, share in useful.items()
        if share < USEFUL_LEAST
    ]
    if found.share < OCCUPANCY_LOW and not ilp:
        warnings.append(f"Occupancy {found.share:.0%} is below 25 %: too few warps to hide latency.")
    elif found.share < OCCUPANCY_LOW:
        warnings.append(f"Occupancy {found.share:.0%} is below 25 %: accepted, {ilp} hide latency instead.")
    if blocks < sms:
        leave = "1 block leaves" if blocks == 1 else f"{blocks} blocks leave"
        warnings.append(f"{leave} {sms - blocks} of {sms} SMs idle: {smaller}.")
    if found.needs_opt_in:
        limit = arch.smem_static_max_bytes // 1024
        warnings.append(
            f"More than {limit} KiB of shared memory: cudaFuncSetAttribute must raise the limit, or the launch fails."
        )
    return warnings


def bound_by(terms_us: Mapping[str, float]) -> str:
    """The largest term's name."""
    return max(terms_us, key=lambda name: terms_us[name])
