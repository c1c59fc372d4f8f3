"""The widened copy loop: 16-byte vectors where the row allows it, element by element where it does not."""

from __future__ import annotations

import textwrap

from tilewright.kloop.kernel import Copy, CopyLoop, Moving, Pure, Widening
from tilewright.kloop.widen import VECTOR_BYTES
from tilewright.rewrite.context import Context, plain_type
from tilewright.rewrite.quoting import one_line
from tilewright.source import ir
from tilewright.source.constants import is_constant_type
from tilewright.source.edits import Edit, apply


class VectorLoop:
    """Pieces of one widened copy loop, shared by the variants."""

    def __init__(self, context: Context, loop: CopyLoop, widening: Widening) -> None:
        self.context = context
        self.loop = loop
        self.lanes = widening.elements
        self.widening = widening
        self.copies = [i for i in loop.body if isinstance(i, Copy)]
        self.pures = [i for i in loop.body if isinstance(i, Pure)]
        self.var = loop.var.name
        self.var_type = plain_type(loop.var.type_text)

    def trips(self) -> str:
        """How many vectors a thread moves at most, as a constant expression."""
        return trips(self.context, self.loop, self.lanes)

    def open(self, pass_name: str, first_name: str) -> list[str]:
        """The loop over vectors, down to the test that a vector starts inside the tile."""
        c, loop = self.context, self.loop
        vector = f"({c.term(loop.first)} + {pass_name} * {stride(c, loop)})"
        return [
            "#pragma unroll",
            f"for (int {pass_name} = 0; {pass_name} < {self.trips()}; ++{pass_name}) {{",
            f"{c.unit}const {self.var_type} {first_name} = {vector} * {self.lanes};",
            f"{c.unit}if ({first_name} < {c.compared(loop.bound)}) {{",
        ]

    def close(self) -> list[str]:
        return [f"{self.context.unit}}}", "}"]

    def indices(self, first_name: str, wanted: set[int] | None = None) -> list[str]:
        """The copy's index and the locals computed from it, for the first element of the vector."""
        pures = self.pures if wanted is None else self.context.closure(wanted, self.pures)
        return [f"{self.var_type} {self.var} = {first_name};", *(self.context.source(p.stmt) for p in pures)]

    def whole(self) -> str:
        """True where the whole vector is inside every guard, and every source is aligned."""
        c = self.context
        tests: list[str] = []
        for copy in self.copies:
            if copy.guard is not None:
                at = copy.guard.span
                moving = [m for m in self.widening.guard_last if at.start <= m.span.start and m.span.end <= at.end]
                if any(m.may_wrap for m in moving):
                    tests.append(c.source(copy.guard))  # unsigned: the last element may have wrapped around
                tests.append(self._guard_at_last(copy.guard, moving))
        tests += [f"reinterpret_cast<size_t>({c.address(x.source)}) % {VECTOR_BYTES} == 0" for x in self.copies]
        return " && ".join(dict.fromkeys(tests))

    def _guard_at_last(self, guard: ir.Expr, moving: list[Moving]) -> str:
        """The guard's text with every moving side of a comparison taken at the vector's last element."""
        edits: list[Edit] = []
        for m in moving:
            if m.loose:
                edits.append(Edit(m.span.start, m.span.start, "("))
            edits.append(Edit(m.span.end, m.span.end, f"{')' if m.loose else ''} + {m.distance}"))
        return one_line(apply(self.context.kernel.text, guard.span, edits))

    def element_loop(self, first_name: str) -> list[str]:
        """The original loop body, once per element of the vector."""
        c = self.context
        span = self.loop.stmt.body.span
        text = c.kernel.text[span.start : span.end].decode().replace("\r", "").strip()
        lines = _dedent(text[1:-1]) if text.startswith("{") else [text]
        var, last = self.var, f"{first_name} + {self.lanes}"
        header = f"for ({self.var_type} {var} = {first_name}; {var} < {last}; ++{var}) {{"
        return ["#pragma unroll 1", header, *(c.unit + line if line else line for line in lines), "}"]


def stride(context: Context, loop: CopyLoop) -> str:
    return "1" if loop.step_hidden else context.operand(loop.stride)


def trips(context: Context, loop: CopyLoop, lanes: int = 1) -> str:
    """The most passes a thread makes over a copy loop, as a constant expression; ``lanes`` elements a pass."""
    assert loop.bound_value is not None
    assert loop.stride_value is not None
    if _local(context, loop):  # its names mean nothing outside the loads
        return str(-(-(loop.bound_value - (loop.first_value or 0)) // (lanes * loop.stride_value)))
    bound, by = context.operand(loop.bound), stride(context, loop)
    if loop.first_value not in (None, 0):
        bound = f"({bound} - {context.operand(loop.first)})"
    step = f"({lanes} * {by})" if lanes > 1 else by
    count = loop.bound_value - (loop.first_value or 0)
    if count % (lanes * loop.stride_value) == 0:
        return bound if step == "1" else f"{bound} / {step}"
    return f"({bound} + {step} - 1) / {step}"


def _local(context: Context, loop: CopyLoop) -> bool:
    """Whether the header of a copy loop names something that the K-loop's body declares, or a variable."""
    kernel, parts = context.kernel, (loop.bound, loop.stride, *((loop.first,) if loop.first_value is not None else ()))
    inside = kernel.loop.stmt.body.span
    for node in (n for e in parts for n in ir.walk(e)):
        symbol = kernel.symbols[node.symbol] if isinstance(node, ir.Name) and node.symbol is not None else None
        if symbol is not None and (
            inside.start <= symbol.span.start < inside.end or not is_constant_type(symbol.type_text)
        ):
            return True
    return False


def _dedent(block: str) -> list[str]:
    return textwrap.dedent(block.strip("\n").rstrip()).split("\n")
