"""PTX text to :class:`Module` (PTX ISA 8.x and 9.x, as NVRTC, nvcc, Triton and inline assembly write it)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.ptx.body import Body
from tilewright.ptx.declarations import variable
from tilewright.ptx.lexer import Cursor
from tilewright.ptx.module import Function, Module, Space, Variable

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?!\w)")
_DIRECTIVE = re.compile(r"\.([a-zA-Z_]\w*)")
_TARGET = re.compile(r"(sm_\w+)(?:\s*,\s*\w+)*")
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d{1,9})[ \t]+"((?:\\.|[^"\\\n])*)"[^\n]*$', re.MULTILINE)
_REST_OF_LINE = re.compile(r"[^\n]*")
_SECTION = re.compile(r"[^\s{]+\s*\{[^{}]*\}")
_PARENTHESES = re.compile(r"\([^()]*\)")
_TO_SEMICOLON = re.compile(r'(?:"[^"\n]*"|[^;{}"])*;')
_LINKAGE = frozenset({"visible", "extern", "weak", "common"})
_SPACES: dict[str, Space] = {"global": "global", "const": "const", "shared": "shared"}
# Directives between the parameters and the body that take numbers, "Performance-Tuning Directives".
_TUNING = frozenset(
    {"maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank",
     "explicitcluster", "noreturn", "blocksareclusters", "abi_preserve", "abi_preserve_control"}
)  # fmt: skip


def parse_ptx(text: str) -> Module:
    """Read PTX text.

    Raises:
        TilewrightError: ``ptx/not_ptx`` (exit 2) for text that is damaged, cut off, or not PTX;
            the message and ``facts["ptx_line"]`` name the line.
    """
    return _Parser(text).module()


@dataclass
class _Head:
    """What stands between the parameters of a function and its body."""

    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    min_blocks_per_sm: int | None = None


@dataclass
class _Found:
    functions: dict[str, Function] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    variables: dict[str, Variable] = field(default_factory=dict)
    # Names that a function or an initialiser mentions → offset in the text. They may be declared further down.
    mentioned: dict[str, int] = field(default_factory=dict)


class _Parser:
    def __init__(self, text: str) -> None:
        self.cursor = Cursor(text)
        # The table stands behind the functions that use it.
        self.files = {int(m.group(1)): m.group(2) for m in _FILE.finditer(self.cursor.text)}
        self.found = _Found()

    def module(self) -> Module:
        cursor = self.cursor
        cursor.expect(".version")
        version = cursor.take(_VERSION, "a version such as 8.7")
        cursor.expect(".target")
        target = cursor.take(_TARGET, "a target such as sm_86").group(1)
        end = len(cursor.text)
        while cursor.skip() < end:
            self._top()
        found = self.found
        known = found.variables.keys() | found.functions.keys() | found.declared
        for name, at in found.mentioned.items():
            if name not in known:
                cursor.fail("a name that is declared", at)
        return Module(
            (int(version.group(1)), int(version.group(2))),
            target,
            found.functions,
            frozenset(found.declared - found.functions.keys()),
            tuple(found.variables.values()),
            self.files,
        )

    def _top(self) -> None:
        cursor = self.cursor
        match = cursor.take(_DIRECTIVE, "a directive such as .entry or .global")
        word = match.group(1)
        if word in ("entry", "func"):
            self._function(is_entry=word == "entry")
        elif word in _SPACES:
            self._variable(_SPACES[word])
        elif word == "section":
            cursor.take(_SECTION, "a section and its closing brace")
        elif word == "file":
            cursor.take(_REST_OF_LINE, "a file")
        elif word == "address_size":
            if cursor.integer("32 or 64") != 64:
                cursor.fail(".address_size 64", match.start())
        elif word in ("pragma", "alias"):
            cursor.take(_TO_SEMICOLON, '";"')
        elif word not in _LINKAGE:
            cursor.fail("a directive such as .entry or .global", match.start())

    def _variable(self, space: Space) -> None:
        cursor = self.cursor
        start = cursor.skip()
        found = variable(cursor, space)
        cursor.expect(";", '";" after a variable')
        known = self.found.variables.get(found.name)
        # A declaration (``.extern``) may stand before or behind the definition.
        if known is None or (known.initial is None and known.size_bytes <= found.size_bytes):
            self.found.variables[found.name] = found
        for _, symbol in found.initial_symbols:
            self.found.mentioned.setdefault(symbol.name, start)

    def _function(self, is_entry: bool) -> None:
        cursor = self.cursor
        begin = cursor.pos
        head = _Head()
        while cursor.peek("."):
            self._head_directive(head)
        returns = self._params() if not is_entry and cursor.peek("(") else ()
        name = cursor.name("the name of a function")
        params = self._params() if cursor.peek("(") else ()
        while cursor.peek("."):
            self._head_directive(head)
        if cursor.accept(";"):
            self.found.declared.add(name)
            return
        cursor.expect("{", 'the body of a function, "{"')
        body = Body(cursor, self.files, name, cursor.line_of(begin))
        body.read()
        own = {parameter.name for parameter in (*params, *returns)}
        for used, at in body.foreign.items():
            if used not in own:
                self.found.mentioned.setdefault(used, at)
        self.found.functions[name] = Function(
            name=name,
            is_entry=is_entry,
            params=params,
            returns=returns,
            registers=body.registers,
            families=body.families,
            shared=tuple(body.shared),
            local=tuple(body.local),
            call_params=tuple(body.call_params),
            body=tuple(body.items),
            max_threads=head.max_threads,
            required_threads=head.required_threads,
            cluster=head.cluster,
            min_blocks_per_sm=head.min_blocks_per_sm,
        )

    def _head_directive(self, head: _Head) -> None:
        cursor = self.cursor
        match = cursor.take(_DIRECTIVE, "a directive")
        word = match.group(1)
        if word == "attribute":
            cursor.take(_PARENTHESES, "attributes in parentheses")
            return
        if word == "pragma":
            cursor.take(_TO_SEMICOLON, '";"')
            return
        if word not in _TUNING and word != "noinline":
            cursor.fail("a directive such as .maxntid", match.start())
        numbers: list[int] = []
        while cursor.at_number():
            numbers.append(cursor.integer())
            if not cursor.accept(","):
                break
        extents = _extents(numbers)
        if word in ("maxntid", "reqntid", "reqnctapercluster", "minnctapersm") and extents is None:
            cursor.fail("one to three numbers")
        if word in ("maxntid", "reqntid"):
            head.max_threads = extents
        if word == "reqntid":
            head.required_threads = extents
        elif word == "reqnctapercluster":
            head.cluster = extents
        elif word == "minnctapersm":
            head.min_blocks_per_sm = numbers[0]

    def _params(self) -> tuple[Variable, ...]:
        cursor = self.cursor
        cursor.expect("(")
        out: list[Variable] = []
        while not cursor.accept(")"):
            word = cursor.take(_DIRECTIVE, "a parameter").group(1)
            if word not in ("param", "reg"):
                cursor.fail(".param")
            out.append(variable(cursor, "param"))
            if not cursor.accept(",") and not cursor.peek(")"):
                cursor.fail('"," or ")" after a parameter')
        return tuple(out)


def _extents(numbers: list[int]) -> tuple[int, int, int] | None:
    if not 1 <= len(numbers) <= 3:
        return None
    x, y, z = (*numbers, 1, 1)[:3]
    return (x, y, z)
