"""Small random edits of the examples: what a tired programmer leaves behind.

The edited text is a kernel in its own right, right or wrong: what it computes is what a rewrite has to keep.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
# Few blocks, few tiles; then other ones. Each example takes what its comment says that it takes.
SIZES = {
    "hgemm_mma": ("default = { M = 128, N = 128, K = 96 }", "ragged = { M = 139, N = 136, K = 136 }"),
    "hgemm_wmma": ("default = { M = 64, N = 64, K = 96 }", "ragged = { M = 71, N = 67, K = 107 }"),
    "igemm_wmma": ("default = { M = 64, N = 64, K = 96 }", "ragged = { M = 80, N = 80, K = 107 }"),
    "sgemm_float4": ("default = { M = 128, N = 128, K = 24 }", "longer = { M = 128, N = 256, K = 40 }"),
}
FRESH = {
    "hgemm_mma": ("default = { M = 130, N = 128, K = 160 }", "ragged = { M = 128, N = 144, K = 40 }"),
    "hgemm_wmma": ("default = { M = 64, N = 128, K = 64 }", "ragged = { M = 77, N = 69, K = 165 }"),
    "igemm_wmma": ("default = { M = 64, N = 128, K = 64 }", "ragged = { M = 96, N = 80, K = 171 }"),
    "sgemm_float4": ("default = { M = 128, N = 128, K = 56 }", "longer = { M = 256, N = 128, K = 16 }"),
}
Edit = tuple[int, int, str]  # from, to, what stands there instead


@dataclass(frozen=True)
class Mutant:
    """An edited example.

    Attributes:
        what: the edit in words: its kind, its line, what stood there and what stands there now.
        sidecar, fresh: TOML, at the sizes of ``pipeline``'s own verification and at other ones.
    """

    example: str
    what: str
    text: str
    sidecar: str
    fresh: str


def mutant(seed: int) -> Mutant:
    """One edit, or two, of one example."""
    rng = random.Random(seed)
    name = sorted(SIZES)[seed % len(SIZES)]
    text = (EXAMPLES / f"{name}.cu").read_text("utf-8")
    said: list[str] = []
    for _ in range(2 if rng.random() < 0.2 else 1):
        begin, end = _kernel(text)
        while True:
            kind = rng.choice(sorted(KINDS))
            edits = [e for e in KINDS[kind](text[begin:end]) if e[2] != text[begin + e[0] : begin + e[1]]]
            if edits:
                break
        a, b, new = rng.choice(edits)
        a, b = a + begin, b + begin
        line = text[:a].count("\n") + 1
        said.append(f"{kind} at line {line}: {_short(text[a:b])} -> {_short(new)}")
        text = text[:a] + new + text[b:]
    toml = (EXAMPLES / f"{name}.toml").read_text("utf-8").partition("[reference]")[0]
    return Mutant(name, "; ".join(said), text, _sized(toml, SIZES[name]), _sized(toml, FRESH[name]))


def _short(text: str) -> str:
    return "`" + " ".join(text.split())[:60] + "`"


def _sized(toml: str, sizes: tuple[str, ...]) -> str:
    return re.sub(r"\[sizes\].*?(?=\n\[\[)", "[sizes]\n" + "\n".join(sizes) + "\n", toml, flags=re.DOTALL)


def _kernel(text: str) -> tuple[int, int]:
    """Where the kernel's parameters begin, and the end of its body."""
    begin = text.index("(", text.index("(", text.index("__global__")) + 1)
    end = text.index("\n}", begin) + 2
    return begin, end


def _replaced(pattern: str, *news: str) -> Callable[[str], Iterator[Edit]]:
    """Every match, replaced by each of ``news`` (with its groups)."""

    def edits(text: str) -> Iterator[Edit]:
        for m in re.finditer(pattern, _without_comments(text), re.MULTILINE):
            for new in news:
                yield m.start(), m.end(), m.expand(new)

    return edits


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", lambda m: " " * len(m.group()), text)


