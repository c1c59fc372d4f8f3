"""Functions that the load phase calls, written out in its place: a prefetch moves loads apart from stores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.inline_arguments import Arguments
from tilewright.normalise.inline_callee import Callee, find, macro_closure
from tilewright.normalise.inline_meaning import Binding
from tilewright.normalise.inline_sites import CallSite, CallSites
from tilewright.normalise.inline_text import moved, one_line, operand, replaced, words
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir, lexical
from tilewright.source.c_types import plain
from tilewright.source.definitions import scope_of
from tilewright.source.edits import WIDTH, Edit, indent_at, line_end, line_start
from tilewright.source.effects import short_name
from tilewright.source.expr_types import CType, Types
from tilewright.source.nodes import nodes_of
from tilewright.source.reader import OpenKernel

if TYPE_CHECKING:
    from tree_sitter import Node


def inline(situation: Situation, sites: CallSites) -> Change | Refusal | None:
    """Write out the calls of the K-loop's load phase, outermost first; the compute phase keeps its calls."""
    kernel = situation.kernel
    if kernel.errors:
        return None
    edits: list[Edit] = []
    names: list[str] = []
    refused: tuple[str, CallSite] | None = None
    span = kernel.function.span
    given = set(lexical.identifiers(kernel.source.text[span.start : span.end])) | set(kernel.source.macros)
    done = -1
    for site in sites.find():
        if site.call.span.start < done:
            continue
        callee = find(kernel, site.call)
        if callee is None:
            continue
        text = callee if isinstance(callee, str) else _Writer(kernel, callee, site, given).write()
        name = site.call.callee.split("<")[0]
        if isinstance(text, str):
            refused = refused or (f"the load phase calls `{name}`, which cannot be written out: {text}", site)
            continue
        edits += text
        names.append(name)
        done = site.stmt.span.end if site.whole else site.call.span.end
    if edits:
        line = kernel.source.line(min(e.start for e in edits))
        return Change(tuple(edits), f"{_listed(names)} written out where it is called", line)
    if refused is None or not refused[1].whole:
        return None
    hint = "write the body out by hand, or simplify the function"
    return Refusal("not_understood", refused[0], kernel.source.line(refused[1].call.span.start), hint)


def _listed(names: list[str]) -> str:
    some = [f"`{n}`" for n in dict.fromkeys(names)]
    return some[0] + " is" if len(some) == 1 else ", ".join(some[:-1]) + f" and {some[-1]} are each"


