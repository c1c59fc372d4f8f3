"""The small syntax tree that the analyses walk: byte spans into the source, names resolved to symbols.

It covers what kernels are made of; whatever it does not cover becomes :class:`Opaque`, which the
analyses treat as "may do anything", so that a gap here ends in a refusal and never in a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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
    match node:
        case Unary(operand=x) | Cast(operand=x):
            return (x,)
        case Binary(left=a, right=b) | Assign(left=a, right=b):
            return (a, b)
        case Ternary(condition=c, then=a, otherwise=b):
            return (c, a, b)
        case Index(base=a, index=b):
            return (a, b)
        case Member(base=a):
            return (a,)
        case Call(args=xs) | InitList(items=xs) | Opaque(parts=xs):
            return xs
        case Declare(symbols=ss):
            return tuple(e for s in ss for e in (*s.dims, *((s.init,) if s.init else ())))
        case Do(expr=x):
            return (x,)
        case Block(body=xs):
            return xs
        case If(condition=c, then=a, otherwise=b):
            return (c, a) if b is None else (c, a, b)
        case For(init=i, condition=c, update=u, body=b):
            return tuple(x for x in (i, c, u, b) if x is not None)
        case While(condition=c, body=b):
            return (c, b)
        case Jump(value=v):
            return () if v is None else (v,)
        case Asm(outputs=outs, inputs=ins):
            return tuple(e for _, e in (*outs, *ins))
    return ()


def walk(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """The node and everything under it, in source order."""
    stack: list[Expr | Stmt] = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def strip(expr: Expr) -> Expr:
    """The expression without casts between values (pointer casts stay)."""
    while isinstance(expr, Cast) and "*" not in expr.type_text and "&" not in expr.type_text:
        expr = expr.operand
    return expr
