"""Rings inside the launch's own dynamic shared memory: where every array goes, and how many bytes that takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.kloop.kernel import SharedArray, TiledKernel

ALIGNMENT_BYTES = 128  # what TMA asks of shared addresses, and more than any other copy


@dataclass(frozen=True)
class Pool:
    """The dynamic buffer of one rewrite.

    Attributes:
        name: what the kernel calls it.
        offsets: first byte of every array (of a staged one: of its ring), by symbol.
        total_bytes: what the launch has to provide. original_bytes: what it provides without the rewrite.
    """

    name: str
    offsets: Mapping[int, int]
    total_bytes: int
    original_bytes: int


def pool_of(kernel: TiledKernel, stages: int) -> Pool | None:
    """The layout with ``stages`` buffers of every staged array; None where no array lies in dynamic memory.

    Arrays that lie over each other are used one after the other: the rings may take the room of those that the K-loop
    does not use. All others get room of their own.
    """
    views = [a for a in kernel.shared if a.pool is not None]
    if not views or kernel.launch_shared_bytes is None:
        return None
    name = kernel.symbols[views[0].pool or 0].name
    staged = {a.symbol for a in kernel.staged}
    if stages == 1 or not any(a.symbol in staged for a in views):
        kept = {a.symbol: a.offset_bytes for a in views}
        return Pool(name, kept, kernel.launch_shared_bytes, kernel.launch_shared_bytes)
    offsets: dict[int, int] = {}
    at = end = 0
    for group in groups(views):
        at = _aligned(end)
        start = min(a.offset_bytes for a in group)
        ring = at
        end = at
        for a in sorted(group, key=lambda a: a.offset_bytes):
            if a.symbol in staged:
                offsets[a.symbol] = _aligned(ring)
                ring = offsets[a.symbol] + stages * a.total_bytes
                end = max(end, ring)
            else:
                offsets[a.symbol] = at + a.offset_bytes - start
                end = max(end, offsets[a.symbol] + a.total_bytes)
    return Pool(name, offsets, end, kernel.launch_shared_bytes)


def grown_bytes(kernel: TiledKernel, stages: int) -> int:
    """Shared memory that rings of ``stages`` buffers take on top of what the kernel has."""
    pool = pool_of(kernel, stages)
    own = sum(a.total_bytes for a in kernel.staged if a.pool is None or pool is None)
    return (stages - 1) * own + (0 if pool is None else pool.total_bytes - pool.original_bytes)


def groups(views: Iterable[SharedArray]) -> list[list[SharedArray]]:
    """Arrays that share bytes, directly or by way of others, in the order of the buffer."""
    out: list[list[SharedArray]] = []
    end = -1
    for a in sorted(views, key=lambda a: (a.offset_bytes, a.symbol)):
        if a.offset_bytes >= end:
            out.append([])
        out[-1].append(a)
        end = max(end, a.offset_bytes + a.total_bytes)
    return out


def declaration(pool: Pool, array: SharedArray, name: str, leading: str = "") -> str:
    """``auto &name = …;``: the array where the layout puts it; ``leading``: dimensions in front of its own."""
    dims = leading + "".join(f"[{d}]" for d in array.dims)
    at = pool.offsets[array.symbol]
    place = f"{pool.name} + {at}" if at else pool.name
    return f"auto &{name} = *reinterpret_cast<{array.type_text} (*){dims}>({place});"


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
