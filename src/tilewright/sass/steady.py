"""The K-loop, and one steady-state path through it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, SCALAR_MATH, access_bytes, is_matrix
from tilewright.sass.staging import staged_loads

# Loops within a loop run more often than it: the factor that ranks code by depth when trip counts are unknown.
_DEEPER = 8
_Score = tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """What counts as work in one function: math by instruction index, and copies.

    Attributes:
        kind: the opcode that most of the math is: ``IMMA``, ``FFMA``; empty without math.
        math: instruction index → multiply-adds a lane makes, or 1 for a matrix instruction.
    """

    kind: str
    math: dict[int, int]


@dataclass(frozen=True)
class SteadyPath:
    """One trip of the K-loop in its steady state.

    Attributes:
        loop: the K-loop.
        trip: instruction indices in the order of execution, inner loops written out.
        unknown_trips: an inner loop's trip count could not be read; it is taken to run once.
    """

    loop: Loop
    trip: tuple[int, ...]
    unknown_trips: bool


def work_of(function: Function) -> Work:
    """Matrix instructions, or multiply-adds where there is no matrix instruction."""
    code = function.instructions
    math = {i: 1 for i, instruction in enumerate(code) if is_matrix(instruction)}
    if not math:
        math = {
            i: SCALAR_MATH[instruction.opcode]
            for i, instruction in enumerate(code)
            if instruction.opcode in SCALAR_MATH and not instruction.is_off
        }
    kinds = [code[i].opcode for i in math]
    return Work(max(sorted(set(kinds)), key=kinds.count) if kinds else "", math)


def find_k_loops(function: Function, flow: Flow, work: Work) -> list[int]:
    """Loops that hold both staged copies and math, the best candidate first.

    Of nested candidates the innermost that holds most of the math is kept (a persistent kernel's outer loop is no
    K-loop; a copy loop with a conversion in it is none either). Then: loops with a fair share of the math, those with
    asynchronous copies before others, more math before less.
    """
    weights = {i: _math_weight(flow, i, work) for i in range(len(flow.loops))}
    copies = {i: _copy_rank(function, flow, flow.loops[i]) for i in weights if weights[i]}
    holding = {i for i in copies if copies[i] > (0, 0)}
    kept = []
    for i in holding:
        inner = [j for j in holding if j != i and flow.loops[j].blocks < flow.loops[i].blocks]
        if all(weights[j] * _DEEPER ** (flow.loops[j].depth - flow.loops[i].depth) < weights[i] / 2 for j in inner):
            kept.append(i)
    kept = [i for i in kept if not any(flow.loops[i].blocks < flow.loops[j].blocks for j in kept)] or kept
    most = max((weights[i] for i in kept), default=0)
    return sorted(kept, key=lambda i: (weights[i] * 4 < most, not copies[i][0], -weights[i]))


def _math_weight(flow: Flow, loop: int, work: Work) -> float:
    """Math instructions of a loop, those of inner loops weighted by their depth."""
    depths = {b: 0 for b in flow.loops[loop].blocks}
    for other in flow.loops:
        if other.blocks < flow.loops[loop].blocks:
            for b in other.blocks:
                depths[b] += 1
    total = 0.0
    for b, depth in depths.items():
        block = flow.blocks[b]
        total += sum(work.math.get(i, 0) for i in range(block.first, block.end)) * _DEEPER**depth
    return total


def _copy_rank(function: Function, flow: Flow, loop: Loop) -> tuple[int, int]:
    """(asynchronous copies, loads that reach shared memory) in a loop."""
    code = function.instructions
    inside = [code[i] for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    asynchronous = sum((i.opcode == "LDGSTS" or i.opcode in BULK_LOADS) and not i.is_off for i in inside)
    return asynchronous, len(staged_loads(function, flow, loop))


def steady_path(function: Function, flow: Flow, loop: int, work: Work) -> SteadyPath | None:
    """A path round the back edge of a loop, the one that a trip in the middle of the run takes.

    At every branch the side with more math is taken; among equals the one with more asynchronous copies, then wider
    loads, then fewer scalar ones: the guard that ends the copies at the last tiles, and the scalar way for misaligned
    rows, are left aside.
    """
    return _Walk(function, flow, work, loop).path()


class _Walk:
    def __init__(self, function: Function, flow: Flow, work: Work, loop: int) -> None:
        self.flow = flow
        self.loop = loop
        self.unknown_trips = False
        self.rank = {b: i for i, b in enumerate(_acyclic_order(flow))}
        staged = staged_loads(function, flow, flow.loops[loop])
        code = function.instructions
        asynchronous = any(
            code[i].opcode == "LDGSTS" and not code[i].is_off
            for b in flow.loops[loop].blocks
            for i in range(flow.blocks[b].first, flow.blocks[b].end)
        )
        wide = any(access_bytes(code[i]) >= 8 for i in staged)

        def score(i: int) -> _Score:
            instruction = code[i]
            size = 0 if instruction.is_off else access_bytes(instruction)
            if instruction.opcode == "LDGSTS" or instruction.opcode in BULK_LOADS:
                return (0, size, 0, 0)
            if i in staged:
                narrow = size < 8 and (asynchronous or wide)
                return (0, 0, 0 if narrow else size * size, -1 if narrow else 0)
            return (work.math.get(i, 0), 0, 0, 0)

        self.scores: dict[int, _Score] = {}
        for b in flow.loops[loop].blocks:
            block = flow.blocks[b]
            self.scores[b] = _sum(score(i) for i in range(block.first, block.end))

    def path(self) -> SteadyPath | None:
        found = self._best(self.loop, None)
        return SteadyPath(self.flow.loops[self.loop], found[1], self.unknown_trips) if found else None

    def _best(self, loop: int, goal: int | None) -> tuple[_Score, tuple[int, ...]] | None:
        """The best path from a loop's header to its back edge, or (with a goal) to the end of that block."""
        flow, header = self.flow, self.flow.loops[loop].header
        children = flow.children(loop)
        node_of = {b: ("loop", c) for c in children for b in flow.loops[c].blocks}
        nodes: dict[tuple[str, int], int] = {}
        for b in flow.loops[loop].blocks:
            kind, at = node_of.get(b, ("block", b))
            nodes[(kind, at)] = self.rank.get(flow.loops[at].header if kind == "loop" else b, -1)
        best: dict[tuple[str, int], tuple[_Score, tuple[int, ...]]] = {}
        for node in sorted(nodes, key=lambda n: -nodes[n]):
            options = []
            for body, source in self._ways_through(node, loop):
                if goal is not None and source == goal:
                    options.append(body)
                    continue
                for successor in flow.blocks[source].successors:
                    if successor == header:
                        if goal is None:
                            options.append(body)
                        continue
                    following = node_of.get(successor, ("block", successor))
                    if following in best and following != node:
                        tail = best[following]
                        options.append((_add(body[0], tail[0]), body[1] + tail[1]))
            if options:
                best[node] = max(options, key=lambda option: option[0])
        return best.get(node_of.get(header, ("block", header)))

    def _ways_through(self, node: tuple[str, int], loop: int) -> list[tuple[tuple[_Score, tuple[int, ...]], int]]:
        """Ways to pass a node: what is executed, and the block that it is left from."""
        kind, at = node
        if kind == "block":
            block = self.flow.blocks[at]
            return [((self.scores[at], tuple(range(block.first, block.end))), at)]
        inner = self.flow.loops[at]
        sources = [b for b in inner.blocks if any(s not in inner.blocks for s in self.flow.blocks[b].successors)]
        cycle = self._best(at, None)
        self.unknown_trips = True
        ways = []
        for source in sources:
            last = self._best(at, source)
            if last is None:
                continue
            rounds = 0 if source in inner.latches or cycle is None else 1
            body = last if not rounds or cycle is None else (_add(cycle[0], last[0]), cycle[1] + last[1])
            ways.append((body, source))
        return ways


def _acyclic_order(flow: Flow) -> list[int]:
    """Blocks in an order in which every edge but the back edges goes forward."""
    done: list[int] = []
    seen: set[int] = {0}
    stack = [(0, iter(flow.blocks[0].successors))]
    while stack:
        block, successors = stack[-1]
        following = next((s for s in successors if s not in seen), None)
        if following is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(flow.blocks[following].successors)))
    return done[::-1]


def _sum(scores: Iterable[_Score]) -> _Score:
    total: _Score = (0, 0, 0, 0)
    for score in scores:
        total = _add(total, score)
    return total


def _add(a: _Score, b: _Score) -> _Score:
    return tuple(x + y for x, y in zip(a, b, strict=True))
