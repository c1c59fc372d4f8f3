"""Pieces of dynamic shared memory: pointers to constant places of it, and how far each is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.kloop.ranges import Interval, Ranges
from tilewright.normalise.loop_sites import Sites
from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.effects import short_name
from tilewright.source.expr_types import Types
from tilewright.source.places import root

LDMATRIX_ROW_BYTES = 16  # PTX ISA, ldmatrix: each address is that of a row of 16 bytes
_POINTER_TYPE = "*"


@dataclass(frozen=True)
class Address:
    """A place in the buffer: a pointer to ``element`` behind ``dims`` array dimensions.

    Attributes:
        offset: bytes from the buffer's start. element: type name, ``size`` bytes.
    """

    offset: Interval
    element: str
    size: int
    dims: tuple[int, ...] = ()

    @property
    def stride(self) -> int:
        """Bytes from one element that it points to, to the next."""
        out = self.size
        for d in self.dims:
            out *= d
        return out


@dataclass(frozen=True)
class Piece:
    """A name for a part of the buffer.

    Attributes:
        offset: its first byte. element, dims: what it points to.
        owner: the statement that declares it; None for the buffer's own name.
    """

    symbol: ir.Symbol
    offset: int
    element: str
    size: int
    dims: tuple[int, ...]
    owner: ir.Declare | None


@dataclass(frozen=True)
class Use:
    """One place where a piece is named.

    Attributes:
        extent: bytes of the buffer that it may touch; None where that is not known.
        inside: the K-loop uses it.
        stores: something is stored there.
    """

    name: ir.Name
    extent: Interval | None
    inside: bool
    stores: bool = False


class Pieces:
    """The pieces of one buffer.

    Args:
        buffer: the symbol of the ``extern __shared__`` array.
        loop: the K-loop.
    """

    def __init__(
        self, sites: Sites, buffer: ir.Symbol, loop: ir.For | ir.While, block: tuple[int, int, int] | None
    ) -> None:
        self.sites = sites
        self.buffer = buffer
        self.loop = loop
        kernel = sites.kernel
        self._ranges = Ranges(
            kernel.constants, sites.types, kernel.symbols, kernel.body, sites.changed, sites.is_plain, block
        )
        self._parents = {id(c): n for n in ir.walk(kernel.body) for c in ir.children(n)}
        self._types = Types(kernel.symbols, kernel.constants.aliases)
        self._known: dict[int, Piece] = {}
        self._derived: dict[int, Address] = {}  # pointers to places that differ from thread to thread
        self._owners = {s.id: n for n in ir.walk(kernel.body) if isinstance(n, ir.Declare) for s in n.symbols}

    def find(self) -> list[Piece] | str:
        """Every piece, the buffer's own name first where it is used as one; or what is odd."""
        own = self._own()
        if own is None:
            return f"the elements of `{self.buffer.name}` are of no size that is known"
        self._known[self.buffer.id] = own
        out: list[Piece] = []
        for symbol in self.sites.kernel.symbols.values():
            found = self._piece(symbol)
            if found is not None:
                self._known[symbol.id] = found
                out.append(found)
        inner = {id(n) for p in out if p.symbol.init is not None for n in ir.walk(p.symbol.init)}
        named = [n for n in self.sites.uses(self.buffer.id) if id(n) not in inner]
        return [own, *out] if named else out

    def _own(self) -> Piece | None:
        s = self.buffer
        base = s.type_text.replace("extern", " ").replace("__shared__", " ").strip()
        size = self._size(base)
        dims = [self.sites.kernel.constants.evaluate(d) for d in s.dims[1:]]
        if size is None or any(d is None or d <= 0 for d in dims):
            return None
        return Piece(s, 0, " ".join(base.split()), size, tuple(d for d in dims if d), None)

    def _size(self, type_text: str) -> int | None:
        return size_of(type_text, self.sites.kernel.constants.aliases)

    def _piece(self, symbol: ir.Symbol) -> Piece | None:
        """A pointer that is set to a constant place of the buffer, and stays there."""
        owner = self._owners.get(symbol.id)
        if symbol.kind != "local" or symbol.pointers != 1 or symbol.init is None or owner is None:
            return None
        if symbol.id in self.sites.changed or not self.sites.is_plain(replace(symbol, dims=())):
            return None
        if symbol.span.within or symbol.depth != 1:
            return None
        found = self.address(symbol.init)
        if found is None or found.offset.low != found.offset.high or found.offset.low < 0:
            return None
        if "auto" in symbol.type_text.split():
            return Piece(symbol, found.offset.low, found.element, found.size, found.dims, owner)
        base = " ".join(w for w in symbol.type_text.split() if w not in ("__restrict__", "__restrict"))
        size = self._size(base)
        dims = [self.sites.kernel.constants.evaluate(d) for d in symbol.dims]
        if size is None or any(d is None or d <= 0 for d in dims) or "volatile" in base:
            return None
        return Piece(symbol, found.offset.low, base, size, tuple(d for d in dims if d), owner)

    # -- addresses ------------------------------------------------------------------------------------
    def address(self, expr: ir.Expr) -> Address | None:
        """The place that a pointer expression holds, with what it points to."""
        match expr:
            case ir.Name(symbol=int(s)) if s in self._known:
                p = self._known[s]
                return Address(Interval(p.offset, p.offset), p.element, p.size, p.dims)
            case ir.Name(symbol=int(s)) if s in self._derived:
                return self._derived[s]
            case ir.Unary(op="&", operand=x):
                return self.lvalue(x)
            case ir.Index() | ir.Unary(op="*"):
                at = self.lvalue(expr)  # an array that decays to a pointer to its first row
                return None if at is None or not at.dims else replace(at, dims=at.dims[1:])
            case ir.Cast(type_text=t, operand=x) if _POINTER_TYPE in t:
                return self._cast(t, x)
            case ir.Binary(op="+" | "-" as op, left=a, right=b):
                return self._moved(op, a, b)
        return None

    def lvalue(self, expr: ir.Expr) -> Address | None:
        """The object that an lvalue names; its ``dims`` are those of the object."""
        match expr:
            case ir.Index(base=a, index=i):
                return self._moved("+", a, i)
            case ir.Unary(op="*", operand=x):
                return self.address(x)
            case ir.Cast(type_text=t, operand=x) if "&" in t:
                at, size = self.lvalue(x), self._size(t.replace("&", " "))
                return None if at is None or size is None else Address(at.offset, t.replace("&", " ").strip(), size)
            case ir.Member(base=x, arrow=False):
                return self.lvalue(x)
        return None

    def _cast(self, type_text: str, operand: ir.Expr) -> Address | None:
        at = self.address(operand)
        base = type_text.split("(")[0].replace("*", " ").strip()
        size = self._size(base)
        if at is None or size is None or type_text.count("*") != 1:
            return None
        inner = type_text.partition("[")[2]
        dims = [int(d) for d in inner.replace("]", " ").replace("[", " ").split() if d.isdigit()] if inner else []
        if inner and len(dims) != type_text.count("["):
            return None
        return Address(at.offset, base, size, tuple(dims))

    def _moved(self, op: str, pointer: ir.Expr, count: ir.Expr) -> Address | None:
        at, by = self.address(pointer), self._ranges.of(count)
        if at is None and op == "+":
            at, by = self.address(count), self._ranges.of(pointer)
        if at is None or by is None:
            return None
        step = by * Interval(at.stride, at.stride)
        return replace(at, offset=at.offset + step if op == "+" else at.offset - step)

    # -- uses -----------------------------------------------------------------------------------------
    def uses(self, piece: Piece, pieces: Iterable[Piece]) -> list[Use]:
        """Every use of a piece but those that other pieces are made from."""
        made = {id(n) for p in pieces if p.symbol.init is not None for n in ir.walk(p.symbol.init)}
        return [
            Use(n, self._extent(n), self._inside(n), self._stores(n))
            for n in self.sites.uses(piece.symbol.id)
            if id(n) not in made
        ]

    def _inside(self, name: ir.Name) -> bool:
        """Whether the K-loop uses what is named here, be it by way of a variable that keeps an address."""
        span = self.loop.span
        queue, seen = [name], {name.symbol}
        while queue:
            at = queue.pop()
            if span.start <= at.span.start < span.end:
                return True
            kept = self._keeper(at)
            if kept is not None and kept not in seen:
                seen.add(kept)
                queue += self.sites.uses(kept)
        return False

    def _stores(self, name: ir.Name) -> bool:
        """Whether the name is that of a place which is stored to."""
        node: ir.Stmt | ir.Expr = name
        while (parent := self._parents.get(id(node))) is not None and isinstance(parent, ir.Expr):
            if isinstance(parent, ir.Assign):
                return parent.left is node
            if isinstance(parent, ir.Call):
                return short_name(parent.callee) == "store_matrix_sync" and parent.args[:1] == (node,)
            node = parent
        return False

    def _keeper(self, name: ir.Name) -> int | None:
        """The variable that an expression with a name in it is stored to, if it is one."""
        node: ir.Stmt | ir.Expr = self._climbed(name)
        if self._is_data(node):
            return None
        while (parent := self._parents.get(id(node))) is not None:
            if isinstance(parent, ir.Declare):
                return next((s.id for s in parent.symbols if s.init is node), None)
            if isinstance(parent, ir.Assign) and parent.right is node:
                target = root(parent.left)
                return None if target is None else target.symbol
            if isinstance(parent, ir.Stmt):
                return None
            node = parent
        return None

    def _climbed(self, name: ir.Name) -> ir.Expr:
        """The whole address or lvalue that hangs on a name."""
        node: ir.Expr = name
        while True:
            parent = self._parents.get(id(node))
            if not _is_address_step(parent, node):
                return node
            assert isinstance(parent, ir.Expr)
            node = parent

    def _is_data(self, node: ir.Stmt | ir.Expr) -> bool:
        """Whether an expression is what memory holds, and no address of it."""
        if not (isinstance(node, ir.Index | ir.Member) or (isinstance(node, ir.Unary) and node.op == "*")):
            return False
        kind = self._types.of(node)
        return kind is not None and not kind.rank and not kind.pointers

    def _extent(self, name: ir.Name) -> Interval | None:
        """What is touched where a name is used: an element, or what a call does with an address."""
        node = self._climbed(name)
        if isinstance(node, ir.Index | ir.Member) or (isinstance(node, ir.Unary) and node.op == "*"):
            at = self.lvalue(node)
            if at is not None and not at.dims:
                return Interval(at.offset.low, at.offset.high + at.size - 1)
        at = self.address(node)
        parent = self._parents.get(id(node))
        if at is None:
            return None
        if isinstance(parent, ir.Declare):
            return self._kept(parent, node, at)
        return self._passed(parent, at) if isinstance(parent, ir.Call) else None

    def _kept(self, declaration: ir.Declare, node: ir.Expr, at: Address) -> Interval | None:
        """What is touched through a pointer that is set to an address, and never to another one."""
        symbol = next((s for s in declaration.symbols if s.init is node), None)
        if symbol is None or symbol.pointers != 1 or symbol.dims or symbol.id in self.sites.changed:
            return None
        size = at.size if "auto" in symbol.type_text.split() else self._size(symbol.type_text)
        if size is None or not self.sites.is_plain(symbol) or symbol.id in self._derived:
            return None
        dims = at.dims if "auto" in symbol.type_text.split() else ()
        self._derived[symbol.id] = Address(at.offset, symbol.type_text, size, dims)
        found = [self._extent(n) for n in self.sites.uses(symbol.id)]
        known = [f for f in found if f is not None]
        if len(known) != len(found):
            return None
        out = Interval(at.offset.low, at.offset.low)
        for f in known:
            out = out.union(f)
        return out

    def _passed(self, call: ir.Call, at: Address) -> Interval | None:
        name = short_name(call.callee)
        if name == "__cvta_generic_to_shared":
            return Interval(at.offset.low, at.offset.high + LDMATRIX_ROW_BYTES - 1)
        if name in ("load_matrix_sync", "store_matrix_sync") and len(call.args) >= 3:
            extent = self._fragment(call, name)
            return None if extent is None else Interval(at.offset.low, at.offset.high + extent * at.size - 1)
        return None

    def _fragment(self, call: ir.Call, name: str) -> int | None:
        """Elements from the first to the last one of a fragment in memory, whatever its layout."""
        fragment = call.args[0] if name == "load_matrix_sync" else call.args[1]
        base: ir.Expr = fragment
        while isinstance(base, ir.Index):
            base = base.base
        symbol = self.sites.kernel.symbols.get(base.symbol) if isinstance(base, ir.Name) and base.symbol else None
        pitch = self._ranges.of(call.args[2])
        if symbol is None or pitch is None or "<" not in symbol.type_text:
            return None
        words = [w.strip() for w in symbol.type_text.partition("<")[2].rpartition(">")[0].split(",")]
        sizes = [self._number(w) for w in words[1:4]]
        if len(sizes) != 3 or None in sizes:
            return None
        m, n, k = (s or 0 for s in sizes)
        role = words[0].split("::")[-1]
        shape = {"matrix_a": (m, k), "matrix_b": (k, n), "accumulator": (m, n)}.get(role)
        if shape is None:
            return None
        # Row by row or column by column: the layout may be known at run time only.
        return max((shape[0] - 1) * pitch.high + shape[1], (shape[1] - 1) * pitch.high + shape[0])

    def _number(self, word: str) -> int | None:
        return int(word) if word.isdigit() else self.sites.kernel.constants.by_name(word)


def _is_address_step(parent: ir.Stmt | ir.Expr | None, node: ir.Expr) -> bool:
    match parent:
        case ir.Index(base=b):
            return b is node
        case ir.Member(base=b, arrow=False):
            return b is node
        case ir.Unary(op="&" | "*"):
            return True
        case ir.Cast(type_text=t):
            return "*" in t or "&" in t
        case ir.Binary(op="+"):
            return True
        case ir.Binary(op="-", left=a):
            return a is node
    return False
