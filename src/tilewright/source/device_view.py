"""The device view: what NVRTC gets to see of a real ``.cu`` file.

NVRTC compiles device code only. A real file also carries host functions, host variables, and headers that NVRTC
cannot read. The view blanks the first two with spaces, so that every line and byte offset stays where it was; gives
empty stand-ins for the headers; and brings the user's own headers along, viewed likewise, as in-memory headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.source.device_choice import ATTRIBUTE_WORDS, Chooser, Source, closed_over, macro_words
from tilewright.source.device_headers import (
    PRELUDE,
    is_cuda_header,
    library_of,
    prelude,
    standard_headers,
    standard_stub,
)
from tilewright.source.device_split import Item, Token, split, tokens, words

__all__ = ["PRELUDE", "DeviceView", "device_view"]

_INCLUDE = re.compile(r'#\s*include\s*(?:<([^>\n]+)>|"([^"\n]+)")')
_WORD = re.compile(r"[A-Za-z_]\w*")
# Directives inside a blanked declaration that must stay, for what follows depends on them.
_LASTING = words("if ifdef ifndef elif elifdef elifndef else endif define undef")


@dataclass(frozen=True)
class DeviceView:
    """A file as NVRTC can take it.

    Attributes:
        text: the source with host code blanked: the same lines, and the same byte offsets.
        headers: in-memory headers, (name as it is included, text): the prelude (the compiler includes it before
            the source), stand-ins, and the user's own headers.
        blanked: (first line, last line, why) of each declaration that was blanked in ``text``.
        stubbed: names of the headers that are only stand-ins.
    """

    text: str
    headers: tuple[tuple[str, str], ...]
    blanked: tuple[tuple[int, int, str], ...]
    stubbed: tuple[str, ...]


@dataclass
class _File:
    """One file on the way: its text as Latin-1 (one character a byte) and its tokens."""

    text: str
    path: Path | None
    found: list[Token]
    whole: bool = True  # False for a header that is included in the middle of a declaration


def device_view(
    text: str, file: Path | None = None, include: Sequence[Path] = (), keep: Sequence[str] = ()
) -> DeviceView:
    """What NVRTC gets to see of a source.

    Args:
        text: the source.
        file: where it lies: quoted headers are looked for in its folder.
        include: further folders with headers.
        keep: text whose identifiers device code needs although no device function mentions them: template
            arguments, values of macros.
    """
    return _Reader(include).read(text, file, frozenset(w for k in keep for w in _WORD.findall(k)))


class _Reader:
    def __init__(self, include: Sequence[Path]) -> None:
        self.include = tuple(include)
        self.files: list[_File] = []
        self.by_path: dict[Path, tuple[str, int]] = {}
        self.headers: dict[str, int | str] = {}  # name → file number, or the stand-in's text
        self.stubbed: list[str] = []
        self.libraries: set[str] = set()

    def read(self, text: str, file: Path | None, keep: frozenset[str]) -> DeviceView:
        self._take(_File(_as_bytes(text), file, []))
        macros: dict[str, frozenset[str]] = {}
        for one in self.files:
            for name, body in macro_words(one.found).items():
                macros[name] = macros.get(name, frozenset()) | body
        parts = ATTRIBUTE_WORDS | closed_over(ATTRIBUTE_WORDS, macros)
        loose = frozenset(name for name, body in macros.items() if name not in parts and not body & parts)
        sources = {n: Source(f.found, split(f.found, loose)) for n, f in enumerate(self.files) if f.whole}
        self._mark_fragments(sources)
        choice = Chooser({n: s for n, s in sources.items() if self.files[n].whole}, macros, keep).choose()
        for name in sorted(self.libraries):
            if library_of(name) not in choice.mentioned:
                self._stub(name)
        views = {n: _blanked(f, choice.dropped.get(n, [])) for n, f in enumerate(self.files)}
        headers = [(PRELUDE, prelude(with_std="std" in choice.mentioned))]
        for name, content in self.headers.items():
            headers.append((name, content if isinstance(content, str) else views[content][0]))
        return DeviceView(views[0][0], tuple(headers), views[0][1], tuple(self.stubbed))

    def _take(self, file: _File) -> int:
        """Read a file's tokens and, through its ``#include`` lines, every header that it needs."""
        number = len(self.files)
        self.files.append(file)
        file.found = tokens(file.text)
        for name, quoted in _includes(file.found):
            if name in self.headers:
                continue
            path = self._find(name, file.path if quoted else None)
            if path is not None:
                self._take_header(name, path)
            elif name in standard_headers():
                self._stub(name)
            elif name == "cuda.h":
                self._stub("stdlib.h")
                self._stub("stdint.h")
            elif library_of(name):
                self.libraries.add(name)
            elif not is_cuda_header(name):
                self._stub(name)
        return number

    def _take_header(self, name: str, path: Path) -> None:
        known = self.by_path.get(path)
        if known is not None:
            # `#pragma once` goes by name: a second name leads to the first.
            self.headers[name] = known[1] if known[0] == name else f'#include "{known[0]}"\n'
            return
        text = path.read_bytes().decode("latin-1")
        self.headers[name] = number = len(self.files)
        self.by_path[path] = (name, number)
        self._take(_File(text, path, []))

    def _stub(self, name: str) -> None:
        if name not in self.headers:
            self.headers[name] = standard_stub(name)
            self.stubbed.append(name)

    def _find(self, name: str, file: Path | None) -> Path | None:
        folders = ((file.parent,) if file is not None else ()) + self.include
        for folder in folders:
            path = folder / name
            if path.is_file():
                return path.resolve()
        return None

    def _mark_fragments(self, sources: dict[int, Source]) -> None:
        """A header that is included inside a function or class is no list of declarations: it stays as it is."""
        for source in sources.values():
            for item in _declarations(source.items):
                for token in source.found[item.first : item.last + 1]:
                    match = _INCLUDE.match(token.text) if token.directive == "include" else None
                    content = self.headers.get(match[1] or match[2]) if match else None
                    if isinstance(content, int):
                        self.files[content].whole = False


def _includes(found: Sequence[Token]) -> Iterator[tuple[str, bool]]:
    for token in found:
        if token.directive == "include" and (match := _INCLUDE.match(token.text)):
            yield match[1] or match[2], match[1] is None


def _declarations(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        if item.kind == "scope":
            yield from _declarations(item.children)
        elif item.kind != "directive":
            yield item


def _blanked(file: _File, dropped: Sequence[tuple[Item, str]]) -> tuple[str, tuple[tuple[int, int, str], ...]]:
    """The text with those declarations blanked, and their lines."""
    out: list[str] = []
    lines: list[tuple[int, int, str]] = []
    position = 0
    for item, why in sorted(dropped, key=lambda pair: pair[0].first):
        start, end = file.found[item.first].start, file.found[item.last].end
        if start < position:  # a member of something that goes as a whole
            continue
        out.append(file.text[position:start])
        position = start
        for token in file.found[item.first : item.last + 1]:
            if token.directive in _LASTING:
                out.append(_spaces(file.text[position : token.start]) + token.text)
                position = token.end
        out.append(_spaces(file.text[position:end]))
        position = end
        lines.append((file.text.count("\n", 0, start) + 1, file.text.count("\n", 0, end) + 1, why))
    out.append(file.text[position:])
    return _as_text("".join(out)), tuple(lines)


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _as_bytes(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _as_text(latin: str) -> str:
    return latin.encode("latin-1").decode("utf-8", "replace")
