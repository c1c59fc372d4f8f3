"""What a load phase may do with shared memory: store to its tiles, and read what the loop never writes."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.source import ir
from tilewright.source.expr_types import Types
from tilewright.source.places import root

STEPS = ("++", "--", "p++", "p--")


class TileUses:
    """Judges how one load phase uses shared memory.

    Args:
        stores: (assignment, array) of every store into a tile.
    """

    def __init__(
        self, finder: KLoopFinder, types: Types, phases: Phases, stores: Iterable[tuple[ir.Assign, int]]
    ) -> None:
        self._kernel = finder.kernel
        self._symbols = finder.kernel.symbols
        self._collector = finder.collector
        self._places = finder.collector.places
        self._types = types
        self._phases = phases
        self._load = phases.load
        pairs = list(stores)
        self._assigns = [a for a, _ in pairs]
        self._stores = {id(a): array for a, array in pairs}

    def _line(self, node: ir.Stmt | ir.Expr) -> int:
        return self._kernel.source.line(node.span.start)

    def _no(self, what: str, node: ir.Stmt | ir.Expr, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._line(node), hint)

    def _name(self, symbol: int) -> str:
        return self._symbols[symbol].name

    def reads(self) -> Refusal | None:
        """Shared memory may be read only where the loop never writes it."""
        load, compute = self._collector.collect(self._load), self._collector.collect(self._phases.compute)
        filled = set(self._stores.values())
        late = {s.place.symbol for s in compute.stores if s.place.space in ("shared", "unknown")}
        written = filled | load.stores_to_shared() | {s for s in late if s is not None}
        holders, setting = self._pointers_into(self._load)
        allowed = {id(root(a.left)) for a in self._assigns} | setting
        for stmt in self._load:
            for node in ir.walk(stmt):
                if not isinstance(node, ir.Name) or node.symbol is None or id(node) in allowed:
                    continue
                array = self._symbols[node.symbol].kind == "shared"
                at = self._behind(node)
                if at is not None and at in written and not array:
                    what = f"the load phase reads `{self._name(at)}` through `{node.id}`, which the loop writes"
                    return Refusal("loop_carried_shared", what, self._line(node))
                if node.symbol in written or node.symbol in holders or (array and None in late):
                    who = "which it fills itself" if node.symbol in filled else "which the loop writes"
                    what = f"the load phase reads or passes on `{node.id}`, {who}"
                    return Refusal("loop_carried_shared", what, self._line(node))
        return self._unknown_reads(written)

    def _behind(self, name: ir.Name) -> int | None:
        """The shared array that a pointer or reference leads to."""
        symbol = self._symbols[name.symbol] if name.symbol is not None else None
        if symbol is None or not (symbol.pointers or symbol.reference):
            return None
        place = self._places.of(name) if symbol.reference else self._places.pointee(symbol)
        return place.symbol if place.space == "shared" else None

    def _unknown_reads(self, written: set[int]) -> Refusal | None:
        """A pointer whose target is not known may point into a tile, if the tile's address has been taken."""
        inside = self._phases.stmt.body.span
        taken = any(
            isinstance(n, ir.Name) and n.symbol in written and not inside.start <= n.span.start < inside.end
            for n in ir.walk(self._kernel.body)
        )
        targets = {id(a.left) for a in self._assigns}
        for node in (n for s in self._load for n in ir.walk(s)):
            if taken and any(p.space == "unknown" for p in self._places.loaded(node)):
                return self._no("where a load reads from is not known: it may be a tile", node)
            reads = isinstance(node, ir.Index | ir.Member) or (isinstance(node, ir.Unary) and node.op == "*")
            if not reads or not isinstance(node, ir.Expr) or id(node) in targets:
                continue
            kind, place = self._types.of(node), self._places.of(node)
            row = kind is not None and bool(kind.rank)
            if not row and ((place.space == "unknown" and taken) or (place.space, place.symbol) == ("shared", None)):
                return self._no("where a load reads from is not known: it may be a tile", node)
        return None

    def aiming(self) -> tuple[ir.Stmt, ...] | Refusal:
        """The statements that aim pointers into the tiles, where they do nothing else."""
        pointers, _ = self._pointers_into(self._load)
        out: list[ir.Stmt] = []
        stack: list[ir.Stmt] = list(self._load) if pointers else []
        while stack:
            stmt = stack.pop()
            match stmt:
                case ir.Block(body=inner):
                    stack += inner
                    continue
                case ir.If(condition=c, then=a, otherwise=b):
                    stack += [a] if b is None else [a, b]
                    parts: tuple[ir.Stmt | ir.Expr | None, ...] = (c,)
                case ir.For(init=i, condition=c, update=u, body=b):
                    stack.append(b)
                    parts = (i, c, u)
                case ir.While(condition=c, body=b):
                    stack.append(b)
                    parts = (c,)
                case _:
                    parts = (stmt,)
            effects = self._collector.collect([x for x in parts if x is not None])
            changed = effects.writes | effects.declared
            if not changed & pointers:
                continue
            if parts != (stmt,) or changed - pointers or stmt.span.within:
                what = "a pointer into a tile is set together with something else"
                return self._no(what, stmt, "set it in a statement of its own")
            out.append(stmt)
        return tuple(out)

    def _pointers_into(self, body: tuple[ir.Stmt, ...]) -> tuple[set[int], set[int]]:
        """Local pointers and references into shared memory, and the names that stand where such a one is set."""
        pointers: set[int] = set()
        setting: set[int] = set()
        for node in (n for s in body for n in ir.walk(s)):
            pairs: list[tuple[ir.Symbol, ir.Expr | None, list[ir.Name]]] = []
            if isinstance(node, ir.Declare):
                pairs = [(s, s.init, []) for s in node.symbols]
            elif isinstance(node, ir.Assign) and isinstance(node.left, ir.Name) and node.left.symbol is not None:
                pairs = [(self._symbols[node.left.symbol], node.right, [node.left])]
            elif isinstance(node, ir.Unary) and node.op in STEPS and isinstance(name := node.operand, ir.Name):
                pairs = [(self._symbols[name.symbol], None, [name])] if name.symbol is not None else []
            for symbol, value, also in pairs:
                itself = ir.Name(symbol.span, symbol.name, symbol.id)
                place = self._places.of(itself) if symbol.reference else self._places.pointee(symbol)
                if not (symbol.reference or symbol.pointers) or place.space != "shared":
                    continue
                pointers.add(symbol.id)
                setting |= {id(n) for n in also}
                if value is not None and not self._reads_place(value):
                    setting |= {id(n) for n in ir.walk(value) if isinstance(n, ir.Name)}
        return pointers, setting

    def _reads_place(self, value: ir.Expr) -> bool:
        """Whether an address is computed from what lies in shared memory."""
        match value:
            case ir.Unary(op="&", operand=x):
                return any(self._reads_place(i) for i in _subscripts(x))
            case ir.Index() | ir.Unary(op="*") | ir.Member():
                kind = self._types.of(value)
                row = kind is not None and bool(kind.rank)
                if row:
                    return any(self._reads_place(i) for i in _subscripts(value))
                return self._places.of(value).space in ("shared", "unknown")
        return any(self._reads_place(c) for c in ir.children(value) if isinstance(c, ir.Expr))


def _subscripts(expr: ir.Expr) -> list[ir.Expr]:
    """The index expressions on the way to the object that an address names."""
    match expr:
        case ir.Index(base=b, index=i):
            return [i, *_subscripts(b)]
        case ir.Member(base=b) | ir.Cast(operand=b):
            return _subscripts(b)
        case ir.Unary(op="*", operand=x):
            return [x]
    return []
