"""Whether an argument means the same as the parameter that it is given for, wherever the function uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.normalise.inline_callee import Callee, find
from tilewright.normalise.inline_text import count, one_line, replaced
from tilewright.source import intrinsics, ir
from tilewright.source.c_types import int_kind, plain, resolve
from tilewright.source.effects import Collector
from tilewright.source.expr_types import CType, Types
from tilewright.source.integer_types import BUILTINS
from tilewright.source.reader import OpenKernel

SCALAR = re.compile(r"^[A-Za-z_][\w: ]*$")
_OF_TYPE = re.compile(r"\b(?:sizeof|decltype|alignof|typeid)\b")


@dataclass
class Binding:
    """What stands for the function's names: for values, for types. Lines declare what needs a variable of its own."""

    names: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


class Meaning:
    """What is known of one call: its types, and how the function uses its parameters."""

    def __init__(self, kernel: OpenKernel, callee: Callee) -> None:
        self.kernel = kernel
        self.callee = callee
        self.types = Types(kernel.symbols, kernel.source.aliases)
        self.places = Collector(kernel.symbols, kernel.functions, kernel.body.body, True, kernel.source.aliases).places
        self.out = Binding()

    def own_text(self, text: str) -> str:
        """A piece of the function's head, as it reads at the call."""
        return one_line(replaced(text, self.out.names, self.out.types))

    def canonical(self, kind: str) -> str:
        """A type's built-in name."""
        return resolve(kind, self.kernel.source.aliases)

    def fixed(self, symbol: ir.Symbol) -> bool:
        """Whether the function leaves the parameter itself alone: not what it points to."""
        for node in ir.walk(self.callee.parsed.body):
            match node:
                case ir.Assign(left=x) | ir.Unary(op="++" | "--" | "p++" | "p--", operand=x):
                    if _variable(x) == symbol.id:
                        return False
                case ir.Unary(op="&", operand=x) if _variable(x) == symbol.id and not symbol.dims:
                    return False
                case ir.Declare(symbols=symbols):
                    if any(s.reference and s.init is not None and _variable(s.init) == symbol.id for s in symbols):
                        return False
                case ir.Asm(outputs=outputs):
                    if any(_variable(e) == symbol.id for _, e in outputs):
                        return False
                case ir.Call(callee=f, args=args):
                    if any(_variable(a) == symbol.id and self._may_change(f, i) for i, a in enumerate(args)):
                        return False
        return True

    def _may_change(self, callee: str, position: int) -> bool:
        known = self.kernel.functions.get(callee.split("<")[0].split("::")[-1])
        if known is None:
            return not (intrinsics.is_known(callee) or "_cast<" in callee)
        return any(
            position < len(ps) and ps[position].how == "reference" and not ps[position].const for ps in known.params
        )

    def asks_type(self, symbol: ir.Symbol) -> bool:
        """Whether the body asks for the parameter's type or address, which an argument's may differ from."""
        body = self.callee.body
        return any(count(body[m.end() :].split(";")[0], symbol.name) > 0 for m in _OF_TYPE.finditer(body)) or any(
            isinstance(n, ir.Unary) and n.op == "&" and isinstance(n.operand, ir.Name) and n.operand.symbol == symbol.id
            for n in ir.walk(self.callee.parsed.body)
        )

    def only_stored(self, symbol: ir.Symbol) -> bool:
        """Whether the body is one store of the parameter: nothing happens between its evaluation and its use."""
        match self.callee.parsed.body.body:
            case (ir.Do(expr=ir.Assign(op="=", right=ir.Name(symbol=s))),):
                return s == symbol.id and count(self.callee.body, symbol.name) == 1
        return False

    def is_plain(self, arg: ir.Expr) -> bool:
        match arg:
            case ir.Name() | ir.Number():
                return True
            case ir.Member(base=ir.Name(id=b), arrow=False):
                return b in BUILTINS
        return False

    def _steady_value(self, e: ir.Expr) -> bool:
        match e:
            case ir.Name() | ir.Number() | ir.SizeOf():
                return True
            case ir.Member(base=ir.Name(), arrow=False):
                return True
            case ir.Binary(left=a, right=b):
                return self._steady_value(a) and self._steady_value(b)
            case ir.Unary(op="+" | "-" | "~" | "!", operand=x):
                return self._steady_value(x)
            case ir.Cast(type_text=t, operand=x):
                return "*" not in t and "&" not in t and self._steady_value(x)
        return False

    def steady_place(self, e: ir.Expr, lvalue: bool = False) -> bool:
        """Whether an address (or an lvalue) is the same each time it is worked out, and reads no memory for it."""
        match e:
            case ir.Name(symbol=int()):
                return True
            case ir.Unary(op="&", operand=x):
                return not lvalue and self.steady_place(x, lvalue=True)
            case ir.Index(base=b, index=i):
                kind, inner = self.types.of(e), self.types.of(b)
                address = lvalue or (kind is not None and kind.rank > 0)
                return (
                    address
                    and inner is not None
                    and self._steady_value(i)
                    and self.steady_place(b, lvalue=inner.rank > 0)
                )
            case ir.Member(base=b, arrow=False):
                return lvalue and self.steady_place(b, lvalue=True)
            case ir.Binary(op="+" | "-", left=a, right=b):
                sides = (a, b) if self._points(a) else (b, a)
                return not lvalue and self.steady_place(sides[0]) and self._steady_value(sides[1])
            case ir.Cast(type_text=t, operand=x) if "*" in t:
                return not lvalue and self.steady_place(x)
        return False

    def _points(self, e: ir.Expr) -> bool:
        kind = self.types.of(e)
        return kind is not None and bool(kind.pointers or kind.rank)

    def base(self, symbol: ir.Symbol) -> str:
        return plain(self.own_text(symbol.type_text).replace("&", " "))

    def type_of(self, arg: ir.Expr) -> CType | None:
        kind = self.types.of(arg)
        if kind is not None:
            return kind
        match arg:
            case ir.Member(base=ir.Name(id=b), arrow=False) if b in BUILTINS:
                return CType("unsigned int")
            case ir.Number(value=bool()):
                return CType("bool")
            case ir.Number(value=int(), text=t) if t.isdigit():
                return CType("int")
            case ir.Number(value=float(), text=t):
                return CType("float" if t[-1:] in "fF" else "double")
            case ir.Binary(op="+" | "-" | "*" | "/" | "%" | "&" | "|" | "^", left=a, right=b):
                return self._arithmetic(self.type_of(a), self.type_of(b))
            case ir.Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=" | "&&" | "||"):
                return CType("bool")
            case ir.Ternary(then=a, otherwise=b):
                one, two = self.type_of(a), self.type_of(b)
                return one if one is not None and not one.rank and self.types.same(one, two) else None
            case ir.Call():
                found = find(self.kernel, arg)
                if isinstance(found, Callee) and not found.definition.template and SCALAR.match(found.returns):
                    return CType(plain(found.returns))
        return None

    def _arithmetic(self, a: CType | None, b: CType | None) -> CType | None:
        """The type of arithmetic on two integers of 32 bits; anything else is not worked out."""
        if a is None or b is None or a.pointers or b.pointers or a.rank or b.rank:
            return None
        kinds = [int_kind(x.base, self.kernel.source.aliases) for x in (a, b)]
        if any(k is None or k.bits != 32 for k in kinds):
            return None
        return CType("unsigned int" if any(k is not None and k.unsigned for k in kinds) else "int")

    def same_value(self, symbol: ir.Symbol, arg: ir.Expr) -> bool:
        base, aliases = self.base(symbol), self.kernel.source.aliases
        want, have = int_kind(base, aliases), self.kernel.constants.kind(arg)
        if want is not None and have is not None:
            return want == have
        kind = self.type_of(arg)
        if kind is None or kind.pointers or kind.rank:
            return False
        if want is not None:
            return int_kind(kind.base, aliases) == want
        return self.types.same(CType(base), kind)

    def same_pointee(self, symbol: ir.Symbol, arg: ir.Expr) -> bool:
        kind = self.type_of(arg)
        if kind is None:
            return False
        depth = symbol.pointers + len(symbol.dims)
        return kind.pointers + kind.rank == depth and self.types.same(CType(self.base(symbol)), CType(kind.base))


def _variable(expr: ir.Expr) -> int | None:
    """The variable that an lvalue is, or is a part of: nothing behind a pointer."""
    match expr:
        case ir.Name(symbol=s):
            return s
        case ir.Member(base=b, arrow=False):
            return _variable(b)
    return None
