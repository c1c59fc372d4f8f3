"""Types of expressions, as far as copies need them: element type, pointer depth, array rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.source import ir
from tilewright.source.c_types import LANES, is_integer, plain, resolve, size_of, vector_lanes
from tilewright.source.intrinsics import LOADS


@dataclass(frozen=True)
class CType:
    """``base`` with ``pointers`` stars and ``rank`` array dimensions around it."""

    base: str
    pointers: int = 0
    rank: int = 0

    def pointee(self) -> CType | None:
        if self.rank:
            return CType(self.base, self.pointers, self.rank - 1)
        return CType(self.base, self.pointers - 1) if self.pointers else None


class Types:
    """Types of expressions in one kernel."""

    def __init__(self, symbols: Mapping[int, ir.Symbol], aliases: dict[str, str]) -> None:
        self._symbols = symbols
        self._aliases = aliases

    def is_reference(self, name: ir.Name) -> bool:
        """Whether a name is another one of something."""
        return name.symbol is not None and self._symbols[name.symbol].reference

    def of(self, expr: ir.Expr) -> CType | None:
        match expr:
            case ir.Name(symbol=int(s)):
                return self._symbol(self._symbols[s])
            case ir.Index(base=b):
                inner = self.of(b)
                return inner.pointee() if inner is not None else None
            case ir.Unary(op="*", operand=x):
                inner = self.of(x)
                return inner.pointee() if inner is not None else None
            case ir.Unary(op="&", operand=x):
                inner = self.of(x)
                return CType(inner.base, inner.pointers + 1) if inner is not None and not inner.rank else None
            case ir.Cast(type_text=t):
                stars = t.count("*")
                return CType(self.base(t.replace("*", " ").replace("&", " ")), stars)
            case ir.Member(base=b, field=f):
                inner = self.of(b)
                if inner is None or inner.pointers or inner.rank or f not in LANES:
                    return None
                lanes = vector_lanes(resolve(inner.base, self._aliases))
                name = resolve(inner.base, self._aliases)
                return CType(name[:-1]) if lanes is not None and LANES.index(f) < lanes else None
            case ir.Binary(op="+" | "-", left=a, right=b):
                left, right = self.of(a), self.of(b)
                if left is not None and (left.pointers or left.rank):
                    return left
                return right if right is not None and (right.pointers or right.rank) else None
            case ir.Call(callee=f, args=(x,)) if f in LOADS:
                inner = self.of(x)
                return inner.pointee() if inner is not None else None
        return None

    def _symbol(self, symbol: ir.Symbol) -> CType | None:
        base = self.base(symbol.type_text)
        if base != "auto":
            if symbol.kind == "param" and symbol.dims and not symbol.reference:
                # `T tile[M][N]` is a pointer to rows: an array of them, whose length is not known.
                return CType(base, symbol.pointers - 1, len(symbol.dims) + 1)
            return CType(base, symbol.pointers, len(symbol.dims))
        kind = self.of(symbol.init) if symbol.init is not None and not symbol.dims else None
        if kind is None or symbol.reference or not kind.rank:
            return kind
        return CType(kind.base, kind.pointers + 1, kind.rank - 1)  # an array decays

    def is_integer(self, kind: CType) -> bool:
        return not kind.pointers and not kind.rank and is_integer(kind.base, self._aliases)

    def base(self, type_text: str) -> str:
        return plain(type_text)

    def bytes_of(self, expr: ir.Expr) -> int | None:
        """Size of the object that an lvalue names; None where unknown."""
        kind = self.of(expr)
        if kind is None or kind.rank:
            return None
        return 8 if kind.pointers else size_of(kind.base, self._aliases)

    def same(self, a: CType | None, b: CType | None) -> bool:
        return (
            a is not None and b is not None and a.pointers == b.pointers and a.rank == b.rank
            and _canonical(resolve(a.base, self._aliases)) == _canonical(resolve(b.base, self._aliases))
        )  # fmt: skip


_SAME = {"int8_t": "signed char", "uint8_t": "unsigned char", "__half": "half", "uint": "unsigned int",
         "unsigned": "unsigned int", "uint32_t": "unsigned int", "int32_t": "int", "nv_bfloat16": "__nv_bfloat16",
         "uchar": "unsigned char", "ushort": "unsigned short", "int16_t": "short", "uint16_t": "unsigned short",
         "__half2": "half2", "std::int8_t": "signed char", "std::uint8_t": "unsigned char"}  # fmt: skip


def _canonical(name: str) -> str:
    return _SAME.get(name, name)


def loads_from(expr: ir.Expr) -> ir.Expr | None:
    """The address argument of ``__ldg(p)`` and its kin; None for anything else."""
    return expr.args[0] if isinstance(expr, ir.Call) and expr.callee in LOADS and len(expr.args) == 1 else None
