"""Headers of counted loops."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.source import ir


@dataclass(frozen=True)
class Header:
    """``for (T var = first; var < bound; var += step)``."""

    var: ir.Symbol
    first: ir.Expr
    bound: ir.Expr
    step: ir.Expr


def _increment(update: ir.Expr | None, symbol: int) -> ir.Expr | None:
    match update:
        case ir.Unary(op="++" | "p++", operand=ir.Name(symbol=s), span=at) if s == symbol:
            # The one has no text of its own.
            return ir.Number(ir.Span(at.start, at.end, within=True), "1", 1)
        case ir.Assign(op="+=", left=ir.Name(symbol=s), right=step) if s == symbol:
            return step
        case ir.Assign(op="=", left=ir.Name(symbol=s), right=ir.Binary(op="+", left=ir.Name(symbol=t), right=step)):
            return step if s == t == symbol else None
    return None


def counter(stmt: ir.For) -> tuple[ir.Symbol, ir.Expr, ir.Expr] | None:
    """The variable of its own that a loop advances by one distance, its first value and the distance; else None."""
    if not isinstance(stmt.init, ir.Declare) or len(stmt.init.symbols) != 1:
        return None
    var = stmt.init.symbols[0]
    if var.init is None or var.dims or var.pointers or var.reference:
        return None
    step = _increment(stmt.update, var.id)
    return None if step is None else (var, var.init, step)


def counted_header(stmt: ir.For) -> Header | None:
    """The header of a loop that counts a variable of its own upwards, or None for another form."""
    counted = counter(stmt)
    if counted is None:
        return None
    var, first, step = counted
    match stmt.condition:
        case ir.Binary(op="<", left=ir.Name(symbol=s), right=bound) if s == var.id:
            pass
        case ir.Binary(op=">", left=bound, right=ir.Name(symbol=s)) if s == var.id:
            pass
        case _:
            return None
    return Header(var, first, bound, step)
