"""Types of integer expressions, as C++'s usual conversions make them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.source import ir
from tilewright.source.c_types import IntKind, common, int_kind, size_of
from tilewright.source.constants import INT, Constants, literal_kind

BUILTINS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_UNSIGNED = IntKind(32, True)
_SIZE = IntKind(64, True)
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!=", "&&", "||"})


class IntegerTypes:
    """Integer types in one kernel; None for whatever is no integer, or is not known to be one."""

    def __init__(self, constants: Constants, symbols: Mapping[int, ir.Symbol]) -> None:
        self._constants = constants
        self._symbols = symbols

    def symbol(self, symbol: ir.Symbol, depth: int = 0) -> IntKind | None:
        if symbol.pointers or symbol.dims or symbol.reference:
            return None
        if "auto" in symbol.type_text.split():
            return None if symbol.init is None or depth > 16 else self.of(symbol.init, depth + 1)
        return int_kind(symbol.type_text, self._constants.aliases)

    def of(self, expr: ir.Expr, depth: int = 0) -> IntKind | None:
        match expr:
            case ir.Number(value=bool()):
                return IntKind(1, True)
            case ir.Number(value=int(v), text=t):
                return literal_kind(t, v)
            case ir.Name(symbol=int(s)):
                return self.symbol(self._symbols[s], depth)
            case ir.Name(symbol=None):
                return self._constants.kind(expr)
            case ir.Member(base=ir.Name(id=base, symbol=None), arrow=False) if base in BUILTINS:
                return _UNSIGNED
            case ir.Cast(type_text=t) if "*" not in t and "&" not in t:
                return int_kind(t, self._constants.aliases)
            case ir.Unary(op="-" | "+" | "~", operand=x):
                kind = self.of(x, depth)
                return None if kind is None else kind.promoted()
            case ir.Unary(op="!"):
                return INT
            case ir.Binary(op=op) if op in _COMPARISONS:
                return INT
            case ir.Binary(op="<<" | ">>", left=a):
                kind = self.of(a, depth)
                return None if kind is None else kind.promoted()
            case ir.Binary(op="+" | "-" | "*" | "/" | "%" | "&" | "|" | "^", left=a, right=b):
                return self._both(a, b, depth)
            case ir.Ternary(then=a, otherwise=b):
                return self._both(a, b, depth)
            case ir.SizeOf(type_text=t) if size_of(t, self._constants.aliases) is not None:
                return _SIZE
        return None

    def _both(self, a: ir.Expr, b: ir.Expr, depth: int) -> IntKind | None:
        left, right = self.of(a, depth), self.of(b, depth)
        return None if left is None or right is None else common(left, right)
