"""Control flow: basic blocks, dominators, natural loops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from tilewright.sass.listing import Function, Instruction

_TARGET = re.compile(r"`\(([^)]+)\)")
_BRANCHES = frozenset({"BRA", "JMP", "BRX", "JMX", "CALL"})
_ENDS = frozenset({"EXIT", "RET", "KILL", "BPT"})


@dataclass(frozen=True)
class Block:
    """Instructions ``first`` up to, not including, ``end`` (indices), and the blocks that may follow."""

    index: int
    first: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A natural loop.

    Attributes:
        header: the block that every trip enters through.
        latches: blocks with a back edge to the header.
        blocks: all blocks of the body, those of inner loops included.
        parent: index of the enclosing loop in ``Flow.loops``, None outermost.
        depth: 1 for an outermost loop.
    """

    header: int
    latches: tuple[int, ...]
    blocks: frozenset[int]
    parent: int | None = None
    depth: int = 1


@dataclass(frozen=True)
class Flow:
    """The control-flow graph of one function.

    Attributes:
        blocks: in address order.
        dominators: immediate dominator of each block; None for the entry and for unreachable blocks.
        loops: outer before inner.
        is_reducible: False when a loop is entered in the middle; then the loops found are not all there are.
        calls: indices of calls that come back to the next instruction.
    """

    blocks: tuple[Block, ...]
    dominators: tuple[int | None, ...]
    loops: tuple[Loop, ...]
    is_reducible: bool
    calls: frozenset[int] = frozenset()

    def children(self, loop: int | None) -> tuple[int, ...]:
        """Loops directly inside a loop (or, for None, inside no loop)."""
        return tuple(i for i, inner in enumerate(self.loops) if inner.parent == loop)


def flow_of(function: Function) -> Flow:
    """Blocks and loops of a function; a function without code has none."""
    calls = _returning_calls(function)
    blocks = _blocks(function, calls)
    order = _reverse_postorder(blocks)
    dominators = _dominators(blocks, order)
    rank = {block: i for i, block in enumerate(order)}
    back: dict[int, list[int]] = {}
    is_reducible = True
    for block in order:
        for successor in blocks[block].successors:
            if _dominates(dominators, successor, block):
                back.setdefault(successor, []).append(block)
            elif rank[successor] <= rank[block]:
                is_reducible = False
    return Flow(blocks, dominators, _nest(blocks, back), is_reducible, calls)


def target_of(instruction: Instruction) -> str | None:
    """The label that a branch names, or None."""
    found = _TARGET.search(instruction.operands)
    return found[1] if found else None


def _is_conditional(instruction: Instruction) -> bool:
    if instruction.predicate not in ("", "@PT", "@UPT"):
        return True
    # BRA.U UP0, BRA.DIV UR4, BRA.CONV: the condition is an operand.
    return bool(re.match(r"!?U?P\d|~?!?UR|!?P\d", instruction.operands)) and instruction.opcode == "BRA"


def _blocks(function: Function, calls: frozenset[int]) -> tuple[Block, ...]:
    code = function.instructions
    if not code:
        return ()
    labels = _label_indices(function)
    starts = {0, *(at for at in labels.values() if at < len(code))}
    for i, instruction in enumerate(code):
        if instruction.opcode in _BRANCHES or instruction.opcode in _ENDS:
            starts.add(i + 1)
    bounds = [*sorted(start for start in starts if start < len(code)), len(code)]
    at_index = {first: i for i, first in enumerate(bounds[:-1])}
    blocks = []
    for first, end in pairwise(bounds):
        targets = _successors(code[end - 1], end - 1, labels, calls)
        successors = tuple(dict.fromkeys(at_index[t] for t in targets if t in at_index))
        blocks.append(Block(at_index[first], first, end, successors))
    return tuple(blocks)


