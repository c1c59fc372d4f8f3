"""Finding the K-loop: load phase, barrier, compute phase, barrier."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.source import intrinsics, ir, lexical
from tilewright.source.c_types import int_kind
from tilewright.source.effects import Collector, Effects
from tilewright.source.kernel import KLoop, Refusal
from tilewright.source.loops import Header, counted_header
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel
from tilewright.source.uniform import Uniformity

FORM = "Tilewright pipelines loops of load | barrier | compute | barrier"
_PROVE = "`tilewright prove` says whether its copies overlap"
_LEAVES = re.compile(rb"\b(?:return|goto|asm|__trap|exit)\b")


def is_barrier(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Do) and isinstance(stmt.expr, ir.Call) and stmt.expr.callee in intrinsics.BARRIERS


def statements(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.body if isinstance(stmt, ir.Block) else (stmt,)


@dataclass(frozen=True)
class Phases:
    """The K-loop cut at its two barriers; ``leading``: the second one stands at the top of the body."""

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
        filling = [n for n in loops if self.collector.collect([n.body]).stores_to_shared()]
        if not shared or not loops:
            return self._none(shared)
        if not filling:
            what = "no loop copies global memory into shared memory between barriers"
            return Refusal("no_k_loop", what, self.line(loops[0]), FORM)
        if len(filling) > 1:
            what = f"{len(filling)} loops fill shared memory between barriers"
            return self._no(what, filling[1], "only one K-loop per kernel is understood yet")
        return self._judge(filling[0])

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
        placed = self._placement(loop, header) or self._countable(loop, header)
        if placed is not None:
            return placed
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        if effects.other_barriers:
            what, span = effects.other_barriers[0]
            return self._no(f"the K-loop waits in a way that is not understood: {what}", ir.Stmt(span))
        if len(effects.barriers) != len(cuts) or any(body[i].span.within for i in cuts):
            odd = next((s for s in effects.barriers if all(s.start != body[i].span.start for i in cuts)), None)
            return self._no("__syncthreads() stands inside another statement", ir.Stmt(odd or body[cuts[0]].span))
        if len(cuts) == 1:
            return self._one_barrier(loop, header, body, cuts[0])
        if len(cuts) != 2:
            return self._no(f"the K-loop has {len(cuts)} barriers; two are understood", body[cuts[2]])
        if cuts[0] == 0:  # barrier | load | barrier | compute: the same, begun at another place
            load, compute = body[1 : cuts[1]], body[cuts[1] + 1 :]
            return self._order(Phases(loop, header, load, compute, body[cuts[1]], body[0], True))
        load, compute, rest = body[: cuts[0]], body[cuts[0] + 1 : cuts[1]], body[cuts[1] + 1 :]
        if rest:
            return self._no("statements follow the second barrier of the K-loop", rest[0])
        return self._order(Phases(loop, header, load, compute, body[cuts[0]], body[cuts[1]]))

    def _order(self, phases: Phases) -> Phases | Refusal:
        """The load phase must fill shared memory, the compute phase must not."""
        load, compute = self.collector.collect(phases.load), self.collector.collect(phases.compute)
        late = [s for s in compute.stores if s.place.space == "shared"]
        if late and not load.stores_to_shared():
            what = "shared memory is filled after the compute phase: the loads are already ahead"
            return Refusal("already_pipelined", what, self.kernel.source.line(late[0].span.start), _PROVE)
        if late:
            line = self.kernel.source.line(late[0].span.start)
            return Refusal("loop_carried_shared", "the compute phase writes shared memory", line)
        return phases

    def _placement(self, loop: ir.For, header: Header) -> Refusal | None:
        """The K-loop must stand in the kernel's own body, reached by all threads or by none."""
        if not any(s.span == loop.span for s in self.kernel.body.body):
            return self._no("the K-loop stands inside another loop or branch: not understood yet", loop)
        for stmt in (s for s in self.kernel.body.body if s.span.start < loop.span.start):
            refused = self._before(stmt)
            if refused is not None:
                return refused
        for expr in (header.first, header.bound, header.step):
            for node in ir.walk(expr):
                if isinstance(node, ir.Name | ir.Member) and not self.uniformity.uniform(node):
                    name = self.kernel.source.text[node.span.start : node.span.end].decode()
                    what = f"the trip count depends on `{name}`, which may differ between threads"
                    return Refusal("divergent_barrier", what, self.line(loop))
        return None

    def _before(self, stmt: ir.Stmt) -> Refusal | None:
        """What stands in front of the K-loop must be readable, and let all threads of a block pass or none."""
        for node in ir.walk(stmt):
            if isinstance(node, ir.OpaqueStmt):
                return self._no(f"in front of the K-loop stands {node.what}, which is not understood", node)
            if isinstance(node, ir.Opaque) and node.what != "a lambda" and self._may_leave(node):
                return self._no(f"in front of the K-loop stands {node.what}, which may return", node)
            if isinstance(node, ir.Asm) and any("inline PTX" in w for w, _ in self.collector.collect([node]).unknown):
                return self._no("in front of the K-loop stands inline PTX that is not understood", node)
        if not self.collector.collect([stmt]).jumps:
            return None
        for node in ir.walk(stmt):
            divergent = (isinstance(node, ir.If) and not self.uniformity.uniform(node.condition)) or (
                isinstance(node, ir.For | ir.While)
                and (node.condition is None or not self.uniformity.uniform(node.condition))
            )
            if divergent and any(k in ("return", "goto") for k, _ in self.collector.collect([node]).jumps):
                return Refusal(
                    "divergent_barrier",
                    "some threads of a block may return before the K-loop's barriers",
                    self.line(node),
                    "let every thread reach the loop; guard its work instead",
                )
        return None

    def _may_leave(self, node: ir.Opaque) -> bool:
        return _LEAVES.search(self.kernel.source.text[node.span.start : node.span.end]) is not None

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
        names = {n.symbol for e in parts for n in ir.walk(e) if isinstance(n, ir.Name) and n.symbol is not None}
        changed = sorted(self.kernel.symbols[s].name for s in names & (inside.writes | {header.var.id}))
        if changed:
            return self._no(f"the K-loop changes its own start, bound or step: `{changed[0]}`", loop)
        odd = ir.Call | ir.Index | ir.Opaque | ir.Assign | ir.Unary
        for e in parts:
            if any(isinstance(n, odd) and not _plain_unary(n) for n in ir.walk(e)):
                return self._no("the start, bound or step of the K-loop is no plain arithmetic", loop)
        step = self.kernel.constants.evaluate(header.step)
        if step is not None and step <= 0:
            return self._no("the K-loop does not count upwards", loop)
        return None

    def _one_barrier(self, loop: ir.For, header: Header, body: tuple[ir.Stmt, ...], cut: int) -> Refusal:
        """One barrier an iteration: a ring by hand, or a race."""
        changing = self.progress(body, header)
        here = self.line(body[cut])
        stored: set[int] = set()
        for node in ir.walk(ir.Block(loop.span, body)):
            if isinstance(node, ir.Assign) and (name := root(node.left)) is not None:
                symbol = self.kernel.symbols.get(name.symbol) if name.symbol is not None else None
                if symbol is None or symbol.kind != "shared":
                    continue
                stored.add(symbol.id)
                if any(isinstance(n, ir.Name) and n.symbol in changing for n in ir.walk(node.left)):
                    what = "one barrier an iteration and a buffer that changes with it: a ring by hand"
                    return Refusal("already_pipelined", what, here, _PROVE)
        load, compute = self.collector.collect(body[:cut]), self.collector.collect(body[cut + 1 :])
        warp_wise = "__syncwarp" in load.calls | compute.calls
        if load.stores_to_shared() & compute.reads and not compute.stores_to_shared() and not warp_wise:
            return Refusal(
                "baseline_race",
                "one barrier an iteration: a warp may refill the tile while another still reads it",
                here,
                "add a second __syncthreads() at the end of the loop",
            )
        return Refusal("not_understood", "the K-loop has one barrier; two are understood", here)

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
            self.kernel.constants.evaluate(header.step),
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


def _only_pragma(text: bytes) -> bool:
    return not lexical.without_pragmas(text).strip()


def _plain_unary(node: ir.Expr | ir.Stmt) -> bool:
    return isinstance(node, ir.Unary) and node.op in ("+", "-", "~", "!")
