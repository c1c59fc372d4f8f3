"""The code that a kernel spends its time in: one trip of its hottest loop, as machine code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.sass.flow import Flow, flow_of
from tilewright.sass.kloop import Work, find_k_loops, work_of
from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import MATRIX, access_bytes, is_matrix
from tilewright.sass.staging import staged_loads
from tilewright.sass.steady import steady_path

# Code in an inner loop runs more often than the code around it; by how much is rarely known.
_DEEPER = 8
# An inner loop with less than this share of the work is a wait, or a tail.
_SPIN_SHARE = 0.25
_COUNTED = frozenset({"LDG", "LD", "STG", "ST", "LDGSTS", "LDS", "LDSM", "STS", "LDL", "STL", "MUFU", "ATOMG", "RED"})
_WITH_WIDTH = frozenset({"LDG", "LD", "STG", "ST", "LDGSTS", "LDS", "STS", "LDL", "STL"})
_WIDTHS = ("U8", "S8", "U16", "S16", "64", "128", "256")
_SHAPE = re.compile(r"^\d{3,5}$|^\d+x\d+x\d+$")

GLOBAL_LOADS = frozenset({"LDG", "LD"})
GLOBAL_STORES = frozenset({"STG", "ST"})
ASYNC_COPIES = frozenset({"LDGSTS", "UBLKCP", "UTMALDG"})
SHARED_LOADS = frozenset({"LDS", "LDSM"})
SHARED_STORES = frozenset({"STS", "STSM"})
LOCAL = frozenset({"LDL", "STL"})


@dataclass(frozen=True)
class HotLoop:
    """One trip.

    Attributes:
        trip: the instructions that one warp issues, in order; those predicated off for good are left out.
        kind: ``k_loop`` (it stages tiles in shared memory), ``loop``, or ``straight`` where the kernel has none.
        line: source line where it begins; None without line information.
        is_path: the trip was followed along a path; else it is all the code of the loop, both sides of branches.
        staged: of the trip's global loads, how many are copied on into shared memory.
        whole: instructions of the kernel, all of them.
    """

    trip: tuple[Instruction, ...]
    kind: str
    line: int | None
    is_path: bool
    staged: int
    whole: tuple[Instruction, ...]

    def count(self, opcodes: frozenset[str]) -> int:
        """Instructions of these opcodes in a trip."""
        return sum(i.opcode in opcodes for i in self.trip)

    def of(self, opcodes: frozenset[str]) -> list[Instruction]:
        return [i for i in self.trip if i.opcode in opcodes]


def hot_loop(function: Function) -> HotLoop:
    """The K-loop where there is one, else the loop with most memory accesses and math, else the whole kernel."""
    whole = tuple(i for i in function.instructions if not i.is_off and i.opcode != "NOP")
    flow, work = flow_of(function), work_of(function)
    k_loops = find_k_loops(function, flow, work)
    at = k_loops[0] if k_loops else _busiest(function, flow, work)
    if at is None:
        return HotLoop(_until_exit(whole), "straight", whole[0].line if whole else None, True, 0, whole)
    code, loop = function.instructions, flow.loops[at]
    path = steady_path(function, flow, at, work)
    if path is not None:
        indices = [step.at for step in path.trip if step.active]
    else:
        indices = [i for b in sorted(loop.blocks) for i in range(flow.blocks[b].first, flow.blocks[b].end)]
    staged = staged_loads(function, flow, loop)
    trip = tuple(code[i] for i in indices if not code[i].is_off)
    header = code[flow.blocks[loop.header].first]
    # Where other warps copy the tiles, the loop that multiplies them is the K-loop all the same.
    computes = any(is_matrix(i) for i in trip) and any(i.opcode in ASYNC_COPIES for i in whole)
    kind = "k_loop" if k_loops or computes else "loop"
    return HotLoop(trip, kind, header.line, path is not None, sum(i in staged for i in indices), whole)


def short_name(instruction: Instruction) -> str:
    """As tables show it: ``HMMA.16816``, ``LDG.128``, ``LDS.U8``, ``MUFU.EX2``; other modifiers are left out."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if MATRIX.match(opcode):
        shape = next((m for m in modifiers if _SHAPE.match(m)), "")
        return f"{opcode}.{shape}" if shape else opcode
    if opcode in _WITH_WIDTH:
        width = next((m for m in reversed(modifiers) if m in _WIDTHS), "")
        return f"{opcode}.{width}" if width else opcode
    if opcode in ("MUFU", "LDSM", "STSM", "SHFL", "BAR", "DEPBAR") and modifiers:
        return f"{opcode}.{modifiers[-1 if opcode in ('LDSM', 'STSM') else 0]}"
    return opcode


def width_bytes(instructions: list[Instruction]) -> float | None:
    """Mean bytes per lane; None for no instructions."""
    return sum(map(access_bytes, instructions)) / len(instructions) if instructions else None


def _busiest(function: Function, flow: Flow, work: Work) -> int | None:
    """The loop with most accesses and math, an inner one before the one around it unless it does next to nothing."""
    code = function.instructions
    busy: list[int] = []
    for loop in flow.loops:
        inside = [i for b in loop.blocks for i in range(flow.blocks[b].first, flow.blocks[b].end)]
        busy.append(sum((code[i].opcode in _COUNTED or i in work.math) and not code[i].is_off for i in inside))
    best, most = None, 0.0
    for at, loop in enumerate(flow.loops):
        inner = [j for j, other in enumerate(flow.loops) if other.blocks < loop.blocks]
        if any(busy[j] >= _SPIN_SHARE * busy[at] for j in inner):
            continue  # that one is judged by itself; a loop that only waits (for an mbarrier) is not
        weight = float(busy[at] * _DEEPER**loop.depth)
        if weight > most:
            best, most = at, weight
    return best


def _until_exit(whole: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """Without the endless branch behind the last exit."""
    last = max((at for at, i in enumerate(whole) if i.opcode == "EXIT"), default=len(whole) - 1)
    return whole[: last + 1]
