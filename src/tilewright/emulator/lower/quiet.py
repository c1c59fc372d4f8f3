"""Instructions that change nothing which another thread could see: what is made of them alone may be done for ever."""

from __future__ import annotations

from tilewright.emulator.lower import fences, floats, integers, moves, warp
from tilewright.emulator.lower.memory import space_of
from tilewright.emulator.lower.writer import CLOCKS
from tilewright.ptx.module import Instruction, Special

# Atomics are among them: the machine counts those that change something.
_QUIET = frozenset(
    {
        *integers.LOWERINGS, *floats.LOWERINGS, *floats.MIXED, *moves.LOWERINGS, *fences.LOWERINGS, *warp.LOWERINGS,
        "cvt", "ld", "ldu", "atom", "red", "prefetch", "prefetchu", "createpolicy",
        "bra", "brx", "ret", "exit", "bar", "barrier", "nanosleep",
    }
)  # fmt: skip


def is_quiet(i: Instruction) -> bool:
    """What is not known to be quiet is not; nor is what reads a clock, which shows another time at each look."""
    if any(isinstance(operand, Special) and operand.name in CLOCKS for operand in i.operands):
        return False
    if i.opcode == "mbarrier":
        return i.modifiers[0] in ("try_wait", "test_wait")
    if i.opcode in ("bar", "barrier"):
        return not {"cluster", "arrive"} & {*i.modifiers}
    return i.opcode in _QUIET


def looks(i: Instruction) -> bool:
    """It reads memory that another thread may write."""
    return i.opcode in ("ld", "ldu", "atom", "red") and space_of(i) not in ("param", "const", "local")
