"""The ``__shared__`` arrays of a kernel: sizes, alignment, declarations."""

from __future__ import annotations

import re

from tilewright.kloop.kernel import Refusal, SharedArray
from tilewright.source import ir
from tilewright.source.c_types import size_of
from tilewright.source.expr_types import Types
from tilewright.source.reader import OpenKernel
from tilewright.source.shared_views import is_view, place_of

_BREAK = re.compile(rb"[;{}]")


def shared_arrays(kernel: OpenKernel, types: Types) -> dict[int, SharedArray] | Refusal:
    """By symbol; a refusal for one whose bytes are not known."""
    owner = {s.id: n for n in ir.walk(kernel.body) if isinstance(n, ir.Declare) for s in n.symbols}
    out: dict[int, SharedArray] = {}
    for s in kernel.symbols.values():
        if s.kind != "shared" or _is_pool(kernel, s):
            continue
        found = _array(kernel, types, s, owner[s.id])
        if isinstance(found, Refusal):
            return found
        out[s.id] = found
    return out


def _array(kernel: OpenKernel, types: Types, s: ir.Symbol, owner: ir.Declare) -> SharedArray | Refusal:
    here = kernel.source.line(s.span.start)
    if s.extern or any(isinstance(d, ir.Opaque) for d in s.dims):
        what = f"`{s.name}` is dynamic shared memory: not understood yet"
        return Refusal("not_understood", what, here, "declare the tiles as static arrays")
    if is_view(s):
        return _view(kernel, types, s, owner)
    if s.span.within or not _starts_with(kernel.source.text, s.span.start, s.name):
        return Refusal("not_understood", f"`{s.name}` is declared in a way that is not understood", here)
    dims = [kernel.constants.evaluate(d) for d in s.dims]
    size = size_of(s.type_text.replace("__shared__", " "), kernel.constants.aliases)
    if size is None or not dims or any(d is None or d <= 0 for d in dims) or s.pointers or s.reference:
        hint = "name template arguments in the sidecar, or use a built-in element type"
        return Refusal("not_understood", f"the size of `{s.name}` is no constant that is understood", here, hint)
    if s.depth > 1:
        what = f"`{s.name}` is declared inside another scope: not understood yet"
        return Refusal("not_understood", what, here, "declare it at the top of the kernel")
    return SharedArray(
        s.id,
        s.name,
        types.base(s.type_text),
        size,
        tuple(d for d in dims if d),
        _alignment(kernel, owner.span),
        owner.span,
        len(owner.symbols) == 1,
        here,
    )


def _is_pool(kernel: OpenKernel, s: ir.Symbol) -> bool:
    """Dynamic shared memory that nothing but views of it names."""
    if not s.extern:
        return False
    views = [n for n in ir.walk(kernel.body) if isinstance(n, ir.Declare) and all(is_view(v) for v in n.symbols)]
    inside = [v.span for n in views for v in n.symbols]
    uses = [n.span for n in ir.walk(kernel.body) if isinstance(n, ir.Name) and n.symbol == s.id]
    return bool(uses) and all(any(v.start <= u.start < v.end for v in inside) for u in uses)


def _view(kernel: OpenKernel, types: Types, s: ir.Symbol, owner: ir.Declare) -> SharedArray | Refusal:
    """An array at a place of the launch's dynamic shared memory."""
    here = kernel.source.line(s.span.start)
    place = place_of(s, kernel.symbols, kernel.constants)
    size = size_of(s.type_text.replace("__shared__", " "), kernel.constants.aliases)
    dims = [kernel.constants.evaluate(d) for d in s.dims]
    if place is None or size is None or None in dims or s.depth > 1 or len(owner.symbols) != 1:
        what = f"`{s.name}` is a view of shared memory in a way that is not understood"
        return Refusal("not_understood", what, here, "declare it as an array")
    numbers = tuple(d for d in dims if d)
    return SharedArray(s.id, s.name, types.base(s.type_text), size, numbers, "", owner.span, True, here, *place)


def _starts_with(text: bytes, at: int, name: str) -> bool:
    """Whether the declarator is ``name[…]``, so that the name can be replaced where it starts."""
    rest = text[at + len(name.encode()) :]
    return text[at:].startswith(name.encode()) and rest.lstrip()[:1] == b"["


def _alignment(kernel: OpenKernel, declaration: ir.Span) -> str:
    """The text of a declaration's ``__align__``: inside it, or between it and the statement before; "" without."""
    text = kernel.source.text
    before = [m.end() for m in _BREAK.finditer(text, kernel.function.body.start, declaration.start)]
    start = before[-1] if before else declaration.start
    found = [a for at, a in kernel.source.alignments if start <= at < declaration.end]
    if not found:
        return ""
    kernel.constants.by_name(found[0])  # the rewrite relies on it, so the compiler is asked
    return found[0]
