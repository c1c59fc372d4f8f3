"""An opened kernel → :class:`TiledKernel` or :class:`Refusal`: everything a rewrite relies on, checked here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.source import ir
from tilewright.source.c_types import is_integer, size_of
from tilewright.source.copies import LoadReader
from tilewright.source.effects import Effects, is_pointer, root
from tilewright.source.expr_types import Types
from tilewright.source.kernel import (
    Bump,
    Copy,
    CopyLoop,
    Fetch,
    KLoop,
    LaneStore,
    LoadItem,
    Pure,
    Refusal,
    SharedArray,
    TiledKernel,
)
from tilewright.source.kloop import KLoopFinder, Phases
from tilewright.source.reader import OpenKernel
from tilewright.source.tiles import probes_of, tile_of
from tilewright.source.widen import Widener


def analyse(kernel: OpenKernel, block: tuple[int, int, int] | None = None) -> TiledKernel | Refusal:
    """Understand a kernel's K-loop, or say why not.

    Args:
        kernel: from :func:`tilewright.source.reader.open_kernel`.
        block: threads of a block per dimension, where a sidecar says so.
    """
    return _Analysis(kernel, block).run()


class _Analysis:
    def __init__(self, kernel: OpenKernel, block: tuple[int, int, int] | None) -> None:
        self.kernel = kernel
        self.block = block
        self.finder = KLoopFinder(kernel)
        self.types = Types(kernel.symbols, kernel.constants.aliases)
        self.assumptions: list[str] = []

    def line(self, offset: int) -> int:
        return self.kernel.source.line(offset)

    def run(self) -> TiledKernel | Refusal:
        if self.kernel.errors:
            bad = min(self.kernel.errors, key=lambda s: s.start)
            return Refusal(
                "not_understood",
                "the grammar cannot read this part of the kernel",
                self.line(bad.start),
                "a macro used as syntax, or a construct not understood yet",
            )
        phases = self.finder.find()
        if isinstance(phases, Refusal):
            return phases
        loop = self.finder.describe(phases)
        if isinstance(loop, Refusal):
            return loop
        shared = self._shared_arrays()
        if isinstance(shared, Refusal):
            return shared
        reader = LoadReader(
            self.kernel.source.text,
            self.kernel.symbols,
            self.types,
            self.kernel.constants,
            self.line,
            self._outer(loop),
        )
        late = tuple(b for s in phases.compute if (b := reader.bump(s)) is not None)
        late = tuple(b for b in late if self._belongs_to_loads(b, phases))
        compute = tuple(s for s in phases.compute if s not in {b.stmt for b in late})
        phases = Phases(phases.stmt, phases.load, compute, phases.first_barrier, phases.second_barrier)
        loop = replace(loop, compute=compute, bumps_after=late)
        refused = self._legal(phases, loop)
        if refused is not None:
            return refused
        loads = reader.read(phases.load)
        if isinstance(loads, Refusal):
            return loads
        return self._assemble(phases, loop, loads, shared)

    # -- shared arrays ------------------------------------------------------------------------------
    def _shared_arrays(self) -> dict[int, SharedArray] | Refusal:
        out: dict[int, SharedArray] = {}
        alone = {n.span: len(n.symbols) == 1 for n in ir.walk(self.kernel.body) if isinstance(n, ir.Declare)}
        owner = {s.id: n.span for n in ir.walk(self.kernel.body) if isinstance(n, ir.Declare) for s in n.symbols}
        for s in self.kernel.symbols.values():
            if s.kind != "shared":
                continue
            here = self.line(s.span.start)
            if s.extern or any(isinstance(d, ir.Opaque) for d in s.dims):
                return Refusal(
                    "not_understood",
                    f"`{s.name}` is dynamic shared memory: not understood yet",
                    here,
                    "declare the tiles as static arrays",
                )
            dims = [self.kernel.constants.evaluate(d) for d in s.dims]
            size = size_of(s.type_text.replace("__shared__", " "), self.kernel.constants.aliases)
            if size is None or not dims or any(d is None or d <= 0 for d in dims) or s.pointers:
                return Refusal(
                    "not_understood",
                    f"the size of `{s.name}` is no constant that is understood",
                    here,
                    "name template arguments in the sidecar, or use a built-in element type",
                )
            if s.depth > 1:
                return Refusal(
                    "not_understood", f"`{s.name}` is declared inside another scope: not understood yet", here
                )
            declaration = owner[s.id]
            out[s.id] = SharedArray(
                s.id,
                s.name,
                self.types.base(s.type_text),
                size,
                tuple(d for d in dims if d),
                self._alignment(declaration),
                declaration,
                alone[declaration],
                here,
            )
        return out

    def _alignment(self, declaration: ir.Span) -> str:
        """The ``__align__`` of a declaration: inside it, or right before it on the same line."""
        text = self.kernel.source.text
        line_start = text.rfind(b"\n", 0, declaration.start) + 1
        found = [a for at, a in self.kernel.source.alignments if line_start <= at < declaration.end]
        return found[0] if found else ""

    # -- what the phases may do -----------------------------------------------------------------------
    def _outer(self, loop: KLoop) -> frozenset[int]:
        inside = {s.id for n in ir.walk(loop.stmt) if isinstance(n, ir.Declare) for s in n.symbols}
        return frozenset(s.id for s in self.kernel.symbols.values()) - inside

    def _belongs_to_loads(self, bump: Bump, phases: Phases) -> bool:
        """A bump in the compute phase moves with the loads where the loads read it and the compute phase doesn't."""
        load = self.finder.collector.collect(phases.load)
        rest = self.finder.collector.collect([s for s in phases.compute if s is not bump.stmt])
        return bump.symbol in load.reads and bump.symbol not in rest.reads | rest.writes

    def _legal(self, phases: Phases, loop: KLoop) -> Refusal | None:
        load = self.finder.collector.collect(phases.load)
        compute = self.finder.collector.collect(phases.compute)
        for effects, what in ((load, "load"), (compute, "compute")):
            refused = self._harmless(effects, what)
            if refused is not None:
                return refused
        return self._carried(load, compute, phases, loop) or self._escapes(phases)

    def _harmless(self, effects: Effects, what: str) -> Refusal | None:
        if effects.unknown:
            text, span = effects.unknown[0]
            return Refusal("not_understood", f"the {what} phase holds {text}", self.line(span.start))
        jumps = [(k, s) for k, s in effects.jumps if not self._inner_jump(k, s)]
        if jumps:
            return Refusal(
                "not_understood",
                f"the {what} phase leaves the iteration by `{jumps[0][0]}`",
                self.line(jumps[0][1].start),
            )
        for symbol, span in effects.stores:
            if symbol is not None and self.kernel.symbols[symbol].kind == "shared" and what == "load":
                continue
            name = f"`{self.kernel.symbols[symbol].name}`" if symbol is not None else "an unknown pointer"
            local = symbol is not None and self._points_to_local(self.kernel.symbols[symbol])
            if not local:
                return Refusal(
                    "may_alias",
                    f"the {what} phase stores through {name}, which the next tile's loads may read",
                    self.line(span.start),
                    "move the store behind the K-loop",
                )
        return None

    def _inner_jump(self, kind: str, span: ir.Span) -> bool:
        """``break`` and ``continue`` of a loop inside the phase stay inside it."""
        if kind not in ("break", "continue"):
            return False
        loops = [
            n
            for n in ir.walk(self.kernel.body)
            if isinstance(n, ir.For | ir.While) and n.span.start <= span.start and span.end <= n.span.end
        ]
        inner = max(loops, key=lambda n: n.span.start, default=None)
        return inner is not None and not any(
            isinstance(s, ir.Do) and isinstance(s.expr, ir.Call) and s.expr.callee == "__syncthreads"
            for s in (inner.body.body if isinstance(inner.body, ir.Block) else (inner.body,))
        )

    def _points_to_local(self, symbol: ir.Symbol) -> bool:
        """A pointer or reference to an array of registers."""
        if symbol.init is None or (symbol.id in self.finder.reassigned() and not symbol.reference):
            return False
        base = root(symbol.init)
        target = self.kernel.symbols.get(base.symbol) if base is not None and base.symbol is not None else None
        return target is not None and target.kind == "local" and not is_pointer(target) and not target.reference

    def _carried(self, load: Effects, compute: Effects, phases: Phases, loop: KLoop) -> Refusal | None:
        own = self._declared(phases.compute)
        in_load = self._declared(phases.load)
        names = self.kernel.symbols
        clash = sorted((load.reads - in_load) & (compute.writes - own))
        if clash:
            return Refusal(
                "not_understood",
                f"the load phase reads `{names[clash[0]].name}`, which the compute phase changes",
                self.line(loop.stmt.span.start),
            )
        moved = {b.symbol for b in loop.bumps_after} | (load.writes - in_load)
        used = sorted(moved & (compute.reads | compute.writes))
        if used:
            return Refusal(
                "not_understood",
                f"`{names[used[0]].name}` is advanced with the loads and used by the compute phase",
                self.line(loop.stmt.span.start),
            )
        return None

    def _declared(self, stmts: Iterable[ir.Stmt]) -> set[int]:
        return {s.id for st in stmts for n in ir.walk(st) if isinstance(n, ir.Declare) for s in n.symbols}

    def _escapes(self, phases: Phases) -> Refusal | None:
        """No address of a tile may outlive its iteration."""
        shared = {s.id for s in self.kernel.symbols.values() if s.kind == "shared"}
        own = self._declared(phases.compute)
        for stmt in phases.compute:
            for node in ir.walk(stmt):
                if isinstance(node, ir.Assign) and (r := root(node.left)) is not None and r.symbol not in own:
                    holder = self.kernel.symbols.get(r.symbol) if r.symbol is not None else None
                    if holder is None or not (is_pointer(holder) or is_integer(holder.type_text, None)):
                        continue
                    if self._takes_address(node.right, shared):
                        return Refusal(
                            "not_understood",
                            f"`{holder.name}` keeps an address inside a tile beyond its iteration",
                            self.line(node.span.start),
                        )
        return None

    def _takes_address(self, expr: ir.Expr, shared: set[int]) -> bool:
        kind = self.types.of(expr)
        if isinstance(expr, ir.Name):
            return expr.symbol in shared
        if isinstance(expr, ir.Index) and kind is not None and not kind.rank and not kind.pointers:
            return self._takes_address(expr.index, shared)
        return any(self._takes_address(c, shared) for c in ir.children(expr) if isinstance(c, ir.Expr))

    # -- putting it together ----------------------------------------------------------------------------
    def _invariant(self, name: ir.Name) -> ir.Expr | None:
        symbol = self.kernel.symbols.get(name.symbol) if name.symbol is not None else None
        if symbol is None or symbol.init is None or symbol.dims or symbol.pointers or symbol.reference:
            return None
        if not is_integer(symbol.type_text, self.kernel.constants.aliases) and "auto" not in symbol.type_text.split():
            return None
        return None if symbol.id in self.finder.reassigned() else symbol.init

    def _assemble(
        self, phases: Phases, loop: KLoop, loads: list[LoadItem], shared: dict[int, SharedArray]
    ) -> TiledKernel | Refusal:
        staged_ids = {i.array for i in _flat(loads) if isinstance(i, Copy | LaneStore)}
        if not staged_ids:
            return Refusal(
                "no_k_loop", "the load phase copies nothing into shared memory", self.line(loop.stmt.span.start)
            )
        widener = Widener(self.kernel.constants, self.kernel.symbols, shared, self._invariant, self.line, self.block)
        finished: list[LoadItem] = []
        for item in loads:
            if isinstance(item, CopyLoop):
                item = replace(item, trips=widener.trips(item))
                item = replace(item, widening=widener.prove(item))
                covered = widener.covers_block(item)
                if isinstance(covered, str) and covered and covered not in self.assumptions:
                    self.assumptions.append(covered)
            finished.append(item)
        kernel, source = self.kernel, self.kernel.source
        staged = tuple(a for a in shared.values() if a.symbol in staged_ids)
        body = loop.stmt.body.span
        inner = source.text[body.start : body.start + 1] == b"{"
        load_span = ir.Span(body.start + 1 if inner else body.start, loop.first_barrier.start)
        compute_span = ir.Span(loop.first_barrier.end, loop.second_barrier.start)
        spans = {
            "kernel": kernel.function.span,
            "loop": loop.stmt.span,
            "load": _extent(phases.load),
            "compute": _extent(loop.compute),
        }
        lines = {k: (self.line(s.start), self.line(max(s.start, s.end - 1))) for k, s in spans.items()}
        threads = self._threads()
        return TiledKernel(
            source.text,
            source.file,
            kernel.function.name,
            kernel.function.line,
            kernel.function.params,
            kernel.constants.names(),
            kernel.symbols,
            tuple(shared.values()),
            staged,
            loop,
            tuple(finished),
            load_span,
            compute_span,
            tile_of(kernel, loop, finished, staged, widener, threads),
            self._elsewhere(loop, staged_ids),
            lines,
            tuple(self.assumptions),
            probes_of(kernel, loop, finished, staged),
        )

    def _threads(self) -> int | None:
        if self.block is not None:
            return self.block[0] * self.block[1] * self.block[2]
        bounds = self.kernel.function.launch_bounds.split(",")[0].strip()
        if bounds.isdigit():
            return int(bounds)
        value = self.kernel.constants.by_name(bounds) if bounds.isidentifier() else None
        if value is not None:
            self.assumptions.append(f"a block has {value} threads, from __launch_bounds__")
        return value

    def _elsewhere(self, loop: KLoop, staged: set[int]) -> int | None:
        """The first line outside the K-loop that names a staged array."""
        inside = loop.stmt.span
        for node in ir.walk(self.kernel.body):
            if isinstance(node, ir.Name) and node.symbol in staged and not inside.start <= node.span.start < inside.end:
                return self.line(node.span.start)
        return None


def _flat(items: Iterable[LoadItem]) -> Iterable[Pure | Bump | Fetch | Copy | LaneStore]:
    for item in items:
        if isinstance(item, CopyLoop):
            yield from _flat(item.body)
        else:
            yield item


def _extent(stmts: tuple[ir.Stmt, ...]) -> ir.Span:
    return ir.Span(stmts[0].span.start, stmts[-1].span.end) if stmts else ir.Span(0, 1)
