"""Rings of stages on mbarriers: which wait retires which copies, from what one thread does from the kernel's entry on.

An mbarrier goes through phases, numbered from 0. Bulk copies (``UBLKCP``, ``UTMALDG``) and asynchronous copies bound
to it (``ARRIVES.LDGSTSBAR``) belong to the phase that is open when they are issued. A wait names a parity: where it is
that of the open phase, the wait lasts until the phase is over, and so until its copies have landed; else it passes at
once. So it is known, and not assumed, which tile each wait is for: stage and parity are numbers that the thread has
computed. Waits are taken to end; what other threads do is not followed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.inflight import Copy, Machine, Run
from tilewright.sass.kloop import Work
from tilewright.sass.listing import Function
from tilewright.sass.operands import is_bulk_load
from tilewright.sass.steady import SteadyPath
from tilewright.sass.thread import Launch
from tilewright.sass.tiles import Overlap, overlap_of
from tilewright.sass.trace import (
    Bind,
    Event,
    Fill,
    Init,
    Issue,
    Trace,
    Trips,
    Wait,
    is_wait,
    trace_of,
    trips_of,
    waits_in,
)

LEAST_TRIPS = 6
# First threads of warps, one of which copies: the first one, or one of another warp or warp group.
THREADS = (0, 32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 640, 768, 896, 992)
MOST_STEPS = 400_000  # of all the threads that are followed in search of one that can be judged
_SMALL_COPY_BYTES = 16
_SMALL = (64, 1)  # a first row or column at 64 is aligned, so that bulk copies can be made from there


@dataclass(frozen=True)
class Judged:
    """One trip of a ring in its steady state, and what was found there."""

    path: SteadyPath
    run: Run
    found: Overlap
    notes: tuple[str, ...]


@dataclass
class Phases:
    """The mbarriers of a thread's run.

    Attributes:
        opened: by mbarrier, the number of the phase that is open.
        pending: by mbarrier, the copies of its open phase.
        expected: by mbarrier, the bytes that the open phase expects.
        holders: by copy, the mbarrier that retires it.
        arrivals: by mbarrier, how many end a phase.
        arrived: by mbarrier, how many times the thread has arrived in the open phase, expecting bytes.
        sized: copies that say how many bytes they move.
        trouble: why the run cannot be judged; empty where it can.
    """

    opened: dict[int, int] = field(default_factory=dict)
    pending: dict[int, list[Copy]] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)
    holders: dict[int, int] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    sized: set[int] = field(default_factory=set)
    trouble: str = ""

    def signal(self, machine: Machine, event: Event, at: int, turn: int) -> None:
        """Take note of what the instruction `at` does."""
        if isinstance(event, Init):
            if event.barrier is not None:
                self.opened[event.barrier] = 0
                self.arrivals[event.barrier] = event.arrivals or 0
        elif isinstance(event, Fill):
            if event.barrier is not None and event.expected_bytes:
                if self.arrived.get(event.barrier, 0) == self.arrivals.get(event.barrier) == 1:
                    self.complete(event.barrier, machine, at)  # nobody may arrive again before the phase is over
                self.arrived[event.barrier] = self.arrived.get(event.barrier, 0) + 1
                self.expected[event.barrier] = self.expected.get(event.barrier, 0) + event.expected_bytes
        elif isinstance(event, Issue):
            copy = machine.issue(at, turn, is_async=True)
            copy.size = event.size or _SMALL_COPY_BYTES
            if event.size:
                self.sized.add(id(copy))
            self._bind(event.barrier, [copy], machine, at)
        elif isinstance(event, Bind):
            self._bind(event.barrier, machine.uncommitted, machine, at)
            machine.uncommitted = []
        elif not isinstance(event, Wait) or event.barrier is None or event.parity is None:
            self.trouble = self.trouble or f"which mbarrier the wait {_place(machine, at)} is for was not worked out."
        elif self.opened.get(event.barrier, 0) & 1 == event.parity:
            self.complete(event.barrier, machine, at)

    def complete(self, barrier: int, machine: Machine, at: int) -> None:
        """The open phase is over: its copies have landed."""
        copies = self.pending.pop(barrier, [])
        self._share_out(copies, self.expected.pop(barrier, 0))
        for copy in copies:
            copy.retired = machine.now(at)
        self.opened[barrier] = self.opened.get(barrier, 0) + 1
        self.arrived[barrier] = 0

    def _bind(self, barrier: int | None, copies: list[Copy], machine: Machine, at: int) -> None:
        if barrier is None:
            self.trouble = self.trouble or f"which mbarrier counts the copy {_place(machine, at)} was not worked out."
            return
        self.pending.setdefault(barrier, []).extend(copies)
        self.holders.update((id(copy), barrier) for copy in copies)

    def _share_out(self, copies: list[Copy], expected: int) -> None:
        """A tensor map's copy does not say how many bytes it moves: the mbarrier does, for all of them."""
        unsized = [copy for copy in copies if id(copy) not in self.sized and id(copy) in self.holders]
        rest = expected - sum(copy.size for copy in copies if id(copy) in self.sized)
        if unsized and rest > 0:
            for copy in unsized:
                copy.size = max(1, rest // len(unsized))


def is_on_mbarriers(function: Function, flow: Flow, loop: Loop) -> bool:
    """Whether mbarriers retire copies of a loop."""
    code = function.instructions
    inside = (code[i] for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end))
    return any(is_bulk_load(i) or (i.opcode == "ARRIVES" and not i.is_off) for i in inside)


