"""Intervals of index expressions: from the block's size, the headers of loops and arithmetic.

An interval says what an expression cannot leave; it may be wider than what it takes. Arithmetic that may wrap around,
or that is not understood, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import gcd

from tilewright.kloop.loops import counted_header
from tilewright.source import ir
from tilewright.source.c_types import int_kind
from tilewright.source.constants import Constants
from tilewright.source.integer_types import IntegerTypes

_MOST = 1 << 31
_MAX_DEPTH = 64
_STEPS = ("++", "--", "p++", "p--")
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!=", "&&", "||"})


@dataclass(frozen=True)
class Interval:
    """The integers ``low``, ``low + step``, ... up to ``high``, which is one of them.

    The step is what tells that an index of 16-byte vectors stops a whole vector before the end. It is 0 for one number.
    """

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.step > 1:
            object.__setattr__(self, "high", self.low + (self.high - self.low) // self.step * self.step)
        object.__setattr__(self, "step", 0 if self.low == self.high else max(self.step, 1))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high, gcd(self.step, other.step))

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low, gcd(self.step, other.step))

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        step = gcd(self.low * other.step, other.low * self.step, self.step * other.step)
        return Interval(min(ends), max(ends), step)

    def union(self, other: Interval) -> Interval:
        step = gcd(self.step, other.step, self.low - other.low)
        return Interval(min(self.low, other.low), max(self.high, other.high), step)


class Ranges:
    """Intervals in one kernel.

    Args:
        body: the kernel's body.
        changed: variables written anywhere except by their declaration.
        plain: whether nothing but a variable's own name changes it.
        block: threads of a block per dimension, where known.
    """

    def __init__(
        self,
        constants: Constants,
        types: IntegerTypes,
        symbols: dict[int, ir.Symbol],
        body: ir.Stmt,
        changed: frozenset[int],
        plain: Callable[[ir.Symbol], bool],
        block: tuple[int, int, int] | None,
    ) -> None:
        self._constants = constants
        self._types = types
        self._symbols = symbols
        self._changed = changed
        self._plain = plain
        self._block = block
        self._body = body
        self._loops: dict[int, ir.For] = {}
        for node in ir.walk(body):
            if isinstance(node, ir.For) and (header := counted_header(node)) is not None:
                self._loops[header.var.id] = node
        self._depth = 0

    def of(self, expr: ir.Expr) -> Interval | None:
        """What the expression cannot leave where it stands; None where nothing is known."""
        if self._depth > _MAX_DEPTH:
            return None
        self._depth += 1
        try:
            found = self._found(expr)
        finally:
            self._depth -= 1
        if found is None or found.low <= -_MOST or found.high >= _MOST:
            return None
        kind = self._types.of(expr)
        return None if kind is not None and kind.unsigned and found.low < 0 else found

    def _found(self, expr: ir.Expr) -> Interval | None:
        value = self._constants.evaluate(expr)
        if value is not None:
            return Interval(value, value)
        match expr:
            case ir.Name(symbol=int(s)):
                return self._variable(self._symbols[s], expr.span.start)
            case ir.Member(base=ir.Name(id=base, symbol=None), field=f) if f in ("x", "y", "z"):
                return self._builtin(base, "xyz".index(f))
            case ir.Cast(type_text=t, operand=x) if "*" not in t:
                kind = int_kind(t, self._constants.aliases)
                inner = self.of(x) if kind is not None else None
                fits = inner is not None and kind is not None and kind.wrap(inner.low) == inner.low
                return inner if fits and inner is not None and kind and kind.wrap(inner.high) == inner.high else None
            case ir.Unary(op="-", operand=x):
                inner = self.of(x)
                return None if inner is None else Interval(-inner.high, -inner.low)
            case ir.Unary(op="+", operand=x):
                return self.of(x)
            case ir.Binary(op=op) if op in _COMPARISONS:
                return Interval(0, 1)
            case ir.Binary(op=op, left=a, right=b):
                left, right = self.of(a), self.of(b)
                return None if left is None or right is None else _arithmetic(op, left, right)
            case ir.Ternary(then=a, otherwise=b):
                left, right = self.of(a), self.of(b)
                return None if left is None or right is None else left.union(right)
            case ir.Call(callee="min" | "max" as f, args=(a, b)):
                left, right = self.of(a), self.of(b)
                if left is None or right is None:
                    return None
                pick = min if f == "min" else max
                return Interval(pick(left.low, right.low), pick(left.high, right.high))
        return None

    def _builtin(self, base: str, axis: int) -> Interval | None:
        if self._block is None or base not in ("threadIdx", "blockDim"):
            return None
        size = self._block[axis]
        return Interval(0, size - 1) if base == "threadIdx" else Interval(size, size)

    # -- variables ------------------------------------------------------------------------------------
    def _variable(self, symbol: ir.Symbol, at: int) -> Interval | None:
        if symbol.kind != "local" or symbol.pointers or symbol.dims or symbol.reference or symbol.init is None:
            return None
        loop = self._loops.get(symbol.id)
        if loop is not None and loop.span.start <= symbol.span.start < loop.body.span.start:
            return self._counter(loop, symbol)
        start = self.of(symbol.init)
        if start is None or symbol.id not in self._changed:
            return start
        return self._stepped(symbol, start, at)

    def _counter(self, loop: ir.For, symbol: ir.Symbol) -> Interval | None:
        """The variable of a counted loop, inside the loop."""
        header = counted_header(loop)
        if header is None or not self._plain(symbol):
            return None
        if any(loop.body.span.start <= w.span.start < loop.body.span.end for w in self._writes(symbol)):
            return None
        first, bound, step = self.of(header.first), self.of(header.bound), self.of(header.step)
        if first is None or bound is None or step is None or step.low <= 0:
            return None
        # Below the bound; in steps of one size, the last value may be lower still.
        return Interval(first.low, max(bound.high - 1, first.low), gcd(first.step, step.low, step.step))

    def _writes(self, symbol: ir.Symbol) -> list[ir.Assign | ir.Unary]:
        out: list[ir.Assign | ir.Unary] = []
        for node in ir.walk(self._body):
            target = node.left if isinstance(node, ir.Assign) else node.operand if isinstance(node, ir.Unary) else None
            named = isinstance(target, ir.Name) and target.symbol == symbol.id
            moves = isinstance(node, ir.Assign) or (isinstance(node, ir.Unary) and node.op in _STEPS)
            if moves and named and isinstance(node, ir.Assign | ir.Unary):
                out.append(node)
        return out

    def _stepped(self, symbol: ir.Symbol, start: Interval, at: int) -> Interval | None:
        """A variable that loops of known trips advance by known steps, where it is used at byte ``at``."""
        holder = self._block_of(symbol)
        if not self._plain(symbol) or holder is None or not holder.span.start <= at < holder.span.end:
            return None
        out = start
        for write in self._writes(symbol):
            step = self._step(write)
            loops = self._around(write.span.start, holder)
            trips = [self.trips(x) for x in loops]
            if step is None or any(t is None for t in trips):
                return None
            shared = [x for x in loops if x.span.start <= at < x.span.end]
            total, inner = _product(trips), _product(trips[len(shared) :])
            if write.span.start > at:
                # Behind the use: it counts for the next trips of the loops around both.
                total = total - inner if shared else 0
            out = out + Interval(min(0, step.low), max(0, step.high)) * Interval(0, total)
        return out

    def _step(self, write: ir.Assign | ir.Unary) -> Interval | None:
        match write:
            case ir.Unary(op="++" | "p++"):
                return Interval(1, 1)
            case ir.Unary(op="--" | "p--"):
                return Interval(-1, -1)
            case ir.Assign(op="+=", right=value):
                return self.of(value)
            case ir.Assign(op="-=", right=value):
                inner = self.of(value)
                return None if inner is None else Interval(-inner.high, -inner.low)
        return None

    def _block_of(self, symbol: ir.Symbol) -> ir.Block | None:
        for node in ir.walk(self._body):
            if isinstance(node, ir.Block) and any(isinstance(x, ir.Declare) and symbol in x.symbols for x in node.body):
                return node
        return None

    def _around(self, at: int, holder: ir.Block) -> list[ir.For | ir.While]:
        """The loops inside a block that hold a place, outermost first."""
        found = [n for n in ir.walk(holder) if isinstance(n, ir.For | ir.While) and n.span.start <= at < n.span.end]
        return sorted(found, key=lambda n: n.span.start)

    def trips(self, loop: ir.For | ir.While) -> int | None:
        """The most trips of a loop whose header is counted."""
        header = counted_header(loop) if isinstance(loop, ir.For) else None
        if header is None:
            return None
        first, bound, step = self.of(header.first), self.of(header.bound), self.of(header.step)
        if first is None or bound is None or step is None or step.low <= 0:
            return None
        return max(0, -(-(bound.high - first.low) // step.low))


def _product(trips: Iterable[int | None]) -> int:
    out = 1
    for t in trips:
        out *= t or 0
    return out


def _divided(op: str, a: Interval, b: Interval) -> Interval | None:
    if b.low <= 0 or a.low < 0:
        return None
    if op == "/":
        is_whole = b.low == b.high and a.low % b.low == 0 and a.step % b.low == 0
        return Interval(a.low // b.high, a.high // b.low, a.step // b.low if is_whole else 1)
    if b.low != b.high:
        return Interval(0, min(a.high, b.high - 1))
    if a.low // b.low == a.high // b.low:
        return Interval(a.low % b.low, a.high % b.low, a.step)
    step = gcd(a.step, b.low)
    return Interval(a.low % step, b.low - 1, step)


def _bits(op: str, a: Interval, b: Interval) -> Interval | None:
    if a.low < 0 or b.low < 0:
        return None
    if op == "&":
        return Interval(0, min(a.high, b.high))
    return Interval(0, (1 << max(a.high, b.high).bit_length()) - 1)


def _shifted(op: str, a: Interval, b: Interval) -> Interval | None:
    if b.low != b.high or not 0 <= b.low < 31 or a.low < 0:
        return None
    power = Interval(1 << b.low, 1 << b.low)
    return a * power if op == "<<" else _divided("/", a, power)


_Operation = Callable[[Interval, Interval], "Interval | None"]
_OPERATIONS: dict[str, _Operation] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: _divided("/", a, b),
    "%": lambda a, b: _divided("%", a, b),
    "&": lambda a, b: _bits("&", a, b),
    "|": lambda a, b: _bits("|", a, b),
    "^": lambda a, b: _bits("^", a, b),
    "<<": lambda a, b: _shifted("<<", a, b),
    ">>": lambda a, b: _shifted(">>", a, b),
}


def _arithmetic(op: str, a: Interval, b: Interval) -> Interval | None:
    found = _OPERATIONS.get(op)
    return None if found is None else found(a, b)
