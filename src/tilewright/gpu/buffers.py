"""Device buffers between red zones: a kernel that writes outside of its arrays is found out, and hits nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.gpu.driver import DeviceError, allocate, copy_on_device, fill, release, synchronize, to_device, to_host
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Hazard

if TYPE_CHECKING:
    import numpy as np

# On each side of an array. Wide enough for some rows of a tile that hangs over the edge, and a multiple of 256, so that
# the array is aligned as cudaMalloc aligns it. Beyond it, a stray write may still go unseen.
ZONE_BYTES = 256 * 1024


def zone_byte(index: int) -> int:
    """The value of the red zones of the buffer ``index``: different ones, so that copying one into another shows.

    From 0xFF down: as a floating number, a NaN or a huge one, so that reading it spoils a result too.
    """
    return 0xFF - index % 16


@dataclass(frozen=True)
class GuardedBuffer:
    """One array on the device.

    Attributes:
        name: of the argument that owns it.
        base: address of the allocation, the front zone's start.
        count_bytes: of the array.
        zone: value of the bytes of both zones.
    """

    name: str
    base: int
    count_bytes: int
    zone: int

    @property
    def pointer(self) -> int:
        """Address of the array."""
        return self.base + ZONE_BYTES


class DeviceArrays:
    """The arrays of one launch on the device. Use it as a context manager."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._buffers: dict[str, GuardedBuffer] = {}

    def __enter__(self) -> DeviceArrays:
        return self

    def __exit__(self, _kind: object = None, error: object = None, _trace: object = None) -> None:
        if isinstance(error, DeviceError) and error.is_hung:
            return
        for buffer in self._buffers.values():
            release(buffer.base)
        self._buffers.clear()

    def upload(self, launch: BoundLaunch, arrays: Mapping[str, np.ndarray]) -> None:
        """Allocate and fill a buffer for each of ``launch.buffers``. An empty array gets a valid address too."""
        import numpy as np

        for index, bound in enumerate(launch.buffers):
            array = np.ascontiguousarray(arrays[bound.name])
            zone = zone_byte(index)
            base = allocate(array.nbytes + 2 * ZONE_BYTES)
            self._buffers[bound.name] = buffer = GuardedBuffer(bound.name, base, array.nbytes, zone)
            fill(base, zone, array.nbytes + 2 * ZONE_BYTES, self._stream)
            to_device(buffer.pointer, array, self._stream)
        synchronize(self._stream)  # the host arrays may be dropped from here on

    def lay_out(self, launch: BoundLaunch, arrays: Mapping[str, np.ndarray], poison: int) -> None:
        """As `upload`, for arrays that are only timed: large ones, of which the host makes and sends a part.

        Args:
            arrays: the first values of some of ``launch.buffers``, which are repeated on the device.
            poison: value of all bytes of the others.
        """
        import numpy as np

        for index, bound in enumerate(launch.buffers):
            count_bytes, zone = bound.storage_elements * bound.dtype.item_bytes, zone_byte(index)
            base = allocate(count_bytes + 2 * ZONE_BYTES)
            self._buffers[bound.name] = buffer = GuardedBuffer(bound.name, base, count_bytes, zone)
            fill(base, zone, count_bytes + 2 * ZONE_BYTES, self._stream)
            if bound.name not in arrays:
                fill(buffer.pointer, poison, count_bytes, self._stream)
                continue
            first = np.ascontiguousarray(arrays[bound.name])
            to_device(buffer.pointer, first, self._stream)
            for begin, piece_bytes in doubled(first.nbytes, count_bytes):
                copy_on_device(buffer.pointer + begin, buffer.pointer, piece_bytes, self._stream)
        synchronize(self._stream)

    def pointer(self, name: str) -> int:
        return self._buffers[name].pointer

    def download(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Fresh host arrays of the same sizes and dtypes as ``arrays``."""
        import numpy as np

        result = {name: np.empty_like(arrays[name]) for name in self._buffers}
        for name, array in result.items():
            to_host(array, self.pointer(name), self._stream)
        synchronize(self._stream)
        return result

    def stray_writes(self) -> tuple[Hazard, ...]:
        """One hazard for each red zone in which a byte has changed."""
        import numpy as np

        hazards: list[Hazard] = []
        for buffer in self._buffers.values():
            zones = np.empty((2, ZONE_BYTES), np.uint8)
            to_host(zones[0], buffer.base, self._stream)
            to_host(zones[1], buffer.pointer + buffer.count_bytes, self._stream)
            synchronize(self._stream)
            hazards += zone_hazards(buffer.name, zones, buffer.zone)
        return tuple(hazards)


def doubled(first_bytes: int, count_bytes: int) -> list[tuple[int, int]]:
    """The copies that repeat the first bytes of an array to its end: (where to, how many), each from its start."""
    pieces, done = [], first_bytes
    while 0 < done < count_bytes:
        pieces.append((done, min(done, count_bytes - done)))
        done += pieces[-1][1]
    return pieces


def zone_hazards(name: str, zones: np.ndarray, zone: int) -> list[Hazard]:
    """What the zones before and after an array, as (2, ZONE_BYTES) uint8, tell."""
    import numpy as np

    hazards: list[Hazard] = []
    for side, bytes_of_zone in enumerate(zones):
        changed = np.flatnonzero(bytes_of_zone != zone)
        if changed.size == 0:
            continue
        if side == 0:
            nearest = zones.shape[1] - int(changed[-1])
            where = f"before the start of '{name}', the nearest {nearest:,} bytes before it"
        else:
            where = f"after the end of '{name}', the nearest {int(changed[0]):,} bytes after it"
        hazards.append(Hazard("out_of_bounds_write", None, f"{changed.size:,} bytes were written {where}."))
    return hazards
