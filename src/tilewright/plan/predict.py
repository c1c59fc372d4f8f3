"""How many cycles a tile takes on an SM, before and after pipelining: a model from first principles.

Per tile and block four pipes are counted, in SM cycles, as if the block had the SM to itself:

- *issue*: instructions of all warps over the schedulers;
- *shared*: passes of the load/store pipe, 128 bytes each: global loads, stores to shared, shared reads with their bank
  conflicts. Narrow loads and stores take as many passes as wide ones, which is why width matters;
- *math*: multiply-adds over the rate of the matrix or FMA units;
- *memory*: bytes of the tile over what one SM takes in from L2.

A fifth figure is what one block alone takes for a tile, waits included: one L2 latency per batch of loads, then the
compute phase when nothing overlaps; ``max(latency / (stages - 1), compute)`` when they do. The resident blocks hide
each other's waits, so it is divided by their number. Latency is L2's: a tile of A is read by every block of its row of
blocks, and all but the first find it there.

The five figures are joined by a smooth maximum (a 4-norm): blocks do not interleave perfectly. That exponent and the
instruction counts assumed where the SASS gave none were set once, on one kernel. This is the prediction before anything
is compiled; once it is, `compiled` takes its place. ``benchmarks/prediction.py`` scores both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import occupancy
from tilewright.plan.budget import Budget
from tilewright.plan.facts import CopyFacts, PlanFacts
from tilewright.plan.shared_reads import shared_read_wavefronts

SMOOTHNESS = 4
# Instructions per copy: address, bounds, the load, the store, its share of the loop; and per further piece of a copy
# that is taken apart: its load or store only.
GUARDED_COPY_INSTRUCTIONS = 20
PLAIN_COPY_INSTRUCTIONS = 8
PIECE_INSTRUCTIONS = 2
# Per bulk copy, of the one warp that issues: its addresses go to uniform registers, one copy after the other. And per
# warp and tile: the question whether the tile is whole, and the wait at the mbarrier.
BULK_COPY_INSTRUCTIONS = 10
BULK_TILE_INSTRUCTIONS = 40
# Per warp and tile: loop control, barriers, stage arithmetic.
TILE_INSTRUCTIONS = 12
INSTRUCTIONS_PER_MATRIX_OP = 8
INSTRUCTIONS_PER_FMA = 1.15
# A narrow copy loop keeps about two loads in flight before it stores; wide ones are few and go out together.
NARROW_LOADS_IN_FLIGHT = 2
WIDE_LOADS_IN_FLIGHT = 8
MACS_PER_MATRIX_OP = 2048  # m16n8k16
PASS_BYTES = 128
REGISTER_BYTES = 4


@dataclass(frozen=True)
class Schedule:
    """How a variant moves its tiles.

    Attributes:
        key: ``ldg``, ``cp_async3``, …, or a control's name.
        buffers: shared buffers.
        in_flight: tiles whose loads are outstanding while another is computed; 0 where nothing overlaps.
        copy: ``source`` as written, ``register`` widened through registers, ``async`` by cp.async, ``rows`` and
            ``boxes`` by bulk copies that one warp issues.
    """

    key: str
    buffers: int
    in_flight: int
    copy: Literal["source", "register", "async", "rows", "boxes"]


BASELINE = Schedule("baseline", 1, 0, "source")
VARIANTS = (
    Schedule("ldg", 2, 1, "register"),
    Schedule("ldg_single", 1, 1, "register"),
    Schedule("cp_async2", 2, 1, "async"),
    Schedule("cp_async3", 3, 2, "async"),
    Schedule("cp_async4", 4, 3, "async"),
    Schedule("bulk2", 2, 1, "rows"),
    Schedule("bulk3", 3, 2, "rows"),
    Schedule("bulk4", 4, 3, "rows"),
    Schedule("tma2", 2, 1, "boxes"),
    Schedule("tma3", 3, 2, "boxes"),
    Schedule("tma4", 4, 3, "boxes"),
)
# The steps that a gain is split into: only the width, then asynchronous but waited for at once.
WIDENED = Schedule("widen", 1, 0, "register")
# One more block per SM, because fewer registers are used: as many as the variant was compiled to.
CAPPED = Schedule("cap_registers", 1, 0, "source")
# Half of BK, alone and in rings: twice as many tiles of half the bytes and half the math.
RETILED = (
    Schedule("retile", 1, 0, "source"),
    Schedule("retile2", 2, 1, "async"),
    Schedule("retile3", 3, 2, "async"),
    Schedule("retile4", 4, 3, "async"),
)
ASYNC_WAITED = Schedule("async_waited", 2, 0, "async")


@dataclass(frozen=True)
class TileCost:
    """Cycles per tile on one SM, by pipe and joined (``cycles``).

    Attributes:
        alone: what one block takes by itself, waits included.
        filling: once per block: the first tile's wait, which nothing overlaps; 0 where every tile is waited for anyway.
    """

    issue: float
    shared: float
    math: float
    memory: float
    alone: float
    filling: float
    blocks_per_sm: int
    warps_per_sm: int
    cycles: float


def tile_cost(facts: PlanFacts, plan: Budget, arch: Arch, schedule: Schedule) -> TileCost | None:
    """Cycles per tile under a schedule; None when it cannot be built: no block fits, or no such copy carries it."""
    if not _carries(facts, arch, schedule):
        return None
    fit = occupancy(
        arch,
        plan.threads,
        _registers(facts, plan, arch, schedule),
        plan.smem_single_bytes + (schedule.buffers - 1) * plan.staged_bytes,
    )
    if fit.blocks_per_sm < 1:
        return None
    warps = -(-plan.threads // arch.warp_size)
    busy_schedulers = min(warps, arch.schedulers_per_sm)
    load_issue, load_passes = _load_phase(facts, plan, schedule)
    if schedule.copy in ("rows", "boxes"):  # no thread loads or stores, but shared memory takes the bytes in
        load_issue, load_passes = _issued(facts, plan, arch, schedule), facts.tile_bytes / PASS_BYTES / warps
    compute_issue = _compute_instructions(facts, plan, arch)
    read_passes = _shared_reads(facts, compute_issue)
    math_cycles = _macs(facts, plan, arch) / _mac_rate(facts, arch)

    compute_alone = max(
        warps * compute_issue / busy_schedulers,
        warps * read_passes,
        math_cycles,
        (facts.stall_cycles or 0.0) + arch.smem_latency_cycles,
    )
    waits = arch.l2_latency_cycles * _exposed_waits(facts, plan, schedule)
    # With stages the wait for a tile is spread over the tiles that are computed meanwhile.
    waited = max(waits / schedule.in_flight, compute_alone) if schedule.in_flight else waits + compute_alone
    alone = waited + warps * load_issue / busy_schedulers

    issue = warps * (load_issue + compute_issue + TILE_INSTRUCTIONS) / arch.schedulers_per_sm
    shared = warps * (load_passes + read_passes)
    memory = facts.tile_bytes / arch.l2_bytes_per_cycle
    resident = _resident_blocks(facts, fit.blocks_per_sm)
    figures = (issue, shared, math_cycles, memory, alone / resident)
    cycles = sum(figure**SMOOTHNESS for figure in figures) ** (1 / SMOOTHNESS)
    filling = arch.l2_latency_cycles / resident if schedule.in_flight else 0.0
    return TileCost(issue, shared, math_cycles, memory, alone, filling, fit.blocks_per_sm, fit.warps_per_sm, cycles)


def predicted_speedup(facts: PlanFacts, baseline: TileCost, variant: TileCost, tiles_per_tile: int = 1) -> float:
    """Baseline's time over the variant's for a whole K-loop, the filling of the pipeline included.

    Args:
        tiles_per_tile: tiles of the variant that do the work of one of the baseline.
    """
    if facts.num_tiles is None:
        return baseline.cycles / (tiles_per_tile * variant.cycles)
    tiles = max(facts.num_tiles, 1)
    whole = tiles * baseline.cycles + baseline.filling
    return whole / (tiles_per_tile * tiles * variant.cycles + variant.filling)


def halved(facts: PlanFacts, plan: Budget) -> tuple[PlanFacts, Budget]:
    """The same kernel at half of BK."""

    def half(value: float | None) -> float | None:
        return None if value is None else value / 2

    copies = tuple(replace(copy, tile_bytes=copy.tile_bytes // 2) for copy in facts.copies)
    reads = facts.shared_loads
    small = replace(
        facts,
        copies=copies,
        BK=None if facts.BK is None else facts.BK // 2,
        num_tiles=None if facts.num_tiles is None else 2 * facts.num_tiles,
        math_per_tile=half(facts.math_per_tile),
        compute_instructions=half(facts.compute_instructions),
        load_instructions=half(facts.load_instructions),
        stall_cycles=half(facts.stall_cycles),
        shared_loads=None if reads is None else {name: count / 2 for name, count in reads.items()},
    )
    kept_bytes = plan.smem_single_bytes - plan.staged_bytes
    staged_bytes = plan.staged_bytes // 2
    return small, replace(plan, smem_single_bytes=kept_bytes + staged_bytes, staged_bytes=staged_bytes)


def estimated_inputs(facts: PlanFacts) -> tuple[str, ...]:
    """Which inputs of the model were not given and are assumed; each widens the range."""
    inputs: Mapping[str, object] = {
        "instructions of the load phase": facts.load_instructions,
        "instructions of the compute phase": facts.compute_instructions,
        "loads in flight": facts.loads_in_flight,
        "shared-memory reads": facts.shared_loads,
    }
    return tuple(name for name, value in inputs.items() if value is None)


def _carries(facts: PlanFacts, arch: Arch, schedule: Schedule) -> bool:
    """Whether the architecture has such copies, and they can carry all of the kernel's."""
    match schedule.copy:
        case "async":
            return arch.has_cp_async and all(c.async_bytes is not None for c in facts.copies)
        case "rows":
            return arch.has_bulk and all(c.rows is not None for c in facts.copies)
        case "boxes":
            return arch.has_bulk and all(c.boxed for c in facts.copies)
    return True


