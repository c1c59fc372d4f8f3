"""Proof that a copy loop over elements may become a loop over 16-byte vectors.

For a vector of V elements that starts at ``i = V*q``: the target and the source must move by one element when ``i``
moves by one, the target must start at a multiple of V, and the guard must be a conjunction of comparisons each of
which can only turn false as ``i`` grows inside the vector. Whether the *source* address is a multiple of 16 bytes is
left to the run: rows of any length are legal, so the emitted code asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.source import ir
from tilewright.source.affine import Affine, Poly, Q, R
from tilewright.source.constants import Constants
from tilewright.source.expr_types import loads_from
from tilewright.source.kernel import Copy, CopyLoop, Pure, Refusal, SharedArray, Widening

VECTOR_BYTES = 16
Invariant = Callable[[ir.Name], ir.Expr | None]


class Widener:
    """Proves copy loops of one kernel widenable.

    Args:
        invariant: the defining expression of a name that no statement of the loop changes, or None.
        threads: threads of a block, where known.
    """

    def __init__(
        self,
        constants: Constants,
        symbols: Mapping[int, ir.Symbol],
        arrays: Mapping[int, SharedArray],
        invariant: Invariant,
        line: Callable[[int], int],
        block: tuple[int, int, int] | None,
    ) -> None:
        self._constants = constants
        self._symbols = symbols
        self._arrays = arrays
        self._invariant = invariant
        self._line = line
        self._block = block

    def affine(self, loop: CopyLoop | None = None, lanes: int = 1, known: dict[int, Poly] | None = None) -> Affine:
        """The arithmetic of one copy loop, its variable replaced by ``lanes * q + r``."""
        local = dict(known or {})
        busy: set[int] = set()

        def lookup(name: ir.Name) -> Poly | None:
            if name.symbol is None:
                return None
            if loop is not None and name.symbol == loop.var.id:
                return Poly.atom(Q) * Poly.constant(lanes) + Poly.atom(R)
            if name.symbol in local:
                return local[name.symbol]
            expr = self._invariant(name)
            if expr is None or name.symbol in busy:
                return None
            busy.add(name.symbol)
            local[name.symbol] = engine.poly(expr)
            busy.discard(name.symbol)
            return local[name.symbol]

        engine = Affine(self._constants, lookup, lanes)
        return engine

    def trips(self, loop: CopyLoop) -> int | None:
        """The most trips one thread makes: bound over stride, for a loop that starts at or above zero."""
        first, bound, stride = loop.first_value, loop.bound_value, loop.stride_value
        if bound is None or stride is None or stride <= 0:
            return None
        if first is not None:
            return max(0, -(-(bound - first) // stride))
        engine = self.affine()
        return -(-bound // stride) if engine.is_nonnegative(engine.poly(loop.first)) else None

    def covers_block(self, loop: CopyLoop) -> str | Refusal:
        """Whether the threads of the block start at 0 … stride-1, one each; the text of what that takes for granted."""
        engine = self.affine()
        first = engine.poly(loop.first)
        x, y, z = (Poly.atom(f"threadIdx.{d}") for d in "xyz")
        bx, by = Poly.atom("blockDim.x"), Poly.atom("blockDim.y")
        here = self._line(loop.stmt.span.start)
        stride = loop.stride_value
        if stride is None:
            return Refusal(
                "not_contiguous",
                "the stride of the copy loop is not a constant",
                here,
                "make the thread count a constant",
            )
        block = self._block
        if first == x:
            threads = block[0] if block is not None and block[1] == block[2] == 1 else None
            form = "threadIdx.x"
        elif first in (y * bx + x, z * bx * by + y * bx + x):
            threads = block[0] * block[1] * block[2] if block is not None else None
            if block is not None and first == y * bx + x and block[2] != 1:
                threads = None
            form = "the linear thread index"
        elif block is not None and first == y * Poly.constant(block[0]) + x and block[2] == 1:
            threads, form = block[0] * block[1], "the linear thread index"
        else:
            return Refusal("not_contiguous", "the copy loop does not start at the linear thread index", here)
        if block is None:
            return f"a block has {stride} threads, numbered by {form}"
        if threads != stride:
            return Refusal(
                "not_contiguous",
                f"the copy loop strides by {stride}, but a block has {threads or block} threads",
                here,
                "make the stride the number of threads",
            )
        return ""

    def prove(self, loop: CopyLoop) -> Widening | Refusal:
        here = self._line(loop.stmt.span.start)
        copies = [i for i in loop.body if isinstance(i, Copy)]
        if len(copies) != 1 or any(not isinstance(i, Pure | Copy) for i in loop.body):
            return Refusal("not_contiguous", "the copy loop does more than one copy", here)
        copy = copies[0]
        if copy.converts:
            return Refusal("converts_type", "the copy changes the type of its elements", here)
        lanes = VECTOR_BYTES // copy.width_bytes
        if copy.width_bytes >= VECTOR_BYTES or VECTOR_BYTES % copy.width_bytes or loop.body[-1] is not copy:
            return Refusal("not_contiguous", "the copy loop does not move single elements", here)
        if loop.bound_value is None or loop.bound_value % lanes:
            return Refusal("not_contiguous", f"the tile's {loop.bound_value} elements are no multiple of {lanes}", here)
        covered = self.covers_block(loop)
        if isinstance(covered, Refusal):
            return covered
        known: dict[int, Poly] = {}
        engine = self.affine(loop, lanes, known)
        for item in loop.body:
            if isinstance(item, Pure):
                for s in item.stmt.symbols:
                    if s.init is None or s.pointers:
                        return Refusal("not_contiguous", f"`{s.name}` is not an index", here)
                    known[s.id] = engine.poly(s.init)
        engine = self.affine(loop, lanes, known)
        problem = self._addresses(copy, engine, lanes)
        if problem:
            return Refusal("not_contiguous", problem, self._line(copy.stmt.span.start))
        if copy.inverted:
            return Refusal("not_contiguous", "the guard is true where nothing is copied", here)
        guard = self._guard(copy.guard, engine)
        if guard is None:
            return Refusal("not_contiguous", "the guard is no conjunction of `index < bound`", here)
        return Widening(lanes, guard)

    def _addresses(self, copy: Copy, engine: Affine, lanes: int) -> str:
        target = self.flat_target(copy.target, engine)
        if target is None:
            return "the place in shared memory is no plain index of the array"
        if target.factor_of(R) != 1:
            return "neighbouring elements are not neighbours in shared memory"
        if not target.without(R).multiple_of(lanes):
            return f"vectors of {lanes} elements are not aligned in shared memory: pad rows to a multiple of {lanes}"
        source = self.flat_source(copy.source, engine)
        if source is None:
            return "the place in global memory is no plain index of a pointer"
        if source.factor_of(R) != 1:
            return "neighbouring elements are not neighbours in global memory"
        return ""

    def flat_target(self, target: ir.Expr, engine: Affine) -> Poly | None:
        """Element offset inside the shared array of ``S[a][b]…``."""
        indices: list[ir.Expr] = []
        while isinstance(target, ir.Index):
            indices.append(target.index)
            target = target.base
        array = self._arrays.get(target.symbol) if isinstance(target, ir.Name) and target.symbol is not None else None
        if array is None:
            return None
        dims = array.dims
        if len(indices) != len(dims):
            return None
        out, pitch = Poly.constant(0), 1
        for index, dim in zip(indices, reversed(dims), strict=True):
            out = out + engine.poly(index) * Poly.constant(pitch)
            pitch *= dim
        return out

    def flat_source(self, source: ir.Expr, engine: Affine) -> Poly | None:
        """Element offset from the pointer of ``p[i]``, ``*(p + i)``, ``__ldg(&p[i])``."""
        address = loads_from(source)
        if address is not None:
            if isinstance(address, ir.Unary) and address.op == "&":
                return self.flat_source(address.operand, engine)
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

    def _guard(self, guard: ir.Expr | None, engine: Affine) -> tuple[tuple[ir.Span, int], ...] | None:
        """How far each comparison's left side moves over a vector, as (span of the left side, factor of r)."""
        if guard is None:
            return ()
        if isinstance(guard, ir.Binary) and guard.op == "&&":
            left, right = self._guard(guard.left, engine), self._guard(guard.right, engine)
            return None if left is None or right is None else left + right
        if isinstance(guard, ir.Binary) and guard.op in ("<", "<=", ">", ">="):
            small, large = (guard.left, guard.right) if guard.op in ("<", "<=") else (guard.right, guard.left)
            low, high = engine.poly(small).factor_of(R), engine.poly(large).factor_of(R)
            if low is None or high != 0 or low < 0:
                return None
            return ((small.span, low),) if low else ()
        return None
