"""Calls in the load phase of a kernel's K-loop, wherever the loop's barriers cut it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tilewright.kloop.kloop import statements
from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.effects import Collector, short_name
from tilewright.source.intrinsics import BARRIERS
from tilewright.source.reader import OpenKernel


@dataclass(frozen=True)
class CallSite:
    """A call of a function of the user's.

    Attributes:
        stmt: the statement that it stands in; the call is all of it where ``whole``.
        in_block: the statement is one of a block's, so that several may take its place.
        last: nothing of the kernel follows the statement.
        around: the expression or statement directly around the call.
    """

    call: ir.Call
    stmt: ir.Stmt
    whole: bool
    in_block: bool
    last: bool = False
    around: ir.Expr | ir.Stmt | None = None


class CallSites:
    """The calls of one kernel that have to be written out; nothing is looked at before it is asked for."""

    def __init__(self, kernel: OpenKernel) -> None:
        self.kernel = kernel

    @cached_property
    def collector(self) -> Collector:
        kernel = self.kernel
        return Collector(kernel.symbols, kernel.functions, kernel.body.body, True, kernel.source.aliases)

    @cached_property
    def _with_barrier(self) -> set[int]:
        """Identities of the nodes that hold a barrier, themselves or by way of a function."""
        found: set[int] = set()
        self._mark(self.kernel.body, found)
        return found

    def find(self) -> list[CallSite]:
        """Calls that hold a barrier, or the K-loop itself; else those of the load phases. In source order."""
        hiding = [s for s in self._whole(self.kernel.body) if self._barriers(s.stmt)]
        loops = [n for n in ir.walk(self.kernel.body) if isinstance(n, ir.For | ir.While) and self._barriers(n)]
        if hiding:
            inside = [s for s in hiding if any(n.span.start <= s.stmt.span.start < n.span.end for n in loops)]
            return inside or ([] if loops else hiding)
        out: dict[int, CallSite] = {}
        for loop in loops:
            for segment in self._segments(statements(loop.body)):
                if self._fills(segment):
                    out |= {s.call.span.start: s for s in self._calls(segment)}
        return sorted(out.values(), key=lambda s: s.call.span.start)

    def segments(self) -> Iterator[tuple[ir.Stmt, ...]]:
        """The load phases: statements between barriers that fill shared memory."""
        for loop in ir.walk(self.kernel.body):
            if isinstance(loop, ir.For | ir.While) and self._barriers(loop):
                yield from (s for s in self._segments(statements(loop.body)) if self._fills(s))

    # -- cutting --------------------------------------------------------------------------------------
    def _mark(self, node: ir.Stmt | ir.Expr, found: set[int]) -> bool:
        function = self.kernel.functions.get(short_name(node.callee)) if isinstance(node, ir.Call) else None
        own = isinstance(node, ir.Call) and node.callee in BARRIERS
        holds = own or (function is not None and bool(function.effects.barriers))
        for child in ir.children(node):
            holds |= self._mark(child, found)
        if holds:
            found.add(id(node))
        return holds

    def _barriers(self, node: ir.Stmt) -> bool:
        return id(node) in self._with_barrier

    def _segments(self, body: tuple[ir.Stmt, ...]) -> Iterator[tuple[ir.Stmt, ...]]:
        part: list[ir.Stmt] = []
        for stmt in body:
            if self._barriers(stmt):
                yield tuple(part)
                part = []
            else:
                part.append(stmt)
        yield tuple(part)

    def _fills(self, segment: tuple[ir.Stmt, ...]) -> bool:
        """Whether the statements bring something from outside to shared memory, themselves or by way of a function."""
        return self._reaches_out(segment) and self._stores(segment)

    def _reaches_out(self, segment: tuple[ir.Stmt, ...]) -> bool:
        """Whether they name a pointer that may lead to global memory: what works on tiles alone is no load phase."""
        names = ir.names(segment)
        for symbol in (self.kernel.symbols[i] for i in sorted(names)):
            if symbol.pointers and self.collector.places.pointee(symbol).space in ("global", "unknown"):
                return True
            if symbol.kind == "param" and size_of(symbol.type_text, self.kernel.source.aliases) is None:
                return True  # a struct that may hold pointers
        return False

    def _stores(self, segment: tuple[ir.Stmt, ...]) -> bool:
        if self.collector.collect(segment).stores_to_shared():
            return True
        for stmt in segment:
            for call in ir.walk(stmt):
                target = call.left if isinstance(call, ir.Assign) else None  # `at(tile, y, x) = …`
                if isinstance(target, ir.Call) and self._own(target) and any(map(self._is_shared, target.args)):
                    return True
                function = self.kernel.functions.get(short_name(call.callee)) if isinstance(call, ir.Call) else None
                if function is None or not isinstance(call, ir.Call):
                    continue
                # What a store goes through is not always known; then it may be any of the arguments.
                through = range(len(call.args)) if function.effects.stores else sorted(function.stored)
                if any(i < len(call.args) and self._is_shared(call.args[i]) for i in through):
                    return True
        return False

    def _is_shared(self, arg: ir.Expr) -> bool:
        places = self.collector.places
        return "shared" in (places.at(arg).space, places.of(arg).space)

    # -- calls ----------------------------------------------------------------------------------------
    def _own(self, call: ir.Call) -> bool:
        return short_name(call.callee) in self.kernel.definitions and not call.span.within

    def _whole(self, body: ir.Block) -> Iterator[CallSite]:
        """Statements that are nothing but a call, anywhere in the kernel."""
        for stmt, in_block in _statements(body):
            if isinstance(stmt, ir.Do) and isinstance(stmt.expr, ir.Call) and self._own(stmt.expr):
                last = bool(body.body) and stmt is body.body[-1]
                yield CallSite(stmt.expr, stmt, True, in_block, last)

    def _calls(self, segment: Iterable[ir.Stmt]) -> Iterator[CallSite]:
        whole: set[int] = set()
        for site in self._whole(ir.Block(ir.Span(0, 0), tuple(segment))):
            whole.add(id(site.call))
            yield CallSite(site.call, site.stmt, True, site.in_block)
        for stmt in segment:
            yield from self._inner(stmt, stmt, whole)

    def _inner(self, node: ir.Expr | ir.Stmt, stmt: ir.Stmt, whole: set[int]) -> Iterator[CallSite]:
        """Calls inside expressions that read memory or name a place in it; not those inside a call that goes first."""
        for child in ir.children(node):
            if isinstance(child, ir.Call) and id(child) not in whole and self._own(child) and self._touches(child):
                yield CallSite(child, stmt, False, False, around=node)
            elif not (isinstance(child, ir.Call) and id(child) in whole):
                yield from self._inner(child, child if isinstance(child, ir.Stmt) else stmt, whole)

    def _touches(self, call: ir.Call) -> bool:
        """Whether a function reads memory, or hands out a place: arithmetic may stay a call."""
        for one in self.kernel.definitions[short_name(call.callee)]:
            head = one.node.child_by_field_name("declarator")
            if head is not None and head.type in ("pointer_declarator", "reference_declarator"):
                return True
            body = one.node.child_by_field_name("body")
            text = one.text[body.start_byte : body.end_byte] if body is not None else b""
            if any(sign in text for sign in (b"[", b"->", b"*reinterpret", b"__ldg", b"*(", b"return *")):
                return True
        return False


def _statements(node: ir.Stmt) -> Iterator[tuple[ir.Stmt, bool]]:
    """Every statement under one, and whether it is one of a block's."""
    for child in ir.children(node):
        if isinstance(child, ir.Stmt):
            yield child, isinstance(node, ir.Block) and not node.span.within
            yield from _statements(child)
