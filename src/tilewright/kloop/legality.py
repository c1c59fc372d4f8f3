"""What the phases of a K-loop may do, so that the next tile's loads can be moved in front of this tile's compute."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.aliases import Aliases
from tilewright.kloop.kernel import Bump, Copy, CopyLoop, Fetch, KLoop, LaneStore, LoadItem, Pure, Refusal
from tilewright.kloop.kloop import KLoopFinder, Phases, statements
from tilewright.kloop.placement import enclosing
from tilewright.source import ir
from tilewright.source.effects import Effects
from tilewright.source.expr_types import Types, loads_from
from tilewright.source.leaks import Leaks
from tilewright.source.places import root

_TOGGLES = frozenset({"%", "&", "^"})


def declared(stmts: Iterable[ir.Stmt]) -> set[int]:
    """Symbols that the statements declare."""
    return {s.id for st in stmts for n in ir.walk(st) if isinstance(n, ir.Declare) for s in n.symbols}


class Legality:
    """Judges the phases of one K-loop."""

    def __init__(self, finder: KLoopFinder, types: Types, no_alias: bool = False) -> None:
        self._finder = finder
        self._kernel = finder.kernel
        self._symbols = finder.kernel.symbols
        self._types = types
        self._shared = {s.id for s in self._symbols.values() if s.kind == "shared"}
        self.aliases = Aliases(finder.kernel, finder.collector.places, no_alias)

    def _line(self, span: ir.Span) -> int:
        return self._kernel.source.line(span.start)

    def _no(self, what: str, span: ir.Span, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._line(span), hint)

    def _name(self, symbol: int) -> str:
        return self._symbols[symbol].name

    # -- before the load phase is read ----------------------------------------------------------------
    def phases(self, phases: Phases, loop: KLoop) -> Refusal | None:
        """Whether both phases are harmless, and touch nothing of each other but the tiles."""
        load, compute = self._finder.effects(phases.load), self._finder.effects(phases.compute)
        return (
            self._harmless(load, "load", phases)
            or self._harmless(compute, "compute", phases)
            or self._rewritten_table(load, compute, phases)
            or self._carried(load, compute, phases, loop)
            or self._escapes(phases)
        )

    def harmless(self, phases: Phases) -> Refusal | None:
        """The same, what the phases carry from one iteration to the next left aside."""
        load, compute = self._finder.effects(phases.load), self._finder.effects(phases.compute)
        return (
            self._harmless(load, "load", phases)
            or self._harmless(compute, "compute", phases)
            or self._rewritten_table(load, compute, phases)
            or self._escapes(phases)
        )

    def _harmless(self, effects: Effects, what: str, phases: Phases) -> Refusal | None:
        if effects.unknown:
            text, span = effects.unknown[0]
            return self._no(f"the {what} phase holds {text}", span)
        for kind, span in effects.jumps:
            if not self._stays(kind, span, phases.stmt):
                return self._no(f"the {what} phase leaves the iteration by `{kind}`", span)
        for store in effects.stores:
            # What the compute phase keeps in shared memory of its own stays where it is: the finder has seen to that.
            if store.place.space == "shared" and (what == "load" or store.place.symbol is not None):
                continue
            if what == "load":
                symbol = store.place.symbol
                through = f"`{self._name(symbol)}`" if symbol is not None else "an unknown pointer"
                text = f"the load phase stores through {through}, which the next tile's loads may read"
                return Refusal("may_alias", text, self._line(store.span), "move the store behind the K-loop")
            refused = self.aliases.judge(store, phases.load)
            if refused is not None:
                return refused
        return None

    def _rewritten_table(self, load: Effects, compute: Effects, phases: Phases) -> Refusal | None:
        """What the loads look up in shared memory must not be written anew for every tile."""
        read = load.reads & compute.stores_to_shared() - load.stores_to_shared()
        if not read:
            return None
        what = f"the load phase reads `{self._name(min(read))}`, which the compute phase of every tile writes"
        return Refusal("loop_carried_shared", what, self._line(self._first_use(phases.load, min(read))))

    def _stays(self, kind: str, span: ir.Span, k_loop: ir.For) -> bool:
        """``break`` and ``continue`` of a loop inside the phase stay inside it."""
        if kind not in ("break", "continue"):
            return False
        loops = [
            n
            for n in ir.walk(self._kernel.body)
            if isinstance(n, ir.For | ir.While) and n.span.start <= span.start and span.end <= n.span.end
        ]
        inner = max(loops, key=lambda n: (n.span.start, -n.span.end), default=None)
        outside = {id(n) for n in enclosing(self._kernel.body, k_loop)} | {id(k_loop)}
        return inner is not None and id(inner) not in outside

    def _carried(self, load: Effects, compute: Effects, phases: Phases, loop: KLoop) -> Refusal | None:
        clash = sorted((load.reads - load.declared) & (compute.writes - compute.declared))
        ahead = next((s for s in clash if self._waits_in(s, phases)), None)
        if ahead is not None:
            what = f"the next tile already waits in `{self._name(ahead)}` while this one is computed"
            hint = "`tilewright prove` says whether its loads overlap"
            return Refusal("already_pipelined", what, self._line(self._first_use(phases.compute, ahead)), hint)
        if clash:
            what = f"the load phase reads `{self._name(clash[0])}`, which the compute phase changes"
            return self._no(what, phases.load[0].span)
        moved = {b.symbol for b in loop.bumps_after} | (load.writes - load.declared)
        used = sorted(moved & (compute.reads | compute.writes))
        if used:
            what = f"`{self._name(used[0])}` is advanced with the loads and used by the compute phase"
            return self._no(what, self._first_use(phases.compute, used[0]))
        inside = self._finder.effects(statements(loop.stmt.body)).writes
        for bump in loop.bumps_after:
            needed = ir.names([bump.stmt]) - {bump.symbol}
            outside = needed & (declared(phases.compute) | declared(phases.load) | inside)
            if outside:
                what = (
                    f"`{self._name(bump.symbol)}` is advanced by `{self._name(min(outside))}`, which the loop changes"
                )
                return self._no(what, bump.stmt.span)
        return None

    def _waits_in(self, symbol: int, phases: Phases) -> bool:
        """Whether the compute phase loads a variable from memory that the load phase stores to a tile."""
        loads = False
        for stmt in phases.compute:
            for node in ir.walk(stmt):
                if isinstance(node, ir.Assign) and (name := root(node.left)) is not None and name.symbol == symbol:
                    loads |= any(isinstance(n, ir.Expr) and self._is_global(n) for n in ir.walk(node.right))
        stores = (n for s in phases.load for n in ir.walk(s) if isinstance(n, ir.Assign))
        return loads and any(symbol in ir.names([n.right]) for n in stores)

    def _is_global(self, expr: ir.Expr) -> bool:
        lvalue = loads_from(expr)
        places = self._finder.collector.places
        if lvalue is not None:
            return places.at(lvalue).space == "global"
        return isinstance(expr, ir.Index | ir.Unary | ir.Member) and places.of(expr).space == "global"

    def _first_use(self, stmts: Iterable[ir.Stmt], symbol: int) -> ir.Span:
        uses = [n.span for s in stmts for n in ir.walk(s) if isinstance(n, ir.Name) and n.symbol == symbol]
        return min(uses, key=lambda s: s.start, default=next(iter(stmts)).span)

    def _escapes(self, phases: Phases) -> Refusal | None:
        """No address of a tile may outlive its iteration, or be taken apart."""
        functions, aliases = self._kernel.functions, self._kernel.source.aliases
        stmts = (*phases.load, *phases.compute)
        leaks = Leaks(self._symbols, functions, self._types, aliases, self._shared, declared(stmts))
        leak = leaks.find(stmts)
        if leak is not None:
            who = f"`{self._name(leak.symbol)}` keeps" if leak.symbol is not None else "something keeps"
            return self._no(f"{who} an address inside a tile beyond its iteration", leak.span)
        # Other stages are not aligned as the array was.
        xor = leaks.swizzle(stmts) or self._swizzled_before()
        if xor is not None:
            return self._no("a shared address is swizzled by XOR, which assumes how the array is aligned", xor)
        return None

    def _swizzled_before(self) -> ir.Span | None:
        """The same anywhere in the kernel: an address that is made in front of the loop is used inside it."""
        functions, aliases, body = self._kernel.functions, self._kernel.source.aliases, self._kernel.body.body
        return Leaks(self._symbols, functions, self._types, aliases, self._shared, declared(body)).swizzle(body)

    # -- after it -------------------------------------------------------------------------------------
    def loads(self, phases: Phases, loads: list[LoadItem]) -> Refusal | None:
        """What the load phase reads and where it writes must follow from the tile alone."""
        staged = {i.array for i in flat(loads) if isinstance(i, Copy | LaneStore)}
        return (
            self._shared_reads(phases, loads, staged)
            or self._on_registers(loads)
            or self._carried_places(phases, loads)
            or self._bumped_guards(loads)
            or self._rebuilt(phases, loads)
        )

    def _shared_reads(self, phases: Phases, loads: list[LoadItem], staged: set[int]) -> Refusal | None:
        """The load phase may read shared memory only where the loop never writes it."""
        roots = {_root_name(i.target) for i in flat(loads) if isinstance(i, Copy | LaneStore)}
        roots |= {_root_name(n.left) for s in phases.load for n in ir.walk(s) if isinstance(n, ir.Assign)}
        own = self._finder.effects(phases.load).stores_to_shared() | staged
        for stmt in phases.load:
            for node in ir.walk(stmt):
                if isinstance(node, ir.Name) and node.symbol in own and id(node) not in roots:
                    return Refusal(
                        "loop_carried_shared",
                        f"the load phase reads or passes on `{node.id}`, which it fills itself",
                        self._line(node.span),
                    )
        return None

    def _on_registers(self, loads: list[LoadItem]) -> Refusal | None:
        """A fetched register is stored and nothing else: where the rest of the load phase runs it is not there yet."""
        fetched = {i.symbol.id for i in flat(loads) if isinstance(i, Fetch)}
        parts: list[tuple[ir.Stmt, ir.Stmt | ir.Expr]] = [
            (i.stmt, i.source if isinstance(i, Fetch) else i.stmt) for i in flat(loads) if not isinstance(i, LaneStore)
        ]
        parts += [(i.stmt, i.guard) for i in flat(loads) if isinstance(i, Fetch) and i.guard is not None]
        for loop in (i for i in loads if isinstance(i, CopyLoop)):
            parts += [(loop.stmt, e) for e in (loop.first, loop.bound, loop.stride)]
            parts += [(s.stmt, s.stmt) for s in loop.setup]
        for stmt, part in parts:
            if used := sorted(ir.names([part]) & fetched):
                what = f"`{self._name(used[0])}` is loaded, and used for more than a plain store of it"
                return self._no(what, stmt.span)
        return None

    def _carried_places(self, phases: Phases, loads: list[LoadItem]) -> Refusal | None:
        """Every tile must fill the same places: what an earlier tile left behind would be in another stage."""
        progress = self._finder.progress((*phases.load, *phases.compute), phases.header)
        progress -= {i.var.id for i in loads if isinstance(i, CopyLoop)}
        moving = self._moving(progress, loads)
        for item in flat(loads):
            if isinstance(item, Copy | LaneStore) and (found := sorted(ir.names([item.target]) & moving)):
                ring = any(isinstance(n, ir.Binary) and n.op in _TOGGLES for n in ir.walk(item.target))
                what = f"where a tile is stored depends on `{self._name(found[0])}`, which changes from tile to tile"
                if ring or self._toggles(found, phases):
                    hint = "`tilewright prove` says whether its copies overlap"
                    return Refusal("already_pipelined", f"{what}: a ring by hand", self._line(item.stmt.span), hint)
                return Refusal("loop_carried_shared", f"{what}: earlier tiles stay in use", self._line(item.stmt.span))
        for loop in (i for i in loads if isinstance(i, CopyLoop)):
            if found := sorted(ir.names([loop.first, loop.bound, loop.stride]) & moving):
                what = f"how much of a tile is filled depends on `{self._name(found[0])}`: the rest is of earlier tiles"
                return Refusal("loop_carried_shared", what, self._line(loop.stmt.span), "fill the rest with zeros")
        return None

    def _moving(self, progress: set[int], loads: list[LoadItem]) -> set[int]:
        """Names that differ between iterations for another reason than a copy loop's own counting."""
        counters = {i.var.id for i in loads if isinstance(i, CopyLoop)}
        return {s for s in progress if s not in counters and not self._only_counts(s, counters, progress, 0)}

    def _only_counts(self, symbol: int, counters: set[int], progress: set[int], depth: int) -> bool:
        """Whether a local changes with copy loops' counters only."""
        init = self._symbols[symbol].init
        if init is None or depth > 16 or symbol in self._finder.uniformity.changed:
            return False
        inner = ir.names([init]) & progress
        return all(s in counters or self._only_counts(s, counters, progress, depth + 1) for s in inner)

    def _toggles(self, found: list[int], phases: Phases) -> bool:
        """Whether one of the names is flipped or wrapped around by the loop."""
        for stmt in (*phases.load, *phases.compute):
            for node in ir.walk(stmt):
                if isinstance(node, ir.Assign) and node.op == "^=" and ir.names([node.left]) & set(found):
                    return True
        inits = [self._symbols[s].init for s in found]
        return any(isinstance(n, ir.Binary) and n.op in _TOGGLES for i in inits if i is not None for n in ir.walk(i))

    def _bumped_guards(self, loads: list[LoadItem]) -> Refusal | None:
        """The guard of a fetched register is asked again where its lanes are stored: nothing of it may have moved."""
        guards: dict[int, set[int]] = {}
        bumped: dict[int, set[int]] = {}  # since each fetch
        for item in flat(loads):
            if isinstance(item, Fetch) and item.guard is not None:
                guards[item.symbol.id], bumped[item.symbol.id] = ir.names([item.guard]), set()
            elif isinstance(item, Bump):
                for since in bumped.values():
                    since.add(item.symbol)
            elif isinstance(item, LaneStore) and (
                moved := guards.get(item.fetched, set()) & bumped.get(item.fetched, set())
            ):
                name = self._name(min(moved))
                return self._no(f"`{name}` is advanced between a guarded load and the store of it", item.stmt.span)
        return None

    def _rebuilt(self, phases: Phases, loads: list[LoadItem]) -> Refusal | None:
        """What the compute phase takes from the load phase is computed again: it must come out the same."""
        of_load = declared(phases.load)
        wanted = ir.names(phases.compute) & of_load
        if not wanted:
            return None
        pures = {s.id: s for i in loads if isinstance(i, Pure) for s in i.stmt.symbols}
        moved = {i.symbol for i in flat(loads) if isinstance(i, Bump)}
        changed = self._finder.effects((*phases.load, *phases.compute)).writes
        queue, seen = sorted(wanted), set(wanted)
        while queue:
            symbol = queue.pop()
            span = self._first_use(phases.compute, min(wanted))
            if symbol in of_load and symbol not in pures:
                return self._no(f"`{self._name(symbol)}` of the load phase is used by the compute phase", span)
            if symbol in moved or (symbol not in of_load and symbol in changed):
                what = f"the compute phase needs `{self._name(symbol)}` as it was when the tile was loaded"
                return self._no(what, span)
            init = pures[symbol].init if symbol in pures else None
            for s in ir.names([init]) - seen if init is not None else ():
                seen.add(s)
                queue.append(s)
        return None


def flat(items: Iterable[LoadItem]) -> Iterable[Pure | Bump | Fetch | Copy | LaneStore]:
    """Every item, those of copy loops instead of the loops."""
    for item in items:
        if isinstance(item, CopyLoop):
            yield from flat(item.body)
        else:
            yield item


def _root_name(expr: ir.Expr) -> int:
    """Identity of the node that an lvalue hangs on."""
    return id(root(expr))
