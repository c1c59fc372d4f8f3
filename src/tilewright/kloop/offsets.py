"""Where copies read and write, as polynomials: offsets inside a shared array, or from a pointer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.kloop.affine import Affine, Poly
from tilewright.kloop.kernel import CopyLoop, Pure, SharedArray
from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.constants import Constants
from tilewright.source.expr_types import Types, loads_from

Fixed = Callable[[ir.Name], ir.Expr | None]


class Offsets:
    """Offsets in one kernel.

    Args:
        fixed: the defining expression of a name that means the same all through an iteration, or None.
    """

    def __init__(self, constants: Constants, types: Types, arrays: Mapping[int, SharedArray], fixed: Fixed) -> None:
        self.constants = constants
        self.fixed = fixed
        self._types = types
        self._arrays = arrays
        self._nonnegative: set[str] = set()

    def engine(self, variables: Mapping[int, Poly] | None = None, lanes: int = 1) -> Affine:
        """Arithmetic in which some variables stand for polynomials; locals are followed to their initialisers."""
        local = dict(variables or {})
        busy: set[int] = set()

        def lookup(name: ir.Name) -> Poly | None:
            if name.symbol is None:
                return None
            if name.symbol in local:
                return local[name.symbol]
            expr = self.fixed(name)
            if expr is None or name.symbol in busy:
                return None
            busy.add(name.symbol)
            local[name.symbol] = engine.poly(expr)
            busy.discard(name.symbol)
            return local[name.symbol]

        engine = Affine(self.constants, lookup, lanes, self._nonnegative)
        return engine

    def engine_in(self, loop: CopyLoop, variable: Poly, lanes: int = 1) -> Affine | None:
        """The arithmetic inside a copy loop whose variable is ``variable``; None where a local is no plain index."""
        variables = {loop.var.id: variable}
        engine = self.engine(variables, lanes)
        for item in loop.body:
            for s in item.stmt.symbols if isinstance(item, Pure) else ():
                if s.init is None or s.pointers or s.dims or s.reference or not self.constants.is_index(s.type_text):
                    return None
                variables[s.id] = engine.poly(s.init)
                engine = self.engine(variables, lanes)
        return engine

    def locals_of(self, loop: CopyLoop) -> dict[int, ir.Expr]:
        """The initialisers of the indices that a copy loop computes."""
        return {
            s.id: s.init
            for item in loop.body
            if isinstance(item, Pure)
            for s in item.stmt.symbols
            if s.init is not None and not s.pointers and self.constants.is_index(s.type_text)
        }

    # -- shared memory ------------------------------------------------------------------------------
    def element(self, target: ir.Expr) -> tuple[SharedArray, list[ir.Expr]] | None:
        """The array and its indices, innermost first, of ``S[a][b]…`` written out in full."""
        indices: list[ir.Expr] = []
        while isinstance(target, ir.Index):
            indices.append(target.index)
            target = target.base
        array = self._arrays.get(target.symbol) if isinstance(target, ir.Name) and target.symbol is not None else None
        return (array, indices) if array is not None and len(indices) == len(array.dims) else None

    def bytes_into(self, target: ir.Expr, engine: Affine) -> Poly | None:
        """Byte offset of an lvalue inside its shared array, casts included; None where it is no plain address."""
        found = self.element(target)
        if found is not None:
            array, indices = found
            out, pitch = Poly.constant(0), array.element_bytes
            for index, dim in zip(indices, reversed(array.dims), strict=True):
                out = out + engine.poly(index) * Poly.constant(pitch)
                pitch *= dim
            return out
        match target:
            case ir.Unary(op="*", operand=x):
                return self._bytes_at(x, engine)
            case ir.Index(base=b, index=i):
                return self._plus(self._bytes_at(b, engine), i, b, engine)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                return self.bytes_into(x, engine)
        return None

    def _bytes_at(self, address: ir.Expr, engine: Affine) -> Poly | None:
        match address:
            case ir.Name(symbol=int(s)) if s in self._arrays:
                return Poly.constant(0)
            case ir.Unary(op="&", operand=x):
                return self.bytes_into(x, engine)
            case ir.Cast(type_text=t, operand=x) if "*" in t:
                return self._bytes_at(x, engine)
            case ir.Binary(op="+", left=a, right=b):
                return self._plus(self._bytes_at(a, engine), b, a, engine)
        return None

    def _plus(self, base: Poly | None, count: ir.Expr, pointer: ir.Expr, engine: Affine) -> Poly | None:
        """``pointer + count`` in bytes, for a pointer to scalars or vectors."""
        kind = self._types.of(pointer)
        to = kind.pointee() if kind is not None else None
        size = size_of(to.base, self.constants.aliases) if to is not None and not to.rank and not to.pointers else None
        return None if base is None or size is None else base + engine.poly(count) * Poly.constant(size)

    # -- global memory ------------------------------------------------------------------------------
    def from_pointer(self, source: ir.Expr, engine: Affine) -> Poly | None:
        """Element offset from the pointer of ``p[i]``, ``*(p + i)``, ``__ldg(&p[i])``."""
        address = loads_from(source)
        if address is not None:
            if isinstance(address, ir.Unary) and address.op == "&":
                return self.from_pointer(address.operand, engine)
            return self._pointer_offset(address, engine)
        match source:
            case ir.Index(base=b, index=i):
                base = self._pointer_offset(b, engine)
                return None if base is None else base + engine.poly(i)
            case ir.Unary(op="*", operand=p):
                return self._pointer_offset(p, engine)
        return None

    def _pointer_offset(self, pointer: ir.Expr, engine: Affine) -> Poly | None:
        match pointer:
            case ir.Name(symbol=int()):
                return Poly.constant(0)
            case ir.Binary(op="+", left=a, right=b):
                base = self._pointer_offset(a, engine)
                return None if base is None else base + engine.poly(b)
            case ir.Binary(op="-", left=a, right=b):
                base = self._pointer_offset(a, engine)
                return None if base is None else base - engine.poly(b)
        return None
