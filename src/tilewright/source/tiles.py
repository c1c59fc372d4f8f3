"""Tile sizes for the receipt, and the facts that the compiler is asked to confirm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.source import ir
from tilewright.source.kernel import Copy, CopyLoop, Fetch, KLoop, LaneStore, LoadItem, Probe, SharedArray, Tile
from tilewright.source.lexical import line_of
from tilewright.source.reader import OpenKernel
from tilewright.source.widen import Widener


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
            for inner in item.body:
                if isinstance(inner, Copy | LaneStore) and count is not None:
                    add(inner.array, count * inner.width_bytes)
        elif isinstance(item, Copy | LaneStore) and threads is not None:
            add(item.array, threads * item.width_bytes)
    return out


def _bk(loop: KLoop, loads: Sequence[LoadItem], widener: Widener) -> int | None:
    """Depth of a tile: how far the sources move along their rows from one tile to the next."""
    if loop.step_value is not None and loop.step_value > 1:
        return loop.step_value
    engine = widener.affine()
    steps: list[int] = []
    key = f"{loop.var.name}#{loop.var.id}"
    for item in loads:
        inner = item.body if isinstance(item, CopyLoop) else (item,)
        for entry in (*((item,) if isinstance(item, CopyLoop) else ()), *inner):
            if isinstance(entry, Copy | Fetch):
                source = widener.flat_source(entry.source, engine)
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
) -> Tile:
    """BM, BN and BK: from the copies; the constants of those names where they agree or nothing better is known."""
    names = kernel.constants.names()
    bk = _bk(loop, loads, widener) or names.get("BK")
    counts = _elements(loads, threads)
    rows: list[int | None] = []
    order = [i.array for i in _copies(loads)]
    for array in sorted(staged, key=lambda a: order.index(a.symbol)):
        copied = counts.get(array.symbol)
        elements = copied // array.element_bytes if copied else array.elements
        rows.append(elements // bk if bk and elements % bk == 0 else None)
    bm, bn = (rows[0] if rows else None), (rows[1] if len(rows) > 1 else None)
    return Tile(bm, bn, bk, {a.name: a.dims for a in staged}, threads, {a.name: a.type_text for a in staged})


def _copies(items: Iterable[LoadItem]) -> Iterable[Copy | LaneStore]:
    for item in items:
        if isinstance(item, CopyLoop):
            yield from _copies(item.body)
        elif isinstance(item, Copy | LaneStore):
            yield item


def probes_of(
    kernel: OpenKernel, loop: KLoop, loads: Sequence[LoadItem], staged: tuple[SharedArray, ...]
) -> tuple[Probe, ...]:
    """Facts that this reading rests on, as C++ constant expressions; the compiler confirms each of them.

    Sizes of the staged arrays, constants of the loops, widths and types of what is copied.
    """
    text = kernel.source.text
    top = loop.first_barrier
    out = [_fact(f"size of {a.name}", f"sizeof({a.name}) == {a.total_bytes}", top, text) for a in staged]
    out += [
        _fact(f"element of {a.name}", f"sizeof({a.name}{'[0]' * len(a.dims)}) == {a.element_bytes}", top, text)
        for a in staged
    ]
    out += _constant("step of the K-loop", loop.step, loop.step_value, loop.stmt, top, text)
    for item in loads:
        if isinstance(item, CopyLoop):
            out += _constant("bound of a copy loop", item.bound, item.bound_value, item.stmt, top, text)
            out += _constant("stride of a copy loop", item.stride, item.stride_value, item.stmt, top, text)
            for inner in item.body:
                out += _copy_probes(inner, text)
        else:
            out += _copy_probes(item, text)
    return tuple(out)


def _fact(tag: str, condition: str, at: ir.Span, text: bytes, wrap: bool = False) -> Probe:
    return Probe(tag, condition, at, wrap, line_of(text, at.start))


def _source(expr: ir.Expr, text: bytes) -> str:
    return text[expr.span.start : expr.span.end].decode()


def _constant(tag: str, expr: ir.Expr, value: int | None, loop: ir.For, at: ir.Span, text: bytes) -> list[Probe]:
    # The step of `++i` has no text of its own.
    if value is None or (loop.update is not None and expr.span == loop.update.span):
        return []
    return [_fact(tag, f"({_source(expr, text)}) == {value}", at, text)]


def _copy_probes(item: LoadItem, text: bytes) -> list[Probe]:
    match item:
        case Copy(converts=False):
            target, value = _source(item.target, text), _source(item.source, text)
            return [
                _fact("width of a copy", f"sizeof({target}) == {item.width_bytes}", item.stmt.span, text, True),
                _fact(
                    "type of a copy",
                    f"tilewright_same<decltype({target}), decltype({value})>::value",
                    item.stmt.span,
                    text,
                    True,
                ),
            ]
        case LaneStore():
            return [
                _fact(
                    "width of a store",
                    f"sizeof({_source(item.target, text)}) == {item.width_bytes}",
                    item.stmt.span,
                    text,
                    True,
                )
            ]
        case Fetch():
            return [_fact("width of a load", f"sizeof({item.symbol.name}) == {item.width_bytes}", item.stmt.span, text)]
    return []
