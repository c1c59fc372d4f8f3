"""What the text says before it is a tree: comments, macros, and spots that the grammar trips over."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.source.conditionals import conditionals, likely

_COMMENT_OR_STRING = re.compile(
    rb'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)
_PRAGMA = re.compile(rb"^[ \t]*#[ \t]*pragma\b(?:[^\n\\]|\\\r?\n|\\.)*", re.MULTILINE)
_ALIGN = re.compile(rb"\b(?:__align__|alignas)\s*\(((?:[^()]|\([^()]*\))*)\)")
_INLINE_PRAGMA = re.compile(rb'\b_Pragma\s*\(\s*"(?:\\.|[^"\\])*"\s*\)')
_FORCE_INLINE = re.compile(rb"\b(?:__forceinline__|__noinline__|__grid_constant__)\b")
_UNDEF = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)]*)\))?[ \t]*((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)

_WORD_OR_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|\b[A-Za-z_]\w*\b')


@dataclass(frozen=True)
class Macro:
    """A ``#define``; ``params`` is None for an object-like one.

    ``settled``: it is the name's only definition in the file, so what it expands to does not depend on the place.
    ``conditional``: whether the compiler sees the definition at all is not known.
    """

    name: str
    params: tuple[str, ...] | None
    body: str
    start: int
    settled: bool = True
    conditional: bool = False


@dataclass(frozen=True)
class Masked:
    """The source with the spots blanked that the grammar cannot read; offsets are unchanged.

    Attributes:
        alignments: byte offset → the text inside ``__align__(…)``.
        pragmas: byte offset of the ``#`` line start → its text.
    """

    text: bytes
    alignments: tuple[tuple[int, str], ...]
    pragmas: tuple[tuple[int, str], ...]


def _blank(match: re.Match[bytes]) -> bytes:
    return re.sub(rb"[^\n]", b" ", match[0])


def without_comments(text: bytes) -> bytes:
    """Comments blanked, strings kept, offsets and lines unchanged."""
    return _COMMENT_OR_STRING.sub(lambda m: _blank(m) if m[0].startswith(b"/") else m[0], text)


def without_pragmas(text: bytes) -> bytes:
    """``#pragma`` lines and ``_Pragma(…)`` blanked."""
    return _INLINE_PRAGMA.sub(_blank, _PRAGMA.sub(_blank, text))


def mask(text: bytes) -> Masked:
    """Blank pragmas and alignment attributes, which the CUDA grammar misreads in the middle of statements."""
    bare = _COMMENT_OR_STRING.sub(_blank, text)
    spots: list[tuple[int, int]] = []
    alignments, pragmas = [], []
    for m in _PRAGMA.finditer(bare):
        spots.append(m.span())
        pragmas.append((m.start(), text[m.start() : m.end()].decode(errors="replace").strip()))
    for m in _ALIGN.finditer(bare):
        spots.append(m.span())
        alignments.append((m.start(), m[1].decode(errors="replace").strip()))
    for pattern in (_FORCE_INLINE, _INLINE_PRAGMA):
        spots.extend(m.span() for m in pattern.finditer(bare if pattern is _FORCE_INLINE else text))
    out = bytearray(text)
    for start, end in spots:
        out[start:end] = re.sub(rb"[^\n]", b" ", text[start:end])
    return Masked(bytes(out), tuple(alignments), tuple(pragmas))


def macros(*texts: bytes) -> dict[str, Macro]:
    """Every ``#define`` of a file and its headers.

    Of several with one name the last is given, as not settled: the last of those that the compiler probably sees.
    """
    found: dict[str, Macro] = {}
    probable: dict[str, bool] = {}
    undefined: set[str] = set()
    for raw in texts:
        plain = without_comments(raw)
        seen, guess = conditionals(plain), likely(plain)
        bare = plain.decode("latin-1")  # one character a byte, as offsets are
        undefined |= {m[1] for m in _UNDEF.finditer(bare) if seen.at(m.start()) != "skipped"}
        for m in _DEFINE.finditer(bare):
            if seen.at(m.start()) == "skipped":
                continue
            one = _macro(m)
            before = found.get(one.name)
            same = before is None or (before.settled and (before.params, before.body) == (one.params, one.body))
            doubtful = seen.at(m.start()) == "unknown" and (before is None or before.conditional)
            is_likely = guess.at(m.start()) != "skipped"
            taken = one if is_likely or before is None or not probable[one.name] else before
            probable[one.name] = is_likely or probable.get(one.name, False)
            found[one.name] = replace(taken, settled=same, conditional=doubtful)
    return {n: replace(m, settled=m.settled and n not in undefined) for n, m in found.items()}


def in_effect(text: bytes, name: str, start: int, end: int) -> Macro | Literal["unknown"] | None:
    """What a macro that is defined several times means in one part of a file; None where nothing is defined there.

    The part may undefine it behind its uses; it may define it, once, where nothing was defined in front.
    """
    plain = without_comments(text)
    seen, bare = conditionals(plain), plain.decode("latin-1")
    found: list[tuple[int, Macro | None]] = []
    for m in (*_DEFINE.finditer(bare), *_UNDEF.finditer(bare)):
        state = seen.at(m.start())
        if m[1] == name and state == "unknown":
            return "unknown"
        if m[1] == name and state == "seen":
            found.append((m.start(), _macro(m) if m.re is _DEFINE else None))
    found.sort(key=lambda event: event[0])
    before = [macro for at, macro in found if at < start]
    inside = [macro for at, macro in found if start <= at < end]
    now = before[-1] if before else None
    if not inside or inside == [None]:  # undefined behind its uses, or nothing would compile
        return now
    if now is None and inside[0] is not None and inside[1:] in ([], [None]):
        return inside[0]
    return "unknown"


def _macro(m: re.Match[str]) -> Macro:
    params = tuple(p.strip() for p in m[3].split(",") if p.strip()) if m[2] is not None else None
    body = re.sub(r"\\\r?\n", " ", m[4]).strip().encode("latin-1").decode(errors="replace")
    return Macro(m[1], params, body, m.start())


def expand(macro: Macro, args: tuple[str, ...]) -> str | None:
    """The macro's body with its parameters replaced; None where it pastes or stringises, or the count is off."""
    if macro.params is None:
        return macro.body
    if len(args) != len(macro.params) or "#" in macro.body or any("..." in p for p in macro.params):
        return None
    values = dict(zip(macro.params, args, strict=True))
    return _WORD_OR_STRING.sub(lambda m: values.get(m[0], m[0]), macro.body)


def line_of(text: bytes, offset: int) -> int:
    """1-based line of a byte offset."""
    return text.count(b"\n", 0, offset) + 1


def identifiers(text: bytes) -> frozenset[str]:
    """Every identifier in the code, to keep new names apart from."""
    bare = _COMMENT_OR_STRING.sub(_blank, text)
    return frozenset(x.decode() for x in re.findall(rb"[A-Za-z_]\w*", bare))
