"""The loops that passes look at, and what a pass has to know before it moves something of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from tilewright.kloop.kloop import is_barrier, statements
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit, indent_at, line_end, line_start
from tilewright.source.effects import Collector
from tilewright.source.integer_types import IntegerTypes
from tilewright.source.reader import OpenKernel

Loop = ir.For | ir.While
_WORD = re.compile(rb"[A-Za-z_]\w*")
_BREAK = re.compile(rb"[;{}]")
_PLAIN = (ir.Name, ir.Number, ir.Binary, ir.Ternary, ir.Cast, ir.SizeOf)


class Sites:
    """Loops of one kernel."""

    def __init__(self, kernel: OpenKernel) -> None:
        self.kernel = kernel
        self.text = kernel.source.text
        self.types = IntegerTypes(kernel.constants, kernel.symbols)
        self.collector = Collector(
            kernel.symbols, kernel.functions, kernel.body.body, kernel=True, aliases=kernel.source.aliases
        )
        self.bare = lexical.without_comments(self.text)

    def line(self, node: ir.Stmt | ir.Expr) -> int:
        return self.kernel.source.line(node.span.start)

    def source(self, node: ir.Stmt | ir.Expr) -> str:
        """The text of a node; only for nodes outside macros' bodies."""
        assert not node.span.within
        return self.text[node.span.start : node.span.end].decode()

    def summand(self, expr: ir.Expr) -> str:
        """The text of an expression beside ``+`` or a comparison; its own parentheses are no part of its text."""
        sums = isinstance(expr, ir.Binary) and expr.op in ("+", "-", "*", "/", "%") and not _macro_use(expr)
        return self.source(expr) if sums or isinstance(expr, ir.Cast) else self.operand(expr)

    def operand(self, expr: ir.Expr) -> str:
        """The text of an expression as one operand of whatever operator."""
        text = self.source(expr)
        tight = isinstance(expr, ir.Name | ir.Number | ir.Member | ir.Call | ir.SizeOf) and not _macro_use(expr)
        return text if tight else f"({text})"

    # -- which loops ----------------------------------------------------------------------------------
    def tile_loops(self) -> list[Loop]:
        """Loops that hold a barrier of their own, innermost first; those inside macros are left alone."""
        found: list[Loop] = []
        self._gather(self.kernel.body, [], found)
        return sorted(found, key=lambda x: (-x.span.start, x.span.end))

    def _gather(self, stmt: ir.Stmt, around: list[Loop], found: list[Loop]) -> None:
        if is_barrier(stmt) and around and all(x is not around[-1] for x in found):
            found.append(around[-1])
        inner = [*around, stmt] if isinstance(stmt, ir.For | ir.While) and not stmt.span.within else around
        for child in ir.children(stmt):
            if isinstance(child, ir.Stmt):
                self._gather(child, inner, found)

    def is_do(self, loop: Loop) -> bool:
        """``do … while``, which the tree shows as ``while``."""
        return self.text[loop.span.start : loop.span.start + 2] == b"do"

    def in_block(self, stmt: ir.Stmt) -> bool:
        """Whether other statements may be put beside a statement: it is no branch's only one."""
        return any(isinstance(n, ir.Block) and any(x is stmt for x in n.body) for n in ir.walk(self.kernel.body))

    def around(self, loop: Loop) -> list[Loop]:
        """The loops around a loop."""
        return [
            n
            for n in ir.walk(self.kernel.body)
            if isinstance(n, ir.For | ir.While)
            and n is not loop
            and n.span.start <= loop.span.start
            and loop.span.end <= n.span.end
        ]

    def leaves(self, loop: Loop) -> bool:
        """Whether the loop may end otherwise than by its condition."""
        kinds = [k for k in self._jumps(loop.body, True) if k != "continue"]
        return bool(kinds) or any(isinstance(n, ir.OpaqueStmt | ir.Opaque) for n in ir.walk(loop.body))

    def continues(self, loop: Loop) -> bool:
        """Whether something in the body goes straight to the loop's update."""
        odd = any(isinstance(n, ir.OpaqueStmt | ir.Opaque) for n in ir.walk(loop.body))
        return odd or "continue" in self._jumps(loop.body, True)

    def _jumps(self, stmt: ir.Stmt, own: bool) -> list[str]:
        """Jumps that reach the loop; those of inner loops that stay in them do not."""
        if isinstance(stmt, ir.Jump):
            return [stmt.kind] if own or stmt.kind not in ("break", "continue") else []
        inner = own and not isinstance(stmt, ir.For | ir.While)
        return [k for c in ir.children(stmt) if isinstance(c, ir.Stmt) for k in self._jumps(c, inner)]

    # -- names ----------------------------------------------------------------------------------------
    def uses(self, symbol: int) -> Iterator[ir.Name]:
        for node in ir.walk(self.kernel.body):
            if isinstance(node, ir.Name) and node.symbol == symbol:
                yield node

    def writes(self, symbol: int) -> list[ir.Assign | ir.Unary]:
        """Assignments to a variable by its name."""
        out: list[ir.Assign | ir.Unary] = []
        for node in ir.walk(self.kernel.body):
            target = node.left if isinstance(node, ir.Assign) else None
            if isinstance(node, ir.Unary) and node.op in ("++", "--", "p++", "p--"):
                target = node.operand
            if isinstance(target, ir.Name) and target.symbol == symbol and isinstance(node, ir.Assign | ir.Unary):
                out.append(node)
        return out

    def is_plain(self, symbol: ir.Symbol) -> bool:
        """A local that only its own name changes: no reference to it, no address of it, no call that may write it."""
        if symbol.kind not in ("local", "param") or symbol.reference or symbol.dims:
            return False
        if {"static", "volatile", "extern"} & set(symbol.type_text.split()):
            return False
        for node in ir.walk(self.kernel.body):
            if isinstance(node, ir.Unary) and node.op == "&" and _is(node.operand, symbol):
                return False
            if isinstance(node, ir.Declare) and any(s.reference and _is(s.init, symbol) for s in node.symbols):
                return False
            if isinstance(node, ir.Opaque | ir.OpaqueStmt) and self.says(node.span, symbol.name):
                return False
            if isinstance(node, ir.Asm) and any(_is(e, symbol) for _, e in node.outputs):
                return False
            passed = isinstance(node, ir.Call) and any(_is(a, symbol) for a in node.args)
            if passed and symbol.id in self.collector.collect([node]).writes:
                return False
        return True

    def says(self, span: ir.Span, name: str) -> bool:
        """Whether the text of a span holds a word, comments apart."""
        return name.encode() in _WORD.findall(self.bare[span.start : span.end])

    def said_outside(self, name: str, span: ir.Span) -> bool:
        """Whether the function says a word anywhere but in a span."""
        whole = self.kernel.function.span
        start = self._head(whole.start)
        return self.says(ir.Span(start, span.start), name) or self.says(ir.Span(span.end, whole.end), name)

    def _head(self, start: int) -> int:
        """Where the function's template head begins."""
        before = [self.bare.rfind(c, 0, start) for c in (b"}", b";")]
        return max(*before, -1) + 1

    def fresh(self, wish: str) -> str:
        taken = set(lexical.identifiers(self.text))
        name, n = wish, 2
        while name in taken:
            name, n = f"{wish}_{n}", n + 1
        return name

    def renamed(self, symbol: ir.Symbol, name: str) -> list[Edit] | None:
        """Every use of a variable under another name, its declaration apart; None where one cannot be written."""
        out: list[Edit] = []
        for use in self.uses(symbol.id):
            if use.span.within or self.text[use.span.start : use.span.end].decode() != symbol.name:
                return None
            out.append(Edit(use.span.start, use.span.end, name))
        for node in ir.walk(self.kernel.body):
            odd = isinstance(node, ir.Opaque | ir.OpaqueStmt | ir.SizeOf)
            if odd and self.says(node.span, symbol.name):
                return None
        return out

    @cached_property
    def ambiguous(self) -> frozenset[str]:
        """Names that mean one thing here and another there: a text that says one of them must stay where it is."""
        scopes: dict[str, list[tuple[ir.Span, ir.Span]]] = {}
        self._scopes(self.kernel.body, self.kernel.body.span, scopes)
        whole = self.kernel.function.span
        for s in self.kernel.symbols.values():
            if s.kind == "param":
                scopes.setdefault(s.name, []).append((s.span, whole))
        outside = {n.id for n in ir.walk(self.kernel.body) if isinstance(n, ir.Name) and n.symbol is None}
        hidden = {
            name
            for name, several in scopes.items()
            if any(one != at and _encloses(scope, at) for one, scope in several for at, _ in several)
        }
        return frozenset(hidden | (outside & scopes.keys()))

    def _scopes(self, stmt: ir.Stmt, scope: ir.Span, found: dict[str, list[tuple[ir.Span, ir.Span]]]) -> None:
        """The declaration of every local, and where it counts, by name."""
        if isinstance(stmt, ir.Declare):
            for s in stmt.symbols:
                found.setdefault(s.name, []).append((s.span, scope))
        inner = stmt.span if isinstance(stmt, ir.Block | ir.For | ir.While | ir.If) else scope
        for child in ir.children(stmt):
            if isinstance(child, ir.Stmt):
                self._scopes(child, inner, found)

    # -- expressions ----------------------------------------------------------------------------------
    def is_arithmetic(self, expr: ir.Expr) -> bool:
        """Names, numbers and operators only: no memory, no call, no change of anything."""
        for node in ir.walk(expr):
            builtin = isinstance(node, ir.Member) and not node.arrow and isinstance(node.base, ir.Name)
            unary = isinstance(node, ir.Unary) and node.op in ("-", "+", "~", "!")
            if not (builtin or unary or isinstance(node, _PLAIN)):
                return False
            if isinstance(node, ir.Binary) and node.op == ",":
                return False
        return not expr.span.within

    def constant(self, expr: ir.Expr, depth: int = 0) -> int | None:
        """The value of a constant, or of a variable that is set to one and never changed."""
        value = self.kernel.constants.evaluate(expr)
        if value is not None or not isinstance(expr, ir.Name) or expr.symbol is None or depth > 16:
            return value
        symbol = self.kernel.symbols[expr.symbol]
        kind = self.types.symbol(symbol)
        if kind is None or symbol.kind != "local" or symbol.init is None or symbol.id in self.changed:
            return None
        value = self.constant(symbol.init, depth + 1) if self.is_plain(symbol) else None
        return value if value is not None and kind.wrap(value) == value else None

    @cached_property
    def changed(self) -> frozenset[int]:
        """Variables that are written anywhere except by their declaration."""
        return frozenset(self.collector.collect(self.kernel.body.body).writes)

    def unchanged(self, expr: ir.Expr, within: Iterable[ir.Stmt] | None = None) -> bool:
        """Whether nothing (in some statements; without: in the whole kernel) changes what an expression reads."""
        written = self.changed if within is None else self.collector.collect(within).writes
        names = ir.names([expr])
        return not names & written and not any(self.kernel.symbols[n].reference for n in names)

    # -- edits ----------------------------------------------------------------------------------------
    def has_comment(self, span: ir.Span) -> bool:
        return self.bare[span.start : span.end] != self.text[span.start : span.end]

    def in_front(self, stmt: ir.Stmt) -> tuple[int, str]:
        """Where a line may be put in front of a statement and its pragmas, and that line's indentation."""
        start = line_start(self.bare, stmt.span.start)
        indent = indent_at(self.text, stmt.span.start)
        if lexical.without_pragmas(self.bare[start : stmt.span.start]).strip():
            return stmt.span.start, indent
        at = start
        while at > 0:
            above = line_start(self.bare, at - 1)
            line = self.bare[above:at]
            if line.strip() and lexical.without_pragmas(line).strip():
                break
            at = above
            if line.strip():
                start = at
        return start, indent

    def put_in_front(self, stmt: ir.Stmt, lines: Iterable[str]) -> Edit:
        """Lines in front of a statement and its pragmas."""
        at, indent = self.in_front(stmt)
        if at == line_start(self.text, at):
            return Edit(at, at, "".join(f"{indent}{line}\n" for line in lines))
        return Edit(at, at, "".join(f"{line}\n{indent}" for line in lines))

    def statement_start(self, stmt: ir.Stmt) -> int:
        """Where a declaration begins, an alignment in front of it included."""
        before = [m.end() for m in _BREAK.finditer(self.bare, self.kernel.function.body.start, stmt.span.start)]
        start = before[-1] if before else stmt.span.start
        found = [at for at, _ in self.kernel.source.alignments if start <= at < stmt.span.start]
        return min(found) if found else stmt.span.start

    def joined(self, stmt: ir.Stmt, lines: list[str]) -> str:
        """Lines that take the place of a statement."""
        return f"\n{indent_at(self.text, stmt.span.start)}".join(lines)

    def replaced(self, stmt: ir.Stmt, lines: list[str]) -> Edit:
        return Edit(stmt.span.start, stmt.span.end, self.joined(stmt, lines))

    def removed(self, stmt: ir.Stmt) -> Edit:
        """A statement taken out, with its line where nothing else stands in it."""
        start, end = line_start(self.text, stmt.span.start), line_end(self.text, stmt.span.end)
        alone = not self.text[start : stmt.span.start].strip() and not self.text[stmt.span.end : end].strip()
        behind = self.text.find(b"\n", end)
        if alone and behind >= 0:
            return Edit(start, behind + 1, "")
        return Edit(stmt.span.start, stmt.span.end, "")

    def at_end(self, loop: Loop, lines: list[str]) -> Edit | None:
        """Statements at the end of the loop's body, in front of a barrier that ends it."""
        if not isinstance(loop.body, ir.Block) or not loop.body.body or loop.body.span.within:
            return None
        last = loop.body.body[-1]
        if last.span.within:
            return None
        if is_barrier(last):
            return self.put_in_front(last, lines)
        at = line_end(self.text, last.span.end)
        close = loop.body.span.end - 1
        if at > close:  # the brace closes in the same line
            return Edit(close, close, "".join(f"{x} " for x in lines))
        indent = indent_at(self.text, last.span.start)
        return Edit(at, at, "".join(f"\n{indent}{x}" for x in lines))


def body_of(loop: Loop) -> tuple[ir.Stmt, ...]:
    return statements(loop.body)


def declared_in(stmts: Iterable[ir.Stmt]) -> set[str]:
    """Names declared anywhere inside some statements."""
    return {s.name for st in stmts for n in ir.walk(st) if isinstance(n, ir.Declare) for s in n.symbols}


def _is(expr: ir.Expr | None, symbol: ir.Symbol) -> bool:
    return isinstance(expr, ir.Name) and expr.symbol == symbol.id


def _encloses(scope: ir.Span, at: ir.Span) -> bool:
    return scope.start <= at.start and at.end <= scope.end


def _macro_use(expr: ir.Expr) -> bool:
    """Whether the text is a macro's name, which may stand for something looser than it looks."""
    at = (expr.span.start, expr.span.end)
    return any(n.span.within and (n.span.start, n.span.end) == at for n in ir.walk(expr))
