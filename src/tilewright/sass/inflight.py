"""Run a steady-state path many times over: which copies are outstanding at which math instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.sass.listing import Function, Instruction
from tilewright.sass.operands import access_bytes, is_barrier
from tilewright.sass.staging import Values
from tilewright.sass.steady import Step

_DEPBAR = re.compile(r"SB(\d), (0x[0-9a-f]+|\d+)")
_SET = re.compile(r"\{([^}]*)\}")


@dataclass
class Copy:
    """One copy instruction, executed once.

    Times count executed instructions; `math` and `barriers` are the totals executed before that moment.
    """

    index: int
    round: int
    size: int
    is_async: bool
    issued: int
    barriers_at_issue: int
    retired: int | None = None
    retired_by: int | None = None
    barriers_at_retire: int = 0
    stored_in: int | None = None  # the barrier interval of the store to shared memory
    group: int | None = None


@dataclass
class Run:
    """What happened: copies in the order of issue, math as (time, round, weight)."""

    copies: list[Copy] = field(default_factory=list)
    math: list[tuple[int, int, int]] = field(default_factory=list)
    waits: dict[int, int] = field(default_factory=dict)  # instruction index → async copies it has retired


@dataclass
class _Item:
    """Something that a scoreboard counts: a commit group, a load, or another long instruction."""

    copies: list[Copy]


class _Machine:
    """Scoreboards and copy groups of one warp."""

    def __init__(self, function: Function, math: dict[int, int]) -> None:
        self.code = function.instructions
        self.weights = math
        self.run = Run()
        self.boards: dict[int, list[_Item]] = {}
        self.uncommitted: list[Copy] = []
        self.unbound: list[Copy] = []  # loads without a scoreboard of their own: the next load's stands for them
        self.values = Values()
        self.now = 0
        self.barriers = 0
        self.groups = 0

    def execute(self, step: Step, turn: int) -> None:
        index = step.index
        instruction = self.code[index]
        self.now += 1
        for board in range(6):
            if instruction.wait_mask >> board & 1:
                self._retire(board, 0, index)
        if not step.active:
            return
        opcode = instruction.opcode
        if is_barrier(instruction):
            self.barriers += 1
        elif opcode == "DEPBAR":
            for board, left in depbar(instruction):
                self._retire(board, left, index)
        elif opcode == "LDGSTS":
            copy = self._copy(index, turn, instruction, True)
            self.uncommitted.append(copy)
        elif opcode == "LDGDEPBAR":
            for copy in self.uncommitted:
                copy.group = self.groups
            self.groups += 1
            self.boards.setdefault(instruction.write_barrier or 0, []).append(_Item(self.uncommitted))
            self.uncommitted = []
            return
        elif opcode == "LDG":
            self.unbound.append(self._copy(index, turn, instruction, False))
        if index in self.weights:
            self.run.math.append((self.now, turn, self.weights[index]))
        for tag in self.values.step(instruction, len(self.run.copies) - 1):
            if self.run.copies[tag].stored_in is None:  # a guarded load leaves the older value's tag in place
                self.run.copies[tag].stored_in = self.barriers
        if instruction.write_barrier is not None:
            item = _Item(self.unbound if opcode == "LDG" else [])
            if opcode == "LDG":
                self.unbound = []
            self.boards.setdefault(instruction.write_barrier, []).append(item)

    def _copy(self, index: int, turn: int, instruction: Instruction, is_async: bool) -> Copy:
        copy = Copy(index, turn, access_bytes(instruction), is_async, self.now, self.barriers)
        self.run.copies.append(copy)
        return copy

    def _retire(self, board: int, left: int, index: int) -> None:
        items = self.boards.get(board, [])
        count = len(items) - left
        for item in items[: max(count, 0)]:
            for copy in item.copies:
                copy.retired, copy.retired_by, copy.barriers_at_retire = self.now, index, self.barriers
                if copy.is_async:
                    self.run.waits[index] = self.run.waits.get(index, 0) + 1
        if count > 0:
            self.boards[board] = items[count:]


def depbar(instruction: Instruction) -> list[tuple[int, int]]:
    """What a ``DEPBAR`` waits for: (scoreboard, how many of the youngest may stay outstanding)."""
    waits = []
    named = _DEPBAR.search(instruction.operands)
    if named:
        waits.append((int(named[1]), int(named[2], 0)))
    listed = _SET.search(instruction.operands)
    if listed:
        waits.extend((int(board), 0) for board in re.findall(r"\d+", listed[1]))
    return waits


def run_path(function: Function, trip: tuple[Step, ...], math: dict[int, int], rounds: int) -> Run:
    """Execute a trip `rounds` times, from empty scoreboards."""
    machine = _Machine(function, math)
    for turn in range(rounds):
        for step in trip:
            machine.execute(step, turn)
    return machine.run
