"""Tensor maps in memory, and copies between their boxes and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import OFFSET_BITS, OFFSET_MASK
from tilewright.emulator.machine.chunk import Active, Array
from tilewright.emulator.machine.global_memory import Buffer, GlobalMemory
from tilewright.emulator.tensor import boxes
from tilewright.emulator.tensor.maps import MAP_BYTES, TensorMap, decode
from tilewright.errors import TilewrightError

ALIGN_BYTES = 64  # of a map. CUDA Driver API, "CUtensorMap"


@dataclass(frozen=True)
class Mapped:
    """Threads that name one map, their positions in the call, and the buffer that the tensor lies in."""

    tensor: TensorMap
    buffer: Buffer
    active: Active
    which: Array


class TensorMaps:
    def __init__(self, globe: GlobalMemory) -> None:
        self.globe = globe
        self._known: dict[bytes, TensorMap] = {}

    def find(self, active: Active, address: Any, rank: int, site: int) -> Iterator[Mapped]:
        """The maps at ``address`` (generic; one or per thread). Raises Fault where there is none of this rank."""
        if not getattr(address, "ndim", 0):
            yield self._at(active, int(address), np.arange(active.count), rank, site)
            return
        for value in np.unique(address):
            which = np.flatnonzero(address == value)
            yield self._at(Active(active.chunk, active.threads[which]), int(value), which, rank, site)

    def _at(self, active: Active, address: int, which: Array, rank: int, site: int) -> Mapped:
        holder, offset = self.globe.buffers.get(address >> OFFSET_BITS), address & OFFSET_MASK
        raw = b"" if holder is None else holder.data[offset : offset + MAP_BYTES].tobytes()
        tensor = self._known.get(raw)
        if tensor is None:
            tensor = decode(raw)
            if tensor is None or offset % ALIGN_BYTES:
                raise Fault("bad_tensor_map", "the copy's first operand is not the address of a tensor map", site)
            self._known[raw] = tensor
        if tensor.rank != rank:
            raise Fault("bad_tensor_map", f"a copy with {rank} coordinates of a tensor of rank {tensor.rank}", site)
        buffer = self.globe.buffers.get(tensor.buffer_id)
        if buffer is None:
            raise Fault("bad_tensor_map", "the tensor map's address lies in no buffer", site)
        return Mapped(tensor, buffer, active, which)

    def load(self, mapped: Mapped, corners: Array, site: int) -> Array:
        """uint8[n, box bytes] of the boxes at ``corners``, int64[n, rank]."""
        tensor, buffer = mapped.tensor, mapped.buffer
        self._check_corners(tensor, corners, site)
        self._tally(mapped, corners, site, False)
        with _Told("out_of_bounds_read", site):
            rows = boxes.gather(tensor, buffer.data, corners)
            if buffer.written is not None:
                fresh = boxes.gather(tensor, (~buffer.written).view(np.uint8), corners).max(axis=1) > 0
                if fresh.any():
                    offset = np.full(mapped.active.count, tensor.offset_bytes)
                    watch, size = self.globe.watch, tensor.box_bytes
                    watch.global_uninitialised(mapped.active, fresh, offset, size, site, buffer.name)
        return rows

    def store(self, mapped: Mapped, corners: Array, rows: Array, operation: str, site: int) -> None:
        """``operation``: of a reduction, or ""."""
        tensor, buffer = mapped.tensor, mapped.buffer
        self._check_corners(tensor, corners, site)
        if not buffer.is_writable:
            offset = np.full(mapped.active.count, tensor.offset_bytes)
            self.globe.watch.input_modified(mapped.active, offset, tensor.box_bytes, site, buffer.name)
        self._tally(mapped, corners, site, True)
        with _Told("out_of_bounds_write", site):
            if operation:
                boxes.reduce(tensor, buffer.data, corners, rows, operation)
            else:
                boxes.scatter(tensor, buffer.data, corners, rows)
            for marks in (buffer.written, buffer.touched):
                if marks is not None:
                    boxes.scatter(tensor, marks.view(np.uint8), corners, np.ones_like(rows))

    def _check_corners(self, tensor: TensorMap, corners: Array, site: int) -> None:
        wrong = boxes.misplaced(tensor, corners)
        if wrong.any():
            first = int(corners[np.argmax(wrong), 0])
            place = f"{first} elements of {tensor.element_bytes} bytes"
            raise Fault("misaligned", f"a box begins at {place} along its rows, not at a multiple of 16 bytes", site)

    def _tally(self, mapped: Mapped, corners: Array, site: int, is_write: bool) -> None:
        if self.globe.watch.tally is not None:
            with _Told("not_modelled", site):
                rows = boxes.rows_of(mapped.tensor, corners)
            self.globe.watch.tally.boxes(rows.offset_bytes, rows.span_bytes, site, is_write)


class _Told:
    """What the tensor room refuses becomes a fault with a line."""

    def __init__(self, kind: str, site: int) -> None:
        self.kind = kind
        self.site = site

    def __enter__(self) -> None:
        pass

    def __exit__(self, type_: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TilewrightError):
            kind = self.kind if error.code == "emulator/tensor_beyond_buffer" else "not_modelled"
            raise Fault(kind, error.message.rstrip("."), self.site) from error
