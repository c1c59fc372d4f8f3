"""The load phase rehearsed for all threads of one block: how often its loops run, and where each store goes.

Only what follows from the thread's index and from constants is known. Under a condition that is not known both ways
are gone, and what they leave behind differs is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.kloop import lanes
from tilewright.kloop.kernel import SharedArray
from tilewright.kloop.landings import Landing as Landing
from tilewright.kloop.landings import Mask
from tilewright.kloop.lanes import Lanes, Spot
from tilewright.source import ir
from tilewright.source.c_types import common, int_kind, size_of
from tilewright.source.constants import Constants
from tilewright.source.effects import Collector
from tilewright.source.expr_types import Types

_MAX_PASSES = 4096
_MAX_STORES = 2048
_MAX_DEPTH = 48
Known = Lanes | Spot | None


@dataclass
class Trips:
    """Passes of one loop, over every time that it ran: the most, and whether threads differed."""

    most: int | None = 0
    differ: bool = False


@dataclass
class Rehearsed:
    """``trips``: by where the loop starts in the text."""

    landings: list[Landing] = field(default_factory=list)
    trips: dict[int, Trips] = field(default_factory=dict)


class _TooLongError(Exception):
    pass


class Rehearsal:
    """Runs one load phase.

    Args:
        fixed: the initialiser of a name that still holds where the name stands, else None.
        block: threads of a block per dimension; None where not known (one thread of unknown index stands for all).
        stores: the assignments that store into tiles, by identity → their number.
    """

    def __init__(
        self,
        constants: Constants,
        symbols: Mapping[int, ir.Symbol],
        types: Types,
        collector: Collector,
        arrays: Mapping[int, SharedArray],
        fixed: Callable[[ir.Name], ir.Expr | None],
        block: tuple[int, int, int] | None,
        stores: Mapping[int, int],
    ) -> None:
        self._constants = constants
        self._symbols = symbols
        self._types = types
        self._collector = collector
        self._arrays = arrays
        self._fixed = fixed
        self._stores = stores
        self._env: dict[int, Known] = {}
        self._busy: set[int] = set()
        self._sides: tuple[tuple[int, bool], ...] = ()
        self._asked = 0  # conditions that were not known, each time one was asked
        self._out = Rehearsed()
        self._threads = 1
        self._builtin: dict[str, Lanes] = {}
        if block is not None:
            self._threads = block[0] * block[1] * block[2]
            index = np.arange(self._threads, dtype=np.int64)
            unsigned = int_kind("unsigned int")
            assert unsigned is not None
            grid = (index % block[0], index // block[0] % block[1], index // (block[0] * block[1]))
            for axis, numbers, size in zip("xyz", grid, block, strict=True):
                self._builtin[f"threadIdx.{axis}"] = Lanes(numbers, unsigned)
                self._builtin[f"blockDim.{axis}"] = Lanes(np.full(self._threads, size, dtype=np.int64), unsigned)

    def run(self, body: tuple[ir.Stmt, ...]) -> Rehearsed:
        everyone = np.ones(self._threads, dtype=np.int64)
        try:
            for stmt in body:
                self._do(stmt, everyone)
        except _TooLongError:
            return Rehearsed([Landing(n, None, everyone, (), True) for n in self._stores.values()], {})
        return self._out

    # -- statements -----------------------------------------------------------------------------------
    def _do(self, stmt: ir.Stmt, mask: Mask) -> None:
        match stmt:
            case ir.Block(body=body):
                for inner in body:
                    self._do(inner, mask)
            case ir.Declare(symbols=symbols):
                for s in symbols:
                    self._forget(s.init)
                    self._env[s.id] = self._declared(s)
            case ir.Do(expr=ir.Assign() as e) if id(e) in self._stores:
                self._land(e, mask)
            case ir.Do(expr=e):
                self._expression(e, mask)
            case ir.If():
                self._if(stmt, mask)
            case ir.For():
                self._for(stmt, mask)
            case ir.Nothing() | ir.Alias():
                pass
            case _:
                self._blind(stmt, mask)

    def _declared(self, symbol: ir.Symbol) -> Known:
        if symbol.dims or symbol.reference or symbol.init is None:
            return None
        return self._held(symbol, self._value(symbol.init))

    def _held(self, symbol: ir.Symbol, value: Known) -> Known:
        """The value as a variable holds it."""
        if isinstance(value, Spot):
            if "auto" in symbol.type_text.split():
                return value
            step = size_of(symbol.type_text, self._constants.aliases) if symbol.pointers == 1 else None
            return Spot(value.array, value.offsets, step) if symbol.pointers else None
        if value is None or symbol.pointers:
            return None
        if "auto" in symbol.type_text.split():
            return value
        kind = int_kind(symbol.type_text, self._constants.aliases)
        return lanes.converted(value, kind) if kind is not None else None

    def _expression(self, expr: ir.Expr, mask: Mask) -> None:
        match expr:
            case ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=value):
                self._forget(value)
                self._set(s, self._value(value), mask)
            case ir.Assign(op=op, left=ir.Name(symbol=int(s)) as name, right=value) if op != "=":
                self._forget(value)
                self._set(s, self._value(ir.Binary(expr.span, op[:-1], name, value)), mask)
            case ir.Unary(op="++" | "p++" | "--" | "p--" as op, operand=ir.Name(symbol=int(s)) as name):
                one = ir.Number(expr.span, "1", 1)
                self._set(s, self._value(ir.Binary(expr.span, op[-1], name, one)), mask)
            case _:
                self._forget(expr)

    def _set(self, symbol: int, value: Known, mask: Mask) -> None:
        held = self._held(self._symbols[symbol], value) if not self._symbols[symbol].dims else None
        if held is not None and not bool(mask.all()):
            held = self._mixed(held, self._looked_up(symbol), mask)
        self._env[symbol] = held

    @staticmethod
    def _mixed(one: Known, two: Known, mask: Mask) -> Known:
        """``one`` where the mask is set, ``two`` elsewhere."""
        if isinstance(one, Lanes) and isinstance(two, Lanes) and one.kind == two.kind:
            return Lanes(np.where(mask != 0, one.numbers, two.numbers), one.kind)
        if isinstance(one, Spot) and isinstance(two, Spot) and (one.array, one.step) == (two.array, two.step):
            return Spot(one.array, np.where(mask != 0, one.offsets, two.offsets), one.step)
        return None

    def _forget(self, *nodes: ir.Stmt | ir.Expr | None) -> None:
        """What the nodes may change is not known any more."""
        for symbol in self._collector.collect([n for n in nodes if n is not None]).writes:
            self._env[symbol] = None

    def _blind(self, stmt: ir.Stmt, mask: Mask) -> None:
        """A statement that is not followed: its stores may go anywhere, any number of times."""
        self._forget(stmt)
        for node in ir.walk(stmt):
            if id(node) in self._stores:
                self._out.landings.append(Landing(self._stores[id(node)], None, mask, self._sides, True))
            if isinstance(node, ir.For):
                self._out.trips[node.span.start] = Trips(None, True)

    def _land(self, store: ir.Assign, mask: Mask) -> None:
        self._forget(store.left, store.right)
        spot = self._place(store.left)
        offsets = spot.offsets if spot is not None else None
        self._out.landings.append(Landing(self._stores[id(store)], offsets, mask, self._sides))
        if len(self._out.landings) > _MAX_STORES:
            raise _TooLongError

    def _if(self, stmt: ir.If, mask: Mask) -> None:
        self._forget(stmt.condition)
        condition = self._value(stmt.condition)
        if isinstance(condition, Lanes):
            true = (condition.numbers != 0).astype(np.int64)
            if bool((mask & true).any()):
                self._do(stmt.then, mask & true)
            if stmt.otherwise is not None and bool((mask & (1 - true)).any()):
                self._do(stmt.otherwise, mask & (1 - true))
            return
        before, sides = dict(self._env), self._sides
        self._asked += 1
        asked = self._asked
        self._sides = (*sides, (asked, True))
        self._do(stmt.then, mask)
        one, self._env = self._env, dict(before)
        if stmt.otherwise is not None:
            self._sides = (*sides, (asked, False))
            self._do(stmt.otherwise, mask)
        self._sides = sides
        other = self._env
        self._env = {s: other[s] for s in other if s in one and _same(one[s], other[s])}
        for s in (one.keys() | other.keys()) - self._env.keys():
            self._env[s] = None

    def _for(self, loop: ir.For, mask: Mask) -> None:
        if loop.init is not None:
            self._do(loop.init, mask)
        trips = self._out.trips.setdefault(loop.span.start, Trips())
        passes = np.zeros(self._threads, dtype=np.int64)
        active = mask
        jumps = any(isinstance(n, ir.Jump) for n in ir.walk(loop.body))
        while True:
            if loop.condition is not None:
                self._forget(loop.condition)
            condition = self._value(loop.condition) if loop.condition is not None else None
            if not isinstance(condition, Lanes) or jumps:
                trips.most = None if not isinstance(condition, Lanes) else trips.most
                self._unknown_loop(loop, mask, trips)
                return
            active = active & (condition.numbers != 0)
            if not bool(active.any()):
                break
            passes += active
            if int(passes.max()) > _MAX_PASSES:
                raise _TooLongError
            self._do(loop.body, active)
            if loop.update is not None:
                self._expression(loop.update, active)
        if trips.most is not None:
            trips.most = max(trips.most, int(passes.max()))
        among = passes[mask != 0]
        trips.differ |= bool(among.size) and int(among.min()) != int(among.max())

    def _unknown_loop(self, loop: ir.For, mask: Mask, trips: Trips) -> None:
        trips.most, trips.differ = None, True
        self._forget(loop)
        self._blind(loop.body, mask)

    # -- values -----------------------------------------------------------------------------------------
    def _looked_up(self, symbol: int) -> Known:
        if symbol in self._env:
            return self._env[symbol]
        one = self._symbols[symbol]
        if one.kind == "shared":
            array = self._arrays.get(symbol)
            step = None if array is None else self._pitch(array, 1)
            return None if array is None else Spot(symbol, np.zeros(self._threads, dtype=np.int64), step)
        if symbol in self._busy or len(self._busy) > _MAX_DEPTH:
            return None
        init = self._fixed(ir.Name(one.span, one.name, symbol))
        if init is None:
            return None
        self._busy.add(symbol)
        try:
            return self._held(one, self._value(init))
        finally:
            self._busy.discard(symbol)

    @staticmethod
    def _pitch(array: SharedArray, rank: int) -> int:
        """Bytes of what ``rank`` subscripts of an array lead to."""
        size = array.element_bytes
        for d in array.dims[rank:]:
            size *= d
        return size

    def _value(self, expr: ir.Expr) -> Known:
        match expr:
            case ir.Member(base=ir.Name(id=b, symbol=None), field=f) if f"{b}.{f}" in self._builtin:
                return self._builtin[f"{b}.{f}"]
            case ir.Name(symbol=int(s)) if (found := self._looked_up(s)) is not None:
                return found
            case ir.Unary(op="&", operand=x):
                spot = self._place(x)
                return None if spot is None else Spot(spot.array, spot.offsets, self._types.bytes_of(x))
            case ir.Cast(type_text=t, operand=x):
                return self._cast(t, x)
            case ir.Unary(op="-" | "+" | "!" | "~" as op, operand=x):
                value = self._value(x)
                return lanes.unary(op, value) if isinstance(value, Lanes) else None
            case ir.Ternary():
                return self._chosen(expr)
            case ir.Binary(op=op, left=a, right=b):
                found = self._binary(op, a, b)
                return found if found is not None else self._constant(expr)
            case ir.InitList(items=(x,)):
                return self._value(x)
            case ir.Index() if (kind := self._types.of(expr)) is not None and kind.rank:
                return self._place(expr)  # a row, which decays
        return self._constant(expr)

    def _constant(self, expr: ir.Expr) -> Lanes | None:
        number, kind = self._constants.evaluate(expr), self._constants.kind(expr)
        if number is None or kind is None or abs(number) >= 1 << 62:
            return None
        return Lanes(np.full(self._threads, number, dtype=np.int64), kind)

    def _cast(self, type_text: str, operand: ir.Expr) -> Known:
        value = self._value(operand)
        if "*" in type_text:
            if not isinstance(value, Spot) or type_text.count("*") != 1:
                return None
            return Spot(value.array, value.offsets, size_of(type_text.replace("*", " "), self._constants.aliases))
        kind = int_kind(type_text, self._constants.aliases)
        return lanes.converted(value, kind) if isinstance(value, Lanes) and kind is not None else None

    def _chosen(self, expr: ir.Ternary) -> Known:
        condition, one, two = (self._value(e) for e in (expr.condition, expr.then, expr.otherwise))
        if not isinstance(condition, Lanes):
            return None
        if isinstance(one, Lanes) and isinstance(two, Lanes):
            kind = common(one.kind, two.kind)
            left, right = lanes.converted(one, kind), lanes.converted(two, kind)
            if left is None or right is None:
                return None
            return Lanes(np.where(condition.numbers != 0, left.numbers, right.numbers), kind)
        return self._mixed(one, two, (condition.numbers != 0).astype(np.int64))

    def _binary(self, op: str, a: ir.Expr, b: ir.Expr) -> Known:
        left, right = self._value(a), self._value(b)
        if isinstance(left, Lanes) and isinstance(right, Lanes):
            return lanes.binary(op, left, right)
        if isinstance(right, Spot) and isinstance(left, Lanes) and op == "+":
            left, right = right, left
        if isinstance(left, Spot) and isinstance(right, Lanes) and op in ("+", "-") and left.step is not None:
            distance = right.numbers * left.step * (1 if op == "+" else -1)
            return Spot(left.array, left.offsets + distance, left.step)
        return None

    def _place(self, target: ir.Expr) -> Spot | None:
        """Where an lvalue inside a shared array starts; ``step``: bytes of its elements where it is a row."""
        match target:
            case ir.Name(symbol=int(s)) if self._symbols[s].kind == "shared":
                found = self._looked_up(s)
                return found if isinstance(found, Spot) else None
            case ir.Index(base=b, index=i):
                base, index = self._address(b), self._value(i)
                if base is None or base.step is None or not isinstance(index, Lanes):
                    return None
                return Spot(base.array, base.offsets + index.numbers * base.step, self._inner_step(target))
            case ir.Unary(op="*", operand=x):
                found = self._value(x)
                return found if isinstance(found, Spot) else None
            case ir.Member(base=b, field=f, arrow=False) if f in "xyzw":
                found, size = self._place(b), self._types.bytes_of(target)
                if found is None or size is None:
                    return None
                return Spot(found.array, found.offsets + "xyzw".index(f) * size, None)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                return self._place(x)
        return None

    def _address(self, base: ir.Expr) -> Spot | None:
        """What a subscript starts from: an array, a row of one, or a pointer."""
        kind = self._types.of(base)
        if kind is not None and kind.rank and not isinstance(base, ir.Name):
            return self._place(base)
        found = self._value(base)
        return found if isinstance(found, Spot) else None

    def _inner_step(self, row: ir.Index) -> int | None:
        """Bytes of an element of what a subscript leads to, where that is a row."""
        rank, base = 1, row.base
        while isinstance(base, ir.Index):
            rank, base = rank + 1, base.base
        array = self._arrays.get(base.symbol) if isinstance(base, ir.Name) and base.symbol is not None else None
        return None if array is None or rank >= len(array.dims) else self._pitch(array, rank + 1)


def _same(a: Known, b: Known) -> bool:
    if isinstance(a, Lanes) and isinstance(b, Lanes):
        return a.kind == b.kind and np.array_equal(a.numbers, b.numbers)
    if isinstance(a, Spot) and isinstance(b, Spot):
        return (a.array, a.step) == (b.array, b.step) and np.array_equal(a.offsets, b.offsets)
    return a is None and b is None
