"""The statements of a PTX function and where they stand in the text, so that one can be edited and the rest stays.

``tilewright.ptx`` reads what a text means; this knows only where each statement begins and ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilewright.errors import TilewrightError
from tilewright.ptx.module import Instruction
from tilewright.ptx.parse import parse_ptx
from tilewright.ptx.places import user_line

_HIDDEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")
_LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file)\b[^\n]*")
_STATEMENT = re.compile(r"[^;]*;")
_INSTRUCTION = re.compile(r"(?:@\s*(!?\s*[\w$%]+)\s+)?([a-z_][\w.:]*)\s*(.*?)\s*;", re.DOTALL)
_SPACE = re.compile(r"\s*")
_BODY = re.compile(r"\.(?P<kind>entry|func)\b(?P<head>[^{;]*)\{")


@dataclass(frozen=True)
class Statement:
    """One instruction, label or directive.

    Attributes:
        start, end: in the text, its semicolon included.
        scopes: the numbers of the braces that it is in, outermost first.
        opcode: with its modifiers, ``bar.sync``; of a label, its name; of a directive, empty.
        guard: ``%p1`` or ``!%p1``; empty without one.
        operands: as written, comments blanked.
    """

    kind: Literal["instruction", "label", "directive"]
    start: int
    end: int
    scopes: tuple[int, ...]
    opcode: str = ""
    guard: str = ""
    operands: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def ends_block(self) -> bool:
        return self.kind == "instruction" and self.root in ("bra", "brx", "ret", "exit", "trap", "call")


@dataclass(frozen=True)
class Statements:
    """What a kernel runs: its own statements, and behind them those of the module's functions, which it may call."""

    ptx: str
    items: tuple[Statement, ...]
    lines: Mapping[int, int | None]

    def source_line(self, statement: Statement) -> int | None:
        """The line of the user's source that a statement comes from."""
        return self.lines.get(self.ptx.count("\n", 0, statement.start) + 1)

    def block_after(self, index: int) -> Iterator[int]:
        """The later instructions of the same basic block."""
        for i in range(index + 1, len(self.items)):
            if self.items[i].kind == "label" or self.items[i - 1].ends_block:
                return
            if self.items[i].kind == "instruction":
                yield i

    def block_before(self, index: int) -> Iterator[int]:
        """The earlier instructions of the same basic block, the nearest first."""
        if self.items[index].kind == "label":
            return
        for i in range(index - 1, -1, -1):
            if self.items[i].kind == "label" or self.items[i].ends_block:
                return
            if self.items[i].kind == "instruction":
                yield i

    def reachable_from(self, index: int) -> set[int]:
        """Every instruction that can run after one, itself only where a loop leads back to it."""
        return self._closure(index, self._after)

    def leading_to(self, index: int) -> set[int]:
        """Every instruction that can run before one."""
        before: list[list[int]] = [[] for _ in self.items]
        for i, following in enumerate(self._after):
            for j in following:
                before[j].append(i)
        return self._closure(index, before)

    def is_passed_once(self, index: int) -> bool:
        """Every thread that starts comes to it before it ends, and none comes again."""
        if index in self.reachable_from(index):
            return False
        seen = {index}
        todo = [0]
        while todo:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            if self.items[i].kind == "instruction" and self.items[i].root in ("ret", "exit", "trap"):
                return False
            todo += self._after[i]
        return True

    def _closure(self, index: int, edges: list[list[int]]) -> set[int]:
        seen: set[int] = set()
        todo = [*edges[index]]
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += edges[i]
        return {i for i in seen if self.items[i].kind == "instruction"}

    @cached_property
    def _after(self) -> list[list[int]]:
        return [self._successors(i) for i in range(len(self.items))]

    def _successors(self, index: int) -> list[int]:
        item = self.items[index]
        following = [index + 1] if index + 1 < len(self.items) else []
        if item.kind != "instruction":
            return following
        if item.root in ("ret", "exit", "trap"):
            return following if item.guard else []
        if item.root == "brx":
            return [*following, *(i for i, x in enumerate(self.items) if x.kind == "label")]
        if item.root == "bra":
            target = self._label(item.operands[0], item.scopes)
            return [target, *(following if item.guard else [])]
        return following

    def _label(self, name: str, scopes: tuple[int, ...]) -> int:
        """The label of that name in the innermost scope around a branch."""
        for depth in range(len(scopes), -1, -1):
            found = self._labels.get((name, scopes[:depth]))
            if found is not None:
                return found
        raise TilewrightError("mutate/not_ptx", f"A branch leads to {name}, which is no label of its function.")

    @cached_property
    def _labels(self) -> dict[tuple[str, tuple[int, ...]], int]:
        return {(x.opcode, x.scopes): i for i, x in enumerate(self.items) if x.kind == "label"}


