"""Addresses that outlive the statements they are taken in.

The address of a tile is good for its own iteration only: the next tile is in another stage. So no pointer, and no
integer made from one, may be kept. Data that is loaded through an address is no address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.source import intrinsics, ir
from tilewright.source.c_types import int_kind, size_of
from tilewright.source.effects import DeviceFunction, short_name
from tilewright.source.expr_types import Types
from tilewright.source.places import root


@dataclass(frozen=True)
class Leak:
    """``symbol``: the variable that keeps the address; None where it is returned or stored to memory."""

    symbol: int | None
    span: ir.Span


class Leaks:
    """Follows addresses through the names that some statements declare.

    Args:
        origins: arrays and pointers whose addresses count.
        inner: names that end with the statements.
        holders: names that hold an address from the start.
    """

    def __init__(
        self,
        symbols: Mapping[int, ir.Symbol],
        functions: Mapping[str, DeviceFunction],
        types: Types,
        aliases: dict[str, str],
        origins: set[int],
        inner: set[int],
        holders: frozenset[int] = frozenset(),
    ) -> None:
        self._symbols = symbols
        self._functions = functions
        self._types = types
        self._aliases = aliases
        self._origins = origins
        self._inner = inner
        self._holders: set[int] = set(holders)

    def find(self, statements: Iterable[ir.Stmt]) -> Leak | None:
        """The first address that leaves; None where none does."""
        body = list(statements)
        while True:
            before = len(self._holders)
            leak = next((x for s in body for n in ir.walk(s) if (x := self._leak(n)) is not None), None)
            if leak is not None or len(self._holders) == before:
                return leak

    @property
    def holders(self) -> frozenset[int]:
        """Names that hold an address; complete behind :meth:`find`."""
        return frozenset(self._holders)

    def swizzle(self, statements: Iterable[ir.Stmt]) -> ir.Span | None:
        """Where an address is XORed with something: that assumes how the array is aligned."""
        body = list(statements)
        self.find(body)
        for node in (n for s in body for n in ir.walk(s)):
            match node:
                case ir.Binary(op="^", left=a, right=b) | ir.Assign(op="^=", left=a, right=b):
                    if self.carries(a) or self.carries(b):
                        return node.span
                case ir.Call(args=args):
                    function = self._functions.get(short_name(node.callee))
                    if function is not None and any(self.carries(args[i]) for i in function.xored if i < len(args)):
                        return node.span
                case ir.Asm(inputs=inputs, code=code):
                    xors = any(x.startswith(("xor", "lop3")) for x in intrinsics.asm_instructions(code))
                    if xors and any(self.carries(e) for _, e in inputs):
                        return node.span
        return None

    def _leak(self, node: ir.Stmt | ir.Expr) -> Leak | None:
        match node:
            case ir.Declare(symbols=symbols):
                for s in symbols:
                    if s.init is not None and self.carries(s.init):
                        self._holders.add(s.id)
            case ir.Assign(left=left, right=right) if self.carries(right):
                return self._kept(left, node.span)
            case ir.Jump(kind="return", value=value) if value is not None and self.carries(value):
                return Leak(None, node.span)
            case ir.Asm(outputs=outputs, inputs=inputs, code=code):
                data = all(intrinsics.asm_kind(x) == "loads" for x in intrinsics.asm_instructions(code))
                if not data and any(self.carries(e) for _, e in inputs):
                    return next((x for _, e in outputs if (x := self._kept(e, node.span)) is not None), None)
            case ir.Call():
                return self._passed(node)
        return None

    def _passed(self, call: ir.Call) -> Leak | None:
        function = self._functions.get(short_name(call.callee))
        if function is None or not any(i in function.leaked and self.carries(a) for i, a in enumerate(call.args)):
            return None
        kept = (self._kept(a, call.span) for i, a in enumerate(call.args) if i in function.stored)
        return next((x for x in kept if x is not None), None)

    def _kept(self, target: ir.Expr, span: ir.Span) -> Leak | None:
        name = root(target)
        if name is None or name.symbol is None:
            return Leak(None, span)
        if name.symbol in self._inner:
            self._holders.add(name.symbol)
            return None
        return Leak(name.symbol, span) if self._can_hold(self._symbols[name.symbol]) else None

    def _can_hold(self, symbol: ir.Symbol) -> bool:
        """Whether a variable can hold an address: pointers, wide integers, and types that are not known."""
        if symbol.pointers or symbol.reference:
            return True
        kind = int_kind(symbol.type_text, self._aliases)
        if kind is not None:
            return kind.bits >= 32
        return size_of(symbol.type_text, self._aliases) is None and "fragment" not in symbol.type_text

    def carries(self, expr: ir.Expr) -> bool:
        """Whether the value of an expression may be (made from) an address of an origin."""
        match expr:
            case ir.Name(symbol=int(s)):
                symbol = self._symbols[s]
                return s in self._holders or (s in self._origins and bool(symbol.pointers or symbol.dims))
            case ir.Unary(op="&", operand=x) if (name := root(x)) is not None and name.symbol in self._origins:
                return True
            case ir.Index(base=b, index=i):
                return not self._is_data(expr) and (self.carries(b) or self.carries(i))
            case ir.Unary(op="*", operand=x):
                return not self._is_data(expr) and self.carries(x)
            case ir.Call(callee=c) if c in intrinsics.LOADS:
                return False
            case ir.Call(args=args):
                function = self._functions.get(short_name(expr.callee))
                out = range(len(args)) if function is None else function.leaked
                return any(self.carries(args[i]) for i in out if i < len(args))
        return any(self.carries(c) for c in ir.children(expr) if isinstance(c, ir.Expr))

    def _is_data(self, expr: ir.Expr) -> bool:
        kind = self._types.of(expr)
        return kind is not None and not kind.rank and not kind.pointers
