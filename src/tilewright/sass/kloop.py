"""Which loop is the K-loop."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function
from tilewright.sass.operands import BULK_LOADS, is_integer_math, is_matrix, scalar_math
from tilewright.sass.staging import staged_loads

# Code in an inner loop runs more often than the code around it; by how much is rarely known.
_DEEPER = 8
# A loop with less than this share of the math of the best one is a side way: a remainder, a tail.
_FAIR_SHARE = 0.25


@dataclass(frozen=True)
class Work:
    """The math of a function.

    Attributes:
        kind: the opcode that most of it is: ``IMMA``, ``FFMA``; empty without math.
        math: instruction index → weight: 1, or the multiply-adds of a lane where they are more.
    """

    kind: str
    math: dict[int, int]


def work_of(function: Function) -> Work:
    """Matrix instructions; multiply-adds where there are none; integer multiply-adds where there are no others."""
    code = function.instructions
    math = {i: 1 for i, instruction in enumerate(code) if is_matrix(instruction)}
    math = math or {i: weight for i, instruction in enumerate(code) if (weight := scalar_math(instruction))}
    math = math or {i: 1 for i, instruction in enumerate(code) if is_integer_math(instruction)}
    kinds = [code[i].opcode for i in math]
    return Work(max(sorted(set(kinds)), key=kinds.count) if kinds else "", math)


def find_k_loops(function: Function, flow: Flow, work: Work) -> list[int]:
    """Loops that hold both copies to shared memory and math (indices in ``flow.loops``), the best candidate first.

    Of nested candidates the innermost that holds most of the math is kept: the outer loop of a persistent kernel is no
    K-loop, and neither is a copy loop with a conversion in it. Among separate loops those with a fair share of the math
    come first, of them those with asynchronous copies, then those with more math.
    """
    weights = {i: _math_weight(flow, i, work) for i in range(len(flow.loops))}
    copies = {i: _copies(function, flow, flow.loops[i]) for i in weights if weights[i]}
    holding = [i for i in copies if copies[i] != (0, 0)]
    kept = [i for i in holding if not _hides_a_k_loop(flow, i, holding, weights)]
    kept = [i for i in kept if not any(flow.loops[i].blocks < flow.loops[j].blocks for j in kept)]
    most = max((weights[i] for i in kept), default=0)
    return sorted(kept, key=lambda i: (weights[i] < most * _FAIR_SHARE, not copies[i][0], -weights[i]))


def fair_rivals(flow: Flow, work: Work, loops: list[int]) -> list[int]:
    """Of the loops that `find_k_loops` found, those beside the first that hold a fair share of its math."""
    weights = {i: _math_weight(flow, i, work) for i in loops}
    return [i for i in loops[1:] if weights[i] >= max(weights.values()) * _FAIR_SHARE]


def _hides_a_k_loop(flow: Flow, outer: int, holding: list[int], weights: dict[int, float]) -> bool:
    for inner in holding:
        if flow.loops[inner].blocks < flow.loops[outer].blocks:
            deeper = flow.loops[inner].depth - flow.loops[outer].depth
            if weights[inner] * _DEEPER**deeper * 2 >= weights[outer]:
                return True
    return False


def _math_weight(flow: Flow, loop: int, work: Work) -> float:
    """Math of a loop, that of inner loops weighted by their depth."""
    depths = dict.fromkeys(flow.loops[loop].blocks, 0)
    for other in flow.loops:
        if other.blocks < flow.loops[loop].blocks:
            for b in other.blocks:
                depths[b] += 1
    total = 0.0
    for b, depth in depths.items():
        block = flow.blocks[b]
        total += sum(work.math.get(i, 0) for i in range(block.first, block.end)) * _DEEPER**depth
    return total


def _copies(function: Function, flow: Flow, loop: Loop) -> tuple[int, int]:
    """(asynchronous copies, loads that reach shared memory) in a loop."""
    code = function.instructions
    inside = [code[i] for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    asynchronous = sum((i.opcode == "LDGSTS" or i.opcode in BULK_LOADS) and not i.is_off for i in inside)
    return asynchronous, len(staged_loads(function, flow, loop))
