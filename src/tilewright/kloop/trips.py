"""How often the K-loop runs, for given values of the kernel's scalar parameters."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kloop.affine import Affine, Poly
from tilewright.kloop.kernel import TiledKernel
from tilewright.source import ir
from tilewright.source.constants import Constants, Value, literal_kind


def trip_count(kernel: TiledKernel, scalars: Mapping[str, int | float]) -> int | None:
    """Trips of the K-loop; None where its bounds do not follow from the scalars.

    Args:
        scalars: parameter name → value, as launched.
    """
    values = {
        s.id: int(scalars[s.name])
        for s in kernel.symbols.values()
        if s.kind == "param"
        and s.id not in kernel.changed
        and s.name in scalars
        and float(scalars[s.name]).is_integer()
    }
    constants = _Bound(kernel, values)
    first, bound, step = (constants.evaluate(e) for e in (kernel.loop.first, kernel.loop.bound, kernel.loop.step))
    if step is None or step <= 0:
        return None
    length = _difference(kernel, constants) if first is None or bound is None else bound - first
    return None if length is None else max(0, -(-length // step))


def _difference(kernel: TiledKernel, constants: _Bound) -> int | None:
    """Bound minus first value, where what is not known is the same in both: ``first = wA * 32 * blockIdx.y``."""
    busy: set[int] = set()

    def lookup(name: ir.Name) -> Poly | None:
        symbol = kernel.symbols.get(name.symbol) if name.symbol is not None else None
        if symbol is None or symbol.init is None or symbol.id in kernel.changed or symbol.id in busy:
            return None
        if symbol.kind != "local" or symbol.dims or symbol.pointers or symbol.reference:
            return None
        if not constants.is_index(symbol.type_text):
            return None
        names = ir.names([symbol.init])
        if names & kernel.changed:
            return None
        busy.add(symbol.id)
        out = engine.poly(symbol.init)
        busy.discard(symbol.id)
        return out

    engine = Affine(constants, lookup)
    return (engine.poly(kernel.loop.bound) - engine.poly(kernel.loop.first)).constant_value()


class _Bound(Constants):
    """Constants, with the kernel's parameters as known values and its plain locals followed."""

    def __init__(self, kernel: TiledKernel, values: Mapping[int, int]) -> None:
        super().__init__(kernel.constants, {}, kernel.symbols, kernel.aliases, kernel.worth)
        self._parameters = values
        self._changed = kernel.changed
        self._depth = 0

    def _local(self, symbol_id: int) -> Value | None:
        if self._frames:
            return super()._local(symbol_id)
        symbol = self._symbols.get(symbol_id)
        if symbol is None or symbol_id in self._changed:
            return None
        if symbol_id in self._parameters:
            number = self._parameters[symbol_id]
            return self._converted(symbol.type_text, Value(number, literal_kind("", abs(number))))
        if symbol.init is None or symbol.dims or symbol.pointers or self._depth > 16:
            return None
        if any(isinstance(n, ir.Member | ir.Index) for n in ir.walk(symbol.init)):
            return None
        self._depth += 1
        try:
            return self._converted(symbol.type_text, self._value(symbol.init))
        finally:
            self._depth -= 1
