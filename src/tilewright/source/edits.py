"""Byte-exact edits: everything that is not rewritten stays as it was, comments and line ends included."""

from __future__ import annotations

import difflib
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.source import ir, lexical

WIDTH = 120
_BREAKS = (" && ", " || ", " ? ", " : ", ", ", " = ", " * ", " + ")


@dataclass(frozen=True)
class Edit:
    """Replace the bytes ``start … end`` (an insertion where they are equal)."""

    start: int
    end: int
    text: str


def apply(text: bytes, span: ir.Span, edits: Iterable[Edit]) -> str:
    """The bytes of ``span`` with the edits inside it applied; edits must not overlap.

    Raises:
        ValueError: for overlapping edits (a fault of the rewriter).
    """
    out: list[str] = []
    at = span.start
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at or edit.end > span.end:
            raise ValueError(f"edit {edit.start}–{edit.end} overlaps or leaves {span.start}–{span.end}")
        out.append(text[at : edit.start].decode())
        out.append(edit.text)
        at = edit.end
    out.append(text[at : span.end].decode())
    return "".join(out)


def finish(text: bytes, edits: Iterable[Edit]) -> str:
    """The whole file with the edits applied; what they insert gets the file's line ends."""
    end = "\r\n" if b"\r\n" in text else "\n"
    own = [Edit(e.start, e.end, re.sub(r"\r?\n", end, e.text)) for e in edits]
    return apply(text, ir.Span(0, len(text)), own)


def behind_includes(text: bytes, limit: int) -> int:
    """Behind the last unconditional #include in front of byte ``limit``; at the top of the file where there is none."""
    bare = lexical.without_comments(text)
    at = start = len(BOM_UTF8) if text.startswith(BOM_UTF8) else 0
    depth = 0
    for line in bare[start:limit].split(b"\n")[:-1]:
        start += len(line) + 1
        directive = line.replace(b" ", b"").lstrip()
        depth += directive.startswith(b"#if") - directive.startswith(b"#endif")
        if depth == 0 and directive.startswith(b"#include"):
            at = start
    return at


def line_start(text: bytes, offset: int) -> int:
    return text.rfind(b"\n", 0, offset) + 1


def line_end(text: bytes, offset: int) -> int:
    """The end of the line that holds ``offset``, in front of its line break."""
    end = text.find(b"\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == b"\r" and end > offset else end


def indent_at(text: bytes, offset: int) -> str:
    """The white space in front of the line that holds ``offset``."""
    line = text[line_start(text, offset) :].split(b"\n", 1)[0].rstrip(b"\r")
    return line[: len(line) - len(line.lstrip(b" \t"))].decode()


def unified_diff(before: str, after: str, name_before: str, name_after: str) -> str:
    """A unified diff with three lines of context."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name_before, name_after, n=3
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def indented(lines: Iterable[str], indent: str) -> list[str]:
    """Every line behind ``indent``, long ones folded; blank lines stay blank."""
    out: list[str] = []
    for entry in lines:
        for line in entry.split("\n"):
            out += fold(indent + line) if line.strip() else [""]
    return out


def fold(line: str) -> list[str]:
    """A statement that is too long, broken after its outermost operators or commas."""
    if len(line) <= WIDTH or "//" in line or '"' in line or line.lstrip().startswith("#"):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    unit = "\t" if "\t" in indent else "    "
    cut = _cut(line, len(indent))
    if cut is None:
        return [line]
    first, *more = fold(indent + unit + line[cut:].lstrip())
    return [line[:cut].rstrip(), first, *more]


def _cut(line: str, start: int) -> int | None:
    """Where to break: as shallow in parentheses as possible, then as late as possible."""
    depth, best = 0, None
    for i in range(start, min(len(line), WIDTH)):
        depth += (line[i] in "([{") - (line[i] in ")]}")
        for sign in _BREAKS:
            if line.startswith(sign, i) and i > start and i + len(sign.rstrip()) <= WIDTH:
                at = i + (len(sign) if sign == ", " else 1 if sign != " = " else 3)
                if best is None or (-depth, _rank(sign), at) >= best[:3]:
                    best = (-depth, _rank(sign), at)
    return None if best is None else best[2]


def _rank(sign: str) -> int:
    return -_BREAKS.index(sign)
