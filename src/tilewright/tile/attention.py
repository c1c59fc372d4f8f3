"""Candidates of attention's forward pass: a block keeps bm queries and walks the keys in tiles of bn. **Not
calibrated.**

Per tile of keys: two products of bm · bn · d multiply-adds; an exponential and some FP32 work per score; every warp
reads the whole tiles of K and V from shared memory. The machine's rates are the GEMM model's.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.skeleton.attention import AttentionTile, attention_smem_bytes, why_no_attention
from tilewright.tile.candidate import Candidate, bound_by, common_warnings, fit, useful_share, vector_bytes
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, element
from tilewright.tile.parameters import CostParameters

QUERIES = (64, 128)
KEYS = (32, 64, 128)
WARPS = (4, 8)
STAGES = (1, 2, 3)
BASE_REGISTERS = 48
REGISTER_BYTES = 4
# Per score: scale, running maximum, subtraction, sum, conversion.
FP32_PER_SCORE = 6


def attention_candidates(op: Attention, machine: Machine, cost: CostParameters) -> tuple[Candidate, ...]:
    """The tiles that fit a block on an SM. Fastest first; empty where none does."""
    found = [_candidate(op, machine, cost, *choice) for choice in _choices(op, machine)]
    return tuple(sorted(found, key=lambda candidate: candidate.time_us))


def why_no_attention_tile(op: Attention, machine: Machine) -> str:
    """Why not even the smallest tile of the axes is made; a sentence."""
    tile = AttentionTile(QUERIES[0], KEYS[0], WARPS[0], STAGES[0])
    why = why_no_attention(tile, op.d, machine.arch)
    return why or f"a head of {op.d} needs more than {machine.arch.max_registers_per_thread} registers per thread."


def smem_bytes(op: Attention, bm: int, bn: int, stages: int) -> int:
    """Shared bytes per block: the queries, and ``stages`` tiles of keys and of values."""
    return attention_smem_bytes(AttentionTile(bm, bn, 1, stages), op.d)


def registers_estimate(op: Attention, bm: int, bn: int, warps: int, warp_size: int) -> int:
    """Registers per thread: output sums, scores, probabilities as operands, fragments, addresses."""
    threads = warps * warp_size
    scores = bm * bn // threads
    halves = scores * element(op.dtype).item_bytes // REGISTER_BYTES
    return bm * op.d // threads + scores + halves + BASE_REGISTERS


def _tiles_of_a_block(op: Attention, bm: int, bn: int) -> float:
    """Tiles of keys that a block walks, on average: under the mask only those up to its last query."""
    if not op.causal:
        return -(-op.n // bn)
    blocks = -(-op.n // bm)
    if bm >= bn:  # the axes divide one another
        whole = bm // bn * (blocks - 1) * blocks // 2
    else:
        groups, rest = divmod(blocks - 1, bn // bm)
        whole = bn // bm * groups * (groups + 1) // 2 + rest * (groups + 1)
    return (whole + -(-op.n // bn)) / blocks


def _choices(op: Attention, machine: Machine) -> Iterator[tuple[int, int, int, int]]:
    arch = machine.arch
    for bm in QUERIES:
        for bn in KEYS:
            for warps in WARPS:
                for stages in STAGES:
                    registers = registers_estimate(op, bm, bn, warps, arch.warp_size)
                    buildable = not why_no_attention(AttentionTile(bm, bn, warps, stages), op.d, arch)
                    if buildable and registers <= arch.max_registers_per_thread:
                        yield bm, bn, warps, stages


def _candidate(
    op: Attention, machine: Machine, cost: CostParameters, bm: int, bn: int, warps: int, stages: int
) -> Candidate:
    arch, sms = machine.arch, machine.device.sms
    item_bytes, threads = element(op.dtype).item_bytes, warps * arch.warp_size
    smem, registers = smem_bytes(op, bm, bn, stages), registers_estimate(op, bm, bn, warps, arch.warp_size)
    blocks = -(-op.n // bm) * op.b * op.h
    found = fit(arch, sms, threads, registers, smem, blocks)
    tiles = _tiles_of_a_block(op, bm, bn)
    tile_bytes = 2 * bn * op.d * item_bytes
    cycles = {
        "tensor": 2 * bm * bn * op.d / (machine.mac_per_cycle(op.dtype) * cost.mma_share),
        "exp": bm * bn / arch.exp_per_cycle,
        "math": FP32_PER_SCORE * bm * bn / arch.fma_lanes_per_cycle,
        "shared": (warps + 1) * tile_bytes / (arch.smem_bytes_per_cycle * cost.shared_share),
        "l2": tile_bytes / (arch.l2_bytes_per_cycle * cost.l2_share),
    }
    # Of one block the products, the exponentials and the wait for the next tile follow each other.
    wait = cost.load_latency_cycles / stages if stages > 1 else cost.load_latency_cycles
    alone = cycles["tensor"] + cycles["exp"] + cycles["math"] + cost.barrier_cycles
    alone = max(alone, wait) if stages > 1 else alone + wait
    busiest = -(-blocks // sms)
    resident = max(1, min(found.blocks_per_sm, busiest))
    per_us = machine.clock_hz * 1e-6
    terms = {name: busiest * tiles * value / per_us for name, value in cycles.items()}
    terms["waits"] = -(-busiest // resident) * tiles * alone / per_us
    terms["ends"] = -(-busiest // resident) * (cost.prologue_cycles + cost.epilogue_cycles) / per_us
    terms["dram"] = op.unique_bytes / (machine.device.dram_bytes_per_s * cost.dram_share) * 1e6
    terms["launch"] = cost.launch_us
    pipes = [terms[name] for name in (*cycles, "waits", "dram")]
    joined = float(sum(us**cost.smoothness for us in pipes)) ** (1 / cost.smoothness)
    useful = {"n": useful_share(op.n, bm)}
    sums = bm * op.d // threads
    return Candidate(
        label=f"q{bm} k{bn} w{warps} s{stages}",
        parameters={"bm": bm, "bn": bn, "warps": warps, "stages": stages},
        threads=threads,
        smem_bytes=smem,
        smem_by_stages={s: smem_bytes(op, bm, bn, s) for s in STAGES},
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
        vector_bytes={"q": vector_bytes(op.d, item_bytes)},
        l2_bytes=blocks * tiles * tile_bytes,
        dram_bytes=op.unique_bytes,
        time_us=joined + terms["ends"] + terms["launch"],
        terms_us=terms,
        bound_by=bound_by(terms),
        warnings=tuple(common_warnings(arch, found, sms, blocks, useful, f"{sums} sums per thread", "a smaller tile")),
    )
