"""Everything that the strategies are judged by, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.analyze.demand import SECTOR_BYTES, Demand, Traffic
from tilewright.analyze.floors import Floors, Setting, floors
from tilewright.analyze.hot_loop import ASYNC_COPIES, GLOBAL_LOADS, GLOBAL_STORES, SHARED_STORES, HotLoop
from tilewright.analyze.record import Count, Evidence
from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.arch.occupancy import Occupancy
from tilewright.plan.budget import Budget
from tilewright.plan.decide import Decision
from tilewright.plan.facts import PlanFacts
from tilewright.sass.operands import access_bytes
from tilewright.sass.proof import OverlapProof

# What is known of a number that nobody counted is known worse.
COUNTED_SPREAD = 1.2
ASSUMED_SPREAD = 1.45


@dataclass(frozen=True)
class Capped:
    """What became of the kernel when one more block per SM was asked of the compiler.

    Attributes:
        spill_bytes: a thread, more than before. loop: the hot loop of that build.
        problem: why there is none, "" where there is.
    """

    registers: int
    spill_bytes: int
    loop: HotLoop | None = None
    problem: str = ""


@dataclass(frozen=True)
class Facts:
    """A kernel, its launch and the card.

    Attributes:
        loop: its hot loop. proof: whether its copies overlap its math.
        threads, registers, smem_bytes: of a block, a thread, a block (static and dynamic).
        spill_bytes: a thread, where the compiler said so; stack_bytes with it.
        blocks: of the launch. fit: what fits on an SM; None where the threads are not known.
        demand: of a block. setting: where the launch runs.
        traffic: counted, of a block; traffic_source: of which run. None: nothing was run.
        flops, dram_bytes: of the launch. operations: FLOPs by kind. output_bytes: of the unique bytes, written.
        inputs: name of each array the kernel reads → bytes of an element.
        tiled, budget: of a K-loop that was understood (or read off the machine code), for `plan.decide`.
        can_rewrite: it was understood in its source, so that `tilewright pipeline` makes the change.
        decision: the plan's from compiled builds; where there are none, it is asked without.
        capped: the compiler's answer where registers stand in the way of a block.
    """

    arch: Arch
    device: Device | None
    loop: HotLoop
    proof: OverlapProof
    threads: int
    registers: int
    smem_bytes: int
    blocks: int | None
    fit: Occupancy | None
    demand: Demand
    setting: Setting
    flops: Count
    dram_bytes: Count
    spill_bytes: int = 0
    traffic: Traffic | None = None
    traffic_source: str = ""
    operations: Mapping[str, float] = field(default_factory=dict)
    output_bytes: float = 0.0
    inputs: Mapping[str, int] = field(default_factory=dict)
    tiled: PlanFacts | None = None
    budget: Budget | None = None
    can_rewrite: bool = False
    decision: Decision | None = None
    capped: Capped | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def warps(self) -> int:
        return -(-self.threads // self.arch.warp_size)

    @property
    def before(self) -> Floors:
        """The floors of the kernel as it is."""
        return floors(self.demand, self.setting)

    @property
    def spread(self) -> float:
        """The range of a gain by the model, as a factor up and down."""
        return COUNTED_SPREAD if self.traffic is not None else ASSUMED_SPREAD

    @property
    def stages_tiles(self) -> bool:
        """Whether the hot loop brings tiles into shared memory."""
        return self.loop.kind == "k_loop" or self.loop.count(SHARED_STORES | ASYNC_COPIES) > 0

    @property
    def reuse(self) -> float | None:
        """Bytes that lanes ask for over the unique ones; None where either is not known."""
        if not self.dram_bytes.value or self.blocks is None:
            return None
        if self.traffic is not None:
            return self.traffic.requested_bytes * self.blocks / self.dram_bytes.value
        return self.demand.l2_bytes * self.blocks / self.dram_bytes.value if self.demand.is_whole else None

    @property
    def output_share(self) -> float | None:
        """Of the unique bytes, the part that is written; by the widths in the hot loop where no shapes say so."""
        if self.output_bytes and self.dram_bytes.value:
            return self.output_bytes / self.dram_bytes.value
        stored = sum(map(access_bytes, self.loop.of(GLOBAL_STORES)))
        loaded = sum(map(access_bytes, self.loop.of(GLOBAL_LOADS)))
        return stored / (stored + loaded) if stored and loaded else None

    @property
    def sector_reuse(self) -> float | None:
        """The same of the sectors that warps touch: what is left for L1 and L2 to give twice."""
        if self.traffic is None or not self.dram_bytes.value or self.blocks is None:
            return None
        return self.traffic.sectors * SECTOR_BYTES * self.blocks / self.dram_bytes.value


def evidence(what: str, value: float | int | str, source: str, unit: str = "") -> Evidence:
    """A number in words: three digits, thousands apart."""
    if isinstance(value, float):
        value = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    elif isinstance(value, int):
        value = f"{value:,}"
    return Evidence(what, f"{value} {unit}".rstrip(), source)


def floor_evidence(facts: Facts, *names: str) -> tuple[Evidence, ...]:
    """The floors that a gain follows from."""
    found = facts.before.cycles
    total = facts.before.total or 1.0
    span = "launch" if facts.demand.is_whole else "trip"
    return tuple(
        evidence(f"{FLOOR_NAMES.get(name, name)} takes", f"{found[name] / total:.0%} of the {span}", "model of floors")
        for name in names
        if name in found
    )


FLOOR_NAMES = {
    "latency": "a block's own chain of waits",
    "issue": "issuing instructions",
    "l1": "the pipe to L1 and shared memory",
    "l2": "traffic with L2",
    "dram": "moving the unique bytes from and to DRAM",
    "tensor": "the tensor pipe",
    "fma": "the multiply-add pipe",
    "multiply": "the integer multiply pipe",
    "alu": "the integer pipe",
    "mufu": "the special-function pipe",
}
