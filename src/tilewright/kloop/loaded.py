"""What asynchronous copies need to know of a load phase: for every store, the place in global memory that it copies.

A value may come straight from there, or through a local that does nothing but carry it. Such a local can become a
pointer: what it would load is named where it would be loaded, and copied where it would be stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.load_stream import Register, Source
from tilewright.kloop.values import Values
from tilewright.source import ir
from tilewright.source.c_types import LANES, size_of, vector_lanes
from tilewright.source.expr_types import CType, Types

Key = tuple[int, int | None]
Path = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Use:
    """A part of a local, as an expression names it: the scalar (first None), one element or several of an array."""

    symbol: int
    first: int | None
    lanes: int
    kind: CType
    member: int | None = None


@dataclass
class _Notes:
    definitions: list[tuple[ir.Stmt, ir.Expr | None, ir.Expr | None, bool, Path]]
    uses: list[tuple[_Use, Path]]


class LoadedValues:
    """Judges the values stored by one load phase.

    Args:
        body: its statements.
        stores: (statement, assignment) of every store into a tile.
        outside: symbols named anywhere else in the kernel.
        line: line of a byte offset.
    """

    def __init__(
        self,
        body: tuple[ir.Stmt, ...],
        stores: Iterable[tuple[ir.Do, ir.Assign]],
        symbols: Mapping[int, ir.Symbol],
        types: Types,
        values: Values,
        constant: Callable[[ir.Expr], int | None],
        outside: Set[int],
        line: Callable[[int], int],
        aliases: dict[str, str],
        writes: Callable[[ir.Stmt], set[int]],
    ) -> None:
        """``writes``: names that a statement may change."""
        self._writes = writes
        self._aliases = aliases
        self._body = body
        self._symbols = symbols
        self._types = types
        self._values = values
        self._constant = constant
        self._outside = outside
        self._line = line
        self._stores = {id(s): a for s, a in stores}
        self._notes: dict[Key, _Notes] = {}
        self._counted: Counter[int] = Counter()
        self._bad: dict[int, str] = {}
        self._loaded = self._tainted()
        for path, stmt in self._leaves(body, ()):
            self._note(stmt, path)
        self._total = Counter(
            n.symbol for s in body for n in ir.walk(s) if isinstance(n, ir.Name) and n.symbol is not None
        )
        self.registers = self._registers()

    # -- asking -----------------------------------------------------------------------------------------
    def source(self, store: ir.Assign) -> Source | Literal["plain"] | Refusal:
        """Where a store's value comes from; "plain" where nothing is loaded for it."""
        value, here = store.right, self._line(store.span.start)
        loaded = self._values.read(value)
        if loaded is not None:
            if not self._types.same(self._types.of(store.left), self._types.of(loaded.source)):
                return self._converts(here)
            zero = loaded.fill is not None and self._values.is_zero(loaded.fill)
            return Source(loaded.source, loaded.guard, loaded.inverted, loaded.fill, zero)
        used = self._part(value)
        if used is not None and used.symbol in self._loaded:
            return self._through(store, used, here)
        named = {n.symbol for n in ir.walk(value) if isinstance(n, ir.Name)}
        if named & self._loaded or self._values.reads_memory(value):
            return self._converts(here)
        return "plain"

    def _converts(self, here: int, why: str = "") -> Refusal:
        what = why or "what is stored is converted or computed on the way"
        return Refusal(
            "converts_type", f"{what}; cp.async moves bytes as they are", here, "the ldg variant computes on the way"
        )

    def _through(self, store: ir.Assign, used: _Use, here: int) -> Source | Refusal:
        name = self._symbols[used.symbol].name
        if used.symbol in self._bad:
            return self._converts(here, f"`{name}` does more than carry a loaded value: {self._bad[used.symbol]}")
        found = self._register_of(used)
        if found is None:
            return self._converts(here, f"`{name}` is not loaded as it is stored")
        register, lane = found
        if not self._types.same(self._types.of(store.left), used.kind):
            return self._converts(here, f"`{name}` is converted when it is stored")
        return Source(register=(register.symbol.id, register.first), lane=lane, fills_zero=register.may_be_zero)

    def _register_of(self, used: _Use) -> tuple[Register, int | None] | None:
        if used.first is None:
            register = self.registers.get((used.symbol, None))
            return None if register is None else (register, used.member)
        for (symbol, first), register in self.registers.items():
            if symbol != used.symbol or first is None:
                continue
            count = register.lanes
            whole = used.first == first and used.lanes == count
            if whole and used.member is None:
                return (register, None) if self._types.same(CType(register.type_text), used.kind) else None
            if used.lanes == 1 and used.member is None and first <= used.first < first + count:
                return register, used.first - first
        return None

    # -- reading the load phase -----------------------------------------------------------------------------
    def _tainted(self) -> set[int]:
        """Locals that may hold something that was loaded."""
        found: set[int] = set()
        size = -1
        while size != len(found):
            size = len(found)
            for _, stmt in self._leaves(self._body, ()):
                if isinstance(stmt, ir.Declare):
                    found |= {s.id for s in stmt.symbols if s.init is not None and self._holds(s.init, found)}
                elif isinstance(stmt, ir.Asm) or any(self._holds(e, found) for e in _expressions(stmt)):
                    found |= self._writes(stmt)
        return found

    def _holds(self, value: ir.Expr, loaded: set[int]) -> bool:
        named = {n.symbol for n in ir.walk(value) if isinstance(n, ir.Name)}
        return bool(named & loaded) or self._values.reads_memory(value)

    def _leaves(self, stmts: tuple[ir.Stmt, ...], path: Path) -> Iterable[tuple[Path, ir.Stmt]]:
        """Every statement that is no compound one, with the lists that it stands in and its number in each."""
        for i, stmt in enumerate(stmts):
            here = (*path, (id(stmts), i))
            match stmt:
                case ir.Block(body=body):
                    yield from self._leaves(body, here)
                case ir.If(then=a, otherwise=b):
                    for branch in (a, b):
                        if branch is not None:
                            body = branch.body if isinstance(branch, ir.Block) else (branch,)
                            yield from self._leaves(body, (*here, (id(branch), 0)))
                case ir.For(body=b) | ir.While(body=b):
                    yield from self._leaves(b.body if isinstance(b, ir.Block) else (b,), (*here, (id(b), 0)))
                case _:
                    yield here, stmt

    def _note(self, stmt: ir.Stmt, path: Path) -> None:
        match stmt:
            case ir.Declare(symbols=(symbol,)) if not symbol.dims and not symbol.pointers and not symbol.reference:
                if symbol.init is not None:
                    self._define(
                        (symbol.id, None), ir.Name(symbol.span, symbol.name, symbol.id), symbol.init, stmt, path
                    )
            case ir.Do(expr=ir.Assign() as e) if id(stmt) in self._stores:
                used = self._part(e.right)
                if used is not None:
                    self._counted[used.symbol] += 1
                    self._entry((used.symbol, None)).uses.append((used, path))
            case ir.Do(expr=ir.Assign(op="=", left=left, right=right)):
                used = self._part(left)
                if used is not None and used.member is None:
                    self._counted[used.symbol] += 1
                    self._define((used.symbol, used.first), left, right, stmt, path)

    def _entry(self, key: Key) -> _Notes:
        return self._notes.setdefault(key, _Notes([], []))

    def _define(self, key: Key, target: ir.Expr, value: ir.Expr, stmt: ir.Stmt, path: Path) -> None:
        entry = self._entry(key)
        loaded = self._values.read(value)
        if loaded is not None and (loaded.fill is None or self._values.is_zero(loaded.fill)):
            if self._types.same(self._types.of(target), self._types.of(loaded.source)):
                entry.definitions.append((stmt, loaded.source, loaded.guard, loaded.inverted, path))
                return
            self._bad.setdefault(key[0], "it is converted while it is loaded")
        elif self._values.is_zero(value):
            entry.definitions.append((stmt, None, None, False, path))
        else:
            self._bad.setdefault(key[0], "it is given a value that is not loaded as it is")

    def _part(self, expr: ir.Expr) -> _Use | None:
        """The local, lane or element that an expression names."""
        kind = self._types.of(expr)
        if kind is None or kind.pointers or kind.rank:
            return None
        match expr:
            case ir.Name(symbol=int(s)) if self._local(s, 0):
                return _Use(s, None, 1, kind)
            case ir.Member(base=ir.Name(symbol=int(s)), field=f, arrow=False) if self._local(s, 0) and f in LANES:
                return _Use(s, None, 1, kind, LANES.index(f))
            case ir.Index(base=ir.Name(symbol=int(s)), index=i) if self._local(s, 1):
                first = self._constant(i)
                return None if first is None else _Use(s, first, 1, kind)
            case (
                ir.Unary(op="*", operand=ir.Cast(operand=x))
                | ir.Index(base=ir.Cast(operand=x), index=ir.Number(value=0))
            ):
                return self._vector(x, kind)
        return None

    def _vector(self, address: ir.Expr, kind: CType) -> _Use | None:
        """Several elements of a local array at once, by way of a cast of their address."""
        if isinstance(address, ir.Name):
            address = ir.Unary(address.span, "&", ir.Index(address.span, address, ir.Number(address.span, "0", 0)))
        match address:
            case ir.Unary(op="&", operand=ir.Index(base=ir.Name(symbol=int(s)), index=i) as element) if self._local(
                s, 1
            ):
                first, size = self._constant(i), size_of(kind.base)
                element_size = self._types.bytes_of(element)
                if first is None or size is None or element_size is None or size % element_size:
                    return None
                return _Use(s, first, size // element_size, kind)
        return None

    def _local(self, symbol: int, rank: int) -> bool:
        one = self._symbols[symbol]
        return one.kind == "local" and len(one.dims) == rank and not one.pointers and not one.reference

    # -- the registers ------------------------------------------------------------------------------------------
    def _registers(self) -> dict[Key, Register]:
        out: dict[Key, Register] = {}
        inner = {s.id for b in self._body for n in ir.walk(b) if isinstance(n, ir.Declare) for s in n.symbols}
        for key, entry in self._notes.items():
            symbol = self._symbols[key[0]]
            if symbol.id not in self._loaded or not entry.definitions:
                continue
            problem = self._problem(key, entry, inner)
            if problem:
                self._bad.setdefault(symbol.id, problem)
        for key, entry in self._notes.items():
            symbol = self._symbols[key[0]]
            if symbol.id in self._bad or symbol.id not in self._loaded or not entry.definitions:
                continue
            sources = [d for d in entry.definitions if d[1] is not None]
            if not sources or sources[0][1] is None:
                continue
            kind = self._types.of(sources[0][1])
            assert kind is not None
            zero = any(d[1] is None or d[2] is not None for d in entry.definitions)
            outer = symbol.id not in inner or symbol.init is None
            lanes = self._width(key) if key[1] is not None else vector_lanes(kind.base) or 1
            settings = tuple(d[:4] for d in entry.definitions)
            out[key] = Register(symbol, key[1], kind.base, lanes, settings, zero, outer)
        return out

    def _problem(self, key: Key, entry: _Notes, inner: set[int]) -> str:
        symbol = self._symbols[key[0]]
        if symbol.id in self._outside and symbol.id not in inner:
            return "it is used elsewhere too"
        if self._counted[symbol.id] != self._total[symbol.id]:
            return "it is used for more than that"
        uses = [u for other, e in self._notes.items() if other[0] == symbol.id for u in e.uses]
        if key[1] is not None:
            uses = [u for u in uses if u[0].first is not None and self._covers(key, u[0])]
        if any(self._meet(key, other) for other, e in self._notes.items() if e.definitions):
            return "a part of it is set by itself"
        paths = [d[4] for d in entry.definitions]
        paths += [p[:-2] for p in paths for q in paths if len(p) > 2 and p[:-2] == q[:-2] and p[-2][0] != q[-2][0]]
        for _, path in uses:
            # A value that it is declared with counts where the declaration has been read as a definition.
            if not any(_dominates(p, path) for p in paths):
                return "it may hold what an earlier tile left in it, or what it was declared with"
        return ""

    def _meet(self, key: Key, other: Key) -> bool:
        """Whether two parts of one array that are set by themselves share an element."""
        if key[0] != other[0] or key[1] is None or other[1] is None or key == other:
            return False
        first, second = sorted((key[1], other[1]))
        return second < first + self._width((key[0], first))

    def _width(self, key: Key) -> int:
        """Elements of the local array that a part of it holds."""
        element = size_of(self._types.base(self._symbols[key[0]].type_text), self._aliases)
        sizes = [self._types.bytes_of(d[1]) for d in self._notes[key].definitions if d[1] is not None]
        return max((n // element for n in sizes if n is not None and element), default=1)

    def _covers(self, key: Key, used: _Use) -> bool:
        if used.first is None or key[1] is None:
            return False
        return key[1] < used.first + used.lanes and used.first < key[1] + self._width(key)


def _expressions(stmt: ir.Stmt) -> list[ir.Expr]:
    """What a statement computes; of an assignment what is assigned, and where."""
    match stmt:
        case ir.Do(expr=ir.Assign(op="=", left=left, right=right)):
            return [right, *(c for c in ir.children(left) if isinstance(c, ir.Expr))]
        case ir.Do(expr=e):
            return [e]
    return []


def _dominates(definition: Path, use: Path) -> bool:
    """Whether a statement has run whenever another one does: it stands in front of it, in a list around it."""
    *around, (owner, number) = definition
    at = len(around)
    if len(use) <= at or list(use[:at]) != around:
        return False
    return use[at][0] == owner and number < use[at][1]
