"""Which names of a load phase differ from tile to tile, and whether a tile is stored by one of them."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.kernel import KLoop, Refusal
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.kloop.slices import mentioned
from tilewright.source import ir

_TOGGLES = frozenset({"%", "&", "^"})


class Moving:
    """Follows what changes through one load phase."""

    def __init__(self, finder: KLoopFinder, phases: Phases) -> None:
        self._kernel = finder.kernel
        self._symbols = finder.kernel.symbols
        self._collector = finder.collector
        self._phases = phases

    def names(self, loop: KLoop, changed: Iterable[int]) -> set[int]:
        """Names whose value may differ from one tile to the next."""
        found = ({loop.var.id} | set(changed)) - self._set_first(self._phases.load)
        size = -1
        while size != len(found):
            size = len(found)
            for stmt in self._phases.load:
                self._spread(stmt, found, None)
        return found

    def _spread(self, stmt: ir.Stmt, found: set[int], own: set[int] | None) -> None:
        """Add what a statement makes differ.

        Args:
            own: names declared under the innermost condition that may come out differently, which end with it; None
                where there is no such condition around the statement.
        """
        match stmt:
            case ir.Block(body=body):
                for s in body:
                    self._spread(s, found, own)
            case ir.If(condition=c, then=a, otherwise=b):
                self._spread(ir.Do(c.span, c), found, own)
                inner = set() if mentioned([c]) & found else own
                for branch in (a, b):
                    if branch is not None:
                        self._spread(branch, found, inner)
            case ir.For(init=i, condition=c, update=u, body=b):
                for part in (i, c, u):
                    if part is not None:
                        self._spread(part if isinstance(part, ir.Stmt) else ir.Do(part.span, part), found, own)
                differs = mentioned(x for x in (i, c, u) if x is not None) & found
                self._spread(b, found, set() if differs else own)
            case ir.While(condition=c, body=b):
                self._spread(ir.Do(c.span, c), found, own)
                self._spread(b, found, set() if mentioned([c]) & found else own)
            case ir.Declare(symbols=symbols):
                if own is not None:
                    own |= {s.id for s in symbols}
                found |= {s.id for s in symbols if s.init is not None and mentioned([s.init]) & found}
                self._written(stmt, found, own)
            case _:
                self._written(stmt, found, own)

    def _written(self, stmt: ir.Stmt, found: set[int], own: set[int] | None) -> None:
        writes = self._collector.collect([stmt]).writes
        if mentioned([stmt]) & found:
            found |= writes
        elif own is not None:
            found |= writes - own

    def _set_first(self, body: tuple[ir.Stmt, ...]) -> set[int]:
        """Names that the load phase sets anew in every iteration, before anything in it looks at them."""
        seen: set[int] = set()
        fresh: set[int] = set()
        for stmt in body:
            match stmt:
                case ir.Do(expr=ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=value)) if (
                    s not in seen and s not in mentioned([value]) and not self._symbols[s].dims
                ):
                    fresh.add(s)
            seen |= mentioned([stmt])
        return fresh

    def places(self, stores: Iterable[tuple[ir.Do, ir.Assign]], moving: set[int]) -> Refusal | None:
        """Every tile must fill the same places: what an earlier tile left behind would be in another stage."""
        for stmt, assign in stores:
            found = sorted(mentioned([assign.left]) & moving)
            if not found:
                continue
            name, line = self._symbols[found[0]].name, self._kernel.source.line(stmt.span.start)
            what = f"where a tile is stored depends on `{name}`, which changes from tile to tile"
            if self._toggles(assign.left, found):
                hint = "`tilewright prove` says whether its copies overlap"
                return Refusal("already_pipelined", f"{what}: a ring by hand", line, hint)
            return Refusal("loop_carried_shared", f"{what}: earlier tiles stay in use", line)
        return None

    def _toggles(self, target: ir.Expr, found: list[int]) -> bool:
        """Whether a place, or a name that it hangs on, wraps around or is flipped."""
        inits = [self._symbols[s].init for s in found]
        for expr in (target, *(i for i in inits if i is not None)):
            if any(isinstance(n, ir.Binary) and n.op in _TOGGLES for n in ir.walk(expr)):
                return True
        nodes = (n for s in (*self._phases.load, *self._phases.compute) for n in ir.walk(s))
        return any(isinstance(n, ir.Assign) and n.op == "^=" and mentioned([n.left]) & set(found) for n in nodes)
