"""Copies that convert: the chain of conversions between one element in global memory and what is stored."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kloop.kernel import Element
from tilewright.kloop.values import Values
from tilewright.source import intrinsics, ir
from tilewright.source.c_types import is_integer, resolve, size_of
from tilewright.source.expr_types import CType, Types

_FLOATS = {
    "float": "float", "double": "double", "half": "half", "__half": "half", "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
}  # fmt: skip
_LARGEST_INT = (1 << 31) - 1


class Conversions:
    """Reads the values that a load phase stores as conversions of one element each."""

    def __init__(self, values: Values, types: Types, aliases: Mapping[str, str]) -> None:
        self._values = values
        self._types = types
        self._aliases = dict(aliases)

    def element(self, value: ir.Expr, target: ir.Expr) -> Element | None:
        """The chain that makes ``value`` of one element; None where it is anything else, or reads by a false guard."""
        node, choice = value, None
        while self._values.global_lvalue(node) is None:
            match node:
                case ir.Call(callee=c, args=(x,)) if intrinsics.OF_ONE_VALUE.match(c) or c in _FLOATS:
                    node = x
                case ir.Cast(operand=x) if self._arithmetic(self._types.of(node)):
                    node = x
                case ir.Ternary() if choice is None and self._one_type(node) and not self._reads(node):
                    choice, node = node, node.then
                case _:
                    return None
        kind = self._types.of(node)
        width = size_of(kind.base, self._aliases) if kind is not None else None
        if kind is None or width is None or not self._arithmetic(kind) or not self._arithmetic(self._types.of(target)):
            return None
        if isinstance(node, ir.Cast) or any(n.span.within for n in ir.walk(value) if not isinstance(n, ir.Number)):
            return None
        chosen, kept, guard = (node, node, None) if choice is None else (choice, choice.then, choice.condition)
        return Element(value, node, chosen, kept, guard, kind.base, width)

    def _reads(self, choice: ir.Ternary) -> bool:
        return self._values.reads_memory(choice.otherwise) or self._values.reads_memory(choice.condition)

    def _arithmetic(self, kind: CType | None) -> bool:
        if kind is None or kind.pointers or kind.rank:
            return False
        return resolve(kind.base, self._aliases) in _FLOATS or is_integer(kind.base, self._aliases)

    def _one_type(self, choice: ir.Ternary) -> bool:
        """Whether ``guard ? value : fill`` has the value of its first branch, and no type that a step would feel."""
        value, fill = self._result(choice.then), choice.otherwise
        if value is None:
            return False
        if isinstance(fill, ir.Number):
            if (
                isinstance(fill.value, int) and fill.text.isdigit() and fill.value <= _LARGEST_INT
            ):  # an int: a narrower integer becomes one as well
                return value in ("float", "double") or value == "integer"
            return isinstance(fill.value, float) and fill.text[-1:] in "fF" and value in ("float", "double")
        return value != "integer" and self._result(fill) == value

    def _result(self, expr: ir.Expr) -> str | None:
        """``integer``, or a name of ``_FLOATS``; None where it is not known."""
        if isinstance(expr, ir.Call) and len(expr.args) == 1:
            made = intrinsics.OF_ONE_VALUE.match(expr.callee)
            if made is not None:
                return made[1] if made[1] in _FLOATS.values() else "integer"
            if expr.callee in _FLOATS:
                return _FLOATS[expr.callee]
        kind = self._types.of(expr)
        if kind is None or not self._arithmetic(kind):
            return None
        return _FLOATS.get(resolve(kind.base, self._aliases), "integer")
