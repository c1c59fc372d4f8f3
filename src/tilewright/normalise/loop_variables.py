"""Variables of loop headers: one of its own for each loop, the others in front of it and advanced at its end."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.kloop import is_barrier
from tilewright.normalise.loop_conditions import parts
from tilewright.normalise.loop_forms import increment
from tilewright.normalise.loop_sites import Sites, body_of, declared_in
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir
from tilewright.source.c_types import int_kind, plain
from tilewright.source.edits import Edit


def second_variables(situation: Situation) -> Change | Refusal | None:
    """``for (int a = …, b = …; a < …; a += …, b += …)`` → b in front of the loop, advanced at the end of its body."""
    sites = situation.sites
    for loop in sites.tile_loops():
        if isinstance(loop, ir.For) and not loop.span.within and loop.update is not None:
            change = _second(sites, loop)
            if change is not None:
                return change
    return None


def _second(sites: Sites, loop: ir.For) -> Change | None:
    assert loop.update is not None
    counter = _counter(loop)
    others = [p for p in parts(loop.update) if counter is None or increment(p) != counter]
    extra = [s for s in loop.init.symbols if s.id != counter] if isinstance(loop.init, ir.Declare) else []
    if counter is None or not (others or extra) or loop.header.within or sites.has_comment(loop.header):
        return None
    if not sites.in_block(loop):
        return None
    if sites.continues(loop) or not _movable(sites, loop, counter, others, extra):
        return None
    edits: list[Edit] = []
    named = {s.id: s.name for s in extra}
    for s in extra:
        if sites.said_outside(s.name, loop.span):
            named[s.id] = sites.fresh(f"{s.name}_tile")
            renamed = sites.renamed(s, named[s.id])
            if renamed is None:
                return None
            header = loop.header
            edits += [e for e in renamed if not header.start <= e.start < header.end]
    moved = [f"{_said(sites, p, named)};" for p in others]
    end = sites.at_end(loop, moved) if moved else None
    if moved and end is None:
        return None
    edits += [end] if end is not None else []
    own = _own_header(sites, loop, counter, named)
    if own is None:
        return None
    edits.append(own)
    if extra:
        edits.append(sites.put_in_front(loop, [_declaration(sites, s, named) for s in extra]))
    names = ", ".join(f"`{x}`" for x in dict.fromkeys(_target(sites, p) for p in others)) or "a variable"
    return Change(tuple(edits), f"{names} advanced at the end of the loop's body", sites.line(loop))


def _counter(loop: ir.For) -> int | None:
    """The variable that the condition asks about and the update advances."""
    if loop.condition is None or loop.update is None:
        return None
    asked = ir.names([loop.condition])
    found = {t for p in parts(loop.update) if (t := increment(p)) in asked and t is not None}
    return found.pop() if len(found) == 1 else None


def _movable(sites: Sites, loop: ir.For, counter: int, others: list[ir.Expr], extra: list[ir.Symbol]) -> bool:
    """Whether the other variables may be declared in front of the loop and advanced by its body."""
    inside, body = declared_in(body_of(loop)), body_of(loop)
    if loop.condition is None or any(s.id in ir.names([loop.condition]) for s in extra):
        return False
    own = [p for p in parts(loop.update) if increment(p) == counter] if loop.update is not None else []
    targets = {_target_id(p) for p in others}
    if None in targets or len(own) != 1 or targets & ir.names([own[0], loop.condition]):
        return False
    for p in others:
        value = p.right if isinstance(p, ir.Assign) else None
        said = {sites.kernel.symbols[s].name for s in ir.names([p])}
        if p.span.within or said & inside or counter in ir.names([p]):
            return False
        if value is not None and not (sites.is_arithmetic(value) and sites.unchanged(value, body)):
            return False
        symbol = sites.kernel.symbols[_target_id(p) or 0]
        if not sites.is_plain(symbol):
            return False
    for s in extra:
        if (
            s.init is None
            or s.init.span.within
            or _has_comma(s.init)
            or counter in ir.names([s.init])
            or not sites.is_plain(s)
        ):
            return False
    return True


def _has_comma(expr: ir.Expr) -> bool:
    return any(isinstance(n, ir.Binary) and n.op == "," for n in ir.walk(expr))


def _target_id(part: ir.Expr) -> int | None:
    match part:
        case ir.Assign(op="+=" | "-=" | "=", left=ir.Name(symbol=int(s))):
            return s
        case ir.Unary(op="++" | "--" | "p++" | "p--", operand=ir.Name(symbol=int(s))):
            return s
    return None


def _target(sites: Sites, part: ir.Expr) -> str:
    return sites.kernel.symbols[_target_id(part) or 0].name


def _said(sites: Sites, node: ir.Expr, named: dict[int, str]) -> str:
    """The text of an expression with some variables under other names."""
    text, at, out = sites.text, node.span.start, ""
    for n in sorted((n for n in ir.walk(node) if isinstance(n, ir.Name)), key=lambda n: n.span.start):
        if n.symbol in named and not n.span.within:
            out += text[at : n.span.start].decode() + named[n.symbol]
            at = n.span.end
    return out + text[at : node.span.end].decode()


def _own_header(sites: Sites, loop: ir.For, counter: int, named: dict[int, str]) -> Edit | None:
    """The header with the counter alone."""
    assert loop.update is not None
    assert loop.condition is not None
    own = next(p for p in parts(loop.update) if increment(p) == counter)
    if own.span.within or loop.condition.span.within or (loop.init is not None and loop.init.span.within):
        return None
    match loop.init:
        case ir.Declare(symbols=symbols):
            kept = [s for s in symbols if s.id == counter]
            if any(s.init is None for s in kept):
                return None
            init = "".join(_declaration(sites, s, named) for s in kept) or ";"
        case None:
            init = ";"
        case _:
            init = f"{sites.source(loop.init).rstrip(';').strip()};"
    text = f"for ({init} {sites.source(loop.condition)}; {_said(sites, own, named)})"
    return Edit(loop.span.start, loop.header.end, text)


def _declaration(sites: Sites, symbol: ir.Symbol, named: dict[int, str]) -> str:
    assert symbol.init is not None
    name = named.get(symbol.id, symbol.name)
    return f"{symbol.type_text} {'*' * symbol.pointers}{name} = {_said(sites, symbol.init, named)};"


def trailing_steps(situation: Situation) -> Change | Refusal | None:
    """Indices that are advanced behind the loop's last barrier, advanced in front of it: no other thread sees them."""
    sites = situation.sites
    for loop in sites.tile_loops():
        body = body_of(loop)
        barriers = [i for i, x in enumerate(body) if is_barrier(x)]
        last = barriers[-1] if barriers else len(body)
        rest = body[last + 1 :]
        if not rest or last == 0 or body[last].span.within or not all(_is_step(sites, x) for x in rest):
            continue
        if any(sites.has_comment(x.span) for x in rest):
            continue
        lines = [sites.source(x) for x in rest]
        edits = (sites.put_in_front(body[last], lines), *(sites.removed(x) for x in rest))
        what = f"`{lines[0]}` moved in front of the barrier that it followed"
        return Change(edits, what, sites.line(rest[0]))
    return None


