"""What a copy reads: a plain lvalue in global memory, perhaps behind a guard, or something computed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.kloop.kernel import Held
from tilewright.source import intrinsics, ir
from tilewright.source.constants import Constants
from tilewright.source.expr_types import Types, loads_from
from tilewright.source.integer_types import BUILTINS
from tilewright.source.places import Places

_FLOAT_WORD = re.compile(r"\b(?:float|double|half|bfloat)")


@dataclass(frozen=True)
class Loaded:
    """``guard ? source : fill``; ``inverted``: the source is read where the guard is false."""

    source: ir.Expr
    guard: ir.Expr | None = None
    fill: ir.Expr | None = None
    inverted: bool = False


class Values:
    """Reads the right-hand sides of a load phase."""

    def __init__(self, places: Places, types: Types, constants: Constants) -> None:
        self._places = places
        self._types = types
        self._constants = constants

    def global_lvalue(self, expr: ir.Expr) -> ir.Expr | None:
        """The lvalue in global memory (or ``__ldg(…)`` of one) that ``expr`` is, or None."""
        address = loads_from(expr)
        if address is not None:
            return expr if self._places.at(address).space == "global" else None
        lvalue = expr.operand if isinstance(expr, ir.Cast) and "&" in expr.type_text else expr
        if not isinstance(lvalue, ir.Index | ir.Unary | ir.Member):
            return None
        if isinstance(lvalue, ir.Unary) and lvalue.op != "*":
            return None
        return expr if self._places.of(lvalue).space == "global" else None

    def read(self, expr: ir.Expr) -> Loaded | None:
        """The value as a plain copy, all its parts quotable; None where it is anything else."""
        if self.global_lvalue(expr) is not None:
            return None if expr.span.within else Loaded(expr)
        if not isinstance(expr, ir.Ternary):
            return None
        for value, fill, inverted in ((expr.then, expr.otherwise, False), (expr.otherwise, expr.then, True)):
            if self.global_lvalue(value) is not None:
                return self.chosen(value, expr.condition, fill, inverted)
        return None

    def chosen(self, source: ir.Expr, guard: ir.Expr, fill: ir.Expr, inverted: bool) -> Loaded | None:
        """A guarded copy; None where the fill loads too, changes the value's type, or a part cannot be quoted."""
        if self.reads_memory(fill) or any(e.span.within for e in (source, guard, fill)):
            return None
        if self._rounds(source, fill):
            return None
        return Loaded(source, guard, fill, inverted)

    def _rounds(self, source: ir.Expr, fill: ir.Expr) -> bool:
        """``guard ? integer : 0.0f`` goes through float, which not every integer survives."""
        kind = self._types.of(source)
        if kind is None or not self._types.is_integer(kind):
            return False
        for node in ir.walk(fill):
            match node:
                case ir.Number(value=float()):
                    return True
                case ir.Cast(type_text=t) | ir.Call(callee=t) if _FLOAT_WORD.search(t):
                    return True
                case ir.Name(symbol=int()):
                    named = self._types.of(node)
                    if named is None or not self._types.is_integer(named):
                        return True
                case ir.Name() if self._constants.evaluate(node) is None:
                    return True
        return False

    def held(self, expr: ir.Expr) -> Held | None:
        """What a conversion is made of, where that is one ``float`` from global memory; None for anything else.

        Kept as it is loaded it can be waited for later: a conversion waits at once.
        """
        if expr.span.within or not isinstance(expr, ir.Call) or len(expr.args) != 1:
            return None
        loaded = self.read(expr.args[0]) if intrinsics.OF_A_FLOAT.match(expr.callee) else None
        kind = self._types.of(loaded.source) if loaded is not None else None
        if loaded is None or kind is None or kind.pointers or kind.base != "float":
            return None
        if loaded.fill is not None and not isinstance(loaded.fill, ir.Number):  # a number: exact as a float, or rounded
            return None
        return Held(expr, expr.args[0], kind.base)

    def reads_memory(self, expr: ir.Expr) -> bool:
        """Whether evaluating ``expr`` may load anything from memory (an address does not)."""
        match expr:
            case ir.Unary(op="&", operand=x):
                return any(self.reads_memory(i) for i in _indices(x))
            case ir.Index() | ir.Unary(op="*") | ir.Member(arrow=True) | ir.Opaque():
                return True
            case ir.Name() if self._types.is_reference(expr):
                return True  # what changes the thing itself does not say this name
            case ir.Member(base=ir.Name(id=b)) if b in BUILTINS:
                return False
            case ir.Call(callee=c) if not intrinsics.VALUES.match(c):
                return True
        return any(self.reads_memory(c) for c in ir.children(expr) if isinstance(c, ir.Expr))

    def is_zero(self, expr: ir.Expr) -> bool:
        """Whether a fill value is all zero bits: ``0``, ``0.0f``, ``make_uint4(0, 0, 0, 0)``, ``__float2half(0.f)``."""
        match expr:
            case ir.Number(value=v):
                return v == 0
            case ir.Cast(operand=x):
                return self.is_zero(x)
            case ir.InitList(items=xs):
                return all(self.is_zero(x) for x in xs)
            case ir.Call(callee=c, args=xs) if intrinsics.ZERO_KEEPING.match(c):
                return bool(xs) and all(self.is_zero(x) for x in xs)
        return self._constants.evaluate(expr) == 0


def _indices(expr: ir.Expr) -> list[ir.Expr]:
    """The index expressions on the way to the object that an address names."""
    match expr:
        case ir.Index(base=b, index=i):
            return [i, *_indices(b)]
        case ir.Member(base=b) | ir.Cast(operand=b):
            return _indices(b)
        case ir.Unary(op="*", operand=x):
            return [x]
    return []
