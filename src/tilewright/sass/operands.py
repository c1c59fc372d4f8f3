"""What an instruction is, and which registers it reads and writes."""

from __future__ import annotations

import re
from functools import lru_cache

from tilewright.sass.listing import Instruction

# Matrix instructions: per warp (HMMA...), per warp group (HGMMA...), per block (UTCHMMA...).
MATRIX = re.compile(r"^(?:[HIBDQO]MMA|[HIQB]GMMA|UTC[A-Z]*MMA)$")
ASYNC_MATH = re.compile(r"^[HIQB]GMMA$")
# Math of kernels without matrix instructions: opcode → multiply-adds it stands for, relative to one FMA.
SCALAR_MATH = {"FFMA": 1, "FFMA2": 2, "DFMA": 1, "HFMA2": 1, "IDP": 1, "IDP4A": 1}
# Bulk copies and tensor maps: an mbarrier retires them.
BULK_LOADS = frozenset({"UBLKCP", "UTMALDG"})
_LOADS = frozenset({"LDG", "LDS", "LDL", "LD", "LDC", "LDSM", "ULDC", "LDCU", "ATOMS", "ATOMG", "ATOM", "LDTM"})
_STORES = frozenset({"STG", "STS", "STL", "ST", "STSM", "RED", "REDG", "STTM", "STAS"})
NO_RESULT = _STORES | {
    "BAR", "BRA", "BRX", "JMP", "EXIT", "BSSY", "BSYNC", "DEPBAR", "LDGDEPBAR", "LDGSTS", "MEMBAR", "NOP", "WARPSYNC",
    "ERRBAR", "CCTL", "CALL", "RET", "ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "R2P", "UISETP", "UPLOP3", "BREAK",
    "YIELD", "UBLKCP", "UTMALDG", "UTMASTG", "UTMACMDFLUSH", "WARPGROUP", "USETMAXREG", "KILL", "FENCE", "ARRIVES",
}  # fmt: skip
UNIFORM = 256  # uniform registers are numbered from here, so that one integer names any register
_REGISTER = re.compile(r"(?<![A-Za-z0-9_])(U?R)(\d+)(\.64)?")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


def is_matrix(instruction: Instruction) -> bool:
    """True for a matrix instruction that is not predicated off."""
    return MATRIX.match(instruction.opcode) is not None and not instruction.is_off


def scalar_math(instruction: Instruction) -> int:
    """Multiply-adds of a math instruction outside the tensor cores; 0 for anything else.

    ptxas also loads constants with the math pipes (``HFMA2 R5, -RZ, RZ, 0, 0``): a product with RZ is no math.
    """
    if instruction.opcode not in SCALAR_MATH or instruction.is_off:
        return 0
    factors = split(instruction.operands)[1:3]
    return 0 if any(factor.lstrip("-").startswith("RZ") for factor in factors) else SCALAR_MATH[instruction.opcode]


def is_integer_math(instruction: Instruction) -> bool:
    """True for ``IMAD R5, R8, R9, R5``: a multiply-add into its own accumulator, the math of a plain integer GEMM."""
    parts = [part.removesuffix(".reuse") for part in split(instruction.operands)]
    plain = instruction.opcode == "IMAD" and not instruction.modifiers and not instruction.is_off
    return plain and len(parts) == 4 and parts[0] == parts[3] and all(_REGISTER.fullmatch(part) for part in parts)


def is_zero_fill(instruction: Instruction) -> bool:
    """True for ``LDGSTS […], […], !PT``: it writes zeros and reads nothing."""
    return instruction.opcode == "LDGSTS" and instruction.operands.endswith(", !PT")


def is_global_load(instruction: Instruction) -> bool:
    """True for an instruction that reads global memory: into registers, or into shared memory."""
    loads = instruction.opcode in ("LDG", "LDGSTS") or is_bulk_load(instruction)
    return loads and not instruction.is_off and not is_zero_fill(instruction)


def is_barrier(instruction: Instruction) -> bool:
    """True where threads of the block wait for one another (``BAR.SYNC``, ``BAR.RED``; an arrival waits for nobody)."""
    return instruction.opcode == "BAR" and "ARV" not in instruction.modifiers and not instruction.is_off


