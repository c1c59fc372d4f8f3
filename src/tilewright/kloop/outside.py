"""Uses of the staged arrays outside the K-loop, and whether the arrays can be rings of stages in spite of them.

Behind the K-loop an array holds the last tile: in a ring, that is the stage of the last tile, whatever is then read or
stored there. In front of the loop it is one stage too, so what is prepared there must not be seen by the loop: every
tile must fill the array to the last byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tilewright.kloop.kernel import Outside, Refusal
from tilewright.kloop.placement import enclosing, passed_before
from tilewright.source import ir
from tilewright.source.expr_types import Types
from tilewright.source.leaks import Leaks
from tilewright.source.reader import OpenKernel

_WORD = re.compile(rb"[A-Za-z_]\w*")
_SINGLE = "the ldg_single variant keeps the arrays in place"


class OutsideUses:
    """Looks through one kernel.

    Args:
        loop: the K-loop. staged: symbols of the arrays that its load phase fills.
        filled: works out which arrays it fills to the last byte, for every tile.
    """

    def __init__(
        self,
        kernel: OpenKernel,
        types: Types,
        loop: ir.For,
        staged: Iterable[int],
        filled: Callable[[], frozenset[int]],
    ) -> None:
        self._kernel = kernel
        self._types = types
        self._filled = filled
        self._loop = loop
        self._staged = frozenset(staged)

    def find(self) -> Outside:
        nodes = [n for n in ir.walk(self._kernel.body) if not self._in_loop(n.span) and self._names(n)]
        if not nodes:
            return Outside()
        uses = tuple(n for n in nodes if isinstance(n, ir.Name))
        first = self._line(nodes[0].span)
        refusal = next((r for n in nodes if (r := self._unnamed(n)) is not None), None)
        around = enclosing(self._kernel.body, self._loop)
        assumptions: list[str] = []
        if refusal is None:
            refusal = self._misplaced(uses, around[-1]) or self._kept(around[-1]) or self._handed_on()
        front = [n for n in uses if n.span.start < self._loop.span.start]
        if refusal is None and front:
            names = ", ".join(sorted({f"`{n.id}`" for n in front}))
            assumptions.append(
                f"blocks have as many threads as the launch says, which fill all of {names} for every tile"
            )
        if refusal is None and any(isinstance(s, ir.For | ir.While) for s in around):
            # The next run of the K-loop finds what this one and what is behind it have left in one stage only.
            names = ", ".join(f"`{self._kernel.symbols[s].name}`" for s in sorted({n.symbol or 0 for n in uses}))
            assumptions.append(
                f"in every run of the K-loop, in front of it and behind it, {names} is read only where that run has "
                "stored to it"
            )
        return Outside(first, uses, refusal, tuple(assumptions))

    def _line(self, span: ir.Span) -> int:
        return self._kernel.source.line(span.start)

    def _in_loop(self, span: ir.Span) -> bool:
        return self._loop.span.start <= span.start < self._loop.span.end

    def _no(self, what: str, span: ir.Span) -> Refusal:
        return Refusal("loop_carried_shared", what, self._line(span), _SINGLE)

    def _names(self, node: ir.Stmt | ir.Expr) -> bool:
        if isinstance(node, ir.Name):
            return node.symbol in self._staged
        # What is not in the tree is searched as text.
        if isinstance(node, ir.OpaqueStmt | ir.Opaque | ir.SizeOf | ir.Asm):
            words = {self._kernel.symbols[s].name.encode() for s in self._staged}
            return not words.isdisjoint(_WORD.findall(self._kernel.source.text[node.span.start : node.span.end]))
        return False

    def _unnamed(self, node: ir.Stmt | ir.Expr) -> Refusal | None:
        """A use that cannot be given another name."""
        if isinstance(node, ir.Name) and not node.span.within:
            return None
        if isinstance(node, ir.Asm) and not node.span.within:
            return None  # its operands are in the tree
        return self._no("a tile's array is also used outside the K-loop, in a macro or a construct not read", node.span)

    def _misplaced(self, uses: Iterable[ir.Name], block: ir.Stmt) -> Refusal | None:
        front = [n for n in uses if n.span.start < self._loop.span.start]
        filled = self._filled() if front else frozenset()
        for name in uses:
            if name in front:
                if name.symbol in filled:
                    continue
                what = (
                    f"`{name.id}` is also used in front of the K-loop, and tiles may leave some of it as it was there"
                )
                return self._no(what, name.span)
            if not block.span.start <= name.span.start < block.span.end:
                what = f"`{name.id}` is also used behind the loop or branch that the K-loop stands in"
                return self._no(what, name.span)
        return None

    def _handed_on(self) -> Refusal | None:
        """No address taken in front of the loop may be used in it or behind it: it is one of another stage there."""
        passed = passed_before(enclosing(self._kernel.body, self._loop), self._loop)
        front = [s for s in passed if s.span.start < self._loop.span.start]
        leaks = self._leaks({s.id for b in front for n in ir.walk(b) if isinstance(n, ir.Declare) for s in n.symbols})
        leak = leaks.find(front)
        if leak is not None:
            return self._no("an address inside a tile's array is kept in front of the K-loop", leak.span)
        for node in ir.walk(self._kernel.body):
            if isinstance(node, ir.Name) and node.symbol in leaks.holders and node.span.start >= self._loop.span.start:
                what = f"`{node.id}` holds an address inside a tile's array from in front of the K-loop"
                return self._no(what, node.span)
        return None

    def _leaks(self, inner: set[int]) -> Leaks:
        functions, aliases = self._kernel.functions, self._kernel.source.aliases
        return Leaks(self._kernel.symbols, functions, self._types, aliases, set(self._staged), inner)

    def _kept(self, block: ir.Stmt) -> Refusal | None:
        """No address taken behind the loop may be there when the loop runs again."""
        behind = [s for s in ir.children(block) if isinstance(s, ir.Stmt) and s.span.start > self._loop.span.start]
        inner = {s.id for b in behind for n in ir.walk(b) if isinstance(n, ir.Declare) for s in n.symbols}
        leak = self._leaks(inner).find(behind)
        if leak is None:
            return None
        who = f"`{self._kernel.symbols[leak.symbol].name}` keeps" if leak.symbol is not None else "something keeps"
        return self._no(f"{who} an address inside a tile's array", leak.span)
