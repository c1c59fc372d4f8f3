"""Threads that go round and round and look at memory which nobody is left to change.

While nothing that others could see is written, a thread does what its registers say. One that is back where it was,
with the registers that it had, will be so for ever; when all of them are, no word changes any more, and no thread ends.
So it is with a block that polls what another one writes, where that one does not run.

Nothing is guessed: what might still change something (a store, a clock that is read, an atomic that took effect, a copy
that may land, the end of a ``try_wait``'s time) is no standstill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.emulator.machine.chunk import Active, Array
from tilewright.emulator.machine.registers import Team

# So many steps without an effect before anybody looks: loops that compute from what they load have none, either.
QUIET_STEPS = 1024


@dataclass(frozen=True)
class Standstill:
    """Attributes:

    site: of a load that is repeated. thread: one of those who repeat it; count: threads that have not ended.
    """

    site: int
    thread: int
    count: int


@dataclass(frozen=True)
class Places:
    """Where the threads of a chunk are.

    Attributes:
        at: per thread, the basic block that it goes on with; ``-2 - block`` behind a barrier; -1 where it has ended.
        goes: who can go on: neither ended nor at a barrier, nor without the lanes that a collective wants.
    """

    at: Array
    goes: Array


@dataclass
class _Picture:
    """The threads at a step: places, registers by team, and how often each basic block had run."""

    step: int
    at: Array
    registers: dict[int, list[Array]]
    counts: Counter[int]
    has_expired: bool = False
    differs: dict[int, int] = field(default_factory=dict)  # by team, the register that differed last


class Rounds:
    """Attributes:

    is_open: a picture was taken, and who runs is noted. last_effect: the last step that changed something.
    """

    def __init__(self, threads: int) -> None:
        self.is_open = False
        self.last_effect = 0
        self._ran = np.zeros(threads, bool)
        self._picture: _Picture | None = None
        self._length = QUIET_STEPS
        self._version: tuple[int, ...] = ()

    def ran(self, active: Active) -> None:
        self._ran[slice(None) if active.index is None else active.index] = True

    def note(self, step: int, version: tuple[int, ...]) -> bool:
        """``version``: of all that changes without a store. Whether it has been quiet for long enough to look."""
        if version != self._version:
            self._version, self.last_effect = version, step
        if step - self.last_effect >= QUIET_STEPS:
            return True
        self.is_open, self._picture, self._length = False, None, QUIET_STEPS
        return False

    def are_over(self, step: int, places: Places, teams: Mapping[int, Team], counts: Counter[int]) -> bool:
        """Whether all threads have run, and are as they were in the picture. A new one is taken, ever more rarely."""
        seen = self._picture
        if seen is None or step - seen.step >= self._length:
            self._length *= 2
            registers = {tag: [np.array(v) for v in team.registers.values] for tag, team in teams.items()}
            self._picture = _Picture(step, places.at, registers, counts.copy())
            self._ran[:] = False
            self.is_open = True
            return False
        if (places.goes & ~self._ran).any() or not np.array_equal(places.at, seen.at):
            return False
        return all(self._is_as_before(seen, tag, team) for tag, team in teams.items())

    def expire(self) -> bool:
        """Waits with a time limit are about to end for once; False where they have since the picture."""
        seen = self._picture
        if seen is None or seen.has_expired:
            return False
        seen.has_expired = True
        self._ran[:] = False
        return True

    def blocks(self, counts: Counter[int]) -> list[int]:
        """The basic blocks that ran since the picture, ascending."""
        before = self._picture.counts if self._picture is not None else Counter[int]()
        return sorted(block for block, count in counts.items() if count > before[block])

    @staticmethod
    def _is_as_before(seen: _Picture, tag: int, team: Team) -> bool:
        now, before = team.registers.values, seen.registers[tag]
        first = seen.differs.get(tag, 0)
        for number in (first, *range(len(now))):
            if not _same(now[number], before[number]):
                seen.differs[tag] = number
                return False
        return True


def _same(one: np.ndarray | np.generic, other: Array) -> bool:
    """The same bits: a NaN is what it was."""
    return one.shape == other.shape and one.tobytes() == other.tobytes()
