"""What a warp's accesses cost: its 32 lanes are followed to the K-loop, and round it, for the addresses they use.

Every lane is a `Thread` with its own index in the block; parameters all have one large value, which stands for large
row-major matrices. Where an address cannot be followed the access is left out, and its user assumes one of its width
without conflicts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import BULK_LOADS, MATRIX, access_bytes, register_name, split, writes
from tilewright.sass.steady import Step
from tilewright.sass.thread import Launch, Thread
from tilewright.sass.trace import trace_of, trips_of
from tilewright.sass.words import MASK, Word

LANES = 32
BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
LINE_BYTES = 128
_MATRIX_ROWS = 8
_SHARED = ("LDS", "STS", "LDSM", "STSM", "LDGSTS", "ATOMS")
_GLOBAL = ("LDG", "STG", "LDGSTS")
_UNFOLLOWED = re.compile(r"^(?:[FHD](?:ADD|MUL|FMA|SET|MNMX|SETP)2?|MUFU|F2FP|F2F|I2F|I2FP|FSEL)$")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_PAIR = re.compile(r"R(\d+)\.64")
_WHOLE_TRIPS = 2
# Addresses are nearly always sums over the bits of the lane's number: these are followed, and these must agree.
_BITS = (0, 1, 2, 4, 8, 16)
_CHECKS = (22, 31)
_MOST_WARPS = 8  # followed by their first lane
_CACHED = -1  # in place of a shared address
_MOST_STEPS = 60_000  # of one lane: beyond, following all of them takes longer than it is worth


@dataclass(frozen=True)
class Access:
    """One instruction's cost for a warp: the mean over its executions in a trip.

    Attributes:
        wavefronts: passes of shared memory's 32 banks; 0 for what touches global memory only.
        words: passes if lanes of different quarters or halves of the warp could share what they want alike.
        lines, sectors: distinct 128-byte lines and 32-byte sectors of global memory; 0 for shared memory only.
        lanes: how many take part.
    """

    wavefronts: float = 0.0
    lines: float = 0.0
    sectors: float = 0.0
    lanes: int = LANES
    words: float = 0.0


@dataclass(frozen=True)
class Followed:
    """What following the first warp showed.

    Attributes:
        accesses: what its accesses cost, by index of the instruction; those that were followed.
        trip: what its first lane executed in a trip that the one before equals; empty where a branch was guessed.
        others: the same of a warp that goes another way, where there is one.
        leading: share of the block's warps that go the first one's way.
    """

    accesses: dict[int, Access]
    trip: tuple[Step, ...]
    others: tuple[Step, ...] = ()
    leading: float = 1.0


def follow(function: Function, flow: Flow, loop: Loop, block: tuple[int, int, int]) -> Followed:
    """Follow the block's first warp round the K-loop.

    Args:
        loop: the K-loop. block: threads along x, y, z.
    """
    count = min(LANES, block[0] * block[1] * block[2])
    probed = [lane for lane in (*_BITS, *_CHECKS) if lane < count]
    first, trip = _follow(function, flow, loop, block, 0)
    some = {0: first} | {lane: _follow(function, flow, loop, block, lane)[0] for lane in probed[1:]}
    lanes = _spread(some, count) if count == LANES else None
    if lanes is None:
        rest = [lane for lane in range(count) if lane not in some]
        some |= {lane: _follow(function, flow, loop, block, lane)[0] for lane in rest}
        lanes = [some[lane] for lane in range(count)]
    found = {at: cost for at in {at for lane in lanes for at in lane} if (cost := _mean(function, at, lanes))}
    return Followed(found, trip, *_other_warps(function, flow, loop, block, trip))


def _other_warps(
    function: Function, flow: Flow, loop: Loop, block: tuple[int, int, int], trip: tuple[Step, ...]
) -> tuple[tuple[Step, ...], float]:
    """A trip of warps that go another way than the first, and the share of warps that do not."""
    warps = block[0] * block[1] * block[2] // LANES
    if not trip or warps < 2:
        return (), 1.0
    sample = range(0, warps, max(1, warps // _MOST_WARPS))
    trips = [trip, *(_follow(function, flow, loop, block, LANES * warp)[1] for warp in sample[1:])]
    different = [each for each in trips if each and each != trip]
    return (different[0], 1 - len(different) / len(trips)) if different else ((), 1.0)


def _mean(function: Function, at: int, lanes: list[_Seen]) -> Access | None:
    """Over the executions of an instruction in a trip."""
    rounds = max(len(lane.get(at, ())) for lane in lanes)
    costs = [_cost(function.instructions[at], [lane.get(at, [])[i : i + 1] for lane in lanes]) for i in range(rounds)]
    known = [cost for cost in costs if cost is not None]
    if not known:
        return None
    return Access(
        sum(c.wavefronts for c in known) / len(known),
        sum(c.lines for c in known) / len(known),
        sum(c.sectors for c in known) / len(known),
        max(c.lanes for c in known),
        sum(c.words for c in known) / len(known),
    )


_Seen = dict[int, list[tuple[Word, Word]]]  # by instruction, (shared address, global address) of each execution


def _follow(
    function: Function, flow: Flow, loop: Loop, block: tuple[int, int, int], lane: int
) -> tuple[_Seen, tuple[Step, ...]]:
    """The addresses that a lane uses in a trip, and the trip; none where it was not followed that far."""
    thread = _Lane(function.arch, lane, block)
    header = frozenset({loop.header})
    trace = trace_of(function, flow, thread.launch, header, thread=thread, most_trips=_WHOLE_TRIPS + 1)
    trips = trips_of(flow, loop, trace)
    if trips.count < _WHOLE_TRIPS or len(trace.steps) > _MOST_STEPS:
        return {}, ()
    trip = trips.steps(trace, trips.count - 1)
    last: dict[int, int] = defaultdict(int)
    for step in trip:
        last[step.at] += step.active
    inside = {i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)}
    is_sure = trace.guessed.isdisjoint(inside) and trip == trips.steps(trace, trips.count - 2)
    seen: _Seen = {}
    for at, count in last.items():
        if count and at in thread.seen:
            everything = thread.seen[at]
            again = everything[-count:] == everything[-2 * count : -count] and function.instructions[at].opcode == "LDG"
            # What the trip before has loaded lies in L1: no sector is fetched.
            seen[at] = [(_CACHED, far) if again else (shared, far) for shared, far in everything[-count:]]
    return seen, trip if is_sure else ()


def _spread(some: dict[int, _Seen], count: int) -> list[_Seen] | None:
    """All lanes' addresses, from those of lane 0 and of one lane for every bit; None where the others disagree."""

    def address(lane: int, at: int, i: int, which: int) -> Word:
        base = some[0][at][i][which]
        total = base
        for bit in _BITS[1:]:
            if lane & bit:
                other = some[bit][at][i][which]
                if base is None or other is None or total is None:
                    return None
                total += other - base
        return total

    shape = {at: len(seen) for at, seen in some[0].items()}
    if any({at: len(seen) for at, seen in lane.items()} != shape for lane in some.values()):
        return None
    spread: list[_Seen] = [
        {at: [(address(lane, at, i, 0), address(lane, at, i, 1)) for i in range(n)] for at, n in shape.items()}
        for lane in range(count)
    ]
    return spread if all(spread[lane] == seen for lane, seen in some.items()) else None