def headers_of(function: Function, flow: Flow, work: Work) -> frozenset[int]:
    """Headers of the loops that wait on mbarriers, and copy or compute."""
    return frozenset(
        loop.header
        for loop in flow.loops
        if waits_in(function, flow, loop)
        and (is_on_mbarriers(function, flow, loop) or any(i in work.math for i in indices(flow, loop)))
    )


def indices(flow: Flow, loop: Loop) -> list[int]:
    return [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]


def are_alternatives(flow: Flow, one: int, other: int) -> bool:
    """Whether a launch goes through one loop or the other, not through both: neither can be reached from the other.

    Loops around both are gone round once.
    """
    around = {loop.header for loop in flow.loops if flow.loops[one].blocks | flow.loops[other].blocks <= loop.blocks}

    def reaches(start: int, end: int) -> bool:
        seen: set[int] = set()
        todo = [start]
        while todo:
            block = todo.pop()
            if block == end:
                return True
            if block not in seen and (block not in around or block == start):
                seen.add(block)
                todo.extend(flow.blocks[block].successors)
        return False

    headers = flow.loops[one].header, flow.loops[other].header
    return not reaches(*headers) and not reaches(*reversed(headers))


def judge_ring(function: Function, flow: Flow, work: Work, loop: Loop) -> Judged | str:
    """Judge a K-loop whose threads both copy and compute; a text says why it cannot be judged."""
    if not any(is_wait(instruction) for instruction in function.instructions):
        return "waits on mbarriers are loops over shared memory here (before sm_90), which are not followed."
    traces = Traces(function, flow, work)
    why = ""
    for launch, trace, trips in traces.ways(loop):
        found = unfollowed(function, trace, loop, flow) or _judged(function, work, trace, trips, launch)
        if not isinstance(found, str):
            return found
        why = why or found
        if traces.steps > MOST_STEPS:
            break
    return why


class Traces:
    """Traces of a function's threads, each made once."""

    def __init__(self, function: Function, flow: Flow, work: Work) -> None:
        self.function, self.flow = function, flow
        self.headers = headers_of(function, flow, work)
        self.steps = 0  # of all of them
        self._made: dict[tuple[int, tuple[int, int] | None], tuple[Launch, Trace]] = {}

    def ways(self, loop: Loop) -> Iterator[tuple[Launch, Trace, Trips]]:
        """Traces that may be judged: each thread's, then the first one's with one parameter smaller than the others.

        With all alike, what begins at an offset may begin outside of a matrix: then it is copied another way.
        """
        for thread in THREADS:
            yield self.longest(loop, thread)
        first = self._with(loop, THREADS[0])
        for offset in sorted(first[1].parameters_read):
            yield self._with(loop, THREADS[0], (offset, _SMALL[0]))

    def longest(self, loop: Loop, thread: int) -> tuple[Launch, Trace, Trips]:
        """A thread's trace with enough trips of a loop, if there is one.

        Every parameter has the same large value; where the loop is too short then (a number of splits, or where it
        begins), each of those that were read is made smaller in turn.
        """
        best = self._with(loop, thread)
        if best[2].count >= LEAST_TRIPS or best[1].end != "exit":
            return best
        for value, offset in itertools.product(_SMALL, sorted(best[1].parameters_read)):
            other = self._with(loop, thread, (offset, value))
            if other[2].count > best[2].count:
                best = other
            if best[2].count >= LEAST_TRIPS or self.steps > MOST_STEPS:
                break
        return best

    def _with(self, loop: Loop, thread: int, other: tuple[int, int] | None = None) -> tuple[Launch, Trace, Trips]:
        """``other``: a parameter's offset, and its own value."""
        if (thread, other) not in self._made:
            launch = Launch(thread) if other is None else Launch(thread, others=dict([other]))
            trace = trace_of(self.function, self.flow, launch, self.headers)
            self.steps += len(trace.steps)
            self._made[thread, other] = launch, trace
        launch, trace = self._made[thread, other]
        return launch, trace, trips_of(self.flow, loop, trace)


