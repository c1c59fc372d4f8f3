"""Warp-specialised kernels: one thread copies, another computes, mbarriers join them.

A thread of each role is followed from the kernel's entry (`trace`), and both are run side by side: the one that copies
goes as far ahead as the mbarriers let it, which is what the hardware is permitted to do. It waits for a stage to be
free until the computing thread arrives there; the computing thread waits for a stage to be full, and the copies land no
sooner than at that wait. One computing thread stands for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.inflight import Machine
from tilewright.sass.kloop import Work
from tilewright.sass.listing import Function
from tilewright.sass.rings import (
    LEAST_TRIPS,
    MOST_STEPS,
    THREADS,
    Judged,
    Phases,
    Traces,
    followed,
    guesses,
    indices,
    is_on_mbarriers,
    ring_of,
    steady_trip,
    unfollowed,
    unwaited,
)
from tilewright.sass.steady import SteadyPath
from tilewright.sass.thread import Launch
from tilewright.sass.tiles import overlap_of
from tilewright.sass.trace import Bind, Fill, Init, Issue, Trace, Trips, Wait, waits_in


@dataclass(frozen=True)
class _Role:
    """A thread and the loop that it goes round."""

    launch: Launch
    trace: Trace
    trips: Trips


def judge_specialised(function: Function, flow: Flow, work: Work) -> Judged | str:
    """Judge the pair of loops of a warp-specialised kernel; a text says why it cannot be judged."""
    waiting = [loop for loop in flow.loops if waits_in(function, flow, loop)]
    copying = [loop for loop in waiting if is_on_mbarriers(function, flow, loop)]
    computing = [loop for loop in waiting if any(i in work.math for i in indices(flow, loop))]
    if not copying or not computing:
        return "no loop with waits on mbarriers holds the copies, or none holds the math."
    producer, consumer = _roles(function, flow, work, copying, computing)
    if producer is None or consumer is None:
        role = "copies" if producer is None else "computes"
        return f"no thread was found that {role} for {LEAST_TRIPS} trips of a loop."
    return _side_by_side(function, flow, work, producer, consumer)


def _roles(
    function: Function, flow: Flow, work: Work, copying: list[Loop], computing: list[Loop]
) -> tuple[_Role | None, _Role | None]:
    """The first thread that copies, and the first that computes."""
    traces = Traces(function, flow, work)
    producer: _Role | None = None
    consumer: _Role | None = None
    for thread in THREADS:
        if producer is None:
            role = _role(traces, copying, thread)
            copies = role is not None and any(isinstance(e, Issue | Bind) for e in role.trace.events.values())
            producer = role if copies else None
        if consumer is None:
            role = _role(traces, computing, thread)
            consumer = role if role is not None and _has_math(role, work) else None
        if (producer and consumer) or traces.steps > MOST_STEPS:
            break
    return producer, consumer


def _role(traces: Traces, loops: list[Loop], thread: int) -> _Role | None:
    """The innermost of some loops that the thread goes round often enough."""
    for loop in sorted(loops, key=lambda loop: -loop.depth):
        role = _Role(*traces.longest(loop, thread))
        if role.trips.count >= LEAST_TRIPS:
            return role
    return None


def _has_math(role: _Role, work: Work) -> bool:
    return any(step.active and step.at in work.math for step in role.trips.steps(role.trace, role.trips.count // 2))


class _Pair:
    """Both threads' runs, interleaved."""

    def __init__(self, function: Function, work: Work, producer: _Role, consumer: _Role, trip: int) -> None:
        self.producer, self.consumer = producer, consumer
        self.machine = Machine(function, work.math, len(consumer.trips.steps(consumer.trace, trip)))
        self.machine.time = -consumer.trips.starts[trip]
        self.phases = Phases()
        self.next = 0  # step of the producer
        # Arrivals that a phase takes, by mbarrier; and those that the producer has made, by mbarrier and phase.
        self.arrivals: dict[int, int] = dict(_initial(consumer.trace))
        self.arrived: dict[tuple[int, int], int] = {}
        self.turn = -1 - trip
        self.trouble = ""

    def run(self) -> str:
        """Run both to the consumer's end; a text says why that failed."""
        starts = set(self.consumer.trips.starts)
        for index, step in enumerate(self.consumer.trace.steps):
            self.turn += index in starts
            self._advance()
            self.machine.execute(step, self.turn)
            event = self.consumer.trace.events.get(index)
            if isinstance(event, Wait):
                self._await(event, step.at)
            elif isinstance(event, Fill) and event.barrier is not None and not event.expected_bytes:
                self._release(event.barrier)
            if self.trouble or self.phases.trouble:
                return self.trouble or self.phases.trouble
        return ""

    def _advance(self) -> None:
        """Run the producer until it has to wait for a stage to become free."""
        steps, events = self.producer.trace.steps, self.producer.trace.events
        while self.next < len(steps) and not self.trouble:
            event = events.get(self.next)
            if isinstance(event, Wait):
                if event.barrier is None or event.parity is None:
                    self.trouble = "which mbarrier the copying thread waits for was not worked out."
                elif self.phases.opened.get(event.barrier, 0) & 1 == event.parity:
                    return
            elif isinstance(event, Init):
                if event.barrier is not None and event.arrivals:
                    self.arrivals[event.barrier] = event.arrivals
            elif event is not None:
                if isinstance(event, Fill) and event.expected_bytes:
                    self._arrive(event)
                self.phases.signal(self.machine, event, steps[self.next].at, self.turn)
            self.next += 1

    def _arrive(self, event: Fill) -> None:
        """The producer arrives at a stage: no more often than the phase has arrivals."""
        if event.barrier is None:
            return
        phase = self.phases.opened.get(event.barrier, 0)
        self.arrived[event.barrier, phase] = self.arrived.get((event.barrier, phase), 0) + 1
        if self.arrived[event.barrier, phase] > self.arrivals.get(event.barrier, 1):
            self.trouble = "nothing that was followed holds the copying thread back: it fills a stage that is full."

    def _await(self, event: Wait, at: int) -> None:
        """The consumer waits: for copies, which land now; or for something that is not followed."""
        barrier = event.barrier
        if barrier is None or event.parity is None:
            self.trouble = "which mbarrier the computing thread waits for was not worked out."
        elif self.phases.opened.get(barrier, 0) & 1 == event.parity:
            if not self.phases.pending.get(barrier):
                self.trouble = "the computing thread waits for a stage that nothing fills."
            self.phases.complete(barrier, self.machine, at)

    def _release(self, barrier: int) -> None:
        self.phases.opened[barrier] = self.phases.opened.get(barrier, 0) + 1


