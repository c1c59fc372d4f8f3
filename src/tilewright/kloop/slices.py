"""Slices of the load phase: the statements that some names or stores rest on, and nothing else.

A slice keeps the text of what it keeps, so it must err on the side of keeping: a statement stays where it may change
anything that another one that stays reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from tilewright.kloop.load_stream import Slice
from tilewright.source import ir
from tilewright.source.effects import Collector


def mentioned(nodes: Iterable[ir.Stmt | ir.Expr]) -> set[int]:
    """Symbols that the nodes name or declare."""
    every = list(nodes)
    return ir.names(every) | {
        s.id for node in every for n in ir.walk(node) if isinstance(n, ir.Declare) for s in n.symbols
    }


class Slicer:
    """Slices of one load phase.

    Args:
        stores: the assignments that store into tiles, by identity.
    """

    def __init__(self, body: tuple[ir.Stmt, ...], collector: Collector, stores: Set[int]) -> None:
        self._body = body
        self._collector = collector
        self._stores = stores
        self._changes: dict[int, frozenset[int]] = {}

    def of(self, wanted: Set[int], storing: bool) -> Slice:
        """The slice for some names; ``storing``: and for where the tiles are stored, without the values."""
        needs = set(wanted)
        kept: set[tuple[int, int]] = set()
        size = -1
        while size != len(needs) + len(kept):
            size = len(needs) + len(kept)
            for stmt in self._body:
                self._keep(stmt, needs, kept, storing, False)
        return Slice(frozenset(kept), frozenset(needs))

    def _keep(self, stmt: ir.Stmt, needs: set[int], kept: set[tuple[int, int]], storing: bool, looped: bool) -> bool:
        """Whether a statement stays. ``looped``: the loop around it does."""
        itself = (stmt.span.start, stmt.span.end) in kept
        match stmt:
            case ir.Block(body=body):
                stays = sum(self._keep(s, needs, kept, storing, looped) for s in body) > 0  # every part is judged
                parts: tuple[ir.Stmt | ir.Expr | None, ...] = ()
            case ir.If(condition=c, then=a, otherwise=b):
                stays = sum(self._keep(s, needs, kept, storing, looped) for s in (a, b) if s is not None) > 0
                parts = (c,)
            case ir.For(init=i, condition=c, update=u, body=b):
                # What a header changes may be looked at behind the loop.
                stays = self._keep(b, needs, kept, storing, itself) or bool(self._changed_by(stmt, (i, c, u)) & needs)
                parts = (i, c, u)
            case ir.While(condition=c, body=b):
                stays = self._keep(b, needs, kept, storing, itself) or bool(self._changed_by(stmt, (c,)) & needs)
                parts = (c,)
            case _:
                return self._leaf(stmt, needs, kept, storing, looped)
        if isinstance(stmt, ir.If) and self._changed_by(stmt, parts) & needs:
            stays = True
        if stays:
            kept.add((stmt.span.start, stmt.span.end))
            needs |= mentioned(p for p in parts if p is not None)
        return stays

    def _leaf(self, stmt: ir.Stmt, needs: set[int], kept: set[tuple[int, int]], storing: bool, looped: bool) -> bool:
        if isinstance(stmt, ir.Alias):  # a name that what stays may use; no reason to stay for anything around it
            kept.add((stmt.span.start, stmt.span.end))
            return False
        store = isinstance(stmt, ir.Do) and id(stmt.expr) in self._stores
        if store:
            stays = storing
        else:
            jumps = isinstance(stmt, ir.Jump) and looped  # how often a loop that stays runs
            stays = jumps or bool(self._changed_by(stmt, (stmt,)) & needs)
        if stays:
            kept.add((stmt.span.start, stmt.span.end))
            needs |= mentioned([stmt.expr.left]) if store and isinstance(stmt, ir.Do) else mentioned([stmt])  # type: ignore[attr-defined]
        return stays

    def _changed_by(self, stmt: ir.Stmt, parts: tuple[ir.Stmt | ir.Expr | None, ...]) -> frozenset[int]:
        """Names that the parts of a statement declare or may change."""
        key = id(stmt)
        if key not in self._changes:
            effects = self._collector.collect([p for p in parts if p is not None])
            self._changes[key] = frozenset(effects.writes | effects.declared)
        return self._changes[key]