def steady_trip(trace: Trace, trips: Trips) -> int | str:
    """The number of a trip in the middle that is executed as the next two are; a text says why there is none."""
    if trips.count < LEAST_TRIPS:
        return f"the K-loop was followed for {trips.count} trips only, and a steady state takes {LEAST_TRIPS}."
    for trip in range(trips.count // 2, trips.count - 2):
        if trips.steps(trace, trip) == trips.steps(trace, trip + 1) == trips.steps(trace, trip + 2):
            return trip
    return "successive trips of the K-loop take different ways: it settles into no steady state."


def followed(launch: Launch) -> str:
    """What a thread was given, in words."""
    ones = ", ".join(f"c[0x0][{at:#x}] = {value}" for at, value in sorted(launch.others.items()))
    return (
        f"Thread {launch.thread} of block 0 was followed from the kernel's entry, with {launch.parameter} for every "
        f"parameter{' but ' + ones if ones else ''} and word of memory: mbarriers and parities are what it computed."
    )


def guesses(trace: Trace) -> tuple[str, ...]:
    """Says that branches were not worked out, where some were; those that could matter are `unfollowed`."""
    count = len(trace.guessed)
    return (f"{count} branches on the way were not worked out; each was taken to stay in its loop.",) if count else ()


def unfollowed(function: Function, trace: Trace, loop: Loop, flow: Flow) -> str:
    """What was not followed and may matter: calls, and branches in loops that copy, but for the way out of the K-loop.

    Empty where there is no such thing.
    """
    if trace.calls:
        return "the thread calls functions, whose code is not followed."
    copying = {i for other in flow.loops if is_on_mbarriers(function, flow, other) for i in indices(flow, other)}
    inside = set(indices(flow, loop))
    for at in sorted(trace.guessed):
        if at in inside | copying and not (at in inside and _leads_out(at, flow, loop)):
            place = function.instructions[at]
            line = f", line {place.line}" if place.line is not None else ""
            return f"which way the branch at 0x{place.address:x}{line} goes was not worked out."
    return ""


def _leads_out(at: int, flow: Flow, loop: Loop) -> bool:
    block = next(b for b in flow.blocks if b.first <= at < b.end)
    return any(s not in loop.blocks for s in block.successors) or len(block.successors) < 2


def _judged(function: Function, work: Work, trace: Trace, trips: Trips, launch: Launch) -> Judged | str:
    trip = steady_trip(trace, trips)
    if isinstance(trip, str):
        return trip
    steps = trips.steps(trace, trip)
    active = {step.at for step in steps if step.active}
    if active.isdisjoint(work.math):
        return f"thread {launch.thread} does not compute."
    run, phases = replay(function, trace, trips, trip, work)
    if phases.trouble:
        return phases.trouble
    if not phases.holders:
        return f"thread {launch.thread} went a way on which no mbarrier counts a copy."
    found = overlap_of(run, 0)
    if isinstance(found, str):
        return found
    never = unwaited(function, found)
    if never:
        return never
    path = SteadyPath(trips.loop, steps)
    return Judged(path, run, found, (ring_of(found, phases), followed(launch), *guesses(trace)))


def unwaited(function: Function, found: Overlap) -> str:
    """Says so where the thread does not wait for the copies of a trip; empty where it does."""
    code = function.instructions
    for copy in found.copies:
        if (
            copy.retired is not None
            and code[copy.retired.index].opcode == "SYNCS"
            and not is_wait(code[copy.retired.index])
        ):
            issue = code[copy.issued.index]
            line = f", line {issue.line}" if issue.line is not None else ""
            return f"no wait is for the copy at 0x{issue.address:x}{line}: its stage is filled anew before one comes."
    return ""


def ring_of(found: Overlap, phases: Phases) -> str:
    """How many stages the ring has, in words."""
    barriers = {phases.holders[id(copy)] for copy in found.copies if id(copy) in phases.holders}
    used = set(phases.holders.values())
    tiles = max(1, found.tiles_per_trip)
    per_tile = max(1, round(len(barriers) / tiles)) if len(barriers) >= tiles else 1
    stages = len(used) // per_tile
    each = "" if per_tile == 1 else f", {per_tile} to a stage"
    counted = "1 mbarrier counts its copies" if len(used) == 1 else f"{len(used)} mbarriers count its copies"
    return f"A ring of {stages} stage{'s' * (stages != 1)}: {counted}{each}."


def replay(function: Function, trace: Trace, trips: Trips, trip: int, work: Work) -> tuple[Run, Phases]:
    """The whole trace as a run in which the steady trip has the number 0, and begins at time 0."""
    steps = len(trips.steps(trace, trip))
    machine = Machine(function, work.math, steps)
    machine.time = -trips.starts[trip]
    phases = Phases()
    turn = -1 - trip
    starts = set(trips.starts)
    for index, step in enumerate(trace.steps):
        turn += index in starts
        machine.execute(step, turn)
        event = trace.events.get(index)
        if event is not None:
            phases.signal(machine, event, step.at, turn)
    return machine.run, phases


def _place(machine: Machine, at: int) -> str:
    instruction = machine.code[at]
    line = f", line {instruction.line}" if instruction.line is not None else ""
    return f"at 0x{instruction.address:x}{line}"
