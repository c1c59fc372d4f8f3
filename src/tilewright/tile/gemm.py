"""Candidates of a matrix product: the legal space, timed at once, and the table rows of those that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tilewright.skeleton.gemm import GemmTile
from tilewright.tile import resources
from tilewright.tile.candidate import Candidate, bound_by, common_warnings, fit, useful_share, vector_bytes
from tilewright.tile.columns import Columns, columns
from tilewright.tile.gemm_time import GemmTime, gemm_time
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Gemm, element
from tilewright.tile.parameters import CostParameters
from tilewright.tile.space import STAGES, legal_space

# Sums per thread from which a kernel keeps enough products in flight at low occupancy.
ILP_SUMS = 32
LARGE_LOOP_STAGES = 3
# Predicted times within this of each other are the same.
ALIKE = 0.002
PIPES = ("tensor", "shared", "issue", "l2")


@dataclass(frozen=True)
class TimedSpace:
    """The legal space of an op on a card with its predicted times; ``order`` are indices, fastest first."""

    op: Gemm
    machine: Machine
    tiles: tuple[GemmTile, ...]
    space: Columns
    time: GemmTime
    order: tuple[int, ...]

    @property
    def best(self) -> GemmTile:
        """The tile with the least predicted time."""
        return self.tiles[self.order[0]]


def timed_space(
    op: Gemm,
    machine: Machine,
    cost: CostParameters,
    tiles: Sequence[GemmTile] | None = None,
    registers: Sequence[int] | None = None,
) -> TimedSpace:
    """Time a space: the whole legal one, or these tiles (with compiled registers where they are known)."""
    chosen = tuple(legal_space(op, machine.arch, machine.device) if tiles is None else tiles)
    space = columns(chosen, op.dtype, machine.arch, registers)
    time = gemm_time(op, space, machine, cost)
    # Where the model sees no difference, walking in groups comes first (it never fetches more), then the axes' order.
    alike = np.round(np.log(time.seconds) / ALIKE)
    order = tuple(int(i) for i in np.lexsort((time.seconds, -space.group_m, alike)))
    return TimedSpace(op, machine, chosen, space, time, order)


def candidate(timed: TimedSpace, index: int, spill_bytes: int | None = None, compiled: bool = False) -> Candidate:
    """The table row of one tile.

    Args:
        compiled: the space was made with compiled registers.
        spill_bytes: of the compiled kernel.
    """
    op, tile, arch, device = timed.op, timed.tiles[index], timed.machine.arch, timed.machine.device
    threads, smem = resources.threads(tile, arch), resources.smem_bytes(tile, op.dtype)
    registers = int(timed.space.registers[index])
    estimated = resources.registers_estimate(tile, op.dtype, arch)
    blocks = int(timed.time.blocks[index])
    found = fit(arch, device.sms, threads, registers, smem, blocks)
    useful = {"m": useful_share(op.m, tile.bm), "n": useful_share(op.n, tile.bn), "k": useful_share(op.k, tile.bk)}
    sums = resources.accumulators(tile, arch)
    ilp = f"{sums} sums per thread" if sums >= ILP_SUMS and tile.stages >= LARGE_LOOP_STAGES else ""
    terms = terms_us(timed, index)
    item_bytes, out_bytes = element(op.dtype).item_bytes, element(op.out_dtype).item_bytes
    vectors = {
        "a": vector_bytes(op.k, item_bytes),
        "b": vector_bytes(op.n, item_bytes),
        "c": vector_bytes(op.n, out_bytes),
    }
    narrow = [f"Rows of {name.upper()} allow {w}-byte accesses only." for name, w in vectors.items() if w < 16]
    return Candidate(
        label=label(tile),
        parameters={str(name): int(value) for name, value in asdict(tile).items()},
        threads=threads,
        smem_bytes=smem,
        registers=estimated,
        needs_opt_in=found.needs_opt_in,
        blocks_per_sm=found.blocks_per_sm,
        warps_per_sm=found.warps_per_sm,
        occupancy=found.share,
        limiter=found.limiter,
        blocks=blocks,
        waves=found.waves,
        tail=found.tail,
        useful=useful,
        vector_bytes=vectors,
        l2_bytes=float(timed.time.traffic.l2_bytes[index]),
        dram_bytes=float(timed.time.traffic.dram_bytes[index]),
        time_us=float(timed.time.seconds[index]) * 1e6,
        terms_us=terms,
        bound_by=bound_by(terms),
        smem_by_stages={s: resources.smem_of(tile, op.dtype, s) for s in STAGES},
        registers_compiled=registers if compiled else None,
        spill_bytes=spill_bytes,
        warnings=tuple(common_warnings(arch, found, device.sms, blocks, useful, ilp) + narrow),
    )


def label(tile: GemmTile) -> str:
    """``128x256x32 w2x4 s4``, with the split and the group where there are any."""
    text = f"{tile.bm}x{tile.bn}x{tile.bk} w{tile.warps_m}x{tile.warps_n} s{tile.stages}"
    text += f" split{tile.split_k}" if tile.split_k > 1 else ""
    return text + (f" g{tile.group_m}" if tile.group_m > 1 else "")


def terms_us(timed: TimedSpace, index: int) -> dict[str, float]:
    """Microseconds on the busiest SM by pipe, if only that one mattered, and what comes beside the K-loop."""
    time, tile, op = timed.time, timed.tiles[index], timed.op
    per_us = timed.machine.clock_hz * 1e-6
    k_tiles = -(-op.k // tile.bk)
    steps = -(-k_tiles // tile.split_k)
    busiest = -(-int(time.blocks[index]) // timed.machine.device.sms)
    whole = {name: busiest * steps * float(getattr(time.pipes, name)[index]) / per_us for name in PIPES}
    # What a block waits beyond the time in which the pipes are filled by it and its neighbours.
    filled = float(time.resident[index]) * max(float(getattr(time.pipes, name)[index]) for name in PIPES)
    waited = max(float(time.alone[index]) - filled, 0.0)
    whole["waits"] = float(time.rounds[index]) * steps * waited / per_us
    whole["ends"] = float(time.ends_s[index]) * 1e6
    whole["dram"] = float(time.dram_s[index]) * 1e6
    whole["reduce"] = float(time.reduce_s[index]) * 1e6
    return whole
