"""What `tilewright tile` returns, as a JSON record of its own; the parts are the tile room's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.receipt.record import Tool

if TYPE_CHECKING:
    from tilewright.tile.autotune import TuningPlan
    from tilewright.tile.candidate import Candidate
    from tilewright.tile.choice import Choice
    from tilewright.tile.partition import Partition
    from tilewright.tile.ranges import RangeChoice

TILE_SCHEMA = 1


@dataclass(frozen=True)
class TileSkeleton:
    """The kernel that the choice was written as.

    Attributes:
        source, sidecar: the texts; ``suffix`` is the file's.
        second_kernel, second_sidecar: of the pass that follows (split-K, split rows); "" without one.
        reference: the Python file that says what should come out; "" without one.
        files: what ``--out`` wrote; empty without it.
        refusal: why there is no skeleton; "" where there is one.
    """

    kernel: str = ""
    second_kernel: str = ""
    suffix: str = ".cu"
    source: str = ""
    sidecar: str = ""
    second_sidecar: str = ""
    reference: str = ""
    files: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class TileReport:
    """`tilewright tile OP DIMS`.

    Attributes:
        dims: by name; of a dynamic shape at its upper end. ``dynamic``: that dim's name, "" where the shape is fixed.
        device_reason: where the card came from, one sentence.
        smem_max_bytes: that a block gets, opted in.
        candidates: the fastest of each block shape, fastest first; ``legal``: how many there are in all.
        calibrated: the times come from a model that was fitted to measurements of this kind of op on this card.
        ranges: of a dynamic shape, the choice from where to where.
    """

    schema: int = TILE_SCHEMA
    tool: Tool
    op: str
    dims: Mapping[str, int]
    dynamic: str
    dtype: str
    target: str
    arch: str
    device: str
    device_reason: str
    smem_max_bytes: int
    legal: int
    calibrated: bool
    candidates: tuple[Candidate, ...]
    choice: Choice
    partition: Partition
    advice: tuple[str, ...]
    rules: tuple[str, ...]
    ranges: tuple[RangeChoice, ...]
    skeleton: TileSkeleton
    plan: TuningPlan
    notes: tuple[str, ...] = ()
