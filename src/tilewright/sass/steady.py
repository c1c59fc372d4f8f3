"""One steady-state path round the K-loop, as a trip in the middle of the run takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.sass.evaluate import Evaluator, State, constants_at
from tilewright.sass.flow import Flow, Loop
from tilewright.sass.kloop import Work
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, access_bytes
from tilewright.sass.staging import staged_loads

# A block with less than this share of the loop's math decides no branch: it is a stray instruction.
_STRAY = 0.05
_LONGEST_TRIP = 200_000

_Score = tuple[float, float, float, float]
_NOTHING: _Score = (0, 0, 0, 0)


class Step(NamedTuple):
    """An instruction on the path (`at`); one that is guarded off issues (and waits), but does nothing."""

    at: int
    active: bool


@dataclass(frozen=True)
class SteadyPath:
    """One trip of the K-loop.

    Attributes:
        loop: the K-loop.
        trip: instructions in the order of execution, inner loops written out.
        open_loops: headers (blocks) of inner loops whose trip count the code does not fix; they are run once.
    """

    loop: Loop
    trip: tuple[Step, ...]
    open_loops: tuple[int, ...] = ()


def steady_path(function: Function, flow: Flow, loop: int, work: Work) -> SteadyPath | None:
    """A path round the back edge of a loop; None when there is none.

    Branches that constants decide (for thread 0) are followed. At every other branch the side with more math is taken;
    among equals the one with more asynchronous copies, then wider loads, then fewer scalar ones: the guard that ends
    the copies at the last tiles, and the scalar way for misaligned rows, are left aside.
    """
    scores = _scores(function, flow, flow.loops[loop], work)
    found = _Walk(function, flow, loop, scores).path(constants_at(function, flow, flow.loops[loop].header))
    if found is None or not _holds_all(found, scores, flow):
        # What holds for thread 0 need not be the rule: another warp may do the copies.
        blind = _Walk(function, flow, loop, scores).path(None)
        found = blind or found
    return found


def _holds_all(path: SteadyPath, scores: dict[int, _Score], flow: Flow) -> bool:
    """Whether a path meets math, and copies."""
    active = {step.at for step in path.trip if step.active}
    total = [0.0, 0.0]
    for b, score in scores.items():
        if any(i in active for i in range(flow.blocks[b].first, flow.blocks[b].end)):
            total[0] += score[0]
            total[1] += score[1] + score[2] - score[3]
    return min(total) > 0


def _scores(function: Function, flow: Flow, loop: Loop, work: Work) -> dict[int, _Score]:
    """What each block of a loop is worth: (math, asynchronous bytes, wide loads, minus scalar loads)."""
    code = function.instructions
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    staged = staged_loads(function, flow, loop)
    is_async = {i for i in inside if code[i].opcode == "LDGSTS" or code[i].opcode in BULK_LOADS}
    wider = bool(is_async) or any(access_bytes(code[i]) >= 8 for i in staged)
    stray = _STRAY * sum(work.math.get(i, 0) for i in inside)
    scores: dict[int, _Score] = {}
    for b in loop.blocks:
        body = [i for i in range(flow.blocks[b].first, flow.blocks[b].end) if not code[i].is_off]
        math = sum(work.math.get(i, 0) for i in body)
        loads = [access_bytes(code[i]) for i in body if i in staged]
        scores[b] = (
            math if math > stray else 0,
            sum(access_bytes(code[i]) for i in body if i in is_async),
            sum(size * size for size in loads if size >= 8 or not wider),
            -sum(size < 8 and wider for size in loads),
        )
    return scores


class _Walk:
    """Walks a loop once round, from its header back to its header."""

    def __init__(self, function: Function, flow: Flow, loop: int, scores: dict[int, _Score]) -> None:
        self.code = function.instructions
        self.flow = flow
        self.loop = flow.loops[loop]
        self.evaluator = Evaluator(function, flow)
        self.inner = {
            other.header: other for other in flow.loops if other.blocks < self.loop.blocks and other is not self.loop
        }
        self.worth = self._worth_from(scores)

    def path(self, state: State | None) -> SteadyPath | None:
        """Walk with what is known at the header, or (None) with nothing known at all."""
        known: State | None = None if state is None else dict(state)
        trip: list[Step] = []
        visits: dict[int, int] = {}
        open_loops: list[int] = []
        at = self.loop.header
        while len(trip) < _LONGEST_TRIP:
            visits[at] = visits.get(at, 0) + 1
            self._execute(at, known, trip)
            following = self._choose(at, known, visits, open_loops)
            if following is None:
                return None
            if following == self.loop.header:
                return SteadyPath(self.loop, tuple(trip), tuple(dict.fromkeys(open_loops)))
            for header, inner in self.inner.items():  # a loop that is entered anew counts its rounds anew
                if following not in inner.blocks:
                    visits.pop(header, None)
            at = following
        return None

    def _execute(self, block: int, known: State | None, trip: list[Step]) -> None:
        body = self.flow.blocks[block]
        for i in range(body.first, body.end):
            instruction = self.code[i]
            active = not instruction.is_off
            if known is not None:
                active = active and self.evaluator.guard(instruction, known) is not False
                self.evaluator.step(instruction, known)
            trip.append(Step(i, active))

    def _choose(self, block: int, known: State | None, visits: dict[int, int], open_loops: list[int]) -> int | None:
        """The next block."""
        body = self.flow.blocks[block]
        last = self.code[body.end - 1]
        inside = [s for s in body.successors if s in self.loop.blocks]
        if len(body.successors) == 2 and known is not None:
            taken = self.evaluator.taken(last, known)
            if taken is not None:
                # Successors are (falling through, taken); a forced way out of the K-loop is the end of the run.
                forced = body.successors[int(taken)]
                if forced in self.loop.blocks:
                    return forced
        options = [s for s in inside if s == self.loop.header or s in self.worth or s in self.inner]
        options = [s for s in options if not self._closes_open_loop(block, s, visits, open_loops)]
        if not options:
            return self._leave(block)
        best = max(options, key=lambda s: (self._value(block, s), -options.index(s)))
        if known is not None and len(body.successors) == 2:
            self.evaluator.assume(last, best == body.successors[1], known)
        return best

    def _closes_open_loop(self, block: int, successor: int, visits: dict[int, int], open_loops: list[int]) -> bool:
        """True for the ways that would go round an inner loop again although nothing says that it does."""
        for inner in self.inner.values():
            back = successor == inner.header and block in inner.blocks
            again = block == inner.header and successor in inner.blocks and visits.get(block, 0) > 1
            if back and any(s not in inner.blocks for s in self.flow.blocks[block].successors):
                open_loops.append(inner.header)
                return True
            if again and any(s not in inner.blocks for s in self.flow.blocks[block].successors):
                open_loops.append(inner.header)
                return True
        return False

    def _leave(self, block: int) -> int | None:
        """With no better way: any successor inside the loop."""
        return next((s for s in self.flow.blocks[block].successors if s in self.loop.blocks), None)

    def _value(self, block: int, successor: int) -> _Score:
        if successor == self.loop.header:
            return _NOTHING
        return self.worth.get(successor, (-1, 0, 0, 0))

    def _worth_from(self, scores: dict[int, _Score]) -> dict[int, _Score]:
        """The best that can follow from the start of each block up to the back edge, every inner loop run once."""
        worth: dict[int, _Score] = {}
        order = _forward_order(self.flow, self.loop)[::-1]
        # The way out of an inner loop may come later in this order than its latch: once more for every level.
        levels = 1 + max((inner.depth for inner in self.inner.values()), default=self.loop.depth) - self.loop.depth
        for block in order * levels:
            options = []
            for successor in self.flow.blocks[block].successors:
                if successor == self.loop.header:
                    options.append(_NOTHING)
                elif successor in self.inner and block in self.inner[successor].blocks:
                    inner = self.inner[successor]  # back to its header, and out from there
                    outs = [s for s in self.flow.blocks[inner.header].successors if s not in inner.blocks]
                    options.extend(worth[s] for s in outs if s in worth)
                    options.extend(_NOTHING for s in outs if s == self.loop.header)
                elif successor in worth:
                    options.append(worth[successor])
            if options:
                worth[block] = _add(scores[block], max(options))
        return worth


def _forward_order(flow: Flow, loop: Loop) -> list[int]:
    """The blocks of a loop in an order in which every edge but the back edges goes forward."""
    done: list[int] = []
    seen = {loop.header}
    stack = [(loop.header, iter(flow.blocks[loop.header].successors))]
    while stack:
        block, successors = stack[-1]
        following = next((s for s in successors if s not in seen and s in loop.blocks), None)
        if following is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(flow.blocks[following].successors)))
    return done[::-1]


def _add(a: _Score, b: _Score) -> _Score:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])
