"""Controls: twins that differ from a variant in one thing, so that a gain can be attributed.

``waited``: a variant whose wait (or whose stores to shared memory) stands before the compute phase: buffers, width and
copies stay, only the overlap goes. The other control, the baseline with its loads widened, is the variant ``widen``.
"""

from __future__ import annotations

import re

from tilewright.rewrite.result import RewrittenSource

_COMMIT = re.compile(r"^(?P<indent>[ \t]*)__pipeline_commit\(\);[^\n]*\n", re.MULTILINE)
_FETCH = re.compile(r"^[ \t]*if \(\w*has_next\w*\) \w*fetch_tile\w*\([^\n]*\);\n", re.MULTILINE)
_STORE = re.compile(r"^[ \t]*if \(\w*has_next\w*\) \w*store_tile\w*\([^\n]*\);\n", re.MULTILINE)
# With early loads the barrier that frees the other stage stands behind the fetch.
_ARRIVED = re.compile(
    r"(?:[ \t]*asm volatile\([^\n]*\n)?[ \t]*__syncthreads\(\);  // this tile is in shared memory[^\n]*\n"
)

# Of a ring on mbarriers: the wait for the oldest stage, and the copy of a later tile behind it.
_RING_WAIT = re.compile(r"(?P<wait>\w*tile_barrier_wait\w*)\(&(?P<full>\w+)\[(?P<read>\w+)\], (?P<parity>\w+)\);")
_RING_COPY = re.compile(
    r"^(?P<indent>[ \t]*)if \((?P<guard>[^\n]+)\) \w*copy_tile\w*\((?:\w+, )?(?P<write>\w+)\);[^\n]*\n", re.MULTILINE
)


def waited(variant: RewrittenSource) -> str | None:
    """The variant's source with its wait before the compute phase; None where one buffer leaves no room for that."""
    text = variant.text
    if variant.variant == "cp_async":
        wait = text.index("__pipeline_wait_prior(")
        commit = _COMMIT.search(text, wait)
        assert commit is not None
        indent = commit["indent"]
        return (
            text[: commit.end()]
            + f"{indent}__pipeline_wait_prior(0);\n{indent}__syncthreads();\n"
            + text[commit.end() :]
        )
    if variant.variant == "ldg":
        fetch, store = _FETCH.search(text), _STORE.search(text)
        assert fetch is not None
        assert store is not None
        arrived = _ARRIVED.match(text, fetch.end())
        at = arrived.end() if arrived is not None else fetch.end()
        return text[:at] + store[0] + text[at : store.start()] + text[store.end() :]
    if variant.variant in ("bulk", "tma"):
        return _ring_waited(text)
    return None


def _ring_waited(text: str) -> str | None:
    """A ring on mbarriers that waits for the tile whose copy it has just issued, too."""
    wait = _RING_WAIT.search(text)
    copy = _RING_COPY.search(text, wait.end()) if wait is not None else None
    if wait is None or copy is None:
        return None
    # Where the stage that is filled lies before the one that is read, its tile belongs to the ring's next round.
    parity = f"{wait['parity']} ^ ({copy['write']} < {wait['read']})"
    line = f"if ({copy['guard']}) {wait['wait']}(&{wait['full']}[{copy['write']}], {parity});"
    return f"{text[: copy.end()]}{copy['indent']}{line}\n{text[copy.end() :]}"