def _is_step(sites: Sites, stmt: ir.Stmt) -> bool:
    """A statement that only advances a variable of the thread."""
    if not isinstance(stmt, ir.Do) or stmt.span.within or (target := _target_id(stmt.expr)) is None:
        return False
    value = stmt.expr.right if isinstance(stmt.expr, ir.Assign) else None
    return sites.is_plain(sites.kernel.symbols[target]) and (value is None or sites.is_arithmetic(value))


# -- variables that the loop does not declare -------------------------------------------------------------


def own_variable(situation: Situation) -> Change | Refusal | None:
    """``int k; for (k = 0; …)`` and ``int k = 0; for (; …)`` → ``for (int k = 0; …)``; k is right behind it as well."""
    sites = situation.sites
    for loop in sites.tile_loops():
        if not isinstance(loop, ir.For) or loop.span.within or loop.condition is None or loop.update is None:
            continue
        counter = _counter(loop)
        first = None if counter is None else _first(sites, loop, counter)
        if counter is None or first is None or len(parts(loop.update)) != 1 or not sites.in_block(loop):
            continue
        symbol = sites.kernel.symbols[counter]
        words = plain(symbol.type_text).split()
        kind = int_kind(symbol.type_text, sites.kernel.constants.aliases)
        if kind is None or not words or not sites.is_plain(symbol) or sites.has_comment(loop.header):
            continue
        if any(loop.body.span.start <= w.span.start < loop.body.span.end for w in sites.writes(counter)):
            continue
        after = _read_later(sites, loop, symbol)
        edits = [_new_header(sites, loop, symbol, first)]
        if after:
            behind = _value_behind(sites, loop, symbol, first)
            if behind is None:
                what = f"`{symbol.name}` is read behind the K-loop, and what it is by then is not known here"
                return Refusal("not_understood", what, sites.line(loop), "declare the K-loop's variable in its header")
            edits.append(behind)
        return Change(tuple(edits), f"`{symbol.name}` declared by the loop that counts in it", sites.line(loop))
    return None