def _issued(facts: PlanFacts, plan: Budget, arch: Arch, schedule: Schedule) -> float:
    """Instructions per warp for one tile by bulk copies: one warp issues them for all."""
    warps = -(-plan.threads // arch.warp_size)
    copies = sum((c.rows or 1) if schedule.copy == "rows" else 1 for c in facts.copies)
    return BULK_TILE_INSTRUCTIONS + copies * BULK_COPY_INSTRUCTIONS / warps


def _width(copy: CopyFacts, schedule: Schedule) -> int:
    if schedule.copy == "async" and copy.async_bytes is not None:
        return copy.async_bytes
    if schedule.copy == "register" and copy.widened_bytes is not None:
        return copy.widened_bytes
    return copy.load_bytes


def _copies_per_thread(copy: CopyFacts, plan: Budget, schedule: Schedule) -> float:
    return copy.tile_bytes / (plan.threads * _width(copy, schedule))


def _passes(width_bytes: float) -> float:
    """Passes of one warp's access of so many bytes per lane; a narrow one takes a whole pass all the same."""
    return max(1.0, 32 * width_bytes / PASS_BYTES)


def _load_phase(facts: PlanFacts, plan: Budget, schedule: Schedule) -> tuple[float, float]:
    """Instructions per warp, and passes of the load/store pipe per warp, for bringing in one tile."""
    instructions = passes = 0.0
    for copy in facts.copies:
        width = _width(copy, schedule)
        count = _copies_per_thread(copy, plan, schedule)
        whole = min(count, _copies_per_thread(copy, plan, BASELINE))
        instructions += whole * _copy_instructions(facts, plan, copy) + (count - whole) * PIECE_INSTRUCTIONS
        passes += count * (1 + _passes(width))
        if schedule.copy != "async":
            pieces = width / facts.element_bytes if copy.scattered else 1
            passes += count * pieces * _passes(width / pieces)
    return instructions, passes


def _copy_instructions(facts: PlanFacts, plan: Budget, copy: CopyFacts) -> float:
    """Instructions for one copy: the baseline's own average where the SASS gave it."""
    if facts.load_instructions is not None:
        return facts.load_instructions / sum(_copies_per_thread(each, plan, BASELINE) for each in facts.copies)
    return GUARDED_COPY_INSTRUCTIONS if copy.guarded else PLAIN_COPY_INSTRUCTIONS


def _exposed_waits(facts: PlanFacts, plan: Budget, schedule: Schedule) -> float:
    """How many times a tile's loads are waited for, one after the other."""
    if schedule.in_flight or schedule.copy == "async":
        return 1.0  # rows and boxes are always in flight
    loads = sum(_copies_per_thread(copy, plan, schedule) for copy in facts.copies)
    narrow = any(_width(copy, schedule) < REGISTER_BYTES for copy in facts.copies)
    in_flight: float = NARROW_LOADS_IN_FLIGHT if narrow else WIDE_LOADS_IN_FLIGHT
    if schedule.copy == "source" and facts.loads_in_flight is not None:
        in_flight = facts.loads_in_flight
    return max(1.0, loads / max(in_flight, 1.0))


def _registers(facts: PlanFacts, plan: Budget, arch: Arch, schedule: Schedule) -> int:
    if schedule.key in facts.variant_registers:
        return facts.variant_registers[schedule.key]
    if schedule.copy != "register" or not schedule.in_flight:
        return plan.registers
    # A load narrower than a register still takes a whole one.
    staged = sum(
        math.ceil(_copies_per_thread(copy, plan, schedule)) * -(-_width(copy, schedule) // REGISTER_BYTES)
        for copy in facts.copies
    )
    return min(plan.registers + staged, arch.max_registers_per_thread)


def _macs(facts: PlanFacts, plan: Budget, arch: Arch) -> float:
    """Multiply-adds per block and tile."""
    if facts.BM is not None and facts.BN is not None and facts.BK is not None:
        return float(facts.BM * facts.BN * facts.BK)
    per_op = arch.warp_size if facts.math_kind == "fma" else MACS_PER_MATRIX_OP
    return (facts.math_per_tile or 0.0) * per_op * -(-plan.threads // arch.warp_size)


def _mac_rate(facts: PlanFacts, arch: Arch) -> float:
    if facts.math_kind == "fma":
        return arch.fma_lanes_per_cycle
    if facts.macs_per_cycle is not None:
        return facts.macs_per_cycle
    if facts.element_bytes == 1:
        return arch.int8_mac_per_cycle
    # TF32 runs at half the rate of the 16-bit types.
    return arch.fp16_mac_per_cycle * (1.0 if facts.element_bytes == 2 else 0.5)


def _compute_instructions(facts: PlanFacts, plan: Budget, arch: Arch) -> float:
    """Instructions per warp in the compute phase of a tile."""
    if facts.compute_instructions is not None:
        return facts.compute_instructions
    fma = facts.math_kind == "fma"
    ops = facts.math_per_tile
    if ops is None:
        per_op = arch.warp_size if fma else MACS_PER_MATRIX_OP
        ops = _macs(facts, plan, arch) / per_op / -(-plan.threads // arch.warp_size)
    return ops * (INSTRUCTIONS_PER_FMA if fma else INSTRUCTIONS_PER_MATRIX_OP)


def _shared_reads(facts: PlanFacts, compute_instructions: float) -> float:
    """Passes per warp and tile of the compute phase's reads."""
    if facts.shared_loads is None or facts.pitch_a_bytes is None or facts.pitch_b_bytes is None:
        if facts.math_kind == "wmma" and facts.element_bytes == 1:
            # WMMA gathers a row-major B byte by byte: one instruction in four reads, with four-way conflicts.
            return compute_instructions
        return compute_instructions / (16 if facts.math_kind == "fma" else 4)
    return shared_read_wavefronts(
        facts.shared_loads,
        facts.element_bytes,
        facts.pitch_a_bytes,
        facts.pitch_b_bytes,
        matrix=facts.math_kind != "fma",
    )


def _resident_blocks(facts: PlanFacts, blocks_per_sm: int) -> int:
    """A launch of few blocks does not fill the SMs."""
    if facts.blocks is None or facts.sms is None:
        return blocks_per_sm
    return max(1, min(blocks_per_sm, -(-facts.blocks // facts.sms)))
