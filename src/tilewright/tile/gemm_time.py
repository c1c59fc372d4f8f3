"""How long a GEMM takes with each tile: an analytical model, evaluated on a whole space at once.

Per tile of K and block, in SM cycles, as if the block had the SM to itself:

- *tensor*: multiply-adds over the rate of ``mma.sync``; warps that do not divide among the schedulers leave some idle;
- *shared*: bytes that ldmatrix reads (each warp its rows of A and columns of B: small warp tiles read more) and the
  copies write, over 128 bytes per cycle;
- *issue*: instructions over the schedulers;
- *l2*: bytes of the tile over what one SM takes in;
- *alone*: what one block takes by itself, waits included: per step a warp's products and the latency of its fragments
  that they do not hide, then the barrier; or the copies' latency over the stages that are on their way.

``c`` blocks on an SM share the first four and hide each other's waits, so a tile of each takes the smooth maximum of c
times those four and once *alone*. A block adds its prologue and epilogue, partly hidden where another one is resident.
The SM with the most blocks sets the time (waves and their tail); DRAM is a second limit beside it, from `traffic`; the
launch, and split-K's second pass, come on top.

Calibrated by ``benchmarks/tile_calibrate.py``; see ``data/cost.toml`` for where.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.tile import resources
from tilewright.tile.columns import Columns, Numbers
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Gemm, element
from tilewright.tile.parameters import CostParameters
from tilewright.tile.traffic import Traffic, traffic

SUM_BYTES = 4
MMA_MACS_OF_16_BIT = 2048  # m16n8k16; an instruction of 8-bit operands takes as long for twice as many


@dataclass(frozen=True)
class PipeCycles:
    """Cycles per tile of K and block, by what they are spent on; see the module's text."""

    tensor: Numbers
    shared: Numbers
    issue: Numbers
    l2: Numbers
    step: Numbers
    own: Numbers


@dataclass(frozen=True)
class GemmTime:
    """The prediction and what it is made of. Seconds per launch; one row per candidate.

    Attributes:
        seconds: of everything.
        pipes: cycles per tile of K.
        resident: blocks per SM that run at once, in the first wave.
        blocks: of the launch.
        rounds: waves, on the SM that has the most blocks.
        alone: cycles per tile of K of one of those blocks, waits for its copies included, if the pipes were its own.
    loop_s, ends_s: in the K-loops, and in prologues and epilogues, on that SM.
        dram_s: what DRAM alone would take.
        reduce_s: split-K's second pass.
        traffic: bytes.
    """

    seconds: Numbers
    pipes: PipeCycles
    resident: Numbers
    blocks: Numbers
    rounds: Numbers
    alone: Numbers
    loop_s: Numbers
    ends_s: Numbers
    dram_s: Numbers
    reduce_s: Numbers
    traffic: Traffic


def gemm_time(op: Gemm, space: Columns, machine: Machine, cost: CostParameters) -> GemmTime:
    """Predict every candidate of a space.

    Args:
        space: legal tiles, as columns.
    """
    sms, clock_hz = machine.device.sms, machine.clock_hz
    tiles = np.ceil(op.m / space.bm) * np.ceil(op.n / space.bn) * op.batch
    blocks = tiles * space.split_k
    steps = np.ceil(np.ceil(op.k / space.bk) / space.split_k)
    pipes = _pipes(op, space, blocks, machine, cost)

    busiest = np.ceil(blocks / sms)
    resident = np.minimum(space.fit, busiest)
    full = np.floor(busiest / resident)
    left = busiest - full * resident
    rounds = full + (left > 0)
    loop = full * steps * _together(pipes, resident, space, machine, cost)
    # Places are free in pairs and more: an SM that ends two blocks at once takes two, and others none.
    last = left + cost.clumping * np.where(full > 0, resident - left, 0.0)
    loop = loop + np.where(left > 0, steps * _together(pipes, np.maximum(last, 1.0), space, machine, cost), 0.0)
    ends = _ends(op, space, pipes, cost, resident)
    hidden = np.where(resident > 1, cost.overlap, 0.0)
    exposed = ends * (1 + (rounds - 1) * (1 - hidden))

    moved = traffic(op, space, np.minimum(blocks, resident * sms), cost.l2_usable_share * machine.device.l2_bytes)
    dram_bytes_per_s = machine.device.dram_bytes_per_s * cost.dram_share
    dram_s = moved.dram_bytes / dram_bytes_per_s
    reduce_s = _second_pass(op, space, cost)
    busy_s = (loop + exposed) / clock_hz
    # The first wave finds L2 empty: an order that touches everything at once waits for DRAM there.
    first_s = busy_s / rounds
    cold_s = np.minimum(moved.first_wave_bytes / dram_bytes_per_s, dram_s)
    run_s = _smooth_max(cost.smoothness, first_s, cold_s)
    run_s = run_s + np.where(rounds > 1, _smooth_max(cost.smoothness, busy_s - first_s, dram_s - cold_s), 0.0)
    seconds = cost.launch_us * 1e-6 + run_s + reduce_s
    return GemmTime(
        seconds=seconds,
        pipes=pipes,
        resident=resident,
        blocks=blocks,
        rounds=rounds,
        loop_s=loop / clock_hz,
        ends_s=exposed / clock_hz,
        dram_s=dram_s,
        reduce_s=reduce_s,
        alone=_alone(pipes, resident, space, cost),
        traffic=moved,
    )


