"""tree-sitter's tree of a kernel → the small tree of :mod:`tilewright.source.ir`, names resolved on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.source import ir
from tilewright.source.lexical import Macro, expand

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_TYPE_NODES = {
    "primitive_type", "sized_type_specifier", "type_identifier", "qualified_identifier", "template_type",
    "placeholder_type_specifier", "struct_specifier", "decltype", "dependent_type",
}  # fmt: skip
_IGNORED = {"using_declaration", "alias_declaration", "type_definition", "static_assert_declaration", "comment", ";"}
_CAST_CALLS = {"static_cast", "reinterpret_cast", "const_cast"}
_MAX_MACRO_DEPTH = 8


def make_parser() -> Parser:
    """A parser of the CUDA grammar (imported late: it is needed only where a source is read)."""
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def span(node: Node) -> ir.Span:
    return ir.Span(node.start_byte, node.end_byte)


@dataclass
class _Scope:
    names: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ParsedKernel:
    """A kernel's parameters and body, and every symbol declared in it."""

    params: tuple[ir.Symbol, ...]
    body: ir.Block
    symbols: dict[int, ir.Symbol]
    errors: tuple[ir.Span, ...]


class KernelConverter:
    """Converts one function definition. Use once."""

    def __init__(self, parser: Parser, macros: dict[str, Macro]) -> None:
        self._parser = parser
        self._macros = macros
        self._scopes: list[_Scope] = [_Scope()]
        self._macro_depth = 0
        self._inside: ir.Span | None = None  # the macro call whose expansion is being read
        self.symbols: dict[int, ir.Symbol] = {}
        self.errors: list[ir.Span] = []

    def convert(self, function: Node) -> ParsedKernel:
        declarator = function.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        params: list[ir.Symbol] = []
        if declarator is not None and (plist := declarator.child_by_field_name("parameters")) is not None:
            for p in plist.named_children:
                if p.type in ("parameter_declaration", "optional_parameter_declaration"):
                    params.extend(self._symbols(p, "param"))
        body = function.child_by_field_name("body")
        block = self._stmt(body) if body is not None else ir.Block(span(function), ())
        if not isinstance(block, ir.Block):
            block = ir.Block(block.span, (block,))
        return ParsedKernel(tuple(params), block, self.symbols, tuple(self.errors))

    def statement(self, node: Node) -> ir.Stmt:
        """One statement outside a function, such as a constant's declaration."""
        return self._stmt(node)

    def expression(self, node: Node) -> ir.Expr:
        return self._expr(node)

    # -- places and names ---------------------------------------------------------------------
    def _span(self, node: Node) -> ir.Span:
        return self._inside or span(node)

    def _lookup(self, name: str) -> int | None:
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
        return None

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
            init = self._expr(value) if value is not None else None
            inner = node.child_by_field_name("declarator")
        while inner is not None and inner.type != "identifier":
            if inner.type == "pointer_declarator":
                pointers += 1
            elif inner.type == "reference_declarator":
                reference = True
            elif inner.type == "array_declarator":
                size = inner.child_by_field_name("size")
                dims.append(self._expr(size) if size is not None else ir.Opaque(self._span(inner), "unsized", ()))
            elif inner.type not in ("parenthesized_declarator", "init_declarator"):
                self.errors.append(self._span(inner))
            nxt = inner.child_by_field_name("declarator")
            inner = nxt if nxt is not None else next((c for c in inner.named_children if "declarator" in c.type
                                                      or c.type == "identifier"), None)  # fmt: skip
        name = text(inner) if inner is not None else "?"
        symbol = ir.Symbol(
            len(self.symbols), name, kind, type_text, pointers, tuple(reversed(dims)), self._span(node),
            len(self._scopes) - 1, reference, init, extern,
        )  # fmt: skip
        self.symbols[symbol.id] = symbol
        self._scopes[-1].names[name] = symbol.id
        return symbol

    # -- statements -----------------------------------------------------------------------------
    def _stmt(self, node: Node) -> ir.Stmt:
        if node.is_error or node.is_missing or node.type == "ERROR":
            self.errors.append(self._span(node))
            return ir.OpaqueStmt(self._span(node), "a syntax error")
        handler = getattr(self, f"_stmt_{node.type}", None)
        if handler is not None:
            result = handler(node)
            assert isinstance(result, ir.Stmt)
            return result
        if node.type in _IGNORED:
            return ir.Nothing(self._span(node))
        return ir.OpaqueStmt(self._span(node), node.type.replace("_", " "))

    def _scoped(self, node: Node) -> ir.Stmt:
        self._scopes.append(_Scope())
        try:
            return self._stmt(node)
        finally:
            self._scopes.pop()

    def _stmt_compound_statement(self, node: Node) -> ir.Stmt:
        self._scopes.append(_Scope())
        try:
            body = [self._stmt(c) for c in node.children if c.type not in ("{", "}", "comment")]
        finally:
            self._scopes.pop()
        return ir.Block(self._span(node), tuple(b for b in body if not isinstance(b, ir.Nothing)))

    def _stmt_declaration(self, node: Node) -> ir.Stmt:
        self._note_errors(node)
        return ir.Declare(self._span(node), tuple(self._symbols(node, "local")))

    def _stmt_expression_statement(self, node: Node) -> ir.Stmt:
        inner = next((c for c in node.named_children if c.type != "comment"), None)
        if inner is None:
            return ir.Nothing(self._span(node))
        if inner.type == "gnu_asm_expression":
            return self._asm(inner, node)
        self._note_errors(node)
        expansion = self._macro_statements(inner)
        if expansion is not None:
            return ir.Block(self._span(node), expansion)
        return ir.Do(self._span(node), self._expr(inner))

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
        self._scopes.append(_Scope())
        try:
            init_node = node.child_by_field_name("initializer")
            init: ir.Stmt | None = None
            if init_node is not None:
                init = (self._stmt(init_node) if init_node.type == "declaration"
                        else ir.Do(self._span(init_node), self._expr(init_node)))  # fmt: skip
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

        if node.has_error:
            self.errors.append(self._span(stmt))
        return ir.Asm(self._span(stmt), text(code) if code is not None else "",
                      operands("output_operands"), operands("input_operands"))  # fmt: skip

    def _note_errors(self, node: Node) -> None:
        if node.has_error:
            self.errors.append(self._span(node))

    # -- macros -----------------------------------------------------------------------------------
    def _macro_of(self, node: Node) -> tuple[Macro, tuple[str, ...]] | None:
        if node.type == "call_expression":
            callee, args = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if callee is None or args is None or callee.type != "identifier":
                return None
            macro = self._macros.get(text(callee))
            if macro is not None and macro.params is not None:
                return macro, tuple(text(a) for a in args.named_children if a.type != "comment")
        elif node.type == "identifier":
            macro = self._macros.get(text(node))
            if macro is not None and macro.params is None and self._lookup(macro.name) is None:
                return macro, ()
        return None

    def _expanded(self, node: Node) -> Node | None:
        """The body of a function around the expansion of a macro use, or None where ``node`` is no macro use."""
        found = self._macro_of(node)
        if found is None:
            return None
        body = expand(*found)
        if body is None or self._macro_depth >= _MAX_MACRO_DEPTH:
            self.errors.append(self._span(node))
            return None
        tree = self._parser.parse(f"void f() {{ {body}\n; }}".encode())
        function = next((c for c in tree.root_node.named_children if c.type == "function_definition"), None)
        if function is None or tree.root_node.has_error:
            self.errors.append(self._span(node))
            return None
        return function.child_by_field_name("body")

    def _within(self, node: Node, body: Node) -> list[ir.Stmt]:
        outer = self._inside
        self._inside = self._span(node)
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
        return None if body is None else tuple(self._within(node, body))

    def _macro_expr(self, node: Node) -> ir.Expr | None:
        body = self._expanded(node)
        if body is None:
            return None
        statements = self._within(node, body)
        if len(statements) == 1 and isinstance(statements[0], ir.Do):
            return statements[0].expr
        return ir.Opaque(self._span(node), f"the macro {text(node)}", ())

    # -- expressions --------------------------------------------------------------------------------
    def _expr(self, node: Node) -> ir.Expr:
        if node.is_error or node.is_missing:
            self.errors.append(self._span(node))
            return ir.Opaque(self._span(node), "a syntax error", ())
        handler = getattr(self, f"_expr_{node.type}", None)
        if handler is not None:
            result = handler(node)
            assert isinstance(result, ir.Expr)
            return result
        parts = tuple(self._expr(c) for c in node.named_children if c.type != "comment" and "type" not in c.type)
        return ir.Opaque(self._span(node), node.type.replace("_", " "), parts)

    def _part(self, node: Node, name: str) -> ir.Expr:
        child = node.child_by_field_name(name)
        if child is None:
            self.errors.append(self._span(node))
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
        return ir.Number(self._span(node), text(node), number(text(node)))

    def _expr_true(self, node: Node) -> ir.Expr:
        return ir.Number(self._span(node), text(node), int(node.type == "true"))

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
        return ir.Ternary(self._span(node), self._part(node, "condition"), self._part(node, "consequence"),
                          self._part(node, "alternative"))  # fmt: skip

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
        kind = node.child_by_field_name("type")
        return ir.Cast(self._span(node), text(kind) if kind is not None else "?", self._part(node, "value"))

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
