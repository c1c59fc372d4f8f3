"""Declarations of shared arrays: one array a statement, at the top of the kernel."""

from __future__ import annotations

import re

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.loop_sites import Sites
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.edits import Edit, indent_at, line_end, line_start

_WORD = re.compile(r"[A-Za-z_]\w*")


def split(situation: Situation) -> Change | Refusal | None:
    """``__shared__ float A[…], B[…];`` → a statement for each: what is said of the first must not hold for all."""
    sites = situation.sites
    for stmt in _declarations(sites):
        if len(stmt.symbols) < 2:
            continue
        start = sites.statement_start(stmt)
        head = ir.Span(start, stmt.symbols[0].span.start)
        head_text = sites.text[head.start : head.end].decode()
        if sites.has_comment(ir.Span(start, stmt.span.end)) or "{" in head_text or "\n" in head_text:
            continue
        if any(sites.text[s.span.start : s.span.start + 1] == b"*" for s in stmt.symbols):
            continue
        indent = indent_at(sites.text, start)
        lines = [f"{head_text}{sites.text[s.span.start : s.span.end].decode().strip()};" for s in stmt.symbols]
        names = ", ".join(f"`{s.name}`" for s in stmt.symbols)
        edit = Edit(start, stmt.span.end, f"\n{indent}".join(lines))
        return Change((edit,), f"{names} declared in statements of their own", sites.line(stmt))
    return None


def hoist(situation: Situation) -> Change | Refusal | None:
    """Shared arrays of an inner block → in front of the kernel's statement that holds it: they exist once anyway."""
    sites = situation.sites
    for stmt in _declarations(sites):
        symbol = stmt.symbols[0]
        if symbol.depth <= 1 or len(stmt.symbols) != 1:
            continue
        holder = next((s for s in sites.kernel.body.body if s.span.start <= stmt.span.start < s.span.end), None)
        if holder is None or not _visible(sites, stmt, holder):
            continue
        change = _hoisted(sites, stmt, symbol, holder)
        if change is not None:
            return change
    return None


def _declarations(sites: Sites) -> list[ir.Declare]:
    """Statements that declare static shared arrays, outside macros."""
    return [
        n
        for n in ir.walk(sites.kernel.body)
        if isinstance(n, ir.Declare)
        and not n.span.within
        and n.symbols
        and all(s.kind == "shared" and not s.extern and not s.span.within for s in n.symbols)
    ]


def _visible(sites: Sites, stmt: ir.Declare, holder: ir.Stmt) -> bool:
    """Whether everything that the declaration names means the same in front of the outermost statement."""
    inner = {s.id for n in ir.walk(holder) if isinstance(n, ir.Declare) for s in n.symbols}
    if ir.names([stmt]) & inner:
        return False
    words = set(_WORD.findall(sites.text[sites.statement_start(stmt) : stmt.span.end].decode()))
    for node in ir.walk(holder):
        # A type that is named in there may be the one that is meant.
        odd = isinstance(node, ir.Alias | ir.OpaqueStmt)
        if odd and words & set(_WORD.findall(sites.text[node.span.start : node.span.end].decode())) - _KEYWORDS:
            return False
    return True


_KEYWORDS = frozenset({"__shared__", "__align__", "alignas", "float", "double", "int", "unsigned", "char", "short",
                       "long", "signed", "const", "half", "using", "typedef", "struct"})  # fmt: skip


def _hoisted(sites: Sites, stmt: ir.Declare, symbol: ir.Symbol, holder: ir.Stmt) -> Change | None:
    text, start = sites.text, sites.statement_start(stmt)
    home = _block(sites, stmt)
    if home is None:
        return None
    name, edits = symbol.name, list[Edit]()
    if sites.said_outside(name, home.span):
        name = sites.fresh(f"{symbol.name}_tile")
        renamed = sites.renamed(symbol, name)
        if renamed is None:
            return None
        edits += renamed
    if not text[symbol.span.start :].startswith(symbol.name.encode()):
        return None
    at = symbol.span.start
    line = text[start:at].decode() + name + text[at + len(symbol.name.encode()) : stmt.span.end].decode()
    if "\n" in line or "//" in line:
        return None
    edits.append(sites.put_in_front(holder, [line]))
    first, last = line_start(text, start), line_end(text, stmt.span.end)
    behind = text.find(b"\n", last)
    alone = not text[first:start].strip() and not text[stmt.span.end : last].strip() and behind >= 0
    edits.append(Edit(first, behind + 1, "") if alone else Edit(start, stmt.span.end, ""))
    what = f"`{symbol.name}` declared in front of the statement that held it"
    return Change(tuple(edits), what, sites.line(stmt))


def _block(sites: Sites, stmt: ir.Stmt) -> ir.Block | None:
    """The block that a statement stands in."""
    for node in ir.walk(sites.kernel.body):
        if isinstance(node, ir.Block) and any(x is stmt for x in node.body):
            return node
    return None
