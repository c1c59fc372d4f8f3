"""Run a steady-state path many times over: when is each copy issued, and which wait retires it?

The rules, for one warp:

- A scoreboard counts what is outstanding on it. An instruction whose wait mask holds it waits until nothing is.
- A load (``LDG``) is outstanding on its write barrier until the first such wait.
- ``LDGSTS`` copies are gathered until ``LDGDEPBAR`` binds them, as one group, to its write barrier (SB0).
- ``DEPBAR.LE SBk, n`` waits until at most the n youngest entries of scoreboard k are outstanding.
- ``BAR`` waits for other threads, for no copy.
- ``HGMMA`` and its like run on until the ``WARPGROUP.DEPBAR`` that retires their group.

Copies that an mbarrier retires are the affair of `rings`, which uses the same machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import ASYNC_MATH, MATRIX, access_bytes, is_barrier, is_zero_fill, split
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


@dataclass
class Math:
    """One math instruction, executed once. `end`: the time of the wait for it where it runs on, else its own time."""

    time: int
    turn: int
    weight: int
    end: int


@dataclass
class Run:
    """What happened, in the order of execution; step k of trip n has the time n * steps + k + 1."""

    steps: int
    copies: list[Copy] = field(default_factory=list)
    math: list[Math] = field(default_factory=list)
    stores: dict[int, list[Copy]] = field(default_factory=dict)  # time → loads whose values are stored to shared memory


def run_path(function: Function, trip: tuple[Step, ...], math: dict[int, int], turns: int) -> Run:
    """Execute a trip `turns` times, from empty scoreboards."""
    machine = Machine(function, math, len(trip))
    for turn in range(turns):
        for step in trip:
            machine.execute(step, turn)
    return machine.run


def depbar(instruction: Instruction) -> list[tuple[int, int]]:
    """What a ``DEPBAR`` waits for: (scoreboard, how many of the youngest entries may stay outstanding)."""
    waits = [(int(board), int(left, 0)) for board, left in _LIMIT.findall(instruction.operands)]
    listed = _SET.search(instruction.operands)
    return waits + [(int(board), 0) for board in re.findall(r"\d+", listed[1] if listed else "")]


class Machine:
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
        self.math_groups: list[list[Math]] = [[]]  # asynchronous math by group, the open one last
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
            self.run.math.append(Math(self.time, turn, self.weights[step.at], self.time))
            if ASYNC_MATH.match(opcode):
                self._run_on(instruction, self.run.math[-1])
        if opcode == "WARPGROUP" and "DEPBAR" in instruction.modifiers:
            self._end_math(instruction)
        if opcode == "DEPBAR":
            for board, left in depbar(instruction):
                self._retire(board, left, step.at)
        elif opcode == "LDGSTS" and not is_zero_fill(instruction):
            self.uncommitted.append(self.issue(step.at, turn, is_async=True))
        elif opcode == "LDGDEPBAR":
            self._enter(instruction.write_barrier or 0, self.uncommitted)
            self.uncommitted = []
        elif opcode in LOADS:
            self.unbound.append(self.issue(step.at, turn, is_async=False))
            if instruction.write_barrier is not None:
                self._enter(instruction.write_barrier, self.unbound)
                self.unbound = []
        elif instruction.write_barrier is not None:
            self._enter(instruction.write_barrier, [])
        for tag in self.values.step(instruction, len(self.run.copies) - 1):
            copy = self.run.copies[tag]
            copy.stored = copy.stored or self.now(step.at)
            self.run.stores.setdefault(self.time, []).append(copy)

    def _run_on(self, instruction: Instruction, math: Math) -> None:
        """Math of a warp group: ``gsb0`` on an instruction closes the group that it belongs to."""
        self.math_groups[-1].append(math)
        if re.search(r"\bgsb\d", instruction.operands):
            self.math_groups.append([])

    def _end_math(self, wait: Instruction) -> None:
        """``WARPGROUP.DEPBAR.LE gsb0, n`` waits until at most the n youngest groups run."""
        left = int(split(wait.operands)[-1], 0)
        closed, opened = self.math_groups[:-1], self.math_groups[-1]
        done = max(len(closed) - left, 0)
        for math in (math for group in closed[:done] for math in group):
            math.end = self.time
        self.math_groups = [*closed[done:], opened]

    def now(self, index: int) -> Moment:
        return Moment(self.time, index, self.barriers, self.shared_reads)

    def issue(self, index: int, turn: int, is_async: bool) -> Copy:
        copy = Copy(access_bytes(self.code[index]), turn, is_async, self.now(index))
        self.run.copies.append(copy)
        return copy

    def _enter(self, board: int, copies: list[Copy]) -> None:
        self.boards.setdefault(board, []).append(copies)

    def _retire(self, board: int, left: int, index: int) -> None:
        entries = self.boards.get(board, [])
        done = max(len(entries) - left, 0)
        for copy in (copy for entry in entries[:done] for copy in entry):
            copy.retired = self.now(index)
        if done:
            self.boards[board] = entries[done:]
