"""The load phase, statement by statement: what is copied, from where, under which guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tilewright.kloop.converted import Conversions
from tilewright.kloop.kernel import Bump, Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, Refusal
from tilewright.kloop.loops import counted_header
from tilewright.kloop.values import Loaded, Values
from tilewright.source import ir
from tilewright.source.c_types import is_volatile
from tilewright.source.constants import Constants
from tilewright.source.effects import Collector
from tilewright.source.expr_types import CType, Types
from tilewright.source.places import root


@dataclass
class LoadReader:
    """Reads the statements of a load phase.

    Attributes:
        text: the source, to compare lvalues by their text.
        line: line of a byte offset.
        outer: symbols declared outside the K-loop.
        named: how often the kernel names a symbol.
    """

    text: bytes
    symbols: Mapping[int, ir.Symbol]
    types: Types
    constants: Constants
    collector: Collector
    line: Callable[[int], int]
    outer: frozenset[int]
    named: Callable[[int], int]
    _fetched: dict[int, Fetch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = self.collector.places
        self._values = Values(self._places, self.types, self.constants)
        self._converted = Conversions(self._values, self.types, self.constants.aliases)

    def read(self, statements: tuple[ir.Stmt, ...]) -> list[LoadItem] | Refusal:
        return self._items(statements, in_loop=False)

    def loop_in(self, stmt: ir.Stmt) -> CopyLoop | None:
        """A statement as one copy loop; None where it is anything else."""
        items = self._item(stmt, in_loop=False) if isinstance(stmt, ir.For | ir.Block) else []
        match items:
            case [CopyLoop() as loop]:
                return loop
        return None

    def _items(self, statements: tuple[ir.Stmt, ...], in_loop: bool) -> list[LoadItem] | Refusal:
        items: list[LoadItem] = []
        at = 0
        while at < len(statements):
            through = self._through_local(statements[at:])
            if through is not None:
                items.append(through)
                at += len(through.stmt.body) if isinstance(through.stmt, ir.Block) else 1
                continue
            item = self._item(statements[at], in_loop)
            if isinstance(item, Refusal):
                return item
            items.extend(item)
            at += 1
        return items

    # -- statements -------------------------------------------------------------------------------
    def _no(self, node: ir.Stmt | ir.Expr, what: str, hint: str = "") -> Refusal:
        return Refusal("not_understood", what, self.line(node.span.start), hint)

    def _item(self, stmt: ir.Stmt, in_loop: bool) -> list[LoadItem] | Refusal:
        if stmt.span.within:
            return self._no(stmt, "a macro stands for whole statements of the load phase", "write them out")
        refused = self._side_effect(stmt)
        if refused is not None:
            return refused
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
            case ir.Block(body=(*before, ir.For())) if not in_loop and all(isinstance(s, ir.Declare) for s in before):
                return self._block(stmt)
            case ir.OpaqueStmt(what=w):
                return self._no(stmt, f"the load phase holds {w}, which is not understood")
        return self._no(stmt, "a statement of the load phase is not understood")

    def _side_effect(self, stmt: ir.Stmt) -> Refusal | None:
        """Whatever is evaluated more than once, or at another time, must not change anything by itself.

        Allowed: the assignment that a statement consists of, and the update of a copy loop.
        """
        if isinstance(stmt, ir.For | ir.Block):
            return None  # judged by their own statements and header
        allowed: set[int] = set()
        for inner in (stmt.then, stmt.otherwise) if isinstance(stmt, ir.If) else (stmt,):
            single = _single_expression(inner)
            if single is not None:
                allowed.add(id(single))
        for node in ir.walk(stmt):
            changes = isinstance(node, ir.Assign) or (
                isinstance(node, ir.Unary) and node.op in ("++", "--", "p++", "p--")
            )
            if changes and id(node) not in allowed:
                return self._no(node, "an expression of the load phase changes a variable on the way")
            if isinstance(node, ir.Binary) and node.op == ",":
                return self._no(node, "the load phase holds a comma expression")
        effects = self.collector.collect([stmt])
        named = {_changed(n) for n in ir.walk(stmt) if isinstance(n, ir.Assign | ir.Unary)}
        single = _single_expression(stmt)
        if isinstance(single, ir.Assign) and (target := root(single.left)) is not None:
            named.add(target.symbol)  # an element of a local array: judged as an assignment
        hidden = effects.writes - named
        if hidden:
            name = self.symbols[min(hidden)].name
            return self._no(stmt, f"the load phase changes `{name}` by way of a call, a pointer or a reference")
        return None

    def _declaration(self, stmt: ir.Declare) -> list[LoadItem] | Refusal:
        for s in stmt.symbols:
            if self._is_volatile(s.type_text) or "static" in s.type_text.split():
                return self._no(stmt, f"`{s.name}` is volatile or static")
        reading = [s for s in stmt.symbols if s.init is not None and self._values.reads_memory(s.init)]
        if not reading:
            if any(s.dims for s in stmt.symbols):
                return self._no(stmt, "the load phase keeps an array of registers, which is not understood yet")
            return [Pure(stmt)]
        symbol = reading[0]
        if len(stmt.symbols) != 1 or symbol.dims or symbol.pointers or symbol.reference or symbol.init is None:
            what = f"`{symbol.name}` is read from memory in a declaration of several names, of a pointer or an array"
            return self._no(stmt, what)
        target = ir.Name(symbol.span, symbol.name, symbol.id)
        value, width, kind = self._values.read(symbol.init), self.types.bytes_of(target), self.types.of(target)
        if value is None or value.inverted or width is None or kind is None or kind.pointers:
            return self._no(stmt, f"`{symbol.name}` is not a plain read of global memory")
        if not self.types.same(self.types.of(value.source), self.types.of(target)):
            what = f"`{symbol.name}` is converted while it is loaded"
            line = self.line(stmt.span.start)
            return Refusal("converts_type", what, line, "load it in the type that memory holds")
        if self._volatile(value.source):
            return self._no(stmt, "a volatile read must not move")
        zero = self._is_zero(value.fill)
        fetch = Fetch(stmt, symbol, value.source, value.guard, value.fill, kind.base, width, zero)
        self._fetched[symbol.id] = fetch
        return [fetch]

    def _is_zero(self, fill: ir.Expr | None) -> bool:
        return fill is not None and self._values.is_zero(fill)

    def _is_volatile(self, type_text: str) -> bool:
        return is_volatile(type_text, self.constants.aliases)

    def _volatile(self, expr: ir.Expr) -> bool:
        """Whether a cast, or a variable that the expression hangs on, is volatile."""
        for node in ir.walk(expr):
            if isinstance(node, ir.Cast) and self._is_volatile(node.type_text):
                return True
            symbol = self.symbols[node.symbol] if isinstance(node, ir.Name) and node.symbol is not None else None
            if symbol is None:
                continue
            if self._is_volatile(symbol.type_text):
                return True
            if (symbol.pointers or symbol.reference) and symbol.init is not None and self._volatile(symbol.init):
                return True
        return False

    def _expression(self, stmt: ir.Do, expr: ir.Expr, in_loop: bool) -> list[LoadItem] | Refusal:
        bump = self._bump(stmt, expr)
        if bump is not None:
            return self._no(stmt, "an index is advanced inside a copy loop") if in_loop else [bump]
        if not isinstance(expr, ir.Assign) or expr.op != "=":
            return self._no(stmt, "a statement of the load phase is neither a copy nor an index")
        array = self._array(expr.left)
        if array is None:
            if self._places.of(expr.left).space == "shared":
                what = "shared memory is written through a pointer or reference"
                return self._no(stmt, what, "write through the array itself")
            return self._no(stmt, "the load phase assigns something that is not a shared array")
        lane = self._lane(stmt, array, expr)
        if lane is not None:
            return lane if isinstance(lane, Refusal) else [lane]
        copy = self._copy(stmt, array, expr.left, expr.right)
        return copy if isinstance(copy, Refusal) else [copy]

    def _array(self, target: ir.Expr) -> ir.Symbol | None:
        """The shared array that an lvalue is an element of, named in it."""
        name = root(target)
        symbol = self.symbols.get(name.symbol) if name is not None and name.symbol is not None else None
        if symbol is None or symbol.kind != "shared" or isinstance(target, ir.Name) or target.span.within:
            return None
        return symbol if self._places.of(target).symbol == symbol.id else None

    def _bump(self, stmt: ir.Do, expr: ir.Expr) -> Bump | None:
        match expr:
            case ir.Assign(op="+=" | "-=", left=ir.Name(symbol=int(s))) if s in self.outer:
                return None if self._values.reads_memory(expr.right) else Bump(stmt, s)
            case ir.Unary(op="++" | "--" | "p++" | "p--", operand=ir.Name(symbol=int(s))) if s in self.outer:
                return Bump(stmt, s)
            case ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=ir.Binary(op="+" | "-", left=ir.Name(symbol=t))):
                if s == t and s in self.outer and not self._values.reads_memory(expr.right):
                    return Bump(stmt, s)
        return None

    def bump(self, stmt: ir.Stmt) -> Bump | None:
        """The statement as an index bump, for those that stand in the compute phase."""
        return self._bump(stmt, stmt.expr) if isinstance(stmt, ir.Do) and not stmt.span.within else None

    def _lane(self, stmt: ir.Do, array: ir.Symbol, expr: ir.Assign) -> LaneStore | Refusal | None:
        """``S[…] = tmp.x``; None where no fetched register is named, a refusal where one is used otherwise."""
        used = {n.symbol for n in ir.walk(stmt) if isinstance(n, ir.Name)} & self._fetched.keys()
        if not used:
            return None
        value = expr.right
        lane = value.field if isinstance(value, ir.Member) and not value.arrow else None
        register = value.base if isinstance(value, ir.Member) and lane is not None else value
        width = self.types.bytes_of(expr.left)
        fetched = register.symbol if isinstance(register, ir.Name) else None
        if fetched not in used or fetched is None or width is None or value.span.within:
            return self._no(stmt, "a loaded register is used for more than a plain store of it, or of a lane of it")
        if any(isinstance(n, ir.Name) and n.symbol in used for n in ir.walk(expr.left)):
            return self._no(stmt, "where an element is stored depends on what was loaded")
        if not self.types.same(self.types.of(expr.left), self.types.of(value)):
            what = "a loaded register is converted when it is stored"
            return Refusal("converts_type", what, self.line(stmt.span.start), "store it in the type that memory holds")
        return LaneStore(stmt, array.id, expr.left, fetched, lane, width)

    def _copy(self, stmt: ir.Stmt, array: ir.Symbol, target: ir.Expr, value: ir.Expr) -> Copy | Refusal:
        kind, width = self.types.of(target), self.types.bytes_of(target)
        if kind is None or width is None or kind.pointers:
            what = f"the type stored to `{array.name}` is not known"
            return self._no(stmt, what, "use a built-in scalar or vector type")
        if self._volatile(value) or self._is_volatile(array.type_text):
            return self._no(stmt, "a volatile access must not move")
        element = self._converted.element(value, target) if isinstance(stmt, ir.Do) else None
        loaded = self._values.read(value)
        if loaded is not None:
            plain = self._plain(stmt, array, target, loaded, kind, width)
            return replace(plain, element=element) if plain.converts else plain
        if value.span.within or not self._loads_global(value):
            what = f"what is stored to `{array.name}` does not come straight from global memory"
            return self._no(stmt, what)
        held = self._values.held(value) if isinstance(stmt, ir.Do) else None
        return Copy(
            stmt, array.id, target, value, None, None, kind.base, width, converts=True, held=held, element=element
        )

    def _loads_global(self, value: ir.Expr) -> bool:
        return any(self._values.global_lvalue(e) is not None for e in ir.walk(value) if isinstance(e, ir.Expr))

    def _plain(self, stmt: ir.Stmt, array: ir.Symbol, target: ir.Expr, loaded: Loaded, kind: CType, width: int) -> Copy:
        return Copy(
            stmt,
            array.id,
            target,
            loaded.source,
            loaded.guard,
            loaded.fill,
            kind.base,
            width,
            loaded.inverted,
            not self.types.same(kind, self.types.of(loaded.source)),
            self._is_zero(loaded.fill),
        )

    def _if_else(self, stmt: ir.If) -> Copy | Refusal:
        then, other = _single_assignment(stmt.then), _single_assignment(stmt.otherwise)
        if then is None or (stmt.otherwise is not None and other is None):
            return self._no(stmt, "an `if` in the load phase that guards more than one copy is not understood yet")
        if other is None:
            what = "an `if` without `else` leaves stale data in the tile: not understood yet"
            return self._no(stmt, what, "fill the tile with zeros in an else branch")
        if self._normal(then.left) != self._normal(other.left):
            return self._no(stmt, "the two branches of an `if` in the load phase store to different places")
        array = self._array(then.left)
        if array is None or other.span.within or then.span.within or self._is_volatile(array.type_text):
            return self._no(stmt, "an `if` in the load phase does not store to a plain element of a shared array")
        kind, width = self.types.of(then.left), self.types.bytes_of(then.left)
        if kind is None or width is None or kind.pointers:
            return self._no(stmt, f"the type stored to `{array.name}` is not known")
        for value, fill, inverted in ((then.right, other.right, False), (other.right, then.right, True)):
            plain = self._values.global_lvalue(value) is not None and not self._values.reads_memory(fill)
            quotable = not any(e.span.within for e in (value, fill, stmt.condition))
            if plain and quotable and not self._volatile(value):
                loaded = Loaded(value, stmt.condition, fill, inverted)
                return self._plain(stmt, array, then.left, loaded, kind, width)
        return self._no(stmt, "an `if` in the load phase is not `copy` else `constant`")

    def _normal(self, expr: ir.Expr) -> bytes:
        return b"".join(self.text[expr.span.start : expr.span.end].split())

    def _block(self, stmt: ir.Block) -> list[LoadItem] | Refusal:
        """A block that computes indices and runs one copy loop over them."""
        *before, loop = stmt.body
        items = self._items(tuple(before), in_loop=False)
        if isinstance(items, Refusal):
            return items
        read = self._item(loop, in_loop=False)
        if isinstance(read, Refusal):
            return read
        setup = tuple(i for i in items if isinstance(i, Pure))
        if len(setup) != len(items):
            return self._no(stmt, "a block in the load phase loads more than one copy loop does")
        return [replace(i, setup=setup) if isinstance(i, CopyLoop) else i for i in read]

    def _through_local(self, stmts: tuple[ir.Stmt, ...]) -> Copy | None:
        """``T v = <global>; S[…] = v;`` or ``T v = 0; if (guard) v = <global>; S[…] = v;`` as one copy.

        None where the statements are anything else: they are read one by one then.
        """
        match stmts:
            case (
                ir.Declare(symbols=(v,)),
                ir.Do(expr=ir.Assign(op="=", left=target, right=ir.Name(symbol=s))),
                *_,
            ) if s == v.id and v.init is not None:
                used, loaded = stmts[:2], self._values.read(v.init)
            case (
                ir.Declare(symbols=(v,)),
                ir.If(condition=guard, otherwise=None) as choice,
                ir.Do(expr=ir.Assign(op="=", left=target, right=ir.Name(symbol=s))),
                *_,
            ) if s == v.id and v.init is not None and self._is_zero(v.init):
                chosen = _single_assignment(choice.then)
                if chosen is None or not isinstance(chosen.left, ir.Name) or chosen.left.symbol != s:
                    return None
                plain = self._values.global_lvalue(chosen.right) is not None and not chosen.right.span.within
                used, loaded = stmts[:3], self._values.chosen(chosen.right, guard, v.init, False) if plain else None
            case _:
                return None
        array = self._array(target)
        inside = not any(u.span.within for u in used) and not (v.dims or v.pointers or v.reference)
        if loaded is None or array is None or not inside or not self._only_there(v, used):
            return None
        return self._carried(v, ir.Block(ir.Span(used[0].span.start, used[-1].span.end), used), array, target, loaded)

    def _only_there(self, symbol: ir.Symbol, used: tuple[ir.Stmt, ...]) -> bool:
        """Whether a local is named nowhere but in the statements that carry it, and in the target of no store."""
        mine = sum(isinstance(n, ir.Name) and n.symbol == symbol.id for u in used for n in ir.walk(u))
        return mine == len(used) - 1 and self.named(symbol.id) == mine

    def _carried(self, v: ir.Symbol, stmt: ir.Block, array: ir.Symbol, target: ir.Expr, loaded: Loaded) -> Copy | None:
        name = ir.Name(v.span, v.name, v.id)
        kind, width = self.types.of(target), self.types.bytes_of(target)
        same = self.types.same(kind, self.types.of(name)) and self.types.same(kind, self.types.of(loaded.source))
        odd = {"volatile", "static"} & set(v.type_text.split()) or self._is_volatile(array.type_text)
        if kind is None or width is None or kind.pointers or not same or odd or self._volatile(loaded.source):
            return None
        if any(self._side_effect(s) is not None for s in stmt.body):
            return None
        return self._plain(stmt, array, target, loaded, kind, width)

    def _loop(self, stmt: ir.For) -> CopyLoop | Refusal:
        header = counted_header(stmt)
        if header is None or stmt.header.within:
            return self._no(stmt, "a copy loop is not of the form `for (i = first; i < bound; i += stride)`")
        parts = (header.first, header.bound, header.step)
        if any(e.span.within for e in (header.first, header.bound)) or (
            header.step.span.within and not isinstance(header.step, ir.Number)
        ):
            return self._no(stmt, "a macro hides parts of a copy loop")
        if self.collector.collect(parts).writes:
            return self._no(stmt, "the header of a copy loop changes a variable")
        body = self._items(stmt.body.body if isinstance(stmt.body, ir.Block) else (stmt.body,), in_loop=True)
        if isinstance(body, Refusal):
            return body
        first, bound, stride = (self.constants.evaluate(e) for e in parts)
        return CopyLoop(stmt, header.var, *parts, first, bound, stride, tuple(body))


def _single_expression(stmt: ir.Stmt | None) -> ir.Expr | None:
    while isinstance(stmt, ir.Block) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return stmt.expr if isinstance(stmt, ir.Do) else None


def _single_assignment(stmt: ir.Stmt | None) -> ir.Assign | None:
    expr = _single_expression(stmt)
    return expr if isinstance(expr, ir.Assign) and expr.op == "=" else None


def _changed(node: ir.Assign | ir.Unary) -> int | None:
    """The variable that an assignment or ``++`` changes by its name."""
    target = node.left if isinstance(node, ir.Assign) else node.operand
    return target.symbol if isinstance(target, ir.Name) else None
