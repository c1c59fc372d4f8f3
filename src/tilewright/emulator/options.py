"""How a kernel is emulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["lockstep", "warp_serial", "random"]
Blocks = Literal["all", "corners"]


@dataclass(frozen=True)
class EmulatorOptions:
    """Attributes:

    schedule: ``lockstep`` runs all threads together; ``warp_serial`` one warp until it is held up, then the next;
        ``random`` picks a warp at each step, by ``seed``; None: another one in each attempt, beginning with lock-step.
    checks: look for hazards. counters: count memory traffic and instructions.
    blocks: which thread blocks run: all, or the corners and the middle of the grid.
    is_repeat: a second run of the same launch: blocks of a batch in descending order, and other bytes in local memory
        that nobody wrote, so that results that follow from either differ between the runs.
    lands: asynchronous copies land at their wait (``deferred``, their target poisoned until then) or at once.
    max_seconds: a kernel that runs longer is stopped; None: no bound.
    chunk_threads: threads that run at once. shadow_bytes: memory that checks and shared memory may take.
    """

    schedule: Schedule | None = None
    checks: bool = True
    counters: bool = False
    blocks: Blocks = "all"
    is_repeat: bool = False
    lands: Literal["deferred", "eager"] = "deferred"
    seed: int = 0
    max_seconds: float | None = 600.0
    chunk_threads: int = 16384
    shadow_bytes: int = 256 << 20


def chosen_blocks(grid: tuple[int, int, int], which: Blocks) -> list[int]:
    """Linear indices of the blocks that run, ascending."""
    x, y, z = grid
    if which == "all":
        return list(range(x * y * z))
    ends = [sorted({0, extent - 1}) for extent in grid]
    chosen = {(i, j, k) for k in ends[2] for j in ends[1] for i in ends[0]} | {(x // 2, y // 2, z // 2)}
    return sorted((k * y + j) * x + i for i, j, k in chosen)
