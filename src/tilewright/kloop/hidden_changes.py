"""Classes whose operators, conversions, constructors or destructors change more than they seem to.

``x[i]``, ``*x``, ``x + 1`` and ``int(x)`` are read as what they are for built-in types: they change nothing. A class of
the file may make them change something, and what is then done twice, or at another time, is not what it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.kloop.kernel import Refusal
from tilewright.source import ir
from tilewright.source.c_types import resolve
from tilewright.source.definitions import function_declarator
from tilewright.source.intrinsics import VALUES
from tilewright.source.nodes import nodes_of, text
from tilewright.source.reader import OpenKernel

if TYPE_CHECKING:
    from tree_sitter import Node

_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
# Read as writes of their left side, so that may change.
_ASSIGNS = re.compile(r"(?:[-+*/%&|^]|<<|>>)?=|\+\+|--")
_WORD = re.compile(r"[A-Za-z_]\w*")


def hidden_changes(kernel: OpenKernel, stmt: ir.Stmt) -> Refusal | None:
    """The first name in a statement that has such a class for its type; None where there is none."""
    classes = _classes(kernel)
    if not classes:
        return None
    aliases = kernel.source.aliases
    declared = {s.id for n in ir.walk(stmt) if isinstance(n, ir.Declare) for s in n.symbols}
    for node in ir.walk(stmt):
        used = [node.symbol] if isinstance(node, ir.Name) and node.symbol is not None else []
        used += [s.id for s in node.symbols] if isinstance(node, ir.Declare) else []
        for symbol in (kernel.symbols[s] for s in used):
            words = set(_WORD.findall(resolve(symbol.type_text, aliases)))
            if not words & (classes.keys() | {"auto"}) or (symbol.pointers and symbol.id not in declared):
                continue
            name = min(words & classes.keys(), default=next(iter(classes)))
            what = f"`{symbol.name}` may be of the class {name}, whose {classes[name]} changes something on the way"
            hint = "write out in the loop what it does"
            return Refusal("not_understood", what, kernel.source.line(node.span.start), hint)
    return None


def _classes(kernel: OpenKernel) -> dict[str, str]:
    """Names of the classes → what of theirs changes something."""
    found: dict[str, str] = {}
    bodies: dict[str, set[str]] = {}
    for root in (*(h.root for h in kernel.source.headers), kernel.source.root):
        if root is None:
            continue
        for node in nodes_of(root, (b"struct", b"class", b"union"), *_CLASSES):
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and body is not None:
                bodies.setdefault(_plain(text(name)), set()).update(_WORD.findall(text(body)))
        for node in nodes_of(root, (b"operator", b"struct", b"class", b"union"), "function_definition"):
            what = _special(node)
            if what is not None and _changes(node, what):
                found |= dict.fromkeys(_owners(node), what)
    size = -1
    while size != len(found):  # what holds one, or derives from one
        size = len(found)
        for outer, words in bodies.items():
            inner = min(words & found.keys(), default=None)
            if inner is not None and outer not in found:
                found[outer] = found[inner]
    return found


def _plain(name: str) -> str:
    return name.split("<")[0].split("::")[-1].strip()


def _special(node: Node) -> str | None:
    """What a function is called by without its name being written; None for a plain function."""
    declarator = function_declarator(node)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    if name is None:
        whole = node.child_by_field_name("declarator")
        return "conversion" if whole is not None and "operator" in text(whole).split("(")[0] else None
    last = text(name).split("::")[-1].strip()
    if last.startswith("operator") and not _WORD.fullmatch(last):
        return None if _ASSIGNS.fullmatch(last.removeprefix("operator").strip()) else last
    if last.startswith("~"):
        return "destructor"
    return "constructor" if node.child_by_field_name("type") is None and last in _owners(node) else None


def _owners(node: Node) -> set[str]:
    """The class that a function belongs to; of a free operator, the types of its parameters."""
    at = node.parent
    while at is not None and at.type not in _CLASSES:
        at = at.parent
    name = at.child_by_field_name("name") if at is not None else None
    if name is not None:
        return {_plain(text(name))}
    whole = node.child_by_field_name("declarator")
    head = text(whole).split("(")[0].split("operator")[0] if whole is not None else ""
    scope = [_plain(part) for part in head.split("::")[:-1]]
    if scope:
        return {scope[-1].split()[-1]}
    parameters = nodes_of(whole, (b"(",), "parameter_declaration") if whole is not None else []
    return {_plain(text(kind)) for p in parameters if (kind := p.child_by_field_name("type")) is not None}


def _changes(node: Node, what: str) -> bool:
    """Whether it may change anything but its own locals; a constructor, anything but its object."""
    body = node.child_by_field_name("body")
    if body is None:
        return False
    makes = what == "constructor"
    if makes and not any(_hands_out(p) for p in nodes_of(node, (b"&", b"*"), "parameter_declaration")):
        return False
    own = set(_own_names(node, body))
    for change in nodes_of(body, (b"=", b"++", b"--"), "assignment_expression", "update_expression"):
        if _root(change.child_by_field_name("left") or change.child_by_field_name("argument")) not in own:
            return True
    calls = [n.child_by_field_name("function") for n in nodes_of(body, (b"(",), "call_expression")]
    if not all(n is not None and VALUES.match(text(n)) for n in calls):
        return True
    return bool(nodes_of(body, (b"asm",), "gnu_asm_expression"))


def _hands_out(parameter: Node) -> bool:
    """Whether a constructor may change what it is given."""
    words = text(parameter)
    return "const" not in words.split() and ("&" in words or "*" in words)


def _root(target: Node | None) -> str | None:
    """The variable that an assignment changes a part of; None where it goes through a pointer, or is no name."""
    while target is not None and target.type in ("field_expression", "subscript_expression"):
        if any(c.type == "->" for c in target.children):
            return None
        target = target.child_by_field_name("argument")
    return text(target) if target is not None and target.type == "identifier" else None


def _own_names(node: Node, body: Node) -> Iterator[str]:
    """Locals and parameters that are taken by value: neither pointers nor references."""
    for declaration in nodes_of(body, (b" ",), "declaration") + nodes_of(node, (b"(",), "parameter_declaration"):
        for inner in declaration.children_by_field_name("declarator"):
            target: Node | None = inner
            while target is not None and target.type in ("init_declarator", "array_declarator"):
                target = target.child_by_field_name("declarator")
            if target is not None and target.type == "identifier":
                yield text(target)
