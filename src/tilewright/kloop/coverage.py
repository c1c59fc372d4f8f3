"""Which shared arrays the load phase fills anew for every tile, to the last byte."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.kloop.kernel import SharedArray
from tilewright.kloop.kloop import KLoopFinder, Phases
from tilewright.kloop.rehearsal import Landing, Rehearsal
from tilewright.source import ir
from tilewright.source.expr_types import Types


class Coverage:
    """Rehearses the load phase for all threads of one block.

    Args:
        block: threads of a block per dimension; where it is not known nothing counts as filled.
    """

    def __init__(
        self,
        finder: KLoopFinder,
        types: Types,
        arrays: Mapping[int, SharedArray],
        block: tuple[int, int, int] | None,
        phases: Phases,
    ) -> None:
        self._finder = finder
        self._types = types
        self._arrays = arrays
        self._block = block
        self._phases = phases

    def filled(self) -> frozenset[int]:
        """Symbols of the arrays of which every byte is stored to, whatever the conditions that are not known."""
        if self._block is None or self._finder.placement.divergent_return is not None:
            return frozenset()
        stores: list[tuple[ir.Assign, int]] = []
        for node in (n for s in self._phases.load for n in ir.walk(s)):
            if isinstance(node, ir.Do) and isinstance(node.expr, ir.Assign):
                place = self._finder.collector.places.of(node.expr.left)
                symbol = place.symbol if place.space == "shared" and node.expr.op == "=" else None
                if symbol is not None and symbol in self._arrays:
                    stores.append((node.expr, symbol))
        kernel, uniformity = self._finder.kernel, self._finder.uniformity
        rehearsal = Rehearsal(
            kernel.constants,
            kernel.symbols,
            self._types,
            self._finder.collector,
            self._arrays,
            lambda name: uniformity.fixed(name, self._phases.header.var.id),
            self._block,
            {id(assign): n for n, (assign, _) in enumerate(stores)},
        )
        landings = rehearsal.run(self._phases.load).landings
        out = set()
        for array in {a for _, a in stores}:
            own = [x for x in landings if stores[x.store][1] == array and x.offsets is not None]
            widths = {n: self._types.bytes_of(a.left) or 0 for n, (a, _) in enumerate(stores)}
            if _covered(own, widths, self._arrays[array].total_bytes):
                out.add(array)
        return frozenset(out)


def _covered(landings: list[Landing], widths: Mapping[int, int], total_bytes: int) -> bool:
    """Whether the stores that happen in any case reach every byte."""
    seen = np.zeros(total_bytes, dtype=bool)
    for i, one in enumerate(landings):
        assert one.offsets is not None
        threads = one.mask != 0
        if one.sides:  # in any case only where the other side of the same condition stores to the same place
            other = next(
                (x for x in landings[i + 1 :] if _opposite(one, x) and widths[x.store] == widths[one.store]), None
            )
            if other is None or other.offsets is None:
                continue
            threads = threads & (other.mask != 0) & (other.offsets == one.offsets)
        for byte in range(widths[one.store]):
            at = one.offsets[threads] + byte
            seen[at[(at >= 0) & (at < total_bytes)]] = True
    return bool(seen.all())


def _opposite(one: Landing, other: Landing) -> bool:
    """Whether exactly one of two stores happens: the two sides of one condition, under the same conditions else."""
    if len(one.sides) != 1 or len(other.sides) != 1:
        return False
    return one.sides[0][0] == other.sides[0][0] and one.sides[0][1] != other.sides[0][1]
