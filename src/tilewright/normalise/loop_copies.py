"""Copy loops of the load phase whose condition is not ``i < bound``, where every part of them is a constant."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.loops import counted_header
from tilewright.normalise.loop_forms import increment
from tilewright.normalise.loop_sites import Sites
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.constants import Constants, Value
from tilewright.source.edits import Edit

_MOST_TRIPS = 4096


def copy_loops(situation: Situation) -> Change | Refusal | None:
    """``for (i = 0; i + 32 <= 128; i += 32)`` → ``for (i = 0; i < 128; i += 32)``, by going through every trip."""
    sites = situation.sites
    for tiles in sites.tile_loops():
        for loop in ir.walk(tiles.body):
            if not isinstance(loop, ir.For) or loop.span.within or counted_header(loop) is not None:
                continue
            if not sites.collector.collect([loop.body]).stores_to_shared():
                continue
            change = _counted(sites, loop)
            if change is not None:
                return change
    return None


def _counted(sites: Sites, loop: ir.For) -> Change | None:
    condition, update = loop.condition, loop.update
    if not isinstance(loop.init, ir.Declare) or len(loop.init.symbols) != 1 or condition is None or update is None:
        return None
    var = loop.init.symbols[0]
    if var.init is None or increment(update) != var.id or condition.span.within or not sites.is_plain(var):
        return None
    if any(loop.body.span.start <= w.span.start < loop.body.span.end for w in sites.writes(var.id)):
        return None
    values = _values(sites, var, var.init, condition, update)
    if values is None or not values[:-1]:
        return None
    bound = _bound(sites, condition, values)
    text = f"{var.name} < {bound}"
    what = f"`{sites.source(condition)}` written as `{text}`, which is true as often"
    edit = Edit(condition.span.start, condition.span.end, text)
    return Change((edit,), what, sites.line(loop), measured=True)


def _values(sites: Sites, var: ir.Symbol, first: ir.Expr, condition: ir.Expr, update: ir.Expr) -> list[int] | None:
    """The values of the variable, the one that ends the loop included; None where they are no constants."""
    kind = sites.types.symbol(var)
    start = sites.constant(first)
    step: ir.Expr | None = None
    match update:
        case ir.Assign(op="+=", right=s) | ir.Assign(op="=", right=ir.Binary(op="+", right=s)):
            step = s
    by = 1 if isinstance(update, ir.Unary) else None if step is None else sites.constant(step)
    if kind is None or start is None or by is None or by <= 0 or kind.wrap(start) != start:
        return None
    out = [start]
    while len(out) <= _MOST_TRIPS:
        asked = With(sites, var.id, Value(out[-1], kind)).evaluate(condition)
        if asked is None:
            return None
        if not asked:
            return out
        if kind.wrap(out[-1] + by) != out[-1] + by:
            return None
        out.append(out[-1] + by)
    return None


def _bound(sites: Sites, condition: ir.Expr, values: list[int]) -> str:
    """A bound that ends the loop at the same value: one that the condition names, else the value itself."""
    if isinstance(condition, ir.Binary):
        for side in (condition.right, condition.left):
            value = sites.kernel.constants.evaluate(side)
            if value is not None and values[-2] < value <= values[-1] and not side.span.within:
                return sites.source(side)
    return str(values[-1])


class With(Constants):
    """Constants, with one variable known."""

    def __init__(self, sites: Sites, symbol: int, value: Value) -> None:
        super().__init__({}, {}, sites.kernel.symbols, sites.kernel.constants.aliases)
        self._sites = sites
        self._symbol = symbol
        self._known = value

    def _global(self, name: str) -> Value | None:
        return self._sites.kernel.constants._global(name)

    def _local(self, symbol_id: int) -> Value | None:
        if symbol_id == self._symbol:
            return self._known
        symbol = self._symbols[symbol_id]
        kind = self._sites.types.symbol(symbol)
        number = self._sites.constant(ir.Name(symbol.span, symbol.name, symbol_id))
        return None if kind is None or number is None else Value(number, kind)
