"""Programmatic dependent launch: whether a kernel may begin while the grid before it still runs.

A grid that is launched so may find that grid at work. ``griddepcontrol.wait`` waits until it has ended and all that it
wrote is seen (PTX ISA, "griddepcontrol"); what a kernel does before is done beside it. A kernel whose every thread
waits before it touches memory may be launched so behind anything, and saves the time that a launch takes.
"""

from __future__ import annotations

import re

WAIT = "griddepcontrol.wait"
_BODY = r"\.entry\s+{kernel}\s*\("
_NO_STATEMENTS = re.compile(
    r'"[^"\n]*"'  # first: what looks like a comment in it is none
    r"|//[^\n]*|/\*.*?\*/|^\s*\.loc\s[^\n;]*$",
    re.DOTALL | re.MULTILINE,
)
_DECLARATIONS = frozenset({".reg", ".shared", ".local", ".pragma"})
# What reads parameters and special registers, computes, makes ready what is the block's own, as mbarriers in shared
# memory, or asks L2 to fetch what is there, of which nobody can tell: anything that is not here may touch global
# memory.
_HARMLESS = frozenset(
    {"mov", "cvta", "cvt", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "setp", "selp", "min",
     "max", "neg", "abs", "bfe", "bfi", "prmt", "shf", "lop3", "rem", "div", "fma", "shfl", "elect", "bar", "barrier",
     "fence"}
)  # fmt: skip
_HARMLESS_FORMS = (
    *("ld.param", "griddepcontrol.launch_dependents", "prefetch.tensormap"),
    "cp.async.bulk.prefetch",
)
_NOT_THOSE = "fence.proxy.tensormap"  # it makes seen what another grid may not have written yet
_MBARRIER = re.compile(r"mbarrier\.(init|arrive|arrive\.expect_tx)(\.[a-z]+)*\.shared::cta\.b64$")
_LABELS = re.compile(r"(\$?\w+):\s")
_BRANCH = re.compile(r"(?:@!?%\w+\s+)?bra(?:\.uni)?\s+(\$?\w+)$")


def waits_first(ptx: str, kernel: str) -> bool:
    """Whether all threads of a kernel wait for the grid before theirs, ahead of everything else that they do.

    It goes by the text, and takes what it does not know for something that may not come first: False is always safe.
    Branches may stay ahead of the wait: all ways lead to it then.

    Args:
        ptx: the module. kernel: the entry's name.
    """
    if WAIT not in ptx:
        return False
    bare = _NO_STATEMENTS.sub("", ptx)
    entry = re.search(_BODY.format(kernel=re.escape(kernel)), bare)
    if entry is None:
        return False
    _, _, body = bare[entry.end() :].partition("{")
    labels: set[str] = set()
    targets: set[str] = set()
    for text in body.split(";"):
        labels.update(_LABELS.findall(text))
        statement = _LABELS.sub(" ", text).strip()
        if statement == WAIT:
            return targets <= labels
        branch = _BRANCH.match(statement)
        if branch:
            targets.add(branch[1])
        elif statement and not _is_harmless(statement.split()[0]):
            return False
    return False


def _is_harmless(opcode: str) -> bool:
    if opcode.startswith(_NOT_THOSE):
        return False
    known = opcode in _DECLARATIONS or opcode.split(".")[0] in _HARMLESS or opcode.startswith(_HARMLESS_FORMS)
    return known or _MBARRIER.match(opcode) is not None
