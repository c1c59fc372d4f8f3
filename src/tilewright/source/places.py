"""Where an lvalue lives: in a register, in shared or in global memory. What is not certain is ``unknown``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.source import intrinsics, ir
from tilewright.source.c_types import resolve
from tilewright.source.expr_types import Types
from tilewright.source.integer_types import BUILTINS

Space = Literal["local", "shared", "global", "param", "unknown"]


@dataclass(frozen=True)
class Place:
    """``param``: behind a pointer or reference that a ``__device__`` function was given.

    ``symbol``: the variable, array or pointer that the place hangs on; None where that is not one name.
    """

    space: Space
    symbol: int | None


_FRAGMENT = re.compile(r"^(?:nvcuda::)?(?:wmma::)?fragment\s*<")
UNKNOWN = Place("unknown", None)


class Places:
    """Places in one function.

    Args:
        body: the function's statements, for what its pointers are assigned.
        kernel: whether pointer parameters are a kernel's own, and so point into global memory.
        changes_argument: whether a call may change its argument number i itself (not what that points to).
    """

    def __init__(
        self,
        symbols: Mapping[int, ir.Symbol],
        body: Iterable[ir.Stmt | ir.Expr],
        kernel: bool,
        changes_argument: Callable[[ir.Call, int], bool],
        aliases: dict[str, str],
    ) -> None:
        self._symbols = symbols
        self._aliases = aliases
        self._types = Types(symbols, aliases)
        self._kernel = kernel
        self._assigned: dict[int, list[ir.Expr]] = {}
        self._tainted: set[int] = set()  # pointers that may be changed in ways that are not followed
        self._busy: set[int] = set()
        for stmt in body:
            for node in ir.walk(stmt):
                self._note(node, changes_argument)

    def _note(self, node: ir.Stmt | ir.Expr, changes_argument: Callable[[ir.Call, int], bool]) -> None:
        match node:
            case ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=value):
                self._assigned.setdefault(s, []).append(value)
            case ir.Unary(op="&", operand=ir.Name(symbol=int(s))):
                self._tainted.add(s)
            case ir.Asm(outputs=outputs):
                self._tainted |= {e.symbol for _, e in outputs if isinstance(e, ir.Name) and e.symbol is not None}
            case ir.Declare(symbols=symbols):
                for one in symbols:
                    if one.reference and isinstance(one.init, ir.Name) and one.init.symbol is not None:
                        self._tainted.add(one.init.symbol)
            case ir.Call(args=args):
                for i, arg in enumerate(args):
                    if isinstance(arg, ir.Name) and arg.symbol is not None and changes_argument(node, i):
                        self._tainted.add(arg.symbol)

    def of(self, expr: ir.Expr) -> Place:
        """The place that an lvalue names."""
        match expr:
            case ir.Name(symbol=None):
                return UNKNOWN  # a variable outside the function
            case ir.Name(symbol=int(s)):
                return self._named(self._symbols[s])
            case ir.Index(base=b):
                kind = self._kind(b)
                return self.of(b) if kind in ("array", "fragment") else self.at(b) if kind == "pointer" else UNKNOWN
            case ir.Member(base=ir.Name(id=base, symbol=None)) if base in BUILTINS:
                return Place("local", None)  # threadIdx.x is a register
            case ir.Member(base=b, arrow=arrow):
                return self.at(b) if arrow else self.of(b)
            case ir.Unary(op="*", operand=x):
                return self.at(x)
            case ir.Unary(op="++" | "--", operand=x):
                return self.of(x)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                return self.of(x)
            case ir.Ternary(then=a, otherwise=b):
                one, two = self.of(a), self.of(b)
                return _either(one, two)
        return UNKNOWN

    def at(self, address: ir.Expr) -> Place:
        """The place that an address points to."""
        match address:
            case ir.Name(symbol=int(s)):
                symbol = self._symbols[s]
                if symbol.dims:
                    return self._named(symbol)
                return self.pointee(symbol) if self._kind(address) == "pointer" else UNKNOWN
            case ir.Unary(op="&", operand=x):
                return self.of(x)
            case ir.Cast(type_text=t, operand=x) if "*" in t:
                return self.at(x)
            case ir.Binary(op="+" | "-", left=a, right=b):
                return self.at(a if self._kind(a) in ("array", "pointer") else b)
            case ir.Unary(op="++" | "--" | "p++" | "p--", operand=x):
                return self.at(x)
            case ir.Index() if self._kind(address) == "array":
                return self.of(address)
            case ir.Ternary(then=a, otherwise=b):
                one, two = self.at(a), self.at(b)
                return _either(one, two)
        return UNKNOWN

    def loaded(self, node: ir.Stmt | ir.Expr) -> list[Place]:
        """What inline PTX, or a function of CUDA's own, reads behind the addresses that it is given."""
        match node:
            case ir.Asm(code=code, inputs=inputs) if intrinsics.asm_reads(code):
                found = [(constraint, self.at(e)) for constraint, e in inputs]
                # 64 bits may be an address, whatever their type; 32 bits reach shared memory only.
                return [p for constraint, p in found if p.space != "unknown" or "l" in constraint]
            case ir.Call(callee=c, args=args) if c in intrinsics.LOADS:
                return [self.at(a) for a in args]
            case ir.Call(callee=c, args=(_, source, *_)) if c.split("<")[0].split("::")[-1] == "load_matrix_sync":
                return [self.at(source)]
        return []

    def pointee(self, symbol: ir.Symbol) -> Place:
        """Where a pointer points, over its initialiser and everything it is assigned."""
        if symbol.id in self._tainted:
            return UNKNOWN
        if symbol.id in self._busy:
            return Place("unknown", symbol.id)  # only itself: says nothing
        sources = [] if symbol.init is None else [symbol.init]
        sources += self._assigned.get(symbol.id, [])
        found = {Place("global" if self._kernel else "param", symbol.id)} if symbol.kind == "param" else set()
        self._busy.add(symbol.id)
        try:
            found |= {p for e in sources if (p := self.at(e)) != Place("unknown", symbol.id)}
        finally:
            self._busy.discard(symbol.id)
        spaces = {p.space for p in found}
        if len(spaces) != 1:
            return UNKNOWN
        return next(iter(found)) if len(found) == 1 else Place(spaces.pop(), None)

    def _named(self, symbol: ir.Symbol) -> Place:
        if symbol.kind == "shared":
            return Place("shared", symbol.id)
        if symbol.kind == "param" and symbol.dims and not symbol.reference:
            return self.pointee(symbol)  # an array parameter is a pointer to rows
        if not symbol.reference:
            # A static variable is memory that outlives the call, and that all threads share.
            static = symbol.kind == "local" and "static" in symbol.type_text.split()
            return UNKNOWN if static else Place("local", symbol.id)
        if symbol.kind == "param":
            return Place("param", symbol.id)
        if symbol.init is None or symbol.id in self._busy:
            return UNKNOWN
        self._busy.add(symbol.id)
        try:
            return self.of(symbol.init)
        finally:
            self._busy.discard(symbol.id)

    def _kind(self, expr: ir.Expr) -> Literal["array", "pointer", "fragment", "object"]:
        if isinstance(expr, ir.Member) and not expr.arrow:
            return "fragment" if self._kind(expr.base) == "fragment" else "object"
        kind = self._types.of(expr)
        if kind is None:
            return "object"
        if kind.rank:
            return "array"
        if kind.pointers:
            return "pointer"
        return "fragment" if _FRAGMENT.match(resolve(kind.base, self._aliases)) else "object"


def _either(one: Place, two: Place) -> Place:
    """One place or the other: of what both are."""
    return one if one == two else Place(one.space, None) if one.space == two.space else UNKNOWN


def root(expr: ir.Expr) -> ir.Name | None:
    """The name that an lvalue or address hangs on: ``*(int4*)&As[r][c]`` → ``As``; None where it isn't one name."""
    match expr:
        case ir.Name():
            return expr
        case ir.Index(base=b) | ir.Member(base=b) | ir.Cast(operand=b):
            return root(b)
        case ir.Unary(op="*" | "&", operand=b):
            return root(b)
        case ir.Binary(op="+" | "-", left=a, right=b):
            left = root(a)
            return left if left is not None else root(b)
    return None
