"""Where a load phase that is taken as a whole may be cut at its loads, instead of at its stores.

Cut at the stores, the half that runs ahead computes everything that is stored: what masks, converts or transposes a
loaded value waits for it there. Cut at the loads, the half that runs ahead is what the addresses and guards of the
loads rest on, and the other half is the whole text, which finds in registers what it would load. That needs every load
in sight, each in one place, passed once at most in a pass of the loops around it, and none that rests on another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from tilewright.kloop.kernel import Bump
from tilewright.kloop.load_stream import GlobalLoad, LoadSplit, LoadStream, PassLoop, Slice
from tilewright.kloop.slices import Slicer, mentioned
from tilewright.kloop.tile_uses import STEPS
from tilewright.source import intrinsics, ir
from tilewright.source.effects import Collector
from tilewright.source.expr_types import Types, loads_from

_WIDTHS = (1, 2, 4, 8, 16)
_Guards = tuple[tuple[ir.Expr, bool], ...]


class _NoSplitError(Exception):
    """Something that a cut at the loads would not survive."""


class _LoadSlicer(Slicer):
    """Slices for loads: ``targets`` are the statements that load, with the names that this rests on."""

    def __init__(self, body: tuple[ir.Stmt, ...], collector: Collector, targets: Mapping[int, Set[int]]) -> None:
        super().__init__(body, collector, frozenset(targets))
        self._targets = targets

    def _leaf(self, stmt: ir.Stmt, needs: set[int], kept: set[tuple[int, int]], storing: bool, looped: bool) -> bool:
        if id(stmt) not in self._targets:
            return super()._leaf(stmt, needs, kept, storing, looped)
        kept.add((stmt.span.start, stmt.span.end))
        needs |= self._targets[id(stmt)]
        return True


class LoadSplitter:
    """Cuts one load phase at its loads.

    Args:
        pass_loop: how a loop around loads counts its passes.
    """

    def __init__(
        self,
        symbols: Mapping[int, ir.Symbol],
        types: Types,
        collector: Collector,
        pass_loop: Callable[[ir.For], PassLoop],
        text: bytes,
    ) -> None:
        self._symbols = symbols
        self._types = types
        self._collector = collector
        self._places = collector.places
        self._pass_loop = pass_loop
        self._text = text
        self._loads: list[GlobalLoad] = []
        self._stmt: ir.Stmt | None = None  # the statement that is looked at, where it may load
        self._around: tuple[ir.For, ...] = ()
        self._under = False  # a condition stands around it

    def split(self, stream: LoadStream, moved: tuple[Bump, ...]) -> LoadSplit | None:
        """The cut, or None where there is none to make. ``moved``: bumps that go with the loads."""
        try:
            for stmt in stream.body:
                self._visit(stmt, (), False)
        except _NoSplitError:
            return None
        if not self._loads:
            return None
        loops = {f.span.start: self._pass_loop(f) for x in self._loads for f in x.loops}
        if any(p.var is None or not p.trips for p in loops.values()):
            return None
        targets: dict[int, set[int]] = {}
        for load in self._loads:
            targets.setdefault(id(load.stmt), set()).update(mentioned([load.expr, *(g for g, _ in load.guards)]))
        fetching = _LoadSlicer(stream.body, self._collector, targets).of(set(), storing=False)
        whole = Slice(_spans(stream.body), frozenset(_named_outside(stream.body, {id(x.expr) for x in self._loads})))
        sound = self._sound(stream, fetching, moved) and not self._names_shared(fetching)
        return LoadSplit(tuple(self._loads), loops, fetching, whole) if sound else None

    def _sound(self, stream: LoadStream, fetching: Slice, moved: tuple[Bump, ...]) -> bool:
        """Whether the loads follow without what they load, and every stream can have what it advances to itself."""
        for load in self._loads:
            effects = self._collector.collect([load.stmt])
            if (effects.writes | effects.declared) & fetching.needs:
                return False  # a load that another one rests on
        apart = stream.carried - fetching.needs  # only the half that stores advances it: the original itself
        advanced = (stream.carried & fetching.needs) | {b.symbol for b in (*moved, *stream.bumped)}
        return not apart & stream.for_compute.needs and not any(self._symbols[s].dims for s in advanced)

    def _names_shared(self, fetching: Slice) -> bool:
        """Whether loads rest on shared memory, which is another buffer, or not yet filled, when they run ahead."""
        return any(self._symbols[s].kind == "shared" for s in fetching.needs)

    # -- statements ---------------------------------------------------------------------------------------
    def _visit(self, stmt: ir.Stmt, loops: tuple[ir.For, ...], under: bool) -> None:
        if stmt.span.within:
            raise _NoSplitError
        match stmt:
            case ir.Block(body=body):
                for s in body:
                    self._visit(s, loops, under)
            case ir.If(condition=c, then=a, otherwise=b):
                self._loadless([c])
                for branch in (a, b):
                    if branch is not None:
                        self._visit(branch, loops, True)
            case ir.For(init=i, condition=c, update=u, body=b):
                self._header(i, c, u)
                self._visit(b, (*loops, stmt), under)
            case ir.While(condition=c, body=b):
                before = len(self._loads)
                self._loadless([c])
                self._visit(b, loops, under)
                if len(self._loads) != before:
                    raise _NoSplitError
            case ir.Jump(kind="break" | "continue") if loops:
                pass
            case ir.Declare() | ir.Do():
                self._leaf(stmt, loops, under)
            case ir.Nothing() | ir.Alias():
                pass
            case _:
                raise _NoSplitError

    def _header(self, init: ir.Stmt | None, condition: ir.Expr | None, update: ir.Expr | None) -> None:
        before = len(self._loads)
        if init is not None:
            self._visit(init, (), False)
        if len(self._loads) != before:
            raise _NoSplitError
        self._loadless([e for e in (condition, update) if e is not None])

    def _leaf(self, stmt: ir.Declare | ir.Do, loops: tuple[ir.For, ...], under: bool) -> None:
        before = len(self._loads)
        self._stmt, self._around, self._under = stmt, loops, under
        if isinstance(stmt, ir.Declare):
            for symbol in stmt.symbols:
                if symbol.init is not None and symbol.reference:
                    if self._places.of(symbol.init).space not in ("local", "shared"):
                        raise _NoSplitError
                    self._address(symbol.init)
                elif symbol.init is not None:
                    self._value(symbol.init, ())
            changes = [n for s in stmt.symbols if s.init is not None for n in ir.walk(s.init) if _changes(n)]
        elif isinstance(stmt.expr, ir.Assign):
            self._assigned(stmt.expr, ())
            changes = [n for n in ir.walk(stmt.expr) if _changes(n) and n is not stmt.expr]
        else:
            self._value(stmt.expr, ())
            changes = [n for n in ir.walk(stmt.expr) if _changes(n)]
        if changes and len(self._loads) != before:
            raise _NoSplitError  # what is computed on the way would be computed ahead too, or not

    def _loadless(self, exprs: Iterable[ir.Expr]) -> None:
        before = len(self._loads)
        self._stmt = None
        for e in exprs:
            self._value(e, ())
        if len(self._loads) != before:
            raise _NoSplitError

    # -- expressions --------------------------------------------------------------------------------------
    def _assigned(self, expr: ir.Assign, guards: _Guards) -> None:
        if expr.op != "=" and self._places.of(expr.left).space != "local":
            raise _NoSplitError
        self._address(expr.left)
        self._value(expr.right, guards)

    def _value(self, expr: ir.Expr, guards: _Guards) -> None:
        """An expression whose value is used."""
        match expr:
            case ir.Number() | ir.SizeOf():
                return
            case ir.Name():
                self._named(expr)
            case ir.Call(callee=f, args=args):
                self._call(expr, f, args, guards)
            case ir.Unary(op="&", operand=x):
                self._address(x)
            case ir.Member(base=b, arrow=False) if not _is_lvalue(expr):
                self._value(b, guards)
            case ir.Index() | ir.Member() | ir.Unary(op="*"):
                self._memory(expr, expr, guards)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                self._memory(expr, x, guards)
            case ir.Assign():
                self._assigned(expr, guards)
            case ir.Ternary(condition=c, then=a, otherwise=b):
                self._value(c, guards)
                self._value(a, (*guards, (c, True)))
                self._value(b, (*guards, (c, False)))
            case ir.Binary(op="&&" | "||" as op, left=a, right=b):
                self._value(a, guards)
                self._value(b, (*guards, (a, op == "&&")))
            case ir.Unary() | ir.Binary() | ir.Cast() | ir.InitList():
                for child in ir.children(expr):
                    if isinstance(child, ir.Expr):
                        self._value(child, guards)
            case _:
                raise _NoSplitError

    def _named(self, expr: ir.Name) -> None:
        symbol = self._symbols[expr.symbol] if expr.symbol is not None else None
        place = self._places.of(expr).space
        # A name outside the kernel is a constant, or memory that the loop does not write; arrays only decay.
        if symbol is not None and place != "local" and not symbol.dims:
            raise _NoSplitError

    def _call(self, expr: ir.Call, callee: str, args: tuple[ir.Expr, ...], guards: _Guards) -> None:
        address = loads_from(expr)
        if address is not None:
            self._load(expr, self._places.at(address).space, [address], guards)
        elif intrinsics.VALUES.match(callee):
            for arg in args:
                self._value(arg, guards)
        else:
            raise _NoSplitError

    def _memory(self, expr: ir.Expr, lvalue: ir.Expr, guards: _Guards) -> None:
        """An lvalue that is read; an array only decays to its address."""
        kind, space = self._types.of(expr), self._places.of(lvalue).space
        if space == "local" or (kind is not None and kind.rank):
            self._address(lvalue)
        else:
            self._load(expr, space, [ir.Unary(lvalue.span, "&", lvalue)], guards)

    def _load(self, expr: ir.Expr, space: str, address: list[ir.Expr], guards: _Guards) -> None:
        stmt, kind = self._stmt, self._types.of(expr)
        plain = kind is not None and not kind.pointers and not kind.rank and kind.base != "auto"
        if space != "global" or stmt is None or kind is None or not plain:
            raise _NoSplitError
        if self._types.bytes_of(expr) not in _WIDTHS or b"volatile" in self._text[expr.span.start : expr.span.end]:
            raise _NoSplitError
        if expr.span.within or any(n.span.within for g, _ in guards for n in ir.walk(g)):
            raise _NoSplitError
        if any("volatile" in self._symbols[s].type_text for s in mentioned([expr])):
            raise _NoSplitError
        tests = [g.span for g, _ in guards]
        if any(t.start <= x.expr.span.start < t.end for t in tests for x in self._loads):
            raise _NoSplitError  # whether it is read rests on another load
        here, self._stmt = self._stmt, None  # a load inside its address is none that can be cut at
        for a in address:
            self._value(a, ())
        self._stmt = here
        self._loads.append(GlobalLoad(stmt, expr, self._around, kind.base, guards, self._under))

    def _address(self, expr: ir.Expr) -> None:
        """An lvalue that is not read: only what says where it is."""
        match expr:
            case ir.Name():
                return
            case ir.Index(base=b, index=i):
                kind = self._types.of(b)
                if kind is not None and kind.pointers and not kind.rank:
                    self._value(b, ())
                else:
                    self._address(b)
                self._value(i, ())
            case ir.Member(base=b, arrow=arrow):
                if arrow:
                    self._value(b, ())
                else:
                    self._address(b)
            case ir.Unary(op="*", operand=x):
                self._value(x, ())
            case ir.Cast(operand=x):
                self._address(x)
            case _:
                raise _NoSplitError


def _is_lvalue(expr: ir.Expr) -> bool:
    """Whether a member is one of something that has a place, and not of a value."""
    while isinstance(expr, ir.Member | ir.Index) and not (isinstance(expr, ir.Member) and expr.arrow):
        expr = expr.base
    return not isinstance(expr, ir.Call)


def _changes(node: ir.Stmt | ir.Expr) -> bool:
    return isinstance(node, ir.Assign) or (isinstance(node, ir.Unary) and node.op in STEPS)


def _named_outside(nodes: Iterable[ir.Stmt | ir.Expr], left_out: Set[int]) -> set[int]:
    """What is named, where some expressions are replaced."""
    out: set[int] = set()
    for node in nodes:
        if id(node) not in left_out:
            below = ir.children(node)
            out |= _named_outside(below, left_out) if below else mentioned([node])
            out |= {s.id for s in node.symbols} if isinstance(node, ir.Declare) else set()
    return out


def _spans(stmts: Iterable[ir.Stmt]) -> frozenset[tuple[int, int]]:
    found = (n for s in stmts for n in ir.walk(s) if isinstance(n, ir.Stmt))
    return frozenset((n.span.start, n.span.end) for n in found)
