"""The small syntax tree that the analyses walk: byte spans into the source, names resolved to symbols.

It covers what kernels are made of; whatever it does not cover becomes :class:`Opaque`, which the
analyses treat as "may do anything", so that a gap here ends in a refusal and never in a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """Byte offsets into the source, end exclusive.

    ``within``: the node comes from inside a macro's body; the span is that of the macro's use, and so says where the
    node is, not how it is written. Such a node must not be quoted.
    """

    start: int
    end: int
    within: bool = False


@dataclass(frozen=True)
class Symbol:
    """A name declared in the kernel.

    Attributes:
        kind: ``param``, ``local`` or ``shared``.
        type_text: the declared type without the declarator, qualifiers included.
        pointers: how many ``*`` the declarator has.
        dims: the array dimensions, outermost first.
        depth: how many scopes enclose the declaration; 0 for parameters.
    """

    id: int
    name: str
    kind: str
    type_text: str
    pointers: int
    dims: tuple[Expr, ...]
    span: Span
    depth: int
    reference: bool = False
    init: Expr | None = None
    extern: bool = False


@dataclass(frozen=True)
class Expr:
    span: Span


@dataclass(frozen=True)
class Name(Expr):
    id: str
    symbol: int | None


@dataclass(frozen=True)
class Number(Expr):
    text: str
    value: int | float | None


@dataclass(frozen=True)
class Unary(Expr):
    """``op``: ``* & - + ! ~``, ``++``/``--`` (prefix), ``p++``/``p--`` (postfix)."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Assign(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Ternary(Expr):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Index(Expr):
    base: Expr
    index: Expr


@dataclass(frozen=True)
class Member(Expr):
    base: Expr
    field: str
    arrow: bool


@dataclass(frozen=True)
class Cast(Expr):
    type_text: str
    operand: Expr


@dataclass(frozen=True)
class Call(Expr):
    callee: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class InitList(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class SizeOf(Expr):
    type_text: str


@dataclass(frozen=True)
class Opaque(Expr):
    """Something this tree has no word for; ``parts`` are the expressions in it."""

    what: str
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Stmt:
    span: Span


@dataclass(frozen=True)
class Declare(Stmt):
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Do(Stmt):
    """An expression statement."""

    expr: Expr


@dataclass(frozen=True)
class Block(Stmt):
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Stmt):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None


@dataclass(frozen=True)
class For(Stmt):
    """``header`` spans ``for (…)``."""

    init: Stmt | None
    condition: Expr | None
    update: Expr | None
    body: Stmt
    header: Span


@dataclass(frozen=True)
class While(Stmt):
    condition: Expr
    body: Stmt


@dataclass(frozen=True)
class Jump(Stmt):
    """``return``, ``break``, ``continue`` or ``goto``."""

    kind: str
    value: Expr | None


@dataclass(frozen=True)
class Asm(Stmt):
    code: str
    outputs: tuple[tuple[str, Expr], ...]
    inputs: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class Nothing(Stmt):
    """No effect at all: ``;``, ``static_assert``, a comment."""


@dataclass(frozen=True)
class Alias(Stmt):
    """``using`` or ``typedef``: a name that what follows may depend on."""


@dataclass(frozen=True)
class OpaqueStmt(Stmt):
    what: str


def children(node: Expr | Stmt) -> tuple[Expr | Stmt, ...]:
    """The direct parts of a node, in source order."""
    parts = _PARTS.get(type(node))
    return () if parts is None else parts(node)


# By type, for this is asked millions of times in a kernel of two thousand lines.
_PARTS: Mapping[type, Callable[[Any], tuple[Expr | Stmt, ...]]] = {
    Unary: lambda n: (n.operand,),
    Cast: lambda n: (n.operand,),
    Binary: lambda n: (n.left, n.right),
    Assign: lambda n: (n.left, n.right),
    Ternary: lambda n: (n.condition, n.then, n.otherwise),
    Index: lambda n: (n.base, n.index),
    Member: lambda n: (n.base,),
    Call: lambda n: n.args,
    InitList: lambda n: n.items,
    Opaque: lambda n: n.parts,
    Declare: lambda n: tuple(e for s in n.symbols for e in (*s.dims, *((s.init,) if s.init else ()))),
    Do: lambda n: (n.expr,),
    Block: lambda n: n.body,
    If: lambda n: (n.condition, n.then) if n.otherwise is None else (n.condition, n.then, n.otherwise),
    For: lambda n: tuple(x for x in (n.init, n.condition, n.update, n.body) if x is not None),
    While: lambda n: (n.condition, n.body),
    Jump: lambda n: () if n.value is None else (n.value,),
    Asm: lambda n: tuple(e for _, e in (*n.outputs, *n.inputs)),
}


def walk(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """The node and everything under it, in source order."""
    found = node.__dict__.get(_WALKED)
    if found is None:
        found, stack, parts = [], [node], _PARTS
        while stack:
            top = stack.pop()
            found.append(top)
            below = parts.get(type(top))
            if below is not None:
                stack.extend(reversed(below(top)))
        # Kept with the node, which never changes: the analyses walk the same trees dozens of times.
        object.__setattr__(node, _WALKED, found)
    return iter(found)


_WALKED = "_walked"


def strip(expr: Expr) -> Expr:
    """The expression without casts between values (pointer casts stay)."""
    while isinstance(expr, Cast) and "*" not in expr.type_text and "&" not in expr.type_text:
        expr = expr.operand
    return expr


def names(nodes: Iterable[Stmt | Expr]) -> set[int]:
    """Symbols that the nodes name; what they declare is not among them by itself."""
    return {n.symbol for node in nodes for n in walk(node) if isinstance(n, Name) and n.symbol is not None}
