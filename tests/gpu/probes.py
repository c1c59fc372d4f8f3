"""Single instructions whose rounding, special values or layouts the PTX ISA leaves open, as kernels over arrays.

The emulator computes each too; ``replay_on_gpu.py`` says how far apart the two are.
"""

from __future__ import annotations

from dataclasses import dataclass

from op_harness import Program
from replays import Array

TARGET = "sm_90a"
THREADS = 8192


@dataclass(frozen=True)
class Probe:
    """One program and its inputs.

    Attributes:
        types: of the outputs, for distances; () for the program's.
        note: what is uncertain.
    """

    name: str
    program: Program
    inputs: tuple[Array, ...]
    threads: int = THREADS
    block: int = 64
    types: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether no rounding can make a difference: layouts, and sums of small whole numbers."""
        return self.name.startswith(("wmma.load", "wmma.store")) or " whole" in self.name
