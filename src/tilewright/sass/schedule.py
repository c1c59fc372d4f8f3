"""The steady-state trip of the K-loop as what the pipes see of it: one slot for every instruction that issues."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tilewright.sass.flow import Flow, Loop, flow_of, target_of
from tilewright.sass.inflight import depbar
from tilewright.sass.kloop import Work, find_k_loops, work_of
from tilewright.sass.lanes import LANES, Access, coalesced, follow
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import MATRIX, is_barrier, is_bulk_load, is_zero_fill, split
from tilewright.sass.rings import Traces, is_on_mbarriers, judge_ring
from tilewright.sass.specialised import judge_specialised
from tilewright.sass.steady import Step, steady_path
from tilewright.sass.trace import Issue, is_wait

Pipe = Literal["issue", "fma", "half", "multiply", "alu", "special", "uniform", "matrix", "shared", "global", "async"]

_MULTIPLY = frozenset({"IMAD", "IDP", "IDP4A", "IMUL"})
_FMA = frozenset({"FFMA", "FMUL", "FADD", "FFMA2"})
_HALF = frozenset({"HFMA2", "HADD2", "HMUL2", "HMNMX2"})
_SPECIAL = frozenset({"MUFU", "I2F", "F2I", "F2F", "I2I", "S2R", "S2UR", "POPC", "FLO", "BREV", "SHFL", "VOTE", "REDUX",
    "DFMA", "DADD", "DMUL"})  # fmt: skip
_NO_PIPE = frozenset({"NOP", "BRA", "BSSY", "BSYNC", "BREAK", "EXIT", "WARPSYNC", "BAR", "DEPBAR", "LDGDEPBAR", "YIELD",
    "CALL", "RET", "ERRBAR", "MEMBAR", "FENCE", "CCTL", "SYNCS", "ARRIVES", "ELECT", "WARPGROUP", "R2UR", "ULDC",
    "LDC", "LDCU", "CS2R", "NANOSLEEP", "LEPC"})  # fmt: skip
_SHARED = frozenset({"LDS", "STS", "LDSM", "STSM", "ATOMS"})
_GLOBAL = frozenset({"LDG", "STG", "LD", "ST", "RED", "REDG", "ATOMG", "ATOM", "LDL", "STL"})
_SHAPE = {
    "884": 256,
    "1684": 512,
    "1688": 1024,
    "16816": 2048,
    "16832": 4096,
    "16864": 8192,
    "8816": 1024,
    "8832": 2048,
}
_REGISTER = re.compile(r"^-?\|?R(\d+)(\.reuse)?\|?(?:\.H\d_H\d)?$")


class Slot(NamedTuple):
    """One instruction of one warp.

    Attributes:
        pipe: what executes it; ``issue`` for none that could be a bottleneck.
        stall: cycles before the warp may issue again.
        waits: scoreboards that have to be clear, as bits.
        write, read: scoreboard that its result, or the reading of its operands, clears; -1 for none.
        weight: math.
        macs: multiply-adds of a matrix instruction, of a warp, in units of 16-bit ones (an 8-bit one is half).
        clash: all of its register operands lie in one bank.
        wavefronts, words: passes of shared memory, see `lanes.Access`.
        lines, sectors: of global memory, 128 and 32 bytes each.
        joins: a barrier of the block.
        commits: it closes a group of asynchronous copies.
        leaves: it waits until so many groups are outstanding; -1 for none.
        own: only warps that go the first one's way execute it.
        bulk_bytes, bulk_rows: of a bulk copy: how much it moves, in so many pieces. phase: it waits for bulk copies.
        precision: of a matrix instruction of one warp, as `arch.devices` names its peaks; "" for any other.
    """

    pipe: Pipe
    stall: int
    waits: int = 0
    write: int = -1
    read: int = -1
    weight: int = 0
    macs: float = 0.0
    clash: bool = False
    wavefronts: float = 0.0
    lines: float = 0.0
    sectors: float = 0.0
    joins: bool = False
    commits: bool = False
    leaves: int = -1
    bulk_bytes: int = 0
    bulk_rows: int = 1
    words: float = 0.0
    own: bool = False
    phase: bool = False
    precision: str = ""


@dataclass(frozen=True)
class Schedule:
    """A K-loop's trip in the steady state.

    Attributes:
        trip: what a warp executes; where one thread copies for all, the warp of that thread.
        others: what the other warps of a block execute, where that differs; else empty.
        leading: share of the warps that execute the trip.
        math_per_trip: math of a warp in a trip.
        before, after: instructions of a warp before the K-loop and behind it, as they stand in the code.
        kind: opcode of the math.
        in_flight: stages that bulk copies are ahead; 0 without them.
    """

    trip: tuple[Slot, ...]
    others: tuple[Slot, ...]
    math_per_trip: int
    before: int
    after: int
    kind: str
    in_flight: float = 0.0
    leading: float = 1.0


def schedule_of(function: Function, block: tuple[int, int, int], boxes: tuple[int, ...] = ()) -> Schedule | None:
    """The trip of a kernel's K-loop; None where there is none, or no way round it was found.

    Args:
        block: threads along x, y, z.
        boxes: rows of the boxes that tensor maps' copies bring in, in the order in which the code does.
    """
    work = work_of(function)
    flow = flow_of(function)
    loops = find_k_loops(function, flow, work) if work.math else []
    if not loops:
        return None
    loop = flow.loops[loops[0]]
    if is_on_mbarriers(function, flow, loop):
        return _on_mbarriers(function, flow, work, loop, block, boxes)
    followed = follow(function, flow, loop, block)
    steps = followed.trip
    if not any(step.active and step.at in work.math for step in steps):
        path = steady_path(function, flow, loops[0], work)
        steps = path.trip if path is not None else ()
    trip = _slots(function, steps, work, followed.accesses)
    if steps is followed.trip and followed.others and len(trip) == len(steps):
        shared = {step.at for step in followed.others if step.active}
        own = [
            slot._replace(own=True) if step.at not in shared else slot for slot, step in zip(trip, steps, strict=True)
        ]
        rest = _slots(function, followed.others, work, followed.accesses)
        made = _made(function, flow, loop, work, tuple(own), rest)
        return replace(made, leading=followed.leading) if made is not None else None
    return _made(function, flow, loop, work, trip, ())


def _on_mbarriers(
    function: Function,
    flow: Flow,
    work: Work,
    loop: Loop,
    block: tuple[int, int, int],
    boxes: tuple[int, ...],
) -> Schedule | None:
    judged = judge_ring(function, flow, work, loop)
    if isinstance(judged, str):
        judged = judge_specialised(function, flow, work)
    if isinstance(judged, str):
        return None
    costs = follow(function, flow, loop, block).accesses
    sizes = _sizes(function, judged.path.trip, {copy.issued.index: copy.size for copy in judged.found.copies}, boxes)
    trip = _slots(function, judged.path.trip, work, costs, sizes)
    others: tuple[Slot, ...] = ()
    if block[0] * block[1] * block[2] > 32:
        _, trace, trips = Traces(function, flow, work).longest(loop, 32)
        if trips.count > 2 and not any(isinstance(e, Issue) for e in trace.events.values()):
            others = _slots(function, trips.steps(trace, trips.count // 2), work, costs, sizes)
    made = _made(function, flow, loop, work, trip, others)
    return replace(made, in_flight=judged.found.mean_in_flight) if made is not None else None


def _sizes(
    function: Function, trip: tuple[Step, ...], sizes: dict[int, int], boxes: tuple[int, ...]
) -> dict[int, tuple[int, int]]:
    """(bytes, rows) of bulk copies, by index of the instruction."""
    maps = [step.at for step in trip if function.instructions[step.at].opcode == "UTMALDG"]
    rows = {at: boxes[i % len(boxes)] for i, at in enumerate(dict.fromkeys(maps))} if boxes else {}
    return {at: (size, rows.get(at, 1)) for at, size in sizes.items()}


def _made(
    function: Function, flow: Flow, loop: Loop, work: Work, trip: tuple[Slot, ...], others: tuple[Slot, ...]
) -> Schedule | None:
    math = sum(slot.weight for slot in trip)
    if not math:
        return None
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    ends = [i for i, each in enumerate(function.instructions) if each.opcode == "EXIT"]
    last = max(ends, default=len(function.instructions) - 1)
    before, after = min(inside), max(0, last - max(inside))
    return Schedule(trip, others, math, before, after, work.kind)


def _slots(
    function: Function,
    trip: tuple[Step, ...],
    work: Work,
    costs: dict[int, Access],
    sizes: dict[int, tuple[int, int]] | None = None,
) -> tuple[Slot, ...]:
    """The slots of a trip. A loop over the lanes, which one of them after the other is elected in, is written out."""
    labels = {label: address // 16 for label, address in (function.labels or {}).items()}
    slots: list[Slot] = []
    begun: dict[int, int] = {}  # by instruction, where it stood last
    for step in trip:
        begun[step.at] = len(slots)
        slots.append(_slot(function, step, work, costs, sizes))
        branch = function.instructions[step.at]
        if branch.opcode == "BRA" and "ANY" in branch.modifiers:
            first = labels.get(target_of(branch) or "", step.at)
            copies = [i for i in range(first, step.at) if is_bulk_load(function.instructions[i])]
            body = slots[begun[first] :] if first in begun else []
            lanes = max((_lanes(function.instructions[i], costs.get(i)) for i in copies), default=1)
            slots += body * (lanes - 1)
    return tuple(slots)


def _lanes(copy: Instruction, cost: Access | None) -> int:
    """How many lanes issue a bulk copy; where that was not followed: one a box, each a row."""
    if cost is not None:
        return cost.lanes
    return 1 if copy.opcode == "UTMALDG" else LANES


def _slot(
    function: Function,
    step: Step,
    work: Work,
    costs: dict[int, Access],
    sizes: dict[int, tuple[int, int]] | None = None,
) -> Slot:
    instruction = function.instructions[step.at]
    slot = Slot(
        "issue",
        max(instruction.stall, 1),
        instruction.wait_mask,
        -1 if instruction.write_barrier is None else instruction.write_barrier,
        -1 if instruction.read_barrier is None else instruction.read_barrier,
    )
    if not step.active or instruction.is_off:
        return slot._replace(write=-1, read=-1)
    opcode = instruction.opcode
    pipe = _pipe(instruction)
    if pipe in ("shared", "global", "async"):
        cost = costs.get(step.at) or coalesced(instruction)
        return slot._replace(
            pipe=pipe, wavefronts=cost.wavefronts, words=cost.words, lines=cost.lines, sectors=cost.sectors
        )
    if is_bulk_load(instruction):
        moved, rows = (sizes or {}).get(step.at, (16, 1))
        return slot._replace(bulk_bytes=moved, bulk_rows=rows)
    if opcode == "DEPBAR":
        return slot._replace(leaves=min((left for _, left in depbar(instruction)), default=0))
    return slot._replace(
        pipe=pipe,
        weight=work.math.get(step.at, 0),
        macs=_macs(instruction) if pipe == "matrix" else 0.0,
        precision=_precision(instruction) if pipe == "matrix" else "",
        clash=pipe == "fma" and _clashes(instruction),
        joins=is_barrier(instruction),
        commits=opcode == "LDGDEPBAR",
        phase=is_wait(instruction),
    )


def _pipe(instruction: Instruction) -> Pipe:
    opcode = instruction.opcode
    if opcode == "LDGSTS":
        return "issue" if is_zero_fill(instruction) else "async"
    if MATRIX.match(opcode):
        return "matrix"
    for name, group in _PIPES:
        if opcode in group:
            return name
    return "uniform" if opcode.startswith("U") else "alu"


_PIPES: tuple[tuple[Pipe, frozenset[str]], ...] = (
    ("fma", _FMA),
    ("half", _HALF),
    ("multiply", _MULTIPLY),
    ("shared", _SHARED),
    ("global", _GLOBAL),
    ("special", _SPECIAL),
    ("issue", _NO_PIPE),
)


def _macs(instruction: Instruction) -> float:
    """Multiply-adds of a warp, as many 16-bit ones take as long."""
    shape = next((_SHAPE[m] for m in instruction.modifiers if m in _SHAPE), 2048)
    if instruction.opcode in ("IMMA", "QMMA", "BMMA"):
        return shape / 2
    if instruction.opcode == "DMMA":
        return shape * 16
    return float(shape * 2 if "TF32" in instruction.modifiers else shape)


def _precision(instruction: Instruction) -> str:
    """Of its factors, and ``_acc16`` where it adds up in FP16, which some cards do twice as fast."""
    modifiers = instruction.modifiers
    sums_fp16 = "F16" in modifiers and "F32" not in modifiers
    match instruction.opcode:
        case "IMMA":
            return "int8"
        case "QMMA":
            return "fp8_acc16" if sums_fp16 else "fp8"
        case "HMMA":
            named = "tf32" if "TF32" in modifiers else "bf16" if "BF16" in modifiers else "fp16"
            return "fp16_acc16" if sums_fp16 and named == "fp16" else named
    return ""


def _clashes(instruction: Instruction) -> bool:
    """Whether three different registers are read from one of the two banks, none of them kept from before."""
    numbers: set[int] = set()
    for part in split(instruction.operands)[1:]:
        found = _REGISTER.match(part)
        if found is None or found[2]:
            return False
        numbers.add(int(found[1]))
    return len(numbers) == 3 and len({n % 2 for n in numbers}) == 1
