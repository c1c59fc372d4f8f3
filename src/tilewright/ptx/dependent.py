"""Programmatic dependent launch: whether a kernel may begin while the grid before it still runs.

A grid that is launched so may find that grid at work. ``griddepcontrol.wait`` waits until it has ended and all that it
wrote is seen (PTX ISA, "griddepcontrol"); what a kernel does before is done beside it. A kernel whose every thread
waits before it touches memory may be launched so behind anything, and saves the time that a launch takes.
"""

from __future__ import annotations

import re

WAIT = "griddepcontrol.wait"
_BODY = r"\.entry\s+{kernel}\s*\("
_NO_STATEMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.loc\s[^\n;]*$", re.DOTALL | re.MULTILINE)
_DECLARATIONS = frozenset({".reg", ".shared", ".local", ".pragma"})
# What only reads parameters and special registers, and computes: anything that is not here may touch memory, or branch.
_HARMLESS = frozenset(
    {"mov", "cvta", "cvt", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "setp", "selp", "min",
     "max", "neg", "abs", "bfe", "bfi", "prmt", "shf", "lop3", "rem", "div", "fma"}
)  # fmt: skip
_HARMLESS_FORMS = ("ld.param", "griddepcontrol.launch_dependents")


def waits_first(ptx: str, kernel: str) -> bool:
    """Whether all threads of a kernel wait for the grid before theirs, ahead of everything else that they do.

    It goes by the text, and takes what it does not know for something that may not come first: False is always safe.

    Args:
        ptx: the module. kernel: the entry's name.
    """
    if WAIT not in ptx:
        return False
    entry = re.search(_BODY.format(kernel=re.escape(kernel)), ptx)
    if entry is None:
        return False
    _, _, body = _NO_STATEMENTS.sub("", ptx[entry.end() :]).partition("{")
    for statement in body.split(";"):
        words = statement.split()
        if words == [WAIT]:
            return True
        if words and words[0] not in _DECLARATIONS and not _is_harmless(words[0]):
            return False
    return False


def _is_harmless(opcode: str) -> bool:
    return opcode.split(".")[0] in _HARMLESS or opcode.startswith(_HARMLESS_FORMS)
