"""Index expressions for every thread of a block and every pass of a copy loop at once.

What depends on the thread or on the pass becomes an array of integers, one for every (thread, pass); what is the same
for all threads stays a symbol. So an address is a sum of products of symbols, each with an array of factors, and "row
by row, one element behind the other" can be checked element by element, whatever form the index arithmetic has.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilewright.kloop.forms import Form, Place
from tilewright.kloop.kernel import SharedArray
from tilewright.kloop.loops import Header
from tilewright.kloop.uniform import Uniformity
from tilewright.source import ir
from tilewright.source.c_types import IntKind, int_kind, size_of
from tilewright.source.constants import Constants
from tilewright.source.expr_types import Types, loads_from
from tilewright.source.integer_types import IntegerTypes

if TYPE_CHECKING:
    import numpy as np

MAX_POINTS = 1 << 17  # threads times passes; a tile has far fewer
_LARGEST = (1 << 31) - 1
_INDICES = frozenset({"blockIdx", "gridDim", "blockDim"})
_COMPARED: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_WHOLE = frozenset({"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"})


class Lattice:
    """The arithmetic at one copy, or around one copy loop.

    Args:
        block: threads of a block per dimension.
        steady: the K-loop's variable, which keeps its value while one tile is copied.
        outside: symbols that are declared in front of the K-loop (or are it): they may be named as they are.

    Attributes:
        points: how many (thread, pass) pairs there are.
    """

    def __init__(
        self,
        constants: Constants,
        types: Types,
        symbols: Mapping[int, ir.Symbol],
        uniformity: Uniformity,
        arrays: Mapping[int, SharedArray],
        block: tuple[int, int, int],
        steady: int,
        outside: frozenset[int],
    ) -> None:
        import numpy as np

        self.constants = constants
        self.types = types
        self._integers = IntegerTypes(constants, symbols)
        self.symbols = symbols
        self.uniformity = uniformity
        self.arrays = arrays
        self.block = block
        self.steady = steady
        self.outside = outside
        linear = np.arange(block[0] * block[1] * block[2], dtype=np.int64)
        self._threads = {
            "x": linear % block[0],
            "y": linear // block[0] % block[1],
            "z": linear // (block[0] * block[1]),
        }
        self._known: dict[int, Form] = {}
        self._busy: set[int] = set()
        self._loops: dict[int, np.ndarray] = {}
        self.points = len(linear)

    def enter(self, loop: Header) -> str:
        """From here on, points are (thread, passes) of ``loop`` too; what stands against it, or ""."""
        import numpy as np

        first, bound, stride = (self.form(e) for e in (loop.first, loop.bound, loop.step))
        begin, end, step = (f.numbers if f is not None else None for f in (first, bound, stride))
        if begin is None or end is None or step is None:
            return "the bounds of the copy loop are no constants of the thread"
        if (step <= 0).any() or not self.constants.is_index(loop.var.type_text):
            return "the copy loop does not count upwards"
        trips = int(np.maximum(0, -(-(end - begin) // step)).max())
        if trips == 0 or trips * len(begin) > MAX_POINTS:
            return f"the copy loop makes {trips} passes"
        passes = np.repeat(np.arange(trips, dtype=np.int64), len(begin))
        values = np.tile(begin, trips) + passes * np.tile(step, trips)
        self._choose(lambda v: np.tile(v, trips), values < np.tile(end, trips))
        self._loops[loop.var.id] = values[values < np.tile(end, trips)]
        self._known[loop.var.id] = Form({(): self._loops[loop.var.id]})
        return ""

    def restrict(self, condition: ir.Expr, wanted: bool) -> str:
        """From here on, only points where a condition is (not) true; what stands against it, or ""."""
        truth = self._truth(condition)
        if truth is None:
            return "what is copied depends on a condition that is not known for every thread"
        taken = truth if wanted else ~truth
        if not taken.any():
            return "nothing is copied here"
        self._choose(lambda v: v, taken)
        return ""

    def _choose(self, widened: Callable[[np.ndarray], np.ndarray], taken: np.ndarray) -> None:
        """Every thread and pass, widened, where they are taken."""
        self._threads = {d: widened(v)[taken] for d, v in self._threads.items()}
        self._loops = {s: widened(v)[taken] for s, v in self._loops.items()}
        self._known = {s: Form({(): v}) for s, v in self._loops.items()}
        self.points = int(taken.sum())

    def _truth(self, condition: ir.Expr) -> np.ndarray | None:
        """Where a comparison of numbers, or several, is true."""
        match condition:
            case ir.Binary(op="&&" | "||" as op, left=a, right=b):
                x, y = self._truth(a), self._truth(b)
                return None if x is None or y is None else x & y if op == "&&" else x | y
            case ir.Unary(op="!", operand=x):
                inner = self._truth(x)
                return None if inner is None else ~inner
            case ir.Binary(op=op, left=left, right=right) if op in _COMPARED:
                forms = self.form(left), self.form(right)
                low, high = (f.numbers if f is not None else None for f in forms)
                if low is None or high is None or (low < 0).any() or (high < 0).any():
                    return None  # below zero, signed and unsigned comparisons part
                return _COMPARED[op](low, high)
        return None

    # -- integers -----------------------------------------------------------------------------------
    def constant(self, value: int) -> Form:
        import numpy as np

        return Form({(): np.full(self.points, value, dtype=np.int64)})

    def symbol(self, name: str) -> Form:
        import numpy as np

        return Form({(): np.zeros(self.points, np.int64), (name,): np.ones(self.points, np.int64)})

    def is_outside(self, expr: ir.Expr) -> bool:
        """Whether every name in it may be written where the tile's copies are issued."""
        return all(n.symbol in self.outside for n in ir.walk(expr) if isinstance(n, ir.Name) and n.symbol is not None)

    def form(self, expr: ir.Expr) -> Form | None:
        """The value of an integer expression; None where it cannot be told."""
        value = self.constants.evaluate(expr)
        if value is not None:
            return self.constant(value)
        found = self._form(expr)
        if found is not None:
            return found
        # The same for all threads, and every name of it stands outside: a symbol of its own. Not inside a macro, where
        # many expressions have one span.
        alike = self.is_outside(expr) and self.uniformity.uniform(expr) and not expr.span.within
        if alike and self.kind(expr) is not None:
            return self.symbol(f"<{expr.span.start}:{expr.span.end}>")
        return None

    def _form(self, expr: ir.Expr) -> Form | None:
        match expr:
            case ir.Name(symbol=int(s)):
                return self._name(expr, s)
            case ir.Cast(type_text=t, operand=x):
                kind = int_kind(t, self.constants.aliases)
                return self.form(x) if kind is not None and kind.bits >= 32 else None
            case ir.Unary(op="-" | "+" as op, operand=x):
                inner = self.form(x)
                return None if inner is None else inner if op == "+" else self.constant(0).plus(inner, -1)
            case ir.Binary(op=op, left=a, right=b) if op in _WHOLE:
                left, right = self.form(a), self.form(b)
                return None if left is None or right is None else self._binary(op, left, right)
            case ir.Ternary(condition=c, then=a, otherwise=b):
                return self._chosen(c, self.form(a), self.form(b))
            case ir.Member(base=ir.Name(id="threadIdx"), field=d) if d in self._threads:
                return Form({(): self._threads[d]})
            case ir.Member(base=ir.Name(id="blockDim"), field="x" | "y" | "z" as d):
                return self.constant(self.block["xyz".index(d)])
            case ir.Member(base=ir.Name(id=base), field=d) if base in _INDICES:
                return self.symbol(f"{base}.{d}")
        return None

    def _chosen(self, condition: ir.Expr, then: Form | None, otherwise: Form | None) -> Form | None:
        """``condition ? then : otherwise``, where the condition compares numbers."""
        import numpy as np

        chosen = self._truth(condition)
        if then is None or otherwise is None or chosen is None:
            return None
        zero = 0 * then.number_part()
        terms = dict.fromkeys((*then.terms, *otherwise.terms), zero)
        terms = {m: np.where(chosen, then.terms.get(m, zero), otherwise.terms.get(m, zero)) for m in terms}
        return Form({m: c for m, c in terms.items() if not m or c.any()})

    def _name(self, name: ir.Name, s: int) -> Form | None:
        if s in self._known:
            return self._known[s]
        symbol = self.symbols[s]
        if symbol.pointers or symbol.dims or not self.constants.is_index(symbol.type_text):
            return None
        if s == self.steady or (s in self.outside and self.uniformity.uniform(name)):
            return self.symbol(f"{symbol.name}#{s}")
        init = self.initial(s)
        if init is None or s in self._busy:
            return None
        self._busy.add(s)
        found = self.form(init)
        self._busy.discard(s)
        if found is not None:
            self._known[s] = found
        return found

    def initial(self, s: int) -> ir.Expr | None:
        """What a variable was made of, where that still means the same while the tile is copied."""
        symbol = self.symbols[s]
        if symbol.init is None or symbol.dims or symbol.reference:
            return None
        named = ir.names([symbol.init])
        steady = {self.steady, *self._loops}
        return None if (named - steady | {s}) & self.uniformity.changed else symbol.init

    def _binary(self, op: str, left: Form, right: Form) -> Form | None:
        if op in ("+", "-"):
            return left.plus(right, 1 if op == "+" else -1)
        if op == "*":
            return left.times(right)
        a, b = left.numbers, right.numbers
        if b is not None and op == "<<" and (b >= 0).all() and (b < 31).all():
            return left.times(Form({(): 1 << b}))
        if a is None or b is None or (a < 0).any() or (b < 0).any() or (a > _LARGEST).any():
            return None  # from here on, signed and unsigned arithmetic part
        if op in ("/", "%") and (b == 0).any():
            return None
        if op == ">>" and (b > 31).any():
            return None
        match op:
            case "/":
                return Form({(): a // b})
            case "%":
                return Form({(): a % b})
            case ">>":
                return Form({(): a >> b})
            case "&":
                return Form({(): a & b})
            case "|":
                return Form({(): a | b})
            case "^":
                return Form({(): a ^ b})
        return None

    def kind(self, expr: ir.Expr) -> IntKind | None:
        """The integer type of an expression, by C's rules; None where it has none or it is not known."""
        known = self.constants.kind(expr)
        return self._integers.of(expr) if known is None else known

    # -- addresses ------------------------------------------------------------------------------------
    def place(self, lvalue: ir.Expr) -> Place | None:
        """Where an lvalue lies: ``p[i]``, ``*(p + i)``, ``__ldg(&p[i])``, ``S[a][b]``, casts included."""
        address = loads_from(lvalue)
        if address is not None:
            return self.address(address)
        match lvalue:
            case ir.Index(base=b, index=i):
                root: ir.Expr = lvalue
                indices: list[ir.Expr] = []
                while isinstance(root, ir.Index):
                    indices.append(root.index)
                    root = root.base
                array = self.arrays.get(root.symbol) if isinstance(root, ir.Name) and root.symbol is not None else None
                if isinstance(root, ir.Name) and array is not None:
                    return self._element(root, array, indices[::-1])
                return self._moved(self.address(b), b, i, 1)
            case ir.Unary(op="*", operand=x):
                return self.address(x)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                return self.place(x)
        return None

    def address(self, pointer: ir.Expr) -> Place | None:
        match pointer:
            case ir.Name(symbol=int(s)):
                return self._pointer(pointer, s)
            case ir.Unary(op="&", operand=x):
                return self.place(x)
            case ir.Index():
                return self.place(pointer)  # a row of an array, which decays
            case ir.Cast(type_text=t, operand=x) if "*" in t:
                return self.address(x)
            case ir.Binary(op="+" | "-" as op, left=a, right=b):
                swapped = op == "+" and self.kind(a) is not None
                pointer, count = (b, a) if swapped else (a, b)
                return self._moved(self.address(pointer), pointer, count, 1 if op == "+" else -1)
        return None

    def _pointer(self, name: ir.Name, s: int) -> Place | None:
        symbol = self.symbols[s]
        if s in self.arrays:
            return Place(name, self.constant(0))
        if symbol.pointers != 1 or symbol.dims or symbol.reference:
            return None
        if s in self.outside and self.uniformity.uniform(name):
            return Place(name, self.constant(0))
        init = self.initial(s)
        if init is None or s in self._busy:
            return None
        self._busy.add(s)
        found = self.address(init)
        self._busy.discard(s)
        return found

    def _element(self, root: ir.Name, array: SharedArray, indices: list[ir.Expr]) -> Place | None:
        if len(indices) > len(array.dims):
            return None
        offset, pitch = self.constant(0), array.total_bytes
        for index, dim in zip(indices, array.dims, strict=False):
            pitch //= dim
            form = self.form(index)
            if form is None:
                return None
            offset = offset.plus(form.times(self.constant(pitch)))
        return Place(root, offset)

    def _moved(self, place: Place | None, pointer: ir.Expr, count: ir.Expr, sign: int) -> Place | None:
        kind = self.types.of(pointer)
        to = kind.pointee() if kind is not None else None
        size = size_of(to.base, self.constants.aliases) if to is not None and not to.pointers and not to.rank else None
        form = self.form(count)
        if place is None or size is None or form is None:
            return None
        return Place(place.base, place.offset.plus(form.times(self.constant(size)), sign))
