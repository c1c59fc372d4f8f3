"""What integer instructions compute, on 32-bit words that may be unknown (None).

Only operations whose meaning is certain are here; `compute` says None for anything else, and for any source that is
unknown, unless the result does not depend on it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

Word = int | None
MASK = 0xFFFFFFFF

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def signed(value: int, bits: int = 32) -> int:
    """The bits as a two's complement number."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def compute(base: str, modifiers: frozenset[str], words: list[Word], carry: Word) -> Word:
    """The result of an instruction with a result of one word.

    Args:
        base: the opcode without the ``U`` of uniform registers.
        words: sources, negated and inverted as written.
        carry: what an ``.X`` adds.
    """
    if base == "LOP3":
        return _logic(words)
    if base == "IMAD":
        return _multiply_add(modifiers, words, carry)
    if None in words:
        return None
    known = [word for word in words if word is not None]
    if base in ("IADD3", "IADD", "VIADD"):
        extra = carry if "X" in modifiers else 0
        return None if extra is None else (sum(known) + extra) & MASK
    if base in ("MOV", "R2UR") and len(known) == 1:
        return known[0]
    if base == "LEA":
        return _scaled(modifiers, known, carry)
    if base == "SHF" and len(known) == 3:
        return _shift(modifiers, *known)
    if base == "PRMT" and len(known) == 3:
        return _permute(*known)
    return _unary(base, modifiers, known)


def high_of_product(modifiers: frozenset[str], a: int, b: int, c: int) -> int:
    """``IMAD.HI``: the high word of a product and a sum with 64 bits."""
    return ((a * b if "U32" in modifiers else signed(a) * signed(b)) + c >> 32) & MASK


def least_or_most(modifiers: frozenset[str], a: Word, b: Word, is_least: bool) -> Word:
    """``VIMNMX``: signed unless ``.U32``."""
    if a is None or b is None:
        return None
    ordered = sorted((a, b), key=lambda v: v if "U32" in modifiers else signed(v))
    return ordered[0] if is_least else ordered[1]


def compare(modifiers: tuple[str, ...], a: Word, b: Word, low: Word, bits: int) -> Word:
    """``ISETP``: 1 or 0. With ``.EX`` the words are the high halves, and `low` what the low halves gave."""
    if a is None or b is None or not modifiers or modifiers[0] not in _COMPARE:
        return None
    how = modifiers[0]
    pair = (a, b) if {"U32", "U64"} & set(modifiers) else (signed(a, bits), signed(b, bits))
    if "EX" not in modifiers:
        return int(_COMPARE[how](*pair))
    if how in ("EQ", "NE"):
        if low is None:
            return int(how == "NE") if a != b else None
        return int((a == b) and low) if how == "EQ" else int((a != b) or low)
    return low if a == b else int(_COMPARE[how](*pair))


def join(how: str, a: Word, b: Word) -> Word:
    """``.AND``, ``.OR`` or ``.XOR`` of two predicates."""
    if how == "AND":
        return 0 if 0 in (a, b) else None if a is None or b is None else 1
    if how == "OR":
        return 1 if 1 in (a, b) else None if a is None or b is None else 0
    return None if a is None or b is None or how != "XOR" else a ^ b


def by_table(values: list[Word], table: Word) -> Word:
    """``PLOP3``: the bit of the table for three predicates; known where all that they may be agree."""
    if table is None:
        return None
    rows = [r for r in range(8) if all(v is None or v == (r >> (2 - i) & 1) for i, v in enumerate(values))]
    bits = {table >> row & 1 for row in rows}
    return bits.pop() if len(bits) == 1 else None


def _logic(words: list[Word]) -> Word:
    """Three sources and a truth table, bit by bit; bits that an unknown source cannot change are known."""
    if len(words) < 4 or words[3] is None:
        return None
    table, sources = words[3], words[:3]
    result = 0
    for choice in range(8):
        if table >> choice & 1:
            part = MASK
            for i, word in enumerate(sources):
                want = choice >> (2 - i) & 1
                if word is None:
                    if _depends(table, i, sources):
                        return None
                    part &= MASK if want else 0
                else:
                    part &= word if want else ~word & MASK
            result |= part
    return result & MASK


