"""Run a steady-state path many times over: when is each copy issued, and which wait retires it?

The rules, for one warp:

- A scoreboard counts what is outstanding on it. An instruction whose wait mask holds it waits until nothing is.
- A load (``LDG``) is outstanding on its write barrier until the first such wait.
- ``LDGSTS`` copies are gathered until ``LDGDEPBAR`` binds them, as one group, to its write barrier (SB0).
- ``DEPBAR.LE SBk, n`` waits until at most the n youngest entries of scoreboard k are outstanding.
- ``BAR`` waits for other threads, for no copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import MATRIX, access_bytes, is_barrier, is_zero_fill
from tilewright.sass.staging import LOADS, Values
from tilewright.sass.steady import Step

_LIMIT = re.compile(r"SB(\d), (0x[0-9a-f]+|\d+)")
_SET = re.compile(r"\{([^}]*)\}")


@dataclass(frozen=True)
class Moment:
    """A point of the run: instructions, barriers and reads of shared memory executed up to there.

    `index` is the instruction that is executed then.
    """

    time: int
    index: int
    barriers: int
    shared_reads: int


@dataclass
class Copy:
    """One copy instruction, executed once.

    Attributes:
        size: bytes per thread.
        turn: the trip of the K-loop it is issued in.
        retired: the wait after which its data are known to have arrived (in registers for ``LDG``).
        stored: for ``LDG``: the first store of its value to shared memory; None: it is no copy to shared memory.
    """

    size: int
    turn: int
    is_async: bool
    issued: Moment
    retired: Moment | None = None
    stored: Moment | None = None

    @property
    def is_staged(self) -> bool:
        """True when the data go to shared memory."""
        return self.is_async or self.stored is not None

    @property
    def arrived(self) -> Moment | None:
        """When the data are in shared memory, as far as this thread's own copies go."""
        return self.retired if self.is_async else self.stored


@dataclass(frozen=True)
class Math:
    """One math instruction, executed once."""

    time: int
    turn: int
    weight: int


@dataclass
class Run:
    """What happened, in the order of execution; step k of trip n has the time n * steps + k + 1."""

    steps: int
    copies: list[Copy] = field(default_factory=list)
    math: list[Math] = field(default_factory=list)
    stores: dict[int, list[Copy]] = field(default_factory=dict)  # time → loads whose values are stored to shared memory


def run_path(function: Function, trip: tuple[Step, ...], math: dict[int, int], turns: int) -> Run:
    """Execute a trip `turns` times, from empty scoreboards."""
    machine = _Machine(function, math, len(trip))
    for turn in range(turns):
        for step in trip:
            machine.execute(step, turn)
    return machine.run


def depbar(instruction: Instruction) -> list[tuple[int, int]]:
    """What a ``DEPBAR`` waits for: (scoreboard, how many of the youngest entries may stay outstanding)."""
    waits = [(int(board), int(left, 0)) for board, left in _LIMIT.findall(instruction.operands)]
    listed = _SET.search(instruction.operands)
    return waits + [(int(board), 0) for board in re.findall(r"\d+", listed[1] if listed else "")]


class _Machine:
    """The scoreboards of one warp. An entry is the list of copies that it stands for; empty for anything else."""

    def __init__(self, function: Function, math: dict[int, int], steps: int) -> None:
        self.code = function.instructions
        self.weights = math
        # A generic load may read shared memory; beside plain reads of it, it is taken for one of global memory.
        plain = any(i.opcode in ("LDS", "LDSM") and not i.is_off for i in self.code)
        self.reads_shared = ("LDS", "LDSM") if plain else ("LDS", "LDSM", "LD")
        self.run = Run(steps)
        self.boards: dict[int, list[list[Copy]]] = {}
        self.uncommitted: list[Copy] = []
        self.unbound: list[Copy] = []  # loads without a scoreboard of their own: the next load's stands for them
        self.values = Values(guards_hold=True)
        self.time = self.barriers = self.shared_reads = 0

    def execute(self, step: Step, turn: int) -> None:
        instruction = self.code[step.at]
        self.time += 1
        for board in range(6) if instruction.wait_mask else ():
            if instruction.wait_mask >> board & 1:
                self._retire(board, 0, step.at)
        if not step.active:
            return
        opcode = instruction.opcode
        if is_barrier(instruction):
            self.barriers += 1
        elif opcode in self.reads_shared or (MATRIX.match(opcode) and "gdesc" in instruction.operands):
            self.shared_reads += 1
        if step.at in self.weights:
            self.run.math.append(Math(self.time, turn, self.weights[step.at]))
        if opcode == "DEPBAR":
            for board, left in depbar(instruction):
                self._retire(board, left, step.at)
        elif opcode == "LDGSTS" and not is_zero_fill(instruction):
            self.uncommitted.append(self._issue(step.at, turn, is_async=True))
        elif opcode == "LDGDEPBAR":
            self._enter(instruction.write_barrier or 0, self.uncommitted)
            self.uncommitted = []
        elif opcode in LOADS:
            self.unbound.append(self._issue(step.at, turn, is_async=False))
            if instruction.write_barrier is not None:
                self._enter(instruction.write_barrier, self.unbound)
                self.unbound = []
        elif instruction.write_barrier is not None:
            self._enter(instruction.write_barrier, [])
        for tag in self.values.step(instruction, len(self.run.copies) - 1):
            copy = self.run.copies[tag]
            copy.stored = copy.stored or self._now(step.at)
            self.run.stores.setdefault(self.time, []).append(copy)

    def _now(self, index: int) -> Moment:
        return Moment(self.time, index, self.barriers, self.shared_reads)

    def _issue(self, index: int, turn: int, is_async: bool) -> Copy:
        copy = Copy(access_bytes(self.code[index]), turn, is_async, self._now(index))
        self.run.copies.append(copy)
        return copy

    def _enter(self, board: int, copies: list[Copy]) -> None:
        self.boards.setdefault(board, []).append(copies)

    def _retire(self, board: int, left: int, index: int) -> None:
        entries = self.boards.get(board, [])
        done = max(len(entries) - left, 0)
        for copy in (copy for entry in entries[:done] for copy in entry):
            copy.retired = self._now(index)
        if done:
            self.boards[board] = entries[done:]
