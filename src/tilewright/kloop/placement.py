"""Where a K-loop stands in its kernel, and whether all threads of a block come to its barriers together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.loops import Header
from tilewright.kloop.uniform import Uniformity, jump_guards
from tilewright.source import ir
from tilewright.source.effects import Collector
from tilewright.source.reader import OpenKernel

_LEAVES = re.compile(rb"\b(?:return|goto|asm|__trap|exit)\b")


class Placement:
    """Judges the way to one loop.

    Threads that have returned take no part in a barrier: "Starting with Volta, the CUDA built-in __syncthreads() and
    PTX instruction bar.sync (and their derivatives) are enforced per thread and thus will not succeed until reached by
    all non-exited threads in the block" (CUDA C++ Programming Guide, Compute Capability 7.x, Independent Thread
    Scheduling). So a return in front of the loop may differ between threads; everything else may not.

    Attributes:
        divergent_return: line of such a return, once a loop has been judged; None without.
    """

    def __init__(self, kernel: OpenKernel, collector: Collector, uniformity: Uniformity) -> None:
        self._kernel = kernel
        self._collector = collector
        self._uniformity = uniformity
        self.divergent_return: int | None = None

    def assumptions(self) -> list[str]:
        """What the loop's place rests on, for the receipt."""
        if self.divergent_return is None:
            return []
        return [
            "threads that return in front of the K-loop are not waited for: on sm_70 and later __syncthreads() waits "
            "for all threads that have not exited"
        ]

    def _line(self, node: ir.Stmt | ir.Expr) -> int:
        return self._kernel.source.line(node.span.start)

    def _no(self, what: str, node: ir.Stmt | ir.Expr, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._line(node), hint)

    def judge(self, loop: ir.For, header: Header) -> Refusal | None:
        """Every thread that has not returned must enter the loop, or none, and leave it after the same trips."""
        self.divergent_return = None
        around = enclosing(self._kernel.body, loop)
        if not isinstance(around[-1], ir.Block):
            what = "the K-loop is the only statement of another one"
            return self._no(what, loop, "put braces around the K-loop")
        for outer in around:
            refused = self._entered_together(outer, loop)
            if refused is not None:
                return refused
        for stmt in passed_before(around, loop):
            refused = self._before(stmt)
            if refused is not None:
                return refused
        for expr in (header.first, header.bound, header.step):
            for node in _operands(expr):
                if not self._uniformity.uniform(node):
                    name = self._kernel.source.text[node.span.start : node.span.end].decode()
                    what = f"the trip count depends on `{name}`, which may differ between threads"
                    return Refusal("divergent_barrier", what, self._line(loop))
        return None

    def _entered_together(self, outer: ir.Stmt, loop: ir.For) -> Refusal | None:
        """A branch or loop around the K-loop: all threads go in, or none."""
        match outer:
            case ir.Block():
                return None
            case ir.If(condition=c):
                if self._uniformity.uniform(c):
                    return None
                what = "only some threads of a block may enter the branch that the K-loop stands in"
                return Refusal("divergent_barrier", what, self._line(outer))
            case ir.For() | ir.While():
                guards = jump_guards(outer.body, skip=loop)
                if outer.condition is not None:
                    guards.append(outer.condition)
                if all(g is not None and self._uniformity.uniform(g) for g in guards):
                    return None
                what = "threads of a block may leave the loop around the K-loop at different times"
                return Refusal("divergent_barrier", what, self._line(outer))
        return self._no("the K-loop stands inside a statement that is not understood", loop)

    def _before(self, stmt: ir.Stmt) -> Refusal | None:
        """What a thread passes on its way to the K-loop must be readable; it may return, but not jump elsewhere."""
        for node in ir.walk(stmt):
            if isinstance(node, ir.OpaqueStmt):
                return self._no(f"in front of the K-loop stands {node.what}, which is not understood", node)
            if isinstance(node, ir.Opaque) and node.what != "a lambda" and self._may_leave(node):
                return self._no(f"in front of the K-loop stands {node.what}, which may return", node)
            if isinstance(node, ir.Asm) and any("inline PTX" in w for w, _ in self._collector.collect([node]).unknown):
                return self._no("in front of the K-loop stands inline PTX that is not understood", node)
        if not self._collector.collect([stmt]).jumps:
            return None
        for node in ir.walk(stmt):
            if not isinstance(node, ir.If | ir.For | ir.While):
                continue
            if node.condition is not None and self._uniformity.uniform(node.condition):
                continue
            kinds = {k for k, _ in self._collector.collect([node]).jumps}
            if "goto" in kinds or ("return" in kinds and not isinstance(node, ir.If)):
                return Refusal(
                    "divergent_barrier",
                    "some threads of a block may jump past the K-loop's barriers, or return from within a loop",
                    self._line(node),
                    "let every thread reach the loop; guard its work instead",
                )
            if "return" in kinds and self.divergent_return is None:
                self.divergent_return = self._line(node)
        return None

    def _may_leave(self, node: ir.Opaque) -> bool:
        return _LEAVES.search(self._kernel.source.text[node.span.start : node.span.end]) is not None

    def divergent_barrier(self, stmt: ir.Stmt) -> Refusal | None:
        """A barrier inside a statement of the compute phase that not all threads may come to."""
        for node in ir.walk(stmt):
            if not isinstance(node, ir.If | ir.For | ir.While) or not self._collector.collect([node]).barriers:
                continue
            guards: list[ir.Expr | None] = [node.condition] if node.condition is not None else []
            if not isinstance(node, ir.If):
                guards += jump_guards(node.body)
            if not all(g is not None and self._uniformity.uniform(g) for g in guards):
                what = "__syncthreads() stands where only some threads of a block may come"
                return Refusal("divergent_barrier", what, self._line(node))
        return None


def enclosing(body: ir.Block, target: ir.Stmt) -> list[ir.Stmt]:
    """The statements around ``target``, outermost first, the function's body among them."""
    out: list[ir.Stmt] = [body]
    while True:
        inner = next((c for c in ir.children(out[-1]) if isinstance(c, ir.Stmt) and _holds(c, target)), None)
        if inner is None:
            return out
        out.append(inner)


def passed_before(around: Iterable[ir.Stmt], target: ir.Stmt) -> list[ir.Stmt]:
    """Statements that a thread may have passed when it comes to ``target``; of loops around it, all but ``target``."""
    out: list[ir.Stmt] = []
    in_loop = False
    for outer in around:
        in_loop |= isinstance(outer, ir.For | ir.While)
        if isinstance(outer, ir.For) and outer.init is not None:
            out.append(outer.init)
        if isinstance(outer, ir.Block):
            others = [s for s in outer.body if s.span != target.span and not _holds(s, target)]
            out += [s for s in others if in_loop or s.span.start < target.span.start]
    return out


def _holds(outer: ir.Stmt, inner: ir.Stmt) -> bool:
    return outer is not inner and outer.span.start <= inner.span.start and inner.span.end <= outer.span.end


def _operands(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The names and members of an expression; of a member, not the name of what it is part of."""
    if isinstance(expr, ir.Name | ir.Member):
        yield expr
        return
    for child in ir.children(expr):
        if isinstance(child, ir.Expr):
            yield from _operands(child)
