"""Texts of a load phase that is taken as a whole: as it is, or what a slice leaves of it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from tilewright.kloop.kernel import Bump
from tilewright.kloop.load_stream import LoadStream, PassLoop, Slice
from tilewright.rewrite.rings import Rings
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, apply, indent_at, line_start

# Why a stream has a copy of its own of something.
STORED = "advanced with the stores, as the original is with the loads"
COMPUTED = "advanced with the compute phase, as the original is with the loads"
FETCHED = "advanced with the loads, as the original is in the compute phase"


class StreamText:
    """The load phase of one kernel as text.

    Attributes:
        of_store, of_compute, of_fetch: names of the copies that the streams advance instead of the locals themselves,
            by symbol. Loads use the locals themselves, where the compute phase does not need them.
    """

    def __init__(self, rings: Rings, stream: LoadStream, moved: tuple[Bump, ...]) -> None:
        self._r = rings
        self._text = rings.kernel.text
        self.stream = stream
        self.moved = moved
        advanced = set(stream.carried) | {b.symbol for b in (*moved, *stream.bumped)}
        self.of_store = self._copies(advanced & stream.storing.needs, "store")
        self.of_compute = self._copies(stream.carried & stream.for_compute.needs, "compute")
        self.of_fetch = self._copies({b.symbol for b in stream.bumped}, "fetch")
        self._passes = {s: rings.names.fresh("pass") for s, loop in stream.loops.items() if loop.per_thread}

    def _copies(self, symbols: Set[int], of: str) -> dict[int, str]:
        return {s: self._r.names.fresh(f"{self._name(s)}_{of}") for s in sorted(symbols)}

    def _name(self, symbol: int) -> str:
        return self._r.kernel.symbols[symbol].name

    # -- what a stream of its own advances ----------------------------------------------------------------
    def own(self, copies: dict[int, str], why: str) -> list[str]:
        """Declarations in front of the K-loop."""
        return [f"auto {copy} = {self._name(s)};  // {why}" for s, copy in copies.items()]

    def bound(self, copies: dict[int, str]) -> list[str]:
        """Inside a stream, the old names mean its own copies."""
        return [f"auto &{self._name(s)} = {copy};" for s, copy in copies.items()]

    def bumps(self, copies: dict[int, str], bumps: Iterable[Bump]) -> list[str]:
        return [self._r.source(b.stmt) for b in bumps if b.symbol in copies]

    # -- loops ------------------------------------------------------------------------------------------------
    def index(self, loops: tuple[int, ...]) -> str:
        """Subscripts of a register: the passes of the loops around a store."""
        return "".join(f"[{self._pass(self.stream.loops[s])}]" for s in loops)

    def _pass(self, loop: PassLoop) -> str:
        start = loop.stmt.span.start
        if loop.per_thread:
            return self._passes[start]
        assert loop.var is not None
        assert loop.first is not None
        assert loop.step is not None
        zero = isinstance(loop.first, ir.Number) and loop.first.value == 0
        one = loop.step.span.within
        if zero:
            return loop.var.name if one else f"{loop.var.name} / {self._r.operand(loop.step)}"
        from_first = f"{loop.var.name} - {self._r.operand(loop.first)}"
        return from_first if one else f"({from_first}) / {self._r.operand(loop.step)}"

    def heads(self, kept: frozenset[tuple[int, int]] | None = None) -> list[Edit]:
        """Loops that store, unrolled; those that threads start differently with as many passes as the longest needs."""
        out: list[Edit] = []
        for loop in self.stream.loops.values():
            stmt = loop.stmt
            if kept is not None and (stmt.span.start, stmt.span.end) not in kept:
                continue
            indent = indent_at(self._text, stmt.span.start)
            pragma = "" if self._pragma(stmt) is not None else f"#pragma unroll\n{indent}"
            if pragma and self._text[line_start(self._text, stmt.span.start) : stmt.span.start].strip():
                pragma = f"\n{pragma}"
            if not loop.per_thread:
                out += [Edit(stmt.span.start, stmt.span.start, pragma)] if pragma else []
                continue
            out += [
                Edit(stmt.span.start, stmt.header.end, pragma + self._strided(loop, indent)),
                Edit(stmt.span.end, stmt.span.end, f"\n{indent}}}"),
            ]
        return out

    def _strided(self, loop: PassLoop, indent: str) -> str:
        assert loop.var is not None
        assert loop.first is not None
        assert loop.step is not None
        assert loop.stmt.condition is not None
        number, var = self._passes[loop.stmt.span.start], loop.var
        step = "" if loop.step.span.within else f" * {self._r.operand(loop.step)}"
        kind = " ".join(w for w in var.type_text.split() if w not in ("const", "register"))
        unit = "    "
        return (
            f"for (int {number} = 0; {number} < {loop.trips}; ++{number}) {{\n"
            f"{indent}{unit}{kind} {var.name} = {self._r.term(loop.first)} + {number}{step};\n"
            f"{indent}{unit}if ({self._r.source(loop.stmt.condition)})"
        )

    def _pragma(self, stmt: ir.Stmt) -> int | None:
        """Where the pragmas right above a loop start; None without any."""
        text = lexical.without_comments(self._text)
        at, found = line_start(text, stmt.span.start), None
        inline = text[at : stmt.span.start]
        if inline.strip().startswith(b"_Pragma"):
            return at
        if inline.strip():
            return None
        while at > 0:
            above = line_start(text, at - 1)
            line = text[above:at].strip()
            if line.startswith(b"#") and b"pragma" in line:
                found = above
            elif line:
                return found
            at = above
        return found

    # -- slices ---------------------------------------------------------------------------------------------------
    def sliced(self, what: Slice, edits: Iterable[Edit]) -> list[str]:
        """The text of a slice without its comments, which stand in the loads already; one line each, dedented."""
        span = self._r.kernel.load_span
        cuts = [e for s in self.stream.body for e in self._cut(s, what)]
        gone = [(e.start, e.end) for e in cuts]
        kept = [e for e in edits if not any(a <= e.start and e.end <= b and a < b for a, b in gone)]
        out = apply(self._text, span, [*cuts, *kept])
        bare = lexical.without_comments(out.encode()).decode().replace("\r", "")
        first, *rest = bare.split("\n")
        lines = [x.rstrip() for x in rest if x.strip()]
        margin = min((len(x) - len(x.lstrip()) for x in lines if not x.startswith("#")), default=0)
        return [*([first.strip()] if first.strip() else []), *(_dedented(x, margin) for x in lines)]

    def _cut(self, stmt: ir.Stmt, what: Slice) -> list[Edit]:
        """Edits that take away what a slice does not keep of a statement."""
        if (stmt.span.start, stmt.span.end) not in what.kept:
            start = self._pragma(stmt) if isinstance(stmt, ir.For | ir.While) else None
            return [Edit(stmt.span.start if start is None else start, stmt.span.end, "")]
        match stmt:
            case ir.Block(body=body) if not any(s.span.within for s in body):
                return [e for s in body for e in self._cut(s, what)]
            case ir.If(then=a, otherwise=b):
                out = self._branch(a, what)
                if b is not None and (b.span.start, b.span.end) not in what.kept:
                    out.append(Edit(a.span.end, b.span.end, ""))
                elif b is not None:
                    out += self._branch(b, what)
                return out
            case ir.For(body=b) | ir.While(body=b):
                return self._branch(b, what)
        return []

    def _branch(self, stmt: ir.Stmt, what: Slice) -> list[Edit]:
        if (stmt.span.start, stmt.span.end) in what.kept:
            return self._cut(stmt, what)
        return [Edit(stmt.span.start, stmt.span.end, "{ }")]

    def compute_lines(self) -> list[str]:
        """What the compute phase needs of the load phase, for its own tile."""
        if not self.stream.for_compute.kept:
            return []
        return [*self.bound(self.of_compute), *self.sliced(self.stream.for_compute, [])]


def _dedented(line: str, margin: int) -> str:
    blank = len(line) - len(line.lstrip())
    return line[min(margin, blank) :]
