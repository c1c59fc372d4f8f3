"""Whether the compute phase does its work element by element: then half a tile does half of it, and two do the whole.

What is done once a tile (a sum that is scaled or clamped behind every tile) is done twice as often with half tiles.
Runs show that only at sizes where it matters, so it is looked for in the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.source import ir, lexical
from tilewright.source.intrinsics import VALUES
from tilewright.source.places import root

_STEPS = ("++", "--", "p++", "p--")


def once_a_tile(kernel: TiledKernel, changed: Set[str]) -> Refusal | None:
    """The first thing that the compute phase does once a tile and that outlasts it; None where there is none.

    Args:
        changed: names of the constants that have other values with half tiles.
    """
    return next(_Steps(kernel, changed).found(), None)


class _Steps:
    def __init__(self, kernel: TiledKernel, changed: Set[str]) -> None:
        self._kernel = kernel
        nodes = [n for s in kernel.loop.compute for n in ir.walk(s)]
        self._inner = {s.id for n in nodes if isinstance(n, ir.Declare) for s in n.symbols}
        self._depth = set(changed)
        for symbol in kernel.symbols.values():
            if symbol.init is not None and self._words(symbol.init.span) & self._depth:
                self._depth.add(symbol.name)

    def _words(self, span: ir.Span) -> frozenset[str]:
        return lexical.identifiers(self._kernel.text[span.start : span.end])

    def found(self) -> Iterator[Refusal]:
        for stmt in self._kernel.loop.compute:
            yield from self._outside(stmt)

    def _outside(self, node: ir.Stmt | ir.Expr) -> Iterator[Refusal]:
        """What stands in no loop over the depth of the tile."""
        if isinstance(node, ir.For) and self._words(node.header) & self._depth:
            yield from self._by_tile(node)
            return
        changes = [s for s in self._changed(node) if s is None or s not in self._inner]
        if changes:
            symbol = changes[0]
            name = f"`{self._kernel.symbols[symbol].name}`" if symbol is not None else "something"
            what = f"the compute phase changes {name} once a tile, which half tiles would do twice as often"
            yield Refusal("not_understood", what, self._kernel.line_of(node.span.start))
        inner = (node.body,) if isinstance(node, ir.For) else ir.children(node)  # a header counts
        for child in inner:
            yield from self._outside(child)

    def _changed(self, node: ir.Stmt | ir.Expr) -> list[int | None]:
        targets: list[ir.Expr] = []
        match node:
            case ir.Assign(left=left):
                targets = [left]
            case ir.Unary(op=op, operand=x) if op in _STEPS:
                targets = [x]
            case ir.Asm(outputs=outputs):
                targets = [e for _, e in outputs]
            case ir.Call(callee=c, args=args) if not VALUES.match(c):
                targets = [a for a in args if root(a) is not None and not isinstance(a, ir.Number)]
        names = [root(t) for t in targets]
        return [n.symbol if n is not None else None for n in names]

    def _by_tile(self, loop: ir.For) -> Iterator[Refusal]:
        """Inside such a loop the K-loop's variable counts elements only beside another index: ``k + i``."""
        k = self._kernel.loop.var
        beside = {
            id(side)
            for n in ir.walk(loop.body)
            if isinstance(n, ir.Binary) and n.op == "+"
            for side, other in ((n.left, n.right), (n.right, n.left))
            if not isinstance(other, ir.Number)
        }
        for node in ir.walk(loop.body):
            if isinstance(node, ir.Name) and node.symbol == k.id and id(node) not in beside:
                what = f"the compute phase looks at `{k.name}`, which has other values with half tiles"
                yield Refusal("not_understood", what, self._kernel.line_of(node.span.start))
