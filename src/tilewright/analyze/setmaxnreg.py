"""Whether ptxas dropped ``setmaxnreg``: specialised warps then keep the registers that they were to exchange."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_MADE = "USETMAXREG"
_CODES = {
    "C7508": "the launch bounds lack the minimum of blocks per SM (C7508): __launch_bounds__(threads, 1) mends it",
    "C7506": "a bulk copy names shared::cluster (C7506): name shared::cta where the copy stays in the block",
    "C7504": "the file is compiled for separate linking (C7504): compile the kernel without -rdc",
}


def dropped(ptx: str, kernel: str, log: str, opcodes: frozenset[str]) -> str:
    """Why, in words, with the compiler's code; "" where PTX asks for none, or the machine code has it.

    Args:
        ptx: "" where there is none: then nothing can be told. log: the compiler's, or "".
        opcodes: that the kernel's machine code has.
    """
    text = _entry_text(ptx, kernel)
    if "setmaxnreg" not in text or _MADE in opcodes:
        return ""
    why = next((words for code, words in _CODES.items() if f"({code})" in log), "") or _by_text(text)
    return f"ptxas dropped setmaxnreg: {why}"


def _by_text(text: str) -> str:
    """Without the log: which of the known reasons the PTX shows."""
    if ".minnctapersm" not in text:
        return _CODES["C7508"]
    if "cp.async.bulk" in text and "shared::cluster" in text:
        return _CODES["C7506"]
    return "the compiler's log says why (ptxas -v)"


def _entry_text(ptx: str, kernel: str) -> str:
    """From the kernel's head to the next one's."""
    heads = list(_ENTRY.finditer(ptx))
    for number, head in enumerate(heads):
        if head[1] == kernel:
            return ptx[head.start() : heads[number + 1].start() if number + 1 < len(heads) else len(ptx)]
    return ""