def _depends(table: int, source: int, sources: list[Word]) -> bool:
    """Whether any bit of the result may change with an unknown source, the others being as they are."""
    shift = 2 - source
    for row in range(8):
        other = row ^ (1 << shift)
        if (table >> row & 1) == (table >> other & 1):
            continue
        # The row counts where every known source has such a bit somewhere.
        possible = MASK
        for i, word in enumerate(sources):
            if i != source and word is not None:
                possible &= word if row >> (2 - i) & 1 else ~word & MASK
        if possible:
            return True
    return False


def _multiply_add(modifiers: frozenset[str], words: list[Word], carry: Word) -> Word:
    if len(words) != 3:
        return None
    a, b, c = words
    extra = carry if "X" in modifiers else 0
    if 0 in (a, b):
        product: Word = 0
    elif a is None or b is None:
        return None
    else:
        product = a * b
    return None if c is None or extra is None or product is None else (product + c + extra) & MASK


def _scaled(modifiers: frozenset[str], known: list[int], carry: Word) -> Word:
    """``LEA d, a, b, s`` is (a << s) + b; ``LEA.HI d, a, b, c, s`` takes the high word of (c:a) << s."""
    extra = carry if "X" in modifiers else 0
    if extra is None:
        return None
    if "HI" not in modifiers and len(known) == 3:
        a, b, s = known
        return ((a << (s & 31)) + b + extra) & MASK
    if "SX32" in modifiers and len(known) == 3:
        a, b, s = known
        return (((signed(a) << (s & 31)) >> 32) + b + extra) & MASK
    if "HI" in modifiers and "SX32" not in modifiers and len(known) == 4:
        a, b, c, s = known
        return (((c << 32 | a) << (s & 31) >> 32) + b + extra) & MASK
    return None


def _shift(modifiers: frozenset[str], low: int, by: int, high: int) -> Word:
    """``SHF``: the two words high:low, shifted; with ``.HI`` the high word of the result."""
    is_wide = bool({"U64", "S64"} & modifiers)
    most = 64 if is_wide else 32
    by = by & (most - 1) if "W" in modifiers else min(by, most)
    both = high << 32 | low
    if "L" in modifiers:
        both <<= by
    elif "R" in modifiers:
        both = (signed(both, 64) if {"S32", "S64"} & modifiers else both) >> by
    else:
        return None
    return (both >> 32 if "HI" in modifiers else both) & MASK


def _permute(a: int, selector: int, b: int) -> int:
    """``PRMT``: each nibble of the selector names a byte of b:a; its top bit spreads that byte's sign."""
    both = b << 32 | a
    result = 0
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = both >> (8 * (nibble & 7)) & 255
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << (8 * i)
    return result


def _unary(base: str, modifiers: frozenset[str], known: list[int]) -> Word:
    if len(known) != 1:
        return None
    if base in ("I2F", "MUFU", "F2I"):
        return _for_division(base, modifiers, known[0])
    if base == "IABS":
        return abs(signed(known[0])) & MASK
    if base == "POPC":
        return known[0].bit_count()
    if base == "BREV":
        return int(f"{known[0]:032b}"[::-1], 2)
    return None


def _for_division(base: str, modifiers: frozenset[str], value: int) -> Word:
    """The three steps of an integer division that are done in floating point.

    The code around them corrects an estimate that is a little too small, so that the last bit here does not matter.
    """
    if base == "I2F" and modifiers <= {"U32", "RP", "S32"}:
        number = float(value if "U32" in modifiers else signed(value))
        return _bits(number * (1 + 2.0**-24) if "RP" in modifiers else number)
    number = struct.unpack("<f", struct.pack("<I", value))[0]
    if base == "MUFU" and modifiers == {"RCP"} and number != 0 and math.isfinite(number):
        return _bits(1 / number)
    if base == "F2I" and "TRUNC" in modifiers and math.isfinite(number):
        return int(number) & MASK if abs(number) < 2.0**32 else MASK
    return None


def _bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])
