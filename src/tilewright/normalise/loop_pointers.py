"""Loops that a pointer ends, counted in an integer instead; the pointer is advanced as before."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.normalise.loop_conditions import parts
from tilewright.normalise.loop_forms import increment
from tilewright.normalise.loop_sites import Sites, body_of, declared_in
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.edits import Edit


def pointers(situation: Situation) -> Change | Refusal | None:
    """``for (; A < end; A += BK)`` → ``for (long long done = 0; done < length; done += BK) { …; A += BK; }``.

    Both pointers belong to one array, so ``A < end`` asks the same as ``0 < end - A``, and each step of A takes as much
    off that difference.
    """
    sites = situation.sites
    for loop in sites.tile_loops():
        if not isinstance(loop, ir.For) or loop.span.within or loop.update is None or loop.condition is None:
            continue
        ends = _ends(sites, loop)
        if ends is None or not sites.in_block(loop):
            continue
        if len(parts(loop.update)) != 1 or sites.has_comment(loop.header) or sites.continues(loop):
            continue
        moving, end, op = ends
        step = loop.update.right if isinstance(loop.update, ir.Assign) else None
        if not _usable(sites, loop, moving, end, step, op):
            continue
        return _counted(sites, loop, moving, end, step)
    return None


def _ends(sites: Sites, loop: ir.For) -> tuple[ir.Symbol, ir.Symbol, str] | None:
    """The pointer that moves, the one that ends the loop, and the comparison."""
    match loop.condition:
        case ir.Binary(op="<" | "!=" as op, left=ir.Name(symbol=int(a)), right=ir.Name(symbol=int(b))):
            pass
        case ir.Binary(op=">", left=ir.Name(symbol=int(b)), right=ir.Name(symbol=int(a))):
            op = "<"
        case _:
            return None
    symbols = sites.kernel.symbols
    if op == "!=" and loop.update is not None and increment(loop.update) == b:
        a, b = b, a
    one, two = symbols[a], symbols[b]
    if one.pointers != 1 or two.pointers != 1 or one.dims or two.dims:
        return None
    return (one, two, op) if loop.update is not None and increment(loop.update) == a else None


def _usable(sites: Sites, loop: ir.For, moving: ir.Symbol, end: ir.Symbol, step: ir.Expr | None, op: str) -> bool:
    body = body_of(loop)
    if not isinstance(loop.update, ir.Unary | ir.Assign) or loop.update.span.within:
        return False
    if isinstance(loop.update, ir.Assign) and loop.update.op != "+=":
        return False
    if not sites.is_plain(moving) or not sites.is_plain(end) or end.id in sites.changed:
        return False
    if any(loop.body.span.start <= w.span.start < loop.body.span.end for w in sites.writes(moving.id)):
        return False
    if {moving.name} & declared_in(body):
        return False
    if step is None:
        return True
    value = sites.constant(step)
    if op == "!=" and (value is None or value <= 0):
        return False  # downwards it would meet the end from above
    said = {sites.kernel.symbols[s].name for s in ir.names([step])}
    return sites.is_arithmetic(step) and sites.unchanged(step, body) and not said & declared_in(body)


def _counted(sites: Sites, loop: ir.For, moving: ir.Symbol, end: ir.Symbol, step: ir.Expr | None) -> Change | None:
    edits: list[Edit] = []
    lines: list[str] = []
    name = moving.name
    match loop.init:
        case ir.Declare(symbols=(s,)) if s.id == moving.id and s.init is not None and not s.init.span.within:
            if sites.said_outside(name, loop.span):
                name = sites.fresh(f"{moving.name}_tile")
                renamed = sites.renamed(moving, name)
                if renamed is None:
                    return None
                edits += [e for e in renamed if not loop.header.start <= e.start < loop.header.end]
            lines.append(f"{s.type_text} *{name} = {sites.source(s.init)};")
        case ir.Do(expr=ir.Assign(op="=", left=ir.Name(symbol=s), right=value)) if s == moving.id:
            if value.span.within or any(isinstance(n, ir.Assign) for n in ir.walk(value)):
                return None
            lines.append(f"{sites.source(loop.init)};")
        case None:
            pass
        case _:
            return None
    done, length = sites.fresh(f"{moving.name}_done"), _length(sites, loop, moving, end)
    if length is None:
        length = sites.fresh(f"{moving.name}_length")
        lines.append(f"const long long {length} = {end.name} - {name};")
    by = "1" if step is None else sites.source(step)
    update = f"++{done}" if step is None else f"{done} += {by}"
    bump = sites.at_end(loop, [f"++{name};" if step is None else f"{name} += {by};"])
    if bump is None:
        return None
    header = f"for (long long {done} = 0; {done} < {length}; {update})"
    edits += [bump, Edit(loop.span.start, loop.header.end, header)]
    if lines:
        edits.append(sites.put_in_front(loop, lines))
    what = f"the loop that `{moving.name}` ends counts in `{done}`; the pointer is advanced at the end of its body"
    return Change(tuple(edits), what, sites.line(loop))


def _length(sites: Sites, loop: ir.For, moving: ir.Symbol, end: ir.Symbol) -> str | None:
    """The distance from the first to the last position, where ``end`` is declared as ``A + distance``."""
    start: ir.Expr | None = None
    if isinstance(loop.init, ir.Declare):
        start = loop.init.symbols[0].init
    elif isinstance(loop.init, ir.Do) and isinstance(loop.init.expr, ir.Assign):
        start = loop.init.expr.right
    base: ir.Expr | None = None
    distance: ir.Expr | None = None
    match end.init:
        case ir.Binary(op="+", left=a, right=b):
            base, distance = a, b
        case ir.Unary(op="&", operand=ir.Index(base=a, index=b)):
            base, distance = a, b
    if not isinstance(base, ir.Name) or base.symbol is None or distance is None or distance.span.within:
        return None
    if not sites.is_arithmetic(distance) or not sites.unchanged(distance):
        return None
    from_base = isinstance(start, ir.Name) and start.symbol == base.symbol
    if start is None and base.symbol == moving.id:
        earlier = [w for w in sites.writes(moving.id) if w.span.start < loop.span.start]
        from_base = all(w.span.end <= end.span.start for w in earlier) and not sites.around(loop)
    elif from_base:
        from_base = base.symbol not in sites.changed
    if not from_base or sites.types.of(distance) is None:
        return None
    return sites.summand(distance)
