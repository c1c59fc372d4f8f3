"""The least time that a launch can take by each part of the GPU, and what a change of one part makes of the whole.

A floor is a bound: DRAM must move the unique bytes, the schedulers must issue the instructions, a block cannot be done
before its own chain of waits is. The launch takes about as long as the highest; where two are close, a little longer
(`SMOOTHNESS`). The gain of a change is the time before over the time after: the same model on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.analyze.demand import Demand
from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device

SMOOTHNESS = 4.0


@dataclass(frozen=True)
class Setting:
    """Where a launch runs.

    Attributes:
        blocks: of the launch; None where they are not known: then one SM's full house is looked at.
        blocks_per_sm: that fit.
        dram_bytes: unique ones, of the launch; None where they are not known.
        l1_share: how much of what the block asks of L2 L1 gives it instead, 0 to 1.
    """

    arch: Arch
    device: Device | None
    blocks: int | None
    blocks_per_sm: int
    dram_bytes: float | None
    l1_share: float = 0.0

    @property
    def busiest(self) -> float:
        """Blocks that the busiest SM runs, one after the other or at once."""
        if self.blocks is None or self.device is None:
            return float(self.blocks_per_sm)
        return float(max(1, math.ceil(self.blocks / self.device.sms)))

    @property
    def resident(self) -> float:
        """Blocks that it runs at once."""
        return max(1.0, min(float(self.blocks_per_sm), self.busiest))


@dataclass(frozen=True)
class Floors:
    """Cycles by cause, of the whole launch where `Demand.is_whole`, else of one trip of a full SM."""

    cycles: dict[str, float]

    @property
    def total(self) -> float:
        """What the floors come to together."""
        return float(sum(x**SMOOTHNESS for x in self.cycles.values()) ** (1 / SMOOTHNESS))

    @property
    def highest(self) -> str:
        return max(self.cycles, key=lambda name: self.cycles[name])


def floors(demand: Demand, setting: Setting) -> Floors:
    """Every floor of a launch. Names: ``issue``, ``l1``, ``l2``, ``dram``, ``latency``, and the math pipes."""
    arch, blocks = setting.arch, setting.busiest
    found = {
        "latency": demand.alone * math.ceil(blocks / setting.resident),
        "issue": demand.issue * blocks,
        "l1": demand.lsu * blocks,
        "l2": demand.l2_bytes * (1 - setting.l1_share) / arch.l2_bytes_per_cycle * blocks,
        **{name: cycles * blocks for name, cycles in demand.pipes.items()},
    }
    device = setting.device
    if setting.dram_bytes is not None and device is not None and demand.is_whole:
        found["dram"] = setting.dram_bytes / device.dram_bytes_per_s * device.boost_clock_hz
    return Floors(found)


def gain(before: Floors, demand: Demand, setting: Setting) -> float:
    """Time before over the time that a changed demand takes in a changed setting."""
    after = floors(demand, setting).total
    return before.total / after if after else 1.0  # at sizes that leave nothing to do, nothing is gained


def without_global_wait(demand: Demand, share: float = 1.0) -> Demand:
    """A block that no longer waits for global memory, or only for a part of it."""
    return replace(
        demand, alone=demand.alone - share * demand.global_wait, global_wait=(1 - share) * demand.global_wait
    )
