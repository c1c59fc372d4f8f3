"""What a rewrite yields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tilewright.launch.bind import LaunchChange

VariantName = Literal["ldg", "ldg_single", "cp_async", "bulk", "tma", "widen", "retile", "cap_registers"]


@dataclass(frozen=True)
class Remedy:
    """What may be added where the compiler undid the overlap, in the order of SPEC step 7.

    Attributes:
        unroll_one: ``#pragma unroll 1`` on the K-loop.
        restore_unroll: ``#pragma unroll`` on the constant loops of the compute phase.
        early_loads: the next tile's loads in front of the barrier that the compute phase waits at (ldg, ldg_single).
        fence: a compiler fence behind the issue of the next tile's loads.
        cap_registers: ``__launch_bounds__`` asks for so many blocks per SM at least; 0 where it asks for none. It is
            written into the finished text, by no rewriter.
        at_loads: registers hold what is loaded, and not what is stored: what is computed from it waits for it behind
            the compute phase (ldg, ldg_single; only a load phase that is taken as a whole has the choice).
    """

    unroll_one: bool = False
    restore_unroll: bool = False
    early_loads: bool = False
    fence: bool = False
    cap_registers: int = 0
    at_loads: bool = False

    def text(self) -> str:
        words = [
            ("registers that hold what is loaded, not what is stored", self.at_loads),
            ("#pragma unroll on the compute phase", self.restore_unroll),
            ("#pragma unroll 1 on the K-loop", self.unroll_one),
            ("loads in front of the barrier", self.early_loads),
            ("a compiler fence", self.fence),
            (f"__launch_bounds__ for {self.cap_registers} blocks per SM", bool(self.cap_registers)),
        ]
        return ", ".join(w for w, on in words if on)


@dataclass(frozen=True)
class RewrittenSource:
    """A variant's source.

    Attributes:
        text: the whole file. diff: unified, against the input.
        barriers_per_tile: barriers that a thread passes per tile in the steady state.
        dynamic_bytes: dynamic shared memory that the launch has to ask for; None leaves what it asks for.
        change: everything else that the launch has to do differently (its ``shared_bytes`` counts for nothing).
    """

    variant: VariantName
    stages: int
    text: str
    diff: str
    barriers_per_tile: int
    dynamic_bytes: int | None = None
    remedy: Remedy = field(default_factory=Remedy)
    assumptions: tuple[str, ...] = ()
    change: LaunchChange = field(default_factory=LaunchChange)

    @property
    def launch(self) -> LaunchChange:
        """All that the variant changes for its caller."""
        return replace(self.change, shared_bytes=self.dynamic_bytes)
