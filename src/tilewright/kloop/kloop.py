"""Finding the K-loop: load phase, barrier, compute phase, barrier."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kloop.kernel import KLoop, Refusal
from tilewright.kloop.loops import Header, counted_header
from tilewright.kloop.one_barrier import OneBarrier
from tilewright.kloop.placement import Placement
from tilewright.kloop.uniform import Uniformity
from tilewright.source import intrinsics, ir, lexical
from tilewright.source.c_types import common, int_kind
from tilewright.source.effects import Collector, Effects
from tilewright.source.integer_types import IntegerTypes
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel

FORM = "Tilewright pipelines loops of load | barrier | compute | barrier"
_PROVE = "`tilewright prove` says whether its copies overlap"


def is_barrier(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Do) and isinstance(stmt.expr, ir.Call) and stmt.expr.callee in intrinsics.BARRIERS


def statements(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.body if isinstance(stmt, ir.Block) else (stmt,)


@dataclass(frozen=True)
class Phases:
    """The K-loop cut at the barrier behind its loads and the one in front of the next loads.

    Barriers between those two belong to the compute phase. ``leading``: the second barrier stands at the top of the
    body.
    """

    stmt: ir.For
    header: Header
    load: tuple[ir.Stmt, ...]
    compute: tuple[ir.Stmt, ...]
    first_barrier: ir.Stmt
    second_barrier: ir.Stmt
    leading: bool = False


class KLoopFinder:
    """Finds and judges the K-loop of one kernel."""

    def __init__(self, kernel: OpenKernel) -> None:
        self.kernel = kernel
        self.collector = Collector(
            kernel.symbols, kernel.functions, kernel.body.body, kernel=True, aliases=kernel.source.aliases
        )
        self.uniformity = Uniformity(kernel, self.collector)
        self.placement = Placement(kernel, self.collector, self.uniformity)

    def line(self, node: ir.Stmt | ir.Expr) -> int:
        return self.kernel.source.line(node.span.start)

    def _no(self, what: str, node: ir.Stmt | ir.Expr, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self.line(node), hint)

    def find(self) -> Phases | Refusal:
        """The one loop of the form load | barrier | compute | barrier, or why there is none."""
        whole = self.collector.collect(self.kernel.body.body)
        if whole.asynchronous:
            line = self.kernel.source.line(whole.asynchronous[0].start)
            return Refusal("already_pipelined", "the kernel already copies asynchronously", line, _PROVE)
        shared = [s for s in self.kernel.symbols.values() if s.kind == "shared"]
        loops = [
            n
            for n in ir.walk(self.kernel.body)
            if isinstance(n, ir.For | ir.While) and any(is_barrier(s) for s in statements(n.body))
        ]
        filling = [n for n in loops if self._fills(n)]
        if not shared or not loops:
            return self._none(shared)
        if not filling:
            what = "no loop copies global memory into shared memory between barriers"
            return Refusal("no_k_loop", what, self.line(loops[0]), FORM)
        return self._chosen(filling)

    def _fills(self, loop: ir.For | ir.While) -> bool:
        """Whether a loop stores to shared memory, and reads global memory that it could come from."""
        stores = self.collector.collect([loop.body]).stores
        if not any(s.place.space in ("shared", "unknown") for s in stores):
            return False
        places = self.collector.places
        for node in ir.walk(loop.body):
            if isinstance(node, ir.Index | ir.Unary | ir.Member) and places.of(node).space in ("global", "unknown"):
                return True
            if isinstance(node, ir.Call) and any(places.at(a).space in ("global", "unknown") for a in node.args):
                return True
        return False

    def _chosen(self, filling: list[ir.For | ir.While]) -> Phases | Refusal:
        """The innermost loop of the form; a loop around it only where none inside it is one.

        Of several side by side, the one whose compute phase reads what its load phase fills.
        """
        refusals: list[Refusal] = []
        left = filling
        while left:
            inner = [n for n in left if not any(_inside(other, n) for other in left)]
            judged = [self._judge(n) for n in inner]
            found = [p for p in judged if isinstance(p, Phases)]
            refusals += [r for r in judged if isinstance(r, Refusal)]
            final = next((r for r in refusals if r.code in ("already_pipelined", "baseline_race")), None)
            if final is not None:
                return final
            if len(found) > 1:
                found = [p for p in found if self._reads_its_tiles(p)] or found
            if len(found) > 1:
                variables = " and ".join(f"`{p.header.var.name}`" for p in found)
                what = f"the loops over {variables} are of one form: which of them is the K-loop cannot be told"
                return self._no(what, found[1].stmt, "one K-loop per kernel is understood: cut the kernel in two")
            if found:
                return found[0]
            left = [n for n in left if n not in inner]
        return refusals[0]

    def _reads_its_tiles(self, phases: Phases) -> bool:
        filled = self.collector.collect(phases.load).stores_to_shared()
        return bool(filled & self.collector.collect(phases.compute).reads)

    def _none(self, shared: list[ir.Symbol]) -> Refusal:
        start = self.kernel.function.line
        if not shared:
            hint = "tile it first: load a tile, __syncthreads(), compute, __syncthreads()"
            return Refusal("no_k_loop", "the kernel has no shared memory, so nothing is tiled", start, hint)
        for node in ir.walk(self.kernel.body):
            if isinstance(node, ir.For | ir.While) and self.collector.collect([node.body]).barriers:
                hint = "put both barriers directly into the loop's body"
                return self._no("the barriers of the loop stand inside other statements", node, hint)
        return Refusal("no_k_loop", "no loop holds a barrier", start, FORM)

    # -- the candidate ------------------------------------------------------------------------------
    def _judge(self, loop: ir.For | ir.While) -> Phases | Refusal:
        header = counted_header(loop) if isinstance(loop, ir.For) else None
        if not isinstance(loop, ir.For) or header is None or loop.span.within:
            return self._no("the K-loop is not of the form `for (T k = first; k < bound; k += step)`", loop)
        body = statements(loop.body)
        effects = self.collector.collect(body)
        if effects.unknown:
            # What it may change cannot be told, so nothing else can.
            what, span = effects.unknown[0]
            return self._no(f"the K-loop holds {what}", ir.Stmt(span))
        placed = self.placement.judge(loop, header) or self._countable(loop, header)
        if placed is not None:
            return placed
        if effects.other_barriers:
            what, span = effects.other_barriers[0]
            return self._no(f"the K-loop waits in a way that is not understood: {what}", ir.Stmt(span))
        return self._cut(loop, header, body)

    def _cut(self, loop: ir.For, header: Header, body: tuple[ir.Stmt, ...]) -> Phases | Refusal:
        """The body cut at its barriers: the first one behind the loads, the last one in front of the next loads."""
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        hidden = next((body[i].span for i in cuts if body[i].span.within), None)
        if hidden is None and len(cuts) == 1:
            every = self.collector.collect(body).barriers
            hidden = next((s for s in every if s.start != body[cuts[0]].span.start), None)
        if hidden is not None:
            return self._no("__syncthreads() stands inside another statement", ir.Stmt(hidden))
        if len(cuts) == 1:
            return OneBarrier(self.kernel, self.collector).judge(loop, body, cuts[0], self._carried(body, header))
        if cuts[0] == 0:  # barrier | load | barrier | compute: the same, begun at another place
            load, compute = body[1 : cuts[1]], body[cuts[1] + 1 :]
            rest: tuple[ir.Stmt, ...] = ()
            phases = Phases(loop, header, load, compute, body[cuts[1]], body[0], True)
        else:
            load, compute, rest = body[: cuts[0]], body[cuts[0] + 1 : cuts[-1]], body[cuts[-1] + 1 :]
            phases = Phases(loop, header, load, compute, body[cuts[0]], body[cuts[-1]])
        behind = next((s for s in rest if not isinstance(s, ir.Nothing)), None)
        if behind is not None:
            return self._behind_last(behind, phases, rest)
        return self._nested(phases) or self._order(phases)

    def _behind_last(self, behind: ir.Stmt, phases: Phases, rest: tuple[ir.Stmt, ...]) -> Refusal:
        late, filled = self.collector.collect(rest), self.collector.collect(phases.load).stores_to_shared()
        read = sorted(filled & (late.reads | late.stores_to_shared()))
        if not read or late.barriers or late.other_barriers or "__syncwarp" in late.calls:
            return self._no("statements follow the last barrier of the K-loop", behind)
        name = self.kernel.symbols[read[0]].name
        what = f"`{name}` is used behind the last barrier of the loop: a warp may refill it meanwhile"
        hint = "add a __syncthreads() at the end of the loop"
        return Refusal("baseline_race", what, self.line(behind), hint)

    def _nested(self, phases: Phases) -> Refusal | None:
        """Barriers inside other statements: in the compute phase, where all threads pass them or none."""
        for stmt in phases.load:
            found = self.collector.collect([stmt]).barriers
            if found:
                return self._no("__syncthreads() stands inside another statement of the load phase", ir.Stmt(found[0]))
        for stmt in phases.compute:
            if not is_barrier(stmt):
                refused = self.placement.divergent_barrier(stmt)
                if refused is not None:
                    return refused
        return None

    def _order(self, phases: Phases) -> Phases | Refusal:
        """The load phase must fill shared memory, the compute phase must leave alone what it fills."""
        load, compute = self.collector.collect(phases.load), self.collector.collect(phases.compute)
        late = [s for s in compute.stores if s.place.space == "shared"]
        filled = load.stores_to_shared()
        if late and not filled:
            what = "shared memory is filled after the compute phase: the loads are already ahead"
            return Refusal("already_pipelined", what, self.kernel.source.line(late[0].span.start), _PROVE)
        for store in late:
            if store.place.symbol is None or store.place.symbol in filled:
                return self._written_late(store.place.symbol, store.span, phases)
        return phases

    def _written_late(self, symbol: int | None, span: ir.Span, phases: Phases) -> Refusal:
        line = self.kernel.source.line(span.start)
        if symbol is None:
            what = "the compute phase writes shared memory through a pointer: which array it is cannot be told"
            return Refusal("loop_carried_shared", what, line, "write through the array itself")
        name = self.kernel.symbols[symbol].name
        if self._copied_at(span, phases):
            what = f"`{name}` is filled a second time in the same iteration: two tiles share one array"
            return Refusal("loop_carried_shared", what, line, "give the second tile an array of its own")
        what = f"the compute phase writes `{name}`, which the load phase fills"
        return Refusal("loop_carried_shared", what, line, "use another shared array for it")

    def _copied_at(self, span: ir.Span, phases: Phases) -> bool:
        """Whether the store at a place takes its value from global memory."""
        for stmt in phases.compute:
            for node in ir.walk(stmt):
                if isinstance(node, ir.Assign) and node.span == span:
                    inside = (n for n in ir.walk(node.right) if isinstance(n, ir.Index | ir.Unary | ir.Member))
                    return any(self.collector.places.of(n).space == "global" for n in inside)
        return False

    # -- the candidate ------------------------------------------------------------------------------
    def _countable(self, loop: ir.For, header: Header) -> Refusal | None:
        """The variable and what the header reads must be left alone by the body."""
        kind = int_kind(header.var.type_text, self.kernel.constants.aliases)
        if kind is None or kind.bits < 32:
            what = f"the K-loop counts in `{header.var.type_text}`; an integer of 32 bits or more is understood"
            return self._no(what, loop)
        inside = self.collector.collect(statements(loop.body))
        if header.var.id in inside.writes:
            return self._no(f"`{header.var.name}` is changed inside the K-loop", loop)
        parts = (header.first, header.bound, header.step)
        names = ir.names(parts)
        changed = sorted(self.kernel.symbols[s].name for s in names & (inside.writes | {header.var.id}))
        if changed:
            return self._no(f"the K-loop changes its own start, bound or step: `{changed[0]}`", loop)
        odd = ir.Call | ir.Index | ir.Opaque | ir.Assign | ir.Unary
        for e in parts:
            if any(isinstance(n, odd) and not _plain_unary(n) for n in ir.walk(e)):
                return self._no("the start, bound or step of the K-loop is no plain arithmetic", loop)
        step = self._constant(header.step)
        if step is not None and step <= 0:
            return self._no("the K-loop does not count upwards", loop)
        bound = IntegerTypes(self.kernel.constants, self.kernel.symbols).of(header.bound)
        turned = bound is not None and not kind.unsigned and common(kind, bound).unsigned
        if turned and not self._starts_above_zero(header.first, 0):
            # Below zero it passes for a large number: no tile is computed, but later ones would be loaded.
            what = f"`{header.var.name}` may start below zero, and is compared with an unsigned bound"
            return self._no(what, loop, "make the bound signed")
        return None

    def _starts_above_zero(self, expr: ir.Expr, depth: int) -> bool:
        """Whether an index that a loop starts from is never negative, overflow left aside."""
        value = self.kernel.constants.evaluate(expr)
        if value is not None or depth > 16:
            return value is not None and value >= 0
        kind = IntegerTypes(self.kernel.constants, self.kernel.symbols).of(expr)
        if kind is not None and kind.unsigned and not isinstance(expr, ir.Binary | ir.Cast | ir.Unary):
            return True
        match expr:
            case ir.Binary(op="+" | "*" | "/" | "%", left=a, right=b):
                return self._starts_above_zero(a, depth + 1) and self._starts_above_zero(b, depth + 1)
            case ir.Cast(operand=x):
                return self._starts_above_zero(x, depth + 1)
            case ir.Name():
                init = self.uniformity.fixed(expr, -1)
                return init is not None and self._starts_above_zero(init, depth + 1)
        return False

    def _constant(self, expr: ir.Expr) -> int | None:
        """The value of a constant, or of a variable that is set to one and never changed."""
        value = self.kernel.constants.evaluate(expr)
        if value is not None or not isinstance(expr, ir.Name) or expr.symbol is None:
            return value
        symbol = self.kernel.symbols[expr.symbol]
        if symbol.kind != "local":
            return None
        kind, init = int_kind(symbol.type_text, self.kernel.constants.aliases), self.uniformity.fixed(expr, -1)
        value = self.kernel.constants.evaluate(init) if init is not None else None
        return value if value is not None and kind is not None and kind.wrap(value) == value else None

    def _carried(self, body: tuple[ir.Stmt, ...], header: Header) -> set[int]:
        """Names that differ between iterations for another reason than that an inner loop counts in them."""
        inside = self.collector.collect(body)
        found = {header.var.id} | (inside.writes - inside.declared)
        size = -1
        while len(found) != size:
            size = len(found)
            for node in (n for s in body for n in ir.walk(s)):
                pairs: list[tuple[int | None, ir.Expr | None]] = []
                if isinstance(node, ir.Declare):
                    pairs = [(s.id, s.init) for s in node.symbols]
                elif isinstance(node, ir.Assign) and (name := root(node.left)) is not None:
                    pairs = [(name.symbol, node.right)]
                for symbol, value in pairs:
                    if symbol is None or value is None or self.kernel.symbols[symbol].kind == "shared":
                        continue
                    if any(isinstance(n, ir.Name) and n.symbol in found for n in ir.walk(value)):
                        found.add(symbol)
        return found

    def progress(self, body: tuple[ir.Stmt, ...], header: Header) -> set[int]:
        """Names whose value may differ from one iteration to the next."""
        found = self.collector.collect(body).writes | {header.var.id}
        declared = [s for b in body for n in ir.walk(b) if isinstance(n, ir.Declare) for s in n.symbols]
        size = -1
        while len(found) != size:
            size = len(found)
            for s in declared:
                if s.init is not None and any(isinstance(n, ir.Name) and n.symbol in found for n in ir.walk(s.init)):
                    found.add(s.id)
        return found

    # -- the loop as data -----------------------------------------------------------------------------
    def describe(self, phases: Phases) -> KLoop:
        loop, header = phases.stmt, phases.header
        return KLoop(
            loop,
            header.var,
            header.first,
            header.bound,
            header.step,
            self._constant(header.step),
            self._insert_at(loop),
            loop.body.span,
            phases.first_barrier.span,
            phases.second_barrier.span,
            phases.compute,
            (),
            phases.leading,
        )

    def _insert_at(self, loop: ir.For) -> int:
        """In front of the loop's pragmas, at the start of their line; at the loop where code shares its line."""
        text = lexical.without_comments(self.kernel.source.text)
        start = text.rfind(b"\n", 0, loop.span.start) + 1
        if not _only_pragma(text[start : loop.span.start]):
            return loop.span.start
        at = start
        while at > 0:
            above = text.rfind(b"\n", 0, at - 1) + 1
            line = text[above:at].strip()
            if line and not _only_pragma(line):
                break
            at = above
            if line:
                start = at
        return start

    def effects(self, stmts: tuple[ir.Stmt, ...]) -> Effects:
        return self.collector.collect(stmts)


def _inside(inner: ir.Stmt, outer: ir.Stmt) -> bool:
    return inner is not outer and outer.span.start <= inner.span.start and inner.span.end <= outer.span.end


def _only_pragma(text: bytes) -> bool:
    return not lexical.without_pragmas(text).strip()


def _plain_unary(node: ir.Expr | ir.Stmt) -> bool:
    return isinstance(node, ir.Unary) and node.op in ("+", "-", "~", "!")