class _Writer:
    """Writes one call out.

    Args:
        given: names that the kernel has; those that the written-out text adds to them are added.
    """

    def __init__(self, kernel: OpenKernel, callee: Callee, site: CallSite, given: set[str]) -> None:
        self.kernel = kernel
        self.callee = callee
        self.site = site
        self.given = given
        self.text = kernel.source.text

    def write(self) -> list[Edit] | str:
        """The edits, or why there are none."""
        why = self.callee.unreadable()
        if why is not None:
            return why
        if any(s.kind == "shared" for s in self.callee.parsed.symbols.values()) and not self._once():
            return "a shared array in it"
        given = set(self.given)
        bound = Arguments(self.kernel, self.callee, self.site.call, given, not self.site.whole).bind()
        if isinstance(bound, str):
            return bound
        why = self._captured()
        if why is not None:
            return why
        self._rename_locals(bound, given)
        own, free = self.callee.definition.scope, self._free()
        for scope in _beyond(own, self.kernel.function.scope):  # outermost first: the inner name counts
            bound.names |= {n: f"{'::'.join(scope)}::{n}" for n in self._of_namespace(scope) & free}
        why = self._in_macros(bound)
        if why is not None:
            return why
        edits = self._statement(bound) if self.site.whole else self._expression(bound)
        if not isinstance(edits, str):
            self.given |= given
        return edits

    def _once(self) -> bool:
        """A function's shared arrays are there once: so may its body be, outside loops."""
        name = self.callee.definition.name
        calls = [c for c in ir.walk(self.kernel.body) if isinstance(c, ir.Call) and short_name(c.callee) == name]
        loops = [n for n in ir.walk(self.kernel.body) if isinstance(n, ir.For | ir.While)]
        inside = any(n.span.start <= self.site.stmt.span.start < n.span.end for n in loops)
        return len(calls) == 1 and not inside

    # -- names ----------------------------------------------------------------------------------------
    def _free(self) -> frozenset[str]:
        """Names of the function that mean something outside it."""
        own = self.callee.own | {p.name for p in self.callee.parameters}
        own |= {p.name for p in self.callee.definition.template}
        heads = [f"{p.declaration} {p.default}" for p in self.callee.parameters]
        heads += [p.default for p in self.callee.definition.template]
        used = set(words(" ".join([self.callee.body, *heads])))
        for name in macro_closure(frozenset(used), self.kernel.source.macros):
            macro = self.kernel.source.macros[name]
            used |= words(macro.body) - set(macro.params or ())
        return frozenset(used - own)

    def _captured(self) -> str | None:
        """A name that means something else where the body goes."""
        here = {s.name for s in self.kernel.symbols.values()} | {p.name for p in self.kernel.function.template}
        span = self.kernel.function.body
        root = self.kernel.source.root
        kinds = ("alias_declaration", "type_definition")
        for node in nodes_of(root, (b"using", b"typedef"), *kinds) if root is not None else ():
            if span.start <= node.start_byte < span.end:
                here |= words((node.text or b"").decode(errors="replace"))
        for scope in _beyond(self.kernel.function.scope, self.callee.definition.scope):
            here |= self._of_namespace(scope)
        caught = sorted(self._free() & here)
        return f"`{caught[0]}` means something else in the kernel" if caught else None

    def _rename_locals(self, bound: Binding, given: set[str]) -> None:
        """Locals of the function that would hide an argument, or meet another name of the kernel."""
        inside = {w for t in (*bound.names.values(), *bound.types.values()) for w in words(t)}
        mine = words(self.callee.body)
        for name in sorted(self.callee.own - bound.names.keys()):
            if name in inside or (name in self.callee.top and name in given):
                n = 1
                while f"{name}_{n}" in given or f"{name}_{n}" in mine:
                    n += 1
                bound.names[name] = f"{name}_{n}"
            if name in self.callee.top:
                given.add(bound.names.get(name, name))

    def _of_namespace(self, scope: tuple[str, ...]) -> frozenset[str]:
        """Names that a namespace declares, in any of its blocks."""
        out = {n for n, some in self.kernel.definitions.items() if any(d.scope == scope for d in some)}
        for root in (*(h.root for h in self.kernel.source.headers), self.kernel.source.root):
            for node in nodes_of(root, (b"namespace",), "namespace_definition") if root is not None else ():
                body = node.child_by_field_name("body")
                name = node.child_by_field_name("name")
                own = tuple((name.text or b"").decode().split("::")) if name is not None else ()
                if body is not None and (*scope_of(node), *own) == scope:
                    for child in body.named_children:
                        if child.type != "function_definition" and child.type != "template_declaration":
                            out |= _declared(child)
        return frozenset(out)

    def _in_macros(self, bound: Binding) -> str | None:
        """A macro of the body whose text rests on a name that the body does not have any more."""
        macros = self.kernel.source.macros
        for name in sorted(self.callee.macros):
            if not macros[name].settled or macros[name].conditional:
                return f"its macro {name} may mean several things"
            inside = words(macros[name].body) - set(macros[name].params or ())
            gone = {n for n, t in {**bound.names, **bound.types}.items() if n != t}
            if inside & gone:
                return f"its macro {name} uses `{min(inside & gone)}`"
        return None

    # -- text -----------------------------------------------------------------------------------------
    def _statement(self, bound: Binding) -> list[Edit] | str:
        """The body in place of a call that is a statement; its constants in front of the loop."""
        at, outer = self._in_front()
        constants = [] if at is None else [s for s in self.callee.parsed.body.body if self._is_constant(s)]
        inside = {s.name for s in self.kernel.symbols.values() if at is not None and s.span.start > at}
        if any(words(self._piece(s.span.start, s.span.end, bound)) & inside for s in constants):
            constants = []
        body = self._body(bound, constants)
        if body is None:
            return "a return in the middle of it"
        span, indent = self.site.stmt.span, indent_at(self.text, self.site.stmt.span.start)
        unit = "\t" if "\t" in indent else "    "
        inner = indent if self.site.in_block else indent + unit
        place = self.callee.definition.file
        line = lexical.line_of(self.callee.definition.text, self.callee.node.start_byte)
        where = f"line {line} of {place}" if place else f"line {line}"
        said = f"// {self.site.call.callee.split('<')[0]}() of {where}, written out."
        if len(inner + said) > WIDTH:
            said = said.replace("() of", f"(),\n{inner}// of")
        lines = [inner + said]
        lines += [inner + line for line in bound.lines] + moved(body, inner)
        if not self.site.in_block:
            lines = [indent + "{", *lines, indent + "}"]
        rest = self.text[span.end : line_end(self.text, span.end)].strip()
        new = "\n".join(lines).lstrip() + ("\n" + indent if rest and not rest.startswith(b"}") else "")
        edits = [Edit(span.start, span.end, new)]
        if at is not None and constants:
            texts = [one_line(self._piece(s.span.start, s.span.end, bound)) for s in constants]
            edits.append(Edit(at, at, "".join(f"{outer}{t}\n" for t in texts)))
        return edits

    def _is_constant(self, stmt: ir.Stmt) -> bool:
        named = isinstance(stmt, ir.Declare) and all("constexpr" in s.type_text.split() for s in stmt.symbols)
        return named and not stmt.span.within

    def _in_front(self) -> tuple[int | None, str]:
        """Where the kernel's own loop around the call begins, its pragmas included; None outside loops."""
        start = self.site.stmt.span.start
        for stmt in self.kernel.body.body:
            if isinstance(stmt, ir.For | ir.While) and stmt.span.start < start < stmt.span.end:
                at = line_start(self.text, stmt.span.start)
                if self.text[at : stmt.span.start].strip():
                    return None, ""
                while self.text[line_start(self.text, at - 1) : at].lstrip().startswith(b"#pragma"):
                    at = line_start(self.text, at - 1)
                return at, indent_at(self.text, stmt.span.start)
        return None, ""

    def _body(self, bound: Binding, without: list[ir.Stmt]) -> str | None:
        """The body's text without some statements; an early return guards what follows it."""
        statements = self.callee.parsed.body.body
        jumps = [n for n in ir.walk(self.callee.parsed.body) if isinstance(n, ir.Jump) and n.kind == "return"]
        at, parts, guards = self.callee.body_start, [""], list[str]()
        for i, stmt in enumerate(statements):
            inside = [] if self.site.last else [j for j in jumps if stmt.span.start <= j.span.start < stmt.span.end]
            guard = None
            if isinstance(stmt, ir.If) and inside and stmt.otherwise is None and _only_returns(stmt.then):
                guard = self._opposite(stmt.condition, bound)
            elif stmt not in without and not (isinstance(stmt, ir.Jump) and inside and i == len(statements) - 1):
                if inside:
                    return None
                continue
            if any(j.value is not None for j in inside) or stmt.span.within:
                return None
            parts[-1] += self._piece(at, stmt.span.start, bound)
            at = stmt.span.end
            if guard is not None:
                guards.append(guard)
                parts.append("")
        text = _no_gaps(parts.pop() + self._piece(at, self.callee.body_end, bound)).rstrip()
        while guards:
            text = _guarded(guards.pop(), text)
            text = _no_gaps(parts.pop()).rstrip(" \t") + text
        return text

    def _opposite(self, condition: ir.Expr, bound: Binding) -> str:
        if isinstance(condition, ir.Unary) and condition.op == "!":
            return self._piece(condition.operand.span.start, condition.operand.span.end, bound)
        return f"!({self._piece(condition.span.start, condition.span.end, bound)})"

    def _piece(self, start: int, end: int, bound: Binding) -> str:
        return replaced(self.callee.source(start, end), bound.names, bound.types)

    def _expression(self, bound: Binding) -> list[Edit] | str:
        """What the function returns in place of a call inside an expression."""
        returns = _returns(self.callee.parsed.body.body)
        if returns is None or any(e.span.within for _, e in returns):
            return "it does more than return a value"
        kind = plain(replaced(self.callee.returns, {}, bound.types))
        text = ""
        for condition, value in reversed(returns):
            own = one_line(self._piece(value.span.start, value.span.end, bound))
            if "&" not in kind and "*" not in kind and kind != "auto" and not self._is_of(value, kind, bound):
                own = f"static_cast<{kind}>({own})"
            elif len(returns) > 1 and "&" in kind:
                return "it returns one of several places"
            if condition is not None:
                asked = one_line(self._piece(condition.span.start, condition.span.end, bound))
                own = f"{operand(asked)} ? {operand(own)} : {operand(text)}"
            text = own
        around, call = self.site.around, self.site.call
        bare = isinstance(around, ir.Call | ir.Declare | ir.Do) or (
            isinstance(around, ir.Assign | ir.Index) and ir.children(around)[1] is call
        )
        return [Edit(call.span.start, call.span.end, text if bare else operand(text))]

    def _is_of(self, value: ir.Expr, kind: str, bound: Binding) -> bool:
        """Whether what is returned has the function's type already."""
        aliases = self.kernel.source.aliases | bound.types
        types = Types(self.callee.parsed.symbols, aliases)
        options = (value.then, value.otherwise) if isinstance(value, ir.Ternary) else (value,)
        for one in options:
            if isinstance(one, ir.Number) and isinstance(one.value, float):
                same = kind == ("float" if one.text[-1:] in "fF" else "double")
            else:
                same = types.same(types.of(one), CType(kind))
            if not same:
                return False
        return True


