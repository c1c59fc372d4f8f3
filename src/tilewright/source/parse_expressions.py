"""Expressions and macro uses of tree-sitter's tree → :mod:`tilewright.source.ir`, names resolved on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilewright.source import ir
from tilewright.source.lexical import Macro
from tilewright.source.macros import Macros
from tilewright.source.nodes import number, span, text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_TYPE_NODES = {
    "primitive_type",
    "sized_type_specifier",
    "type_identifier",
    "qualified_identifier",
    "template_type",
    "placeholder_type_specifier",
    "struct_specifier",
    "decltype",
    "dependent_type",
}
_OPAQUE = {
    "template_function": "`<` and `>` that read as a template (parentheses around the comparisons help)",
    "lambda_expression": "a lambda",
}
_CAST_CALLS = {"static_cast", "reinterpret_cast", "const_cast"}


@dataclass
class Scope:
    names: dict[str, int] = field(default_factory=dict)


class ExpressionConverter:
    """Converts expressions; :class:`tilewright.source.parse.KernelConverter` adds statements."""

    def __init__(self, parser: Parser, macros: dict[str, Macro]) -> None:
        self._parser = parser
        self._macros = Macros(parser, macros)
        self._scopes: list[Scope] = [Scope()]
        self._macro_depth = 0
        self._binding = True
        self._inside: ir.Span | None = None  # the macro call whose expansion is being read
        self.symbols: dict[int, ir.Symbol] = {}
        self.errors: list[tuple[str, ir.Span]] = []

    # -- places and names ---------------------------------------------------------------------
    def _span(self, node: Node) -> ir.Span:
        return self._inside or span(node)

    def _lookup(self, name: str) -> int | None:
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def _stmt(self, node: Node) -> ir.Stmt:
        raise NotImplementedError

    def _fault(self, node: Node, what: str) -> None:
        self.errors.append((what, self._span(node)))

    # -- macros -----------------------------------------------------------------------------------
    def _expanded(self, node: Node) -> Node | None:
        """The block around the expansion of a macro use, or None where ``node`` is no (readable) macro use."""
        if node.type == "identifier" and self._lookup(text(node)) is not None:
            return None  # a variable; one that is a macro too was reported where it is declared
        body = self._macros.expanded(node, self._macro_depth)
        if isinstance(body, str):
            self._fault(node, body)
            return None
        return body

    def _inner(self, node: Node, body: Node) -> list[ir.Stmt]:
        """The statements of an expansion; their spans are those of the use, marked as not to be quoted."""
        outer, here = self._inside, self._span(node)
        self._inside = ir.Span(here.start, here.end, within=True)
        self._macro_depth += 1
        try:
            out = [self._stmt(c) for c in body.children if c.type not in ("{", "}", "comment")]
        finally:
            self._inside = outer
            self._macro_depth -= 1
        return [s for s in out if not isinstance(s, ir.Nothing)]

    def _macro_statements(self, node: Node) -> tuple[ir.Stmt, ...] | None:
        if node.type != "call_expression":
            return None
        body = self._expanded(node)
        return None if body is None else tuple(self._inner(node, body))

    def _macro_expr(self, node: Node) -> ir.Expr | None:
        body = self._expanded(node)
        if body is None:
            return None
        if not self._macros.fits(node, body, self._macro_depth):
            self._fault(node, f"the macro {text(node)}, whose expansion needs parentheses to be one operand")
        statements = self._inner(node, body)
        if len(statements) == 1 and isinstance(statements[0], ir.Do):
            # As a whole it can be quoted: its text is the use.
            return replace(statements[0].expr, span=self._span(node))
        return ir.Opaque(self._span(node), f"the macro {text(node)}", ())

    # -- expressions --------------------------------------------------------------------------------
    def _expr(self, node: Node) -> ir.Expr:
        if node.is_error or node.is_missing:
            self._fault(node, "a syntax error")
            return ir.Opaque(self._span(node), "a syntax error", ())
        handler = getattr(self, f"_expr_{node.type}", None)
        if handler is not None:
            result = handler(node)
            assert isinstance(result, ir.Expr)
            return result
        parts = tuple(self._expr(c) for c in node.named_children if c.type != "comment" and "type" not in c.type)
        return ir.Opaque(self._span(node), _OPAQUE.get(node.type, f"a {node.type.replace('_', ' ')}"), parts)

    def _part(self, node: Node, name: str) -> ir.Expr:
        child = node.child_by_field_name(name)
        if child is None:
            self._fault(node, "a syntax error")
            return ir.Opaque(self._span(node), "a missing part", ())
        return self._expr(child)

    def _expr_identifier(self, node: Node) -> ir.Expr:
        name = text(node)
        symbol = self._lookup(name)
        if symbol is None and (expanded := self._macro_expr(node)) is not None:
            return expanded
        return ir.Name(self._span(node), name, symbol)

    def _expr_qualified_identifier(self, node: Node) -> ir.Expr:
        return ir.Name(self._span(node), text(node), None)

    def _expr_parenthesized_expression(self, node: Node) -> ir.Expr:
        inner = next((c for c in node.named_children if c.type != "comment"), None)
        return self._expr(inner) if inner is not None else ir.Opaque(self._span(node), "()", ())

    def _expr_number_literal(self, node: Node) -> ir.Expr:
        literal, at = text(node), self._span(node)
        if literal[:1] in ("-", "+"):  # the grammar takes the sign into the literal
            return ir.Unary(
                at, literal[0], ir.Number(ir.Span(at.start, at.end, True), literal[1:], number(literal[1:]))
            )
        return ir.Number(at, literal, number(literal))

    def _expr_true(self, node: Node) -> ir.Expr:
        return ir.Number(self._span(node), text(node), node.type == "true")

    _expr_false = _expr_true

    def _expr_string_literal(self, node: Node) -> ir.Expr:
        return ir.Opaque(self._span(node), "a string", ())

    def _expr_unary_expression(self, node: Node) -> ir.Expr:
        operator = node.child_by_field_name("operator")
        op = text(operator) if operator is not None else "?"
        return ir.Unary(self._span(node), op, self._part(node, "argument"))

    _expr_pointer_expression = _expr_unary_expression

    def _expr_update_expression(self, node: Node) -> ir.Expr:
        operator, argument = node.child_by_field_name("operator"), node.child_by_field_name("argument")
        assert operator is not None
        assert argument is not None
        postfix = argument.start_byte < operator.start_byte
        op = text(operator)
        return ir.Unary(self._span(node), f"p{op}" if postfix else op, self._expr(argument))

    def _expr_binary_expression(self, node: Node) -> ir.Expr:
        operator = node.child_by_field_name("operator")
        op = text(operator) if operator is not None else "?"
        return ir.Binary(self._span(node), op, self._part(node, "left"), self._part(node, "right"))

    def _expr_comma_expression(self, node: Node) -> ir.Expr:
        return ir.Binary(self._span(node), ",", self._part(node, "left"), self._part(node, "right"))

    def _expr_assignment_expression(self, node: Node) -> ir.Expr:
        operator = node.child_by_field_name("operator")
        op = text(operator) if operator is not None else "="
        return ir.Assign(self._span(node), op, self._part(node, "left"), self._part(node, "right"))

    def _expr_conditional_expression(self, node: Node) -> ir.Expr:
        return ir.Ternary(
            self._span(node),
            self._part(node, "condition"),
            self._part(node, "consequence"),
            self._part(node, "alternative"),
        )

    def _expr_subscript_expression(self, node: Node) -> ir.Expr:
        base = self._part(node, "argument")
        indices = node.child_by_field_name("indices")
        items = [c for c in indices.named_children if c.type != "comment"] if indices is not None else []
        if len(items) != 1:
            return ir.Opaque(self._span(node), "a subscript", (base, *(self._expr(i) for i in items)))
        return ir.Index(self._span(node), base, self._expr(items[0]))

    def _expr_field_expression(self, node: Node) -> ir.Expr:
        name = node.child_by_field_name("field")
        arrow = any(c.type == "->" for c in node.children)
        return ir.Member(self._span(node), self._part(node, "argument"), text(name) if name else "?", arrow)

    def _expr_cast_expression(self, node: Node) -> ir.Expr:
        kind, value = node.child_by_field_name("type"), self._part(node, "value")
        written = text(kind) if kind is not None else "?"
        inner = node.child_by_field_name("value")
        if isinstance(value, ir.Assign) and inner is not None and inner.type == "assignment_expression":
            # The grammar reads `(T &)a = b` as a cast of the assignment; in C++ the cast binds tighter.
            at = self._span(node)
            left = ir.Cast(ir.Span(at.start, value.left.span.end, at.within), written, value.left)
            return ir.Assign(at, value.op, left, value.right)
        return ir.Cast(self._span(node), written, value)

    def _expr_call_expression(self, node: Node) -> ir.Expr:
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        items = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
        assert callee is not None
        if callee.type == "template_function":
            name = callee.child_by_field_name("name")
            targs = callee.child_by_field_name("arguments")
            if name is not None and text(name) in _CAST_CALLS and targs is not None and len(items) == 1:
                return ir.Cast(self._span(node), text(targs)[1:-1].strip(), self._expr(items[0]))
        if callee.type in _TYPE_NODES - {"qualified_identifier"} and len(items) == 1:
            return ir.Cast(self._span(node), text(callee), self._expr(items[0]))
        if (expanded := self._macro_expr(node)) is not None:
            return expanded
        args = tuple(self._expr(i) for i in items)
        if callee.type in ("identifier", "qualified_identifier", "template_function", "primitive_type"):
            return ir.Call(self._span(node), text(callee), args)
        return ir.Opaque(self._span(node), "a call", (self._expr(callee), *args))

    def _expr_initializer_list(self, node: Node) -> ir.Expr:
        return ir.InitList(self._span(node), tuple(self._expr(c) for c in node.named_children if c.type != "comment"))

    def _expr_compound_literal_expression(self, node: Node) -> ir.Expr:
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        inner = self._expr(value) if value is not None else ir.InitList(self._span(node), ())
        return ir.Cast(self._span(node), text(kind) if kind is not None else "?", inner)

    def _expr_sizeof_expression(self, node: Node) -> ir.Expr:
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        what = kind if kind is not None else value
        return ir.SizeOf(self._span(node), text(what).strip("() ") if what is not None else "?")
