"""Branches of the load phase that a constant decides: the one that is taken, with an assertion that it is."""

from __future__ import annotations

import re

from tilewright.normalise.inline_sites import CallSites
from tilewright.normalise.inline_text import moved, one_line
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.edits import Edit, indent_at, line_end
from tilewright.source.reader import OpenKernel

_SAYS = '"the load phase is written for this branch"'
_CONSTEXPR = re.compile(rb"if\s+constexpr\b")


def branches(situation: Situation, sites: CallSites) -> Change | None:
    """Take the branch of the first ``if constexpr`` whose condition is known; what the source says, and no more."""
    kernel = situation.kernel
    if kernel.errors:
        return None
    for segment in sites.segments():
        for stmt in segment:
            for node in ir.walk(ir.Block(stmt.span, (stmt,))):
                for inner in node.body if isinstance(node, ir.Block) else ():
                    edit = _decided(kernel, inner) if isinstance(inner, ir.If) else None
                    if edit is not None:
                        what = "the branch of an `if constexpr` that is taken is written out"
                        return Change((edit,), what, kernel.source.line(inner.span.start))
    return None


def _decided(kernel: OpenKernel, stmt: ir.If) -> Edit | None:
    text, condition = kernel.source.text, stmt.condition
    if stmt.span.within or condition.span.within or not _CONSTEXPR.match(text, stmt.span.start):
        return None
    value = kernel.constants.evaluate(condition)
    if value is None:
        return None
    asked = one_line(text[condition.span.start : condition.span.end].decode())
    holds = asked if value else f"!({asked})"
    indent = indent_at(text, stmt.span.start)
    lines = [f"{indent}static_assert({holds}, {_SAYS});"]
    taken = stmt.then if value else stmt.otherwise
    if taken is not None and not isinstance(taken, ir.Nothing):
        own = isinstance(taken, ir.Block) and not any(isinstance(s, ir.Declare | ir.Alias) for s in taken.body)
        start, end = (taken.span.start + 1, taken.span.end - 1) if own else (taken.span.start, taken.span.end)
        lines += moved(_whole_lines(text, start, end), indent)
    rest = text[stmt.span.end : line_end(text, stmt.span.end)].strip()
    new = "\n".join(lines).lstrip() + ("\n" + indent if rest and not rest.startswith(b"}") else "")
    return Edit(stmt.span.start, stmt.span.end, new)


def _whole_lines(text: bytes, start: int, end: int) -> str:
    """A piece of text, its first line indented as it stands in the file."""
    return " " * len(indent_at(text, start)) * (text[start : start + 1] not in b"\r\n") + text[start:end].decode()
