"""Names that a file defines outside functions: type aliases and integer constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.source import ir
from tilewright.source.constants import is_constant_type
from tilewright.source.lexical import Macro
from tilewright.source.nodes import nodes_of, text
from tilewright.source.parse import KernelConverter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node, Parser

Constant = tuple[str, ir.Expr]  # declared type ("" where there is none), initialiser


def aliases(*roots: Node) -> dict[str, str]:
    """``using`` and ``typedef`` names → types. A name that means two types in these files is left out."""
    out: dict[str, str] = {}
    doubtful: set[str] = set()
    for root in roots:
        for name, kind in _alias_pairs(root):
            if out.setdefault(name, kind) != kind:
                doubtful.add(name)
    return {name: kind for name, kind in out.items() if name not in doubtful}


def _alias_pairs(root: Node) -> Iterator[tuple[str, str]]:
    for node in nodes_of(root, (b"using", b"typedef"), "alias_declaration", "type_definition"):
        kind = node.child_by_field_name("type")
        if node.type == "alias_declaration":
            name = node.child_by_field_name("name")
            if name is not None and kind is not None:
                yield text(name), text(kind)
        elif node.type == "type_definition" and kind is not None:
            qualifiers = [text(c) for c in node.named_children if c.type == "type_qualifier"]
            for declarator in node.children_by_field_name("declarator"):
                if declarator.type == "type_identifier":
                    yield text(declarator), " ".join([*qualifiers, text(kind)])


def constants(root: Node, parser: Parser, macros: dict[str, Macro]) -> dict[str, Constant]:
    """Initialisers of ``constexpr``/``const`` variables outside functions, of enumerators and of plain macros."""
    out: dict[str, Constant] = {}
    for macro in macros.values():
        if macro.params is None and macro.body:
            tree = parser.parse(f"const auto tilewright_v = {macro.body}\n;".encode()).root_node
            for _, (_, init) in _constants_in(tree, parser, macros) if not tree.has_error else ():
                out[macro.name] = ("", init)
    out.update(_constants_in(root, parser, macros))
    return out


def _constants_in(root: Node, parser: Parser, macros: dict[str, Macro]) -> Iterator[tuple[str, Constant]]:
    """Names and initialisers, those apart that cannot be read (a macro that is no operand of its own)."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in ("function_definition", "lambda_expression"):
            continue
        converter = KernelConverter(parser, macros)
        if node.type == "declaration":
            stmt = converter.statement(node)
            for s in stmt.symbols if isinstance(stmt, ir.Declare) and not converter.errors else ():
                if s.init is not None and not s.pointers and not s.dims and is_constant_type(s.type_text):
                    yield s.name, (s.type_text, s.init)
        elif node.type == "enumerator_list":
            found = list(_enumerators(node, converter))
            yield from found if not converter.errors else ()
        else:
            stack.extend(node.children)


def _enumerators(node: Node, converter: KernelConverter) -> Iterator[tuple[str, Constant]]:
    """Enumerators with their values; one without continues from the one before."""
    base = node.parent.child_by_field_name("base") if node.parent is not None else None
    kind = text(base) if base is not None else ""
    last: ir.Expr | None = None
    for entry in (c for c in node.named_children if c.type == "enumerator"):
        name, value = entry.child_by_field_name("name"), entry.child_by_field_name("value")
        at = ir.Span(entry.start_byte, entry.end_byte)
        if value is not None:
            last = converter.expression(value)
        elif last is None:
            last = ir.Number(at, "0", 0)
        else:
            last = ir.Binary(at, "+", last, ir.Number(at, "1", 1))
        if name is not None:
            yield text(name), (kind, last)
