"""The load phase as asynchronous copies."""

from __future__ import annotations

from tilewright.kloop.kernel import Copy, CopyLoop, Fetch, LaneStore, LoadItem, Widening
from tilewright.rewrite.context import Context, flat, plain_type
from tilewright.rewrite.vectors import VectorLoop, stride, trips
from tilewright.source import ir
from tilewright.source.edits import Edit, indent_at, indented

HEADER = "#include <cuda_pipeline.h>"
ASYNC_WIDTHS = (4, 8, 16)  # PTX ISA, cp.async: cp-size is 4, 8 or 16 bytes


class AsyncCopies:
    """Writes the load phase of one kernel; loads into a tile become ``__pipeline_memcpy_async``."""

    def __init__(self, context: Context) -> None:
        self.c = context
        self.first = context.names.fresh("first")
        self.pass_name = context.names.fresh("pass")
        self.fetches = {i.symbol.id: i for i in flat(context.kernel.loads) if isinstance(i, Fetch)}

    def outside(self) -> list[str]:
        """Declarations in front of the K-loop: none."""
        return []

    def lines(self) -> list[str]:
        return self.c.load_lines([e for item in self.c.kernel.loads for e in self._item(item)])

    def edits(self, loop: CopyLoop) -> list[Edit]:
        """One copy loop as asynchronous copies."""
        return self._item(loop)

    def _item(self, item: LoadItem) -> list[Edit]:
        c, span = self.c, item.stmt.span
        match item:
            case Fetch():
                # Nothing is loaded here: the name stands for the place in global memory.
                kind = plain_type(item.symbol.type_text)
                return [self._replaced(item.stmt, [f"const {kind} &{item.symbol.name} = {c.lvalue(item.source)};"])]
            case LaneStore():
                return [self._replaced(item.stmt, self._lane(item))]
            case Copy():
                return [self._replaced(item.stmt, self._copy(item))]
            case CopyLoop(widening=Widening() as w):
                return [Edit(span.start, span.end, self._block(item.stmt, self._widened(item, w)))]
            case CopyLoop():
                return [*self._header(item), *(e for inner in item.body for e in self._item(inner))]
        return []

    def _block(self, stmt: ir.Stmt, lines: list[str]) -> str:
        """Lines that take a statement's place, the first one behind the white space that is there already."""
        return "\n".join(indented(lines, indent_at(self.c.kernel.text, stmt.span.start))).lstrip()

    def _replaced(self, stmt: ir.Stmt, lines: list[str]) -> Edit:
        return Edit(stmt.span.start, stmt.span.end, self._block(stmt, lines))

    # -- single copies ------------------------------------------------------------------------------
    def _lane(self, item: LaneStore) -> list[str]:
        fetch = self.fetches[item.fetched]
        lane = f".{item.lane}" if item.lane else ""
        fill = None if fetch.fill is None else f"({self.c.source(fetch.fill)}){lane}"
        source = f"&{fetch.symbol.name}{lane}"
        return self._async(item.target, source, item.width_bytes, fetch.guard, fill, fetch.fills_zero, False)

    def _copy(self, item: Copy) -> list[str]:
        fill = None if item.fill is None else self.c.source(item.fill)
        source = self.c.address(item.source)
        width, guard = item.width_bytes, item.guard
        return self._async(item.target, source, width, guard, fill, item.fills_zero, item.inverted)

    def _async(
        self,
        target: ir.Expr,
        source: str,
        width: int,
        guard: ir.Expr | None,
        fill: str | None,
        fills_zero: bool,
        inverted: bool,
    ) -> list[str]:
        c = self.c
        to = c.address(target)
        whole = f"__pipeline_memcpy_async({to}, {source}, {width});"
        if guard is None or fill is None:
            return [whole]
        if fills_zero:
            # src-size 0 fills with zeros and reads nothing.
            chosen = f"{c.operand(guard)} ? {width} : 0" if inverted else f"{c.operand(guard)} ? 0 : {width}"
            return [f"__pipeline_memcpy_async({to},", f"{c.unit}{source},", f"{c.unit}{width}, {chosen});"]
        test = f"!({c.source(guard)})" if inverted else c.source(guard)
        return [f"if ({test}) {{", f"{c.unit}{whole}", "} else {", f"{c.unit}{c.source(target)} = {fill};", "}"]

    # -- copy loops -----------------------------------------------------------------------------------
    def _header(self, item: CopyLoop) -> list[Edit]:
        """A loop that starts at the thread's index becomes one of constant trip count, so that it unrolls."""
        c, stmt = self.c, item.stmt
        if item.first_value is not None or item.trips is None:
            return []
        indent = indent_at(c.kernel.text, stmt.span.start)
        head = self._block(stmt, strided_open(c, item, self.pass_name, not c.pragma_above(stmt)))
        return [Edit(stmt.span.start, stmt.header.end, head), Edit(stmt.span.end, stmt.span.end, f"\n{indent}}}")]

    def _widened(self, item: CopyLoop, widening: Widening) -> list[str]:
        c = self.c
        v = VectorLoop(c, item, widening)
        u = c.unit
        inner = [
            *v.indices(self.first),
            f"if ({v.whole()}) {{",
            *(f"{u}__pipeline_memcpy_async({c.address(x.target)}, {c.address(x.source)}, 16);" for x in v.copies),
            "} else {",
            f"{u}// The ragged edge, or a row that is not 16-byte aligned.",
            *indented(v.element_loop(self.first), u),
            "}",
        ]
        opened = v.open(self.pass_name, self.first)
        if c.pragma_above(item.stmt):
            opened = opened[1:]
        return [*opened, *indented(inner, u * 2), *v.close()]


def strided_open(c: Context, item: CopyLoop, pass_name: str, pragma: bool) -> list[str]:
    """The head of a copy loop with a constant trip count, down to the test of the original loop."""
    kind = plain_type(item.var.type_text)
    return [
        *(["#pragma unroll"] if pragma else []),
        f"for (int {pass_name} = 0; {pass_name} < {trips(c, item)}; ++{pass_name}) {{",
        f"{c.unit}{kind} {item.var.name} = {c.term(item.first)} + {pass_name} * {stride(c, item)};",
        f"{c.unit}if ({item.var.name} < {c.compared(item.bound)})",
    ]
