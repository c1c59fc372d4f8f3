"""A load phase that is taken as a whole, as asynchronous copies: every store becomes one, where it stands."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.load_stream import LoadStream, Register, Source, StreamStore
from tilewright.rewrite.context import Context
from tilewright.rewrite.cp_async_copies import ASYNC_WIDTHS, AsyncCopies
from tilewright.rewrite.stream_text import StreamText
from tilewright.source import ir
from tilewright.source.c_types import LANES, vector_lanes
from tilewright.source.edits import Edit, indent_at, indented

_FETCHED = "advanced with the copies, as the original is in the compute phase"
_COMPUTED = "advanced with the compute phase, as the original is with the copies"


def refusal(context: Context, stream: LoadStream) -> Refusal | None:
    """Why some store cannot be an asynchronous copy."""
    for store in (s for s in stream.stores if not stream.widened(s.stmt)):
        here = context.kernel.line_of(store.stmt.span.start)
        if isinstance(store.source, Refusal):
            return store.source
        if store.source != "plain" and store.width_bytes not in ASYNC_WIDTHS:
            what = f"cp.async moves 4, 8 or 16 bytes, this copy {store.width_bytes}"
            return Refusal("unsupported_width", what, here, "the ldg variant moves any width")
    if not stream.wide and all(s.source == "plain" for s in stream.stores):
        what = "nothing that the load phase stores is loaded from global memory"
        return Refusal("converts_type", what, context.kernel.line_of(stream.body[0].span.start))
    return None


class StreamCopies:
    """Writes the load phase of one kernel; locals that only carry what was loaded become pointers to it."""

    def __init__(self, context: Context, stream: LoadStream, text: StreamText) -> None:
        self.c = context
        self.stream = stream
        self.text = text
        self._stores = [s for s in stream.stores if not stream.widened(s.stmt)]
        self._wide = AsyncCopies(context)
        wanted = {s.source.register for s in self._stores if isinstance(s.source, Source)}
        self._used = {k: r for k, r in stream.registers.items() if k in wanted}
        self._pointers = {k: context.names.fresh(f"{r.symbol.name}_from") for k, r in self._used.items()}

    def outside(self) -> list[str]:
        """Declarations in front of the K-loop."""
        t = self.text
        return [*t.own(t.of_fetch, _FETCHED), *t.own(t.of_compute, _COMPUTED)]

    def lines(self) -> list[str]:
        edits = [e for key, register in self._used.items() for e in self._pointer(key, register)]
        edits += [self._replaced(s.stmt, self._store(s, s.source)) for s in self._stores if s.source != "plain"]
        edits += [e for loop in self.stream.wide for e in self._wide.edits(loop)]
        t = self.text
        first = [f"const {r.type_text} *{self._pointers[k]} = nullptr;" for k, r in self._used.items() if r.outer]
        return [
            *indented([*t.bound(t.of_fetch), *first], self.c.inner),
            *self.c.load_lines(edits),
            *indented(t.bumps(t.of_fetch, self.stream.bumped), self.c.inner),
        ]

    def _replaced(self, stmt: ir.Stmt, lines: list[str]) -> Edit:
        text = "\n".join(indented(lines, indent_at(self.c.kernel.text, stmt.span.start))).lstrip()
        return Edit(stmt.span.start, stmt.span.end, text)

    # -- locals that become pointers ------------------------------------------------------------------
    def _pointer(self, key: tuple[int, int | None], register: Register) -> list[Edit]:
        name = self._pointers[key]
        out: list[Edit] = []
        for stmt, lvalue, guard, inverted in register.definitions:
            value = self._place(lvalue, guard, inverted)
            declares = isinstance(stmt, ir.Declare)
            # What is loaded later is named here: memory that the loop does not write holds the same then.
            text = f"const {register.type_text} *{name} = {value};" if declares else f"{name} = {value};"
            out.append(self._replaced(stmt, [text]))
        return out

    def _place(self, lvalue: ir.Expr | None, guard: ir.Expr | None, inverted: bool) -> str:
        """The address that is copied from; null stands for zeros."""
        if lvalue is None:
            return "nullptr"
        at = self.c.address(lvalue)
        if guard is None:
            return at
        test = self.c.operand(guard)
        return f"{test} ? nullptr : {at}" if inverted else f"{test} ? {at} : nullptr"

    def _lane(self, name: str, store: StreamStore, lane: int, register: Register) -> str:
        """The address of one element of what a pointer points to."""
        if (vector_lanes(register.type_text) or 0) == register.lanes:
            return f"&{name}->{LANES[lane]}"
        if register.lanes == 1:
            return name
        return f"&reinterpret_cast<const {store.type_text} *>({name})[{lane}]"

    # -- stores -------------------------------------------------------------------------------------------
    def _store(self, store: StreamStore, source: object) -> list[str]:
        assert isinstance(source, Source)
        to, width = self.c.address(store.assign.left), store.width_bytes
        if source.register is not None:
            name = self._pointers[source.register]
            at = name if source.lane is None else self._lane(name, store, source.lane, self._used[source.register])
            if not source.fills_zero:
                return [f"__pipeline_memcpy_async({to}, {at}, {width});"]
            if source.lane is not None:  # no lane of nothing
                at = f"{name} ? {at} : nullptr"
            return [f"__pipeline_memcpy_async({to},", f"{self.c.unit}{at}, {width}, {name} ? 0 : {width});"]
        assert source.lvalue is not None
        at = self.c.address(source.lvalue)
        whole = f"__pipeline_memcpy_async({to}, {at}, {width});"
        if source.guard is None or source.fill is None:
            return [whole]
        if source.fills_zero:
            # src-size 0 fills with zeros and reads nothing.
            test = self.c.operand(source.guard)
            chosen = f"{test} ? {width} : 0" if source.inverted else f"{test} ? 0 : {width}"
            return [f"__pipeline_memcpy_async({to},", f"{self.c.unit}{at},", f"{self.c.unit}{width}, {chosen});"]
        test = f"!({self.c.source(source.guard)})" if source.inverted else self.c.source(source.guard)
        fill = f"{self.c.source(store.assign.left)} = {self.c.source(source.fill)};"
        return [f"if ({test}) {{", f"{self.c.unit}{whole}", "} else {", f"{self.c.unit}{fill}", "}"]
