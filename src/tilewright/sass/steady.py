"""One steady-state path round the K-loop, as a trip in the middle of the run takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.sass.counters import settled_in
from tilewright.sass.evaluate import Evaluator, State, constants_at
from tilewright.sass.flow import Flow, Loop
from tilewright.sass.kloop import Work
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, access_bytes, is_zero_fill
from tilewright.sass.staging import staged_loads

# A block with less than this share of the loop's math decides no branch: it is a stray instruction.
_STRAY = 0.05
_LONG_ENOUGH = 30_000  # instructions of a trip; from here on no inner loop is gone round again
_LONGEST_TRIP = 60_000

_MOST_PATHS = 16

_Score = tuple[float, float, float, float, float]
_NOTHING: _Score = (0, 0, 0, 0, 0)


class Step(NamedTuple):
    """An instruction on the path (`at`); one that is guarded off issues (and waits), but does nothing."""

    at: int
    active: bool


class Choice(NamedTuple):
    """A branch, or a guarded wait (`at`): the way that was taken, and the way that was not."""

    at: int
    taken: int
    other: int


@dataclass(frozen=True)
class SteadyPath:
    """One trip of the K-loop.

    Attributes:
        loop: the K-loop.
        trip: instructions in the order of execution, inner loops written out.
        open_loops: (header block, rounds) of inner loops whose trip count could not be worked out, or is very large:
            they are written out for that many rounds.
        choices: branches (and guarded waits) that nothing decides and whose sides wait differently: index of the
            instruction → block that was taken (for a guarded wait: 1 where it waits, else 0).
    """

    loop: Loop
    trip: tuple[Step, ...]
    open_loops: tuple[tuple[int, int], ...] = ()
    choices: tuple[Choice, ...] = ()


def steady_paths(function: Function, flow: Flow, loop: int, work: Work) -> tuple[tuple[SteadyPath, ...], bool]:
    """Paths round the back edge of a loop, one for every choice of waits; none when there is no way round.

    Branches that constants decide (for thread 0), or that the middle of a long run decides (`settled_in`), are
    followed; ``BRA.DIV`` is passed as a warp passes it whose threads are together. At every other branch the side with
    more math is taken; among equals the one with more asynchronous copies, then wider loads, fewer scalar ones, more
    stores: the guard that ends the copies at the last tiles, and the scalar way for misaligned rows, are left aside.
    Where that leaves sides that wait differently, each makes a path of its own, up to `_MOST_PATHS`; the second result
    is False when there would have been more.
    """
    first = steady_path(function, flow, loop, work)
    if first is None:
        return (), True
    paths = {first.choices: first}
    todo: list[tuple[SteadyPath, dict[int, int]]] = [(first, {})]
    tried: set[tuple[tuple[int, int], ...]] = {()}
    is_complete = True
    while todo:
        path, forced = todo.pop(0)
        for choice in path.choices:
            if choice.at in forced:
                continue
            other = {**{c.at: c.taken for c in path.choices}, choice.at: choice.other}
            key = tuple(sorted(other.items()))
            if key in tried:
                continue
            if len(tried) > _MOST_PATHS:
                is_complete = False
                break
            tried.add(key)
            found = steady_path(function, flow, loop, work, other)
            if found is not None and found.choices not in paths:
                paths[found.choices] = found
                todo.append((found, {choice.at: choice.other, **forced}))
    return tuple(paths.values()), is_complete


def steady_path(
    function: Function, flow: Flow, loop: int, work: Work, forced: dict[int, int] | None = None
) -> SteadyPath | None:
    """The path that `steady_paths` puts first, or, of the choices between waits, the one with those that are forced."""
    values = _values(function, flow, flow.loops[loop], work)
    settled = settled_in(function, flow, flow.loops[loop])
    found: SteadyPath | None = None
    for decided in (settled, {}) if settled else ({},):
        for thread in (0, None):  # what holds for thread 0 need not be the rule: other warps may do the copies
            evaluator = Evaluator(function, flow, thread)
            known = constants_at(function, flow, flow.loops[loop].header, evaluator)
            evaluator.settled = decided
            walk = _Walk(function, flow, loop, values, evaluator, forced or {})
            path = walk.path(known)
            # Comparisons decided so that the loop ends make its last trip: judged anew, with none of them decided.
            if path is not None and not (walk.ends and decided) and _holds_all(path, values, work):
                return path
            found = path or found
        if not walk.ends:
            break
    return found


@dataclass(frozen=True)
class _Values:
    """What a path is chosen for.

    Attributes:
        scores: by block: (math, asynchronous bytes, wide loads, minus scalar loads, stores of loads).
        copies: the copies that count; a scalar load beside wider or asynchronous copies does not.
        boards: scoreboards that copies are outstanding on.
    """

    scores: dict[int, _Score]
    copies: frozenset[int]
    boards: int


def _holds_all(path: SteadyPath, values: _Values, work: Work) -> bool:
    """Whether a path meets math, and copies."""
    active = {step.at for step in path.trip if step.active}
    return not active.isdisjoint(work.math) and not active.isdisjoint(values.copies)


def _values(function: Function, flow: Flow, loop: Loop, work: Work) -> _Values:
    code = function.instructions
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end) if not code[i].is_off]
    size = {i: access_bytes(code[i]) for i in inside}
    is_async = {i for i in inside if code[i].opcode == "LDGSTS" or code[i].opcode in BULK_LOADS}
    staged = staged_loads(function, flow, loop)
    narrow = {i for i in staged if size[i] < 8} if is_async or any(size[i] >= 8 for i in staged) else set()
    ranges = {b: range(flow.blocks[b].first, flow.blocks[b].end) for b in loop.blocks}
    maths = {b: sum(work.math.get(i, 0) for i in body) for b, body in ranges.items()}
    stray = _STRAY * sum(maths.values())
    if sum(math for math in maths.values() if math > stray) * 2 < sum(maths.values()):
        stray = 0  # all of it lies in small pieces: none of them is a stray one
    scores: dict[int, _Score] = {}
    for b, body in ranges.items():
        scores[b] = (
            maths[b] if maths[b] > stray else 0,
            sum(size[i] for i in body if i in is_async),
            sum(size[i] ** 2 for i in body if i in staged and i not in narrow),
            -sum(i in narrow for i in body),
            sum(code[i].opcode in ("STS", "STSM") and not code[i].is_off for i in body) if staged else 0,
        )
    boards = 0
    for i in inside:
        board = code[i].write_barrier
        if board is not None and (code[i].opcode == "LDGDEPBAR" or i in staged - narrow):
            boards |= 1 << board
    return _Values(scores, frozenset(is_async | (staged - narrow)), boards)


class _Walk:
    """Walks a loop once round, from its header back to its header."""

    def __init__(
        self,
        function: Function,
        flow: Flow,
        loop: int,
        values: _Values,
        evaluator: Evaluator,
        forced: dict[int, int],
    ) -> None:
        self.code = function.instructions
        self.flow = flow
        self.loop = flow.loops[loop]
        self.evaluator = evaluator
        self.copies = values.copies
        self.boards = values.boards
        self.forced = forced
        self.choices: dict[int, Choice] = {}
        self.inner = {
            other.header: other for other in flow.loops if other.blocks < self.loop.blocks and other is not self.loop
        }
        self.worth = self._worth_from(values.scores)
        self.ahead: dict[int, frozenset[int]] = {}
        self.trip: list[Step] = []
        self.visits: dict[int, int] = {}
        self.open_loops: dict[int, int] = {}
        self.ends = False  # a branch that is decided leads out of the loop: this trip is the last

    def path(self, known: State) -> SteadyPath | None:
        known = dict(known)
        at = self.loop.header
        while len(self.trip) < _LONGEST_TRIP:
            self.visits[at] = self.visits.get(at, 0) + 1
            self._execute(at, known)
            following = self._choose(at, known)
            if following is None:
                return None
            if following == self.loop.header:
                return SteadyPath(self.loop, tuple(self.trip), tuple(self.open_loops.items()), self._chosen())
            for header, inner in self.inner.items():  # a loop that is entered anew counts its rounds anew
                if following not in inner.blocks:
                    self.visits.pop(header, None)
            at = following
        return None

    def _execute(self, block: int, known: State) -> None:
        body = self.flow.blocks[block]
        for i in range(body.first, body.end):
            instruction = self.code[i]
            guard = self.evaluator.guard(instruction, known)
            if guard is None and i in self.copies:
                guard = not is_zero_fill(instruction)  # of a copy and its zero fill, the tile's middle takes the copy
                self.evaluator.assume_guard(instruction, guard, known)
            elif guard is None and instruction.opcode == "DEPBAR":
                guard = bool(self.forced.get(i, 0))
                self.choices[i] = Choice(i, int(guard), int(not guard))
                self.evaluator.assume_guard(instruction, guard, known)
            self.evaluator.step(instruction, known)
            self.trip.append(Step(i, guard is not False and not instruction.is_off))

    def _choose(self, block: int, known: State) -> int | None:
        """The next block."""
        successors = self.flow.blocks[block].successors  # of a branch: (falling through, taken)
        last = self.code[self.flow.blocks[block].end - 1]
        if len(successors) == 2 and "DIV" in last.modifiers and successors[0] in self.loop.blocks:
            return successors[0]
        if len(successors) == 2 and len(self.trip) < _LONG_ENOUGH:
            taken = self.evaluator.taken(last, known)
            if taken is not None and successors[int(taken)] in self.loop.blocks:  # a way out is for the end of the run
                return successors[int(taken)]
            self.ends = self.ends or taken is not None
        options = [s for s in successors if s == self.loop.header or s in self.worth or s in self.inner]
        options = [s for s in options if not self._goes_round(block, s)]
        if not options:
            return self._leave(block)
        best = max(options, key=lambda s: (self._value(s), -options.index(s)))
        other = next((s for s in options if s != best), best)
        branch = self.flow.blocks[block].end - 1
        if other != best and self._value(other) == self._value(best) and self._waits_differ(best, other):
            best, other = (other, best) if self.forced.get(branch) == other else (best, other)
            self.choices.setdefault(branch, Choice(branch, best, other))
        if len(successors) == 2:
            self.evaluator.assume(last, best == successors[1], known)
        return best

    def _chosen(self) -> tuple[Choice, ...]:
        return tuple(self.choices[at] for at in sorted(self.choices))

    def _waits_differ(self, one: int, other: int) -> bool:
        """Whether what only one of two sides executes waits for copies."""
        a, b = self._ahead(one), self._ahead(other)
        return any(self._waits(block) for block in a ^ b)

    def _ahead(self, block: int) -> frozenset[int]:
        """Blocks from one on to the end of the trip."""
        if block not in self.ahead:
            seen: set[int] = set()
            todo = [block]
            while todo:
                at = todo.pop()
                if at not in seen and at in self.loop.blocks and at != self.loop.header:
                    seen.add(at)
                    todo.extend(self.flow.blocks[at].successors)
            self.ahead[block] = frozenset(seen)
        return self.ahead[block]

    def _waits(self, block: int) -> bool:
        body = self.code[self.flow.blocks[block].first : self.flow.blocks[block].end]
        return any(not i.is_off and (i.opcode == "DEPBAR" or i.wait_mask & self.boards) for i in body)

    def _goes_round(self, block: int, successor: int) -> bool:
        """True for the ways that lead round an inner loop again although nothing says that it goes on."""
        for inner in self.inner.values():
            back = successor == inner.header and block in inner.blocks
            again = block == inner.header and successor in inner.blocks and self.visits.get(block, 0) > 1
            if (back or again) and any(s not in inner.blocks for s in self.flow.blocks[block].successors):
                self.open_loops[inner.header] = self.visits.get(inner.header, 1) - int(again)
                return True
        return False

    def _leave(self, block: int) -> int | None:
        """With no better way: any successor inside the loop."""
        return next((s for s in self.flow.blocks[block].successors if s in self.loop.blocks), None)

    def _value(self, successor: int) -> _Score:
        if successor == self.loop.header:
            return _NOTHING
        return self.worth.get(successor, (-1, 0, 0, 0, 0))

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
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])
