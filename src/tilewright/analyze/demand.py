"""What one block asks of its SM over the whole launch (or over one trip, where the number of trips is not known)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.analyze.hot_loop import ASYNC_COPIES, GLOBAL_LOADS, GLOBAL_STORES, LOCAL, SHARED_STORES, HotLoop
from tilewright.analyze.serial import serial
from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.sass.listing import Instruction
from tilewright.sass.operands import MATRIX, access_bytes, is_barrier

WARP = 32
PASS_BYTES = 128
SECTOR_BYTES = 32
_PACKED = re.compile(r"^(\d{3,5})$")
_SPELLED = re.compile(r"^(\d+)x(\d+)x(\d+)$")
# The shapes as SASS packs them into one number, m, n, k.
_SHAPES = {"884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16), "16832": (16, 8, 32),
           "16864": (16, 8, 64), "8816": (8, 8, 16), "8832": (8, 8, 32), "168128": (16, 8, 128)}  # fmt: skip
_FMA = frozenset({"FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2", "FFMA2", "FADD2", "FMUL2"})
# One half of the multiply-add pipe does these too: they take its issue slots, and are no faster than that half.
_MULTIPLY = frozenset({"IMAD", "IDP", "IMUL"})
_ALU = frozenset(
    {"IADD3", "IADD", "LOP3", "SHF", "LEA", "ISETP", "FSETP", "SEL", "FSEL", "PRMT", "VIADD", "IMNMX", "FMNMX",
     "VIMNMX", "IABS", "HSETP2", "HMNMX2", "PLOP3", "P2R", "R2P", "LEA32I", "MOV"}
)  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Memory traffic of one block, counted by the emulator.

    Attributes:
        requests: of warps to global memory; sectors: of 32 bytes, that they touched; ideal_sectors: that would do.
        wavefronts: passes over shared memory; ideal_wavefronts: without bank conflicts.
        instructions: of PTX, of warps.
        requested_bytes: of global memory, that lanes asked for.
    """

    requests: float
    sectors: float
    ideal_sectors: float
    wavefronts: float
    ideal_wavefronts: float
    instructions: float
    requested_bytes: float


@dataclass(frozen=True)
class Demand:
    """Cycles that each part of an SM works for one block, and what one block takes alone.

    Attributes:
        issue: of the schedulers. lsu: of the pipe to L1 and shared memory.
        l2_bytes: to and from L2, as far as L1 does not hold them.
        pipes: of the math pipes by name (``tensor``, ``fma``, ``multiply``, ``alu``, ``mufu``).
        alone: of a block that has the SM to itself. global_wait, near_wait: of that, waiting.
        trips: of the hot loop; 1.0 where they are not known, and then everything is of one trip.
        is_whole: the figures are of the whole block, not of a trip.
    """

    issue: float
    lsu: float
    l2_bytes: float
    pipes: Mapping[str, float]
    alone: float
    global_wait: float
    near_wait: float
    trips: float
    is_whole: bool
    macs: Mapping[str, float] = field(default_factory=dict)


def demand_of(
    loop: HotLoop,
    arch: Arch,
    device: Device | None,
    warps: int,
    trips: float | None,
    traffic: Traffic | None,
) -> Demand:
    """The demand of one block of so many warps.

    Args:
        device: for the rate of warp-group matrix instructions, which the card's dense peaks give.
        trips: of the hot loop, per block; None where they are not known.
        traffic: counted; without it accesses are taken as coalesced and free of bank conflicts.
    """
    rounds = 1.0 if trips is None else trips
    one = serial(loop.trip, arch, loop.kind != "straight")
    near = warps * _lsu_passes(loop.trip) * rounds
    far = warps * _global_bytes(loop.trip) * rounds
    issue = warps * len(loop.trip) * rounds
    is_whole = trips is not None or loop.kind == "straight"
    if traffic is not None and is_whole:
        near = global_passes(traffic) + traffic.wavefronts
        near += warps * sum(i.opcode in LOCAL for i in loop.trip) * rounds
        far = traffic.sectors * SECTOR_BYTES
        issue = max(issue, traffic.instructions if loop.kind == "straight" else 0.0)
    pipes = {k: warps * v * rounds for k, v in _pipe_cycles(loop.trip, arch, device).items()}
    alone = one.cycles * rounds
    if any(map(is_barrier, loop.trip)):
        # Barriers keep the warps of a block in one phase: while it waits for loads, none of its pipes works.
        busiest = max(near, issue / arch.schedulers_per_sm, *pipes.values(), 0.0)
        alone = one.global_wait * rounds + max(alone - one.global_wait * rounds, busiest)
    return Demand(
        issue=issue / arch.schedulers_per_sm,
        lsu=near,
        l2_bytes=far,
        pipes=pipes,
        alone=alone,
        global_wait=one.global_wait * rounds,
        near_wait=one.near_wait * rounds,
        trips=rounds,
        is_whole=is_whole,
        macs={k: warps * v * rounds for k, v in matrix_macs(loop.trip).items()},
    )


