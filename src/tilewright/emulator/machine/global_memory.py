"""Global memory: buffers with exact bounds. Parameters and constants that are addressed lie here too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.addresses import OFFSET_BITS, OFFSET_MASK, SHIFT
from tilewright.emulator.machine.chunk import Active, Array

if TYPE_CHECKING:
    from tilewright.emulator.checks.block_order import BlockOrder
    from tilewright.emulator.machine.watch import Watch


@dataclass
class Reach:
    """How far a buffer was used.

    Attributes:
        read_end, write_end: the end of the furthest read and write, in bytes; 0 where there was none.
        is_read_first: bytes were read that nobody had written.
    """

    read_end: int = 0
    write_end: int = 0
    is_read_first: bool = False


@dataclass
class Buffer:
    """Bytes that a kernel may address.

    Attributes:
        name: of the argument or symbol.
        data: uint8; a run writes into it.
        is_writable: stores are what the caller expects.
        written: one bool per byte of a buffer that nobody filled, else None.
        touched: one bool per byte, for a caller who asks what was written; else None.
        item_bytes: of an element.
        order: which blocks read and wrote it, where nothing can order them; else None.
        reach: how far it was used, for a caller who asks; else None.
    """

    name: str
    data: Array
    is_writable: bool = True
    written: Array | None = None
    touched: Array | None = None
    item_bytes: int = 1
    order: BlockOrder | None = None
    reach: Reach | None = None
    _views: dict[str, Array] = field(default_factory=dict)

    @property
    def is_noted(self) -> bool:
        """Accesses are looked at one by one."""
        marked = self.written is not None or self.touched is not None or self.order is not None
        return marked or not self.is_writable or self.reach is not None

    def view(self, dtype: str) -> Array:
        found = self._views.get(dtype)
        if found is None:
            size = np.dtype(dtype).itemsize
            found = self._views[dtype] = self.data[: self.data.size // size * size].view(dtype)
        return found


class GlobalMemory:
    def __init__(self, watch: Watch) -> None:
        self.buffers: dict[int, Buffer] = {}
        self.watch = watch

    def add(self, buffer: Buffer, number: int | None = None) -> int:
        """Place a buffer; its address."""
        key = number if number is not None else len(self.buffers) + 1
        self.buffers[key] = buffer
        return key << OFFSET_BITS

    # -- scalar accesses ---------------------------------------------------------------------------------

    def load(self, active: Active, address: Any, size: int, dtype: str, site: int) -> Any:
        """Values at ``address`` (int64, per thread or one for all); 0 where it is out of bounds."""
        found = self._single(active, address, size, site, "read")
        if found is not None:
            buffer, offset = found
            return buffer.view(dtype)[offset >> SHIFT[size]]
        address = active.spread(address)
        out = np.zeros(active.count, dtype)
        for buffer, offset, mask in self._groups(active, address, size, site, "read"):
            out[mask] = buffer.view(dtype)[offset[mask] >> SHIFT[size]]
        return out

    def store(self, active: Active, address: Any, size: int, value: Any, dtype: str, site: int) -> None:
        if not np.ndim(address) and np.ndim(value):
            value = value[-1]  # all threads write one place: the last one wins, as any may
        found = self._single(active, address, size, site, "write")
        if found is not None:
            buffer, offset = found
            if buffer.order is not None:
                self._in_order(active, buffer, active.spread(offset), _as_rows(active.spread(value), dtype), site)
            buffer.view(dtype)[offset >> SHIFT[size]] = value
            return
        address, value = active.spread(address), active.spread(value)
        for buffer, offset, mask in self._groups(active, address, size, site, "write"):
            if buffer.order is not None and mask.any():
                self._in_order(active.subset(mask), buffer, offset[mask], _as_rows(value[mask], dtype), site)
            buffer.view(dtype)[offset[mask] >> SHIFT[size]] = value[mask]

    # -- vectors -----------------------------------------------------------------------------------------

    def load_vector(self, active: Active, address: Any, count: int, dtype: str, site: int) -> tuple[Any, ...]:
        item = np.dtype(dtype).itemsize
        rows = self.load_rows(active, active.spread(address), item * count, site).view(dtype)
        return tuple(np.ascontiguousarray(rows[:, i]) for i in range(count))

    def store_vector(self, active: Active, address: Any, values: tuple[Any, ...], dtype: str, site: int) -> None:
        rows = np.stack([active.spread(v) for v in values], axis=1).astype(dtype, copy=False)
        self.store_rows(active, active.spread(address), rows.view(np.uint8), site)

    # -- rows of bytes -----------------------------------------------------------------------------------

    def load_rows(self, active: Active, address: Array, size: int, site: int) -> Array:
        """uint8[threads, size]: aligned pieces of 1, 2, 4, 8, 16 or 32 bytes."""
        found = self._single(active, address, size, site, "read")
        if found is not None:
            buffer, offset = found
            return _pieces(buffer, size)[offset // size].view(np.uint8).reshape(-1, size)  # type: ignore[no-any-return]
        out = np.zeros((len(address), size), np.uint8)
        for buffer, offset, mask in self._groups(active, address, size, site, "read"):
            out[mask] = _pieces(buffer, size)[offset[mask] // size].view(np.uint8).reshape(-1, size)
        return out

    def store_rows(self, active: Active, address: Array, rows: Array, site: int) -> None:
        size = rows.shape[1]
        pieces = np.ascontiguousarray(rows).view(f"V{size}").reshape(-1)
        found = self._single(active, address, size, site, "write")
        if found is not None:
            buffer, offset = found
            if buffer.order is not None:
                self._in_order(active, buffer, offset, rows, site)
            _pieces(buffer, size)[offset // size] = pieces
            return
        for buffer, offset, mask in self._groups(active, address, size, site, "write"):
            if buffer.order is not None and mask.any():
                self._in_order(active.subset(mask), buffer, offset[mask], rows[mask], site)
            _pieces(buffer, size)[offset[mask] // size] = pieces[mask]

    def targets(self, active: Active, address: Array, size: int, site: int) -> Iterator[tuple[Buffer, Array, Array]]:
        """(buffer, offsets, which threads) of what is read and written at once."""
        found = self._single(active, address, size, site, "write")
        if found is not None:
            yield found[0], found[1], np.ones(active.count, bool)
            return
        yield from self._groups(active, address, size, site, "write")

    # -- bounds ------------------------------------------------------------------------------------------

    def _single(self, active: Active, address: Any, size: int, site: int, what: str) -> tuple[Buffer, Any] | None:
        """The buffer and offsets, where all addresses lie well inside one."""
        self.watch.global_access(active, address, size, site, what)
        if getattr(address, "ndim", 0):
            low, high = int(address.min()), int(address.max())
            bits = int(np.bitwise_or.reduce(address))
        else:
            low = high = bits = int(address)
        number = low >> OFFSET_BITS
        buffer = self.buffers.get(number)
        if buffer is None or (high >> OFFSET_BITS) != number:
            return None
        base = number << OFFSET_BITS
        if high - base + size > buffer.data.size:
            return None
        if bits & (size - 1):
            self._misaligned(active, active.spread(address), size, site, what)
        offset = address - base if number else address
        if buffer.is_noted:
            self._note(active, buffer, active.spread(offset), size, site, what)
        return buffer, offset

    def _groups(
        self, active: Active, address: Array, size: int, site: int, what: str
    ) -> list[tuple[Buffer, Array, Array]]:
        """(buffer, offsets, which threads) for addresses in several buffers, or in none: those are reported."""
        numbers = address >> OFFSET_BITS
        out = []
        for number in np.unique(numbers):
            mask = numbers == number
            buffer, behind = self.buffers.get(int(number)), self.buffers.get(int(number) + 1)
            before = mask & ((address & OFFSET_MASK) > OFFSET_MASK // 2)
            if behind is not None and before.any():  # nearer to the start of the next one than to the end of this one
                offset = (address & OFFSET_MASK) - (OFFSET_MASK + 1)
                self.watch.out_of_bounds(active, before, offset, size, site, what, behind.name, behind.data.size)
                mask = mask & ~before
                if not mask.any():
                    continue
            if buffer is None:
                self.watch.out_of_bounds(active, mask, address, size, site, what, "", 0)
                continue
            offset = address & OFFSET_MASK
            outside = mask & (offset + size > buffer.data.size)
            if outside.any():
                self.watch.out_of_bounds(active, outside, offset, size, site, what, buffer.name, buffer.data.size)
            inside = mask & ~outside
            if (offset[inside] & (size - 1)).any():
                self._misaligned(active, np.where(inside, offset, 0), size, site, what)
            if buffer.is_noted and inside.any():
                self._note(active.subset(inside), buffer, offset[inside], size, site, what)
            out.append((buffer, offset, inside))
        return out

    def _note(self, active: Active, buffer: Buffer, offset: Array, size: int, site: int, what: str) -> None:
        if buffer.reach is not None:
            end = int(offset.max()) + size
            if what == "write":
                buffer.reach.write_end = max(buffer.reach.write_end, end)
            else:
                buffer.reach.read_end = max(buffer.reach.read_end, end)
        if what == "write":
            if not buffer.is_writable:
                self.watch.input_modified(active, offset, size, site, buffer.name)
            for marks in (buffer.written, buffer.touched):
                if marks is not None:
                    marks[offset[:, None] + np.arange(size)] = True
            return
        if buffer.order is not None:
            strange = buffer.order.read(active.block_ids, offset, size)
            if strange is not None:
                self.watch.between_blocks("race_between_blocks", active, strange, offset, size, site, buffer.name)
        if buffer.written is not None:
            fresh: Array = ~buffer.written[offset[:, None] + np.arange(size)]
            if fresh.any() and buffer.reach is not None:
                buffer.reach.is_read_first = True
            elif fresh.any():
                self.watch.global_uninitialised(active, np.asarray(fresh.any(axis=1)), offset, size, site, buffer.name)

    def _in_order(self, active: Active, buffer: Buffer, offset: Array, rows: Array, site: int) -> None:
        """Stores of ``rows`` (uint8[threads, size]), before they are made."""
        assert buffer.order is not None
        size = rows.shape[1]
        old = _pieces(buffer, size)[offset // size].view(np.uint8).reshape(-1, size)
        found = buffer.order.write(active.block_ids, offset, old, rows)
        if found is None:
            return
        for kind, strange in zip(("overlapping_blocks", "race_between_blocks"), found, strict=True):
            if strange.any():
                self.watch.between_blocks(kind, active, strange, offset, size, site, buffer.name)

    def _misaligned(self, active: Active, address: Array, size: int, site: int, what: str) -> None:
        at = int(np.flatnonzero(address & (size - 1))[0])
        number = int(address[at]) >> OFFSET_BITS
        name = self.buffers[number].name if number in self.buffers else "memory"
        thread = int(active.chunk.tid[active.threads[at]])
        place = f"{name}+{int(address[at]) & OFFSET_MASK}"
        raise Fault("misaligned", f"thread {thread} {what}s {size} bytes at {place}, not a multiple of {size}", site)


def _as_rows(value: Array, dtype: str) -> Array:
    """uint8[threads, size]."""
    item = np.ascontiguousarray(value).astype(dtype, copy=False)
    return item.view(np.uint8).reshape(len(item), -1)


def _pieces(buffer: Buffer, size: int) -> Array:
    return buffer.view(f"V{size}")
