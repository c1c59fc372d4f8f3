"""The widened copy loop: 16-byte vectors where the row allows it, element by element where it does not."""

from __future__ import annotations

from tilewright.rewrite.context import Context
from tilewright.source import ir
from tilewright.source.kernel import Copy, CopyLoop, Pure, Widening
from tilewright.source.widen import VECTOR_BYTES


class VectorLoop:
    """Pieces of one widened copy loop, shared by the variants."""

    def __init__(self, context: Context, loop: CopyLoop, widening: Widening) -> None:
        self.context = context
        self.loop = loop
        self.lanes = widening.elements
        self.widening = widening
        self.copy = next(i for i in loop.body if isinstance(i, Copy))
        self.pures = [i for i in loop.body if isinstance(i, Pure)]
        self.var = loop.var.name
        self.var_type = " ".join(w for w in loop.var.type_text.split() if w != "const")

    def trips(self) -> str:
        """How many vectors a thread moves at most, as a constant expression."""
        c, loop = self.context, self.loop
        bound, stride = c.operand(loop.bound), c.operand(loop.stride)
        assert loop.bound_value is not None
        assert loop.stride_value is not None
        if loop.bound_value % (self.lanes * loop.stride_value) == 0:
            return f"{bound} / ({self.lanes} * {stride})"
        return f"({bound} + {self.lanes} * {stride} - 1) / ({self.lanes} * {stride})"

    def open(self, pass_name: str, first_name: str) -> list[str]:
        """The loop over vectors, down to the test that a vector starts inside the tile."""
        c, loop = self.context, self.loop
        vector = f"({c.source(loop.first)} + {pass_name} * {c.operand(loop.stride)})"
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
        """True where the whole vector is inside the guard and its source is aligned."""
        c, copy = self.context, self.copy
        aligned = f"reinterpret_cast<size_t>({c.address(copy.source)}) % {VECTOR_BYTES} == 0"
        if copy.guard is None:
            return aligned
        return f"{self._guard_at_last(copy.guard)} && {aligned}"

    def _guard_at_last(self, guard: ir.Expr) -> str:
        """The guard's text with every moving left side taken at the vector's last element."""
        from tilewright.rewrite.edits import Edit, apply

        moves = {(s.start, s.end): (self.lanes - 1) * f for s, f in self.widening.guard_last}
        edits = [Edit(end, end, f" + {step}") for (_, end), step in moves.items()]
        return apply(self.context.kernel.text, guard.span, edits)

    def element_loop(self, first_name: str) -> list[str]:
        """The original loop body, once per element of the vector."""
        c = self.context
        body = self.loop.stmt.body
        text = c.kernel.text[body.span.start : body.span.end].decode()
        inner = text.strip()
        lines = _dedent(inner[1:-1]) if inner.startswith("{") else [inner]
        var, last = self.var, f"{first_name} + {self.lanes}"
        header = f"for ({self.var_type} {var} = {first_name}; {var} < {last}; ++{var}) {{"
        return ["#pragma unroll 1", header, *(c.unit + line if line else line for line in lines), "}"]


def _dedent(block: str) -> list[str]:
    import textwrap

    return textwrap.dedent(block.strip("\n").rstrip()).split("\n")
