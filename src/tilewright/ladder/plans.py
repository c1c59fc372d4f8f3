"""A rung at sizes, loaded on a card: what is left to do is to put it on a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.gpu.driver import checked, fill
from tilewright.ladder.family import Rung
from tilewright.ladder.packed import PackedLaunch
from tilewright.ladder.workspaces import Workspaces
from tilewright.launch.bind import BoundArray


@dataclass(frozen=True)
class Step:
    """One kernel of a plan.

    Attributes:
        cleared: arrays that have to be zero before it.
    """

    launch: PackedLaunch
    cleared: tuple[BoundArray, ...]


@dataclass(frozen=True)
class Plan:
    """A rung at sizes, loaded on a card.

    Attributes:
        card: its ordinal. scratch: bytes of each array that is the rung's own, for one call. kept: those that stay.
        is_bare: it is its kernels and nothing else.
    """

    rung: Rung
    card: int
    steps: tuple[Step, ...]
    scratch: Mapping[str, int]
    kept: Workspaces | None = None
    is_bare: bool = False


def put(plan: Plan, pointers: Mapping[str, int], stream: int) -> None:
    """A plan's kernels on a stream of the current card. Raises DeviceError where the driver refuses one."""
    if plan.is_bare:
        for step in plan.steps:
            step.launch(pointers.__getitem__, stream)
        return
    own = {name: _Scratch(count_bytes, stream) for name, count_bytes in plan.scratch.items()}
    places = dict(pointers)
    if plan.kept is not None:
        places |= plan.kept.at(stream)
    for name, scratch in own.items():
        places[name] = scratch.pointer
    for step in plan.steps:
        for array in step.cleared:
            fill(places[array.name], 0, array.storage_elements * array.dtype.item_bytes, stream)
        step.launch(places.__getitem__, stream)
    for scratch in own.values():
        scratch.release()


class _Scratch:
    """Memory of one call, in the order of its stream."""

    def __init__(self, count_bytes: int, stream: int) -> None:
        from cuda.bindings import driver

        self._stream = stream
        self.pointer = int(checked(driver.cuMemAllocAsync(max(count_bytes, 1), stream)))

    def release(self) -> None:
        from cuda.bindings import driver

        driver.cuMemFreeAsync(self.pointer, self._stream)
