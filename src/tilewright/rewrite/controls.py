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
        return text[: fetch.end()] + store[0] + text[fetch.end() : store.start()] + text[store.end() :]
    return None
