"""Macro uses: what they expand to, and whether the expansion may stand where it is used as one operand.

The preprocessor replaces text, the tree holds expressions. The two agree only where the expansion is closed (a literal,
a call, something in parentheses) or stands alone. Elsewhere ``x / N`` with ``N`` as ``BK / 4`` means ``x / BK / 4``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.source.lexical import Macro, expand, without_pragmas
from tilewright.source.nodes import number, text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MAX_DEPTH = 8
_CLOSED = {
    "identifier",
    "qualified_identifier",
    "number_literal",
    "string_literal",
    "true",
    "false",
    "parenthesized_expression",
    "call_expression",
    "subscript_expression",
    "field_expression",
    "sizeof_expression",
}
_PREFIX = {"cast_expression", "unary_expression", "pointer_expression", "update_expression"}
_POSTFIX_USERS = {"subscript_expression", "field_expression", "call_expression", "update_expression"}
_ALONE = {
    "parenthesized_expression",
    "argument_list",
    "subscript_argument_list",
    "initializer_list",
    "init_declarator",
    "array_declarator",
    "expression_statement",
    "return_statement",
    "condition_clause",
    "for_statement",
    "enumerator",
}


class Macros:
    """The macros of one file, as a kernel's text uses them.

    Attributes:
        used: names of object-like macros that were expanded.
    """

    def __init__(self, parser: Parser, macros: dict[str, Macro]) -> None:
        self._parser = parser
        self._macros = macros
        self.used: set[str] = set()
        self._trees: dict[str, Node | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._macros

    def takes(self, name: str, whole: str, inner: Node, node: Node) -> bool:
        """Whether the preprocessor takes the name of a variable where it is declared: not without its ``(``."""
        behind = whole.encode()[inner.end_byte - node.start_byte :].lstrip()
        return self._macros[name].params is None or behind.startswith(b"(")

    def use(self, node: Node) -> tuple[Macro, tuple[str, ...]] | None:
        """The macro and its arguments, where the node is a use of one."""
        if node.type == "call_expression":
            callee, args = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if callee is None or args is None or callee.type != "identifier":
                return None
            macro = self._macros.get(text(callee))
            if macro is not None and macro.params is not None:
                return macro, tuple(text(a) for a in args.named_children if a.type != "comment")
        elif node.type == "identifier":
            macro = self._macros.get(text(node))
            if macro is not None and macro.params is None:
                return macro, ()
        return None

    def expanded(self, node: Node, depth: int) -> Node | str | None:
        """The block ``{ expansion; }`` of a use; a string says why it cannot be read; None where it is no use."""
        found = self.use(node)
        if found is None:
            return None
        macro, args = found
        if not macro.settled and not (macro.params is None and isinstance(number(macro.body.strip("() ")), int)):
            return f"the macro {macro.name}, which the file defines more than once"
        body = expand(macro, args)
        if body is None or depth >= _MAX_DEPTH:
            return f"the macro {macro.name}, which cannot be expanded here"
        if body not in self._trees:
            self._trees[body] = self._block(body)
        block = self._trees[body]
        if block is None:
            return f"the macro {macro.name}, which is no expression or statement of its own"
        if macro.params is None:
            self.used.add(macro.name)
        return block

    def _block(self, body: str) -> Node | None:
        """The block ``{ body ; }``; None where it cannot be read."""
        plain = without_pragmas(body.encode())  # `_Pragma(…)` in front of a loop reads as a call without its `;`
        root = self._parser.parse(b"void f() { " + plain + b"\n; }").root_node
        function = next((c for c in root.named_children if c.type == "function_definition"), None)
        return None if function is None or root.has_error else function.child_by_field_name("body")

    def fits(self, node: Node, block: Node, depth: int) -> bool:
        """Whether the expansion, used as one operand where ``node`` stands, is what the preprocessor makes of it."""
        kinds = self._kinds(block, depth)
        parent = node.parent
        if parent is None or parent.type in _ALONE:
            return "comma_expression" not in kinds
        if parent.type == "assignment_expression" and parent.child_by_field_name("right") == node:
            return not kinds & {"comma_expression", "assignment_expression"}
        if kinds <= _CLOSED:
            return True
        postfix = parent.type in _POSTFIX_USERS and parent.children[0] == node
        return kinds <= _CLOSED | _PREFIX and not postfix

    def _kinds(self, block: Node, depth: int) -> set[str]:
        """The node types at the top of the expansion, through macros that it consists of."""
        kinds: set[str] = set()
        for statement in block.named_children:
            if statement.type == "comment" or (
                statement.type == "expression_statement" and not statement.named_children
            ):
                continue
            inner = statement.named_children[0] if statement.type == "expression_statement" else statement
            nested = self.expanded(inner, depth + 1) if self.use(inner) is not None else None
            if nested is None or isinstance(nested, str):
                kinds.add(inner.type)
            else:
                kinds |= self._kinds(nested, depth + 1)
        return kinds
