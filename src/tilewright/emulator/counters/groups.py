"""The memory accesses of a kernel, neighbours together as the assembler would have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilewright.emulator.counters.alignment import alignments
from tilewright.emulator.counters.merge import Step, merge
from tilewright.ptx.cfg import Block, Graph, defs_uses
from tilewright.ptx.module import TYPE_BYTES, Address, Function, Instruction, Module, Register, Symbol, Vector

# Nothing moves across these: they order threads, or touch memory in ways of their own.
_FENCES = frozenset(
    {"bar", "barrier", "mbarrier", "fence", "membar", "atom", "red", "call", "cp", "wmma", "wgmma", "ldmatrix",
     "stmatrix", "multimem", "griddepcontrol", "nanosleep"}
)  # fmt: skip
_ORDERED = frozenset({"volatile", "relaxed", "acquire", "release", "mmio", "async"})
MOST_ELEMENTS = 4
Kind = Literal["load", "store"]
_SPACES = ("global", "shared", "local", "const", "param")


def access_sizes(module: Module, graph: Graph) -> Mapping[int, int]:
    """Site → bytes of the access that an instruction stands for; 0 where it is a part of another's.

    Of each group of loads or stores that become one, the member with the lowest offset has the size of all. As seen in
    machine code for sm_75 to sm_90, ptxas widens accesses to shared memory of up to four elements that fill their
    registers: a byte or a half that a load extends stays apart, and so do accesses to global memory, of which the
    compiler has made vectors before, where it could. (Where one of four words is not wanted, ptxas reads it all the
    same; here that is two accesses.)
    """
    align = alignments(module, graph.function, graph.instructions)
    sizes: dict[int, int] = {}
    for block in graph.blocks:
        steps = _steps(block, align, graph.function)
        for group in merge(steps):
            total = sum(steps[position].size_bytes for position in group)
            for position in group:
                sizes[block.first_site + position] = total if position == group[0] else 0
    return sizes


def space_of(instruction: Instruction) -> str:
    """The state space that it names; ``generic`` where it names none."""
    found = (m.partition("::")[0] for m in instruction.modifiers)
    return next((space for space in found if space in _SPACES), "generic")


def _steps(block: Block, align: Mapping[str, int], function: Function) -> list[Step]:
    return [_step(instruction, align, function) for instruction in block.instructions]


def _fills(i: Instruction, size: int, function: Function) -> bool:
    """Its elements are as wide as their registers; of narrow stores, ptxas makes none."""
    if size < 4 and i.opcode == "st":
        return False
    value = i.operands[1 if i.opcode == "st" else 0]
    first = value.items[0] if isinstance(value, Vector) else value
    return not isinstance(first, Register) or TYPE_BYTES.get(function.type_of(first.name)) == size


def _step(i: Instruction, align: Mapping[str, int], function: Function) -> Step:
    defines = tuple(dict.fromkeys(defs_uses(i)[0]))
    if i.opcode in _FENCES or _ORDERED & set(i.modifiers):
        return Step("fence", defines=defines)
    space = space_of(i)
    if i.opcode not in ("ld", "ldu", "st") or space in ("const", "param"):
        return Step("other", defines=defines)
    where = next((operand for operand in i.operands if isinstance(operand, Address)), None)
    size = TYPE_BYTES.get(i.modifiers[-1]) if i.modifiers else None
    if where is None or where.base is None or size is None:
        return Step("fence", defines=defines)
    base, offset = where.base.name, where.offset
    if isinstance(where.base, Symbol):
        offset += where.base.offset
    count = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
    alignment = min(align.get(base, 1), MOST_ELEMENTS * size) if space == "shared" and _fills(i, size, function) else 1
    guard = "" if i.guard is None else ("!" if i.guard.negated else "@") + i.guard.name
    kind: Kind = "store" if i.opcode == "st" else "load"
    return Step(kind, space, base, offset, size * count, alignment, guard, defines)
