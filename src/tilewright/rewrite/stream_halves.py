"""A load phase that is taken as a whole, through registers: the text that loads, and what of it stores."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.load_stream import LoadStream, StreamStore
from tilewright.rewrite.context import Context
from tilewright.rewrite.narrow import narrow_fill, narrow_groups, narrow_locals
from tilewright.rewrite.stream_text import COMPUTED, FETCHED, STORED, StreamText
from tilewright.source import ir, lexical
from tilewright.source.c_types import int_kind
from tilewright.source.edits import Edit, indented, line_end, line_start


class StreamHalves:
    """The load phase of one kernel cut in two: the whole of it loads into registers, a slice of it stores them."""

    def __init__(self, context: Context, stream: LoadStream, text: StreamText) -> None:
        self.c = context
        self.stream = stream
        self.text = text
        n = context.names
        self.fetch_tile = n.fresh("fetch_tile")
        self.store_tile = n.fresh("store_tile")
        self.stage = n.fresh("stage")
        self.more = n.fresh("has_next")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_next")
        self._sides = _sides(stream)
        self._registers: dict[int, str] = {}  # the number of a store → the registers it waits in
        self._lines: list[str] = []
        self._guarded: list[tuple[str, str]] = []  # types and names of registers that not every thread may load
        self._groups = narrow_groups(stream, self._sides, context.kernel.aliases)
        self._group_of = {number: group for group in self._groups for number in group.stores}
        arrays = {a.symbol: a.name for a in context.kernel.staged}
        for number, store in enumerate(stream.stores):
            group = self._group_of.get(number)
            if group is not None and number != group.stores[0]:
                self._registers[number] = self._registers[group.stores[0]]
                continue
            twin = self._other_side(number)
            if twin is not None:
                self._registers[number] = self._registers[twin]
                continue
            name = self._registers[number] = n.fresh(f"{arrays[store.array]}_next")
            dims = "".join(f"[{stream.loops[s].trips}]" for s in store.loops)
            held = store.type_text if group is None else group.register.type_text
            self._lines.append(f"{held} {name}{dims};")
            if context.remedy.early_loads and [stream.loops[s].per_thread for s in store.loops] == [True]:
                self._guarded += [(held, name)] if held in ("float", "double") or int_kind(held) is not None else []
        self._value = n.fresh("value") if self._guarded else ""

    def _other_side(self, number: int) -> int | None:
        """An earlier store to the same place on the other side of a condition: the two share a register."""
        store = self.stream.stores[number]
        for i, other in enumerate(self.stream.stores[:number]):
            alike = (other.place, other.loops, other.type_text) == (store.place, store.loops, store.type_text)
            if alike and any((c, not side) in self._sides[i] for c, side in self._sides[number]):
                return i
        return None

    # -- refusals -----------------------------------------------------------------------------------------
    def refusal(self) -> Refusal | None:
        for store in self.stream.stores:
            for start in store.loops:
                loop = self.stream.loops[start]
                here = self.c.kernel.line_of(start)
                if loop.trips is None or loop.var is None:
                    what = "the trip count of a copy loop is not constant, so registers cannot hold its loads"
                    return Refusal("not_understood", what, here, "make the tile size and the thread count constants")
                if loop.trips == 0:
                    return Refusal("not_understood", "a copy loop copies nothing", here)
        for symbol in self.text.of_store:
            one = self.c.kernel.symbols[symbol]
            if one.dims:
                what = f"where a tile is stored depends on the array `{one.name}`, which the loads change"
                return Refusal("not_understood", what, self.c.kernel.line_of(self.stream.body[0].span.start))
        return None

    # -- the two halves -------------------------------------------------------------------------------------
    def register_lines(self) -> list[str]:
        t = self.text
        own = [*t.own(t.of_fetch, FETCHED), *t.own(t.of_store, STORED), *t.own(t.of_compute, COMPUTED)]
        return [*self._lines, *own]

    def _register(self, number: int) -> str:
        return f"{self._registers[number]}{self.text.index(self.stream.stores[number].loops)}"

    def fetch_lines(self) -> list[str]:
        """The load phase as it is, with registers where it stores."""
        edits = self.text.heads()
        for number, store in enumerate(self.stream.stores):
            group = self._group_of.get(number)
            if group is not None:
                first = number == group.stores[0]
                line = f"{self._register(number)} = {group.whole()};"
                edits.append(
                    Edit(store.stmt.span.start, store.stmt.span.end, line) if first else self._dropped(store.stmt)
                )
                continue
            span = store.assign.left.span
            edits.append(Edit(span.start, span.end, self._register(number)))
            edits += narrow_fill(store.assign.right, store.type_text, self.c.kernel.aliases)
        edits += narrow_locals(self.stream.body, self.c.kernel.aliases)
        edits += [self._dropped(s) for s in self.stream.aiming]
        t = self.text
        return [
            *indented([*t.bound(t.of_fetch), *self._cleared()], self.c.inner),
            *self.c.load_lines(edits),
            *indented(t.bumps(t.of_fetch, self.stream.bumped), self.c.inner),
        ]

    def _cleared(self) -> list[str]:
        """Where loads are issued early: a load into a register that may still hold one waits, and others with it."""
        lines = [f"for ({held} &{self._value} : {name}) {self._value} = 0;" for held, name in self._guarded]
        why = ["// Cleared first: loads into registers that a branch may have skipped wait for each other."]
        return [*(why if lines else ()), *(x for line in lines for x in ("#pragma unroll", line))]

    def _dropped(self, stmt: ir.Stmt) -> Edit:
        """A statement that goes, with its line where it stands alone on it; a branch of its own leaves a semicolon."""
        text, span = self.c.kernel.text, stmt.span
        start, end = line_start(text, span.start), line_end(text, span.end)
        before = lexical.without_comments(text[: span.start]).rstrip()
        alone = not text[start : span.start].strip() and not text[span.end : end].strip()
        if not before.endswith((b";", b"{", b"}")):
            return Edit(span.start, span.end, ";")
        inside = start >= self.c.kernel.load_span.start and end < self.c.kernel.load_span.end
        return Edit(start, end + 1, "") if alone and inside else Edit(span.start, span.end, "")

    def store_reads(self) -> set[int]:
        return set(self.stream.storing.needs)

    def store_lines(self) -> list[str]:
        """The stores and what they rest on, without indentation: the values come from the registers."""
        t, what = self.text, self.stream.storing
        edits = t.heads(what.kept)
        merged = self._merged()
        for number, store in enumerate(self.stream.stores):
            if number not in {n for n, _ in merged}:
                span = store.assign.right.span
                group = self._group_of.get(number)
                value = self._register(number) if group is None else group.lane(store, self._register(number))
                edits.append(Edit(span.start, span.end, value))
        for number, stmt in merged:
            target = self.c.source(self.stream.stores[number].assign.left)
            # Whichever side has loaded it, it goes to the same place.
            edits = [e for e in edits if not (stmt.span.start <= e.start and e.end <= stmt.span.end)]
            edits.append(Edit(stmt.span.start, stmt.span.end, f"{target} = {self._register(number)};"))
        bumps = t.bumps(t.of_store, (*t.moved, *self.stream.bumped))
        return [*t.bound(t.of_store), *t.sliced(what, edits), *bumps]

    def _merged(self) -> list[tuple[int, ir.If]]:
        """Conditions of which both sides are one store, to one place: they are that store."""
        number = {id(s.stmt): i for i, s in enumerate(self.stream.stores)}
        out: list[tuple[int, ir.If]] = []
        for node in (n for s in self.stream.body for n in ir.walk(s)):
            if not isinstance(node, ir.If) or node.otherwise is None or _changes(node.condition):
                continue
            one, two = number.get(id(_single(node.then))), number.get(id(_single(node.otherwise)))
            if one is not None and two is not None and self._registers[one] == self._registers[two]:
                out += [(one, node), (two, node)]
        return out


def _single(stmt: ir.Stmt) -> ir.Stmt:
    while isinstance(stmt, ir.Block) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return stmt


def _changes(condition: ir.Expr) -> bool:
    """Whether asking changes something."""
    moves = ("++", "--", "p++", "p--")
    return any(
        isinstance(n, ir.Assign | ir.Call) or (isinstance(n, ir.Unary) and n.op in moves) for n in ir.walk(condition)
    )


def _sides(stream: LoadStream) -> list[frozenset[tuple[int, bool]]]:
    """For every store, the conditions around it, and which side of each it stands on."""
    found: dict[int, frozenset[tuple[int, bool]]] = {}
    stores: dict[int, StreamStore] = {id(s.stmt): s for s in stream.stores}

    def go(stmt: ir.Stmt, around: frozenset[tuple[int, bool]]) -> None:
        if id(stmt) in stores:
            found[id(stmt)] = around
        if isinstance(stmt, ir.If):
            go(stmt.then, around | {(stmt.span.start, True)})
            if stmt.otherwise is not None:
                go(stmt.otherwise, around | {(stmt.span.start, False)})
            return
        for child in ir.children(stmt):
            if isinstance(child, ir.Stmt):
                go(child, around)

    for stmt in stream.body:
        go(stmt, frozenset())
    return [found[id(s.stmt)] for s in stream.stores]
