"""Index expressions evaluated for every value of one variable: a second witness beside the algebra of ``affine``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.source import ir
from tilewright.source.c_types import int_kind
from tilewright.source.constants import Constants

Function = Callable[[int], int]
MAX_VALUES = 1 << 16
_LARGEST = (1 << 31) - 1


def _divide(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


class Concrete:
    """Turns expressions into functions of one variable.

    Args:
        variable: its symbol.
        known: symbols defined by an expression over it.
        fixed: the defining expression of a name that never changes, or None.
    """

    def __init__(
        self,
        constants: Constants,
        variable: int,
        known: Mapping[int, ir.Expr],
        fixed: Callable[[ir.Name], ir.Expr | None],
    ) -> None:
        self._constants = constants
        self._variable = variable
        self._known = known
        self._fixed = fixed
        self._depth = 0

    def function(self, expr: ir.Expr) -> Function | None:
        """The expression as a function of the variable alone; None where anything else enters."""
        value = self._constants.evaluate(expr)
        if value is not None:
            return lambda _: value
        match expr:
            case ir.Name(symbol=int(s)) if s == self._variable:
                return lambda i: i
            case ir.Name(symbol=int(s)):
                return self._defined(self._known.get(s) or self._fixed(expr))
            case ir.Cast(type_text=t, operand=x):
                kind = int_kind(t, self._constants.aliases)
                return self.function(x) if kind is not None and kind.bits >= 32 else None
            case ir.Binary(op=op, left=a, right=b) if op in _OPERATORS:
                left, right = self.function(a), self.function(b)
                return None if left is None or right is None else _applied(_OPERATORS[op], left, right)
        return None

    def _defined(self, expr: ir.Expr | None) -> Function | None:
        if expr is None or self._depth > 32:
            return None
        self._depth += 1
        try:
            return self.function(expr)
        finally:
            self._depth -= 1

    def values(self, expr: ir.Expr, count: int) -> list[int] | None:
        """The values for 0 … count-1; None where there are none, too many, or one divides by zero or leaves an int."""
        function = self.function(expr)
        if function is None or not 0 < count <= MAX_VALUES:
            return None
        try:
            return [function(i) for i in range(count)]
        except (ArithmeticError, ValueError):
            return None


def _applied(operator: Callable[[int, int], int], left: Function, right: Function) -> Function:
    def apply(i: int) -> int:
        value = operator(left(i), right(i))
        if not 0 <= value <= _LARGEST:
            raise OverflowError  # from here on, signed and unsigned arithmetic part
        return value

    return apply