def global_passes(traffic: Traffic) -> float:
    """Passes of the requests to global memory: 128 bytes each, and one for every sector that lies apart."""
    apart = traffic.sectors - traffic.ideal_sectors
    return max(traffic.requests, traffic.ideal_sectors * SECTOR_BYTES / PASS_BYTES) + apart


def matrix_macs(trip: Sequence[Instruction]) -> dict[str, float]:
    """Multiply-adds of a warp's matrix instructions, by opcode; of a warp group's, each warp does a quarter."""
    out: dict[str, float] = {}
    for i in trip:
        if MATRIX.match(i.opcode) and (size := _macs(i)):
            out[i.opcode] = out.get(i.opcode, 0.0) + size
    return out


def _macs(instruction: Instruction) -> float:
    for modifier in instruction.modifiers:
        if spelled := _SPELLED.match(modifier):
            m, n, k = (int(x) for x in spelled.groups())
            return m * n * k / 4
        if _PACKED.match(modifier) and modifier in _SHAPES:
            m, n, k = _SHAPES[modifier]
            return m * n * k
    return 0.0


def _pipe_cycles(trip: Sequence[Instruction], arch: Arch, device: Device | None) -> dict[str, float]:
    """Cycles of each math pipe for one warp's trip."""
    out = {"tensor": 0.0, "fma": 0.0, "multiply": 0.0, "alu": 0.0, "mufu": 0.0}
    for i in trip:
        if i.opcode in _FMA | _MULTIPLY:
            out["fma"] += WARP / arch.fma_lanes_per_cycle
            out["multiply"] += WARP / arch.multiply_lanes_per_cycle if i.opcode in _MULTIPLY else 0.0
        elif i.opcode in _ALU:
            out["alu"] += WARP / arch.int_lanes_per_cycle
        elif i.opcode == "MUFU":
            out["mufu"] += WARP / arch.exp_per_cycle
    for opcode, macs in matrix_macs(trip).items():
        out["tensor"] += macs / mac_rate(opcode, trip, arch, device)
    return {name: cycles for name, cycles in out.items() if cycles}


def mac_rate(opcode: str, trip: Sequence[Instruction], arch: Arch, device: Device | None) -> float:
    """Multiply-adds per cycle and SM of a matrix instruction: 8-bit, 16-bit, or half of that for TF32.

    Those of warp groups reach the card's dense peak; ``mma.sync`` does not everywhere, and has rates of its own, which
    the card's peak may still be below: GeForce has half of them with FP32 sums.
    """
    is_narrow = opcode[0] in "IQ"
    is_tf32 = any(i.opcode == opcode and "TF32" in i.modifiers for i in trip)
    sums_fp16 = any(i.opcode == opcode and i.modifiers and "F32" not in i.modifiers for i in trip)
    name = "int8" if opcode[0] == "I" else "fp8" if is_narrow else "fp16"
    peak = device.peaks.get(f"{name}_acc16" if sums_fp16 else name, device.peaks.get(name)) if device else None
    rate = float(arch.int8_mac_per_cycle if is_narrow else arch.fp16_mac_per_cycle)
    if device is not None and peak:
        dense = peak / (2 * device.sms * device.boost_clock_hz)
        rate = dense if opcode.endswith("GMMA") else min(rate, dense)
    return rate * (0.5 if is_tf32 else 1.0)


def _lsu_passes(trip: Sequence[Instruction]) -> float:
    """Passes of one warp's accesses, as if none conflicted; asynchronous copies pass twice: L1, then shared memory."""
    total = 0.0
    for i in trip:
        passes = max(1.0, WARP * access_bytes(i) / PASS_BYTES)
        if i.opcode in GLOBAL_LOADS | GLOBAL_STORES | LOCAL | SHARED_STORES | {"LDS"}:
            total += passes
        elif i.opcode == "LDSM":
            total += next((int(m) for m in i.modifiers if m in ("2", "4")), 1)
        elif i.opcode == "LDGSTS":
            total += 1 + passes
    return total


def _global_bytes(trip: Sequence[Instruction]) -> float:
    moving = GLOBAL_LOADS | GLOBAL_STORES | (ASYNC_COPIES & {"LDGSTS"})
    return float(sum(max(WARP * access_bytes(i), SECTOR_BYTES) for i in trip if i.opcode in moving))
