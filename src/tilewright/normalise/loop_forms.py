"""``while`` loops and loops that end by ``break``, brought into the form ``for (init; condition; update)``."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.loops import counted_header
from tilewright.normalise.loop_sites import Loop, Sites, body_of, declared_in
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.edits import Edit

_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def breaks(situation: Situation) -> Change | Refusal | None:
    """``for (;;) { if (k >= K) break; … }`` → the condition stands in the header: it is asked at the same moments."""
    sites = situation.sites
    for loop in sites.tile_loops():
        if sites.is_do(loop) or loop.span.within or not _endless(loop):
            continue
        first = next(iter(body_of(loop)), None)
        if not isinstance(first, ir.If) or first.otherwise is not None or first.span.within:
            continue
        inner = first.then.body if isinstance(first.then, ir.Block) else (first.then,)
        if len(inner) != 1 or not isinstance(inner[0], ir.Jump) or inner[0].kind != "break":
            continue
        condition = _negated(sites, first.condition)
        header = ir.Span(loop.span.start, loop.body.span.start)
        if condition is None or sites.has_comment(header) or sites.has_comment(first.span):
            continue
        edit = _header(sites, loop, condition, None)
        if edit is not None:
            what = f"the loop that ends by `break` asks `{condition}` in its header"
            return Change((edit, sites.removed(first)), what, sites.line(loop))
    return None


def whiles(situation: Situation) -> Change | Refusal | None:
    """``while (k < K) { …; k += BK; }`` → ``for (; k < K; k += BK) { … }``."""
    sites = situation.sites
    for loop in sites.tile_loops():
        if sites.is_do(loop) or loop.span.within or loop.condition is None:
            continue
        if isinstance(loop, ir.For) and loop.update is not None:
            continue
        advanced = _advance(sites, loop)
        condition = loop.condition
        if advanced is None or condition.span.within or sites.has_comment(ir.Span(loop.span.start, advanced[1])):
            continue
        stmt, _ = advanced
        edit = _header(sites, loop, sites.source(condition), stmt.expr)
        if edit is not None:
            what = f"`{sites.source(stmt.expr)}` moved from the loop's body into its header"
            return Change((edit, sites.removed(stmt)), what, sites.line(loop))
    return None


def _endless(loop: Loop) -> bool:
    if loop.condition is None:
        return True
    return isinstance(loop.condition, ir.Number) and bool(loop.condition.value)


def _negated(sites: Sites, condition: ir.Expr) -> str | None:
    """The text of the opposite of a comparison of integers or pointers; None for other conditions."""
    if condition.span.within:
        return None
    match condition:
        case ir.Unary(op="!", operand=x) if not x.span.within:
            return sites.source(x)
        case ir.Binary(op=op, left=a, right=b) if op in _OPPOSITE and not (a.span.within or b.span.within):
            if not (_ordered(sites, a) and _ordered(sites, b)):
                return None  # what compares as neither less nor greater has no such opposite
            return f"{sites.operand(a)} {_OPPOSITE[op]} {sites.operand(b)}"
    return None


def _ordered(sites: Sites, expr: ir.Expr) -> bool:
    if sites.types.of(expr) is not None:
        return True
    symbol = sites.kernel.symbols[expr.symbol] if isinstance(expr, ir.Name) and expr.symbol is not None else None
    return symbol is not None and symbol.pointers > 0 and not symbol.dims


def _header(sites: Sites, loop: Loop, condition: str, update: ir.Expr | None) -> Edit | None:
    """The loop's header anew."""
    start, end = loop.span.start, loop.body.span.start
    if isinstance(loop, ir.While):
        head = f"while ({condition}) " if update is None else f"for (; {condition}; {sites.source(update)}) "
        return Edit(start, end, head)
    end = loop.header.end
    if loop.header.within or (loop.init is not None and loop.init.span.within):
        return None
    init = "" if loop.init is None else sites.source(loop.init).rstrip(";").strip()
    own = update if update is not None else loop.update
    if own is not None and own.span.within:
        return None
    step = "" if own is None else " " + sites.source(own)
    return Edit(start, end, f"for ({init}; {condition};{step})")


