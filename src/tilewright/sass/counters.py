"""What comparisons of a loop counter give in the middle of a long run.

Registers are followed as linear forms of what the loop does not change. A counter is a register that grows by a
constant every trip. A comparison of a counter changes once, at its zero: near the end of the run when the zero lies a
constant number of trips from that of the loop's own exit, near its beginning when the counter starts at a constant. An
equality holds in one trip at most. Anything else is left open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tilewright.sass.evaluate import condition, shape
from tilewright.sass.flow import Flow, Loop
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import register_name, split, writes

# A comparison that changes at most so many trips from an end of the run is decided in the middle.
_NEAR = 16
_MOST_TERMS = 6
_SUMS = ("IADD", "IADD3", "VIADD", "UIADD3", "UIADD", "UVIADD")
_MOVES = ("MOV", "UMOV", "R2UR", "LDC", "LDCU", "ULDC")
_UNFOLLOWED = frozenset({"64", "U64", "S64", "WIDE", "HI", "X", "EX", "U8", "S8", "U16", "S16"})
_READ_PAIRS = frozenset({"X", "EX", "WIDE", "64", "U64", "S64"})
_PURE = frozenset({"SHF", "USHF", "LEA", "ULEA", "LOP3", "ULOP3", "IMAD", "UIMAD", "IABS", "S2R", "S2UR", "VIADDMNMX",
    "IMNMX", "VIMNMX", "UVIMNMX", "PRMT", "UPRMT", "SGXT", "USGXT", *_SUMS, *_MOVES})  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """constant + Σ factor × symbol."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()  # (symbol, factor), sorted, no factor 0

    def plus(self, other: _Form, times: int = 1) -> _Form:
        factors = dict(self.terms)
        for symbol, factor in other.terms:
            factors[symbol] = factors.get(symbol, 0) + factor * times
        kept = tuple(sorted((symbol, factor) for symbol, factor in factors.items() if factor))
        return _Form(self.constant + other.constant * times, kept)


@dataclass(frozen=True)
class _Test:
    """`difference` compared with 0 by `how` (``LT``...)."""

    how: str
    difference: _Form


@dataclass(frozen=True)
class _Line:
    """start + step × trip."""

    start: _Form
    step: int


@dataclass
class _State:
    registers: dict[str, _Form] = field(default_factory=dict)
    tests: dict[str, _Test] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.registers), dict(self.tests))


def settled_in(function: Function, flow: Flow, loop: Loop) -> dict[int, bool]:
    """Comparisons inside a loop that are decided in the middle of a long run: address → whether they hold."""
    if not flow.is_reducible:
        return {}
    forms = _Forms(function, flow)
    forms.follow()
    counters = forms.counters(loop)
    ends = _exits(function, flow, loop, forms, counters)
    found = {}
    for block in loop.blocks:
        for i in range(flow.blocks[block].first, flow.blocks[block].end):
            test = forms.tests_at.get(i)
            line = forms.line(test.difference, loop, counters) if test else None
            holds = _decide(test.how, line, ends) if test and line else None
            if holds is not None:
                found[function.instructions[i].address] = holds
    return found


def _exits(function: Function, flow: Flow, loop: Loop, forms: _Forms, counters: dict[int, _Line]) -> tuple[_Line, ...]:
    """The differences that end the loop when they reach 0."""
    lines = []
    for block in loop.blocks:
        body = flow.blocks[block]
        if len(body.successors) != 2 or all(s in loop.blocks for s in body.successors):
            continue
        name = condition(function.instructions[body.end - 1])
        test = forms.leaving[block].tests.get(name.lstrip("!")) if name and block in forms.leaving else None
        line = forms.line(test.difference, loop, counters) if test else None
        if line is None or not line.step:
            continue
        lines.append(line)
        if len(line.start.terms) == 1 and line.start.terms[0][0] in forms.at_least:
            symbol, factor = line.start.terms[0]  # where max(x, 1) trips are many, they are x
            lines.append(_Line(_Form(line.start.constant).plus(forms.at_least[symbol], factor), line.step))
    return tuple(lines)


def _decide(how: str, line: _Line, ends: tuple[_Line, ...]) -> bool | None:
    if not line.step:
        return None
    if how in ("EQ", "NE"):
        return how == "NE"
    signs = set()
    if not line.start.terms and abs(Fraction(line.start.constant, line.step)) <= _NEAR:
        signs.add(1 if line.step > 0 else -1)
    for end in ends:
        apart = _trips_apart(line, end)
        if apart is not None and abs(apart) <= _NEAR:
            signs.add(-1 if line.step > 0 else 1)
    if len(signs) != 1:  # both: a run of few trips
        return None
    return (how in ("GT", "GE")) == (signs.pop() > 0)


def _trips_apart(line: _Line, end: _Line) -> Fraction | None:
    """Trips between the zeros of two differences; None when that is no constant."""
    factors = {symbol: Fraction(factor, line.step) for symbol, factor in line.start.terms}
    if factors != {symbol: Fraction(factor, end.step) for symbol, factor in end.start.terms}:
        return None
    return Fraction(line.start.constant, line.step) - Fraction(end.start.constant, end.step)