def statements_of(ptx: str, kernel: str) -> Statements:
    """The statements of a kernel, in the order of the text.

    Raises:
        TilewrightError: ``mutate/no_kernel``; ``ptx/not_ptx`` for text that is none.
    """
    module = parse_ptx(ptx)
    if kernel not in module.functions or not module.functions[kernel].is_entry:
        raise TilewrightError("mutate/no_kernel", f"The PTX holds no kernel {kernel}.", {"kernel": kernel})
    masked = _HIDDEN.sub(lambda m: _NOT_NEWLINE.sub(" ", m[0]), ptx)
    entries: list[Statement] = []
    functions: list[Statement] = []
    for number, match in enumerate(_BODY.finditer(masked)):
        if match["kind"] == "func":
            functions += _body(masked, match.end(), number)
        elif re.search(rf"(?<![\w$]){re.escape(kernel)}(?![\w$])", match["head"].partition("(")[0]):
            entries += _body(masked, match.end(), number)
    names = [kernel, *(name for name, f in module.functions.items() if not f.is_entry)]
    places = (i.place for i in module.functions[kernel].body if isinstance(i, Instruction) and i.place is not None)
    first = next(places, None)
    main_file = first.chain()[-1].file if first is not None else None
    lines = {
        i.ptx_line: user_line(i.place, main_file)
        for name in names
        for i in module.functions[name].body
        if isinstance(i, Instruction)
    }
    return Statements(ptx, (*entries, *functions), lines)


def _body(masked: str, at: int, number: int) -> list[Statement]:
    """The statements between the braces of a function; ``at`` is behind the opening one."""
    out: list[Statement] = []
    # No two scopes of a text share a number: those of one function lie above its own.
    scopes = [number << 20]
    fresh = scopes[0]
    while scopes:
        match = _SPACE.match(masked, at)
        assert match is not None
        at = match.end()
        if masked[at] == "}":
            scopes.pop()
            at += 1
        elif masked[at] == "{":
            fresh += 1
            scopes.append(fresh)
            at += 1
        else:
            statement = _statement(masked, at, tuple(scopes))
            out.append(statement)
            at = statement.end
    return out


def _statement(masked: str, at: int, scopes: tuple[int, ...]) -> Statement:
    label = _LABEL.match(masked, at)
    if label is not None:
        return Statement("label", at, label.end(), scopes, label[1])
    line = _LINE_DIRECTIVE.match(masked, at)
    if line is not None:
        return Statement("directive", at, line.end(), scopes)
    whole = _STATEMENT.match(masked, at)
    if whole is None:
        raise TilewrightError("mutate/not_ptx", "A statement without a semicolon.")
    parts = _INSTRUCTION.fullmatch(masked, at, whole.end())
    if parts is None:
        return Statement("directive", at, whole.end(), scopes)
    guard = "".join((parts[1] or "").split())
    return Statement("instruction", at, whole.end(), scopes, parts[2], guard, tuple(_pieces(parts[3])))


def _pieces(text: str) -> Iterator[str]:
    """Operands, split at the commas that stand outside brackets."""
    depth = start = 0
    for i, c in enumerate(text):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()
