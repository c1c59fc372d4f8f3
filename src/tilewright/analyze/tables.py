"""The instruction mix and the stall counts of the hot loop, as rows."""

from __future__ import annotations

from collections import Counter

from tilewright.analyze.hot_loop import HotLoop, short_name
from tilewright.analyze.record import MixRow
from tilewright.sass.listing import Instruction
from tilewright.sass.operands import MATRIX

# Rows that say what a kernel does come first, in this order; the rest follows by count.
_FIRST = ("LDGSTS", "UTMALDG", "UBLKCP", "LDG", "LD", "STG", "ST", "STS", "STSM", "LDS", "LDSM", "BAR", "DEPBAR",
          "SYNCS", "SHFL", "MUFU", "LDL", "STL")  # fmt: skip
_MATH = ("FFMA", "FFMA2", "HFMA2", "DFMA", "IDP", "FADD", "FMUL")
MOST_ROWS = 20


def mix_rows(loop: HotLoop) -> tuple[MixRow, ...]:
    """Matrix instructions and math, then memory and synchronisation, then what is most frequent of the rest."""
    groups: dict[str, list[Instruction]] = {}
    for i in loop.trip:
        groups.setdefault(short_name(i), []).append(i)
    whole = Counter(map(short_name, loop.whole))
    rows = [
        MixRow(
            name,
            len(found),
            whole[name],
            min(i.stall for i in found),
            max(i.stall for i in found),
            sum(i.stall for i in found),
        )
        for name, found in groups.items()
    ]
    return tuple(sorted(rows, key=_order)[:MOST_ROWS])


def _order(row: MixRow) -> tuple[int, int, str]:
    opcode = row.opcode.split(".")[0]
    if MATRIX.match(opcode):
        rank = 0
    elif opcode in _MATH:
        rank = 1
    elif opcode in _FIRST:
        rank = 2 + _FIRST.index(opcode)
    else:
        rank = 2 + len(_FIRST)
    return rank, -row.count, row.opcode