def _advance(sites: Sites, loop: Loop) -> tuple[ir.Do, int] | None:
    """The statement of the body that advances the variable of the condition, where it may as well stand at the end."""
    body, condition = body_of(loop), loop.condition
    if not isinstance(loop.body, ir.Block) or sites.continues(loop) or condition is None:
        return None
    for i, stmt in enumerate(body):
        if not isinstance(stmt, ir.Do) or stmt.span.within or (target := increment(stmt.expr)) is None:
            continue
        symbol = sites.kernel.symbols[target]
        if target not in ir.names([condition]) or not sites.is_plain(symbol):
            continue
        changes = [w for w in sites.writes(target) if loop.span.start <= w.span.start < loop.span.end]
        if len(changes) != 1 or target in ir.names(body[i + 1 :]):
            continue
        said = {sites.kernel.symbols[s].name for s in ir.names([stmt])}
        if said & declared_in(body) or not _steady(sites, stmt, target, body):
            continue
        return stmt, loop.body.span.start
    return None


def _steady(sites: Sites, stmt: ir.Do, target: int, body: tuple[ir.Stmt, ...]) -> bool:
    """The step is plain arithmetic of what the body leaves alone."""
    step = _step(stmt.expr)
    if step is None:
        return True
    return sites.is_arithmetic(step) and target not in ir.names([step]) and sites.unchanged(step, body)


def increment(expr: ir.Expr) -> int | None:
    """The variable that ``k += c``, ``++k``, ``k = k + c`` advances."""
    match expr:
        case ir.Unary(op="++" | "p++", operand=ir.Name(symbol=int(s))):
            return s
        case ir.Assign(op="+=", left=ir.Name(symbol=int(s))):
            return s
        case ir.Assign(op="=", left=ir.Name(symbol=int(s)), right=ir.Binary(op="+", left=ir.Name(symbol=t))) if s == t:
            return s
    return None


def _step(expr: ir.Expr) -> ir.Expr | None:
    match expr:
        case ir.Assign(op="+=", right=step) | ir.Assign(op="=", right=ir.Binary(op="+", right=step)):
            return step
    return None


def unreadable(situation: Situation) -> Change | Refusal | None:
    """Why a loop that fills shared memory between barriers cannot be counted, where that can be said."""
    sites = situation.sites
    loops = sites.tile_loops()
    for loop in loops:
        holds = any(x is not loop and loop.span.start <= x.span.start < loop.span.end for x in loops)
        if holds or not sites.collector.collect([loop.body]).stores_to_shared():
            continue
        if sites.is_do(loop):
            what = "a `do … while` loop makes its first tile before it asks whether there is one"
            return Refusal("not_understood", what, sites.line(loop), "write `for (k = first; k < bound; k += step)`")
        if isinstance(loop, ir.For) and counted_header(loop) is None and (why := _why(sites, loop)):
            hint = "write `for (int k = first; k < bound; k += step)`"
            return Refusal("not_understood", why, sites.line(loop), hint)
    return None


def _why(sites: Sites, loop: ir.For) -> str:
    """What is odd about the header of a K-loop; "" where nothing particular is."""
    condition, update = loop.condition, loop.update
    if update is not None and any(isinstance(n, ir.Assign) and n.op == "-=" for n in ir.walk(update)):
        return "the K-loop counts downwards"
    if update is not None and any(isinstance(n, ir.Unary) and n.op in ("--", "p--") for n in ir.walk(update)):
        return "the K-loop counts downwards"
    if isinstance(condition, ir.Binary) and condition.op in ("!=", "<=", ">="):
        text = sites.source(condition) if not condition.span.within else condition.op
        return f"`{text}` cannot be shown to be the same as a comparison by `<`"
    return ""