def _first(sites: Sites, loop: ir.For, counter: int) -> ir.Expr | None:
    """What the variable is when the loop begins."""
    match loop.init:
        case ir.Do(expr=ir.Assign(op="=", left=ir.Name(symbol=s), right=value)) if s == counter:
            if value.span.within or counter in ir.names([value]):
                return None
            return None if _has_comma(value) or any(isinstance(n, ir.Assign) for n in ir.walk(value)) else value
        case None:
            symbol = sites.kernel.symbols[counter]
            init = symbol.init
            if init is None or init.span.within or not sites.is_arithmetic(init) or not sites.unchanged(init):
                return None
            others = [w for w in sites.writes(counter) if not loop.span.start <= w.span.start < loop.span.end]
            return init if not others and _beside(sites, symbol, loop) else None
    return None


def _beside(sites: Sites, symbol: ir.Symbol, loop: ir.For) -> bool:
    """Whether the declaration stands in the same block as the loop, so that both are passed equally often."""
    for node in ir.walk(sites.kernel.body):
        if isinstance(node, ir.Block) and any(x is loop for x in node.body):
            return any(isinstance(x, ir.Declare) and symbol in x.symbols for x in node.body)
    return False


def _new_header(sites: Sites, loop: ir.For, symbol: ir.Symbol, first: ir.Expr) -> Edit:
    assert loop.condition is not None
    assert loop.update is not None
    init = f"{plain(symbol.type_text)} {symbol.name} = {sites.source(first)}"
    text = f"for ({init}; {sites.source(loop.condition)}; {sites.source(loop.update)})"
    return Edit(loop.span.start, loop.header.end, text)


def _read_later(sites: Sites, loop: ir.For, symbol: ir.Symbol) -> bool:
    """Whether something may read the value that the loop leaves behind."""
    around = sites.around(loop)
    setters = [
        n
        for n in ir.walk(sites.kernel.body)
        if isinstance(n, ir.For)
        and isinstance(n.init, ir.Do)
        and isinstance(n.init.expr, ir.Assign)
        and n.init.expr.op == "="
        and isinstance(n.init.expr.left, ir.Name)
        and n.init.expr.left.symbol == symbol.id
        and symbol.id not in ir.names([n.init.expr.right])
    ]
    for use in sites.uses(symbol.id):
        at = use.span.start
        if loop.span.start <= at < loop.span.end or any(n.span.start <= at < n.span.end for n in setters):
            continue
        if at >= loop.span.end or around:
            return True
    return False


def _value_behind(sites: Sites, loop: ir.For, symbol: ir.Symbol, first: ir.Expr) -> Edit | None:
    """An assignment behind the loop that gives the variable the value that it had."""
    start = sites.kernel.constants.evaluate(first)
    condition = loop.condition
    below = isinstance(condition, ir.Binary) and condition.op == "<" and isinstance(condition.left, ir.Name)
    if not isinstance(condition, ir.Binary) or not below or start is None or start < 0 or sites.leaves(loop):
        return None
    bound, update = condition.right, loop.update
    step = update.right if isinstance(update, ir.Assign) and update.op == "+=" else None
    value = 1 if isinstance(update, ir.Unary) else None if step is None else sites.constant(step)
    kinds = sites.types.of(bound), sites.types.symbol(symbol)
    if value is None or value <= 0 or None in kinds or kinds[0] != kinds[1] or bound.span.within:
        return None
    if not (sites.is_arithmetic(bound) and sites.unchanged(bound, [loop])):
        return None
    if step is not None and (step.span.within or not sites.unchanged(step, [loop])):
        return None
    k, e = symbol.name, f"({sites.source(bound)})"
    at, indent = loop.span.end, sites.in_front(loop)[1]
    add = f"{e} - {k}" if step is None else f"({e} - {k} - 1) / ({sites.source(step)}) * ({sites.source(step)})"
    more = "" if step is None else f" + ({sites.source(step)})"
    lines = [f"{k} = {sites.source(first)};", f"if ({k} < {e}) {k} += {add}{more};  // as the loop left it"]
    return Edit(at, at, "".join(f"\n{indent}{line}" for line in lines))
