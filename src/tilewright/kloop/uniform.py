"""Which values are the same for every thread of a block, and which variables never change."""

from __future__ import annotations

import re
from functools import cached_property

from tilewright.source import intrinsics, ir
from tilewright.source.effects import Collector, short_name
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel

_PER_THREAD = re.compile(r"^(?:threadIdx|laneid|warpSize|laneId)$")


class Uniformity:
    """Answers for one kernel. A variable may be written if every write is the same for all threads of a block."""

    def __init__(self, kernel: OpenKernel, collector: Collector) -> None:
        self._symbols = kernel.symbols
        self._body = kernel.body
        self._collector = collector
        self._functions = kernel.functions
        self._busy: set[int] = set()

    @cached_property
    def changed(self) -> frozenset[int]:
        """Symbols written anywhere except by their own declaration."""
        effects = self._collector.collect(self._body.body)
        written = set(effects.writes)
        if any(s.place.symbol is None for s in effects.stores):
            written |= self._addressed()  # a store through an unknown pointer may reach them
        return frozenset(written)

    def _addressed(self) -> set[int]:
        found: set[int] = set()
        for node in ir.walk(self._body):
            if isinstance(node, ir.Unary) and node.op == "&":
                name = root(node.operand)
                if name is not None and name.symbol is not None:
                    found.add(name.symbol)
        return found

    @cached_property
    def _writes(self) -> dict[int, list[tuple[ir.Expr | None, ...]]]:
        """For each write of a symbol: what must be uniform for the write to be; None in it where nothing helps."""
        out: dict[int, list[tuple[ir.Expr | None, ...]]] = {}
        self._gather(self._body, (), out)
        return out

    def _gather(
        self, stmt: ir.Stmt, under: tuple[ir.Expr | None, ...], out: dict[int, list[tuple[ir.Expr | None, ...]]]
    ) -> None:
        plain: int | None = None
        match stmt:
            case ir.Block(body=body):
                for inner in body:
                    self._gather(inner, under, out)
                return
            case ir.If(condition=c, then=a, otherwise=b):
                self._gather(ir.Do(c.span, c), under, out)
                for inner in (a, b) if b is not None else (a,):
                    self._gather(inner, (*under, c), out)
                return
            case ir.For() | ir.While():
                self._gather_loop(stmt, under, out)
                return
            case ir.Do(expr=ir.Assign(left=ir.Name(symbol=int(s)), right=value)) if not self._symbols[s].reference:
                plain = s
                out.setdefault(s, []).append((*under, value))
            case ir.Do(expr=ir.Unary(op="++" | "--" | "p++" | "p--", operand=ir.Name(symbol=int(s)))):
                plain = s
                out.setdefault(s, []).append(under)
            case ir.Do(expr=ir.Assign(op="=", left=ir.Member(base=ir.Name(symbol=int(s)), arrow=False), right=value)):
                if not self._symbols[s].reference:  # a member of a struct: the struct is uniform where all of them are
                    plain = s
                    out.setdefault(s, []).append((*under, value))
        for symbol in self._collector.collect([stmt]).writes - {plain}:
            out.setdefault(symbol, []).append((None,))

    def _gather_loop(
        self,
        loop: ir.For | ir.While,
        under: tuple[ir.Expr | None, ...],
        out: dict[int, list[tuple[ir.Expr | None, ...]]],
    ) -> None:
        # Where threads may leave at different times, nothing inside is the same for all.
        leaves = jump_guards(loop.body)
        if loop.condition is None and not leaves:
            leaves = [None]
        inside = (*under, *leaves, *((loop.condition,) if loop.condition is not None else ()))
        parts: list[ir.Stmt | ir.Expr | None] = [loop.condition, loop.body]
        if isinstance(loop, ir.For):
            parts += [loop.update]
            if loop.init is not None:
                self._gather(loop.init, under, out)
        for part in parts:
            if part is not None:
                self._gather(ir.Do(part.span, part) if isinstance(part, ir.Expr) else part, inside, out)

    def uniform(self, expr: ir.Expr) -> bool:
        """Whether every thread of a block computes the same value."""
        for node in ir.walk(expr):
            match node:
                case ir.Name(symbol=int(s)):
                    if not self.uniform_symbol(s):
                        return False
                case ir.Name(id=name) if _PER_THREAD.match(name):
                    return False
                case ir.Call(callee=c) if not intrinsics.VALUES.match(c) and not self._follows_from_arguments(c):
                    return False
                case ir.Unary(op="*" | "++" | "--" | "p++" | "p--"):
                    return False
                case ir.Index() if not self._uniform_load(node):
                    return False
                case ir.Opaque() | ir.Assign() | ir.Member(arrow=True):
                    return False
        return True

    def _uniform_load(self, node: ir.Index) -> bool:
        """A load through a kernel's pointer to const, whose address is judged apart.

        Another thread that writes there between two barriers would race with it.
        """
        place = self._collector.places.of(node)
        symbol = self._symbols.get(place.symbol) if place.symbol is not None else None
        if place.space != "global" or symbol is None or symbol.kind != "param":
            return False
        words = symbol.type_text.split()
        return "const" in words and "volatile" not in words and symbol.pointers == 1

    def _follows_from_arguments(self, callee: str) -> bool:
        """Whether a ``__device__`` function of the file computes its value from its arguments alone."""
        function = self._functions.get(short_name(callee))
        return function is not None and function.pure

    def uniform_symbol(self, symbol_id: int) -> bool:
        symbol = self._symbols[symbol_id]
        if symbol.kind == "shared" or symbol_id in self._busy:
            return True  # an address; or a value that only depends on itself
        if symbol.dims or symbol.reference:
            return False
        if symbol.kind != "param" and symbol.init is None and symbol_id not in self.changed:
            return False
        values = [] if symbol.init is None else [symbol.init]
        self._busy.add(symbol_id)
        try:
            written = self._writes.get(symbol_id, [(None,)]) if symbol_id in self.changed else []
            needed = [*values, *(v for write in written for v in write)]
            return all(v is not None and self.uniform(v) for v in needed)
        finally:
            self._busy.discard(symbol_id)

    def fixed(self, name: ir.Name, steady: int) -> ir.Expr | None:
        """The initialiser of a plain variable that still means the same where the name stands; else None.

        ``steady``: a variable that does not change between the two places: the K-loop's, within one iteration.
        """
        symbol = self._symbols.get(name.symbol) if name.symbol is not None else None
        if symbol is None or symbol.init is None or symbol.dims or symbol.pointers or symbol.reference:
            return None
        names = ir.names([symbol.init])
        if any(self._symbols[n].reference for n in names):
            return None  # what it refers to may be changed by its own name
        return None if (names - {steady} | {symbol.id}) & self.changed else symbol.init


def jump_guards(body: ir.Stmt, skip: ir.Stmt | None = None) -> list[ir.Expr | None]:
    """The conditions that lead to each jump in a loop's body; None where one is not understood.

    Args:
        skip: a statement inside that is left out.
    """
    out: list[ir.Expr | None] = []

    def visit(stmt: ir.Stmt, under: tuple[ir.Expr | None, ...]) -> None:
        if stmt is skip:
            return
        match stmt:
            case ir.Jump(kind=kind):
                out.extend(under if kind in ("break", "continue", "return") else (None,))
            case ir.OpaqueStmt():
                out.append(None)
            case ir.If(condition=c):
                under = (*under, c)
            case ir.For(condition=c) | ir.While(condition=c):
                under = (*under, *((c,) if c is not None else ()))
        for child in ir.children(stmt):
            if isinstance(child, ir.Stmt):
                visit(child, under)

    visit(body, ())
    return out
