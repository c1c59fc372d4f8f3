"""Uses of macros in a kernel's text, and what the preprocessor makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.normalise.inline_text import one_line, tokens, words
from tilewright.source.lexical import Macro, expand
from tilewright.source.reader import OpenKernel

_BEFORE = frozenset({"{", "}", ";", ")", "else", "do", ":"})


@dataclass(frozen=True)
class Use:
    """One use of a macro.

    Attributes:
        start, end: bytes of the file, its arguments included.
        text: what stands there after one step of the preprocessor.
        statement: it begins a statement: alone, with ``;`` behind it or without.
        semicolon: one follows. end_semicolon: the byte behind that, else ``end``.
        before, behind: the tokens around it.
    """

    macro: Macro
    start: int
    end: int
    text: str
    statement: bool
    semicolon: bool
    end_semicolon: int
    before: str
    behind: str


def uses(kernel: OpenKernel) -> Iterator[Use]:
    """The macros that a kernel's body uses and that have one meaning there, outside preprocessor lines."""
    span, whole = kernel.function.body, kernel.source.text
    text = whole[span.start : span.end].decode("latin-1")  # one character a byte
    found = list(tokens(text))
    skip = -1
    for i, (kind, word, at, _) in enumerate(found):
        macro = kernel.source.macros.get(word) if kind == "word" else None
        if macro is None or at < skip or _in_directive(text, at) or not _meant(kernel, macro, span.start + at):
            continue
        before = found[i - 1][1] if i else "{"
        last = _closing(found, i + 1) if macro.params is not None else i
        if last is None:
            continue
        end = found[last][2] + len(found[last][1])
        args = _arguments(text, found, i + 1, last) if macro.params is not None else ()
        expansion = expand(macro, args)
        if expansion is None or _names_itself(macro, expansion):
            continue
        behind = found[last + 1][1] if last + 1 < len(found) else "}"
        semicolon = behind == ";"
        after = found[last + 1][2] + 1 if semicolon else end
        skip = end
        yield Use(
            macro,
            span.start + at,
            span.start + end,
            expansion,
            before in _BEFORE,
            semicolon,
            span.start + after,
            before,
            behind,
        )


def _meant(kernel: OpenKernel, macro: Macro, at: int) -> bool:
    """Whether the name stands for that one definition at that place."""
    if not macro.settled or macro.conditional or macro.name in kernel.given:
        return False
    line = kernel.source.text[macro.start : macro.start + 200].split(b"\n")[0]
    defined_here = line.lstrip().startswith(b"#") and macro.name.encode() in line
    return not (defined_here and macro.start > at)


def _in_directive(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith("#")


def _closing(found: list[tuple[str, str, int, bool]], at: int) -> int | None:
    """The token that closes the parenthesis at token ``at``; None where none opens there."""
    if at >= len(found) or found[at][1] != "(":
        return None
    depth = 0
    for i in range(at, len(found)):
        depth += (found[i][1] == "(") - (found[i][1] == ")")
        if depth == 0:
            return i
    return None


def _arguments(text: str, found: list[tuple[str, str, int, bool]], first: int, last: int) -> tuple[str, ...]:
    """The arguments as the preprocessor cuts them: only parentheses keep a comma."""
    parts, depth, start = [], 0, found[first][2] + 1
    for i in range(first + 1, last):
        t = found[i][1]
        depth += (t == "(") - (t == ")")
        if t == "," and depth == 0:
            parts.append(_plain(text[start : found[i][2]]))
            start = found[i][2] + 1
    parts.append(_plain(text[start : found[last][2]]))
    return tuple(parts) if len(parts) > 1 or parts[0] else ()


def _plain(text: str) -> str:
    return one_line(text.encode("latin-1").decode(errors="replace"))


def _names_itself(macro: Macro, expansion: str) -> bool:
    """Whether the compiler would expand the result once more, which it does not do in the original."""
    found = list(tokens(expansion))
    for i, (kind, word, _, _) in enumerate(found):
        if kind == "word" and word == macro.name:
            follows = found[i + 1][1] if i + 1 < len(found) else "("
            if macro.params is None or follows == "(":
                return True
    return False


def written(text: str) -> list[str]:
    """The lines of a macro's expansion, which had none: one statement a line, blocks indented."""
    lines: list[str] = []
    line, depth, level, before, at = "", 0, 0, ";", 0
    blocks: list[bool] = []
    for _, t, start, _ in tokens(text):
        gap = " " if line and start > at else ""
        at = start + len(t)
        depth += (t in "([") - (t in ")]") if t in ("(", "[", ")", "]") else 0
        opens = t == "{" and before in (")", "do", "else", ";", "{", "}")
        if t == "{":
            blocks.append(opens)
        if t == "}" and blocks and blocks.pop():
            lines += [_line(level, line)] if line.strip() else []
            level, line = level - 1, "}"
        else:
            if line == "}" and t not in ("else", "while", ";"):
                lines.append(_line(level, line))
                line, gap = "", ""
            line += gap + t
            if opens or (t == ";" and depth == 0 and not (blocks and not blocks[-1])):
                lines.append(_line(level, line))
                level, line = level + opens, ""
        before = t
    return [*lines, _line(level, line)] if line.strip() else lines


def _line(level: int, text: str) -> str:
    return "    " * level + text.strip()


def body_words(macro: Macro) -> frozenset[str]:
    """Names that a macro's text uses besides its parameters."""
    return words(macro.body) - set(macro.params or ())
