"""Tile sizes for the receipt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tilewright.kloop.kernel import Copy, CopyLoop, Fetch, KLoop, LaneStore, LoadItem, SharedArray, Tile
from tilewright.kloop.load_stream import LoadStream
from tilewright.kloop.widen import Widener
from tilewright.source.reader import OpenKernel


def _elements(items: Iterable[LoadItem], threads: int | None) -> dict[int, int]:
    """Elements that the block copies into each staged array per tile, in bytes of the array's own type."""
    out: dict[int, int] = {}

    def add(array: int, count: int | None) -> None:
        if count is not None:
            out[array] = out.get(array, 0) + count

    for item in items:
        if isinstance(item, CopyLoop):
            count = None
            if item.first_value is not None and item.trips is not None and threads is not None:
                count = item.trips * threads
            elif item.bound_value is not None:
                count = item.bound_value
                if item.trips is not None and threads is not None:  # the index steps over what a pass moves at once
                    count = min(count, item.trips * threads)
            for inner in item.body:
                if isinstance(inner, Copy | LaneStore) and count is not None:
                    add(inner.array, count * inner.width_bytes)
        elif isinstance(item, Copy | LaneStore) and threads is not None:
            add(item.array, threads * item.width_bytes)
    return out


def _streamed(stream: LoadStream, threads: int | None) -> dict[int, int]:
    """The same for a load phase that is one text: exact where every thread makes every pass."""
    out: dict[int, int] = {}
    unknown: set[int] = set()
    seen: set[Hashable] = set()
    for store in stream.stores:
        count = threads
        for start in store.loops:
            trips = stream.loops[start].trips
            count = None if count is None or trips is None else count * trips
        if count is None:
            unknown.add(store.array)
        elif store.place not in seen:
            out[store.array] = out.get(store.array, 0) + count * store.width_bytes
        seen.add(store.place)  # the other side of a condition stores to the same place
    return {a: n for a, n in out.items() if a not in unknown}


def _bk(loop: KLoop, loads: Sequence[LoadItem], widener: Widener) -> int | None:
    """Depth of a tile: how far the sources move along their rows from one tile to the next."""
    if loop.step_value is not None and loop.step_value > 1:
        return loop.step_value
    offsets = widener.offsets
    engine = offsets.engine()
    steps: list[int] = []
    key = f"{loop.var.name}#{loop.var.id}"
    for item in loads:
        inner = item.body if isinstance(item, CopyLoop) else (item,)
        for entry in (*((item,) if isinstance(item, CopyLoop) else ()), *inner):
            if isinstance(entry, Copy | Fetch):
                source = offsets.from_pointer(entry.source, engine)
                factor = source.factor_of(key) if source is not None else None
                if factor:
                    steps.append(abs(factor))
    return min(steps) if steps else None


def tile_of(
    kernel: OpenKernel,
    loop: KLoop,
    loads: Sequence[LoadItem],
    staged: tuple[SharedArray, ...],
    widener: Widener,
    threads: int | None,
    stream: LoadStream | None = None,
) -> Tile:
    """BM, BN and BK: from the copies; the constants of those names where they agree or nothing better is known."""
    names = kernel.constants.names()
    bk = _bk(loop, loads, widener) or names.get("BK")
    counts = _elements(loads, threads) if stream is None else _streamed(stream, threads)
    rows: list[int | None] = []
    order = [i.array for i in _copies(loads)] if stream is None else [s.array for s in stream.stores]
    for array in sorted(staged, key=lambda a: order.index(a.symbol)):
        copied = counts.get(array.symbol)
        # Without the thread count the copies cannot be counted, and the array's own size may hold padding.
        # Nor are they where the loop's index steps over what one copy moves: more than the array holds is no count.
        elements = copied // array.element_bytes if copied and copied <= array.total_bytes else 0
        rows.append(elements // bk if bk and elements and elements % bk == 0 else None)
    bm, bn = (rows[0] if rows else None), (rows[1] if len(rows) > 1 else None)
    return Tile(bm, bn, bk, {a.name: a.dims for a in staged}, threads, {a.name: a.type_text for a in staged})


def _copies(items: Iterable[LoadItem]) -> Iterable[Copy | LaneStore]:
    for item in items:
        if isinstance(item, CopyLoop):
            yield from _copies(item.body)
        elif isinstance(item, Copy | LaneStore):
            yield item
