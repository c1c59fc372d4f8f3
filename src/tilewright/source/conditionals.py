"""Conditional compilation: which parts of a text the compiler sees, where that can be told without running it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(\w+)((?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)
_DEFINED = re.compile(r"(!?)\s*(?:defined\s*\(\s*(\w+)\s*\)|defined\s+(\w+))$")
# What every compilation of device code as C++ defines.
_ALWAYS = frozenset({"__CUDACC__", "__cplusplus", "__CUDA_ARCH__"})
State = Literal["seen", "skipped", "unknown"]


@dataclass
class _Frame:
    """One ``#if`` that is open: what its present branch is, and whether a branch is known to be the chosen one."""

    state: State
    chosen: bool
    doubtful: bool


@dataclass(frozen=True)
class Conditionals:
    """Parts of a text: from ``starts[i]`` on, the compiler treats it as ``states[i]``."""

    starts: tuple[int, ...] = (0,)
    states: tuple[State, ...] = ("seen",)

    def at(self, offset: int) -> State:
        """``seen`` by the compiler, ``skipped``, or ``unknown``: that depends on what is not known here."""
        return self.states[bisect_right(self.starts, offset) - 1]


@dataclass
class _Walk:
    starts: list[int] = field(default_factory=lambda: [0])
    states: list[State] = field(default_factory=lambda: ["seen"])
    frames: list[_Frame] = field(default_factory=list)

    def note(self, offset: int) -> None:
        inner = [f.state for f in self.frames]
        state: State = "skipped" if "skipped" in inner else "unknown" if "unknown" in inner else "seen"
        if state != self.states[-1]:
            self.starts.append(offset)
            self.states.append(state)


def conditionals(bare: bytes) -> Conditionals:
    """Read the ``#if`` lines of a text without comments."""
    found = [m for m in _DIRECTIVE.finditer(bare) if m[1] in _BRANCHES or m[1] == b"define"]
    if not any(m[1] in _BRANCHES for m in found):
        return Conditionals()
    walk, guard = _Walk(), _guard(found, bare)
    for m in found:
        word, rest = m[1].decode(), m[2].decode(errors="replace").strip()
        if word in ("if", "ifdef", "ifndef"):
            holds = True if m is guard else _holds(word, rest)
            state: State = "unknown" if holds is None else "seen" if holds else "skipped"
            walk.frames.append(_Frame(state, holds is True, holds is None))
        elif word == "endif" and walk.frames:
            walk.frames.pop()
        elif word in ("elif", "elifdef", "elifndef", "else") and walk.frames:
            _next_branch(walk.frames[-1], True if word == "else" else _holds(word.removeprefix("el"), rest))
        walk.note(m.start())
    return Conditionals(tuple(walk.starts), tuple(walk.states))


def likely(bare: bytes) -> Conditionals:
    """The same, where ``#if NAME`` is taken to ask for what this text itself defines: a guess, to be confirmed."""
    found = [m for m in _DIRECTIVE.finditer(bare) if m[1] in _BRANCHES or m[1] in (b"define", b"undef")]
    walk, guard, known = _Walk(), _guard([m for m in found if m[1] != b"undef"], bare), dict[str, str]()
    for m in found:
        word, rest = m[1].decode(), m[2].decode(errors="replace").strip()
        if word in ("define", "undef"):
            name, _, body = rest.partition(" ")
            if walk.states[-1] != "skipped":
                known.pop(name, None)
                known |= {name: body.strip()} if word == "define" else {}
            continue
        if word in ("if", "ifdef", "ifndef"):
            holds = True if m is guard else _guessed(word, rest, known)
            walk.frames.append(_Frame("seen" if holds else "skipped", holds, False))
        elif word == "endif" and walk.frames:
            walk.frames.pop()
        elif walk.frames:
            holds = True if word == "else" else _guessed(word.removeprefix("el"), rest, known)
            _next_branch(walk.frames[-1], holds)
        walk.note(m.start())
    return Conditionals(tuple(walk.starts), tuple(walk.states))


def _guessed(word: str, text: str, known: Mapping[str, str]) -> bool:
    """Whether a condition holds, if nothing but the text defines names."""
    holds = _holds(word, text)
    if holds is not None:
        return holds
    if word in ("ifdef", "ifndef"):
        return (word == "ifdef") == (text.split()[:1] != [] and text.split()[0] in known)
    found = _DEFINED.match(text)
    if found is not None:
        return (found[1] == "") == ((found[2] or found[3]) in known)
    name = text.strip("()! ")
    value = known.get(name, "0")
    return (value.strip("() ") not in ("0", "")) != text.lstrip("( ").startswith("!")


_BRANCHES = frozenset({b"if", b"ifdef", b"ifndef", b"elif", b"elifdef", b"elifndef", b"else", b"endif"})


def _next_branch(frame: _Frame, holds: bool | None) -> None:
    if frame.chosen or holds is False:
        frame.state = "skipped"
    elif frame.doubtful or holds is None:
        frame.state, frame.doubtful = "unknown", True
    else:
        frame.state, frame.chosen = "seen", True


def _holds(word: str, text: str) -> bool | None:
    """Whether a condition holds; None where that cannot be told."""
    if word in ("ifdef", "ifndef"):
        return (word == "ifdef") if text.split()[:1] and text.split()[0] in _ALWAYS else None
    plain = text.strip("() ") if text.count("(") < 2 and "defined" not in text else text
    if plain.isdigit():
        return int(plain) != 0
    found = _DEFINED.match(text)
    if found is not None and (found[2] or found[3]) in _ALWAYS:
        return found[1] == ""
    return None


def _guard(found: list[re.Match[bytes]], bare: bytes) -> re.Match[bytes] | None:
    """The ``#ifndef`` of an include guard: first in the file, defined on the next line, open to the end."""
    if len(found) < 3 or found[0][1] != b"ifndef" or found[1][1] != b"define" or found[-1][1] != b"endif":
        return None
    name = found[0][2].split()
    if not name or found[1][2].split() != name or bare[: found[0].start()].replace(b"#pragma once", b"").strip():
        return None
    depth = 0
    for m in found[:-1]:
        depth += (m[1] in (b"if", b"ifdef", b"ifndef")) - (m[1] == b"endif")
        if depth == 0 or (depth == 1 and m[1].startswith(b"el")):
            return None
    return found[0] if depth == 1 else None
