"""Whether the copies that one thread makes into a tile touch different bytes.

Stores happen in the order in which they are written. Asynchronous copies land in any order, so two of them that touch
the same bytes (a vector copy and a fix-up of one lane behind it) must stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.kloop.affine import P, Poly
from tilewright.kloop.concrete import Concrete
from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore, LoadItem, Refusal
from tilewright.kloop.offsets import Offsets

_MAX_PAIRS = 4096


@dataclass(frozen=True)
class _Entry:
    """``base + factor · pass`` for pass in 0 … passes-1, in bytes; or, where known, every offset that the block
    writes (``all_bytes``: first bytes)."""

    item: Copy | LaneStore
    base: Poly | None
    factor: int
    passes: int
    all_bytes: frozenset[int] | None


class Disjoint:
    """Judges the copies of one load phase."""

    def __init__(self, offsets: Offsets, line: Callable[[int], int]) -> None:
        self._offsets = offsets
        self._line = line

    def judge(self, loads: Iterable[LoadItem]) -> Refusal | None:
        """The first two copies that may touch the same bytes; None where no two can."""
        entries: list[_Entry] = []
        for item in loads:
            entries += self._of(item)
        for i, entry in enumerate(entries):
            refused = self._alone(entry)
            for other in entries[:i]:
                if refused is None and other.item.array == entry.item.array and not self._apart(other, entry):
                    refused = self._no(entry, "two copies of a tile may touch the same bytes")
            if refused is not None:
                return refused
        return None

    def _no(self, entry: _Entry, what: str) -> Refusal:
        return Refusal(
            "not_understood",
            f"{what}, and asynchronous copies land in any order",
            self._line(entry.item.stmt.span.start),
            "the ldg variants keep the order",
        )

    def _of(self, item: LoadItem) -> list[_Entry]:
        if isinstance(item, Copy | LaneStore):
            return [_Entry(item, self._offsets.bytes_into(item.target, self._offsets.engine()), 0, 1, None)]
        if not isinstance(item, CopyLoop):
            return []
        counted = item.trips is not None and item.stride_value is not None
        start = self._offsets.engine().poly(item.first)
        variable = start + Poly.atom(P) * Poly.constant(item.stride_value or 0)
        inside = self._offsets.engine_in(item, variable) if counted else None
        out: list[_Entry] = []
        for entry in item.body:
            if isinstance(entry, Copy | LaneStore):
                poly = None
                if inside is not None:
                    poly = self._offsets.bytes_into(entry.target, inside)
                factor = poly.factor_of(P) if poly is not None else None
                base = poly.without(P) if poly is not None and factor is not None else None
                out.append(_Entry(entry, base, factor or 0, item.trips or 0, self._everywhere(item, entry)))
        return out

    def _everywhere(self, loop: CopyLoop, item: Copy | LaneStore) -> frozenset[int] | None:
        """Every offset the loop writes, where it depends on nothing but the loop's variable; None where two meet."""
        found = self._offsets.element(item.target)
        if found is None or loop.bound_value is None or loop.first_value not in (None, 0) or item.width_bytes == 0:
            return None
        array, indices = found
        concrete = Concrete(self._offsets.constants, loop.var.id, self._offsets.locals_of(loop), self._offsets.fixed)
        columns = [concrete.values(index, loop.bound_value) for index in indices]
        if any(c is None for c in columns):
            return None
        out: set[int] = set()
        for row in zip(*(c for c in columns if c is not None), strict=True):
            offset, pitch = 0, array.element_bytes
            for index, dim in zip(row, reversed(array.dims), strict=True):
                offset, pitch = offset + index * pitch, pitch * dim
            out.add(offset)
        return frozenset(out) if len(out) == loop.bound_value else None

    def _alone(self, entry: _Entry) -> Refusal | None:
        """The passes of one copy against each other."""
        if entry.passes == 1 or entry.all_bytes is not None:
            return None
        if entry.base is None or abs(entry.factor) < entry.item.width_bytes:
            return self._no(entry, "two passes of a copy loop may touch the same bytes")
        return None

    def _apart(self, a: _Entry, b: _Entry) -> bool:
        if a.all_bytes is not None and b.all_bytes is not None:
            return not a.all_bytes & b.all_bytes
        if a.base is None or b.base is None or a.passes * b.passes > _MAX_PAIRS:
            return False
        distance = (b.base - a.base).constant_value()
        if distance is None:
            return False
        return all(
            distance + b.factor * q >= a.factor * p + a.item.width_bytes
            or distance + b.factor * q + b.item.width_bytes <= a.factor * p
            for p in range(a.passes)
            for q in range(b.passes)
        )
