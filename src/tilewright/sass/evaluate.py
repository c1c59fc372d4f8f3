"""Partial evaluation of one thread's integers: what branches inside the K-loop do where constants decide.

Thread 0 is followed (or any thread: its index unknown); everything else that a launch supplies is unknown. Only
operations whose meaning is certain are evaluated; every other result is unknown. An unknown branch decides nothing, so
a gap here costs a trip count, never a wrong one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache

from tilewright.sass.flow import Flow
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import NO_RESULT, UNIFORM, split, writes

_MASK = 0xFFFFFFFF
_TRUE = ("PT", "UPT")
_ZERO = ("RZ", "URZ", "SRZ")
_WORD = re.compile(r"^(U?R\d+|U?RZ|SRZ)$")
_PREDICATE = re.compile(r"^!?(U?P(?:T|\d+))$")
_TESTS = ("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}
# Modifiers that change what an operation means, beyond those that are handled.
_BEYOND = frozenset({"X", "EX", "64", "U64", "S64", "HI", "WIDE", "SAT", "CC", "U16", "S16", "U8", "S8"})

State = dict[str, int]  # register or predicate → value; absent is unknown


class Evaluator:
    """Executes instructions of one function on partly known states.

    `settled` answers comparisons that constants do not decide: address of the instruction → whether it holds.
    """

    def __init__(
        self, function: Function, flow: Flow, thread: int | None, settled: dict[int, bool] | None = None
    ) -> None:
        self.thread = thread
        self.settled = settled or {}
        self.calls = {function.instructions[i] for i in flow.calls}

    def guard(self, instruction: Instruction, state: State) -> bool | None:
        """Whether the instruction's predicate holds; None when unknown."""
        if not instruction.predicate:
            return True
        value = _predicate(instruction.predicate[1:], state)
        return None if value is None else bool(value)

    def step(self, instruction: Instruction, state: State) -> None:
        """Execute one instruction: update the state in place."""
        guard = self.guard(instruction, state)
        if guard is False:
            return
        if instruction.opcode == "CALL" and instruction in self.calls:
            state.clear()
            return
        results = _results(instruction, state, self.thread, self.settled.get(instruction.address))
        if guard is None:
            results = {name: (v if state.get(name) == v else None) for name, v in results.items()}
        for name, value in results.items():
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value

    def taken(self, branch: Instruction, state: State) -> bool | None:
        """Whether a conditional branch is taken; None when unknown."""
        name = condition(branch)
        value = _predicate(name, state) if name else None
        return None if value is None else bool(value)

    def assume(self, branch: Instruction, taken: bool, state: State) -> None:
        """Take a side of an unknown branch: its predicate is known from here on."""
        name = condition(branch)
        if name:
            _settle(name, taken, state)

    def assume_guard(self, instruction: Instruction, holds: bool, state: State) -> None:
        """Take an unknown guard to hold, or not: its predicate is known from here on."""
        _settle(instruction.predicate[1:], holds, state)


def constants_at(function: Function, flow: Flow, block: int, evaluator: Evaluator) -> State:
    """What holds whenever a block is entered, on every path from the kernel's entry."""
    known: dict[int, State] = {0: {}}
    todo = [0]
    while todo:
        at = todo.pop()
        state = dict(known[at])
        body = flow.blocks[at]
        for i in range(body.first, body.end):
            evaluator.step(function.instructions[i], state)
        for successor in body.successors:
            before = known.get(successor)
            if before is None:
                known[successor] = dict(state)
                todo.append(successor)
                continue
            agreed = {name: value for name, value in before.items() if state.get(name) == value}
            if len(agreed) < len(before):
                known[successor] = agreed
                todo.append(successor)
    return dict(known.get(block, {}))


def condition(branch: Instruction) -> str | None:
    """The predicate that decides a branch: ``!P0``; None when it is not a single predicate."""
    operands = split(branch.operands)
    named = [o for o in operands[:-1] if _PREDICATE.match(o)]
    if branch.predicate and not named:
        return branch.predicate[1:]
    return named[0] if len(named) == 1 and not branch.predicate else None


def _settle(name: str, holds: bool, state: State) -> None:
    state[name.lstrip("!")] = int(holds != name.startswith("!"))


def _predicate(name: str, state: State) -> int | None:
    positive = name.lstrip("!")
    value = 1 if positive in _TRUE else state.get(positive)
    if value is None:
        return None
    return 1 - value if name.startswith("!") else value


