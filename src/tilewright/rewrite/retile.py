"""Half of BK or of BM: one constant of the file is halved, and everything that is computed from it follows.

This writes the candidates. Whether the kernel still is what it was at the new constant (its tile halved in one
direction only, covered by its copies, as many operations per element) is for the caller to read and build again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tilewright.kloop.kernel import Refusal, SharedArray, TiledKernel
from tilewright.source import lexical
from tilewright.source.edits import Edit, finish
from tilewright.source.reader import OpenKernel

Side = Literal["BK", "BM"]
SIDES: tuple[Side, ...] = ("BK", "BM")
_LITERAL = re.compile(r"(\d+)([uUlL]*)")


@dataclass(frozen=True)
class Retiling:
    """The file with one constant halved.

    Attributes:
        side: which side of the tile that halves. name: the constant. before, after: its values.
        line: of its definition.
    """

    side: Side
    name: str
    before: int
    after: int
    text: str
    line: int


def retiling(opened: OpenKernel, kernel: TiledKernel, side: Side) -> Retiling | Refusal:
    """The kernel's file with the constant of one side of the tile halved, or why there is none.

    Args:
        opened: the kernel as handed in. kernel: the same, as understood.
    """
    value = kernel.tile.bk if side == "BK" else kernel.tile.bm
    if value is None or kernel.tile.bm is None or kernel.tile.bn is None or kernel.tile.bk is None:
        return _refusal(kernel, "the sides of the tile are not all known")
    if value % 2 or value < 2:
        return _refusal(kernel, f"{side} is {value}, which has no half")
    name = _named(opened, kernel, side, value)
    if isinstance(name, Refusal):
        return name
    if name in {p.name for p in opened.function.template}:
        what = f"`{name}` is a template argument: half of it is another instantiation, not another source"
        return _refusal(kernel, what, f"instantiate the kernel with {value // 2} and run it on that")
    if name in opened.given:
        return _refusal(kernel, f"`{name}` is set by -D, not in the file", f"try -D {name}={value // 2}")
    edit = _halved(opened, kernel, name, value)
    if isinstance(edit, Refusal):
        return edit
    line = lexical.line_of(opened.source.text, edit.start)
    return Retiling(side, name, value, value // 2, finish(opened.source.text, [edit]), line)


def _refusal(kernel: TiledKernel, what: str, hint: str = "") -> Refusal:
    return Refusal("not_understood", what, kernel.line, hint)


def _named(opened: OpenKernel, kernel: TiledKernel, side: Side, value: int) -> str | Refusal:
    """The constant that a side of the tile comes from: what the K-loop steps by, or what the arrays are sized by."""
    values = opened.constants.names()
    used = lexical.identifiers(opened.source.text[opened.function.span.start : opened.function.span.end])
    header = kernel.loop.stmt.header
    steps = lexical.identifiers(kernel.text[header.start : header.end].rpartition(b";")[2])
    found = [_sized_by(kernel, a) for a in kernel.staged]
    sized = frozenset.intersection(*found) if side == "BK" else found[0].difference(*found[1:])
    for names in (steps, sized) if side == "BK" else (sized,):
        meant = sorted(n for n in names if values.get(n) == value and n in used)
        if len(meant) == 1:
            return meant[0]
        if meant:
            return _refusal(kernel, f"{side} may come from {' or '.join(f'`{n}`' for n in meant)}")
    return _refusal(kernel, f"no constant of the file names {side}, which is {value}")


def _sized_by(kernel: TiledKernel, array: SharedArray) -> frozenset[str]:
    """The names in an array's extents, as they are written: macros too."""
    at = kernel.symbols[array.symbol].span.start + len(array.name.encode())
    text = lexical.without_comments(kernel.text)[at : array.declaration.end]
    extents = re.match(rb"(?:\s*\[[^\[\]]*\])+", text)
    return lexical.identifiers(extents[0]) if extents is not None else frozenset()


def _halved(opened: OpenKernel, kernel: TiledKernel, name: str, value: int) -> Edit | Refusal:
    """The edit of the constant's one definition."""
    # One character a byte, as offsets are.
    text = lexical.without_comments(opened.source.text).decode("latin-1")
    word = re.escape(name)
    defines = re.finditer(rf"^[ \t]*#[ \t]*define[ \t]+{word}[ \t]+(\S[^\n]*?)[ \t\r]*$", text, re.MULTILINE)
    # Every declarator of the name with a value, constant or not: a second one, even elsewhere, is one too many.
    declared = re.finditer(rf"\b{word}\s*=\s*([^,;=\n]+?)\s*[,;]", text)
    found = [(m, True) for m in defines] + [(m, False) for m in declared if not _compares(text, m)]
    if len(found) != 1:
        many = "more than once" if found else "where it is not found: in a header, or in an unusual form"
        return _refusal(kernel, f"`{name}` is defined {many}")
    match, macro = found[0]
    line = lexical.line_of(opened.source.text, match.start(1))
    if not macro and not re.search(r"\b(?:const|constexpr)\b[^;{}()]*$", text[: match.start()]):
        return Refusal("not_understood", f"`{name}` is no constant of the form `const int {name} = {value};`", line)
    old = match[1]
    if macro and old.endswith("\\"):
        return Refusal("not_understood", f"the definition of `{name}` goes on on the next line", line)
    bare = old[1:-1].strip() if re.fullmatch(r"\(\s*\w+\s*\)", old) else old
    literal = _LITERAL.fullmatch(bare)
    if literal is not None:
        new = old.replace(bare, f"{value // 2}{literal[2]}")
    else:
        half = f"{old if _is_parenthesised(old) else f'({old})'} / 2"
        new = f"({half})" if macro else half
    return Edit(match.start(1), match.end(1), new)


def _is_parenthesised(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return c == ")" and i == len(text) - 1
    return False


def _compares(text: str, match: re.Match[str]) -> bool:
    """``BK == …``, or a member ``x.BK = …``."""
    return match[1].startswith("=") or text[: match.start()].rstrip().endswith((".", "->", "::"))
