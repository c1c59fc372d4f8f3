"""The load phase as a stream: any text, as long as it is closed, and its stores can be told apart from the rest.

``copies`` reads the load phases that are worth knowing statement by statement. This takes practically all others: the
whole text is run once more to load a tile (what it would store goes to registers) and once to store it (what it would
load comes from them). For that it may depend only on parameters, the K-loop's variable, memory that the loop does not
write, its own locals, and locals from outside that only it advances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tilewright.kloop.closed import Closed
from tilewright.kloop.kernel import Bump, KLoop, Refusal, SharedArray
from tilewright.kloop.kloop import KLoopFinder, Phases, statements
from tilewright.kloop.landings import complete, overlap
from tilewright.kloop.load_split import LoadSplitter
from tilewright.kloop.load_stream import LoadStream, PassLoop, Slice, StreamStore
from tilewright.kloop.loaded import LoadedValues
from tilewright.kloop.loops import counter
from tilewright.kloop.moving import Moving
from tilewright.kloop.rehearsal import Rehearsal, Rehearsed
from tilewright.kloop.slices import Slicer, mentioned
from tilewright.kloop.stream_fill import Fill, Target, target_of
from tilewright.kloop.tile_uses import STEPS, TileUses
from tilewright.kloop.values import Values
from tilewright.source import ir
from tilewright.source.constants import Constants
from tilewright.source.expr_types import Types

_BUILT_IN = "use a built-in scalar or vector type"


class StreamReader:
    """Reads one load phase as a stream."""

    def __init__(
        self,
        finder: KLoopFinder,
        types: Types,
        shared: Mapping[int, SharedArray],
        block: tuple[int, int, int] | None,
        passes: Callable[[ir.For], int | None],
    ) -> None:
        """``passes``: the most passes of a loop, where they follow without the size of the block."""
        self._passes = passes
        self._finder = finder
        self._kernel = finder.kernel
        self._symbols = finder.kernel.symbols
        self._collector = finder.collector
        self._places = finder.collector.places
        self._constants: Constants = finder.kernel.constants
        self._types = types
        self._shared = shared
        self._block = block
        self._values = Values(self._places, types, self._constants)
        self._stores: list[tuple[ir.Do, ir.Assign, int, tuple[ir.For, ...]]] = []
        self._steady = -1  # the K-loop's variable, once it is known

    def _line(self, node: ir.Stmt | ir.Expr) -> int:
        return self._kernel.source.line(node.span.start)

    def _no(self, what: str, node: ir.Stmt | ir.Expr, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._line(node), hint)

    def _name(self, symbol: int) -> str:
        return self._symbols[symbol].name

    # -- reading --------------------------------------------------------------------------------------
    def read(
        self, phases: Phases, loop: KLoop, bumps: tuple[Bump, ...]
    ) -> tuple[LoadStream, tuple[Bump, ...], Refusal | None] | Refusal:
        """The stream, the bumps of the compute phase that move with it, and why its copies must keep their order.

        Args:
            bumps: every statement of the compute phase that advances a name from outside the K-loop.
        """
        self._steady = loop.var.id
        refused = Closed(self._finder, phases).refusal() or self._gather(phases.load, ())
        if refused is not None:
            return refused
        if not self._stores:
            what = "the load phase copies nothing into shared memory"
            return Refusal("no_k_loop", what, self._line(loop.stmt))
        uses = TileUses(self._finder, self._types, phases, [(a, array) for _, a, array, _ in self._stores])
        aiming = uses.aiming()
        if isinstance(aiming, Refusal):
            return aiming
        moved, both, refused = self._split(phases, bumps)
        refused = refused or self._all_found(phases) or uses.reads() or self._by_other_names(phases, bumps)
        if refused is not None:
            return refused
        load = self._finder.effects(phases.load)
        carried = frozenset(load.writes - load.declared)
        ids = frozenset(id(a) for _, a, _, _ in self._stores)
        slicer = Slicer(phases.load, self._collector, ids)
        compute = tuple(s for s in phases.compute if s not in {b.stmt for b in moved})
        used = mentioned(compute) & (load.declared | carried)
        for_compute = slicer.of(used, storing=False) if used else Slice(frozenset(), frozenset())
        refused = self._rebuilt(compute, used, for_compute.needs, carried, moved) if used else None
        follow = Moving(self._finder, phases)
        moving = follow.names(loop, carried | {b.symbol for b in bumps})
        refused = refused or follow.places([(stmt, a) for stmt, a, _, _ in self._stores], moving)
        if refused is not None:
            return refused
        rehearsed = self._rehearse(phases.load)
        loops = self._loops(rehearsed)
        stores, values = self._judged(phases)
        if isinstance(stores, Refusal):
            return stores
        fill = Fill(moving, ids, self._symbols, self._collector, self._target, self._kernel.source.line)
        stream = LoadStream(
            phases.load,
            stores,
            loops,
            carried,
            both,
            slicer.of(set(), storing=True),
            for_compute,
            aiming,
            None if complete(rehearsed.landings, self._widths()) else fill.judge(phases.load),
            values.registers,
        )
        return self._cut_at_loads(stream, moved, rehearsed), moved, self._unordered(rehearsed)

    def _cut_at_loads(self, stream: LoadStream, moved: tuple[Bump, ...], rehearsed: Rehearsed) -> LoadStream:
        """The stream with its other cut, where something is computed between a load and its store."""
        if not any(isinstance(s.source, Refusal) for s in stream.stores):
            return stream
        splitter = LoadSplitter(
            self._symbols,
            self._types,
            self._collector,
            lambda loop: self._pass_loop(loop, rehearsed),
            self._kernel.source.text,
        )
        return replace(stream, split=splitter.split(stream, moved))

    # -- where it stores ----------------------------------------------------------------------------------
    def _gather(self, stmts: Iterable[ir.Stmt], loops: tuple[ir.For, ...]) -> Refusal | None:
        """Find the stores, with the loops around them."""
        for stmt in stmts:
            refused: Refusal | None = None
            match stmt:
                case ir.Do(expr=ir.Assign() as e):
                    refused = self._store(stmt, e, loops)
                case ir.Block(body=body):
                    refused = self._gather(body, loops)
                case ir.If(then=a, otherwise=b):
                    refused = self._gather((a,) if b is None else (a, b), loops)
                case ir.For(body=b):
                    refused = self._gather((b,), (*loops, stmt))
                case ir.While(body=b) if self._collector.collect([b]).stores_to_shared():
                    refused = self._no("a `while` loop stores into a tile", stmt, "make it a `for` loop that counts")
            if refused is not None:
                return refused
        return None

    def _store(self, stmt: ir.Do, assign: ir.Assign, loops: tuple[ir.For, ...]) -> Refusal | None:
        place = self._places.of(assign.left)
        if place.space != "shared":
            return None
        if place.symbol is None or place.symbol not in self._shared:
            return self._no("which shared array is stored to cannot be told", stmt, "write through the array itself")
        name = self._name(place.symbol)
        if assign.op != "=":
            what = f"the load phase reads `{name}`, which it fills itself"
            return Refusal("loop_carried_shared", what, self._line(stmt))
        if stmt.span.within or assign.left.span.within or assign.right.span.within:
            what = "a macro stands for whole statements of the load phase that store into a tile"
            return self._no(what, stmt, "write them out")
        for side in (assign.left, assign.right):
            for n in ir.walk(side):
                changes = isinstance(n, ir.Assign) or (isinstance(n, ir.Unary) and n.op in STEPS)
                if changes or self._collector.collect([n] if isinstance(n, ir.Call) else []).writes:
                    return self._no("an expression that is stored, or where to, changes a variable on the way", n)
        if any(f.span.within for f in loops):
            return self._no("a macro hides a loop that stores into a tile", loops[-1], "write it out")
        self._stores.append((stmt, assign, place.symbol, loops))
        return None

    def _all_found(self, phases: Phases) -> Refusal | None:
        """Every store of the load phase is one of the assignments that were found."""
        found = {(a.span.start, a.span.end) for _, a, _, _ in self._stores}
        for store in self._finder.effects(phases.load).stores:
            if (store.span.start, store.span.end) not in found:
                what = "the load phase stores by a call, or inside an expression"
                return self._no(what, ir.Stmt(store.span), "assign to the tile in a statement of its own")
        return None

    # -- what it may depend on --------------------------------------------------------------------------
    def _split(
        self, phases: Phases, bumps: tuple[Bump, ...]
    ) -> tuple[tuple[Bump, ...], tuple[Bump, ...], Refusal | None]:
        """Bumps of the compute phase that the loads need: those that move, those that both do."""
        load, compute = self._finder.effects(phases.load), self._finder.effects(phases.compute)
        clash = (load.reads - load.declared) & (compute.writes - compute.declared)
        inside = self._finder.effects(statements(phases.stmt.body)).writes
        own = load.declared | compute.declared
        rest = self._finder.effects(tuple(s for s in phases.compute if s not in {b.stmt for b in bumps}))
        moved: list[Bump] = []
        both: list[Bump] = []
        for symbol in sorted(clash):
            mine = [b for b in bumps if b.symbol == symbol]
            if not mine or symbol in rest.writes | load.writes or self._symbols[symbol].dims:
                what = f"the load phase reads `{self._name(symbol)}`, which the compute phase changes"
                return (), (), self._no(what, phases.load[0])
            for bump in mine:
                others = mentioned([bump.stmt]) - {symbol}
                if others & (inside | own) or bump.stmt.span.within or phases.compute.count(bump.stmt) != 1:
                    what = f"`{self._name(symbol)}` is advanced by what the loop changes"
                    return (), (), self._no(what, bump.stmt)
            read = symbol in rest.reads or any(symbol in mentioned([b.stmt]) for b in bumps if b.symbol != symbol)
            (both if read else moved).extend(mine)
        return tuple(moved), tuple(both), None

    def _by_other_names(self, phases: Phases, bumps: tuple[Bump, ...]) -> Refusal | None:
        """What a stream advances as a copy must be named by its own name: another one still means the original."""
        load = self._finder.effects(phases.load)
        advanced = (load.writes - load.declared) | {b.symbol for b in bumps}
        inside = {s.id for n in ir.walk(phases.stmt.body) if isinstance(n, ir.Declare) for s in n.symbols}
        for node in (n for s in (*phases.load, *phases.compute) for n in ir.walk(s)):
            symbol = self._symbols[node.symbol] if isinstance(node, ir.Name) and node.symbol is not None else None
            if not isinstance(node, ir.Name) or symbol is None or symbol.id in inside:
                continue
            if not (symbol.reference or symbol.pointers):
                continue
            place = self._places.of(node) if symbol.reference else self._places.pointee(symbol)
            if place.space == "local" and place.symbol in advanced and place.symbol != symbol.id:
                what = f"`{symbol.name}` is another name of `{self._name(place.symbol)}`, which the loads change"
                return self._no(what, node, "use one name")
        return None

    def _rebuilt(
        self,
        compute: tuple[ir.Stmt, ...],
        used: set[int],
        needs: frozenset[int],
        carried: frozenset[int],
        moved: tuple[Bump, ...],
    ) -> Refusal | None:
        """What the compute phase takes from the load phase is computed again: it must come out the same."""
        changes = self._finder.effects(compute)
        clash = sorted(carried & changes.writes)
        if clash:
            what = f"`{self._name(clash[0])}` is advanced with the loads and changed by the compute phase"
            return self._no(what, self._first_use(compute, {clash[0]}))
        for symbol in sorted(needs):
            ahead = any(b.symbol == symbol for b in moved)
            array = symbol in carried and bool(self._symbols[symbol].dims)
            if ahead or array:
                what = f"the compute phase needs `{self._name(symbol)}` as it was when the tile was loaded"
                return self._no(what, self._first_use(compute, used))
        return None

    def _first_use(self, stmts: tuple[ir.Stmt, ...], symbols: set[int]) -> ir.Expr | ir.Stmt:
        """Where the statements name one of the symbols first."""
        uses = (n for s in stmts for n in ir.walk(s) if isinstance(n, ir.Name) and n.symbol in symbols)
        return min(uses, key=lambda n: n.span.start, default=stmts[0])

    # -- stores and loops ---------------------------------------------------------------------------------
    def _target(self, lvalue: ir.Expr) -> Target:
        return target_of(lvalue, self._kernel.source.text, self._fixed)

    def _fixed(self, name: ir.Name) -> ir.Expr | None:
        return self._finder.uniformity.fixed(name, self._steady)

    def _judged(self, phases: Phases) -> tuple[tuple[StreamStore, ...] | Refusal, LoadedValues]:
        here = phases.load[0].span.start, phases.load[-1].span.end
        outside = {
            n.symbol
            for n in ir.walk(self._kernel.body)
            if isinstance(n, ir.Name) and n.symbol is not None and not here[0] <= n.span.start < here[1]
        }
        values = LoadedValues(
            phases.load,
            [(s, a) for s, a, _, _ in self._stores],
            self._symbols,
            self._types,
            self._values,
            self._constants.evaluate,
            outside,
            self._kernel.source.line,
            self._constants.aliases,
            lambda s: self._collector.collect([s]).writes,
        )
        out: list[StreamStore] = []
        for stmt, assign, array, loops in self._stores:
            kind, width = self._types.of(assign.left), self._types.bytes_of(assign.left)
            if kind is None or width is None or kind.pointers:
                return self._no(f"the type stored to `{self._name(array)}` is not known", stmt, _BUILT_IN), values
            source = values.source(assign)
            out.append(
                StreamStore(
                    stmt,
                    assign,
                    array,
                    tuple(f.span.start for f in loops),
                    width,
                    kind.base,
                    self._target(assign.left),
                    source,
                )
            )
        return tuple(out), values

    def _rehearse(self, body: tuple[ir.Stmt, ...]) -> Rehearsed:
        rehearsal = Rehearsal(
            self._constants,
            self._symbols,
            self._types,
            self._collector,
            self._shared,
            self._fixed,
            self._block,
            {id(a): n for n, (_, a, _, _) in enumerate(self._stores)},
        )
        return rehearsal.run(body)

    def _loops(self, rehearsed: Rehearsed) -> dict[int, PassLoop]:
        out: dict[int, PassLoop] = {}
        for _, _, _, loops in self._stores:
            for loop in loops:
                out[loop.span.start] = self._pass_loop(loop, rehearsed)
        return out

    def _pass_loop(self, loop: ir.For, rehearsed: Rehearsed) -> PassLoop:
        """How a loop counts its passes, and how many it makes at most."""
        counted, unknown = counter(loop), PassLoop(loop, None, None, None, None, True)
        if counted is None or loop.header.within:
            return unknown
        var, first, step = counted
        written = self._collector.collect([loop.body]).writes
        hidden = first.span.within or (step.span.within and not isinstance(step, ir.Number))
        by = self._constants.evaluate(step)
        # Where a pass is named, its counter must mean what it means in the header.
        meant = {var.name} | {self._name(n) for n in mentioned([first, step])}
        inner = {s.name for n in ir.walk(loop.body) if isinstance(n, ir.Declare) for s in n.symbols}
        if meant & inner:
            return unknown
        if hidden or written & ({var.id} | mentioned([first, step])) or (by is not None and by <= 0):
            return unknown
        trips = rehearsed.trips.get(loop.span.start)
        alike = trips is not None and trips.most is not None and not trips.differ
        if trips is not None and alike and self._constants.evaluate(first) is not None and by is not None:
            return PassLoop(loop, var, first, step, trips.most, False)
        # Every thread tests its own index in every pass, so a test that has failed must go on failing.
        match loop.condition:
            case ir.Binary(op="<" | "<=", left=ir.Name(symbol=s), right=bound) if s == var.id:
                steady = not mentioned([bound]) & (written | {var.id})
            case _:
                steady = False
        most = trips.most if trips is not None else None
        if most is None:
            most = self._passes(loop)
        return PassLoop(loop, var, first, step, most, True) if steady else unknown

    def _widths(self) -> dict[int, int]:
        return {n: self._types.bytes_of(a.left) or 1 << 30 for n, (_, a, _, _) in enumerate(self._stores)}

    def _unordered(self, rehearsed: Rehearsed) -> Refusal | None:
        """Two stores of one thread that may touch the same bytes must keep their order."""
        for array in {a for _, _, a, _ in self._stores}:
            own = [x for x in rehearsed.landings if self._stores[x.store][2] == array]
            bad = overlap(own, self._widths())
            if bad is not None:
                what = "two copies of a tile may touch the same bytes, and asynchronous copies land in any order"
                line = self._line(self._stores[bad][0])
                return Refusal("not_understood", what, line, "the ldg variants keep the order")
        return None
