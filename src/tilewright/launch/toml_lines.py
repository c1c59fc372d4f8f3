"""Where each key of a TOML text stands. ``tomllib`` gives values without lines, and a message must name the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class TomlLines:
    """Line numbers (from 1) of the keys and array elements of one text, by path: ``("args", 2, "dtype")``."""

    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def of(self, path: KeyPath) -> int | None:
        """The line of ``path``, or of the nearest thing that holds it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def read_lines(text: str) -> TomlLines:
    """Find the lines of a text that ``tomllib`` has accepted: so nothing here needs to report an error."""
    return TomlLines(_Scanner(text).scan())


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self.counts: dict[KeyPath, int] = {}  # elements so far of each [[array of tables]]

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self.skip_blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                path = self.table_path(table) + self.key("=")
                self.at += 1
                self.value(path)
            self.skip_blank()
        return self.lines

    def note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, self.at) + 1)

    def table_path(self, names: KeyPath) -> KeyPath:
        """Put the index of the current element behind each array of tables: args → args, 2."""
        path: KeyPath = ()
        for name in names:
            path = (*path, name)
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
        return path

    def header(self) -> KeyPath:
        """``[a.b]`` or ``[[a.b]]``; gives its names, without indices."""
        start = self.at
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        names = self.key("]")
        self.at += 2 if is_array else 1
        end, self.at = self.at, start
        if is_array:
            path = (*self.table_path(names[:-1]), names[-1])
            self.note(path)
            self.counts[path] = self.counts.get(path, 0) + 1
        self.note(self.table_path(names))
        self.at = end
        return names

    def key(self, end: str) -> KeyPath:
        """A key, dotted perhaps, up to ``end``."""
        parts: list[str] = []
        while self.text[self.at] != end:
            char = self.text[self.at]
            if char in " \t.":
                self.at += 1
            elif char in "'\"":
                start = self.at
                self.string()
                parts.append(_unquoted(self.text[start : self.at]))
            else:
                start = self.at
                while self.text[self.at] not in " \t.=]":
                    self.at += 1
                parts.append(self.text[start : self.at])
        return tuple(parts)

    def value(self, path: KeyPath) -> None:
        self.skip_space()
        self.note(path)
        char = self.text[self.at]
        if char in "'\"":
            self.string()
        elif char == "[":
            self.array(path)
        elif char == "{":
            self.inline_table(path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}\n#":
                self.at += 1

    def array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        self.skip_blank()
        while self.text[self.at] != "]":
            self.value((*path, index))
            index += 1
            self.skip_blank(",")
        self.at += 1

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        self.skip_blank()
        while self.text[self.at] != "}":
            inner = path + self.key("=")
            self.at += 1
            self.value(inner)
            self.skip_blank(",")
        self.at += 1

    def string(self) -> None:
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(mark)
        while not self.text.startswith(mark, self.at):
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += len(mark)
        while len(mark) == 3 and self.text.startswith(quote, self.at):
            self.at += 1  # a multi-line string may end in up to two quotes of its own

    def skip_space(self) -> None:
        while self.text[self.at] in " \t":
            self.at += 1

    def skip_blank(self, also: str = "") -> None:
        """Skip white space, new lines, comments and ``also``."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif self.text[self.at] in " \t\r\n" + also:
                self.at += 1
            else:
                return


def _unquoted(text: str) -> str:
    import tomllib

    return next(iter(tomllib.loads(f"{text} = 0")))
