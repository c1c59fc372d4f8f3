"""What a function's parameters stand for in one call: the argument itself where that means the same, else a local."""

from __future__ import annotations

import re

from tilewright.normalise.inline_callee import Callee, Parameter
from tilewright.normalise.inline_meaning import SCALAR, Binding, Meaning
from tilewright.normalise.inline_text import count, one_line, replaced, split_arguments, words
from tilewright.source import ir
from tilewright.source.c_types import int_kind, plain
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel

_TYPE = re.compile(r"^[A-Za-z_][\w:<>, ]*$")


class Arguments(Meaning):
    """Binds the parameters of one call.

    Args:
        given: names that something else of the kernel has; those that are given out here are added.
        expression: the call stands inside an expression, where no variable can be declared.
    """

    def __init__(self, kernel: OpenKernel, callee: Callee, call: ir.Call, given: set[str], expression: bool) -> None:
        super().__init__(kernel, callee)
        self.call = call
        self.given = given
        self.expression = expression
        self._body_words = words(callee.body)
        self.why = ""

    def bind(self) -> Binding | str:
        """Every parameter's meaning, or why one of them has none that is certain."""
        pairs = list(zip(self.callee.parameters, self.call.args, strict=False))
        for _, arg in pairs:
            if any(e.span.within for e in [arg]):
                return "a macro stands for an argument"
            for node in ir.walk(arg):
                if isinstance(node, ir.Assign) or (isinstance(node, ir.Unary) and node.op in _STEPS):
                    return "an argument changes a variable"
                if isinstance(node, ir.Opaque) or (isinstance(node, ir.Binary) and node.op == ","):
                    return "an argument is not understood"
        if not self._template(pairs):
            return self.why
        changed = self._changed_by_call(pairs)
        for parameter, arg in pairs:
            if parameter.name and not self._value(parameter, arg, changed):
                return self.why
        for parameter in self.callee.parameters[len(pairs) :]:
            if parameter.name and not self._local(parameter, self.own_text(parameter.default)):
                return self.why
        return self.out

    def _no(self, why: str) -> bool:
        self.why = why
        return False

    def text(self, expr: ir.Expr) -> str:
        return one_line(self.kernel.source.text[expr.span.start : expr.span.end].decode())

    def fresh(self, name: str) -> str:
        """The name, or one like it, that nothing else has."""
        new, n = name, 0
        while new in self.given or (new != name and new in self._body_words):
            n += 1
            new = f"{name}_{n}"
        self.given.add(new)
        return new

    # -- template parameters ----------------------------------------------------------------------------
    def _template(self, pairs: list[tuple[Parameter, ir.Expr]]) -> bool:
        template = self.callee.definition.template
        written: list[str] | None = []
        if "<" in self.call.callee:
            written = split_arguments(self.call.callee.partition("<")[2].rpartition(">")[0])
        if written is None or len(written) > len(template):
            return self._no("its template arguments are not understood")
        deduced = self._deduced(pairs)
        if deduced is None:
            return False
        for i, parameter in enumerate(template):
            default = self.own_text(parameter.default) if parameter.default else None
            given = written[i] if i < len(written) else deduced.get(parameter.name, default)
            if not given:
                return self._no(f"its template argument {parameter.name} is not written down")
            if parameter.kind == "type":
                if not _TYPE.match(given):
                    return self._no(f"its template argument {parameter.name} is no plain type")
                self.out.types[parameter.name] = given
            elif self._same_constant(plain(self.own_text(parameter.type_text)), given):
                self.out.names[parameter.name] = given
            else:
                kind = " ".join(w for w in self.own_text(parameter.type_text).split() if w != "const")
                if kind == "auto" or not SCALAR.match(kind):
                    return self._no(f"the type of its template argument {parameter.name} is not understood")
                # In place, and not as a constant of its own: what is declared in the loop is not known in front of it.
                self.out.names[parameter.name] = f"int({given})" if kind == "int" else f"static_cast<{kind}>({given})"
        return True

    def _same_constant(self, kind: str, given: str) -> bool:
        """Whether a template argument is a name or number of the parameter's own type."""
        own = next((p for p in self.kernel.function.template if p.name == given), None)
        if own is not None:
            return own.kind == "value" and self.canonical(own.type_text) == self.canonical(kind)
        if given in ("true", "false"):
            return kind == "bool"
        want = int_kind(kind, self.kernel.source.aliases)
        if want is None:
            return False
        if given.isdigit():
            return want.bits == 32 and not want.unsigned and int(given) < 2**31
        if not given.isidentifier():
            return False
        found = [s for s in self.kernel.symbols.values() if s.name == given]
        if len(found) > 1:
            return False
        if found:
            return int_kind(found[0].type_text, self.kernel.source.aliases) == want
        return self.kernel.constants.kind(ir.Name(self.call.span, given, None)) == want

    def _deduced(self, pairs: list[tuple[Parameter, ir.Expr]]) -> dict[str, str] | None:
        """Template arguments that follow from the call's arguments; None where two of them disagree."""
        out: dict[str, str] = {}
        names = {p.name: p.kind for p in self.callee.definition.template}
        for parameter, arg in pairs:
            symbol = parameter.symbol
            if symbol is None:
                continue
            found: list[tuple[str, str]] = []
            base, kind = plain(symbol.type_text.replace("&", " ")), self.type_of(arg)
            depth = symbol.pointers + len(symbol.dims)
            if names.get(base) == "type" and kind is not None and kind.pointers + kind.rank == depth:
                found.append((base, kind.base))
            name = arg if isinstance(arg, ir.Name) and arg.symbol is not None else None
            if name is not None and symbol.dims:
                dims = self.kernel.symbols[name.symbol].dims if name.symbol is not None else ()
                inner = dims[len(dims) - len(symbol.dims) :]
                for own, actual in zip(symbol.dims, inner, strict=False):
                    if isinstance(own, ir.Name) and names.get(own.id) == "value" and not actual.span.within:
                        found.append((own.id, self.text(actual)))
            for key, value in found:
                if out.setdefault(key, value) != value and key not in self._written():
                    self._no(f"its template argument {key} follows from two arguments that differ")
                    return None
        return out

    def _written(self) -> set[str]:
        count_ = len(split_arguments(self.call.callee.partition("<")[2].rpartition(">")[0]) or [])
        return {p.name for p in self.callee.definition.template[:count_]}

    # -- parameters ---------------------------------------------------------------------------------------
    def _changed_by_call(self, pairs: list[tuple[Parameter, ir.Expr]]) -> set[int]:
        """Variables of the kernel that the function may change by way of a reference or pointer to them."""
        out: set[int] = set()
        for parameter, arg in pairs:
            symbol = parameter.symbol
            if symbol is None or "const" in symbol.type_text.split():
                continue
            if symbol.reference or (symbol.pointers and isinstance(arg, ir.Unary | ir.Name)):
                name = root(arg)
                if name is not None and name.symbol is not None:
                    kind = self.kernel.symbols[name.symbol]
                    if symbol.reference or (kind.kind == "local" and (kind.dims or isinstance(arg, ir.Unary))):
                        out.add(name.symbol)
        return out

    def _value(self, parameter: Parameter, arg: ir.Expr, changed: set[int]) -> bool:
        symbol = parameter.symbol
        assert symbol is not None
        behind = bool(symbol.pointers or symbol.dims)
        others = ir.names([arg]) & changed
        fixed = self.fixed(symbol)
        hidden = symbol.name in self.callee.own  # by a local of the same name: both keep one name
        if symbol.reference:
            return self._reference(parameter, arg, fixed and not hidden, others)
        steady = fixed and not others and not hidden
        if behind:
            steady = steady and "volatile" not in symbol.type_text
            if steady and self.steady_place(arg) and self.same_pointee(symbol, arg) and not self.asks_type(symbol):
                shared = self.places.at(arg).space == "shared"
                if isinstance(arg, ir.Name) or shared:
                    self.out.names[symbol.name] = self.text(arg)
                    return True
            if symbol.dims:
                return self._no(f"its parameter {symbol.name} cannot be replaced by the argument")
            return self._local(parameter, self.text(arg))
        if steady and self.is_plain(arg) and self.same_value(symbol, arg):
            self.out.names[symbol.name] = self.text(arg)
            return True
        if steady and self.only_stored(symbol) and self.same_value(symbol, arg):
            self.out.names[symbol.name] = self.text(arg)
            return True
        once = count(self.callee.body, symbol.name) <= 1 or _calm(self.text(arg))
        if self.expression and steady and once and self.same_value(symbol, arg):
            self.out.names[symbol.name] = self.text(arg)
            return True
        return self._local(parameter, self.text(arg))

    def _reference(self, parameter: Parameter, arg: ir.Expr, fixed: bool, others: set[int]) -> bool:
        symbol = parameter.symbol
        assert symbol is not None
        const = "const" in symbol.type_text.split()
        alone = sum(root(a) is not None and root(a) == root(arg) for a in self.call.args) <= 1
        kind = self.type_of(arg)
        same = (
            kind is not None
            and kind.rank == len(symbol.dims)
            and kind.pointers == symbol.pointers
            and self.canonical(kind.base) == self.canonical(self.base(symbol))
        )
        hidden = symbol.name in self.callee.own
        if "volatile" in symbol.type_text:
            return self._no(f"its parameter {symbol.name} is volatile")
        if (
            same
            and not hidden
            and self.steady_place(arg, lvalue=True)
            and (alone or symbol.dims)
            and not self.asks_type(symbol)
        ):
            moved = {n.symbol for n in ir.walk(arg) if isinstance(n, ir.Name)} - {getattr(root(arg), "symbol", None)}
            if not moved & others:
                self.out.names[symbol.name] = self.text(arg)
                return True
        if const and not symbol.dims and fixed and not others:
            return self._local(parameter, self.text(arg))
        return self._no(f"its parameter {symbol.name} is a reference to something that is not understood")

    def _local(self, parameter: Parameter, value: str) -> bool:
        """A variable of its own, which is what a parameter is."""
        symbol = parameter.symbol
        assert symbol is not None
        if self.expression:
            return self._cast(symbol, value)
        name = self.fresh(symbol.name)
        before = {k: v for k, v in self.out.names.items() if k != symbol.name}
        declaration = re.sub(r"\b__restrict(?:__)?\b", " ", one_line(parameter.declaration)).replace("&", " ")
        declaration = " ".join(replaced(declaration, before | {symbol.name: name}, self.out.types).split())
        if not symbol.pointers and "const" not in declaration.split() and self.fixed(symbol):
            declaration = f"const {declaration}"
        self.out.lines.append(f"{declaration} = {value};")
        self.out.names[symbol.name] = name
        return True

    def _cast(self, symbol: ir.Symbol, value: str) -> bool:
        """In an expression: the argument, converted as the call converts it; evaluated once, and not changed."""
        kind = " ".join(w for w in self.own_text(symbol.type_text).replace("&", " ").split() if w != "const")
        uses = count(self.callee.body, symbol.name)
        loud = "volatile" in symbol.type_text
        if loud or not self.fixed(symbol) or symbol.dims or not SCALAR.match(kind) or (uses > 1 and not _calm(value)):
            return self._no(f"its parameter {symbol.name} needs a variable of its own")
        if symbol.pointers:
            self.out.names[symbol.name] = value
        else:
            self.out.names[symbol.name] = f"static_cast<{kind}>({value})"
        return True


_STEPS = ("++", "--", "p++", "p--")


def _calm(value: str) -> bool:
    """Whether working a value out twice costs and changes nothing: it reads no memory and calls nothing."""
    return not any(sign in value for sign in ("[", "->", "(", "*"))
