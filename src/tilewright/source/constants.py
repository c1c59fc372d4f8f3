"""Integer constants of a file: ``#define``, ``constexpr``, ``const``, enumerators, template arguments."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.source import ir
from tilewright.source.c_types import size_of

_INT_FUNCTIONS = {"min": min, "max": max, "std::min": min, "std::max": max}


def _divide(a: int, b: int) -> int:
    """C's division: towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _binary(op: str, a: int, b: int) -> int | None:
    if op in ("/", "%") and b == 0:
        return None
    if op in ("<<", ">>") and not 0 <= b < 64:
        return None
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return _divide(a, b)
        case "%":
            return a - b * _divide(a, b)
        case "<<":
            return a << b
        case ">>":
            return a >> b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "<":
            return int(a < b)
        case "<=":
            return int(a <= b)
        case ">":
            return int(a > b)
        case ">=":
            return int(a >= b)
        case "==":
            return int(a == b)
        case "!=":
            return int(a != b)
        case "&&":
            return int(bool(a) and bool(b))
        case "||":
            return int(bool(a) or bool(b))
    return None


class Constants:
    """Evaluates integer constant expressions.

    Args:
        values: names already known: template arguments, ``-D`` definitions of the sidecar.
        named: initialisers of the file's and the kernel's constants, by name.
        symbols: the kernel's symbols, for constants declared in it.
        aliases: ``using``/``typedef`` names, for ``sizeof``.
    """

    def __init__(
        self,
        values: Mapping[str, int],
        named: Mapping[str, ir.Expr],
        symbols: Mapping[int, ir.Symbol],
        aliases: dict[str, str],
    ) -> None:
        self._values = dict(values)
        self._named = dict(named)
        self._symbols = symbols
        self.aliases = aliases
        self._busy: set[str] = set()

    def names(self) -> dict[str, int]:
        """Every name with an integer value, for the sidecar's expressions."""
        out = dict(self._values)
        for name in self._named:
            value = self.by_name(name)
            if value is not None:
                out[name] = value
        return out

    def by_name(self, name: str) -> int | None:
        if name in self._values:
            return self._values[name]
        if name not in self._named or name in self._busy:
            return None
        self._busy.add(name)
        try:
            return self.evaluate(self._named[name])
        finally:
            self._busy.discard(name)

    def evaluate(self, expr: ir.Expr) -> int | None:
        """The value of an integer constant expression, or None where it is none."""
        match expr:
            case ir.Number(value=v):
                return v if isinstance(v, int) else None
            case ir.Name(id=name, symbol=None):
                return self.by_name(name)
            case ir.Name(symbol=int(s)):
                return self._local(s)
            case ir.Cast(type_text=t, operand=x):
                return self.evaluate(x) if "*" not in t and "float" not in t and "half" not in t else None
            case ir.Unary(op="-", operand=x):
                return None if (v := self.evaluate(x)) is None else -v
            case ir.Unary(op="+", operand=x):
                return self.evaluate(x)
            case ir.Unary(op="!", operand=x):
                return None if (v := self.evaluate(x)) is None else int(not v)
            case ir.Unary(op="~", operand=x):
                return None if (v := self.evaluate(x)) is None else ~v
            case ir.Binary(op=op, left=a, right=b):
                left, right = self.evaluate(a), self.evaluate(b)
                return None if left is None or right is None else _binary(op, left, right)
            case ir.Ternary(condition=c, then=a, otherwise=b):
                cond = self.evaluate(c)
                return None if cond is None else self.evaluate(a if cond else b)
            case ir.Call(callee=f, args=xs) if f in _INT_FUNCTIONS and xs:
                values = [self.evaluate(x) for x in xs]
                return None if any(v is None for v in values) else _INT_FUNCTIONS[f](*values)  # type: ignore[type-var]
            case ir.InitList(items=(x,)):
                return self.evaluate(x)
            case ir.SizeOf(type_text=t):
                return size_of(t, self.aliases)
        return None

    def _local(self, symbol_id: int) -> int | None:
        symbol = self._symbols.get(symbol_id)
        if symbol is None or symbol.init is None or symbol.pointers or symbol.dims:
            return None
        if not any(word in symbol.type_text.split() for word in ("const", "constexpr")):
            return None
        return self.evaluate(symbol.init)