def _value(operand: str, state: State) -> int | None:
    """The 32 bits of an operand; None when unknown."""
    text = operand.removesuffix(".reuse")
    negate, invert = text.startswith("-"), text.startswith("~")
    text = text.lstrip("-~")
    if text in _ZERO:
        value: int | None = 0
    elif _WORD.match(text):
        value = state.get(text)
    else:
        value = _immediate(text)
    if value is None:
        return None
    value = -value if negate else ~value if invert else value
    return value & _MASK


def _immediate(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@lru_cache(maxsize=65536)
def shape(
    opcode: str, modifiers: tuple[str, ...], operands: str
) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """(result register, result predicates, sources) of an instruction, by its leading operands."""
    parts = split(operands)
    base = opcode.removeprefix("U")
    result: str | None = None
    at = 0
    predicates: list[str] = []
    if base in _TESTS:
        predicates, at = [p for p in parts[:2] if _PREDICATE.match(p)], 2
    else:
        while at < len(parts) and _PREDICATE.match(parts[at]) and at < 2:
            predicates.append(parts[at])
            at += 1
        if at < len(parts) and _WORD.match(parts[at]):
            result = parts[at]
            at += 1
            while at < len(parts) and _PREDICATE.match(parts[at]) and not parts[at].startswith("!") and at < 4:
                predicates.append(parts[at])
                at += 1
    return result, tuple(p for p in predicates if p not in _TRUE), parts[at:]


def _results(instruction: Instruction, state: State, thread: int | None, settled: bool | None) -> dict[str, int | None]:
    """What an instruction writes: name → value, None for an unknown one."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    result, predicates, sources = shape(opcode, modifiers, instruction.operands)
    written: dict[str, int | None] = dict.fromkeys(predicates)
    base = opcode.removeprefix("U")
    if opcode == "R2P":
        return dict.fromkeys(name for name in state if "P" in name)
    if opcode in NO_RESULT and base not in _TESTS:
        return {}
    if base == "ISETP":
        return written | _compare(instruction, sources, state, settled)
    if base == "PLOP3":
        return written | _predicate_logic(instruction, sources, state)
    if result is None or result in _ZERO:
        if base == "LOP3" and predicates:
            written[predicates[0]] = _truth(_logic(sources, state), sources)
        return written
    for number in writes(instruction):
        written[f"UR{number - UNIFORM}" if number >= UNIFORM else f"R{number}"] = None
    if opcode == "CS2R" and sources[:1] == ("SRZ",):
        return dict.fromkeys(written, 0)
    if opcode == "HFMA2" and sources[:2] == ("-RZ", "RZ"):
        return written | {result: half_pair(sources[2:])}
    if not _BEYOND.isdisjoint(modifiers) and base not in ("SHF", "LEA"):
        return written
    if base in ("S2R", "S2UR"):
        is_index = any(source.startswith(("SR_TID", "SR_LANEID")) for source in sources)
        return written | {result: thread if is_index else None}
    value = _arithmetic(base, modifiers, sources, state)
    written[result] = value
    if base == "LOP3" and predicates:
        written[predicates[0]] = _truth(value, sources)
    return written


def half_pair(halves: tuple[str, ...]) -> int | None:
    """The constant that ``HFMA2 d, -RZ, RZ, high, low`` loads: two 16-bit floats side by side."""
    try:
        high, low = (struct.unpack("<H", struct.pack("<e", float(half)))[0] for half in halves)
    except (ValueError, OverflowError, struct.error):
        return None
    return int(high) << 16 | int(low)


def _arithmetic(base: str, modifiers: tuple[str, ...], sources: tuple[str, ...], state: State) -> int | None:
    if base == "LOP3":
        return _logic(sources, state)
    if base in ("SEL", "IMNMX", "VIMNMX"):
        return _select(base, modifiers, sources, state)
    values = [_value(source, state) for source in sources]
    if base in ("MOV", "IADD", "IADD3", "VIADD", "R2UR"):
        known = [v for v in values if v is not None]
        return sum(known) & _MASK if len(known) == len(values) and _PLAIN[base](len(values)) else None
    if base == "IMAD" and len(values) == 3:
        return _multiply_add(values)
    if base == "LEA":
        return _scaled(modifiers, values)
    if base == "SHF" and len(values) == 3:
        return _shift(modifiers, values)
    return None


_PLAIN: dict[str, Callable[[int], bool]] = {
    "MOV": lambda n: n == 1,
    "R2UR": lambda n: n == 1,
    "IADD": lambda n: n == 2,
    "VIADD": lambda n: n == 2,
    "IADD3": lambda n: n == 3,
}


def _multiply_add(values: list[int | None]) -> int | None:
    a, b, c = values
    if c is None or ((a is None or b is None) and 0 not in (a, b)):
        return None
    return ((a or 0) * (b or 0) + c) & _MASK


def _scaled(modifiers: tuple[str, ...], values: list[int | None]) -> int | None:
    """``LEA d, a, b, s``: (a << s) + b; ``LEA.HI d, a, b, c, s``: the high part of (c:a << s), plus b."""
    if "X" in modifiers or None in values:
        return None
    known = [v for v in values if v is not None]
    if modifiers == () and len(known) == 3:
        a, b, s = known
        return ((a << (s & 31)) + b) & _MASK
    if modifiers == ("HI",) and len(known) == 4:
        a, b, c, s = known
        return ((((c << 32) | a) >> (32 - (s & 31))) + b) & _MASK
    if modifiers == ("HI", "SX32") and len(known) == 3:
        a, b, s = known
        return ((_signed(a) >> (32 - (s & 31))) + b) & _MASK
    return None


def _shift(modifiers: tuple[str, ...], values: list[int | None]) -> int | None:
    low, by, high = values
    if by is None or by > 31:
        return None
    if modifiers[:1] == ("L",) and modifiers[1:] in (("U32",), ("S32",)) and high == 0 and low is not None:
        return (low << by) & _MASK
    if modifiers[:1] == ("R",) and modifiers[2:] == ("HI",) and modifiers[1] in ("U32", "S32") and high is not None:
        return (high >> by) if modifiers[1] == "U32" else (_signed(high) >> by) & _MASK
    return None


def _logic(sources: tuple[str, ...], state: State) -> int | None:
    """``LOP3.LUT``: three sources, a truth table, a predicate."""
    if len(sources) < 4:
        return None
    a, b, c = (_value(source, state) for source in sources[:3])
    table = _immediate(sources[3])
    if table is None:
        return None
    if table == 0xC0 and 0 in (a, b):
        return 0
    if a is None or b is None or c is None:
        return None
    result = 0
    for row in range(8):
        if table >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result & _MASK


def _truth(value: int | None, sources: tuple[str, ...]) -> int | None:
    """The predicate result of ``LOP3``: not zero (OR-ed with a last operand that is ``!PT``, false, where known)."""
    return None if value is None or sources[-1] not in ("!PT", "!UPT") else int(value != 0)


def _select(base: str, modifiers: tuple[str, ...], sources: tuple[str, ...], state: State) -> int | None:
    if len(sources) != 3 or not _PREDICATE.match(sources[2]):
        return None
    a, b, chosen = _value(sources[0], state), _value(sources[1], state), _predicate(sources[2], state)
    if chosen is None:
        return None
    if base == "SEL":
        return a if chosen else b
    if a is None or b is None:
        return None
    ordered = sorted((a, b), key=lambda v: v if "U32" in modifiers else _signed(v))
    return ordered[0] if chosen else ordered[1]


def _compare(
    instruction: Instruction, sources: tuple[str, ...], state: State, settled: bool | None
) -> dict[str, int | None]:
    """``ISETP.cmp.bool P, Q, a, b, R``: P = (a cmp b) bool R, Q = !(a cmp b) bool R."""
    modifiers = instruction.modifiers
    names = split(instruction.operands)[:2]
    if len(sources) != 3 or not modifiers or modifiers[0] not in _COMPARE or not _BEYOND.isdisjoint(modifiers):
        return {}
    a, b = _value(sources[0], state), _value(sources[1], state)
    other = _predicate(sources[2], state)
    holds = None if settled is None else int(settled)
    if a is not None and b is not None:
        pair = (a, b) if "U32" in modifiers else (_signed(a), _signed(b))
        holds = int(_COMPARE[modifiers[0]](*pair))
    joined = [_join(modifiers[-1], h, other) for h in (holds, None if holds is None else 1 - holds)]
    return {name: value for name, value in zip(names, joined, strict=True) if name not in _TRUE}


def _join(how: str, a: int | None, b: int | None) -> int | None:
    if how == "AND":
        return 0 if 0 in (a, b) else None if None in (a, b) else 1
    if how == "OR":
        return 1 if 1 in (a, b) else None if None in (a, b) else 0
    return None


def _predicate_logic(instruction: Instruction, sources: tuple[str, ...], state: State) -> dict[str, int | None]:
    """``PLOP3.LUT P, Q, a, b, c, table, table``; the first table gives P."""
    names = split(instruction.operands)[:1]
    if len(sources) != 5 or names[0] in _TRUE:
        return {}
    values = [_predicate(source, state) for source in sources[:3]]
    table = _immediate(sources[3])
    if table is None:
        return {}
    rows = [r for r in range(8) if all(v is None or v == (r >> (2 - i) & 1) for i, v in enumerate(values))]
    outcomes = {table >> r & 1 for r in rows}
    return {names[0]: outcomes.pop()} if len(outcomes) == 1 else {}
