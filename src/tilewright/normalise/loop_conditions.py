"""Conditions of counted loops, brought into the form ``k < bound``.

A loop whose condition holds for every value of its variable never ends by it. Where nothing else ends the loop either,
such a run does not count: it hangs, or overflows a signed variable. That is what makes ``k <= e`` the same as
``k < e + 1``: the two differ only where ``e`` is the largest value of the type that is compared in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.loop_forms import increment
from tilewright.normalise.loop_sites import Sites
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.c_types import IntKind, common
from tilewright.source.edits import Edit

_LARGE = 1 << 30  # the sum of two numbers below it does not wrap in any type that a tile loop counts in
_SWAPPED = {"<=": ">=", ">=": "<=", "!=": "!=", "<": ">", ">": "<"}


@dataclass(frozen=True)
class Counting:
    """What is known of the variable: its first value and its step, where they are constants."""

    symbol: ir.Symbol
    kind: IntKind
    first: int | None
    step: int | None


def conditions(situation: Situation) -> Change | Refusal | None:
    """``k <= e``, ``k != e``, ``k + c <= e`` and their mirror images → ``k < bound``."""
    sites = situation.sites
    for loop in sites.tile_loops():
        if not isinstance(loop, ir.For) or loop.condition is None or loop.condition.span.within:
            continue
        if sites.leaves(loop):
            continue
        counting = _counting(sites, loop)
        if counting is None:
            continue
        text = _below(sites, loop.condition, counting)
        if text is not None:
            what = f"`{sites.source(loop.condition)}` written as `{text}`"
            at = loop.condition.span
            return Change((Edit(at.start, at.end, text),), what, sites.line(loop))
    return None


def _counting(sites: Sites, loop: ir.For) -> Counting | None:
    first: dict[int, ir.Expr] = {}
    match loop.init:
        case ir.Declare(symbols=symbols):
            first = {s.id: s.init for s in symbols if s.init is not None}
        case ir.Do(expr=ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=value)):
            first = {s: value}
    if loop.update is None or loop.condition is None:
        return None
    named = {n.symbol for n in ir.walk(loop.condition) if isinstance(n, ir.Name)}
    for part in parts(loop.update):
        target = increment(part)
        if target is None or target not in named:
            continue
        symbol = sites.kernel.symbols[target]
        kind = sites.types.symbol(symbol)
        inside = [w for w in sites.writes(target) if loop.body.span.start <= w.span.start < loop.body.span.end]
        if kind is None or inside or not sites.is_plain(symbol):
            return None
        evaluate = sites.kernel.constants.evaluate
        start = evaluate(first[target]) if target in first else None
        return Counting(symbol, kind, start, _step_value(sites, part))
    return None


def parts(update: ir.Expr) -> list[ir.Expr]:
    """The parts of a comma expression, in order."""
    if isinstance(update, ir.Binary) and update.op == ",":
        return [*parts(update.left), *parts(update.right)]
    return [update]


def _step_value(sites: Sites, part: ir.Expr) -> int | None:
    match part:
        case ir.Unary():
            return 1
        case ir.Assign(op="+=", right=step) | ir.Assign(op="=", right=ir.Binary(op="+", right=step)):
            return sites.constant(step)
    return None


def _below(sites: Sites, condition: ir.Expr, counting: Counting) -> str | None:
    """The condition as ``k < bound``; None where it is that already, or nothing of the kind."""
    if isinstance(condition, ir.Unary) and condition.op == "!" and isinstance(condition.operand, ir.Binary):
        inner = condition.operand
        opposite = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}.get(inner.op)
        if opposite is None or None in (sites.types.of(inner.left), sites.types.of(inner.right)):
            return None
        turned = ir.Binary(condition.span, opposite, inner.left, inner.right)
        below = _below(sites, turned, counting)
        plain = opposite == "<" and _is(inner.left, counting) and not inner.right.span.within
        return f"{counting.symbol.name} < {sites.summand(inner.right)}" if below is None and plain else below
    if not isinstance(condition, ir.Binary) or condition.op not in _SWAPPED:
        return None
    left, op, right = condition.left, condition.op, condition.right
    if not _mentions(left, counting) and _mentions(right, counting):
        left, op, right = right, _SWAPPED[op], left
    if right.span.within or not sites.is_arithmetic(right) or _mentions(right, counting):
        return None
    if _is(left, counting):
        if op == "<=":
            return _at_most(sites, right, counting)
        return _unequal(sites, right, counting) if op == "!=" else None
    if isinstance(left, ir.Binary) and left.op == "+" and op in ("<=", "<"):
        a, b = left.left, left.right
        ahead = b if _is(a, counting) else a if _is(b, counting) else None
        return None if ahead is None else _ahead(sites, ahead, op, right, counting)
    return None


def _at_most(sites: Sites, bound: ir.Expr, counting: Counting) -> str | None:
    kind = sites.types.of(bound)
    if kind is None:
        return None
    name = counting.symbol.name
    match bound:
        # X - 1 did not overflow, so X is what is meant; of unsigned types 0 - 1 is the value that never ends the loop.
        case ir.Binary(op="-", left=x, right=ir.Number(value=1, text=one)) if one == "1" and not x.span.within:
            if kind == (sites.types.of(x) or kind).promoted():
                return f"{name} < {sites.summand(x)}"
    if common(counting.kind, kind) == kind.promoted():
        return f"{name} < {sites.summand(bound)} + 1"
    if common(counting.kind, kind) == counting.kind:
        # Narrower than the variable: one more might not fit into its own type.
        return f"{name} < ({counting.symbol.type_text}){sites.operand(bound)} + 1"
    return None


def _unequal(sites: Sites, bound: ir.Expr, counting: Counting) -> str | None:
    """The variable must meet the bound to end the loop; the values in front of it must be below it."""
    kind, first, step = sites.types.of(bound), counting.first, counting.step
    if kind is None or step is None or step <= 0:
        return None
    compared = common(counting.kind, kind)
    if counting.kind.unsigned:
        # From 0 in steps of a power of two every multiple is met before the variable wraps around.
        meets = first == 0 and step & (step - 1) == 0
    else:
        meets = not compared.unsigned or (first is not None and first >= 0)
    return f"{counting.symbol.name} < {sites.summand(bound)}" if meets else None


def _ahead(sites: Sites, ahead: ir.Expr, op: str, bound: ir.Expr, counting: Counting) -> str | None:
    """``k + c <= e``: whole tiles only. For e < c there is none, and e - c might leave its type."""
    kind, distance = sites.types.of(bound), sites.constant(ahead)
    if kind is None or distance is None or distance <= 0 or ahead.span.within or not sites.is_arithmetic(ahead):
        return None
    if counting.first is None or not 0 <= counting.first < _LARGE or sites.types.of(ahead) is None:
        return None
    if distance >= _LARGE:
        return None
    together = common(common(counting.kind, sites.types.of(ahead) or kind), kind)
    if together != kind.promoted() or together != counting.kind.promoted():
        return None  # one type throughout: nothing is converted on the way
    name, e, c = counting.symbol.name, sites.operand(bound), sites.operand(ahead)
    more = " + 1" if op == "<=" else ""
    return f"{name} < ({e} < {c} ? 0 : {e} - {c}{more})"


def _is(expr: ir.Expr, counting: Counting) -> bool:
    return isinstance(expr, ir.Name) and expr.symbol == counting.symbol.id and not expr.span.within


def _mentions(expr: ir.Expr, counting: Counting) -> bool:
    return any(isinstance(n, ir.Name) and n.symbol == counting.symbol.id for n in ir.walk(expr))
