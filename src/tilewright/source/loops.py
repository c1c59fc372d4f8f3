"""Headers of counted loops."""

from __future__ import annotations

from tilewright.source import ir


def _increment(update: ir.Expr | None, symbol: int) -> ir.Expr | None:
    one = ir.Number(update.span, "1", 1) if update is not None else None
    match update:
        case ir.Unary(op="++" | "p++", operand=ir.Name(symbol=s)) if s == symbol:
            return one
        case ir.Assign(op="+=", left=ir.Name(symbol=s), right=step) if s == symbol:
            return step
        case ir.Assign(op="=", left=ir.Name(symbol=s), right=ir.Binary(op="+", left=ir.Name(symbol=t), right=step)):
            return step if s == t == symbol else None
    return None


def counted_header(stmt: ir.For) -> tuple[ir.Symbol, ir.Expr, ir.Expr, ir.Expr] | None:
    """(variable, first, bound, step) of ``for (T v = first; v < bound; v += step)``, or None for another form."""
    if not isinstance(stmt.init, ir.Declare) or len(stmt.init.symbols) != 1:
        return None
    var = stmt.init.symbols[0]
    if var.init is None or var.dims or var.pointers or var.reference:
        return None
    match stmt.condition:
        case ir.Binary(op="<", left=ir.Name(symbol=s), right=bound) if s == var.id:
            pass
        case ir.Binary(op=">", left=bound, right=ir.Name(symbol=s)) if s == var.id:
            pass
        case _:
            return None
    step = _increment(stmt.update, var.id)
    return None if step is None else (var, var.init, bound, step)
