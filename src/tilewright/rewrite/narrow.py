"""Bytes that wait in registers stay what they were loaded as.

``guard ? x : 0`` of two bytes is an int: the compiler extends the sign of what it loads on the spot, inside the branch,
and so waits for the load there. With a fill of the loaded type nothing is extended, and the value is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.source import ir
from tilewright.source.c_types import int_kind
from tilewright.source.edits import Edit

_INT_BITS = 32
_MOST = 127  # fits every integer type


def narrow_fill(value: ir.Expr | None, type_text: str, aliases: Mapping[str, str]) -> list[Edit]:
    """The fill of a chosen value cast to the type that is stored, where that is narrower than an int."""
    kind = int_kind(type_text, dict(aliases))
    if kind is None or kind.bits >= _INT_BITS or not isinstance(value, ir.Ternary):
        return []
    return [
        Edit(x.span.start, x.span.start, f"({type_text})")
        for x in (value.then, value.otherwise)
        if isinstance(x, ir.Number) and isinstance(x.value, int) and 0 <= x.value <= _MOST
    ]


def narrow_locals(body: Iterable[ir.Stmt], aliases: Mapping[str, str]) -> list[Edit]:
    """The same for locals that a load phase declares with such a value."""
    symbols = (s for stmt in body for n in ir.walk(stmt) if isinstance(n, ir.Declare) for s in n.symbols)
    plain = (s for s in symbols if not (s.pointers or s.dims or s.reference) and s.init is not None)
    return [e for s in plain for e in narrow_fill(s.init, s.type_text.replace("const", "").strip(), aliases)]
