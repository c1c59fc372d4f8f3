"""What a pass sees, what it yields, and what all of them yield together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.loop_sites import Sites
from tilewright.source.edits import Edit
from tilewright.source.line_map import LineMap, original_line
from tilewright.source.reader import OpenKernel


@dataclass(frozen=True)
class Situation:
    """What a pass may look at.

    Attributes:
        kernel: the kernel as the passes before have left it.
        block: threads of a block per dimension, where a sidecar says so.
        shared_bytes: dynamic shared memory of the launch at every size, where that is a constant; else None.
    """

    kernel: OpenKernel
    block: tuple[int, int, int] | None = None
    shared_bytes: int | None = None

    @cached_property
    def sites(self) -> Sites:
        """The kernel's loops and names; the passes that find nothing to do share them."""
        return Sites(self.kernel)


@dataclass(frozen=True)
class Change:
    """One pass's edits, all of them at once.

    Attributes:
        edits: byte spans of the situation's text → their replacement; they must not overlap.
        what: one sentence for the receipt, in the past tense. line: where, in the situation's text.
        shared_bytes: dynamic shared memory that the launch still needs, where the edits change it.
        assumptions: what the edits take for granted, for the receipt.
        measured: the edits follow from the values of the file's constants, and hold for those only.
    """

    edits: tuple[Edit, ...]
    what: str
    line: int
    shared_bytes: int | None = None
    assumptions: tuple[str, ...] = ()
    measured: bool = False


Pass = Callable[[Situation], Change | Refusal | None]
"""Changes, or None where there is nothing (left) to do, or why what is there cannot be brought into another form."""


@dataclass(frozen=True)
class Normalised:
    """A kernel in a form that the analysis reads, or as near to it as the passes came.

    Attributes:
        kernel: the kernel, opened again after the last edit.
        maps: one for each group of edits, the first one first.
        steps: what was done, for the receipt.
        shared_bytes: dynamic shared memory that the launch still needs; None where that did not change.
        refusal: why a pass could not do what the kernel needs; its line is one of the text as handed in.
        assumptions: what the passes took for granted, for the receipt.
        made_for: values of the file's constants that the edits hold for.
    """

    kernel: OpenKernel
    maps: tuple[LineMap, ...] = ()
    steps: tuple[str, ...] = ()
    shared_bytes: int | None = None
    refusal: Refusal | None = None
    assumptions: tuple[str, ...] = ()
    made_for: tuple[str, ...] = ()

    def line(self, line: int) -> int:
        """The line of the text as handed in."""
        return original_line(self.maps, line)
