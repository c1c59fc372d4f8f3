"""tree-sitter's tree of a kernel → the small tree of :mod:`tilewright.source.ir`: declarations and statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.source import ir
from tilewright.source.c_types import int_kind, plain, size_of
from tilewright.source.definitions import function_declarator
from tilewright.source.nodes import make_parser, number, span, text
from tilewright.source.parse_expressions import ExpressionConverter, Scope
from tilewright.source.shared_views import as_view

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["KernelConverter", "ParsedKernel", "make_parser", "number", "span", "text"]

_IGNORED = {"static_assert_declaration", "comment", ";"}
_ALIASES = {"using_declaration", "alias_declaration", "type_definition", "namespace_alias_definition"}


@dataclass(frozen=True)
class ParsedKernel:
    """A kernel's parameters and body, and every symbol declared in it."""

    params: tuple[ir.Symbol, ...]
    body: ir.Block
    symbols: dict[int, ir.Symbol]
    errors: tuple[tuple[str, ir.Span], ...]
    macros_used: frozenset[str]


class KernelConverter(ExpressionConverter):
    """Converts one function definition. Use once."""

    def convert(self, function: Node) -> ParsedKernel:
        declarator = function_declarator(function)
        params: list[ir.Symbol] = []
        if declarator is not None and (plist := declarator.child_by_field_name("parameters")) is not None:
            self._syntax_errors(plist)
            for p in plist.named_children:
                if p.type in ("parameter_declaration", "optional_parameter_declaration"):
                    params.extend(self._symbols(p, "param"))
        body = function.child_by_field_name("body")
        if body is not None:
            self._syntax_errors(body)
        block = self._stmt(body) if body is not None else ir.Block(span(function), ())
        if not isinstance(block, ir.Block):
            block = ir.Block(block.span, (block,))
        return ParsedKernel(tuple(params), block, self.symbols, tuple(self.errors), frozenset(self._macros.used))

    def _syntax_errors(self, node: Node) -> None:
        """Every spot that the grammar could not read, wherever it is."""
        stack = [node] if node.has_error else []
        while stack:
            top = stack.pop()
            if top.is_error or top.is_missing:
                self._fault(top, "a syntax error")
            else:
                stack.extend(c for c in top.children if c.has_error or c.is_missing)

    def statement(self, node: Node) -> ir.Stmt:
        """A declaration outside functions; what it declares stays a free name, as it is for the kernels."""
        self._binding = False
        return self._stmt(node)

    def expression(self, node: Node) -> ir.Expr:
        return self._expr(node)

    # -- declarations ---------------------------------------------------------------------------
    def _symbols(self, node: Node, kind: str) -> list[ir.Symbol]:
        declarators = node.children_by_field_name("declarator")
        first = min((d.start_byte for d in declarators), default=node.end_byte)
        head = [c for c in node.children if c.start_byte < first and c.type not in ("comment", "launch_bounds")]
        type_text = " ".join(text(c) for c in head)
        if any(c.type == "type_qualifier" and text(c) == "__shared__" for c in node.children):
            kind = "shared"
        extern = any(text(c) == "extern" for c in head)
        return [self._declare(d, kind, type_text, extern) for d in declarators]

    def _declare(self, node: Node, kind: str, type_text: str, extern: bool) -> ir.Symbol:
        init: ir.Expr | None = None
        pointers, reference, dims = 0, False, []
        inner: Node | None = node
        if node.type == "init_declarator":
            value = node.child_by_field_name("value")
            inner = node.child_by_field_name("declarator")
            if value is not None and inner is not None and inner.type == "identifier":
                value = _plain_value(value, type_text)
            init = self._expr(value) if value is not None else None
        while inner is not None and inner.type != "identifier":
            if inner.type == "pointer_declarator":
                pointers += 1
            elif inner.type == "reference_declarator":
                reference = True
            elif inner.type == "array_declarator":
                size = inner.child_by_field_name("size")
                dims.append(self._expr(size) if size is not None else ir.Opaque(self._span(inner), "unsized", ()))
            elif inner.type not in ("parenthesized_declarator", "init_declarator"):
                self._fault(inner, f"a {inner.type.replace('_', ' ')}")
            nxt = inner.child_by_field_name("declarator")
            inner = (
                nxt
                if nxt is not None
                else next((c for c in inner.named_children if "declarator" in c.type or c.type == "identifier"), None)
            )
        if isinstance(init, ir.InitList) and len(init.items) == 1 and not dims and (pointers or _is_scalar(type_text)):
            init = init.items[0]  # `size_t i{0}` is `size_t i = 0`
        name = text(inner) if inner is not None else "?"
        if name in self._macros and (inner is None or self._macros.takes(name, text(node), inner, node)):
            self._fault(node, f"`{name}`, which is both a variable and a macro")
        if kind == "param" and dims:  # an array parameter is a pointer
            pointers += not reference
            dims = dims if reference else dims[:-1]
        return self._symbol(node, name, kind, type_text, pointers, tuple(reversed(dims)), reference, init, extern)

    def _symbol(
        self,
        node: Node,
        name: str,
        kind: str,
        type_text: str,
        pointers: int,
        dims: tuple[ir.Expr, ...],
        reference: bool,
        init: ir.Expr | None,
        extern: bool,
    ) -> ir.Symbol:
        """A new symbol, known from here to the end of its scope."""
        depth = len(self._scopes) - 1
        symbol = ir.Symbol(
            len(self.symbols),
            name,
            kind,
            type_text,
            pointers,
            dims,
            self._span(node),
            depth,
            reference,
            init,
            extern,
        )
        symbol = as_view(symbol, self.symbols)
        self.symbols[symbol.id] = symbol
        if self._binding:
            self._scopes[-1].names[name] = symbol.id
        return symbol

    # -- statements -----------------------------------------------------------------------------
    def _stmt(self, node: Node) -> ir.Stmt:
        if node.is_error or node.is_missing or node.type == "ERROR":
            self._fault(node, "a syntax error")
            return ir.OpaqueStmt(self._span(node), "a syntax error")
        handler = getattr(self, f"_stmt_{node.type}", None)
        if handler is not None:
            result = handler(node)
            assert isinstance(result, ir.Stmt)
            return result
        if node.type in _ALIASES:
            return ir.Alias(self._span(node))
        if node.type in _IGNORED or (_is_definition(node) and not _in_loop(node)):
            return ir.Nothing(self._span(node))
        what = "preprocessor lines" if node.type.startswith("preproc") else f"a {node.type.replace('_', ' ')}"
        return ir.OpaqueStmt(self._span(node), what)

    def _scoped(self, node: Node) -> ir.Stmt:
        self._scopes.append(Scope())
        try:
            return self._stmt(node)
        finally:
            self._scopes.pop()

    def _stmt_compound_statement(self, node: Node) -> ir.Stmt:
        self._scopes.append(Scope())
        try:
            body = [self._stmt(c) for c in node.children if c.type not in ("{", "}", "comment")]
        finally:
            self._scopes.pop()
        return ir.Block(self._span(node), tuple(b for b in body if not isinstance(b, ir.Nothing)))

    def _stmt_declaration(self, node: Node) -> ir.Stmt:
        return ir.Declare(self._span(node), tuple(self._symbols(node, "local")))

    def _stmt_expression_statement(self, node: Node) -> ir.Stmt:
        inner = next((c for c in node.named_children if c.type != "comment"), None)
        if inner is None:
            return ir.Nothing(self._span(node))
        if inner.type == "gnu_asm_expression":
            return self._asm(inner, node)
        if (declared := self._misread_declaration(inner)) is not None:
            return ir.Declare(self._span(node), (declared,))
        expansion = self._macro_statements(inner)
        if expansion is not None:
            return ir.Block(self._span(node), expansion)
        return ir.Do(self._span(node), self._expr(inner))

    def _misread_declaration(self, node: Node) -> ir.Symbol | None:
        """``float (&row)[4] = acc[i];``, which the grammar reads as an assignment to ``float(&row)[4]``."""
        value: Node | None = None
        target: Node | None = node
        if node.type == "assignment_expression":
            target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        dims: list[Node] = []
        while target is not None and target.type == "subscript_expression":
            indices = target.child_by_field_name("indices")
            dims += indices.named_children if indices is not None else []
            target = target.child_by_field_name("argument")
        callee = target.child_by_field_name("function") if target is not None else None
        arguments = target.child_by_field_name("arguments") if target is not None else None
        if not dims or callee is None or arguments is None or len(arguments.named_children) != 1:
            return None
        inner = arguments.named_children[0]
        name = inner.child_by_field_name("argument") if inner.type == "pointer_expression" else None
        if name is None or name.type != "identifier" or size_of(text(callee)) is None:
            return None
        operator = inner.child_by_field_name("operator")
        by_reference = operator is not None and text(operator) == "&"
        init = self._expr(value) if value is not None else None
        sizes = tuple(self._expr(d) for d in reversed(dims))
        return self._symbol(
            node, text(name), "local", text(callee), 0 if by_reference else 1, sizes, by_reference, init, False
        )

    def _stmt_if_statement(self, node: Node) -> ir.Stmt:
        clause = node.child_by_field_name("condition")
        value = clause.child_by_field_name("value") if clause is not None else None
        if clause is None or value is None or clause.child_by_field_name("initializer") is not None:
            return ir.OpaqueStmt(self._span(node), "an if with a declaration")
        condition = self._expr(value)
        then = node.child_by_field_name("consequence")
        other = node.child_by_field_name("alternative")
        if other is not None and other.type == "else_clause":
            other = next((c for c in other.named_children if c.type != "comment"), None)
        assert then is not None
        return ir.If(self._span(node), condition, self._scoped(then), self._scoped(other) if other else None)

    def _stmt_for_statement(self, node: Node) -> ir.Stmt:
        body = node.child_by_field_name("body")
        assert body is not None
        self._scopes.append(Scope())
        try:
            init_node = node.child_by_field_name("initializer")
            init: ir.Stmt | None = None
            if init_node is not None:
                init = (
                    self._stmt(init_node)
                    if init_node.type == "declaration"
                    else ir.Do(self._span(init_node), self._expr(init_node))
                )
            cond, upd = node.child_by_field_name("condition"), node.child_by_field_name("update")
            condition = self._expr(cond) if cond is not None else None
            update = self._expr(upd) if upd is not None else None
            statement = self._scoped(body)
        finally:
            self._scopes.pop()
        paren = [c for c in node.children if c.type == ")" and c.start_byte < body.start_byte]
        end = paren[-1].end_byte if paren else body.start_byte
        header = self._inside or ir.Span(node.start_byte, end)
        return ir.For(self._span(node), init, condition, update, statement, header)

    def _stmt_while_statement(self, node: Node) -> ir.Stmt:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        assert condition is not None
        assert body is not None
        inner = condition.child_by_field_name("value") or condition
        return ir.While(self._span(node), self._expr(inner), self._scoped(body))

    def _stmt_do_statement(self, node: Node) -> ir.Stmt:
        return self._stmt_while_statement(node)

    def _jump(self, node: Node) -> ir.Stmt:
        value = next((c for c in node.named_children if c.type != "comment"), None)
        kind = node.type.removesuffix("_statement")
        return ir.Jump(self._span(node), kind, self._expr(value) if value is not None else None)

    _stmt_return_statement = _jump
    _stmt_break_statement = _jump
    _stmt_continue_statement = _jump

    def _asm(self, node: Node, stmt: Node) -> ir.Stmt:
        code = node.child_by_field_name("assembly_code")

        def operands(field_name: str) -> tuple[tuple[str, ir.Expr], ...]:
            group = node.child_by_field_name(field_name)
            if group is None:
                return ()
            out = []
            for op in group.named_children:
                constraint, value = op.child_by_field_name("constraint"), op.child_by_field_name("value")
                if constraint is not None and value is not None:
                    out.append((text(constraint).strip('"'), self._expr(value)))
            return tuple(out)

        return ir.Asm(
            self._span(stmt),
            text(code) if code is not None else "",
            operands("output_operands"),
            operands("input_operands"),
        )


def _plain_value(value: Node, type_text: str) -> Node:
    """``int k{0}`` and ``int k(0)`` mean ``int k = 0``, where that is the type."""
    inner = [c for c in value.named_children if c.type != "comment"]
    if value.type in ("initializer_list", "argument_list") and len(inner) == 1 and int_kind(type_text) is not None:
        return inner[0]
    return value


def _is_scalar(type_text: str) -> bool:
    """Whether a type is one of the language's own: braces around its value say nothing more."""
    return int_kind(type_text) is not None or plain(type_text) in ("float", "double")


def _is_definition(node: Node) -> bool:
    """``#define`` and ``#undef``: what they do is known where macros are used."""
    undefines = node.type == "preproc_call" and text(node).lstrip("# \t").startswith("undef")
    return undefines or node.type in ("preproc_def", "preproc_function_def")


def _in_loop(node: Node) -> bool:
    """Whether a node stands in a loop, where the text around it may be moved."""
    at = node.parent
    while at is not None and at.type not in ("for_statement", "while_statement", "do_statement"):
        at = at.parent
    return at is not None
