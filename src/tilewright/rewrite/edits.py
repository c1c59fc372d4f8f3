"""Byte-exact edits: everything that is not rewritten stays as it was, comments included."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.source import ir


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


def indent_at(text: bytes, offset: int) -> str:
    """The white space in front of the line that holds ``offset``."""
    start = text.rfind(b"\n", 0, offset) + 1
    line = text[start:].split(b"\n", 1)[0]
    return line[: len(line) - len(line.lstrip(b" \t"))].decode()


def line_start(text: bytes, offset: int) -> int:
    return text.rfind(b"\n", 0, offset) + 1


def unified_diff(before: str, after: str, name_before: str, name_after: str) -> str:
    """A unified diff with three lines of context."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name_before, name_after, n=3
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def reindent(block: str, indent: str) -> str:
    """Every line of ``block`` (written without indentation) behind ``indent``; blank lines stay blank."""
    return "\n".join(
        indent + line if line.strip() and not line.startswith("\f") else line for line in block.split("\n")
    )