def _successors(last: Instruction, at: int, labels: dict[str, int], calls: frozenset[int]) -> list[int]:
    following = [at + 1]
    if last.is_off:
        return following
    if last.opcode in _ENDS:
        return following if _is_conditional(last) else []
    if last.opcode not in _BRANCHES or at in calls:
        return following
    label = target_of(last)
    taken = [labels[label]] if label in labels else []
    if last.opcode == "BRX":  # an indirect branch: any label may follow, as far as is known
        taken = sorted(set(labels.values()))
    return [*following, *taken] if _is_conditional(last) else taken


def _label_indices(function: Function) -> dict[str, int]:
    return {label: address // 16 for label, address in (function.labels or {}).items()}


def _returning_calls(function: Function) -> frozenset[int]:
    """Calls that come back to the next instruction.

    ptxas also uses ``CALL.REL.NOINC`` as a plain far jump (out of a loop, into code that never returns). A call returns
    when a ``RET`` stands behind its target before the code of the next callee begins.
    """
    code, labels = function.instructions, _label_indices(function)
    calls = {i: labels.get(target_of(c) or "") for i, c in enumerate(code) if c.opcode == "CALL"}
    returns = [i for i, instruction in enumerate(code) if instruction.opcode == "RET"]
    entries = sorted({target for target in calls.values() if target is not None})
    found = set()
    for call, target in calls.items():
        if target is None:
            found.add(call)
            continue
        nearest = next((at for at in returns if at >= target), None)
        next_entry = next((entry for entry in entries if entry > target), len(code))
        if nearest is not None and nearest < next_entry:
            found.add(call)
    return frozenset(found)


def _reverse_postorder(blocks: tuple[Block, ...]) -> list[int]:
    if not blocks:
        return []
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        block, successors = stack[-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(blocks[successor].successors)))
                break
        else:
            done.append(block)
            stack.pop()
    return done[::-1]


def _dominators(blocks: tuple[Block, ...], order: list[int]) -> tuple[int | None, ...]:
    """Immediate dominators, by the iteration of Cooper, Harvey and Kennedy (2001)."""
    rank = {block: i for i, block in enumerate(order)}
    predecessors: dict[int, list[int]] = {}
    for block in order:
        for successor in blocks[block].successors:
            predecessors.setdefault(successor, []).append(block)
    found: dict[int, int] = {order[0]: order[0]} if order else {}
    changed = bool(order)
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in predecessors[block] if p in found]
            best = known[0]
            for other in known[1:]:
                while best != other:
                    while rank[best] > rank[other]:
                        best = found[best]
                    while rank[other] > rank[best]:
                        other = found[other]
            if found.get(block) != best:
                found[block] = best
                changed = True
    return tuple(found[b] if b in found and b != order[0] else None for b in range(len(blocks)))


def _dominates(dominators: tuple[int | None, ...], upper: int, lower: int) -> bool:
    at: int | None = lower
    while at is not None and at != upper:
        at = dominators[at]
    return at == upper


def _nest(blocks: tuple[Block, ...], back: dict[int, list[int]]) -> tuple[Loop, ...]:
    predecessors: dict[int, list[int]] = {}
    for source in blocks:
        for successor in source.successors:
            predecessors.setdefault(successor, []).append(source.index)
    bodies: dict[int, frozenset[int]] = {}
    for header, latches in back.items():
        body = {header}
        todo = [latch for latch in latches if latch != header]
        while todo:
            block = todo.pop()
            if block not in body:
                body.add(block)
                todo.extend(predecessors.get(block, ()))
        bodies[header] = frozenset(body)
    headers = sorted(bodies, key=lambda header: (-len(bodies[header]), header))
    loops: list[Loop] = []
    for header in headers:
        around = [i for i, loop in enumerate(loops) if header in loop.blocks and header != loop.header]
        parent = min(around, key=lambda i: len(loops[i].blocks), default=None)
        depth = 1 if parent is None else loops[parent].depth + 1
        loops.append(Loop(header, tuple(back[header]), bodies[header], parent, depth))
    return tuple(loops)
