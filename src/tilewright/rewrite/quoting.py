"""Quoting the source: texts of expressions, with the parentheses that their new surroundings ask for."""

from __future__ import annotations

import re

from tilewright.kloop.kernel import TiledKernel
from tilewright.source import ir, lexical

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ATOM = re.compile(r"\w+(?:\.\w+)*")
_SUMS = ("+", "-", "*", "/", "%")


class Quotes:
    """Texts of one kernel's nodes."""

    def __init__(self, kernel: TiledKernel) -> None:
        self.kernel = kernel
        self._macros = lexical.macros(kernel.text)

    def source(self, node: ir.Expr | ir.Stmt) -> str:
        """The text of a node, on one line where no comment stands in it.

        Raises:
            ValueError: for a node from inside a macro (a fault of the analysis).
        """
        if node.span.within:
            raise ValueError(f"a node inside a macro at byte {node.span.start} has no text of its own")
        return one_line(self.kernel.text[node.span.start : node.span.end].decode())

    def operand(self, expr: ir.Expr) -> str:
        """The text of an expression as one operand of whatever operator."""
        text = self.source(expr)
        return text if self._tight(expr, text) else f"({text})"

    def term(self, expr: ir.Expr) -> str:
        """The text of an expression beside ``+``."""
        text = self.source(expr)
        sum_ = isinstance(expr, ir.Binary) and expr.op in _SUMS and not self._is_macro(text)
        return text if sum_ or isinstance(expr, ir.Cast) or self._tight(expr, text) else f"({text})"

    def compared(self, expr: ir.Expr) -> str:
        """The text of an expression beside ``<``."""
        return self.term(expr)

    def _tight(self, expr: ir.Expr, text: str) -> bool:
        if text.startswith("(") and _balanced(text):
            return True
        if _IDENTIFIER.fullmatch(text):
            return not self._is_macro(text)
        if _ATOM.fullmatch(text):
            return True
        return isinstance(expr, ir.Call | ir.Index | ir.Member) and not self._is_macro(text)

    def _is_macro(self, text: str) -> bool:
        """Whether a text is (or may be) a macro use that does not hold together by itself."""
        name = _IDENTIFIER.match(text)
        if name is None or any(s.name == name[0] for s in self.kernel.symbols.values()):
            return False
        macro = self._macros.get(name[0])
        if macro is not None:
            body = macro.body.strip()
            return not (_ATOM.fullmatch(body) or (body.startswith("(") and _balanced(body)))
        # A name that nothing in the file declares may be a macro of a header.
        return bool(_IDENTIFIER.fullmatch(text)) and text not in self.kernel.constants

    def address(self, expr: ir.Expr) -> str:
        """The address of an lvalue: ``*p`` → ``p``, ``x[i]`` → ``&x[i]``."""
        match expr:
            case ir.Unary(op="*", operand=p) if not p.span.within:
                return self.source(p)
            case ir.Index(base=ir.Cast() as b, index=ir.Number(value=0)) if not b.span.within:
                return self.source(b)
            case ir.Call(args=(p,)) if expr.callee.startswith("__ld") and not p.span.within:
                return self.source(p)
        return f"&{self.source(expr)}"

    def lvalue(self, expr: ir.Expr) -> str:
        """The text of a global lvalue; ``__ldg(p)`` → ``*(p)``."""
        if isinstance(expr, ir.Call) and expr.callee.startswith("__ld") and not expr.args[0].span.within:
            return f"*({self.source(expr.args[0])})"
        return self.source(expr)


def one_line(text: str) -> str:
    """The text on one line, unless a comment, a string or a directive in it forbids that."""
    fixed = "//" in text or '"' in text or "#" in text
    return text if fixed or "\n" not in text else " ".join(text.split())


def _balanced(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i == len(text) - 1
    return False