def _numbers(text: str) -> Iterator[Edit]:
    for m in re.finditer(r"(?<![\w.])\d+(?![\w.])", _without_comments(text)):
        value = int(m.group())
        for new in {value + 1, max(value - 1, 0), value * 2, value // 2}:
            yield m.start(), m.end(), str(new)


def _statements(text: str) -> list[tuple[int, int]]:
    """Statements of one line."""
    found = re.finditer(r"^[ \t]+(?!return|for|if|#)[^\n{}]*;[ \t]*$", _without_comments(text), re.MULTILINE)
    return [(m.start(), m.end()) for m in found if text[m.start() : m.end()].count("(") == m.group().count(")")]


def _moved(text: str) -> Iterator[Edit]:
    """A statement and the next one change places."""
    for (a, b), (c, d) in zip(_statements(text), _statements(text)[1:], strict=False):
        if not text[b:c].strip():
            yield a, d, text[c:d] + text[b:c] + text[a:b]


def _far_moved(text: str) -> Iterator[Edit]:
    """A statement goes behind one of the next six."""
    lines = _statements(text)
    for i, (a, b) in enumerate(lines):
        for _, d in lines[i + 2 : i + 7]:
            yield a, d, text[b:d].lstrip("\n") + "\n" + text[a:b]


def _dropped(text: str) -> Iterator[Edit]:
    for a, b in _statements(text):
        yield a, b, ""


def _doubled(text: str) -> Iterator[Edit]:
    for a, b in _statements(text):
        if re.search(r"\+=|-=|=", text[a:b]) and not re.match(r"\s*(const|int|float|__shared__|alignas)", text[a:b]):
            yield a, b, text[a:b] + "\n" + text[a:b]


def _names(text: str) -> Iterator[Edit]:
    """One integer variable in place of another one."""
    names = sorted(set(re.findall(r"\bint (\w+) =", text)) | {"M", "N", "K"})
    for m in re.finditer(r"\b(" + "|".join(names) + r")\b(?! =)", _without_comments(text)):
        if text[: m.start()].rstrip().endswith("int"):
            continue
        for new in names:
            yield m.start(), m.end(), new


def _early_exit(text: str) -> Iterator[Edit]:
    for a, _ in _statements(text):
        yield a, a, "if (threadIdx.x >= 96) return;\n"


KINDS: dict[str, Callable[[str], Iterator[Edit]]] = {
    "swap indices": _replaced(r"\[([^\[\]]+)\]\[([^\[\]]+)\]", r"[\2][\1]"),
    "swap sides": _replaced(r"\b(\w+) ([-/%]) (\w+)", r"\3 \2 \1"),
    "drop half a guard": _replaced(r"([\w ()]+ < \w+) && ([\w ()]+ < \w+)", r"\1", r"\2"),
    "turn a guard": _replaced(r"&&", "||"),
    "change a number": _numbers,
    "exchange statements": _moved,
    "move a statement": _far_moved,
    "drop a statement": _dropped,
    "double a statement": _doubled,
    "drop a barrier": _replaced(r"^ *__syncthreads\(\);$", ""),
    "move into a condition": _replaced(r"^( *)(__syncthreads\(\);)$", r"\1if (threadIdx.x < 128) \2"),
    "add a barrier": _replaced(r"^( *)(for \(int (?:k|i|kk|idx|k0|d) = )", r"\1__syncthreads();\n\1\2"),
    "change a type": _replaced(r"\bint (?=\w+ =)", "unsigned ", "short ", "size_t ", "long long "),
    "compare otherwise": _replaced(r"(?<=\w) < (?=\w)", " <= ", " > "),
    "drop restrict": _replaced(r"\s*__restrict__", ""),
    "drop const": _replaced(r"\bconst (?=int)", ""),
    "other operator": _replaced(r"(?<=\w) \+ (?=\w)", " - ", " ^ ", " * "),
    "other step": _replaced(r"\+= (\w+)", r"+= \1 * 2", r"+= \1 + 1"),
    "other name": _names,
    "leave early": _early_exit,
    "store in the loop": _replaced(
        r"^( *)(__syncthreads\(\);)$", r"\1if (threadIdx.x == 0 && M < 0) *(int *)0 = K;\n\1\2"
    ),
    "read in the loop": _replaced(r"^( *)(__syncthreads\(\);)$", r"\1if (K == M) K -= 1;\n\1\2"),
}