def _pipes(op: Gemm, space: Columns, blocks: Numbers, machine: Machine, cost: CostParameters) -> PipeCycles:
    arch, item_bytes = machine.arch, element(op.dtype).item_bytes
    schedulers = arch.schedulers_per_sm
    rate = machine.mac_per_cycle(op.dtype) * cost.mma_share
    steps = space.bk * item_bytes / resources.MMA_K_BYTES
    products = (space.wm / resources.MMA_M) * (space.wn / resources.MMA_N)
    reads = space.wm / resources.MMA_M + space.wn / resources.LDMATRIX_N
    stage_bytes = (space.bm + space.bn) * space.bk * item_bytes
    read_bytes = space.warps * (space.wm + space.wn) * space.bk * item_bytes
    copies = stage_bytes / resources.COPY_BYTES / (space.warps * arch.warp_size)

    instructions = steps * (products + reads * cost.fragment_instructions)
    instructions = instructions + np.ceil(copies) * cost.copy_instructions + cost.tile_instructions
    one_product = space.bm * space.bn * space.bk / (space.warps * steps * products) * schedulers / rate
    step = products * one_product + cost.fragment_cycles
    # One SM's port, or its share of what L2 gives all SMs that ask.
    active = np.minimum(blocks, machine.device.sms)
    l2_share = np.minimum(cost.l2_port_share, cost.l2_share * machine.device.sms / active)
    return PipeCycles(
        tensor=space.bm * space.bn * space.bk / rate,
        shared=(read_bytes + stage_bytes) / (arch.smem_bytes_per_cycle * cost.shared_share),
        issue=space.warps * instructions / schedulers,
        l2=stage_bytes / (arch.l2_bytes_per_cycle * l2_share),
        step=step,
        own=steps * step + cost.barrier_cycles,
    )


def _together(pipes: PipeCycles, count: Numbers, space: Columns, machine: Machine, cost: CostParameters) -> Numbers:
    """Cycles in which each of ``count`` blocks on an SM gets one tile of K further."""
    schedulers = machine.arch.schedulers_per_sm
    warps = count * space.warps
    idle = np.ceil(warps / schedulers) * schedulers / warps
    return _smooth_max(
        cost.smoothness,
        count * pipes.tensor * idle,
        count * pipes.shared,
        count * pipes.issue * idle,
        count * pipes.l2,
        _alone(pipes, count, space, cost),
    )


def _alone(pipes: PipeCycles, count: Numbers, space: Columns, cost: CostParameters) -> Numbers:
    """Cycles per tile of K of one block that has the pipes to itself: its own work, or the wait for its copies.

    A tile's copies are issued ``stages - 1`` tiles before it is read, and waited for one step before that.
    """
    landed = cost.load_latency_cycles + count * pipes.l2
    alone: Numbers = np.maximum(pipes.own, (landed + pipes.step) / (space.stages - 1))
    return alone


def _ends(op: Gemm, space: Columns, pipes: PipeCycles, cost: CostParameters, resident: Numbers) -> Numbers:
    """Prologue and epilogue of the blocks that run at once, in cycles.

    Nothing runs beside the first tiles' way from L2. Of the results the first block's are written while nothing else
    runs, the others' partly while a block beside them still computes.
    """
    out_bytes = np.where(space.split_k > 1, SUM_BYTES, element(op.out_dtype).item_bytes)
    written = space.bm * space.bn * out_bytes / cost.store_bytes_per_cycle
    beside = (resident - 1) * (1 - cost.overlap)
    return cost.prologue_cycles + resident * pipes.l2 + cost.epilogue_cycles + written * (1 + beside)


def _second_pass(op: Gemm, space: Columns, cost: CostParameters) -> Numbers:
    outputs = op.batch * op.m * op.n
    moved = outputs * (space.split_k * SUM_BYTES + element(op.out_dtype).item_bytes)
    return np.where(space.split_k > 1, cost.second_pass_us * 1e-6 + moved / cost.reduce_bytes_per_s, 0.0)


def _smooth_max(exponent: float, *figures: Numbers | float) -> Numbers:
    """The p-norm: close to the largest, a little more where several are close to it."""
    largest = np.maximum(np.maximum.reduce(np.broadcast_arrays(*figures)), 1e-30)
    total = np.zeros_like(largest)
    for figure in figures:
        total = total + (figure / largest) ** exponent
    result: Numbers = largest * total ** (1 / exponent)
    return result
