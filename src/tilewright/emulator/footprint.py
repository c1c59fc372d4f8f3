"""What one launch touches of each array: how far it reads and writes, and whether it reads what nobody wrote.

For drafting a sidecar: the extents of arrays follow from a run in which every array is far larger than a kernel would
ask for at such sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.executor import misfit_of, params_of
from tilewright.emulator.faults import Fault
from tilewright.emulator.lower.compile import Parsed, compile_kernel
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer, Reach
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import emulate, text_of
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Hazard


@dataclass(frozen=True)
class Touched:
    """One array, in elements of its dtype.

    Attributes:
        read_end, write_end: one beyond the furthest element that was read or written; 0 where none was.
        written: how many elements were written.
        is_read_first: an element was read before the kernel wrote it.
    """

    read_end: int
    write_end: int
    written: int
    is_read_first: bool

    @property
    def end(self) -> int:
        return max(self.read_end, self.write_end)


@dataclass(frozen=True)
class Footprint:
    """What a launch did. ``error``: why it did not come to its end, or ""."""

    arrays: Mapping[str, Touched]
    hazards: tuple[Hazard, ...]
    error: str = ""


def footprint(
    parsed: Parsed, launch: BoundLaunch, arch: str, max_seconds: float, main_file: str | None = None
) -> Footprint:
    """Run a launch whose arrays are generous, on zeros, and note what it uses of them."""
    misfit = misfit_of(parsed, launch, arch)
    if misfit:
        return Footprint({}, (), misfit)
    try:
        kernel = compile_kernel(parsed, launch.shared_bytes)
    except Fault as fault:
        return Footprint({}, (), text_of(fault, parsed.graph, main_file))
    buffers: list[Buffer] = []
    numbers: dict[str, int] = {}
    for array in launch.buffers:
        numbers[array.name] = len(buffers) + 1
        size_bytes = array.storage_elements * array.dtype.item_bytes
        written = np.zeros(size_bytes, bool) if array.is_written else None
        data = np.zeros(size_bytes, np.uint8)
        reach = Reach()
        buffers.append(Buffer(array.name, data, array.is_written, written, None, array.dtype.item_bytes, reach=reach))
    cluster = parsed.function.cluster or (1, 1, 1)
    geometry = Geometry(launch.grid, launch.block, cluster, kernel.layout.smem_bytes, launch.shared_bytes)
    options = EmulatorOptions(schedule="lockstep", max_seconds=max_seconds)
    done = emulate(kernel, geometry, buffers, params_of(parsed, launch, numbers), options, main_file)
    return Footprint({b.name: _touched(b) for b in buffers}, done.hazards, done.error or "")


def _touched(buffer: Buffer) -> Touched:
    reach = buffer.reach
    assert reach is not None
    item = buffer.item_bytes
    count = int(np.count_nonzero(buffer.written)) // item if buffer.written is not None else 0
    return Touched(-(-reach.read_end // item), -(-reach.write_end // item), count, reach.is_read_first)
