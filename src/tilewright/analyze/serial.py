"""One warp goes round its hot loop alone: how long it takes, and what it waits for.

The control bits say when an instruction may issue: after the stall count of the one before, and when the scoreboards in
its wait mask are clear. What clears them takes the latency of the memory that was asked. Copies of ``cp.async`` are
waited for by group (``LDGDEPBAR``, ``DEPBAR.LE SB0, n``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.arch.arch import Arch
from tilewright.sass.inflight import depbar
from tilewright.sass.listing import Instruction

_GLOBAL = frozenset({"LDG", "LD", "ATOMG", "ATOM"})
_NEAR = frozenset({"LDS", "LDSM", "ATOMS", "SHFL", "MUFU", "LDL", "S2R", "S2UR"})
# Trips that are gone round before the one that is looked at, so that what runs ahead has got ahead.
_SETTLE = 8


@dataclass(frozen=True)
class Serial:
    """Cycles of one trip of one warp that has the SM to itself.

    Attributes:
        cycles: in all. issue: of them, what the stall counts alone take.
        global_wait, near_wait: waits for global memory; for shared memory, shuffles and special functions.
        loads_in_flight: most global loads (or copies) of the warp under way at once.
    """

    cycles: float
    issue: float
    global_wait: float
    near_wait: float
    loads_in_flight: int


@dataclass
class _Clock:
    global_latency: float
    near_latency: float
    now: float = 0.0
    global_wait: float = 0.0
    near_wait: float = 0.0
    ready: dict[int, tuple[float, bool]] = field(default_factory=dict)  # scoreboard → (cycle, is it global memory)
    groups: list[float] = field(default_factory=list)  # committed groups of cp.async, the youngest last
    open_group: float = 0.0
    outstanding: list[float] = field(default_factory=list)
    most: int = 0

    def wait_until(self, cycle: float, is_global: bool) -> None:
        wait = max(0.0, cycle - self.now)
        self.now += wait
        if is_global:
            self.global_wait += wait
        else:
            self.near_wait += wait

    def step(self, i: Instruction) -> None:
        for board in range(6):
            if i.wait_mask >> board & 1 and board in self.ready:
                self.wait_until(*self.ready.pop(board))
        if i.opcode == "DEPBAR":
            for _, left in depbar(i):
                if len(self.groups) > left:
                    self.wait_until(self.groups[len(self.groups) - left - 1], True)
        elif i.opcode == "LDGSTS":
            self.open_group = self.now + self.global_latency
            self._in_flight()
        elif i.opcode == "LDGDEPBAR":
            self.groups.append(max(self.open_group, self.groups[-1] if self.groups else 0.0))
        elif i.write_barrier is not None:
            is_global = i.opcode in _GLOBAL
            if is_global or i.opcode in _NEAR:
                done = self.now + (self.global_latency if is_global else self.near_latency)
                before = self.ready.get(i.write_barrier, (0.0, is_global))
                self.ready[i.write_barrier] = (max(before[0], done), is_global or before[1])
            if is_global:
                self._in_flight()
        self.now += max(i.stall, 1)

    def _in_flight(self) -> None:
        self.outstanding = [cycle for cycle in self.outstanding if cycle > self.now]
        self.outstanding.append(self.now + self.global_latency)
        self.most = max(self.most, len(self.outstanding))


def serial(trip: Sequence[Instruction], arch: Arch, is_loop: bool = True) -> Serial:
    """Time one trip in the steady state; of code that is no loop, the only one. Mbarriers are taken as passed."""
    clock = _Clock(arch.l2_latency_cycles, arch.smem_latency_cycles)
    for _ in range(_SETTLE if is_loop else 0):
        for instruction in trip:
            clock.step(instruction)
    begin, global_wait, near_wait = clock.now, clock.global_wait, clock.near_wait
    for instruction in trip:
        clock.step(instruction)
    cycles = clock.now - begin
    waited = (clock.global_wait - global_wait, clock.near_wait - near_wait)
    return Serial(cycles, cycles - sum(waited), *waited, clock.most)
