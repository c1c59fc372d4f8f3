"""The braces of a function: instructions, labels and declarations, scope by scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tilewright.ptx.declarations import variable
from tilewright.ptx.lexer import DEEPEST, NAME, Cursor, not_ptx
from tilewright.ptx.module import (
    TYPE_BYTES,
    BranchTargets,
    Group,
    Immediate,
    Instruction,
    Label,
    Operand,
    Place,
    Register,
    Symbol,
    Variable,
)
from tilewright.ptx.operands import Scope, operands_of

# The common statement, in one match: a guard, an opcode with its modifiers, and the operands up to the semicolon.
_STATEMENT = re.compile(
    r"\s*(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)*)(?:\s+(?![:\s])([^;]*)|(?=[;{\[(])([^;]*));"
)
_LABEL = re.compile(r"([a-zA-Z_$%][\w$]*)\s*:(?!:)")
_DIRECTIVE = re.compile(r"\.([a-zA-Z_]\w*)")
_LOC = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\w+)?\s*,\s*inlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}))?[^\n;]*"
)
_SECTION = re.compile(r"[^\s{]+\s*\{[^{}]*\}")
_TO_SEMICOLON = re.compile(r'(?:"[^"\n]*"|[^;{}"])*;')
_REST_OF_LINE = re.compile(r"[^\n]*")
_REGISTER = re.compile(r"([a-zA-Z_$%][\w$]*)(?:\s*<\s*(\d{1,9})\s*>)?")
_TYPE = re.compile(r"\.(\w+)")
# A chain of inlined calls longer than this is cut: only damaged text has one.
_LONGEST_CHAIN = 64

Item = Instruction | Label | BranchTargets


class Body:
    """Reads one function's braces. The cursor stands behind the opening one.

    After ``read()``: ``items``, ``registers`` and ``families`` (unique names), ``shared``, ``local``, ``call_params``;
    ``foreign``: names that operands mention and that the braces do not define → offset in the text.
    """

    def __init__(self, cursor: Cursor, files: Mapping[int, str], name: str, line: int) -> None:
        self.cursor = cursor
        self.files = files
        self.name = name
        self.first_line = line
        self.items: list[Item] = []
        self.registers: dict[str, str] = {}
        self.families: dict[str, tuple[str, int]] = {}
        self.shared: list[Variable] = []
        self.local: list[Variable] = []
        self.call_params: list[Variable] = []
        self._scope = Scope()
        self._depth = 0
        self._scopes_seen = 0
        self._place: Place | None = None
        self._depths: dict[Place, int] = {}
        self._places: dict[tuple[str, str, str], Place] = {}
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.foreign: dict[str, int] = {}
        self._symbols: set[str] = set()
        self._labels: set[str] = set()
        self._written_labels: set[str] = set()
        # Items that name labels: they may stand before the label, so they are settled at the end.
        self._open: list[tuple[int, Scope]] = []

    def read(self) -> None:
        """Read up to the closing brace. Raises TilewrightError ``ptx/not_ptx``."""
        cursor, items = self.cursor, self.items
        text, statement = cursor.text, _STATEMENT.match
        pos = last = cursor.pos
        line = cursor.line_of(pos)
        opcodes = self._opcodes
        while True:
            match = statement(text, pos)
            if match is None:
                cursor.pos = pos
                if self._other():
                    break
                pos = cursor.pos
                continue
            negation, guard_name, full, operands, tight = match.groups()
            begin = match.start(3)
            line += text.count("\n", last, begin)
            last = begin
            parts = opcodes.get(full)
            if parts is None:
                opcode, *modifiers = full.split(".")
                parts = opcodes[full] = (opcode, tuple(modifiers))
            guard = None
            if guard_name is not None:
                guard = self._guard(guard_name, negation == "!", match.start(2))
            if operands is None:
                operands = tight
            found = operands_of(operands, self._scope, cursor, match.end() - 1 - len(operands)) if operands else ()
            if "(" in operands and parts[0] != "call":
                found = tuple([_number_of(operand) for operand in found])
            if parts[0] in ("bra", "brx"):
                self._open.append((len(items), self._scope))
            items.append(Instruction(parts[0], parts[1], found, guard, self._place, line))
            pos = match.end()
        self._settle()

    def _guard(self, name: str, negated: bool, at: int) -> Register:
        register = self._scope.register(name)
        if register is None:
            self.cursor.fail("a declared predicate", at)
        return Register(register, negated)

    def _other(self) -> bool:
        """Anything but an instruction; True behind the function's closing brace."""
        cursor = self.cursor
        pos = cursor.skip()
        first = cursor.text[pos : pos + 1]
        if first == ".":
            match = cursor.take(_DIRECTIVE, "a directive such as .reg")
            self._directive(match.group(1), pos)
        elif first == "{":
            cursor.pos += 1
            self._depth += 1
            self._scope = self._scope.inner()
            if self._depth > DEEPEST:
                cursor.fail(f"at most {DEEPEST} nested scopes")
        elif first == "}":
            cursor.pos += 1
            if self._depth == 0:
                return True
            self._depth -= 1
            assert self._scope.parent is not None
            self._scope = self._scope.parent
        elif first == ";":
            cursor.pos += 1
        elif first == "@" and cursor.accept("@@"):
            # Old compilers write DWARF data so.
            cursor.take(_REST_OF_LINE, "a line")
        elif (label := _LABEL.match(cursor.text, pos)) is not None:
            cursor.pos = label.end()
            self._label(label.group(1), pos)
        elif not first:
            cursor.fail(f'"}}" of function {self.name}, which begins in line {self.first_line}')
        else:
            cursor.fail('an instruction, which ends with ";"')
        return False

    def _directive(self, word: str, start: int) -> None:
        cursor = self.cursor
        if word == "loc":
            self._loc()
        elif word == "reg":
            self._registers()
        elif word in ("shared", "local", "param"):
            self._variable(word)
        elif word in ("branchtargets", "calltargets", "callprototype"):
            self._table(word, start)
        elif word == "pragma":
            cursor.take(_TO_SEMICOLON, '";"')
        elif word == "file":
            cursor.take(_REST_OF_LINE, "a file")
        elif word == "section":
            cursor.take(_SECTION, "a section and its closing brace")
        else:
            cursor.fail("a directive such as .reg", start)

    def _loc(self) -> None:
        file, line, column, *inlined = self.cursor.take(_LOC, "file, line and column").groups()
        key = (file, line, column)
        if inlined[0] is None:
            # Seen again and again, so the same value is used again.
            found = self._places.get(key)
            if found is None or found.inlined_at is not None:
                found = Place(self._file(file), int(line))
        else:
            call = (inlined[0], inlined[1], inlined[2])
            outer = self._places.get(call) or Place(self._file(call[0]), int(call[1]))
            depth = self._depths.get(outer, 0) + 1
            if depth > _LONGEST_CHAIN:
                outer, depth = Place(self._file(call[0]), int(call[1])), 1
            found = Place(self._file(file), int(line), outer)
            self._depths[found] = depth
        self._place = self._places[key] = found

    def _file(self, index: str) -> str:
        return self.files.get(int(index), "")

    def _registers(self) -> None:
        cursor, scope = self.cursor, self._scope
        start = cursor.skip()
        type_ = cursor.take(_TYPE, "a type").group(1)
        if type_ not in TYPE_BYTES:
            cursor.fail("a type of a register", start)
        scope.own()
        while True:
            match = cursor.take(_REGISTER, "the name of a register")
            name, count = match.group(1), match.group(2)
            if count is None:
                unique = self._unique(name if name[0] == "%" else "%" + name)
                scope.names[name] = unique
                self.registers[unique] = type_
            else:
                # Without the digits that the name may end with: the engine tells stem and number apart.
                stem = self._unique(name if name[0] == "%" else "%" + name, is_family=True)
                scope.families[name] = (stem, int(count))
                self.families[stem] = (type_, int(count))
            if cursor.accept(";"):
                return
            cursor.expect(",", '"," or ";"')

    def _unique(self, name: str, is_family: bool = False) -> str:
        """A name that no register of this function has; nested scopes always get one of their own."""
        if self._depth == 0 and name not in self.registers and name not in self.families:
            return name
        while True:
            self._scopes_seen += 1
            found = f"{name}_{self._scopes_seen}_"
            if found not in self.registers and found not in self.families:
                return found

    def _variable(self, space: str) -> None:
        cursor = self.cursor
        found = variable(cursor, "shared" if space == "shared" else "local" if space == "local" else "param")
        cursor.expect(";", '";" after a variable')
        if self._depth > 0 or found.name in self._symbols:
            self._scope.own()
            self._scopes_seen += 1
            unique = f"{found.name}_{self._scopes_seen}_"
            while unique in self._symbols:
                unique += "_"
            self._scope.symbols[found.name] = unique
            found = replace(found, name=unique)
        self._symbols.add(found.name)
        {"shared": self.shared, "local": self.local, "param": self.call_params}[space].append(found)

    def _label(self, name: str, at: int) -> None:
        scope = self._scope
        if name in scope.labels:
            self.cursor.fail(f"a label that is not yet defined, not {name} again", at)
        unique = name
        if self._depth > 0:
            self._scopes_seen += 1
            unique = f"{name}_{self._scopes_seen}_"
        while unique in self._labels:
            unique += "_"
        self._labels.add(unique)
        scope.labels[name] = unique
        self._written_labels.add(name)
        self.items.append(Label(unique))

    def _table(self, word: str, start: int) -> None:
        """``name: .branchtargets a, b;``. The label before it is the table's name, no place to go to."""
        cursor = self.cursor
        label = self.items.pop() if self.items else None
        if not isinstance(label, Label):
            cursor.fail(f"a label before .{word}", start)
        if word != "branchtargets":
            cursor.take(_TO_SEMICOLON, '";"')
            return
        labels: list[str] = []
        while True:
            labels.append(cursor.take(NAME, "a label").group())
            if cursor.accept(";"):
                break
            cursor.expect(",", '"," or ";"')
        self._open.append((len(self.items), self._scope))
        self.items.append(BranchTargets(label.name, tuple(labels)))

    def _settle(self) -> None:
        """Give every branch the unique name of its label."""
        tables = {item.name for item in self.items if isinstance(item, BranchTargets)}
        places = {item.name for item in self.items if isinstance(item, Label)}
        for index, scope in self._open:
            item = self.items[index]
            if isinstance(item, BranchTargets):
                labels = tuple(self._target(name, scope, places, 0, item.name) for name in item.labels)
                self.items[index] = BranchTargets(item.name, labels)
            elif isinstance(item, Instruction):
                self.items[index] = self._branch(item, scope, tables, places)
        known = self._symbols | self._written_labels
        self.foreign = {name: at for name, at in self._scope.used.items() if name not in known}

    def _branch(self, item: Instruction, scope: Scope, tables: set[str], places: set[str]) -> Instruction:
        at = 1 if item.opcode == "brx" else 0
        target = item.operands[at] if len(item.operands) == at + 1 else None
        if not isinstance(target, Symbol):
            raise not_ptx(item.ptx_line, "a label to branch to", item.full_name)
        wanted = tables if item.opcode == "brx" else places
        name = self._target(target.name, scope, wanted, item.ptx_line, item.full_name)
        if name == target.name:
            return item
        operands: tuple[Operand, ...] = (*item.operands[:at], Symbol(name))
        return Instruction(item.opcode, item.modifiers, operands, item.guard, item.place, item.ptx_line)

    def _target(self, name: str, scope: Scope, wanted: set[str], line: int, found: str) -> str:
        unique = scope.label(name)
        if unique is None or unique not in wanted:
            raise not_ptx(line or self.first_line, f"a function that defines label {name}", found)
        return unique


def _number_of(operand: Operand) -> Operand:
    """A constant in parentheses is a number; only a call has groups."""
    if isinstance(operand, Group) and len(operand.items) == 1 and isinstance(operand.items[0], Immediate):
        return operand.items[0]
    return operand
