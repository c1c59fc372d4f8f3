"""An opened kernel → :class:`TiledKernel` or :class:`Refusal`: everything a rewrite relies on, checked here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilewright.kloop.copies import LoadReader
from tilewright.kloop.coverage import Coverage
from tilewright.kloop.disjoint import Disjoint
from tilewright.kloop.hidden_changes import hidden_changes
from tilewright.kloop.kernel import (
    Bump,
    Copy,
    CopyLoop,
    KLoop,
    LaneStore,
    LoadItem,
    Outside,
    Refusal,
    SharedArray,
    TiledKernel,
    Widening,
)
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.kloop.legality import Legality, flat
from tilewright.kloop.load_stream import LoadStream
from tilewright.kloop.offsets import Offsets
from tilewright.kloop.outside import OutsideUses
from tilewright.kloop.placement import enclosing, passed_before
from tilewright.kloop.probes import Prober
from tilewright.kloop.reentry import uneven_runs
from tilewright.kloop.rows import rows_of_kernel
from tilewright.kloop.shared_arrays import shared_arrays
from tilewright.kloop.shared_overlap import overlaps
from tilewright.kloop.streams import StreamReader
from tilewright.kloop.tiles import tile_of
from tilewright.kloop.widen import Widener
from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.expr_types import Types
from tilewright.source.intrinsics import is_known
from tilewright.source.reader import OpenKernel

# Refusals of the reading by statements that say nothing about the load phase as a whole.
_STREAMED = frozenset({"not_understood", "converts_type", "loop_carried_shared"})


def analyse(
    kernel: OpenKernel, block: tuple[int, int, int] | None = None, no_alias: bool = False
) -> TiledKernel | Refusal:
    """Understand a kernel's K-loop, or say why not.

    Args:
        kernel: from :func:`tilewright.source.reader.open_kernel`.
        block: threads of a block per dimension, where a sidecar says so.
        no_alias: the sidecar says that no buffer that is written overlaps one that is read.
    """
    return _Analysis(kernel, block, no_alias).run()


class _Analysis:
    def __init__(self, kernel: OpenKernel, block: tuple[int, int, int] | None, no_alias: bool) -> None:
        self.kernel = kernel
        self.block = block
        self.finder = KLoopFinder(kernel)
        self.types = Types(kernel.symbols, kernel.constants.aliases)
        self.legality = Legality(self.finder, self.types, no_alias)
        self.assumptions: list[str] = []

    def line(self, offset: int) -> int:
        return self.kernel.source.line(offset)

    def run(self) -> TiledKernel | Refusal:
        if self.kernel.errors:
            what, bad = min(self.kernel.errors, key=lambda e: e[1].start)
            hint = "a macro used as syntax, or a construct not understood yet"
            return Refusal("not_understood", f"the kernel cannot be read here: {what}", self.line(bad.start), hint)
        for call in ir.walk(self.kernel.body):
            if isinstance(call, ir.Call) and call.callee in self.kernel.functions and is_known(call.callee):
                what = f"the file defines a `{call.callee}` of its own"
                return Refusal("not_understood", what, self.line(call.span.start), "give it another name")
        phases = self.finder.find()
        if isinstance(phases, Refusal):
            return phases
        refused = hidden_changes(self.kernel, phases.stmt)
        if refused is not None:
            return refused
        shared = shared_arrays(self.kernel, self.types)
        if isinstance(shared, Refusal):
            return shared
        return self._phases(phases, shared)

    def _phases(self, phases: Phases, shared: dict[int, SharedArray]) -> TiledKernel | Refusal:
        loop = self.finder.describe(phases)
        inside = {s.id for n in ir.walk(loop.stmt) if isinstance(n, ir.Declare) for s in n.symbols}
        reader = LoadReader(
            self.kernel.source.text,
            self.kernel.symbols,
            self.types,
            self.kernel.constants,
            self.finder.collector,
            self.line,
            frozenset(self.kernel.symbols) - inside,
            Counter(n.symbol for n in ir.walk(self.kernel.body) if isinstance(n, ir.Name)).__getitem__,
        )
        bumps = tuple(b for s in phases.compute if (b := reader.bump(s)) is not None)
        read = self._statement_by_statement(phases, loop, shared, reader, bumps)
        if isinstance(read, Refusal) and read.code in _STREAMED:
            return self._as_a_stream(phases, loop, shared, reader, bumps, read)
        return read

    def _statement_by_statement(
        self, phases: Phases, loop: KLoop, shared: dict[int, SharedArray], reader: LoadReader, bumps: tuple[Bump, ...]
    ) -> TiledKernel | Refusal:
        late = tuple(b for b in bumps if self._belongs_to_loads(b, phases))
        compute = tuple(s for s in phases.compute if s not in {b.stmt for b in late})
        phases = replace(phases, compute=compute)
        loop = replace(loop, compute=compute, bumps_after=late)
        refused = self.legality.phases(phases, loop)
        if refused is not None:
            return refused
        loads = reader.read(phases.load)
        if isinstance(loads, Refusal):
            return loads
        refused = self.legality.loads(phases, loads)
        return refused if refused is not None else self._assemble(phases, loop, loads, shared, None)

    def _as_a_stream(
        self,
        phases: Phases,
        loop: KLoop,
        shared: dict[int, SharedArray],
        copies: LoadReader,
        bumps: tuple[Bump, ...],
        before: Refusal,
    ) -> TiledKernel | Refusal:
        """The load phase as one text, where it could not be read statement by statement."""
        refused = self.legality.harmless(phases)
        if refused is not None:
            return refused
        widener = self._widener(loop, shared)
        reader = StreamReader(self.finder, self.types, shared, self.block, widener.passes)
        read = reader.read(phases, loop, bumps)
        if isinstance(read, Refusal):
            # What could not be read is said first, unless the reason goes deeper.
            return read if read.code != "no_k_loop" else before
        stream, moved, unordered = read
        stream = replace(stream, wide=self._wide(phases, stream, copies, widener))
        compute = tuple(s for s in phases.compute if s not in {b.stmt for b in moved})
        phases, loop = replace(phases, compute=compute), replace(loop, compute=compute, bumps_after=moved)
        kernel = self._assemble(phases, loop, [], shared, stream)
        return kernel if isinstance(kernel, Refusal) else replace(kernel, unordered=unordered)

    def _wide(self, phases: Phases, stream: LoadStream, copies: LoadReader, widener: Widener) -> tuple[CopyLoop, ...]:
        """Copy loops of a stream that can be widened by themselves: nothing else fills their arrays."""
        out: list[CopyLoop] = []
        for stmt in phases.load:
            loop = copies.loop_in(stmt)
            judged = self._judged(loop, widener) if loop is not None else None
            if not isinstance(judged, CopyLoop) or not isinstance(judged.widening, Widening):
                continue
            own = {i.array for i in judged.body if isinstance(i, Copy)}
            at = judged.stmt.span
            others = {s.array for s in stream.stores if not at.start <= s.stmt.span.start < at.end}
            if not own & others:
                out.append(judged)
        return tuple(out)

    def _belongs_to_loads(self, bump: Bump, phases: Phases) -> bool:
        """A bump in the compute phase moves with the loads where the loads read it and the compute phase doesn't."""
        load = self.finder.effects(phases.load)
        rest = self.finder.effects(tuple(s for s in phases.compute if s is not bump.stmt))
        return bump.symbol in load.reads and bump.symbol not in rest.reads | rest.writes

    # -- putting it together ----------------------------------------------------------------------------
    def _assemble(
        self,
        phases: Phases,
        loop: KLoop,
        loads: list[LoadItem],
        shared: dict[int, SharedArray],
        stream: LoadStream | None,
    ) -> TiledKernel | Refusal:
        kernel, source = self.kernel, self.kernel.source
        ids = {i.array for i in flat(loads) if isinstance(i, Copy | LaneStore)}
        ids |= {s.array for s in stream.stores} if stream is not None else set()
        if not ids:
            what = "the load phase copies nothing into shared memory"
            return Refusal("no_k_loop", what, self.line(loop.stmt.span.start))
        uniformity = self.finder.uniformity
        widener = self._widener(loop, shared)
        offsets = widener.offsets
        loads = [self._judged(item, widener) for item in loads]
        staged = tuple(a for a in shared.values() if a.symbol in ids)
        outside = self._outside(phases, loop, shared, ids)
        self.assumptions += [*self.legality.aliases.assumptions, *self.finder.placement.assumptions()]
        self.assumptions += [x for x in outside.assumptions if outside.refusal is None]
        load_span, compute_span = self._spans(loop)
        tile = tile_of(kernel, loop, loads, staged, widener, self._threads(), stream)
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
            tuple(loads),
            load_span,
            compute_span,
            tile,
            outside.line,
            self._lines(phases, loop),
            tuple(self.assumptions),
            Prober(kernel, loop).probes(loads, staged, stream),
            uniformity.changed,
            kernel.constants.aliases,
            Disjoint(offsets, self.line).judge(loads),
            self._stores_before(loop),
            self._made_for(),
            stream=stream,
            divergent_return=self.finder.placement.divergent_return,
            outside=outside,
            worth=kernel.worth,
            rows=rows_of_kernel(kernel, self.types, uniformity, shared, loop, loads, stream, self.block, tile.threads),
        )

    def _outside(self, phases: Phases, loop: KLoop, shared: dict[int, SharedArray], ids: set[int]) -> Outside:
        """Uses of the staged arrays outside the K-loop, and of arrays that lie over them."""
        coverage = Coverage(self.finder, self.types, shared, self.block, phases)
        found = OutsideUses(self.kernel, self.types, loop.stmt, ids, coverage.filled).find()
        if found.refusal is None:
            found = replace(found, refusal=uneven_runs(self.finder, phases, loop, ids, coverage.filled))
        over = overlaps(self.kernel, loop.stmt, shared, ids)
        if isinstance(over, Refusal):
            return found if found.refusal is not None else replace(found, refusal=over)
        return replace(found, assumptions=(*found.assumptions, *over))

    def _widener(self, loop: KLoop, shared: dict[int, SharedArray]) -> Widener:
        uniformity, steady = self.finder.uniformity, loop.var.id
        offsets = Offsets(self.kernel.constants, self.types, shared, lambda name: uniformity.fixed(name, steady))
        return Widener(offsets, self.kernel.symbols, uniformity, self.line, self.block)

    def _judged(self, item: LoadItem, widener: Widener) -> LoadItem:
        """A copy loop with its trip count, and whether it can be widened."""
        if not isinstance(item, CopyLoop):
            return item
        item = widener.evaluated(item)
        item = replace(item, trips=widener.trips(item))
        item = replace(item, widening=self._whole_block(widener.prove(item)))
        converting = widener.converting(item)
        whole = self._whole_block(converting.widening) if isinstance(converting, CopyLoop) else converting
        item = replace(item, converting=whole if isinstance(whole, Refusal) else converting)
        covered = widener.covers_block(item)
        if isinstance(covered, str) and covered and covered not in self.assumptions:
            self.assumptions.append(covered)
        return item

    def _whole_block(self, widening: Widening | Refusal | None) -> Widening | Refusal | None:
        """Wide copies are dealt out anew among all threads of a block, so none may have returned before."""
        line = self.finder.placement.divergent_return
        if line is None or not isinstance(widening, Widening):
            return widening
        what = "some threads may have returned: their share of wide copies would be missing"
        return Refusal("divergent_barrier", what, line)

    def _spans(self, loop: KLoop) -> tuple[ir.Span, ir.Span]:
        """The text of the two phases, between the loop's braces and its barriers."""
        body, first, second = loop.stmt.body.span, loop.first_barrier, loop.second_barrier
        if loop.leading:
            return ir.Span(second.end, first.start), ir.Span(first.end, body.end - 1)
        return ir.Span(body.start + 1, first.start), ir.Span(first.end, second.start)

    def _lines(self, phases: Phases, loop: KLoop) -> dict[str, tuple[int, int]]:
        spans = {"kernel": self.kernel.function.span, "loop": loop.stmt.span}
        spans |= {"load": _extent(phases.load), "compute": _extent(loop.compute)}
        return {k: (self.line(s.start), self.line(max(s.start, s.end - 1))) for k, s in spans.items()}

    def _stores_before(self, loop: KLoop) -> bool:
        before = passed_before(enclosing(self.kernel.body, loop.stmt), loop.stmt)
        effects = self.finder.effects(tuple(before))
        return bool(effects.stores or effects.unknown)

    def _made_for(self) -> tuple[str, ...]:
        """What must be true of the arguments that this instantiation was given."""
        given = self.kernel.given
        out = [f"{name} == {value}" for name, value in given.items() if name in self.kernel.constants.used]
        for parameter in self.kernel.function.template:
            size = size_of(parameter.name, self.kernel.constants.aliases) if parameter.kind == "type" else None
            if size is not None:
                out.append(f"sizeof({parameter.name}) == {size}")
        return tuple(out)

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


def _extent(stmts: tuple[ir.Stmt, ...]) -> ir.Span:
    return ir.Span(stmts[0].span.start, stmts[-1].span.end) if stmts else ir.Span(0, 1)
