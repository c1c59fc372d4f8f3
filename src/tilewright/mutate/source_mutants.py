"""Broken twins of the sources that ``rewrite`` writes: what a slip of that room, or of a later hand, would look like.

The patterns are those of ``rewrite.cp_async`` and ``rewrite.ldg``: names may differ, lines and comments may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.errors import TilewrightError

_WAIT = re.compile(r"^[ \t]*__pipeline_wait_prior\((?P<stages>\w+) - 2\);[^\n]*\n", re.MULTILINE)
_BARRIER = r"^[ \t]*__syncthreads\(\);"
_RING_BARRIER = re.compile(rf"{_BARRIER}  // for every thread;[^\n]*\n", re.MULTILINE)
_COPY = re.compile(
    r"^(?P<indent>[ \t]*)const [^\n=]*? (?P<next>\w+) = (?P<var>\w+) \+ (?P<distance>[^;\n]+);\n"
    r"(?P<line>[ \t]*if \((?P=next) < (?P<bound>[^\n]+)\) (?P<call>\w+\((?P<arguments>[^\n]*)\);)\n)",
    re.MULTILINE,
)
_COMMIT = re.compile(r"^[ \t]*__pipeline_commit\(\);\n", re.MULTILINE)
_READ_STAGE = re.compile(r"^[ \t]*int (?P<name>read_stage\w*) = (?P<first>0);\n", re.MULTILINE)
_WRITE_STAGE = re.compile(r"^[ \t]*int (?P<name>write_stage\w*) = (?P<first>\w+ - 1);\n", re.MULTILINE)
_FETCH = re.compile(
    r"^(?P<indent>[ \t]*)const [^\n=]*? (?P<next>\w+) = (?P<var>\w+) \+ (?P<step>[^;\n]+);\n"
    r"[ \t]*const bool (?P<more>\w+) = (?P=next) < (?P<bound>[^\n;]+);\n"
    r"(?P<line>[ \t]*if \((?P=more)\) (?P<call>\w+\((?P<arguments>[^\n]*)\);)\n)",
    re.MULTILINE,
)
_STORE = re.compile(
    r"^[ \t]*if \(\w*has_next\w*\) (?P<call>\w*store_tile\w*\((?P<arguments>[^\n]*)\);)\n", re.MULTILINE
)
_FIRST_STORE = re.compile(r"^[ \t]*\w*store_tile\w*\([^\n]*\);\n(?=[ \t]*\}\n)", re.MULTILINE)
_TOGGLE = re.compile(r"^[ \t]*(?P<stage>\w+) \^= 1;\n", re.MULTILINE)
# The barrier of the two-buffer loop: behind the stores, or behind loads that were issued early.
_TWO_BUFFERS = re.compile(
    rf"{_BARRIER}  // (?:the next tile is in shared memory, and nobody reads this one|"
    r"this tile is in shared memory, nobody reads the other stage) any more\n",
    re.MULTILINE,
)
_PROLOGUE_BARRIER = re.compile(rf"{_BARRIER}\n(?=\n[ \t]*int \w+ = 0;\n)", re.MULTILINE)
_ARRIVED = re.compile(rf"{_BARRIER}  // this tile is in shared memory\n", re.MULTILINE)
_FREE = re.compile(rf"{_BARRIER}  // nobody reads it any more\n", re.MULTILINE)


@dataclass(frozen=True)
class SourceMutant:
    """One broken twin of a generated source.

    Attributes:
        name: what was broken, ``wait_removed``; unique among the mutants of a source.
        description: one sentence.
        text: the whole file.
    """

    name: str
    description: str
    text: str


def source_mutants(source: str) -> tuple[SourceMutant, ...]:
    """Every broken twin of a source that a rewriter of this version wrote.

    Raises:
        TilewrightError: ``mutate/not_generated`` for a source that none of them wrote, or that was edited since:
            where one pattern is missing there are no mutants at all, so that none is left out in silence.
    """
    if _WAIT.search(source):
        found = list(_ring(source))
    elif _TWO_BUFFERS.search(source):
        found = list(_two_buffers(source))
    elif _FREE.search(source):
        found = list(_one_buffer(source))
    else:
        raise _unknown("a loop of cp_async, ldg or ldg_single")
    for mutant in found:
        if mutant.text == source:
            raise _unknown(f"the place where {mutant.name} applies")
    return tuple(found)


def _unknown(what: str) -> TilewrightError:
    message = f"The source is not as the rewriter wrote it: {what} was not found."
    return TilewrightError("mutate/not_generated", message, hint="Mutants are made of unedited rewrites.")


def _find(pattern: re.Pattern[str], text: str, what: str, start: int = 0) -> re.Match[str]:
    match = pattern.search(text, start)
    if match is None:
        raise _unknown(what)
    return match


def _replaced(text: str, *changes: tuple[int, int, str]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _without(text: str, match: re.Match[str]) -> str:
    return _replaced(text, (match.start(), match.end(), ""))


def _swapped(text: str, first: re.Match[str], second: re.Match[str]) -> str:
    return _replaced(text, (first.start(), first.end(), second[0]), (second.start(), second.end(), first[0]))


def _moved(text: str, match: re.Match[str], at: int) -> str:
    return _replaced(text, (match.start(), match.end(), ""), (at, at, match[0]))


# -- the ring of cp_async ----------------------------------------------------------------------------------------------
def _ring(text: str) -> Iterator[SourceMutant]:
    wait = _find(_WAIT, text, "the wait")
    barrier = _find(_RING_BARRIER, text, "the barrier", wait.end())
    copy = _find(_COPY, text, "the copy of a later tile", barrier.end())
    commit = _find(_COMMIT, text, "the commit", copy.end())
    first_commit = _find(_COMMIT, text, "the prologue's commit")
    read, write = _find(_READ_STAGE, text, "the read stage"), _find(_WRITE_STAGE, text, "the write stage")
    stages, name = wait["stages"], read["name"]
    short = wait[0].replace(f"{stages} - 2", f"{stages} - 1")
    yield SourceMutant("wait_removed", "The wait for the tile's copies is removed.", _without(text, wait))
    yield SourceMutant(
        "wait_one_group_short", "The wait leaves one group more in flight.",
        _replaced(text, (wait.start(), wait.end(), short)),
    )  # fmt: skip
    yield SourceMutant(
        "commit_and_wait_swapped", "The wait stands where the commit stood, behind the barrier.",
        _swapped(text, wait, commit),
    )  # fmt: skip
    yield SourceMutant(
        "commit_before_copy",
        "A tile's copies are committed with those of the next.",
        _moved(text, commit, copy.start()),
    )
    yield SourceMutant("barrier_removed", "The barrier behind the wait is removed.", _without(text, barrier))
    yield SourceMutant("barrier_before_wait", "The barrier stands before the wait.", _swapped(text, wait, barrier))
    yield SourceMutant(
        "wrong_next_buffer", "Tiles are copied to other stages than they are read from.",
        _replaced(text, (write.start("first"), write.end("first"), "0")),
    )  # fmt: skip
    step = _step(copy["distance"], stages)
    last = f"!({copy['var']} + {step} < {copy['bound']})"
    wrong = f"{copy['indent']}if ({last}) {name} = {name} + 1 == {stages} ? 0 : {name} + 1;\n"
    yield SourceMutant(
        "wrong_last_buffer", "The last tile is read from the next stage.",
        _replaced(text, (commit.end(), commit.end(), wrong)),
    )  # fmt: skip
    yield SourceMutant(
        "prologue_commit_dropped", "The prologue's copies are not committed.", _without(text, first_commit)
    )
    yield from _trips(text, copy, step, wait.start())


def _step(distance: str, stages: str) -> str:
    """One tile's distance, of ``STAGES - 1`` tiles'."""
    ahead = f"({stages} - 1)"
    if distance == ahead:
        return "1"
    if not distance.startswith(f"{ahead} * "):
        raise _unknown("the step of the loop")
    return distance.removeprefix(f"{ahead} * ")


# -- the registers of ldg ----------------------------------------------------------------------------------------------
def _two_buffers(text: str) -> Iterator[SourceMutant]:
    fetch = _find(_FETCH, text, "the fetch of the next tile")
    store = _find(_STORE, text, "the store of the next tile", fetch.end())
    toggle = _find(_TOGGLE, text, "the toggle of the stage", store.end())
    barrier = _find(_TWO_BUFFERS, text, "the barrier")
    stage = toggle["stage"]
    yield SourceMutant("barrier_removed", "The barrier of the loop is removed.", _without(text, barrier))
    if barrier.start() > store.start():
        # With early loads the loop's own barrier covers the prologue too.
        first = _find(_PROLOGUE_BARRIER, text, "the barrier behind the prologue")
        yield SourceMutant(
            "prologue_barrier_removed", "The barrier behind the prologue is removed.", _without(text, first)
        )
        yield SourceMutant(
            "barrier_before_store",
            "The barrier stands before the store that it is for.",
            _swapped(text, store, barrier),
        )
    same = store[0].replace(f"{stage} ^ 1)", f"{stage})")
    yield SourceMutant(
        "wrong_next_buffer", "The next tile is stored where this one is read.",
        _replaced(text, (store.start(), store.end(), same)),
    )  # fmt: skip
    wrong = f"{fetch['indent']}if (!{fetch['more']}) {stage} ^= 1;\n"
    yield SourceMutant(
        "wrong_last_buffer", "The last tile is read from the other stage.",
        _replaced(text, (fetch.end(), fetch.end(), wrong)),
    )  # fmt: skip
    yield SourceMutant("stage_not_toggled", "Every tile is read from the first stage.", _without(text, toggle))
    yield from _registers(text, fetch, store)


def _one_buffer(text: str) -> Iterator[SourceMutant]:
    fetch = _find(_FETCH, text, "the fetch of the next tile")
    free = _find(_FREE, text, "the barrier before the store")
    store = _find(_STORE, text, "the store of the next tile", free.end())
    arrived = _find(_ARRIVED, text, "the barrier before the compute phase")
    yield SourceMutant("barrier_removed", "The barrier before the compute phase is removed.", _without(text, arrived))
    yield SourceMutant("free_barrier_removed", "The barrier before the store is removed.", _without(text, free))
    yield SourceMutant(
        "store_before_barrier", "The store stands before the barrier that waits for the readers.",
        _swapped(text, free, store),
    )  # fmt: skip
    yield from _registers(text, fetch, store)


def _registers(text: str, fetch: re.Match[str], store: re.Match[str]) -> Iterator[SourceMutant]:
    first = _find(_FIRST_STORE, text, "the prologue's store")
    yield SourceMutant("prologue_store_dropped", "The first tile is not stored.", _without(text, first))
    yield SourceMutant("store_dropped", "No tile but the first is stored.", _without(text, store))
    yield from _trips(text, fetch, fetch["step"], fetch.start())


# -- which tiles, and how many -----------------------------------------------------------------------------------------
def _trips(text: str, ahead: re.Match[str], step: str, behind_header: int) -> Iterator[SourceMutant]:
    """Mutants of the tile that is loaded ahead, and of the number of trips.

    Args:
        ahead: how the next tile is loaded. step: of the loop. behind_header: an offset in the loop's body.
    """
    var, bound = ahead["var"], ahead["bound"]
    line = ahead["line"]
    if re.search(rf"\b{ahead['next']}\b", ahead["arguments"]):
        arguments = re.sub(rf"\b{ahead['next']}\b", var, ahead["arguments"])
        wrong = line.replace(f"({ahead['arguments']});", f"({arguments});")
        said = "The tile that is being computed is loaded in place of a later one."
    else:
        wrong = line.replace(ahead["call"], f"{{ {ahead['call']} {ahead['call']} }}")
        said = "The pointers move two tiles at a time."
    yield SourceMutant("wrong_tile", said, _replaced(text, (ahead.start("line"), ahead.end("line"), wrong)))
    start, end = _condition(text, behind_header)
    fewer, more = f" {var} + {step} < {bound}", f" {var} < {bound} + {step}"
    yield SourceMutant("epilogue_skipped", "The last tile is not computed.", _replaced(text, (start, end, fewer)))
    yield SourceMutant("one_tile_too_many", "One tile too many is computed.", _replaced(text, (start, end, more)))


def _condition(text: str, behind: int) -> tuple[int, int]:
    """Where the condition of the ``for`` in front of an offset stands."""
    headers = list(re.finditer(r"\bfor\s*\(", text[:behind]))
    if not headers:
        raise _unknown("the K-loop")
    depth, marks = 0, []
    for i in range(headers[-1].end(), behind):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if text[i] == ";" and depth == 0:
            marks.append(i)
    if len(marks) < 2:
        raise _unknown("the K-loop's condition")
    return marks[0] + 1, marks[1]
