"""What runs a compiled kernel: the GPU, and the PTX emulator. One protocol, so that ``verify`` knows neither.

Arrays travel as *storages*: one-dimensional, contiguous NumPy arrays by name of the argument that owns the buffer
(``BoundLaunch.buffers``), gaps of strided arrays included. ``BoundLaunch.view`` gives one its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from tilewright.launch.bind import BoundLaunch

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Program:
    """A compiled kernel: what an executor needs.

    Attributes:
        cubin: for the GPU.
        ptx: for the emulator, and for what it says about the arithmetic.
        kernel: the name in the cubin (mangled, unless the source says ``extern "C"``).
        arch: ``sm_86``, ``sm_90a``.
    """

    cubin: bytes
    ptx: str
    kernel: str
    arch: str


@dataclass(frozen=True)
class Hazard:
    """A race, a missing wait or a stray write that was found while a kernel ran.

    Attributes:
        kind: ``out_of_bounds_write``, ``input_modified``, …
        line: of the source, where it is known.
        message: one sentence.
    """

    kind: str
    line: int | None
    message: str


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        arrays: every storage after the run, inputs too; empty where the run failed.
        hazards: what the executor saw.
        error: why the run failed (a launch that was refused, an illegal address); None where it went through.
        touched: where only some of the blocks ran: by storage that may be written, the elements (bool) that were; else
            None.
        ran: where only some of the blocks ran: which, in words.
        is_unsupported: the error is the executor's own limit (an opcode that the emulator does not model) and says
            nothing about the kernel.
    """

    arrays: Mapping[str, np.ndarray]
    hazards: tuple[Hazard, ...] = ()
    error: str | None = None
    touched: Mapping[str, np.ndarray] | None = None
    ran: str = ""
    is_unsupported: bool = False


Part = Literal["all", "corners"]


class Executor(Protocol):
    """Runs one launch on arrays that it is given, and returns what they have become. The given ones stay unchanged."""

    @property
    def name(self) -> Literal["gpu", "emulator"]: ...

    @property
    def arch(self) -> str:
        """The architecture it runs, as ``sm_90``."""
        ...

    @property
    def is_dead(self) -> bool:
        """An earlier fault took the device's context: no later run can succeed."""
        ...

    def part_of(self, size_set: str) -> Part:
        """Which blocks of a launch it runs at a size set of the sidecar: all, or the corners and the middle."""
        ...

    def run(
        self,
        program: Program,
        launch: BoundLaunch,
        arrays: Mapping[str, np.ndarray],
        *,
        attempt: int = 0,
        part: Part = "all",
    ) -> RunResult:
        """Run ``program`` once.

        Args:
            arrays: the storage of each of ``launch.buffers``: filled inputs, poisoned outputs.
            attempt: number of the repetition. What can choose the order of threads takes another for each.
            part: the blocks to run, as ``part_of`` said.
        """
        ...
