"""Which global loads are copies: those whose value reaches shared memory."""

from __future__ import annotations

from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import MATRIX, SCALAR_MATH, reads, writes


class Values:
    """Follows loaded values through registers, one instruction at a time.

    A value passes through moves, selects, conversions and permutations; not through an address, and not through the
    math of the kernel (what an FMA makes of a load is a result, no copy).
    """

    def __init__(self, held: dict[int, frozenset[int]] | None = None, guards_hold: bool = False) -> None:
        self.held: dict[int, frozenset[int]] = dict(held or {})
        self.guards_hold = guards_hold  # else a guarded instruction may also leave the old value in place

    def step(self, instruction: Instruction, tag: int) -> frozenset[int]:
        """Execute one instruction; loads put `tag` into their registers. Returns the tags that it stores to shared."""
        if instruction.is_off:
            return frozenset()
        opcode = instruction.opcode
        if opcode == "LDG":
            carried = frozenset((tag,))
        elif MATRIX.match(opcode) or opcode in SCALAR_MATH:
            carried = frozenset()
        else:
            carried = frozenset().union(*(self.held[r] for r in reads(instruction) if r in self.held))
        if opcode in ("STS", "STSM"):
            return carried
        for register in writes(instruction):
            carried_here = carried
            if not self.guards_hold and instruction.predicate:
                carried_here = carried | self.held.get(register, frozenset())
            if carried_here:
                self.held[register] = carried_here
            else:
                self.held.pop(register, None)
        return frozenset()


def staged_loads(function: Function, flow: Flow, loop: Loop) -> frozenset[int]:
    """Indices of the ``LDG`` of a loop whose value reaches a store to shared memory on some path inside the loop."""
    code = function.instructions
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    if not any(code[i].opcode in ("STS", "STSM") for i in inside) or not any(code[i].opcode == "LDG" for i in inside):
        return frozenset()
    staged: set[int] = set()
    at_entry: dict[int, dict[int, frozenset[int]]] = {loop.header: {}}
    todo = [loop.header]
    while todo:
        block = flow.blocks[todo.pop()]
        values = Values(at_entry[block.index])
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
