"""Text of functions that are written out: names replaced token by token, lines moved to another indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tilewright.source.device_split import words as words_of

_TOKEN = re.compile(
    r"""(?xs)
    (?P<skip> //[^\n]* | /\*.*?\*/ | \s+ )
  | (?P<string> R"\(.*?\)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<number> \.?\d (?: [eEpP][+-] | '(?=\w) | [\w.] )* )
  | (?P<other> ->\*? | :: | . )
    """
)
KEYWORDS = words_of(
    """alignas alignof asm auto bool break case catch char class const constexpr const_cast continue decltype default do
    double dynamic_cast else enum explicit extern false float for if inline int long namespace new noexcept nullptr
    operator register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this true typedef typename union unsigned using void volatile while pragma unroll"""
)


def tokens(text: str) -> Iterator[tuple[str, str, int, bool]]:
    """(kind, text, offset, whether it names a member or something in a scope) of each token but comments and spaces."""
    before = ""
    for m in _TOKEN.finditer(text):
        kind = m.lastgroup or "other"
        if kind == "skip":
            continue
        yield kind, m[0], m.start(), before in (".", "->", "::")
        before = m[0]


def words(text: str) -> frozenset[str]:
    """The names that a text uses by themselves: no keywords, members or names with a scope in front."""
    return frozenset(t for kind, t, _, inner in tokens(text) if kind == "word" and not inner and t not in KEYWORDS)


def count(text: str, name: str) -> int:
    """How often a text uses a name by itself."""
    return sum(kind == "word" and t == name and not inner for kind, t, _, inner in tokens(text))


def replaced(text: str, values: Mapping[str, str], types: Mapping[str, str] | None = None) -> str:
    """The text with names replaced, wherever they stand by themselves; values in parentheses where they need them."""
    out: list[str] = []
    at, types = 0, types or {}
    found = list(tokens(text))
    for i, (kind, t, start, inner) in enumerate(found):
        if kind != "word" or inner or not (t in values or t in types):
            continue
        before = found[i - 1][1] if i else "("
        behind = found[i + 1][1] if i + 1 < len(found) else ")"
        alone = before in _OPENERS and behind in _CLOSERS
        new = types[t] if t in types else values[t] if alone else operand(values[t])
        out += [text[at:start], new]
        at = start + len(t)
    return "".join([*out, text[at:]])


_OPENERS = frozenset({"(", "[", ",", "=", "return"})
_CLOSERS = frozenset({")", "]", ",", ";"})


def one_line(text: str) -> str:
    """A piece of code without comments and line breaks."""
    plain = "".join(" " if m[0].startswith(("//", "/*")) else m[0] for m in _TOKEN.finditer(text))
    return " ".join(plain.split())


def operand(text: str) -> str:
    """A piece of code as one operand of whatever stands around it."""
    return text if is_tight(text) else f"({text})"


def is_tight(text: str) -> bool:
    """Whether nothing around a piece of code can get between its parts: a name, a number, a call, an element."""
    depth, flat = 0, ""
    for _, t, _, _ in tokens(text):
        depth -= t in (")", "]")
        flat += t if depth == 0 else ""
        depth += t in ("(", "[")
    return _TIGHT.fullmatch(flat) is not None


_TIGHT = re.compile(r"(?:::)?(?:[\w.]+|\(\)(?!\())(?:(?:\.|->|::)\w+|\(\)|\[\])*")


def split_arguments(text: str) -> list[str] | None:
    """``int, 4, (a < b)`` → its parts; None where brackets do not match."""
    parts, depth, start = [], 0, 0
    for _, t, at, _ in tokens(text):
        if t in ("(", "[", "{", "<"):
            depth += 1
        elif t in (")", "]", "}", ">"):
            depth -= 1
            if depth < 0:
                return None
        elif t == "," and depth == 0:
            parts.append(one_line(text[start:at]))
            start = at + 1
    if depth:
        return None
    rest = one_line(text[start:])
    return [*parts, rest] if rest or parts else []


def moved(body: str, indent: str) -> list[str]:
    """The lines of a body at another indentation; what lies deeper stays deeper, blank lines at its ends go."""
    lines = [line.rstrip() for line in body.replace("\r\n", "\n").split("\n")]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    # Directives and comments may stand further left; the first line may have stood behind the brace.
    code = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "//"))]
    common = _common([line[: len(line) - len(line.lstrip())] for line in code])
    out = []
    for line in lines:
        rest = line[len(common) :] if line.startswith(common) else line.lstrip()
        out.append(indent + rest if rest.strip() else "")
    return out


def _common(indents: list[str]) -> str:
    """What all of them begin with."""
    low, high = min(indents, default=""), max(indents, default="")
    end = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:end]
