"""Whether every tile fills the same places: what a ring of stages needs, and one buffer does not.

What a tile leaves out still holds an earlier one's data. One buffer keeps that as it was; in a ring the stage holds
another tile than the original array did.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.slices import mentioned
from tilewright.source import ir
from tilewright.source.effects import Collector

_MAX_DEPTH = 16
Target = tuple[bytes, tuple[Hashable, ...]]


def target_of(expr: ir.Expr, text: bytes, fixed: Callable[[ir.Name], ir.Expr | None]) -> Target:
    """What tells a place from another one: its text, and what each name in it stands for.

    Two branches may each declare an index of one name, so the text alone says too little.

    Args:
        fixed: the initialiser of a name that still holds where the name stands, else None.
    """

    def meant(name: ir.Name, depth: int) -> Hashable:
        init = fixed(name) if depth < _MAX_DEPTH else None
        if init is None:
            return name.symbol if name.symbol is not None else name.id
        return spelled(init), tuple(meant(n, depth + 1) for n in ir.walk(init) if isinstance(n, ir.Name))

    def spelled(part: ir.Expr) -> bytes:
        return b"".join(text[part.span.start : part.span.end].split())

    return spelled(expr), tuple(meant(n, 0) for n in ir.walk(expr) if isinstance(n, ir.Name))


class Fill:
    """Judges the stores of one load phase.

    Args:
        moving: names whose values may differ from tile to tile.
        stores: the assignments that store into tiles, by identity.
        target: what tells the place that an lvalue names from another one: :func:`target_of`.
    """

    def __init__(
        self,
        moving: Set[int],
        stores: Set[int],
        symbols: Mapping[int, ir.Symbol],
        collector: Collector,
        target: Callable[[ir.Expr], Target],
        line: Callable[[int], int],
    ) -> None:
        self._moving = moving
        self._stores = stores
        self._symbols = symbols
        self._collector = collector
        self._target = target
        self._line = line

    def judge(self, body: tuple[ir.Stmt, ...]) -> Refusal | None:
        """Why tiles may fill different places; None where they fill the same."""
        _, missed = self._list(body)
        return next(iter(missed.values()), None)

    def _list(self, stmts: Iterable[ir.Stmt]) -> tuple[dict[Target, ir.Expr], dict[Target, Refusal]]:
        """Targets that are stored in any case, and those that only some tiles store."""
        always: dict[Target, ir.Expr] = {}
        missed: dict[Target, Refusal] = {}
        for stmt in stmts:
            here, gaps = self._one(stmt)
            always |= here
            missed |= gaps
        changed = self._collector.collect(stmts).writes
        steady = {t for t, e in always.items() if not mentioned([e]) & changed}
        return always, {t: r for t, r in missed.items() if t not in steady}

    def _one(self, stmt: ir.Stmt) -> tuple[dict[Target, ir.Expr], dict[Target, Refusal]]:
        match stmt:
            case ir.Do(expr=ir.Assign(left=left) as e) if id(e) in self._stores:
                return {self._target(left): left}, {}
            case ir.Block(body=body):
                return self._list(body)
            case ir.If():
                return self._if(stmt)
            case ir.For(init=i, condition=c, update=u, body=b):
                always, missed = self._list((b,))
                moved = mentioned(x for x in (i, c, u) if x is not None) & self._moving
                if moved and (always or missed):
                    return {}, missed | {t: self._varies(stmt, moved) for t in always}
                return always, missed
        return {}, {}

    def _if(self, stmt: ir.If) -> tuple[dict[Target, ir.Expr], dict[Target, Refusal]]:
        one, gaps = self._list((stmt.then,))
        two, more = self._list((stmt.otherwise,)) if stmt.otherwise is not None else ({}, {})
        both = {t: e for t, e in one.items() if t in two}
        missed = gaps | more
        moved = mentioned([stmt.condition]) & self._moving
        if moved:
            jumps = any(isinstance(n, ir.Jump) for n in ir.walk(stmt))
            missed |= {t: self._predicated(stmt, moved) for t in one.keys() ^ two.keys()}
            if jumps:
                missed[(b"jump", ())] = self._predicated(stmt, moved)
        return both, missed

    def _predicated(self, stmt: ir.If, moved: set[int]) -> Refusal:
        name = self._symbols[min(moved)].name
        what = f"an `if` without `else` depends on `{name}`: earlier tiles' data stays, which a ring keeps elsewhere"
        hint = "fill the rest with zeros; the ldg_single variant keeps the one buffer"
        return Refusal("loop_carried_shared", what, self._line(stmt.span.start), hint)

    def _varies(self, stmt: ir.For, moved: set[int]) -> Refusal:
        name = self._symbols[min(moved)].name
        what = f"how much of a tile is filled depends on `{name}`: the rest is of earlier tiles"
        return Refusal("loop_carried_shared", what, self._line(stmt.span.start), "fill the rest with zeros")