class _Forms:
    """The linear form of every register, by one pass over the blocks in reverse postorder."""

    def __init__(self, function: Function, flow: Flow) -> None:
        self.code = function.instructions
        self.flow = flow
        self.calls = flow.calls
        self.headers = {loop.header: loop for loop in flow.loops}
        self.symbols: dict[object, int] = {}
        self.roots: list[frozenset[int]] = []  # by symbol: the blocks that may change it
        self.leaving: dict[int, _State] = {}
        self.before: dict[int, _State] = {}  # by loop header: what holds when the loop is entered
        self.tests_at: dict[int, _Test] = {}
        self.at_least: dict[int, _Form] = {}  # symbol of max(x, a small constant) → x
        self.entered: dict[tuple[int, str], int] = {}  # (header, register) → symbol

    def follow(self) -> None:
        predecessors: dict[int, list[int]] = {}
        for body in self.flow.blocks:
            for successor in body.successors:
                predecessors.setdefault(successor, []).append(body.index)
        for block in _reverse_postorder(self.flow):
            state = self._joined(block, [p for p in predecessors.get(block, ()) if p in self.leaving])
            if block in self.headers:
                self.before[block] = state.copy()
                self._forget(state, self.headers[block])
            body = self.flow.blocks[block]
            for i in range(body.first, body.end):
                self._step(i, block, state)
            self.leaving[block] = state

    def counters(self, loop: Loop) -> dict[int, _Line]:
        """Symbols of the registers that grow by a constant every trip."""
        found = {}
        for (header, name), symbol in self.entered.items():
            if header != loop.header:
                continue
            mine = _Form(0, ((symbol, 1),))
            steps = {self._read(self.leaving[latch], name).plus(mine, -1) for latch in loop.latches}
            step = steps.pop()
            start = self._read(self.before[header], name)
            if not steps and not step.terms and self._is_fixed(start, loop):
                found[symbol] = _Line(start, step.constant)
        return found

    def line(self, form: _Form, loop: Loop, counters: dict[int, _Line]) -> _Line | None:
        """A form by trips of the loop; None when it holds anything else that the loop changes."""
        start, step = _Form(form.constant), 0
        for symbol, factor in form.terms:
            counter = counters.get(symbol)
            if counter is not None:
                start = start.plus(counter.start, factor)
                step += counter.step * factor
            elif self.roots[symbol].isdisjoint(loop.blocks):
                start = start.plus(_Form(0, ((symbol, 1),)), factor)
            else:
                return None
        return _Line(start, step)

    def _is_fixed(self, form: _Form, loop: Loop) -> bool:
        return all(self.roots[symbol].isdisjoint(loop.blocks) for symbol, _ in form.terms)

    def _symbol(self, key: object, roots: frozenset[int]) -> _Form:
        if key not in self.symbols:
            self.symbols[key] = len(self.roots)
            self.roots.append(roots)
        return _Form(0, ((self.symbols[key], 1),))

    def _read(self, state: _State, name: str) -> _Form:
        return state.registers.get(name) or self._symbol(("at entry", name), frozenset())

    def _joined(self, block: int, sources: list[int]) -> _State:
        if not sources:
            return _State()
        first, *others = (self.leaving[source] for source in sources)
        joined = first.copy()
        for other in others:
            for name in sorted(joined.registers.keys() | other.registers.keys()):
                if self._read(joined, name) != self._read(other, name):
                    joined.registers[name] = self._symbol(("joined", block, name), frozenset((block,)))
            joined.tests = {name: test for name, test in joined.tests.items() if other.tests.get(name) == test}
        return joined

    def _forget(self, state: _State, loop: Loop) -> None:
        """What a loop writes is unknown at its header: a symbol of its own."""
        state.tests.clear()
        for block in loop.blocks:
            for i in range(self.flow.blocks[block].first, self.flow.blocks[block].end):
                for number in writes(self.code[i]):
                    name = register_name(number)
                    form = self._symbol(("header", loop.header, name), frozenset((loop.header,)))
                    self.entered[loop.header, name] = form.terms[0][0]
                    state.registers[name] = form

    def _step(self, at: int, block: int, state: _State) -> None:
        instruction = self.code[at]
        if instruction.is_off:
            return
        if at in self.calls:
            for name in list(state.registers):
                state.registers[name] = self._symbol(("called", at, name), frozenset((block,)))
            state.tests.clear()
            return
        result, predicates, sources = shape(instruction.opcode, instruction.modifiers, instruction.operands)
        self._test(at, instruction, predicates, sources, state)
        written = writes(instruction)
        value = self._value(instruction, sources, state) if len(written) == 1 and result else None
        for number in written:
            name = register_name(number)
            if value is None or (instruction.predicate and value != self._read(state, name)):
                state.registers[name] = self._symbol(("written", at, name), frozenset((block,)))
            else:
                state.registers[name] = value

    def _test(
        self, at: int, instruction: Instruction, predicates: tuple[str, ...], sources: tuple[str, ...], state: _State
    ) -> None:
        before = dict(state.tests)
        for name in predicates:
            state.tests.pop(name, None)
        if instruction.opcode == "R2P":
            state.tests.clear()
        if instruction.opcode in ("PLOP3", "UPLOP3") and len(predicates) == 1 and not instruction.predicate:
            used = {source.lstrip("!") for source in sources[:3]} - {"PT", "UPT"}
            test = before.get(used.pop()) if len(used) == 1 else None
            if test is not None:  # a copy, or the opposite: its zero is the same
                state.tests[predicates[0]] = test
            return
        modifiers = instruction.modifiers
        if instruction.opcode not in ("ISETP", "UISETP") or not _UNFOLLOWED.isdisjoint(modifiers) or len(sources) != 3:
            return
        a, b = self._operand(sources[0], state), self._operand(sources[1], state)
        if a is None or b is None or modifiers[0] not in ("LT", "LE", "GT", "GE", "EQ", "NE"):
            return
        test = _Test(modifiers[0], a.plus(b, -1))
        self.tests_at[at] = test
        if sources[2] in ("PT", "UPT") and modifiers[-1] == "AND" and not instruction.predicate:
            for name in split(instruction.operands)[:2]:  # the second is the opposite: its zero is the same
                if name in predicates:
                    state.tests[name] = test

    def _operand(self, operand: str, state: _State) -> _Form | None:
        text = operand.removesuffix(".reuse")
        sign = text[:1] if text[:1] in ("-", "~") else ""
        text = text.lstrip("-~")
        if text in ("RZ", "URZ", "SRZ"):
            form: _Form | None = _Form(0)
        elif text[:1] in ("R", "U") and text.lstrip("UR").isdigit():
            form = self._read(state, text)
        elif text.startswith("c[") and "R" not in text:
            form = self._symbol(("constant", text), frozenset())
        elif text.startswith("SR_") and "CLOCK" not in text:
            form = self._symbol(("special", text), frozenset())
        else:
            form = _number(text)
        if form is None or not sign:
            return form
        return _Form(0 if sign == "-" else -1).plus(form, -1)

    def _value(self, instruction: Instruction, sources: tuple[str, ...], state: _State) -> _Form | None:
        opcode, modifiers = instruction.opcode, instruction.modifiers
        if opcode not in _PURE:
            return None
        chosen = tuple(s for s in sources if s in ("PT", "!PT", "UPT", "!UPT"))
        sources = tuple(s for s in sources if s not in chosen)
        forms = [self._operand(source, state) for source in sources]
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return None
        value = _linear(opcode, modifiers, known) if _UNFOLLOWED.isdisjoint(modifiers) else None
        if value is not None and len(value.terms) <= _MOST_TERMS:
            return value
        if opcode in _MOVES or not _READ_PAIRS.isdisjoint(modifiers) or (opcode == "IMAD" and "HI" in modifiers):
            return None  # some operand is a pair of registers, or an address
        roots = frozenset().union(*(self.roots[symbol] for form in known for symbol, _ in form.terms))
        value = self._symbol((opcode, modifiers, tuple(known), chosen), roots)
        if opcode.endswith("MNMX") and chosen in (("!PT",), ("!UPT",)):
            small = [form for form in known if not form.terms and form.constant <= _NEAR]
            rest = [form for form in known if form.terms]
            if len(small) == len(rest) == 1:
                self.at_least[value.terms[0][0]] = rest[0]
        return value