class _Lane(Thread):
    """A thread of the block, which notes the addresses of its accesses.

    `seen`: by index of the instruction, (shared address, global address) of each execution, in order.
    """

    def __init__(self, arch: str, lane: int, block: tuple[int, int, int]) -> None:
        super().__init__(arch, Launch(lane))
        self.index = (lane % block[0], lane // block[0] % block[1], lane // (block[0] * block[1]))
        self.lane = lane % LANES
        self.block = block
        self.seen: dict[int, list[tuple[Word, Word]]] = defaultdict(list)

    def step(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode in _SHARED or opcode in _GLOBAL or opcode in BULK_LOADS:
            if self.holds(instruction) != 0 and not instruction.is_off:
                self.seen[instruction.address // 16].append(self._addresses(instruction))
        elif _UNFOLLOWED.match(opcode) or MATRIX.match(opcode):  # no address depends on these
            for number in writes(instruction):
                self.registers.pop(register_name(number), None)
            if "SETP" not in opcode:
                return
        super().step(instruction)

    def _addresses(self, instruction: Instruction) -> tuple[Word, Word]:
        texts = [text for part in split(instruction.operands) for text in _BRACKETS.findall(part)[-1:]]
        shared: Word = None
        far: Word = None
        if instruction.opcode in BULK_LOADS:
            return None, None
        if instruction.opcode == "LDGSTS":
            shared, far = self.address(texts[0]), self._far(texts[-1])
        elif instruction.opcode in _GLOBAL:
            far = self._far(texts[-1])
        else:
            shared = self.address(texts[-1])
        return shared, far

    def _far(self, text: str) -> Word:
        """``R2.64+0x10``, ``R2.64+UR4+0x10``: a 64-bit address; its lower half where the upper one is not known."""
        found = _PAIR.search(text)
        if not found:
            return self.address(text)
        base = self.pair(f"R{found[1]}")
        base = self.word(f"R{found[1]}") if base is None else base
        rest = self.address(text.replace(found[0], "")) if text != found[0] else 0
        if base is None or rest is None:
            return None
        return base + (rest - (1 << 32) if rest >> 31 else rest)

    def _special(self, sources: tuple[str, ...]) -> Word:
        name = sources[0] if sources else ""
        if name.startswith("SR_TID."):
            return self.index["XYZ".index(name[-1])]
        return self.lane if name == "SR_LANEID" else super()._special(sources)

    def _carried(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        if base != "LEA" or modifiers:
            return super()._carried(base, modifiers, sources)
        words = [self.word(s) for s in sources if not s.endswith(("PT", "P0", "P1", "P2", "P3", "P4", "P5", "P6"))]
        if len(words) != 3 or None in words:
            return None
        low, base_word, shift = (word or 0 for word in words)
        return ((low << (shift & 31) & MASK) + base_word) >> 32 & 1

    def block_extent(self, axis: int) -> int:
        return self.block[axis]


def coalesced(instruction: Instruction) -> Access:
    """What an access costs when all lanes are neighbours and no two meet in a bank."""
    width = access_bytes(instruction)
    moved = LANES * width
    matrices = next((int(m) for m in instruction.modifiers if m in ("2", "4")), 1)
    wavefronts = matrices if instruction.opcode in ("LDSM", "STSM") else max(1, moved // (BANKS * BANK_BYTES))
    is_shared, is_far = instruction.opcode in _SHARED, instruction.opcode in _GLOBAL
    return Access(
        float(wavefronts * is_shared),
        float(max(1, moved // LINE_BYTES) * is_far),
        float(max(1, moved // SECTOR_BYTES) * is_far),
        words=float(wavefronts * is_shared),
    )


def _cost(instruction: Instruction, lanes: list[list[tuple[Word, Word]]]) -> Access | None:
    """What could not be followed is taken as `coalesced`; None where no lane takes part."""
    active = [lane[0] for lane in lanes if lane]
    if not active:
        return None
    width = access_bytes(instruction)
    usual = coalesced(instruction)
    wavefronts, lines, sectors, words = usual.wavefronts, usual.lines, usual.sectors, usual.words
    if instruction.opcode in _SHARED and all(shared is not None for shared, _ in active):
        if instruction.opcode in ("LDSM", "STSM"):
            matrices = next((int(m) for m in instruction.modifiers if m in ("2", "4")), 1)
            rows = [lane[0][0] for lane in lanes[: matrices * _MATRIX_ROWS] if lane]
            wavefronts = sum(
                conflicts([r for r in rows[i : i + _MATRIX_ROWS] if r is not None], 16)
                for i in range(0, len(rows), _MATRIX_ROWS)
            )
            words = wavefronts
        else:
            wanted = [lane[0][0] if lane else None for lane in lanes]
            wavefronts, words = conflicts(wanted, width), merged(wanted, width)
    if instruction.opcode in _GLOBAL and all(far is not None for _, far in active):
        touched = {far // SECTOR_BYTES for _, far in active if far is not None}
        is_cached = active[0][0] == _CACHED
        sectors = (
            0
            if is_cached
            else len(touched | {(far + width - 1) // SECTOR_BYTES for _, far in active if far is not None})
        )
        lines = len({sector * SECTOR_BYTES // LINE_BYTES for sector in touched})
    return Access(float(wavefronts), float(lines), float(sectors), len(active), float(words))


def conflicts(addresses: Sequence[Word], width_bytes: int) -> int:
    """Passes for one request: lanes that want the same word share it; 8 bytes go by half-warps, 16 by quarters.

    Args:
        addresses: of each lane, None for one that takes no part.
    """
    unit = max(BANK_BYTES, width_bytes)
    banks, group = BANKS * BANK_BYTES // unit, LANES * BANK_BYTES // unit
    passes = 0
    for first in range(0, len(addresses), group):
        units = {a // unit for a in addresses[first : first + group] if a is not None}
        busy: dict[int, int] = defaultdict(int)
        for u in units:
            busy[u % banks] += 1
        passes += max(busy.values(), default=0)
    return passes


def merged(addresses: Sequence[Word], width_bytes: int) -> int:
    """Passes for one request if a word is served to all lanes that want it at once, whichever they are."""
    words = {
        word
        for address in addresses
        if address is not None
        for word in range(address // BANK_BYTES, (address + width_bytes - 1) // BANK_BYTES + 1)
    }
    busy: dict[int, int] = defaultdict(int)
    for word in words:
        busy[word % BANKS] += 1
    return max(busy.values(), default=0)
