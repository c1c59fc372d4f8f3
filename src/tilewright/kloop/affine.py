"""Index arithmetic as polynomials, to prove that neighbouring elements stay neighbours.

A vector of V elements starts at ``i = V*q`` (q ≥ 0) and its elements are ``i = V*q + r``, 0 ≤ r < V. Every index is
written as a polynomial over atoms (names, or divisions that do not simplify), with ``r`` as one of them. An address
is contiguous where ``r`` stands in it alone, with factor 1; it is aligned where every other factor is a multiple of V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.source import ir
from tilewright.source.c_types import is_integer, size_of
from tilewright.source.constants import Constants
from tilewright.source.integer_types import BUILTINS

Monomial = tuple[str, ...]
R = "·r"  # no C++ name can be this
Q = "·q"
P = "·p"  # the pass of a copy loop


@dataclass(frozen=True)
class Poly:
    """Σ factor · product of atoms. ``known`` atoms are listed in ``nonnegative`` where they cannot be below zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def make(terms: Mapping[Monomial, int]) -> Poly:
        return Poly(tuple(sorted((m, c) for m, c in terms.items() if c)))

    @staticmethod
    def constant(value: int) -> Poly:
        return Poly.make({(): value})

    @staticmethod
    def atom(name: str) -> Poly:
        return Poly.make({(name,): 1})

    def as_dict(self) -> dict[Monomial, int]:
        return dict(self.terms)

    def constant_value(self) -> int | None:
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == () else None

    def __add__(self, other: Poly) -> Poly:
        out = self.as_dict()
        for m, c in other.terms:
            out[m] = out.get(m, 0) + c
        return Poly.make(out)

    def __neg__(self) -> Poly:
        return Poly.make({m: -c for m, c in self.terms})

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def __mul__(self, other: Poly) -> Poly:
        out: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                key = tuple(sorted((*m, *n)))
                out[key] = out.get(key, 0) + c * d
        return Poly.make(out)

    def factor_of(self, atom: str) -> int | None:
        """The constant factor of ``atom``; None where it is multiplied, or hidden in another atom."""
        factor = 0
        for m, c in self.terms:
            if any(atom in a for a in m):  # as text: a division that did not simplify holds it in its name
                if m != (atom,):
                    return None
                factor = c
        return factor

    def without(self, atom: str) -> Poly:
        return Poly.make({m: c for m, c in self.terms if atom not in m})

    def multiple_of(self, v: int) -> bool:
        return all(c % v == 0 for _, c in self.terms)

    def text(self) -> str:
        return " + ".join(f"{c}*{'*'.join(m)}" if m else str(c) for m, c in self.terms) or "0"


class Affine:
    """Turns index expressions into polynomials.

    Args:
        lookup: a symbol's polynomial where it is known (a local of the load phase, a loop variable), else None.
        nonnegative: atoms that cannot be below zero; arithmetics of one iteration share the set.
        lanes: V, the elements of one vector, or 1.
    """

    def __init__(
        self,
        constants: Constants,
        lookup: Callable[[ir.Name], Poly | None],
        lanes: int = 1,
        nonnegative: set[str] | None = None,
    ) -> None:
        self._constants = constants
        self._lookup = lookup
        self._lanes = lanes
        self.nonnegative: set[str] = set() if nonnegative is None else nonnegative
        self.nonnegative |= {Q, R, P}

    def poly(self, expr: ir.Expr) -> Poly:
        value = self._constants.evaluate(expr)
        if value is not None:
            return Poly.constant(value)
        match expr:
            case ir.Number(value=float()):
                return Poly.atom(f"<{expr.text}{R}>")  # no index arithmetic: nothing is proved of it
            case ir.Name():
                known = self._lookup(expr)
                return known if known is not None else Poly.atom(_key(expr))
            case ir.Cast(type_text=t, operand=x) if (
                is_integer(t, self._constants.aliases) and (size_of(t, self._constants.aliases) or 0) >= 4
            ):
                return self.poly(x)
            case ir.Unary(op="-", operand=x):
                return -self.poly(x)
            case ir.Unary(op="+", operand=x):
                return self.poly(x)
            case ir.Binary(op="+", left=a, right=b):
                return self.poly(a) + self.poly(b)
            case ir.Binary(op="-", left=a, right=b):
                return self.poly(a) - self.poly(b)
            case ir.Binary(op="*", left=a, right=b):
                return self.poly(a) * self.poly(b)
            case ir.Binary(op=("/" | "%" | ">>" | "&" | "<<") as op, left=a, right=b):
                return self._divided(op, self.poly(a), self.poly(b))
            case ir.Member(base=ir.Name(id=base), field=f) if base in BUILTINS:
                name = f"{base}.{f}"
                self.nonnegative.add(name)
                return Poly.atom(name)
        # Anything else is an atom of its own; one that could change inside a vector, or from pass to pass, says so.
        inner = [p for n in ir.walk(expr) if isinstance(n, ir.Name) and (p := self._lookup(n)) is not None]
        moving = "".join(x for x in (P, Q, R) if any(x in a for p in inner for m, _ in p.terms for a in m))
        # Inside a macro many expressions have one span.
        place = f"{expr.span.start}:{expr.span.end}" + (f":{id(expr)}" if expr.span.within else "")
        return Poly.atom(f"<{type(expr).__name__}@{place}{moving}>")

    def is_nonnegative(self, poly: Poly) -> bool:
        return all(c >= 0 and all(a in self.nonnegative for a in m) for m, c in poly.terms)

    def _divided(self, op: str, left: Poly, right: Poly) -> Poly:
        c = right.constant_value()
        if c is not None and op == "<<" and 0 <= c < 31:
            return left * Poly.constant(1 << c)
        if c is not None and op == ">>" and 0 <= c < 31:
            op, c = "/", 1 << c
        if c is not None and op == "&" and c >= 0 and (c + 1) & c == 0:
            op, c = "%", c + 1
        if c is None or c <= 0 or op not in ("/", "%") or not self.is_nonnegative(left):
            atom = f"({left.text()} {op} {right.text()})"
            return Poly.atom(atom)
        return self._divide_by(op, left, c)

    def _divide_by(self, op: str, left: Poly, c: int) -> Poly:
        """``left / c`` or ``left % c`` for left ≥ 0, splitting off what is exact."""
        exact = Poly.make({m: k for m, k in left.terms if k % c == 0})
        rest = left - exact
        lanes = self._lanes
        r = rest.factor_of(R)
        base = rest.without(R)
        # V*P + r with V | c: the r of one vector never carries into the quotient.
        if lanes > 1 and r == 1 and c % lanes == 0 and base.multiple_of(lanes):
            scaled = Poly.make({m: k // lanes for m, k in base.terms})
            inner = self._divide_by(op, scaled, c // lanes) if scaled.terms else Poly.constant(0)
            if op == "/":
                return Poly.make({m: k // c for m, k in exact.terms}) + inner
            return inner * Poly.constant(lanes) + Poly.atom(R)
        value = rest.constant_value()
        if value is not None:
            small = Poly.constant(value // c if op == "/" else value % c)
        else:
            name = f"({rest.text()} {op} {c})"
            self.nonnegative.add(name)
            small = Poly.atom(name)
        return Poly.make({m: k // c for m, k in exact.terms}) + small if op == "/" else small


def _key(name: ir.Name) -> str:
    return f"{name.id}#{name.symbol}" if name.symbol is not None else name.id