def _linear(opcode: str, modifiers: tuple[str, ...], forms: list[_Form]) -> _Form | None:
    if opcode in _MOVES and len(forms) == 1:
        return forms[0]
    if opcode in _SUMS:
        total = _Form(0)
        for form in forms:
            total = total.plus(form)
        return total
    if opcode in ("IMAD", "UIMAD") and len(forms) == 3:
        a, b, c = forms
        factor, other = (a, b) if not a.terms else (b, a)
        return None if factor.terms else c.plus(other, factor.constant)
    if opcode in ("LEA", "ULEA") and not modifiers and len(forms) == 3 and not forms[2].terms:
        return forms[1].plus(forms[0], 1 << (forms[2].constant & 31))
    if opcode in ("SHF", "USHF") and modifiers[:1] == ("L",) and len(forms) == 3 and not forms[1].terms:
        is_plain = forms[2] == _Form(0) and "HI" not in modifiers
        return _Form(0).plus(forms[0], 1 << (forms[1].constant & 31)) if is_plain else None
    if opcode in ("LOP3", "ULOP3") and len(forms) == 4 and forms[3] == _Form(0x33):
        return _Form(-1).plus(forms[1], -1)  # the complement of the second source
    return None


def _number(text: str) -> _Form | None:
    try:
        value = int(text, 0)
    except ValueError:
        return None
    return _Form(value - (1 << 32) if value >= 1 << 31 else value)


def _reverse_postorder(flow: Flow) -> list[int]:
    if not flow.blocks:
        return []
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(flow.blocks[0].successors))]
    while stack:
        block, successors = stack[-1]
        following = next((s for s in successors if s not in seen), None)
        if following is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(flow.blocks[following].successors)))
    return done[::-1]