def _initial(trace: Trace) -> list[tuple[int, int]]:
    inits = [e for e in trace.events.values() if isinstance(e, Init)]
    return [(e.barrier, e.arrivals) for e in inits if e.barrier is not None and e.arrivals]


def _side_by_side(function: Function, flow: Flow, work: Work, producer: _Role, consumer: _Role) -> Judged | str:
    trip = steady_trip(consumer.trace, consumer.trips)
    if isinstance(trip, str):
        return trip
    for role in (producer, consumer):
        why = unfollowed(function, role.trace, role.trips.loop, flow)
        if why:
            return why
    pair = _Pair(function, work, producer, consumer, trip)
    trouble = pair.run()
    if trouble:
        return trouble
    found = overlap_of(pair.machine.run, 0)
    if isinstance(found, str):
        return found
    never = unwaited(function, found)
    if never:
        return never
    path = SteadyPath(consumer.trips.loop, consumer.trips.steps(consumer.trace, trip))
    roles = (
        f"Warp-specialised: thread {producer.launch.thread} copies, thread {consumer.launch.thread} computes, and "
        "mbarriers join their loops. The copying one goes as far ahead as they let it."
    )
    return Judged(
        path,
        pair.machine.run,
        found,
        (roles, ring_of(found, pair.phases), followed(consumer.launch), *guesses(consumer.trace)),
    )
