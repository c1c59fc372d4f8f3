"""Candidates of ops that memory decides: row reductions and elementwise. **Not calibrated**: first principles only.

The time is the larger of two: all unique bytes at what DRAM delivers, and Little's law: the bytes that resident threads
keep in flight, delivered once per DRAM latency. Rows add their reduction (shuffles, then a barrier where several warps
share a row), which resident blocks hide from each other; split rows add a second pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.skeleton.rows import STATE_FLOATS
from tilewright.tile.candidate import Candidate, bound_by, common_warnings, fit, useful_share, vector_bytes
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Elementwise, RowReduction, element
from tilewright.tile.parameters import CostParameters

THREADS = (128, 256, 512, 1024)
LOADS = (1, 2, 4, 8)  # independent loads per thread
SPLITS = (1, 2, 4, 8, 16, 32, 64)
BASE_REGISTERS = 24
REGISTER_BYTES = 4
SHUFFLE_CYCLES = 30  # a shuffle and an addition that depend on each other, per level
BARRIER_CYCLES = 40


def row_candidates(op: RowReduction, machine: Machine, cost: CostParameters) -> tuple[Candidate, ...]:
    """One warp or one block per row, or several blocks where there are fewer rows than SMs. Fastest first."""
    return _legal([_row(op, machine, cost, *choice) for choice in _row_choices(op, machine)], machine)


def elementwise_candidates(op: Elementwise, machine: Machine, cost: CostParameters) -> tuple[Candidate, ...]:
    """Threads and loads per thread. Fastest first."""
    found = [_elementwise(op, machine, cost, threads, loads) for threads in THREADS for loads in LOADS]
    return _legal(found, machine)


def _legal(found: list[Candidate], machine: Machine) -> tuple[Candidate, ...]:
    """Those of which an SM holds a block with the registers that they need; the others would spill. Fastest first."""
    most = machine.arch.max_registers_per_thread
    legal = [c for c in found if c.blocks_per_sm and c.registers <= most]
    return tuple(sorted(legal, key=lambda candidate: candidate.time_us))


def _row_choices(op: RowReduction, machine: Machine) -> Iterator[tuple[int, int, int, int]]:
    warp = machine.arch.warp_size
    per_vector = max(1, vector_bytes(op.c, element(op.dtype).item_bytes) // element(op.dtype).item_bytes)
    for threads in THREADS:
        for loads in LOADS:
            if loads * warp * per_vector <= max(op.c, warp * per_vector):
                yield threads, threads // warp, loads, 1  # a warp per row
            for split in SPLITS:
                part = -(-op.c // split)
                if loads * threads * per_vector <= max(part, threads * per_vector) and (
                    split == 1 or op.r * split <= 2 * machine.device.sms
                ):
                    yield threads, 1, loads, split


def _row(
    op: RowReduction, machine: Machine, cost: CostParameters, threads: int, rows: int, loads: int, split: int
) -> Candidate:
    arch, sms = machine.arch, machine.device.sms
    item_bytes = element(op.dtype).item_bytes
    width = vector_bytes(op.c, item_bytes)
    state_bytes = 4 * STATE_FLOATS["softmax" if op.writes_rows else "sum"]
    smem = 0 if rows > 1 else threads // arch.warp_size * state_bytes
    registers = BASE_REGISTERS + loads * width // REGISTER_BYTES * 2
    blocks = -(-op.r // rows) * split
    found = fit(arch, sms, threads, registers, smem, blocks)
    workers = arch.warp_size if rows > 1 else threads
    levels = math.log2(arch.warp_size) * (1 if rows > 1 else 2)  # of a row's warps, every warp merges the states
    reduce_cycles = levels * SHUFFLE_CYCLES + (0 if rows > 1 else BARRIER_CYCLES)
    rounds = -(-blocks // (max(found.blocks_per_sm, 1) * sms))
    per_pass = workers * loads * width // item_bytes
    # A part of a row that one pass does not hold is read again to be written: from L2, if it still is there.
    again = op.r * max(op.c - split * per_pass, 0) * item_bytes if op.writes_rows else 0
    moved = op.unique_bytes
    if split > 1:  # the second kernel reads the states, and all rows that it writes
        again = op.r * op.c * item_bytes if op.writes_rows else 0
        moved += 2 * op.r * split * state_bytes + again
    terms = _memory_terms(machine, cost, moved, min(blocks, found.blocks_per_sm * sms) * threads * loads * width)
    terms["ends"] = rounds * (reduce_cycles + cost.load_latency_cycles) / machine.clock_hz * 1e6
    terms["reduce"] = cost.second_pass_us if split > 1 else 0.0
    terms["launch"] = cost.launch_us
    useful = {"r": useful_share(op.r, rows), "c": useful_share(-(-op.c // split), per_pass)}
    text = f"{rows} rows" if rows > 1 else f"1/{split} row" if split > 1 else "1 row"
    parameters = {"threads": threads, "rows": rows, "loads": loads, "split": split}
    ilp = f"its {loads} loads per thread" if loads > 1 else ""
    return Candidate(
        label=f"{text} t{threads} l{loads}",
        parameters=parameters,
        threads=threads,
        smem_bytes=smem,
        registers=registers,
        needs_opt_in=found.needs_opt_in,
        blocks_per_sm=found.blocks_per_sm,
        warps_per_sm=found.warps_per_sm,
        occupancy=found.share,
        limiter=found.limiter,
        blocks=blocks,
        waves=found.waves,
        tail=found.tail,
        useful=useful,
        vector_bytes={"x": width},
        l2_bytes=moved + (again if split == 1 else 0),
        dram_bytes=moved,
        time_us=_total(terms),
        terms_us=terms,
        bound_by=bound_by(terms),
        warnings=tuple(common_warnings(arch, found, sms, blocks, useful, ilp, "fewer threads, or more parts of a row")),
    )


def _elementwise(op: Elementwise, machine: Machine, cost: CostParameters, threads: int, loads: int) -> Candidate:
    arch, sms = machine.arch, machine.device.sms
    item_bytes = element(op.dtype).item_bytes
    width = vector_bytes(op.n, item_bytes)
    registers = BASE_REGISTERS + (op.inputs + 1) * loads * width // REGISTER_BYTES
    blocks = -(-op.n * item_bytes // (threads * loads * width))
    found = fit(arch, sms, threads, registers, 0, blocks)
    flight = min(blocks, found.blocks_per_sm * sms) * threads * loads * width * op.inputs
    terms = _memory_terms(machine, cost, op.unique_bytes, flight)
    terms["ends"] = cost.load_latency_cycles / machine.clock_hz * 1e6
    terms["launch"] = cost.launch_us
    useful = {"n": useful_share(op.n, threads * loads * width // item_bytes)}
    ilp = f"its {loads} loads per thread" if loads > 1 else ""
    return Candidate(
        label=f"t{threads} l{loads} v{width}",
        parameters={"threads": threads, "loads": loads},
        threads=threads,
        smem_bytes=0,
        registers=registers,
        needs_opt_in=False,
        blocks_per_sm=found.blocks_per_sm,
        warps_per_sm=found.warps_per_sm,
        occupancy=found.share,
        limiter=found.limiter,
        blocks=blocks,
        waves=found.waves,
        tail=found.tail,
        useful=useful,
        vector_bytes={"x": width},
        l2_bytes=op.unique_bytes,
        dram_bytes=op.unique_bytes,
        time_us=_total(terms),
        terms_us=terms,
        bound_by=bound_by(terms),
        warnings=tuple(common_warnings(arch, found, sms, blocks, useful, ilp, "fewer threads or loads")),
    )


def _memory_terms(machine: Machine, cost: CostParameters, moved: float, in_flight: float) -> dict[str, float]:
    """What DRAM takes for the bytes, and what the bytes in flight take at one DRAM latency per filling."""
    latency_us = cost.load_latency_cycles / machine.clock_hz * 1e6
    dram_us = moved / (machine.device.dram_bytes_per_s * cost.stream_share) * 1e6
    return {"dram": dram_us, "flight": moved / max(in_flight, 1) * latency_us}


def _total(terms: dict[str, float]) -> float:
    own = ("launch", "ends", "reduce")
    return max(us for name, us in terms.items() if name not in own) + sum(terms.get(name, 0.0) for name in own)
