"""A load phase that is taken as a whole, cut at its loads: registers hold what is loaded, before anything uses it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.kloop.kernel import Refusal, TiledKernel
from tilewright.kloop.load_stream import GlobalLoad, LoadSplit, LoadStream
from tilewright.rewrite.context import Context
from tilewright.rewrite.stream_text import COMPUTED, FETCHED, STORED, StreamText
from tilewright.source import ir
from tilewright.source.c_types import int_kind
from tilewright.source.edits import Edit, indent_at, indented


def cut_at_loads(kernel: TiledKernel) -> TiledKernel:
    """The kernel with its stream cut at the loads, where it can be: what stores is the whole load phase then."""
    stream = kernel.stream
    if stream is None or stream.split is None:
        return kernel
    split = stream.split
    # What only the stores advance, they advance in the original's order: it needs no copy of its own.
    carried = stream.carried & split.fetching.needs
    return replace(kernel, stream=replace(stream, loops=split.loops, storing=split.whole, carried=carried))


class LoadHalves:
    """The load phase of one kernel cut in two: a slice of it loads into registers, the whole of it stores from them."""

    def __init__(self, context: Context, stream: LoadStream, split: LoadSplit, text: StreamText) -> None:
        self.c = context
        self.stream = stream
        self.text = text
        self._split = split
        n = context.names
        self.fetch_tile = n.fresh("fetch_tile")
        self.store_tile = n.fresh("store_tile")
        self.stage = n.fresh("stage")
        self.more = n.fresh("has_next")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_next")
        self._loaded = {id(load): n.fresh(f"{self._name(load)}_loaded") for load in split.loads}
        blocks = (n.body for s in stream.body for n in ir.walk(s) if isinstance(n, ir.Block))
        self._listed = {id(s) for body in (stream.body, *blocks) for s in body}  # statements that are no whole branch
        early = context.remedy.early_loads
        skipped = [x for x in split.loads if self._may_be_skipped(x) and len(x.loops) < 2 and _empty(x.type_text)]
        self._cleared = skipped if early else []
        self._value = n.fresh("value") if any(x.loops for x in self._cleared) else ""

    def _name(self, load: GlobalLoad) -> str:
        """What a register is called after: what its address hangs on, where that is one name."""
        found = (n for n in ir.walk(load.expr) if isinstance(n, ir.Name) and n.symbol is not None)
        symbols = self.c.kernel.symbols
        pointers = (symbols[n.symbol] for n in found if n.symbol is not None)
        return next((s.name for s in pointers if s.pointers or s.dims), "value")

    def _may_be_skipped(self, load: GlobalLoad) -> bool:
        return load.skipped or bool(load.guards) or any(self._split.loops[f.span.start].per_thread for f in load.loops)

    def refusal(self) -> Refusal | None:
        return None  # what cannot be cut at its loads has no split

    # -- the two halves -----------------------------------------------------------------------------------
    def register_lines(self) -> list[str]:
        t = self.text
        lines = []
        for load in self._split.loads:
            dims = "".join(f"[{self._split.loops[f.span.start].trips}]" for f in load.loops)
            lines.append(f"{load.type_text} {self._loaded[id(load)]}{dims};")
        own = [*t.own(t.of_fetch, FETCHED), *t.own(t.of_store, STORED), *t.own(t.of_compute, COMPUTED)]
        return [*lines, *own]

    def _register(self, load: GlobalLoad) -> str:
        return f"{self._loaded[id(load)]}{self.text.index(tuple(f.span.start for f in load.loops))}"

    def fetch_lines(self) -> list[str]:
        """What the loads rest on, and the loads, each into its register."""
        t, what = self.text, self._split.fetching
        edits = t.heads(what.kept)
        by_stmt: dict[int, list[GlobalLoad]] = {}
        for load in self._split.loads:
            by_stmt.setdefault(id(load.stmt), []).append(load)
        edits += [self._loading(loads) for loads in by_stmt.values()]
        bumps = [self.c.source(b.stmt) for b in t.moved] + t.bumps(t.of_fetch, self.stream.bumped)
        lines = [*t.bound(t.of_fetch), *self._clearing(), *t.sliced(what, edits), *bumps]
        return indented(lines, self.c.inner)

    def _loading(self, loads: list[GlobalLoad]) -> Edit:
        """In the place of a statement, only what it loads."""
        stmt = loads[0].stmt
        lines = []
        for load in loads:
            line = f"{self._register(load)} = {self.c.source(load.expr)};"
            lines.append(f"if ({self._guard(load)}) {line}" if load.guards else line)
        indent = indent_at(self.c.kernel.text, stmt.span.start)
        if id(stmt) in self._listed or (len(lines) == 1 and not loads[0].guards):
            return Edit(stmt.span.start, stmt.span.end, f"\n{indent}".join(lines))
        inner = "".join(f"\n{indent}    {line}" for line in lines)
        return Edit(stmt.span.start, stmt.span.end, f"{{{inner}\n{indent}}}")  # an else behind it stays whose it was

    def _guard(self, load: GlobalLoad) -> str:
        if len(load.guards) == 1 and load.guards[0][1]:
            return self.c.source(load.guards[0][0])
        return " && ".join(self.c.operand(g) if holds else f"!({self.c.source(g)})" for g, holds in load.guards)

    def _clearing(self) -> list[str]:
        """Where loads are issued early: a load into a register that may still hold one waits, and others with it."""
        out: list[str] = []
        for load in self._cleared:
            name, held = self._loaded[id(load)], load.type_text
            if len(load.loops) == 1:
                out += ["#pragma unroll", f"for ({held} &{self._value} : {name}) {self._value} = {_empty(held)};"]
            else:
                out.append(f"{name} = {_empty(held)};")
        why = ["// Cleared first: loads into registers that a branch may have skipped wait for each other."]
        return [*(why if out else ()), *out]

    def store_reads(self) -> set[int]:
        return set(self._split.whole.needs)

    def store_lines(self) -> list[str]:
        """The load phase as it is, with registers where it loads; without indentation."""
        t = self.text
        edits = t.heads()
        edits += [Edit(x.expr.span.start, x.expr.span.end, self._register(x)) for x in self._split.loads]
        margin = self.c.inner
        lines = [x[len(margin) :] if x.startswith(margin) else x for x in self.c.load_lines(edits, bumps=False)]
        bumps = t.bumps(t.of_store, (*t.moved, *self.stream.bumped))
        return [*t.bound(t.of_store), *lines, *bumps]


def _empty(type_text: str) -> str:
    """A value of a type that a register is cleared with; "" where none is known."""
    if type_text in ("float", "double") or int_kind(type_text) is not None:
        return "0"
    return f"{type_text}{{}}" if type_text.isidentifier() else ""
