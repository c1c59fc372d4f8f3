"""Which function a call means, and what of it has to be known before its body can be written out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from tilewright.normalise.inline_text import words
from tilewright.source import ir, lexical
from tilewright.source.definitions import Definition, function_declarator, reachable
from tilewright.source.effects import Collector, Effects, short_name
from tilewright.source.intrinsics import is_known
from tilewright.source.nodes import make_parser, nodes_of
from tilewright.source.parse import KernelConverter, ParsedKernel
from tilewright.source.reader import OpenKernel

_DELIMITED = re.compile(r'\bR"[^("]')
_PARAMETERS = ("parameter_declaration", "optional_parameter_declaration")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function: its declaration as written, without its default."""

    name: str
    declaration: str
    default: str
    symbol: ir.Symbol | None


class Callee:
    """One definition of a function, read."""

    def __init__(self, kernel: OpenKernel, definition: Definition) -> None:
        self.kernel = kernel
        self.definition = definition
        self.node = definition.node
        self.parsed: ParsedKernel = KernelConverter(make_parser(), kernel.source.macros).convert(self.node)
        body = self.node.child_by_field_name("body")
        assert body is not None
        self.body_start = body.start_byte + 1
        self.body_end = body.end_byte - 1
        self.body = self.source(self.body_start, self.body_end)

    def source(self, start: int, end: int) -> str:
        return self.definition.text[start:end].decode(errors="replace")

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        declarator = function_declarator(self.node)
        plist = declarator.child_by_field_name("parameters") if declarator is not None else None
        symbols = {s.name: s for s in self.parsed.params}
        out = []
        for node in plist.named_children if plist is not None else ():
            if node.type not in _PARAMETERS or self.source(node.start_byte, node.end_byte).strip() == "void":
                continue
            default = node.child_by_field_name("default_value")
            end = node.end_byte
            if default is not None:
                end = next(c.start_byte for c in node.children if c.type == "=")
            inside = [s for s in symbols.values() if node.start_byte <= s.span.start < node.end_byte]
            out.append(
                Parameter(
                    inside[0].name if inside else "",
                    self.source(node.start_byte, end).strip(),
                    self.source(default.start_byte, default.end_byte) if default is not None else "",
                    inside[0] if inside else None,
                )
            )
        return tuple(out)

    @cached_property
    def returns(self) -> str:
        """The type that it returns, with its ``*`` and ``&``."""
        declarator, kind = function_declarator(self.node), self.node.child_by_field_name("type")
        if declarator is None or kind is None:
            return "?"
        ends = [c for c in self.node.children if c.start_byte < kind.start_byte and c.type == "type_qualifier"]
        plain = [t for c in ends if (t := self.source(c.start_byte, c.end_byte)) in ("const", "volatile")]
        return " ".join([*plain, *self.source(kind.start_byte, declarator.start_byte).split()])

    @cached_property
    def own(self) -> frozenset[str]:
        """Names that it declares itself: locals and types."""
        locals_ = {s.name for s in self.parsed.symbols.values() if s.kind != "param"}
        types = {
            (n.child_by_field_name("name") or n).text or b""
            for n in nodes_of(self.node, (b"using",), "alias_declaration")
            if n.start_byte >= self.body_start
        }
        return frozenset(locals_ | {t.decode() for t in types})

    @cached_property
    def top(self) -> frozenset[str]:
        """Names that it declares directly in its body."""
        return frozenset(s.name for st in self.parsed.body.body if isinstance(st, ir.Declare) for s in st.symbols)

    @cached_property
    def effects(self) -> Effects:
        collector = Collector(
            self.parsed.symbols, self.kernel.functions, self.parsed.body.body, False, self.kernel.source.aliases
        )
        return collector.collect(self.parsed.body.body)

    @cached_property
    def macros(self) -> frozenset[str]:
        """Macros that its text uses, directly or by way of others."""
        return frozenset(macro_closure(words(self.body), self.kernel.source.macros))

    def unreadable(self) -> str | None:
        """Why its body cannot be written out anywhere."""
        for what, _ in self.parsed.errors:
            return f"{what} in it"
        for node in ir.walk(self.parsed.body):
            if isinstance(node, ir.OpaqueStmt) or (isinstance(node, ir.Opaque) and node.what == "a lambda"):
                return f"{node.what} in it"
            if isinstance(node, ir.Declare) and any("static" in s.type_text.split() for s in node.symbols):
                return "a static variable in it"
            if isinstance(node, ir.Alias):
                return "a type or namespace that it declares"
            if isinstance(node, ir.Jump) and node.kind == "goto":
                return "a goto in it"
        if _DELIMITED.search(self.body):
            return "a raw string in it"
        name = self.definition.name
        inside = reachable(self.body.encode(), self.kernel.definitions, self.kernel.source.macros)
        if name in inside:
            return "a call of itself"
        return None


def macro_closure(start: frozenset[str], macros: dict[str, lexical.Macro]) -> set[str]:
    """The macros among some names, and those that their bodies use."""
    found: set[str] = set()
    queue = [n for n in start if n in macros]
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [w for w in words(macros[name].body) if w in macros]
    return found


def find(kernel: OpenKernel, call: ir.Call) -> Callee | str | None:
    """The function that a call means; a string says why that cannot be told; None where it is none of the user's."""
    name = short_name(call.callee)
    known = kernel.definitions.get(name, ())
    if not known or is_known(name) or is_known(call.callee) or any(s.name == name for s in kernel.symbols.values()):
        return None
    scope = tuple(part for part in call.callee.split("<")[0].split("::")[:-1] if part)
    fitting = [d for d in known if d.scope[len(d.scope) - len(scope) :] == scope]
    if not scope:
        inner = [d for d in fitting if d.scope == kernel.function.scope[: len(d.scope)]]
        fitting = inner if inner and len(inner) == len(fitting) else fitting
    if len(fitting) != 1:
        callees = [Callee(kernel, d) for d in fitting]
        takes = [c for c in callees if _takes(c, len(call.args))]
        if len(takes) != 1 or any(c.definition.specialised for c in callees):
            return f"{len(fitting)} functions of that name could be meant"
        fitting = [takes[0].definition]
    one = fitting[0]
    if one.member:
        return "it belongs to a class"
    if not one.settled:
        return "it stands inside an #if whose outcome is not known"
    if one.specialised or any(p.kind == "pack" for p in one.template):
        return "it is a specialised or variadic template"
    callee = Callee(kernel, one)
    if not _takes(callee, len(call.args)):
        return "its parameters are not those of the call"
    return callee


def _takes(callee: Callee, count: int) -> bool:
    needed = sum(not p.default for p in callee.parameters)
    return needed <= count <= len(callee.parameters)
