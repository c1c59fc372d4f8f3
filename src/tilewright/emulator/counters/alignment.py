"""Which powers of two divide the values of registers: what an assembler knows when it widens accesses to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ptx.cfg import defs_uses
from tilewright.ptx.module import Function, Immediate, Instruction, Module, Operand, Register, Symbol

_MOST = 16  # trailing zero bits that are kept apart; no access needs more than four
ALONE_ZEROS = 10  # a shared array that is the only one begins at 0, or at 1024 (sm_90)
_COPIES = frozenset({"mov", "cvta", "cvt"})
_INTEGERS = frozenset({"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"})


def alignments(module: Module, function: Function, instructions: Sequence[Instruction]) -> Mapping[str, int]:
    """The largest known power of two that divides every value of a register or symbol, 1 to 65536.

    Kernel parameters and what is loaded are multiples of 1: CUDA promises no more of a pointer to scalars.
    """
    known = {v.name: _zeros(v.align) for v in (*module.variables, *function.shared, *function.local)}
    shared = [v for v in (*module.variables, *function.shared) if v.space == "shared"]
    if len(shared) == 1:
        known[shared[0].name] = ALONE_ZEROS
    zeros: dict[str, int] = {}
    has_changed = True
    while has_changed:  # from above: loops settle at what all their rounds have in common
        has_changed = False
        for instruction in instructions:
            for name, bits in _results(instruction, known | zeros):
                if bits < zeros.get(name, _MOST + 1):
                    zeros[name] = bits
                    has_changed = True
    return {name: 1 << bits for name, bits in (known | zeros).items()}


def _zeros(value: int) -> int:
    """Trailing zero bits."""
    return _MOST if not value else min((value & -value).bit_length() - 1, _MOST)


def _results(i: Instruction, zeros: Mapping[str, int]) -> list[tuple[str, int]]:
    names = defs_uses(i)[0]
    if len(names) == 1 and i.operands and isinstance(i.operands[0], Register) and _INTEGERS & set(i.modifiers):
        return [(names[0], min(_of(i, zeros), _MOST))]
    return [(name, 0) for name in names]


def _of(i: Instruction, zeros: Mapping[str, int]) -> int:
    values = [_operand(operand, zeros) for operand in i.operands[1:]]
    opcode = i.opcode
    if opcode in _COPIES and len(values) == 1 and not any(m.startswith(("f", "bf", "e")) for m in i.modifiers):
        return values[0]
    if opcode in ("add", "sub", "or", "xor", "min", "max") and len(values) == 2:
        return min(values)
    if opcode == "and" and len(values) == 2:
        return max(values)
    if opcode == "selp" and len(values) == 3:
        return min(values[:2])
    if opcode == "shl" and isinstance(i.operands[2], Immediate):
        return values[0] + i.operands[2].value
    if opcode == "shr" and isinstance(i.operands[2], Immediate):
        return max(values[0] - i.operands[2].value, 0)
    if opcode in ("mul", "mad") and ("lo" in i.modifiers or "wide" in i.modifiers):
        product = values[0] + values[1]
        return min(product, values[2]) if opcode == "mad" else product
    return 0


def _operand(operand: Operand, zeros: Mapping[str, int]) -> int:
    if isinstance(operand, Immediate):
        return _zeros(operand.value) if operand.kind == "int" else 0
    if isinstance(operand, Symbol):
        return min(zeros.get(operand.name, 0), _zeros(operand.offset))
    if isinstance(operand, Register):
        return zeros.get(operand.name, _MOST)  # not written so far
    return 0
