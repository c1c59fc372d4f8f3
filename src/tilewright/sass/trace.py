"""What one thread executes, step by step, with what it does to mbarriers; and the trips of a loop in that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.sass.flow import Flow, Loop, target_of
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import is_bulk_load, split
from tilewright.sass.steady import Step
from tilewright.sass.thread import Launch, Thread
from tilewright.sass.words import Word

MOST_TRIPS = 28  # of a loop with waits on mbarriers: enough for eight stages to fill, and to be used twice
_MOST_STEPS = 150_000
_NO_ARRIVALS = 1 << 20  # an mbarrier counts up to this: its first word is twice the difference


class Init(NamedTuple):
    """An mbarrier begins, with so many arrivals to each phase."""

    barrier: Word
    arrivals: Word


class Fill(NamedTuple):
    """The thread arrives at an mbarrier, and says how many bytes it expects (0: it arrives only)."""

    barrier: Word
    expected_bytes: Word


class Issue(NamedTuple):
    """A bulk copy that an mbarrier counts. `size`: bytes, None where a tensor map knows them."""

    barrier: Word
    size: Word


class Bind(NamedTuple):
    """The thread's own asynchronous copies so far (``LDGSTS``) arrive at an mbarrier when they land."""

    barrier: Word


class Wait(NamedTuple):
    """The thread waits for the phase of this parity to be over."""

    barrier: Word
    parity: Word


Event = Init | Fill | Issue | Bind | Wait


@dataclass
class Trace:
    """What a thread did.

    Attributes:
        steps: every instruction that it issued; `active` False where its guard did not hold.
        events: by index of the step.
        guessed: branches whose condition was not worked out (indices of instructions).
        calls: calls that were stepped over.
        parameters_read: offsets of the parameters' words that were read.
        end: why it is over: ``exit``, ``enough``, ``long``, ``lost``.
    """

    steps: list[Step] = field(default_factory=list)
    events: dict[int, Event] = field(default_factory=dict)
    guessed: set[int] = field(default_factory=set)
    calls: int = 0
    parameters_read: set[int] = field(default_factory=set)
    end: str = "exit"


def waits_in(function: Function, flow: Flow, loop: Loop) -> bool:
    """Whether a loop has a wait on an mbarrier."""
    code = function.instructions
    return any(is_wait(code[i]) for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end))


def is_wait(instruction: Instruction) -> bool:
    """True for a wait on an mbarrier: ``SYNCS.PHASECHK.TRANS64.TRYWAIT``, or without ``TRYWAIT``."""
    return instruction.opcode == "SYNCS" and "PHASECHK" in instruction.modifiers and not instruction.is_off


def trace_of(
    function: Function,
    flow: Flow,
    launch: Launch,
    headers: frozenset[int],
    *,
    thread: Thread | None = None,
    most_trips: int = MOST_TRIPS,
) -> Trace:
    """Follow a thread from the kernel's entry until it has been round one of some loops `most_trips` times.

    Args:
        headers: blocks that the loops begin with.
        thread: what executes; a `Thread` with this launch by default.
    """
    return _Follower(function, flow, thread or Thread(function.arch, launch), headers, most_trips).run()


