"""tree-sitter's grammar of CUDA, and what is asked of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.source import ir

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


def make_parser() -> Parser:
    """A parser of the CUDA grammar (imported late: it is needed only where a source is read)."""
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def nodes_of(root: Node, words: tuple[bytes, ...], *kinds: str) -> list[Node]:
    """Every node of these types; a query is ten times as fast as a walk, and not asked where no such word is.

    Args:
        words: one of them stands in every such node.
    """
    if not any(word in (root.text or b"") for word in words):
        return []
    import tree_sitter_cuda
    from tree_sitter import Language, Query, QueryCursor

    pattern = "[" + " ".join(f"({kind})" for kind in kinds) + "] @found"
    query = Query(Language(tree_sitter_cuda.language()), pattern)
    return QueryCursor(query).captures(root).get("found", [])


def text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def span(node: Node) -> ir.Span:
    return ir.Span(node.start_byte, node.end_byte)


def number(literal: str) -> int | float | None:
    """The value of a C++ literal: ``0x10u`` → 16, ``1e-3f`` → 0.001; None for what is no number."""
    body = literal.replace("'", "")
    try:
        if body.lower().startswith("0x") and "p" not in body.lower():
            return int(body.rstrip("uUlL"), 16)
        if any(c in body for c in ".eE"):
            return float(body.rstrip("fFlL"))
        digits = body.rstrip("uUlLfF")
        if digits.startswith(("0b", "0B")):
            return int(digits[2:], 2)
        return int(digits, 8) if len(digits) > 1 and digits.startswith("0") else int(digits)
    except ValueError:
        return None
