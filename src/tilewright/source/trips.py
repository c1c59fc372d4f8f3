"""How often the K-loop runs, for given values of the kernel's scalar parameters."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.source import ir
from tilewright.source.constants import Constants, Value, literal_kind
from tilewright.source.kernel import TiledKernel


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
    if first is None or bound is None or step is None or step <= 0:
        return None
    return max(0, -(-(bound - first) // step))


class _Bound(Constants):
    """Constants, with the kernel's parameters as known values and its plain locals followed."""

    def __init__(self, kernel: TiledKernel, values: Mapping[int, int]) -> None:
        super().__init__(kernel.constants, {}, kernel.symbols, kernel.aliases)
        self._parameters = values
        self._changed = kernel.changed
        self._depth = 0

    def _local(self, symbol_id: int) -> Value | None:
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