def is_bulk_load(instruction: Instruction) -> bool:
    """True for a bulk copy or a tensor map's that writes shared memory (``UBLKCP.S.G``); a store is the other way."""
    if instruction.opcode not in BULK_LOADS or instruction.is_off:
        return False
    ways = [m for m in instruction.modifiers if m in ("S", "G")]
    return ways[:1] != ["G"]


def register_name(number: int) -> str:
    """``R5`` of 5, ``UR5`` of 261: see `writes`."""
    return f"UR{number - UNIFORM}" if number >= UNIFORM else f"R{number}"


@lru_cache(maxsize=65536)
def split(operands: str) -> tuple[str, ...]:
    """Operands at the top level: commas inside brackets do not split."""
    parts: list[str] = []
    depth, start = 0, 0
    for at, letter in enumerate(operands):
        if letter in "[({":
            depth += 1
        elif letter in "])}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(operands[start:at].strip())
            start = at + 1
    last = operands[start:].strip()
    return (*parts, last) if last else tuple(parts)


def access_bytes(instruction: Instruction) -> int:
    """Bytes per thread that a load, a store or an asynchronous copy moves (4 where no modifier says otherwise)."""
    return _width(instruction.modifiers)


def writes(instruction: Instruction) -> tuple[int, ...]:
    """Registers that the instruction writes (``R5`` → 5, ``UR5`` → 261); none for RZ."""
    return _writes(instruction.opcode, instruction.modifiers, instruction.operands)


def reads(instruction: Instruction) -> tuple[int, ...]:
    """Registers whose *value* the result (or the stored datum) carries: addresses are left out."""
    return _reads(instruction.opcode, instruction.modifiers, instruction.operands)


@lru_cache(maxsize=65536)
def _writes(opcode: str, modifiers: tuple[str, ...], operands: str) -> tuple[int, ...]:
    if opcode in NO_RESULT:
        return ()
    for operand in split(operands)[:2]:
        found = _REGISTER.match(operand)
        if found:
            first = int(found[2]) + (UNIFORM if found[1] == "UR" else 0)
            return tuple(range(first, first + _result_registers(opcode, modifiers)))
        if not re.match(r"!?U?P(T|R|\d)", operand):  # only predicates may stand before the result
            return ()
    return ()


@lru_cache(maxsize=65536)
def _reads(opcode: str, modifiers: tuple[str, ...], operands: str) -> tuple[int, ...]:
    parts = split(operands)
    if opcode in _LOADS or opcode in ("LDGSTS", *BULK_LOADS):
        return ()
    if opcode in _STORES:
        data = [part for part in parts if "[" not in part]
        return tuple(r for part in data for r in _registers(part, max(1, _width(modifiers) // 4)))
    skip = 0
    if _writes(opcode, modifiers, operands):
        skip = next(i for i, part in enumerate(parts) if _REGISTER.match(part)) + 1
    width = 2 if _is_wide(opcode, modifiers) else 1
    return tuple(r for part in parts[skip:] if "[" not in part for r in _registers(part, width))


def _registers(operand: str, width: int) -> list[int]:
    found: list[int] = []
    for match in _REGISTER.finditer(operand):
        first = int(match[2]) + (UNIFORM if match[1] == "UR" else 0)
        found.extend(range(first, first + max(width, 2 if match[3] else 1)))
    return found


def _is_wide(opcode: str, modifiers: tuple[str, ...]) -> bool:
    return "64" in modifiers or opcode in ("FFMA2", "FADD2", "FMUL2", "DFMA", "DADD", "DMUL")


def _result_registers(opcode: str, modifiers: tuple[str, ...]) -> int:
    if opcode == "LDSM":
        return next((int(m) for m in modifiers if m in ("2", "4")), 1)
    if opcode in _LOADS:
        return max(1, _width(modifiers) // 4)
    if MATRIX.match(opcode):
        return 2 if "F16" in modifiers[-1:] or "8816" in modifiers or "8832" in modifiers else 4
    if opcode == "CS2R":
        return 1 if "32" in modifiers else 2
    return 2 if _is_wide(opcode, modifiers) or "WIDE" in modifiers or "F64" in modifiers[:1] else 1


def _width(modifiers: tuple[str, ...]) -> int:
    return next((_WIDTHS[m] for m in reversed(modifiers) if m in _WIDTHS), 4)