def _beyond(scope: tuple[str, ...], other: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The namespaces around one place that are not around another, outermost first."""
    return [scope[:i] for i in range(1, len(scope) + 1) if scope[:i] != other[:i]]


def _declared(node: Node) -> set[str]:
    """Names that a declaration of a namespace adds to it."""
    out: set[str] = set()
    for child in (node, *nodes_of(node, (b"",), "init_declarator", "type_identifier", "enumerator")):
        name = child.child_by_field_name("name") or child.child_by_field_name("declarator")
        out |= words((name.text or b"").decode(errors="replace")) if name is not None else set()
    return out


def _returns(body: tuple[ir.Stmt, ...]) -> list[tuple[ir.Expr | None, ir.Expr]] | None:
    """``if (c) return a; return b;`` as conditions and values, the last one without; None for any other body."""
    out: list[tuple[ir.Expr | None, ir.Expr]] = []
    rest = list(body)
    while rest:
        first, *rest = rest
        while isinstance(first, ir.Block) and len(first.body) == 1:
            first = first.body[0]
        if isinstance(first, ir.Jump) and first.kind == "return" and first.value is not None and not rest:
            comma = isinstance(first.value, ir.Binary) and first.value.op == ","
            return None if comma else [*out, (None, first.value)]
        then = _returns((first.then,)) if isinstance(first, ir.If) else None
        if not isinstance(first, ir.If) or then is None or len(then) != 1 or first.condition.span.within:
            return None
        if first.otherwise is not None:
            rest = [first.otherwise, *rest]
        out.append((first.condition, then[0][1]))
    return None


def _no_gaps(text: str) -> str:
    """Without the blank lines that a statement leaves where it is taken out."""
    return re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", re.sub(r"^(?:[ \t]*\r?\n)+", "", text))


def _guarded(condition: str, text: str) -> str:
    """Lines of a body behind an ``if``."""
    lines = text.lstrip("\r\n").split("\n")
    indent = next((x[: len(x) - len(x.lstrip())] for x in lines if x.strip() and not x.lstrip().startswith("#")), "")
    unit = "\t" if "\t" in indent else "    "
    inner = "\n".join(unit + x if x.strip() else x for x in lines)
    return f"{indent}if ({one_line(condition)}) {{\n{inner}\n{indent}}}"


def _only_returns(stmt: ir.Stmt) -> bool:
    while isinstance(stmt, ir.Block) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return isinstance(stmt, ir.Jump) and stmt.kind == "return"
