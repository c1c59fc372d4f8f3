"""Facts that a reading rests on, as C++ constant expressions; the compiler confirms each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.kloop.kernel import Copy, CopyLoop, Fetch, KLoop, LaneStore, LoadItem, Probe, SharedArray
from tilewright.kloop.load_stream import LoadStream, Source
from tilewright.source import ir
from tilewright.source.expr_types import loads_from
from tilewright.source.lexical import line_of
from tilewright.source.reader import OpenKernel


class Prober:
    """Writes the probes of one kernel."""

    def __init__(self, kernel: OpenKernel, loop: KLoop) -> None:
        self._text = kernel.source.text
        self._constants = kernel.constants
        self._loop = loop

    def probes(
        self, loads: Sequence[LoadItem], staged: tuple[SharedArray, ...], stream: LoadStream | None = None
    ) -> tuple[Probe, ...]:
        """Sizes of the staged arrays, every constant that was evaluated, widths and types of what is copied."""
        out = [self._fact(f"size of {a.name}", f"sizeof({a.name}) == {a.total_bytes}") for a in staged]
        for a in staged:
            element = f"{a.name}{'[0]' * len(a.dims)}"
            out.append(self._fact(f"element of {a.name}", f"sizeof({element}) == {a.element_bytes}"))
        out.append(self._fact("type of the K-loop's variable", f"sizeof({self._loop.var.name}) >= 4"))
        out += self._constant("step of the K-loop", self._loop.step, self._loop.step_value)
        for item in loads:
            if isinstance(item, CopyLoop):
                out += self._constant("bound of a copy loop", item.bound, item.bound_value)
                out += self._constant("stride of a copy loop", item.stride, item.stride_value)
            for entry in item.body if isinstance(item, CopyLoop) else (item,):
                out += self._entry(entry)
            if isinstance(item, CopyLoop) and isinstance(item.converting, CopyLoop):
                out += (probe for entry in item.body if isinstance(entry, Copy) for probe in self._element(entry))
        if stream is not None:
            out += self._stream(stream)
        for name in sorted(self._constants.used):
            value = self._constants.by_name(name)
            if value is not None:
                out.append(self._fact(f"constant {name}", f"({name}) == {value}"))
        return tuple(out)

    def _fact(self, tag: str, condition: str, at: ir.Span | None = None, wrap: bool = False) -> Probe:
        place = at or self._loop.first_barrier
        return Probe(tag, condition, place, wrap, line_of(self._text, place.start))

    def _source(self, expr: ir.Expr) -> str:
        assert not expr.span.within
        return self._text[expr.span.start : expr.span.end].decode()

    def _constant(self, tag: str, expr: ir.Expr, value: int | None) -> list[Probe]:
        # The step of `++i` has no text of its own, and no variable can be asked about where it is compiled.
        if value is None or expr.span.within or self._constants.evaluate(expr) is None:
            return []
        return [self._fact(tag, f"({self._source(expr)}) == {value}")]

    def _entry(self, item: LoadItem) -> Iterator[Probe]:
        at = item.stmt.span
        match item:
            case Copy():
                target = self._source(item.target)
                yield self._fact("width of a copy", f"sizeof({target}) == {item.width_bytes}", at, True)
                if not item.converts:
                    yield self._same_type("type of a copy", target, item.source, at, True)
                    yield from self._lvalue(item.source, at, True)
            case LaneStore():
                target = self._source(item.target)
                yield self._fact("width of a store", f"sizeof({target}) == {item.width_bytes}", at, True)
                if isinstance(item.stmt.expr, ir.Assign):
                    yield self._same_type("type of a copy", target, item.stmt.expr.right, at, True)
            case Fetch():
                name = item.symbol.name
                yield self._fact("width of a load", f"sizeof({name}) == {item.width_bytes}", at)
                yield self._same_type("type of a copy", name, item.source, at, False)
                yield from self._lvalue(item.source, at, False)

    def _element(self, item: Copy) -> Iterator[Probe]:
        """Registers hold what a converting copy loads and stores: they must have those very types."""
        if item.element is not None:
            at = item.stmt.span
            for expr, kind in ((item.target, item.type_text), (item.element.source, item.element.type_text)):
                same = f"tilewright_same<decltype({self._source(expr)}), {kind}>::value"
                yield self._fact("type of a conversion", same, at, True)
            yield from self._lvalue(item.element.source, at, True)

    def _stream(self, stream: LoadStream) -> Iterator[Probe]:
        """Registers have the type of the place that they are stored to; an asynchronous copy reads that type too."""
        for store in stream.stores:
            at, target = store.stmt.span, self._source(store.assign.left)
            yield self._fact("width of a copy", f"sizeof({target}) == {store.width_bytes}", at, True)
            one = f"decltype({target})"
            yield self._fact("type of a store", f"tilewright_same<{one}, {store.type_text}>::value", at, True)
            if isinstance(store.source, Source) and store.source.lvalue is not None:
                yield self._same_type("type of a copy", target, store.source.lvalue, at, True)
                yield from self._lvalue(store.source.lvalue, at, True)
            elif isinstance(store.source, Source):
                yield self._same_type("type of a copy", target, store.assign.right, at, True)
        for register in stream.registers.values():
            for stmt, source, _, _ in register.definitions:
                if source is not None:
                    of = f"tilewright_same<decltype({self._source(source)}), {register.type_text}>::value"
                    wrap = not isinstance(stmt, ir.Declare)
                    yield self._fact("type of a copy", of, stmt.span, wrap)
                    yield from self._lvalue(source, stmt.span, wrap)

    def _same_type(self, tag: str, target: str, value: ir.Expr, at: ir.Span, wrap: bool) -> Probe:
        one, two = f"decltype({target})", f"decltype({self._source(value)})"
        return self._fact(tag, f"tilewright_same<{one}, {two}>::value", at, wrap)

    def _lvalue(self, source: ir.Expr, at: ir.Span, wrap: bool) -> Iterator[Probe]:
        """Only what has an address can be copied from it; a temporary does not compile here."""
        if loads_from(source) is None:
            yield self._fact("place of a load", f"sizeof(&({self._source(source)})) == 8", at, wrap)
