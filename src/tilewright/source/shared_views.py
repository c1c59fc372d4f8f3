"""Arrays that are views into dynamic shared memory: ``auto &A = *reinterpret_cast<half (*)[128][32]>(raw + 4096);``.

Each is an array like any other, of known extents at a known place of the buffer that the launch provides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.constants import Constants

_ARRAY_POINTER = re.compile(r"^(?P<base>[^()]+?)\s*\(\s*\*\s*\)\s*(?P<dims>(?:\[\s*\d+\s*\])+)$")
_NUMBER = re.compile(r"\d+")


def as_view(symbol: ir.Symbol, symbols: Mapping[int, ir.Symbol]) -> ir.Symbol:
    """The symbol as a shared array, where its declaration is that of a view; else as it was."""
    found = _shape(symbol.init) if symbol.reference and symbol.type_text == "auto" and not symbol.dims else None
    if found is None or symbol.init is None:
        return symbol
    address = _address(symbol.init)
    name = address.left if isinstance(address, ir.Binary) and address.op == "+" else address
    if not isinstance(name, ir.Name) or name.symbol is None or not symbols[name.symbol].extern:
        return symbol
    if isinstance(address, ir.Binary) and not isinstance(address.right, ir.Number):
        return symbol
    base, dims = found
    # Numbers of a type: they are not quoted from here.
    at = ir.Span(symbol.span.start, symbol.span.end, within=True)
    numbers = tuple(ir.Number(at, str(d), d) for d in dims)
    return ir.Symbol(
        symbol.id,
        symbol.name,
        "shared",
        f"__shared__ {base}",
        0,
        numbers,
        symbol.span,
        symbol.depth,
        init=symbol.init,
    )


def is_view(symbol: ir.Symbol) -> bool:
    return symbol.kind == "shared" and symbol.init is not None


def place_of(symbol: ir.Symbol, symbols: Mapping[int, ir.Symbol], constants: Constants) -> tuple[int, int] | None:
    """The dynamic buffer that a view lies in, and its first byte there; None where that is no constant."""
    if symbol.init is None:
        return None
    address = _address(symbol.init)
    offset: int | None = 0
    if isinstance(address, ir.Binary) and address.op == "+":
        offset, address = constants.evaluate(address.right), address.left
    name = address if isinstance(address, ir.Name) else None
    pool = symbols[name.symbol] if name is not None and name.symbol is not None else None
    if pool is None or not pool.extern or len(pool.dims) != 1 or offset is None or offset < 0:
        return None
    size = size_of(pool.type_text.replace("__shared__", " "), constants.aliases)
    return None if size is None else (pool.id, offset * size)


def _shape(init: ir.Expr | None) -> tuple[str, list[int]] | None:
    match init:
        case ir.Unary(op="*", operand=ir.Cast(type_text=t)) if (found := _ARRAY_POINTER.match(t)) is not None:
            return found["base"], [int(d) for d in _NUMBER.findall(found["dims"])]
    return None


def _address(init: ir.Expr) -> ir.Expr:
    match init:
        case ir.Unary(op="*", operand=ir.Cast(operand=x)):
            return x
    return init
