"""The functions that a file and its headers define, found by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.source.conditionals import Conditionals
from tilewright.source.headers import Header
from tilewright.source.lexical import Macro
from tilewright.source.nodes import text

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD = re.compile(rb"[A-Za-z_]\w*")


@dataclass(frozen=True)
class TemplateParameter:
    """``int BM`` (kind ``value``) or ``typename T`` (kind ``type``), with the text of its default or "".

    ``type_text``: the type of a value.
    """

    name: str
    kind: str
    default: str
    type_text: str = ""


@dataclass(frozen=True)
class Definition:
    """One definition of a function.

    Attributes:
        name: without its namespaces. scope: those, outermost first.
        file: the header that it stands in, "" for the file itself. text: of that file.
        settled: no ``#if`` that cannot be decided stands around it.
        template: its parameters; ``specialised``: it is a ``template <>`` of another.
        member: it belongs to a class.
    """

    name: str
    scope: tuple[str, ...]
    file: str
    text: bytes = field(repr=False)
    node: Node = field(compare=False, repr=False)
    settled: bool
    template: tuple[TemplateParameter, ...]
    specialised: bool
    member: bool


def definitions(
    root: Node, raw: bytes, seen: Conditionals, headers: Sequence[Header], macros: Mapping[str, Macro]
) -> dict[str, tuple[Definition, ...]]:
    """Every function that device code may call, by name: of the headers first, as the compiler meets them."""
    out: dict[str, list[Definition]] = {}
    words = ["__device__", "constexpr", *(n for n, m in macros.items() if "__device__" in m.body.split())]
    for file, whole, tree, parts in (*((h.name, h.text, h.root, h.seen) for h in headers), ("", raw, root, seen)):
        for node in functions_of(tree):
            state = parts.at(node.start_byte)
            if state == "skipped" or not any(has_qualifier(node, word) for word in words):
                continue
            name, template = name_of(node), template_parameters(node)
            special = node.parent is not None and node.parent.type == "template_declaration" and not template
            member = _in_class(node)
            one = Definition(name, scope_of(node), file, whole, node, state == "seen", template, special, member)
            out.setdefault(name, []).append(one)
    return {name: tuple(some) for name, some in out.items()}


def reachable(
    start: bytes, found: Mapping[str, tuple[Definition, ...]], macros: Mapping[str, Macro]
) -> dict[str, tuple[Definition, ...]]:
    """Those that a text names, directly or by way of macros and of each other."""
    out: dict[str, tuple[Definition, ...]] = {}
    seen: set[str] = set()
    queue = [start]
    while queue:
        for word in {w.decode() for w in _WORD.findall(queue.pop())} - seen:
            seen.add(word)
            if word in macros:
                queue.append(macros[word].body.encode())
            if word in found:
                out[word] = found[word]
                queue += [d.text[d.node.start_byte : d.node.end_byte] for d in found[word]]
    return out


# -- nodes of functions ----------------------------------------------------------------------------------


def functions_of(root: Node) -> list[Node]:
    """Every function definition with a body, at any nesting outside other functions."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "function_definition" and node.child_by_field_name("body") is not None:
            found.append(node)
        else:
            stack.extend(reversed(node.children))
    return sorted(found, key=lambda n: n.start_byte)


def has_qualifier(node: Node, qualifier: str) -> bool:
    """Whether a word stands in the head of a function definition."""
    body = node.child_by_field_name("body")
    head = (node.text or b"")[: (body.start_byte if body is not None else node.end_byte) - node.start_byte]
    return qualifier.encode() in head


def name_of(node: Node) -> str:
    """A function's name without its namespaces."""
    declarator = function_declarator(node)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return re.sub(r"\s*<.*", "", text(name).split("::")[-1], flags=re.DOTALL) if name is not None else "?"


def function_declarator(node: Node) -> Node | None:
    """``f(int a)`` of a definition."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        # A reference that is returned has its declarator as a plain child.
        inner = declarator.child_by_field_name("declarator")
        declarator = inner or next((c for c in declarator.named_children if "declarator" in c.type), None)
    return declarator


def scope_of(node: Node) -> tuple[str, ...]:
    """The named namespaces around a definition; an unnamed one adds nothing to the name."""
    out: list[str] = []
    for at in _around(node):
        if at.type == "namespace_definition" and (name := at.child_by_field_name("name")) is not None:
            out[:0] = [part for part in text(name).split("::") if part]
    return tuple(out)


def _in_class(node: Node) -> bool:
    return any(at.type in ("class_specifier", "struct_specifier", "union_specifier") for at in _around(node))


def _around(node: Node) -> Iterator[Node]:
    at = node.parent
    while at is not None:
        yield at
        at = at.parent


def template_parameters(node: Node) -> tuple[TemplateParameter, ...]:
    """The parameters of the template that a definition is; none where it is no template."""
    parent = node.parent
    plist = parent.child_by_field_name("parameters") if parent is not None else None
    if plist is None or parent is None or parent.type != "template_declaration":
        return ()
    return tuple(_template_parameter(p) for p in plist.named_children if p.type != "comment")


def _template_parameter(node: Node) -> TemplateParameter:
    default = node.child_by_field_name("default_value") or node.child_by_field_name("default_type")
    kind = "type" if "type_parameter" in node.type else "value"
    declarator = node.child_by_field_name("declarator") or node.child_by_field_name("name")
    if declarator is None:
        declarator = next((c for c in node.named_children if "identifier" in c.type), None)
    value_type = ""
    if kind == "value" and declarator is not None:
        value_type = text(node)[: declarator.start_byte - node.start_byte].strip()
    return TemplateParameter(
        text(declarator) if declarator is not None else "?",
        kind if not text(node).count("...") else "pack",
        text(default) if default is not None else "",
        value_type,
    )
