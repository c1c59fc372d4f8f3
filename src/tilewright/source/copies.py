"""The load phase, statement by statement: what is copied, from where, under which guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.source import ir
from tilewright.source.constants import Constants
from tilewright.source.effects import is_pointer, root
from tilewright.source.expr_types import Types, loads_from
from tilewright.source.kernel import Bump, Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, Refusal
from tilewright.source.loops import counted_header

_ZERO_CALLS = frozenset({"__float2half", "__float2half_rn", "__float2bfloat16", "__int2half_rn"})


class LoadReader:
    """Reads the statements of a load phase.

    Args:
        line: line of a byte offset. widen: proves a copy loop widenable, or says why it isn't.
        text: the source, to compare lvalues by their text.
    """

    def __init__(
        self,
        text: bytes,
        symbols: Mapping[int, ir.Symbol],
        types: Types,
        constants: Constants,
        line: Callable[[int], int],
        outer: frozenset[int],
    ) -> None:
        self._text = text
        self._symbols = symbols
        self._types = types
        self._constants = constants
        self._line = line
        self._outer = outer  # symbols declared outside the K-loop
        self._fetched: dict[int, Fetch] = {}

    def read(self, statements: tuple[ir.Stmt, ...]) -> list[LoadItem] | Refusal:
        items: list[LoadItem] = []
        for stmt in statements:
            item = self._item(stmt, in_loop=False)
            if isinstance(item, Refusal):
                return item
            items.extend(item)
        return items

    # -- memory ---------------------------------------------------------------------------------
    def _root_symbol(self, expr: ir.Expr) -> ir.Symbol | None:
        name = root(expr)
        return self._symbols.get(name.symbol) if name is not None and name.symbol is not None else None

    def _is_shared(self, symbol: ir.Symbol | None, depth: int = 0) -> bool:
        if symbol is None or depth > 8:
            return False
        if symbol.kind == "shared":
            return True
        if not (is_pointer(symbol) or symbol.reference) or symbol.init is None:
            return False
        names = [
            self._symbols.get(n.symbol) for n in ir.walk(symbol.init) if isinstance(n, ir.Name) and n.symbol is not None
        ]
        return any(self._is_shared(s, depth + 1) for s in names)

    def _global_lvalue(self, expr: ir.Expr) -> ir.Expr | None:
        """The lvalue in global memory that ``expr`` reads, or None."""
        address = loads_from(expr)
        if address is not None:
            symbol = self._root_symbol(address)
            return expr if symbol is not None and is_pointer(symbol) and not self._is_shared(symbol) else None
        if not isinstance(expr, ir.Index | ir.Unary | ir.Member) or (isinstance(expr, ir.Unary) and expr.op != "*"):
            return None
        symbol = self._root_symbol(expr)
        if symbol is None or not is_pointer(symbol) or self._is_shared(symbol):
            return None
        return expr

    def reads_memory(self, expr: ir.Expr) -> bool:
        """Whether evaluating ``expr`` loads anything from memory (an address does not)."""
        match expr:
            case ir.Unary(op="&", operand=x):
                return any(self.reads_memory(i) for i in _indices(x))
            case ir.Index() | ir.Unary(op="*") | ir.Member(arrow=True) | ir.Opaque():
                return True
            case ir.Member(base=ir.Name(id=b)) if b in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
                return False
            case ir.Call(callee=c):
                return c.startswith("__ld") or any(self.reads_memory(a) for a in expr.args)
        return any(self.reads_memory(c) for c in ir.children(expr) if isinstance(c, ir.Expr))

    # -- statements -------------------------------------------------------------------------------
    def _no(self, node: ir.Stmt | ir.Expr, what: str, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self._line(node.span.start), hint)

    def _item(self, stmt: ir.Stmt, in_loop: bool) -> list[LoadItem] | Refusal:
        match stmt:
            case ir.Declare():
                return self._declaration(stmt)
            case ir.Do(expr=e):
                return self._expression(stmt, e, in_loop)
            case ir.If():
                copy = self._if_else(stmt)
                return copy if isinstance(copy, Refusal) else [copy]
            case ir.For():
                if in_loop:
                    return self._no(stmt, "copy loops inside copy loops are not understood yet")
                loop = self._loop(stmt)
                return loop if isinstance(loop, Refusal) else [loop]
            case ir.Block(body=(inner,)):
                return self._item(inner, in_loop)
            case ir.OpaqueStmt(what=w):
                return self._no(stmt, f"the load phase holds {w}, which is not understood")
        return self._no(stmt, "a statement of the load phase is not understood")

    def _declaration(self, stmt: ir.Declare) -> list[LoadItem] | Refusal:
        reading = [s for s in stmt.symbols if s.init is not None and self.reads_memory(s.init)]
        if not reading:
            if any(s.dims for s in stmt.symbols):
                return self._no(stmt, "the load phase keeps an array of registers, which is not understood yet")
            return [Pure(stmt)]
        symbol = reading[0]
        if len(stmt.symbols) != 1 or symbol.dims or symbol.pointers or symbol.reference or symbol.init is None:
            return self._no(
                stmt, f"`{symbol.name}` is read from memory in a declaration of several names or of an array"
            )
        source, guard, fill, inverted = self._value(symbol.init)
        width = self._types.bytes_of(ir.Name(symbol.span, symbol.name, symbol.id))
        if source is None or inverted or width is None:
            return self._no(stmt, f"`{symbol.name}` is not a plain read of global memory")
        if not self._types.same(self._types.of(source), self._types.of(ir.Name(symbol.span, symbol.name, symbol.id))):
            return Refusal(
                "converts_type",
                f"`{symbol.name}` is converted while it is loaded",
                self._line(stmt.span.start),
                "load it in the type that memory holds",
            )
        fetch = Fetch(stmt, symbol, source, guard, fill, width)
        self._fetched[symbol.id] = fetch
        return [fetch]

    def _expression(self, stmt: ir.Do, expr: ir.Expr, in_loop: bool) -> list[LoadItem] | Refusal:
        bump = self._bump(stmt, expr)
        if bump is not None:
            if in_loop:
                return self._no(stmt, "an index is advanced inside a copy loop")
            return [bump]
        if not isinstance(expr, ir.Assign) or expr.op != "=":
            return self._no(stmt, "a statement of the load phase is neither a copy nor an index")
        symbol = self._root_symbol(expr.left)
        if symbol is None or symbol.kind != "shared" or isinstance(expr.left, ir.Name):
            if symbol is not None and self._is_shared(symbol):
                return self._no(
                    stmt,
                    f"shared memory is written through the pointer `{symbol.name}`",
                    "write through the array itself",
                )
            return self._no(stmt, "the load phase assigns something that is not a shared array")
        lane = self._lane(stmt, symbol, expr)
        if lane is not None:
            return [lane]
        copy = self._copy(stmt, symbol, expr.left, expr.right)
        return copy if isinstance(copy, Refusal) else [copy]

    def _bump(self, stmt: ir.Do, expr: ir.Expr) -> Bump | None:
        match expr:
            case ir.Assign(op="+=" | "-=", left=ir.Name(symbol=int(s))) if s in self._outer:
                return None if self.reads_memory(expr.right) else Bump(stmt, s)
            case ir.Unary(op="++" | "--" | "p++" | "p--", operand=ir.Name(symbol=int(s))) if s in self._outer:
                return Bump(stmt, s)
            case ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=ir.Binary(op="+" | "-", left=ir.Name(symbol=t))):
                if s == t and s in self._outer and not self.reads_memory(expr.right):
                    return Bump(stmt, s)
        return None

    def bump(self, stmt: ir.Stmt) -> Bump | None:
        """The statement as an index bump, for those that stand in the compute phase."""
        return self._bump(stmt, stmt.expr) if isinstance(stmt, ir.Do) else None

    def _lane(self, stmt: ir.Do, array: ir.Symbol, expr: ir.Assign) -> LaneStore | None:
        value = ir.strip(expr.right)
        lane = value.field if isinstance(value, ir.Member) and not value.arrow else None
        if isinstance(value, ir.Member) and lane is not None:
            value = value.base
        if not isinstance(value, ir.Name) or value.symbol not in self._fetched:
            return None
        width = self._types.bytes_of(expr.left)
        if width is None or not self._types.same(self._types.of(expr.left), self._types.of(expr.right)):
            return None
        return LaneStore(stmt, array.id, expr.left, value.symbol, lane, width)

    def _value(self, expr: ir.Expr) -> tuple[ir.Expr | None, ir.Expr | None, ir.Expr | None, bool]:
        """(source, guard, fill, inverted) of the value that is stored; source None where it is no plain copy."""
        source = self._global_lvalue(expr)
        if source is not None:
            return source, None, None, False
        if isinstance(expr, ir.Ternary):
            then, other = self._global_lvalue(expr.then), self._global_lvalue(expr.otherwise)
            if then is not None and other is None and not self.reads_memory(expr.otherwise):
                return then, expr.condition, expr.otherwise, False
            if other is not None and then is None and not self.reads_memory(expr.then):
                return other, expr.condition, expr.then, True
        return None, None, None, False

    def _copy(self, stmt: ir.Stmt, array: ir.Symbol, target: ir.Expr, value: ir.Expr) -> Copy | Refusal:
        kind, width = self._types.of(target), self._types.bytes_of(target)
        if kind is None or width is None or kind.pointers:
            return self._no(
                stmt, f"the type stored to `{array.name}` is not known", "use a built-in scalar or vector type"
            )
        source, guard, fill, inverted = self._value(value)
        if source is None:
            reads = any(self._global_lvalue(e) is not None for e in ir.walk(value) if isinstance(e, ir.Expr))
            if not reads:
                return self._no(stmt, f"what is stored to `{array.name}` does not come straight from global memory")
            if any(
                n.symbol is not None and self._symbols[n.symbol].kind == "shared"
                for n in ir.walk(value)
                if isinstance(n, ir.Name)
            ):
                return self._no(stmt, f"what is stored to `{array.name}` reads shared memory")
            return Copy(stmt, array.id, target, value, None, None, kind.base, width, converts=True)
        converts = not self._types.same(kind, self._types.of(source))
        return Copy(stmt, array.id, target, source, guard, fill, kind.base, width, inverted, converts)

    def _if_else(self, stmt: ir.If) -> Copy | Refusal:
        then, other = _single_assignment(stmt.then), _single_assignment(stmt.otherwise)
        if then is None or (stmt.otherwise is not None and other is None):
            return self._no(stmt, "an `if` in the load phase that guards more than one copy is not understood yet")
        if other is None:
            return self._no(
                stmt,
                "an `if` without `else` leaves stale data in the tile: not understood yet",
                "fill the tile with zeros in an else branch",
            )
        if self._normal(then.left) != self._normal(other.left):
            return self._no(stmt, "the two branches of an `if` in the load phase store to different places")
        symbol = self._root_symbol(then.left)
        if symbol is None or symbol.kind != "shared":
            return self._no(stmt, "an `if` in the load phase does not store to a shared array")
        kind, width = self._types.of(then.left), self._types.bytes_of(then.left)
        if kind is None or width is None:
            return self._no(stmt, f"the type stored to `{symbol.name}` is not known")
        for value, fill, inverted in ((then.right, other.right, False), (other.right, then.right, True)):
            source = self._global_lvalue(value)
            if source is not None and not self.reads_memory(fill):
                converts = not self._types.same(kind, self._types.of(source))
                return Copy(
                    stmt, symbol.id, then.left, source, stmt.condition, fill, kind.base, width, inverted, converts
                )
        return self._no(stmt, "an `if` in the load phase is not `copy` else `constant`")

    def _normal(self, expr: ir.Expr) -> bytes:
        return b"".join(self._text[expr.span.start : expr.span.end].split())

    def _loop(self, stmt: ir.For) -> CopyLoop | Refusal:
        header = counted_header(stmt)
        if header is None:
            return self._no(stmt, "a copy loop is not of the form `for (i = first; i < bound; i += stride)`")
        var, first, bound, stride = header
        statements = stmt.body.body if isinstance(stmt.body, ir.Block) else (stmt.body,)
        body: list[LoadItem] = []
        for inner in statements:
            item = self._item(inner, in_loop=True)
            if isinstance(item, Refusal):
                return item
            body.extend(item)
        constants = self._constants
        return CopyLoop(
            stmt,
            var,
            first,
            bound,
            stride,
            first_value=constants.evaluate(first),
            bound_value=constants.evaluate(bound),
            stride_value=constants.evaluate(stride),
            body=tuple(body),
        )


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


def _single_assignment(stmt: ir.Stmt | None) -> ir.Assign | None:
    while isinstance(stmt, ir.Block) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    if isinstance(stmt, ir.Do) and isinstance(stmt.expr, ir.Assign) and stmt.expr.op == "=":
        return stmt.expr
    return None


def is_zero(expr: ir.Expr, constants: Constants) -> bool:
    """Whether a fill value is all zero bits: ``0``, ``0.0f``, ``make_uint4(0, 0, 0, 0)``, ``__float2half(0.f)``."""
    match expr:
        case ir.Number(value=v, text=t):
            return v == 0 and not t.startswith("-")
        case ir.Cast(operand=x):
            return is_zero(x, constants)
        case ir.InitList(items=xs):
            return all(is_zero(x, constants) for x in xs)
        case ir.Call(callee=c, args=xs) if c in _ZERO_CALLS or c.startswith("make_") or c in ("half", "__half"):
            return bool(xs) and all(is_zero(x, constants) for x in xs)
    return constants.evaluate(expr) == 0
