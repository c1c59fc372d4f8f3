"""Finding the K-loop: load phase, barrier, compute phase, barrier."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.source import ir
from tilewright.source.c_types import is_integer, size_of
from tilewright.source.effects import Collector, Effects, root
from tilewright.source.kernel import KLoop, Refusal
from tilewright.source.loops import counted_header
from tilewright.source.reader import OpenKernel

_UNIFORM = re.compile(r"^(?:blockIdx|gridDim|blockDim)$")


def is_barrier(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Do) and isinstance(stmt.expr, ir.Call) and stmt.expr.callee == "__syncthreads"


def statements(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.body if isinstance(stmt, ir.Block) else (stmt,)


@dataclass(frozen=True)
class Phases:
    """The K-loop cut at its two barriers."""

    stmt: ir.For
    load: tuple[ir.Stmt, ...]
    compute: tuple[ir.Stmt, ...]
    first_barrier: ir.Stmt
    second_barrier: ir.Stmt


class KLoopFinder:
    """Finds and judges the K-loop of one kernel."""

    def __init__(self, kernel: OpenKernel) -> None:
        self.kernel = kernel
        self.collector = Collector(kernel.symbols, kernel.functions)

    def line(self, node: ir.Stmt | ir.Expr) -> int:
        return self.kernel.source.line(node.span.start)

    def find(self) -> Phases | Refusal:
        """The one loop of the form load | barrier | compute | barrier, or why there is none."""
        whole = self.collector.collect(self.kernel.body.body)
        if whole.asynchronous:
            return Refusal(
                "already_pipelined",
                "the kernel already copies asynchronously",
                self.kernel.source.line(whole.asynchronous[0].start),
                "`tilewright prove` says whether its copies overlap",
            )
        shared = [s for s in self.kernel.symbols.values() if s.kind == "shared"]
        loops = [
            n
            for n in ir.walk(self.kernel.body)
            if isinstance(n, ir.For | ir.While) and any(is_barrier(s) for s in statements(n.body))
        ]
        filling = [n for n in loops if self._fills_shared(n)]
        if not shared or not loops:
            return self._none(whole, shared)
        if not filling:
            return Refusal(
                "no_k_loop",
                "no loop copies global memory into shared memory between barriers",
                self.line(loops[0]),
                "Tilewright pipelines loops of load | barrier | compute | barrier",
            )
        if len(filling) > 1:
            return Refusal(
                "not_understood",
                f"{len(filling)} loops fill shared memory between barriers",
                self.line(filling[1]),
                "only one K-loop per kernel is understood yet",
            )
        return self._judge(filling[0])

    def _none(self, whole: Effects, shared: list[ir.Symbol]) -> Refusal:
        start = self.kernel.function.line
        if not shared:
            return Refusal(
                "no_k_loop",
                "the kernel has no shared memory, so nothing is tiled",
                start,
                "tile it first: load a tile, __syncthreads(), compute, __syncthreads()",
            )
        nested = [
            c
            for c in ir.walk(self.kernel.body)
            if isinstance(c, ir.For | ir.While) and self.collector.collect([c.body]).barriers
        ]
        if nested:
            return Refusal(
                "not_understood",
                "the barriers of the loop stand inside other statements",
                self.line(nested[0]),
                "put both barriers directly into the loop's body",
            )
        return Refusal(
            "no_k_loop",
            "no loop holds a barrier",
            start,
            "Tilewright pipelines loops of load | barrier | compute | barrier",
        )

    def _fills_shared(self, loop: ir.For | ir.While) -> bool:
        """Whether the loop stores to a shared array at all outside of nested barrier loops."""
        stores = self.collector.collect([loop.body]).stores
        return any(s is not None and self.kernel.symbols[s].kind == "shared" for s, _ in stores)

    # -- the candidate ------------------------------------------------------------------------------
    def _judge(self, loop: ir.For | ir.While) -> Phases | Refusal:
        here = self.line(loop)
        if not isinstance(loop, ir.For) or counted_header(loop) is None:
            return Refusal(
                "not_understood", "the K-loop is not of the form `for (T k = first; k < bound; k += step)`", here
            )
        placed = self._placement(loop)
        if placed is not None:
            return placed
        body = statements(loop.body)
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        effects = self.collector.collect(body)
        if len(effects.barriers) != len(cuts) or effects.other_barriers:
            odd = effects.other_barriers[0][1] if effects.other_barriers else effects.barriers[0]
            what = (
                effects.other_barriers[0][0] if effects.other_barriers else "__syncthreads() inside another statement"
            )
            return Refusal(
                "not_understood",
                f"the K-loop waits in a way that is not understood: {what}",
                self.kernel.source.line(odd.start),
            )
        if len(cuts) == 1:
            return self._one_barrier(loop, body, cuts[0])
        if len(cuts) != 2:
            return Refusal(
                "not_understood", f"the K-loop has {len(cuts)} barriers; two are understood", self.line(body[cuts[2]])
            )
        load, compute, rest = body[: cuts[0]], body[cuts[0] + 1 : cuts[1]], body[cuts[1] + 1 :]
        if cuts[0] == 0:
            return Refusal("not_understood", "the K-loop begins with a barrier: not understood yet", self.line(body[0]))
        if rest:
            return Refusal("not_understood", "statements follow the second barrier of the K-loop", self.line(rest[0]))
        return self._order(Phases(loop, load, compute, body[cuts[0]], body[cuts[1]]))

    def _order(self, phases: Phases) -> Phases | Refusal:
        """The load phase must fill shared memory and read none; the compute phase the other way round."""
        load, compute = self.collector.collect(phases.load), self.collector.collect(phases.compute)
        filled = {s for s, _ in load.stores if s is not None and self.kernel.symbols[s].kind == "shared"}
        late = [(s, p) for s, p in compute.stores if s is not None and self.kernel.symbols[s].kind == "shared"]
        if not filled and late:
            return Refusal(
                "already_pipelined",
                "shared memory is filled after the compute phase: the loads are already ahead",
                self.kernel.source.line(late[0][1].start),
                "`tilewright prove` says whether its copies overlap",
            )
        if late:
            return Refusal(
                "loop_carried_shared",
                "the compute phase writes shared memory",
                self.kernel.source.line(late[0][1].start),
            )
        return phases

    def _placement(self, loop: ir.For) -> Refusal | None:
        """The K-loop must stand in the kernel's own body, reached by all threads or by none."""
        found = next((s for s in self.kernel.body.body if s.span == loop.span), None)
        if found is None:
            return Refusal(
                "not_understood", "the K-loop stands inside another loop or branch: not understood yet", self.line(loop)
            )
        before = [s for s in self.kernel.body.body if s.span.start < loop.span.start]
        for stmt in before:
            for node in ir.walk(stmt):
                if (
                    isinstance(node, ir.If)
                    and self.collector.collect([node]).jumps
                    and not self.uniform(node.condition)
                ):
                    return Refusal(
                        "divergent_barrier",
                        "some threads of a block return before the K-loop's barriers",
                        self.line(node),
                        "let every thread reach the loop; guard its work instead",
                    )
        header = self.collector.collect([x for x in (loop.condition, loop.update) if x is not None])
        bad = [
            self.kernel.symbols[s].name
            for s in sorted(header.reads)
            if s != counted_header(loop)[0].id  # type: ignore[index]
            and not self.uniform_symbol(s)
        ]
        if bad:
            return Refusal(
                "divergent_barrier",
                f"the trip count depends on `{bad[0]}`, which differs between threads",
                self.line(loop),
            )
        return None

    def _one_barrier(self, loop: ir.For, body: tuple[ir.Stmt, ...], cut: int) -> Refusal:
        """One barrier an iteration: a ring by hand, or a race."""
        header = counted_header(loop)
        assert header is not None
        inside = self.collector.collect(body)
        changing = inside.writes | {header[0].id}
        here = self.line(body[cut])
        staged = [
            n
            for n in ir.walk(ir.Block(loop.span, body))
            if isinstance(n, ir.Assign | ir.Index)
            and (r := root(n.left if isinstance(n, ir.Assign) else n)) is not None
            and r.symbol is not None
            and self.kernel.symbols[r.symbol].kind == "shared"
        ]
        for node in staged:
            indices = node.left if isinstance(node, ir.Assign) else node
            if any(
                isinstance(n, ir.Name)
                and n.symbol in changing
                and self.kernel.symbols[n.symbol].depth <= header[0].depth
                for n in ir.walk(indices)
            ):
                return Refusal(
                    "already_pipelined",
                    "one barrier an iteration and a buffer that changes with it: a ring by hand",
                    here,
                    "`tilewright prove` says whether its copies overlap",
                )
        load = self.collector.collect(body[:cut])
        if any(s is not None and self.kernel.symbols[s].kind == "shared" for s, _ in load.stores):
            return Refusal(
                "baseline_race",
                "one barrier an iteration: a warp may refill the tile while another still reads it",
                here,
                "add a second __syncthreads() at the end of the loop",
            )
        return Refusal("not_understood", "the K-loop has one barrier; two are understood", here)

    # -- uniformity -----------------------------------------------------------------------------------
    def uniform(self, expr: ir.Expr) -> bool:
        """Whether every thread of a block computes the same value."""
        for node in ir.walk(expr):
            if isinstance(node, ir.Name):
                if node.symbol is not None and not self.uniform_symbol(node.symbol):
                    return False
                if node.symbol is None and node.id in ("threadIdx", "warpSize", "laneid"):
                    return False
            elif isinstance(node, ir.Call | ir.Opaque | ir.Index | ir.Assign):
                if isinstance(node, ir.Call) and node.callee in ("min", "max", "ceil_div"):
                    continue
                return False
        return True

    def uniform_symbol(self, symbol_id: int, depth: int = 0) -> bool:
        symbol = self.kernel.symbols[symbol_id]
        if depth > 16 or symbol_id in self._reassigned():
            return False
        if symbol.kind == "param":
            return True
        if symbol.init is None or symbol.dims:
            return False
        return self.uniform(symbol.init)

    def _reassigned(self) -> frozenset[int]:
        """Symbols written anywhere except by their own declaration."""
        cached = getattr(self, "_reassigned_cache", None)
        if cached is None:
            plain: list[ir.Stmt | ir.Expr] = []
            for node in ir.walk(self.kernel.body):
                if isinstance(node, ir.Do | ir.Asm):
                    plain.append(node)
                elif isinstance(node, ir.For) and node.update is not None:
                    plain.append(node.update)
                elif isinstance(node, ir.Declare):
                    for s in node.symbols:
                        if s.init is not None:
                            plain.append(s.init)
                        if s.reference and s.init is not None and (r := root(s.init)) is not None:
                            plain.append(ir.Assign(s.span, "=", r, r))
                elif isinstance(node, ir.If | ir.While):
                    plain.append(node.condition)
            effects = self.collector.collect(plain)
            cached = frozenset(
                effects.writes | {s for s, _ in effects.stores if s is not None and self.kernel.symbols[s].reference}
            )
            self._reassigned_cache = cached
        return cached

    def reassigned(self) -> frozenset[int]:
        return self._reassigned()

    # -- the loop as data -----------------------------------------------------------------------------
    def describe(self, phases: Phases) -> KLoop | Refusal:
        loop = phases.stmt
        header = counted_header(loop)
        assert header is not None
        var, first, bound, step = header
        constants = self.kernel.constants
        kind = var.type_text
        if not is_integer(kind, constants.aliases) or (size_of(kind, constants.aliases) or 0) < 4:
            return Refusal(
                "not_understood",
                f"the K-loop counts in `{kind}`; an integer of 32 bits or more is understood",
                self.line(loop),
            )
        inside = self.collector.collect(statements(loop.body))
        if var.id in inside.writes:
            return Refusal("not_understood", f"`{var.name}` is changed inside the K-loop", self.line(loop))
        names = {n.symbol for e in (bound, step) for n in ir.walk(e) if isinstance(n, ir.Name) and n.symbol is not None}
        changed = sorted(self.kernel.symbols[s].name for s in names & inside.writes)
        if changed:
            return Refusal(
                "not_understood", f"the K-loop changes its own bound or step: `{changed[0]}`", self.line(loop)
            )
        if any(
            isinstance(n, ir.Call | ir.Index | ir.Opaque | ir.Assign) for e in (bound, step, first) for n in ir.walk(e)
        ):
            return Refusal("not_understood", "the bound or step of the K-loop is no plain arithmetic", self.line(loop))
        return KLoop(
            loop,
            var,
            first,
            bound,
            step,
            constants.evaluate(step),
            self._insert_at(loop),
            loop.body.span,
            phases.first_barrier.span,
            phases.second_barrier.span,
            phases.compute,
            (),
        )

    def _insert_at(self, loop: ir.For) -> int:
        """In front of the pragmas and on the line of the loop."""
        text = self.kernel.source.text
        start = text.rfind(b"\n", 0, loop.span.start) + 1
        for offset, _ in sorted(self.kernel.source.pragmas, reverse=True):
            line_start = text.rfind(b"\n", 0, offset) + 1
            if offset < start and not text[text.find(b"\n", offset) : start].strip():
                start = line_start
        return start
