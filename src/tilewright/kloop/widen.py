"""Proof that a copy loop over elements may become a loop over 16-byte vectors.

The vectors are dealt to the threads anew, so what is copied may depend on the loop's variable and on values that all
threads share, but not on the thread. For a vector of V elements that starts at ``i = V*q``: the target and the source
must move by one element when ``i`` moves by one, the target must start at a multiple of V, and the guard must be a
conjunction of comparisons each of which can only turn false as ``i`` grows inside the vector. Whether the *source*
address is a multiple of 16 bytes is left to the run: rows of any length are legal, so the emitted code asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.kloop.affine import Affine, Poly, Q, R
from tilewright.kloop.concrete import Concrete
from tilewright.kloop.kernel import Copy, CopyLoop, Moving, Pure, Refusal, Widening
from tilewright.kloop.loops import counted_header
from tilewright.kloop.offsets import Offsets
from tilewright.kloop.uniform import Uniformity
from tilewright.source import ir
from tilewright.source.c_types import int_kind

VECTOR_BYTES = 16
_LARGEST = (1 << 31) - 1


class Widener:
    """Proves copy loops of one kernel widenable.

    Args:
        line: line of a byte offset.
        block: threads of a block per dimension, where known.
    """

    def __init__(
        self,
        offsets: Offsets,
        symbols: Mapping[int, ir.Symbol],
        uniformity: Uniformity,
        line: Callable[[int], int],
        block: tuple[int, int, int] | None,
    ) -> None:
        self.offsets = offsets
        self._symbols = symbols
        self._uniformity = uniformity
        self._line = line
        self._block = block

    def evaluated(self, loop: CopyLoop) -> CopyLoop:
        """The loop with the values that follow from locals which never change."""
        bound, stride = loop.bound_value, loop.stride_value
        return replace(
            loop,
            bound_value=self._number(loop.bound) if bound is None else bound,
            stride_value=self._number(loop.stride) if stride is None else stride,
        )

    def _number(self, expr: ir.Expr) -> int | None:
        if self._on_a_parameter(expr, 0):
            return None  # even where it drops out: the compiler takes no such text for a constant
        value = self.offsets.engine().poly(expr).constant_value()
        return value if value is not None and 0 <= value <= _LARGEST else None

    def _on_a_parameter(self, expr: ir.Expr, depth: int) -> bool:
        for name in (n for n in ir.walk(expr) if isinstance(n, ir.Name) and n.symbol is not None):
            symbol = self._symbols[name.symbol] if name.symbol is not None else None
            if symbol is None or symbol.kind == "param" or depth > 16:
                return True
            if symbol.init is not None and self._on_a_parameter(symbol.init, depth + 1):
                return True
        return False

    def trips(self, loop: CopyLoop) -> int | None:
        """The most trips one thread makes: bound over stride, for a loop that starts at or above zero."""
        first, bound, stride = loop.first_value, loop.bound_value, loop.stride_value
        if bound is None or stride is None or stride <= 0:
            return None
        if first is not None:
            return max(0, -(-(bound - first) // stride))
        engine = self.offsets.engine()
        return max(0, -(-bound // stride)) if engine.is_nonnegative(engine.poly(loop.first)) else None

    def passes(self, stmt: ir.For) -> int | None:
        """The most trips of any counted loop, without the size of the block."""
        header = counted_header(stmt)
        if header is None:
            return None
        parts = (header.first, header.bound, header.step)
        first, bound, stride = (self.offsets.constants.evaluate(e) for e in parts)
        return self.trips(CopyLoop(stmt, header.var, *parts, first, bound, stride, ()))

    def covers_block(self, loop: CopyLoop) -> str | Refusal:
        """Whether the threads of the block start at 0 … stride-1, one each; the text of what that takes for granted."""
        first = self.offsets.engine().poly(loop.first)
        x, y, z = (Poly.atom(f"threadIdx.{d}") for d in "xyz")
        bx, by = Poly.atom("blockDim.x"), Poly.atom("blockDim.y")
        here = self._line(loop.stmt.span.start)
        stride, block = loop.stride_value, self._block
        if stride is None:
            hint = "make the thread count a constant"
            return Refusal("not_contiguous", "the stride of the copy loop is not a constant", here, hint)
        form, threads = "the linear thread index", block[0] * block[1] * block[2] if block is not None else None
        if first == x:
            form = "threadIdx.x"
            threads = None if block is None or block[1:] != (1, 1) else block[0]
        elif first == y * bx + x or (block is not None and first == y * Poly.constant(block[0]) + x):
            threads = None if block is None or block[2] != 1 else threads
        elif first != z * bx * by + y * bx + x:
            return Refusal("not_contiguous", "the copy loop does not start at the linear thread index", here)
        if block is None:
            return f"a block has {stride} threads, numbered by {form}"
        if threads != stride:
            what = f"the copy loop strides by {stride}, but a block has {threads or block} threads"
            return Refusal("not_contiguous", what, here, "make the stride the number of threads")
        return ""

    def converting(self, loop: CopyLoop) -> CopyLoop | Refusal | None:
        """A loop whose copies convert, with copies of what they load in their place, and that widened.

        The elements of a vector are converted one by one, by the same steps. None where no copy converts.
        """
        if not any(isinstance(i, Copy) and i.converts for i in loop.body):
            return None
        body = tuple(_unconverted(i) if isinstance(i, Copy) else i for i in loop.body)
        odd = next((i for i in body if isinstance(i, Copy) and i.converts), None)
        if odd is not None:
            here = self._line(odd.stmt.span.start)
            what = "the copy changes its elements on the way, by more than a known conversion of each"
            return Refusal("converts_type", what, here)
        proven = self.prove(replace(loop, body=body))
        return proven if isinstance(proven, Refusal) else replace(loop, body=body, widening=proven)

    def prove(self, loop: CopyLoop) -> Widening | Refusal:
        here = self._line(loop.stmt.span.start)
        copies = [i for i in loop.body if isinstance(i, Copy)]
        if not copies or len({_loaded_bytes(c) for c in copies}) != 1 or len({c.array for c in copies}) != len(copies):
            return Refusal("not_contiguous", "the copy loop does more than copies of one width, one an array", here)
        if any(not isinstance(i, Pure | Copy) for i in loop.body):
            return Refusal("not_contiguous", "the copy loop does more than copies", here)
        width = _loaded_bytes(copies[0])
        if any(c.converts for c in copies):
            return Refusal("converts_type", "the copy changes its elements on the way", here)
        lanes = VECTOR_BYTES // width if VECTOR_BYTES % width == 0 else 0
        if lanes < 2 or loop.stmt.header.within:
            return Refusal("not_contiguous", "the copy loop does not move single elements", here)
        if loop.bound_value is None or loop.bound_value <= 0 or loop.bound_value % lanes:
            return Refusal("not_contiguous", f"the tile's {loop.bound_value} elements are no multiple of {lanes}", here)
        if not self.offsets.constants.is_index(loop.var.type_text):
            return Refusal("not_contiguous", f"the copy loop counts in `{loop.var.type_text}`", here)
        covered = self.covers_block(loop)
        if isinstance(covered, Refusal):
            return covered
        engine = self.offsets.engine_in(loop, Poly.atom(Q) * Poly.constant(lanes) + Poly.atom(R), lanes)
        if engine is None:
            return Refusal("not_contiguous", "the copy loop computes something that is no plain index", here)
        guards: tuple[Moving, ...] = ()
        for copy in copies:
            problem = (
                self._thread_dependent(loop, copy)
                or self._addresses(copy, engine, lanes)
                or self._places(loop, copy, lanes)
            )
            if problem:
                return Refusal("not_contiguous", problem, self._line(copy.stmt.span.start))
            if copy.inverted:
                return Refusal("not_contiguous", "the guard is true where nothing is copied", here)
            guard = self._guard(copy.guard, engine, lanes)
            if guard is None:
                return Refusal("not_contiguous", "the guard is no conjunction of `index < bound`", here)
            guards += guard
        return Widening(lanes, guards)

    def _thread_dependent(self, loop: CopyLoop, copy: Copy) -> str:
        """Everything but the loop's variable must be the same for all threads, and an integer."""
        inside = (n for i in loop.body for n in ir.walk(i.stmt) if isinstance(n, ir.Declare))
        inner = {loop.var.id} | {s.id for declaration in inside for s in declaration.symbols}
        outer = [
            n for item in loop.body for n in ir.walk(item.stmt) if isinstance(n, ir.Name) and n.symbol not in inner
        ]
        for name in outer:
            shared = name.symbol is not None and self._symbols[name.symbol].kind == "shared"
            if not shared and not self._uniformity.uniform(name):
                return f"what is copied depends on `{name.id}`, but the vectors are dealt to the threads anew"
        indices = [copy.target, copy.source, *([copy.guard] if copy.guard is not None else [])]
        for expr in (*indices, *(s.init for i in loop.body if isinstance(i, Pure) for s in i.stmt.symbols)):
            for node in ir.walk(expr) if expr is not None else ():
                if isinstance(node, ir.Name) and node.symbol is not None and not self._is_index(node.symbol):
                    return f"`{node.id}` is no integer of 32 bits or more"
        return ""

    def _is_index(self, symbol_id: int) -> bool:
        symbol = self._symbols[symbol_id]
        return bool(symbol.pointers or symbol.dims) or self.offsets.constants.is_index(symbol.type_text)

    def _addresses(self, copy: Copy, engine: Affine, lanes: int) -> str:
        if self.offsets.element(copy.target) is None:
            return "the place in shared memory is no plain index of the array"
        target = self.offsets.bytes_into(copy.target, engine)
        if target is None or target.factor_of(R) != copy.width_bytes:
            return "neighbouring elements are not neighbours in shared memory"
        lined_up = stored_elements(copy, lanes)
        if not target.without(R).multiple_of(lined_up * copy.width_bytes):
            what = f"vectors of {lined_up} elements are not aligned in shared memory"
            return f"{what}: pad rows to a multiple of {lined_up}"
        source = self.offsets.from_pointer(copy.source, engine)
        if source is None:
            return "the place in global memory is no plain index of a pointer"
        if source.factor_of(R) != 1:
            return "neighbouring elements are not neighbours in global memory"
        return ""

    def _places(self, loop: CopyLoop, copy: Copy, lanes: int) -> str:
        """The same of the target once more, by going through every element: in place, aligned, once each."""
        found = self.offsets.element(copy.target)
        count = loop.bound_value or 0
        concrete = Concrete(self.offsets.constants, loop.var.id, self.offsets.locals_of(loop), self.offsets.fixed)
        columns = [concrete.values(index, count) for index in found[1]] if found is not None else [None]
        if found is None or any(c is None for c in columns):
            return "the place in shared memory depends on more than the element's number"
        at = [0] * count
        pitch = 1
        for column, dim in zip(columns, reversed(found[0].dims), strict=True):
            at = [a + v * pitch for a, v in zip(at, column or (), strict=True)]
            pitch *= dim
        inside = all(0 <= a < found[0].elements for a in at)
        unit = stored_elements(copy, lanes)
        whole = all(at[i] == at[i - i % lanes] + i % lanes and at[i - i % lanes] % unit == 0 for i in range(count))
        if not inside or not whole or len(set(at)) != count:
            return "the elements of the tile are not laid out one after the other"
        return ""

    def _guard(self, guard: ir.Expr | None, engine: Affine, lanes: int) -> tuple[Moving, ...] | None:
        """How each comparison's growing side moves over a vector."""
        if guard is None:
            return ()
        if not isinstance(guard, ir.Binary):
            return None
        if guard.op == "&&":
            left, right = self._guard(guard.left, engine, lanes), self._guard(guard.right, engine, lanes)
            return None if left is None or right is None else left + right
        if guard.op not in ("<", "<=", ">", ">="):
            return None
        small, large = (guard.left, guard.right) if guard.op in ("<", "<=") else (guard.right, guard.left)
        low, high = engine.poly(small).factor_of(R), engine.poly(large).factor_of(R)
        if low is None or high != 0 or low < 0 or small.span.within:
            return None
        if not low:
            return ()
        # A sum may have text appended, anything that binds more loosely needs parentheses.
        open_ended = isinstance(small, ir.Binary) and small.op not in ("+", "-", "*", "/", "%")
        loose = open_ended or not isinstance(small, ir.Name | ir.Binary | ir.Cast | ir.Member)
        signed = self._signed(small) and self._signed(large)
        return (Moving(small.span, (lanes - 1) * low, loose, not signed),)

    def _signed(self, expr: ir.Expr) -> bool:
        """Whether an integer expression is certainly computed in signed arithmetic."""
        match expr:
            case ir.Name(symbol=int(s)):
                symbol = self._symbols[s]
                if "auto" in symbol.type_text.split():
                    return symbol.init is not None and self._signed(symbol.init)
                kind = int_kind(symbol.type_text, self.offsets.constants.aliases)
                return kind is not None and not kind.unsigned and not symbol.pointers and not symbol.dims
            case ir.Name() | ir.Number():
                kind = self.offsets.constants.kind(expr)
                return kind is not None and not kind.unsigned
            case ir.Cast(type_text=t):
                kind = int_kind(t, self.offsets.constants.aliases)
                return kind is not None and not kind.unsigned
            case ir.Binary(op="<<" | ">>", left=a):
                return self._signed(a)
            case ir.Binary(left=a, right=b):
                return self._signed(a) and self._signed(b)
            case ir.Unary(op="-" | "+", operand=x):
                return self._signed(x)
        return False


def stored_elements(copy: Copy, lanes: int) -> int:
    """Elements of one store to shared memory: all of a vector, or 16 bytes of them where they became wider."""
    return min(lanes, VECTOR_BYTES // copy.width_bytes)


def _loaded_bytes(copy: Copy) -> int:
    return copy.width_bytes if copy.element is None else copy.element.width_bytes


def _unconverted(copy: Copy) -> Copy:
    """A converting copy as one of the elements that it loads; unchanged where it does anything else."""
    e = copy.element
    return copy if e is None else replace(copy, source=e.source, guard=e.guard, fill=None, converts=False, held=None)
