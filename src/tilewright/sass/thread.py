"""One thread, executed: registers and predicates, as far as they follow from what the thread is given.

A thread is given its index, block 0 of a cluster of one, and a value for every word of the kernel's parameters and of
global memory. What it loads from shared memory is unknown (local memory, where registers are spilled, is followed), and
so is everything that depends on it. Floating-point arithmetic is not followed, but for that of an integer division.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from tilewright.sass.evaluate import half_pair, shape
from tilewright.sass.listing import Instruction
from tilewright.sass.operands import access_bytes, register_name, split, writes
from tilewright.sass.staging import LOADS
from tilewright.sass.words import MASK, Word, by_table, compare, compute, high_of_product, join, least_or_most, signed

# Words of the constant bank 0 that are no parameters: where these begin (CUDA's ABI, as cubins of each have it).
_PARAMETERS_AT = {9: 0x210, 10: 0x380, 11: 0x380, 12: 0x380}
_BLOCK_AT = {9: 0x0, 10: 0x360, 11: 0x360, 12: 0x360}
BLOCK_EXTENT = 128
_CONSTANT = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(?:(U?R\d+|U?RZ)\+?)?(-?0x[0-9a-f]+)?\]$")
_REGISTER = re.compile(r"^(U?R)(\d+|Z)(\.64|\.H0|\.X\d+)?$|^(SRZ)$")
_PREDICATE = re.compile(r"^!?U?P(?:T|\d+)$")
_TERM = re.compile(r"(-?0x[0-9a-f]+)|(U?R(?:\d+|Z))(\.X\d+)?")
_SET_BY_TESTS = ("ISETP", "PLOP3")
_PAIRS = frozenset({"64", "U64", "S64"})


class Launch(NamedTuple):
    """What a followed thread is given.

    Attributes:
        thread: its index along x; those along y and z are 0.
        parameter: the value of every 32-bit word of the parameters,
        others: except of these, by their offset in the constant bank.
    """

    thread: int = 0
    parameter: int = 1 << 14
    others: Mapping[int, int] = MappingProxyType({})


class Thread:
    """Executes instructions in the order in which they are handed in."""

    def __init__(self, arch: str, launch: Launch) -> None:
        self.generation = int(re.sub(r"\D", "", arch) or 0) // 10
        self.launch = launch
        self.registers: dict[str, int] = {}  # also predicates; absent: unknown
        self.local: dict[int, Word] = {}
        self.parameters_read: set[int] = set()

    def holds(self, instruction: Instruction) -> Word:
        """Whether the instruction's guard holds (1, 0); None where that is unknown."""
        return self.predicate(instruction.predicate[1:]) if instruction.predicate else 1

    def predicate(self, name: str) -> Word:
        positive = name.lstrip("!")
        value = 1 if positive in ("PT", "UPT") else self.registers.get(positive)
        return value if value is None or not name.startswith("!") else 1 - value

    def address(self, operand: str) -> Word:
        """``[R8+UR4+0x10]`` as a number."""
        total = 0
        for number, register, scale in _TERM.findall(operand):
            word = int(number, 16) if number else self.word(register)
            if word is None:
                return None
            total += word * (int(scale[2:]) if scale else 1)
        return total & MASK

    def word(self, operand: str) -> Word:
        """The 32 bits of an operand."""
        sign, text = _unsigned(operand)
        found = _REGISTER.match(text)
        if found:
            value = 0 if found[2] == "Z" or found[4] else self.registers.get(found[1] + found[2])
        elif text.startswith("c["):
            value = self._constant(text, 0)
        else:
            value = _number(text)
        if value is None or not sign:
            return value
        return (-value if sign == "-" else ~value) & MASK

    def pair(self, operand: str) -> Word:
        """The 64 bits of a pair of registers, of two words of the constant bank, or of a number."""
        sign, text = _unsigned(operand)
        found = _REGISTER.match(text)
        if found and (found[2] == "Z" or found[4]):
            return 0
        if found:
            low, high = (self.registers.get(f"{found[1]}{int(found[2]) + i}") for i in (0, 1))
        elif text.startswith("c["):
            low, high = self._constant(text, 0), self._constant(text, 4)
        else:
            low = _number(text)
            high = None if low is None else MASK if low >> 31 else 0
        if low is None or high is None:
            return None
        value = high << 32 | low
        return (-value if sign == "-" else ~value if sign else value) & (1 << 64) - 1

    def step(self, instruction: Instruction) -> None:
        """Execute one instruction."""
        guard = self.holds(instruction)
        if guard == 0:
            return
        for name, value in self._results(instruction).items():
            kept = value if guard or self.registers.get(name) == value else None
            if kept is None:
                self.registers.pop(name, None)
            else:
                self.registers[name] = kept

    def _results(self, instruction: Instruction) -> dict[str, Word]:
        opcode, modifiers, operands = instruction.opcode, instruction.modifiers, instruction.operands
        base = opcode.removeprefix("U")
        result, predicates, sources = shape(opcode, modifiers, operands)
        found: dict[str, Word] = dict.fromkeys(predicates)
        found.update(dict.fromkeys(map(register_name, writes(instruction))))
        if base in _SET_BY_TESTS:
            found |= self._test(base, modifiers, operands, sources)
        elif base == "SYNCS" or opcode == "ELECT":
            # The first lane is the one elected; a wait ends, sooner or later.
            found |= {name: 1 for name in split(operands)[:1] if _PREDICATE.match(name)}
        elif base == "SETMAXREG":
            found |= {name: 1 for name in split(operands)[:1] if _PREDICATE.match(name)}
        elif base in ("STL", "LDL"):
            found |= self._local(instruction)
        elif base in ("R2P", "P2R", "P2UR", "R2UP"):
            found |= self._packed(base, operands)
        elif base in ("VOTE", "VOTEU"):  # the lanes of the warp agree with its first one
            parts = split(operands)
            found = {part: self.predicate(parts[-1]) for part in parts[:-1] if _PREDICATE.match(part)} | {
                part: None for part in parts[:1] if not _PREDICATE.match(part)
            }
        elif result is not None:
            found |= self._moved(instruction, result, predicates, sources)
        return {name: value for name, value in found.items() if not name.endswith(("RZ", "PT"))}

    def _moved(
        self, instruction: Instruction, result: str, predicates: tuple[str, ...], sources: tuple[str, ...]
    ) -> dict[str, Word]:
        """Results of instructions with a result register."""
        base, modifiers = instruction.opcode.removeprefix("U"), instruction.modifiers
        wide = not _PAIRS.isdisjoint(modifiers)
        if base in ("S2R", "S2UR", "CS2R"):
            return {result: self._special(sources)} | ({_next(result): 0} if sources == ("SRZ",) else {})
        if base in ("LDC", "LDCU"):
            return self._loaded(result, sources, _width_words(modifiers))
        if base == "SEL":
            return self._selected(result, sources, wide)
        if base == "SHFL":  # of a warp's first lane, from its first lane
            return {result: self.word(sources[0]) if sources[1:2] == ("RZ",) and "IDX" in modifiers else None}
        if "WIDE" in modifiers or (wide and base in ("IADD3", "IADD", "MOV")):
            return _halves(result, self._wide(base, modifiers, sources))
        if base == "IMAD" and "HI" in modifiers:
            return {result: self._high(modifiers, sources)}
        if base in LOADS:  # what the caller passes in memory is as large as what it passes by value
            return dict.fromkeys(map(register_name, writes(instruction)), self.launch.parameter)
        if base in ("IMNMX", "VIMNMX", "VIADDMNMX"):
            return {result: self._extreme(base, modifiers, sources)}
        if base == "HFMA2":
            return {result: half_pair(sources[2:]) if sources[:2] == ("-RZ", "RZ") else None}
        value = self._computed(base, modifiers, sources)
        found: dict[str, Word] = {result: value}
        if predicates:
            found[predicates[0]] = self._beside(base, modifiers, sources, value)
        return found

    def _beside(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...], value: Word) -> Word:
        """The predicate that an instruction sets beside its result."""
        if base == "LOP3":
            return None if value is None or sources[-1] not in ("!PT", "!UPT") else int(value != 0)
        if base == "R2UR":  # of a loop over the lanes' values: this one's turn has come
            return 0
        return self._carried(base, modifiers, sources)

    def _computed(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        numbers = [s for s in sources if not _PREDICATE.match(s)]
        carries = [s for s in sources if _PREDICATE.match(s)]
        carry = self.predicate(carries[0]) if carries else 0
        return compute(base, frozenset(modifiers), [self.word(s) for s in numbers], carry)

    def _carried(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        """The carry out of a sum."""
        numbers = [s for s in sources if not _PREDICATE.match(s)]
        words = [self.word(s) for s in numbers]
        if base not in ("IADD3", "IADD") or None in words or any(s[0] in "-~" for s in numbers) or "X" in modifiers:
            return None
        return sum(word for word in words if word is not None) >> 32 & 1

    def _wide(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        numbers = [s for s in sources if not _PREDICATE.match(s)]
        if base == "IMAD" and len(numbers) == 3:
            a, b, c = self.word(numbers[0]), self.word(numbers[1]), self.pair(numbers[2])
            if a is None or b is None or c is None:
                return None
            return (a * b if "U32" in modifiers else signed(a) * signed(b)) + c
        pairs = [self.pair(s) for s in numbers]
        known = [p for p in pairs if p is not None]
        return sum(known) if len(known) == len(pairs) and "X" not in modifiers else None

    def _high(self, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        numbers = [s for s in sources if not _PREDICATE.match(s)]
        if len(numbers) != 3 or "X" in modifiers:
            return None
        a, b, c = self.word(numbers[0]), self.word(numbers[1]), self.pair(numbers[2])
        return None if a is None or b is None or c is None else high_of_product(frozenset(modifiers), a, b, c)

    def _extreme(self, base: str, modifiers: tuple[str, ...], sources: tuple[str, ...]) -> Word:
        chosen = [self.predicate(s) for s in sources if _PREDICATE.match(s)]
        words = [self.word(s) for s in sources if not _PREDICATE.match(s)]
        if base == "VIADDMNMX" and len(words) == 3:
            words = [compute("IADD3", frozenset(), words[:2], 0), words[2]]
        if len(chosen) != 1 or chosen[0] is None or len(words) != 2:
            return None
        return least_or_most(frozenset(modifiers), words[0], words[1], bool(chosen[0]))

    def _selected(self, result: str, sources: tuple[str, ...], wide: bool) -> dict[str, Word]:
        if len(sources) != 3 or (chosen := self.predicate(sources[2])) is None:
            return {}
        source = sources[0] if chosen else sources[1]
        return _halves(result, self.pair(source)) if wide else {result: self.word(source)}

    def _test(self, base: str, modifiers: tuple[str, ...], operands: str, sources: tuple[str, ...]) -> dict[str, Word]:
        names = split(operands)[:2]
        if base == "PLOP3":
            if len(sources) != 5:
                return {}
            values = [self.predicate(s) for s in sources[:3]]
            return {name: by_table(values, _number(table)) for name, table in zip(names, sources[3:], strict=True)}
        if len(sources) < 3:
            return {}
        wide = not _PAIRS.isdisjoint(modifiers)
        a, b = (self.pair(s) if wide else self.word(s) for s in sources[:2])
        low = self.predicate(sources[3]) if len(sources) > 3 else None
        holds = compare(modifiers, a, b, low, 64 if wide else 32)
        how = next((m for m in modifiers if m in ("AND", "OR", "XOR")), "")
        both = (holds, None if holds is None else 1 - holds)
        other = self.predicate(sources[2])
        return {name: join(how, h, other) for name, h in zip(names, both, strict=True)}

    def _special(self, sources: tuple[str, ...]) -> Word:
        name = sources[0] if sources else ""
        if name in ("SR_TID.X", "SR_LANEID"):
            return self.launch.thread if name == "SR_TID.X" else self.launch.thread % 32
        return 0 if name == "SRZ" or name.startswith(("SR_TID", "SR_CTAID", "SR_CgaCtaId")) else None

    def _loaded(self, result: str, sources: tuple[str, ...], words: int) -> dict[str, Word]:
        names = [result]
        while len(names) < words:
            names.append(_next(names[-1]))
        return {name: self._constant(sources[0], 4 * i) if sources else None for i, name in enumerate(names)}

    def _constant(self, text: str, beyond: int) -> Word:
        """A word of the constant bank; only bank 0 is known."""
        found = _CONSTANT.match(text)
        if not found or int(found[1], 16) != 0:
            return None
        register = self.word(found[2]) if found[2] else 0
        if register is None:
            return None
        at = (register + int(found[3] or "0", 16) + beyond) & MASK
        if at < _PARAMETERS_AT.get(self.generation, 0x160):
            axis, rest = divmod(at - _BLOCK_AT.get(self.generation, 0), 4)
            return self.block_extent(axis) if axis in (0, 1, 2) and not rest else self.launch.parameter
        self.parameters_read.add(at)
        return self.launch.others.get(at, self.launch.parameter)

    def block_extent(self, axis: int) -> int:
        """Threads of the block along x, y or z (0, 1, 2)."""
        return BLOCK_EXTENT if axis == 0 else 1

    def _local(self, instruction: Instruction) -> dict[str, Word]:
        """Spills: stores to local memory, and loads from it."""
        parts = split(instruction.operands)
        is_store = instruction.opcode == "STL"
        at = self.address(parts[0] if is_store else parts[1])
        names = [parts[1] if is_store else parts[0]]
        for _ in range(max(1, access_bytes(instruction) // 4) - 1):
            names.append(_next(names[-1]))
        if is_store:
            for i, name in enumerate(names):
                if at is not None:
                    self.local[at + 4 * i] = self.word(name)
            if at is None:
                self.local.clear()
            return {}
        return {name: None if at is None else self.local.get(at + 4 * i) for i, name in enumerate(names)}

    def _packed(self, base: str, operands: str) -> dict[str, Word]:
        """Predicates as the bits of a register, and back."""
        parts = split(operands)
        mask = _number(parts[-1]) if len(parts) >= 3 else 0x7F
        letter = "UP" if "U" in parts[0] + parts[1] else "P"
        if mask is None:
            return {}
        if base in ("R2P", "R2UP"):
            word = self.word(parts[1])
            return {f"{letter}{i}": None if word is None else word >> i & 1 for i in range(7) if mask >> i & 1}
        bits = [self.registers.get(f"{letter}{i}") for i in range(7) if mask >> i & 1]
        kept = self.word(parts[2]) if len(parts) > 3 else 0
        if None in bits or kept is None:
            return {parts[0]: None}
        value = kept & ~mask
        for i in range(7):
            value |= (self.registers[f"{letter}{i}"] << i) if mask >> i & 1 else 0
        return {parts[0]: value & MASK}


@lru_cache(maxsize=65536)
def _unsigned(operand: str) -> tuple[str, str]:
    text = operand.removesuffix(".reuse")
    sign = text[:1] if text[:1] in ("-", "~") and not text[1:2].isdigit() else ""
    return sign, text[len(sign) :]


@lru_cache(maxsize=65536)
def _number(text: str) -> Word:
    try:
        return int(text, 0) & MASK
    except ValueError:
        return None


def _next(name: str) -> str:
    found = _REGISTER.match(name)
    return f"{found[1]}{int(found[2]) + 1}" if found and found[2] not in (None, "Z") else name


def _halves(result: str, value: Word) -> dict[str, Word]:
    if value is None:
        return {result: None, _next(result): None}
    return {result: value & MASK, _next(result): value >> 32 & MASK}


def _width_words(modifiers: tuple[str, ...]) -> int:
    return next((int(m) // 32 for m in modifiers if m in ("64", "128")), 1)
