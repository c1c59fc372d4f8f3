"""Which global loads are copies: those whose value reaches shared memory."""

from __future__ import annotations

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import MATRIX, SCALAR_MATH, reads, split, writes

# ptxas writes LD, the generic load, where it cannot tell that a pointer is to global memory.
LOADS = frozenset({"LDG", "LD"})


class Values:
    """Follows loaded values through registers, one instruction at a time.

    A value passes through moves, selects, conversions, permutations, and the arithmetic that dequantises it; not
    through an address, not through a matrix instruction, and not through a sum that an FMA adds to (what it makes of a
    load is a result, no copy). With `marks_math`, such arithmetic adds its own index to what the value carries.
    """

    def __init__(
        self, held: dict[int, frozenset[int]] | None = None, guards_hold: bool = False, marks_math: bool = False
    ) -> None:
        self.held: dict[int, frozenset[int]] = dict(held or {})
        self.marks_math = marks_math
        self.guards_hold = guards_hold  # else a guarded instruction may also leave the old value in place

    def step(self, instruction: Instruction, tag: int) -> frozenset[int]:
        """Execute one instruction; loads put `tag` into their registers. Returns the tags that it stores to shared."""
        if instruction.is_off:
            return frozenset()
        opcode = instruction.opcode
        if opcode in LOADS:
            carried = frozenset((tag,))
        elif MATRIX.match(opcode) or (opcode in SCALAR_MATH and adds_to_itself(instruction)):
            carried = frozenset()
        else:
            carried = frozenset().union(*(self.held[r] for r in reads(instruction) if r in self.held))
            if carried and self.marks_math and opcode in SCALAR_MATH:
                carried |= {tag}
        if opcode in ("STS", "STSM"):
            return carried
        for register in writes(instruction):
            carried_here = carried
            # A guarded write of something else (zeros into what lies past an edge) leaves a load what it is.
            if instruction.predicate and (not carried or not self.guards_hold):
                carried_here = carried | self.held.get(register, frozenset())
            if carried_here:
                self.held[register] = carried_here
            else:
                self.held.pop(register, None)
        return frozenset()


def staged_loads(function: Function, flow: Flow, loop: Loop) -> frozenset[int]:
    """Indices of the loads of a loop whose value reaches a store to shared memory on some path inside the loop."""
    code = function.instructions
    return frozenset(i for i in _stored(function, flow, loop) if code[i].opcode in LOADS)


def conversions(function: Function, flow: Flow, loop: Loop) -> frozenset[int]:
    """Indices of the scalar math of a loop that dequantises a load on its way to shared memory: no math of a tile."""
    code = function.instructions
    return frozenset(i for i in _stored(function, flow, loop) if code[i].opcode in SCALAR_MATH)


def adds_to_itself(instruction: Instruction) -> bool:
    """True for ``FFMA R8, R4, R6, R8``: a running sum."""
    parts = [part.removesuffix(".reuse").lstrip("-") for part in split(instruction.operands)]
    return len(parts) >= 4 and parts[0] == parts[3]


def _stored(function: Function, flow: Flow, loop: Loop) -> frozenset[int]:
    """Loads whose values reach shared memory, and the scalar math on their way."""
    code = function.instructions
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    found = {code[i].opcode for i in inside}
    if found.isdisjoint(("STS", "STSM")) or found.isdisjoint(LOADS):
        return frozenset()
    staged: set[int] = set()
    at_entry: dict[int, dict[int, frozenset[int]]] = {loop.header: {}}
    todo = [loop.header]
    while todo:
        block = flow.blocks[todo.pop()]
        values = Values(at_entry[block.index], marks_math=True)
        for i in range(block.first, block.end):
            staged |= values.step(code[i], i)
        for successor in block.successors:
            if successor in loop.blocks and _merge(at_entry, successor, values.held):
                todo.append(successor)
    return frozenset(staged)


def _merge(at_entry: dict[int, dict[int, frozenset[int]]], block: int, held: dict[int, frozenset[int]]) -> bool:
    if block not in at_entry:
        at_entry[block] = dict(held)
        return True
    known, grew = at_entry[block], False
    for register, tags in held.items():
        before = known.get(register, frozenset())
        if not tags <= before:
            known[register] = before | tags
            grew = True
    return grew
