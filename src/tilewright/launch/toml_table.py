"""A TOML table read strictly: each key is asked for with its type, and every message names the line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.launch.expressions import Expression, Number, Place, parse
from tilewright.launch.toml_lines import KeyPath, TomlLines


class Table:
    """One table of the file, with the place of each of its keys."""

    def __init__(self, path: KeyPath, data: Mapping[str, Any], file: str, lines: TomlLines) -> None:
        self.path, self.data, self.file, self.lines = path, data, file, lines

    def place(self, *keys: str | int) -> Place:
        return Place(self.file, self.lines.of((*self.path, *keys)))

    def get(self, key: str) -> Any:
        return self.data.get(key)

    def wrong_type(self, need: str, value: object, *keys: str | int) -> TilewrightError:
        name = dotted((*self.path, *keys))
        return self.place(*keys).error("wrong_type", f"{name} must be {need}, and is {kind_of(value)}.")

    def missing(self, key: str) -> TilewrightError:
        return self.place().error("missing_key", f"{dotted((*self.path, key))} is missing.")

    def only(self, *known: str) -> Table:
        """This table, once it is clear that it has no other keys. Asked first: a misspelt key is not a missing one."""
        for key in self.data:
            if key not in known:
                raise self.unknown(key, known)
        return self

    def unknown(self, key: str, known: Iterable[str]) -> TilewrightError:
        from difflib import get_close_matches

        close = get_close_matches(key, list(known), n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known here: {', '.join(sorted(known))}."
        return self.place(key).error("unknown_key", f"{dotted((*self.path, key))} is not a key of a sidecar.", hint)

    def optional_text(self, key: str) -> str | None:
        value = self.get(key)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise self.wrong_type("a text", value, key)
        return value

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self.missing(key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong_type("a list of texts", value, key)
        for index, item in enumerate(value):
            # Template arguments are often numbers, and TOML lets them be written so.
            if not isinstance(item, str | int):
                raise self.wrong_type("a text", item, key, index)
        return tuple(c_text(item) for item in value)

    def table(self, key: str, required: bool = False) -> Table:
        value = self.get(key)
        if value is None:
            if required:
                raise self.missing(key)
            value = {}
        if not isinstance(value, dict):
            raise self.wrong_type("a table", value, key)
        return Table((*self.path, key), value, self.file, self.lines)

    def expression(self, key: str, default: Expression | None = None) -> Expression:
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        return self.as_expression(value, key)

    def expressions(self, key: str) -> tuple[Expression, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong_type("a list of expressions", value, key)
        return tuple(self.as_expression(item, key, index) for index, item in enumerate(value))

    def as_expression(self, value: object, *keys: str | int) -> Expression:
        place = self.place(*keys)
        if isinstance(value, str):
            return parse(value, place)
        if isinstance(value, int | float):
            return Expression(c_text(value), Number(int(value) if isinstance(value, bool) else value), place)
        raise self.wrong_type("a number or an expression", value, *keys)


def c_text(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kind_of(value: object) -> str:
    kinds = {bool: "a boolean", int: "an integer", float: "a number", str: "a text", list: "a list", dict: "a table"}
    shown = repr(value) if isinstance(value, bool | int | float | str) else ""
    return f"{kinds.get(type(value), 'a date')} {shown[:40]}".rstrip()


def dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
