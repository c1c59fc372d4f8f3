"""Texts of expressions at the rows of a tile: what differs from thread to thread is replaced by what it is at a row."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.kloop.lattice import Lattice
from tilewright.source import ir
from tilewright.source.c_types import IntKind, int_kind, plain
from tilewright.source.edits import Edit, apply

if TYPE_CHECKING:
    import numpy as np

ROW = "\N{SECTION SIGN}row"  # stands for the row's number; no C++ name can be this
_INT = IntKind(32, False)
_CASTS = {IntKind(32, True): "unsigned", IntKind(64, False): "long long", IntKind(64, True): "unsigned long long"}


class RowText:
    """Quotes expressions at given points, one point a row.

    Args:
        lattice: at the copy.
        text: the source.
        points: of the lattice: one for each row, in order.
    """

    def __init__(self, lattice: Lattice, text: bytes, points: np.ndarray) -> None:
        self._lattice = lattice
        self._text = text
        self._points = points

    def quote(self, expr: ir.Expr) -> str | None:
        """The text with ``ROW`` in it; None where a part has none (inside a macro, or no plain function of the row)."""
        if expr.span.within:
            return None
        if not self._moves(expr):
            return self._plain(expr)
        form = None if self._is_place(expr) else self._lattice.form(expr)
        values = form.numbers if form is not None else None
        if values is not None:
            found = self._typed(sequence([int(v) for v in values[self._points]]), expr)
            if found is not None:
                return found
        return self._made_of(expr) if isinstance(expr, ir.Name) else self._with_parts(expr)

    def address(self, lvalue: ir.Expr) -> str | None:
        """The address of an lvalue: ``*p`` → ``p``, ``x[i]`` → ``&x[i]``."""
        match lvalue:
            case ir.Unary(op="*", operand=p) | ir.Index(base=ir.Cast() as p, index=ir.Number(value=0)) if (
                not p.span.within
            ):
                return self.quote(p)
            case ir.Call(args=(p,)) if lvalue.callee.startswith("__ld") and not p.span.within:
                return self.quote(p)
        inner = self.quote(lvalue)
        return None if inner is None else f"&{inner}"

    def _is_place(self, expr: ir.Expr) -> bool:
        return isinstance(expr, ir.Index | ir.Call) or (isinstance(expr, ir.Unary) and expr.op in "*&")

    def _plain(self, expr: ir.Expr) -> str:
        text = self._text[expr.span.start : expr.span.end].decode()
        return text if "//" in text else " ".join(text.split())

    def _moves(self, expr: ir.Expr) -> bool:
        """Whether it names something that differs between threads, or that is not there where rows are copied."""
        return any(self._is_moving(node) for node in ir.walk(expr))

    def _is_moving(self, node: ir.Expr | ir.Stmt) -> bool:
        lattice = self._lattice
        if isinstance(node, ir.Member) and isinstance(node.base, ir.Name) and node.base.id == "threadIdx":
            return True
        if not isinstance(node, ir.Name) or node.symbol is None or node.symbol in (lattice.steady, *lattice.arrays):
            return False
        return node.symbol not in lattice.outside or not lattice.uniformity.uniform(node)

    def _typed(self, text: str | None, expr: ir.Expr) -> str | None:
        """A number or a function of the row, in the type that the expression has."""
        kind = self._lattice.kind(expr)
        if text is None or kind is None:
            return None
        if kind.promoted() == _INT:
            return text
        if kind == IntKind(32, True) and text.isdigit():
            return f"{text}u"
        return f"static_cast<{_CASTS[kind]}>({text.removeprefix('(').removesuffix(')')})" if kind in _CASTS else None

    def _made_of(self, name: ir.Name) -> str | None:
        """A name that cannot be written here, as what it was declared to be."""
        if name.symbol is None:
            return None
        init, symbol = self._lattice.initial(name.symbol), self._lattice.symbols[name.symbol]
        inner = None if init is None else self.quote(init)
        if init is None or inner is None:
            return None
        declared = int_kind(symbol.type_text, self._lattice.constants.aliases)
        if symbol.pointers or "auto" in symbol.type_text.split() or declared == self._lattice.kind(init):
            return inner if inner.isidentifier() or inner.isdigit() else f"({inner})"
        return f"static_cast<{plain(symbol.type_text)}>({inner})"

    def _in_macro(self, expr: ir.Expr) -> str | None:
        """The use of a macro, whose arguments have no places of their own: its names are replaced as words."""
        text = self._plain(expr)
        if any(mark in text for mark in ('"', "'", "#", "//")):
            return None
        words: list[str] = []
        texts: list[str] = []
        for node in {_word(n): n for n in ir.walk(expr) if isinstance(n, ir.Expr) and self._is_moving(n)}.values():
            new = self.quote(replace(node, span=replace(node.span, within=False)))
            word = rf"(?<![\w.])(?<!->){_word(node)}\b"
            if new is None or re.search(word, text) is None:
                return None
            words.append(f"({word})")
            texts.append(new)
        return re.sub("|".join(words), lambda m: texts[(m.lastindex or 1) - 1], text)

    def _with_parts(self, expr: ir.Expr) -> str | None:
        if any(p.span.within and p.span.start == expr.span.start for p in ir.children(expr)):
            return self._in_macro(expr)
        edits: list[Edit] = []
        for part in ir.children(expr):
            if not isinstance(part, ir.Expr) or not self._moves(part):
                continue
            new = self.quote(part)
            if new is None:
                return None
            edits.append(Edit(part.span.start, part.span.end, new))
        text = apply(self._text, expr.span, edits)
        return text if "//" in text else " ".join(text.split())


def sequence(values: list[int]) -> str | None:
    """The numbers of rows 0, 1, … as an expression of ``ROW`` that holds together; None where there is none."""
    first = values[0]
    at = next((i for i, v in enumerate(values) if v != first), None)
    if at is None:
        return str(first) if first >= 0 else f"({first})"
    step = values[at] - first
    again = next((i for i in range(at, len(values)) if values[i] == first), len(values))
    rows = range(len(values))
    for term, numbers in (
        (ROW, list(rows)),
        (f"{ROW} / {at}", [i // at for i in rows]),
        (f"{ROW} % {again}", [i % again for i in rows]),
    ):
        if values == [first + n * step for n in numbers]:
            text = term if step == 1 else f"{term} * {step}"
            text = text if first == 0 else f"{text} + {first}"
            return text if text == ROW else f"({text})"
    return None


def _word(node: ir.Expr) -> str:
    """The pattern of a name, or of ``threadIdx.x``, in the text."""
    return node.id if isinstance(node, ir.Name) else rf"threadIdx\s*\.\s*{getattr(node, 'field', '')}"