class _Follower:
    def __init__(
        self, function: Function, flow: Flow, thread: Thread, headers: frozenset[int], most_trips: int
    ) -> None:
        self.code = function.instructions
        self.flow = flow
        self.thread = thread
        self.headers = headers
        self.most_trips = most_trips
        self.labels = {label: address // 16 for label, address in (function.labels or {}).items()}
        self.block_at = {block.first: block.index for block in flow.blocks}
        self.block_of = [block.index for block in flow.blocks for _ in range(block.first, block.end)]
        self.stayed: dict[int, int] = {}  # by branch that was not worked out: how often its loop was stayed in
        self.around: dict[int, list[Loop]] = {}
        for loop in flow.loops:
            for block in loop.blocks:
                self.around.setdefault(block, []).append(loop)
        self.rounds: dict[int, int] = {}
        self.trace = Trace()

    def run(self) -> Trace:
        at: int | None = 0 if self.code else None
        block = 0
        while at is not None and at < len(self.code):
            if at in self.block_at:
                block = self.block_at[at]
                if self._is_enough(block):
                    self.trace.end = "enough"
                    break
            if len(self.trace.steps) > _MOST_STEPS:
                self.trace.end = "long"
                break
            at = self._execute(at, block)
        self.trace.parameters_read = self.thread.parameters_read
        return self.trace

    def _is_enough(self, block: int) -> bool:
        inside = {loop.header for loop in self.around.get(block, ())}
        self.rounds = {header: count for header, count in self.rounds.items() if header in inside}
        if block in inside:
            self.rounds[block] = self.rounds.get(block, 0) + 1
        return block in self.headers and self.rounds.get(block, 0) > self.most_trips

    def _execute(self, at: int, block: int) -> int | None:
        """Execute an instruction; the index of the next one, None at the end."""
        instruction = self.code[at]
        holds = self.thread.holds(instruction)
        active = holds != 0 and not instruction.is_off
        if active:
            event = self._event(instruction)
            if event is not None:
                self.trace.events[len(self.trace.steps)] = event
        self.trace.steps.append(Step(at, active))
        opcode = instruction.opcode
        if opcode in ("EXIT", "RET", "KILL") and active:
            return None if holds else self._guess(at, at + 1, at + 1)
        if opcode == "CALL" and at in self.flow.calls and active:
            self.trace.calls += 1
            self.thread.registers.clear()
            return at + 1
        if opcode in ("BRA", "JMP", "CALL"):
            return self._branch(at, block)
        if opcode in ("BRX", "JMX") and active:
            self.trace.end = "lost"
            return None
        self.thread.step(instruction)
        return at + 1

    def _branch(self, at: int, block: int) -> int | None:
        instruction = self.code[at]
        target = self.labels.get(target_of(instruction) or "")
        if target is None:
            return at + 1
        taken = self.thread.holds(instruction)
        for operand in split(instruction.operands)[:-1]:
            if taken == 0 or operand.startswith(("UR", "~UR", "R")):  # BRA.DIV UR4: the warp has not diverged
                taken = 0
            else:
                value = self.thread.predicate(operand)
                taken = None if value is None else value
        if taken is None:
            return self._guess(at, at + 1, target)
        if target == at and taken:
            return None  # a trap
        return target if taken else at + 1

    def _guess(self, at: int, following: int, target: int) -> int:
        """Of a branch that was not worked out, the side that stays in the innermost loop; after a while, the other."""
        self.trace.guessed.add(at)
        loops = self.around.get(self.block_of[at], [])
        for loop in sorted(loops, key=lambda loop: -loop.depth):
            stays = [side < len(self.code) and self.block_of[side] in loop.blocks for side in (following, target)]
            if stays[0] != stays[1]:
                self.stayed[at] = self.stayed.get(at, 0) + 1
                return following if stays[0] == (self.stayed[at] % (2 * MOST_TRIPS) != 0) else target
        return following

    def _event(self, instruction: Instruction) -> Event | None:
        opcode, modifiers = instruction.opcode, instruction.modifiers
        parts = split(instruction.operands)
        if is_wait(instruction):
            parity = self.thread.word(parts[2]) if len(parts) > 2 else None
            return Wait(self.thread.address(parts[1]), None if parity is None else parity >> 31)
        if opcode == "SYNCS" and "EXCH" in modifiers and len(parts) >= 3:
            word = self.thread.word(parts[2])
            return Init(self.thread.address(parts[1]), None if word is None else _NO_ARRIVALS - (word >> 1))
        if opcode == "SYNCS" and "ARRIVE" in modifiers and len(parts) >= 3:
            return Fill(self.thread.address(parts[1]), self.thread.word(parts[2]))
        if opcode == "ARRIVES":
            return Bind(self.thread.address(parts[0]))
        if is_bulk_load(instruction):
            # The first operand names three registers or more: where to, the mbarrier, and a tensor map's coordinates.
            first = int(parts[0].strip("[]").removeprefix("UR"))
            units = self.thread.word(parts[2]) if opcode == "UBLKCP" and len(parts) > 2 else None
            return Issue(self.thread.word(f"UR{first + 1}"), None if units is None else units * 16)
        return None


@dataclass(frozen=True)
class Trips:
    """The trips of a loop in a trace: `starts` are indices of steps, one more than there are trips."""

    loop: Loop
    starts: tuple[int, ...]

    def steps(self, trace: Trace, trip: int) -> tuple[Step, ...]:
        return tuple(trace.steps[self.starts[trip] : self.starts[trip + 1]])

    @property
    def count(self) -> int:
        return len(self.starts) - 1


def trips_of(flow: Flow, loop: Loop, trace: Trace) -> Trips:
    """The longest run of trips that follow one another without leaving the loop."""
    first = flow.blocks[loop.header].first
    inside = {i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)}
    best: list[int] = []
    now: list[int] = []
    for index, step in enumerate(trace.steps):
        if step.at == first:
            now.append(index)
        elif step.at not in inside and now:
            best, now = (now if len(now) > len(best) else best), []
    return Trips(loop, tuple(now if len(now) > len(best) else best))
