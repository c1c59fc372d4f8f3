"""K-loops whose barriers or loads do not stand where load | barrier | compute | barrier has them."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.kloop import is_barrier, statements
from tilewright.normalise.loop_sites import Sites
from tilewright.normalise.result import Change, Situation
from tilewright.source import intrinsics, ir
from tilewright.source.edits import Edit, indent_at, line_end, line_start
from tilewright.source.effects import Effects

Body = tuple[ir.Stmt, ...]


def displaced_barriers(situation: Situation) -> Change | Refusal | None:
    """``… sync; A += 8;`` → ``… A += 8; sync;``, and ``int c = …; sync; load`` → ``sync; int c = …; load``.

    A barrier orders what stands on its two sides in memory that threads share, so it may change places with statements
    that touch none of it.
    """
    sites = situation.sites
    for loop in sites.tile_loops():
        body = statements(loop.body)
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        if len(cuts) < 2 or not isinstance(loop.body, ir.Block) or any(s.span.within for s in body):
            continue
        first, last = body[: cuts[0]], body[cuts[-1] + 1 :]
        fills = [bool(sites.collector.collect(part).stores_to_shared()) for part in (first, body[cuts[0] : cuts[1]])]
        if fills == [False, True] and _matters(first) and _private(sites, first, loop):
            return _moved(sites, body[cuts[0]], first[0].span.start, "the first barrier of the loop")
        if fills[0] and _matters(last) and _private(sites, last, loop):
            return _moved(sites, body[cuts[-1]], last[-1].span.end, "the last barrier of the loop")
    return None


def open_ends(situation: Situation) -> Change | Refusal | None:
    """``load K | sync | … | sync | rest`` → the same with a barrier behind the rest.

    Where the rest leaves K's arrays alone nothing waits for that barrier, and the loop has the form that is known. All
    threads that pass the barriers before pass it too. A rewrite leaves it out again.
    """
    sites = situation.sites
    for loop in sites.tile_loops():
        body = statements(loop.body)
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        if len(cuts) < 2 or cuts[0] == 0 or not isinstance(loop.body, ir.Block) or loop.body.span.within:
            continue
        rest = tuple(s for s in body[cuts[-1] + 1 :] if not isinstance(s, ir.Nothing))
        filled = sites.collector.collect(body[: cuts[0]]).stores_to_shared()
        late = sites.collector.collect(rest)
        touched = late.reads | late.stores_to_shared()
        if not rest or not filled or rest[-1].span.within or late.unknown or late.jumps or filled & touched:
            continue
        if any(s.place.space not in ("local", "global") and s.place.symbol is None for s in late.stores):
            continue
        to = rest[-1].span.end
        put = f"\n{indent_at(sites.text, rest[-1].span.start)}__syncthreads();"
        said = "a barrier put at the end of the loop: what stands there does not touch the tiles"
        return Change((Edit(to, to, put),), said, sites.line(rest[-1]))
    return None


def _matters(part: Body) -> bool:
    return any(not isinstance(s, ir.Nothing) for s in part)


def _private(sites: Sites, part: Body, loop: ir.For | ir.While) -> bool:
    """Whether statements touch nothing that threads share."""
    effects = sites.collector.collect(part)
    if effects.stores or effects.unknown or effects.barriers or effects.other_barriers or effects.jumps:
        return False
    if effects.asynchronous or _reads_shared(sites, effects) or "__syncwarp" in effects.calls:
        return False
    return not _reads_memory(sites, part) or not _stores_elsewhere(sites, loop)


def _reads_shared(sites: Sites, effects: Effects) -> bool:
    return any(sites.kernel.symbols[s].kind == "shared" for s in effects.reads)


def _reads_memory(sites: Sites, part: Body) -> bool:
    return any(_is_read(sites, node) for stmt in part for node in ir.walk(stmt))


def _is_read(sites: Sites, node: ir.Stmt | ir.Expr) -> bool:
    """Whether a node may read memory other than the thread's own."""
    if isinstance(node, ir.Index | ir.Member) or (isinstance(node, ir.Unary) and node.op == "*"):
        return sites.collector.places.of(node).space != "local"
    if isinstance(node, ir.Call):
        return intrinsics.VALUES.match(node.callee) is None
    return isinstance(node, ir.Asm | ir.Opaque | ir.OpaqueStmt)


def _stores_elsewhere(sites: Sites, loop: ir.For | ir.While) -> bool:
    return any(s.place.space != "shared" for s in sites.collector.collect([loop.body]).stores)


def _moved(sites: Sites, barrier: ir.Stmt, to: int, what: str) -> Change:
    """The barrier at another place of the same block, on a line of its own where it had one."""
    indent = indent_at(sites.text, to)
    text = sites.source(barrier)
    before = sites.text[line_start(sites.text, to) : to].strip()
    put = f"\n{indent}{text}" if before else f"{text}\n{indent}"
    said = f"{what} moved past statements that touch no memory which threads share"
    return Change((_deleted(sites, barrier.span), Edit(to, to, put)), said, sites.line(barrier))


def _deleted(sites: Sites, span: ir.Span) -> Edit:
    """A statement that goes, with its line where nothing else stands on it."""
    start, end = line_start(sites.text, span.start), line_end(sites.text, span.end)
    if sites.bare[start : span.start].strip() or sites.bare[span.end : end].strip():
        return Edit(span.start, span.end, "")
    return Edit(start, min(end + 1, len(sites.text)), "")


# -- two load phases an iteration ------------------------------------------------------------------------


def second_loads(situation: Situation) -> Change | Refusal | None:
    """``load K | sync | S = QK | sync | load V | sync | O += PV`` → ``load K, V | sync | S = QK | sync | O += PV``.

    V's loads may come earlier where nothing in between touches V's arrays, or changes what the loads read.
    """
    sites = situation.sites
    for loop in sites.tile_loops():
        body = statements(loop.body)
        cuts = [i for i, s in enumerate(body) if is_barrier(s)]
        if len(cuts) < 3 or not isinstance(loop.body, ir.Block) or any(s.span.within for s in body):
            continue
        if cuts[0] != 0 and any(not isinstance(s, ir.Nothing) for s in body[cuts[-1] + 1 :]):
            continue  # nothing would keep the next loads behind the last statements
        gate = cuts[1] if cuts[0] == 0 else cuts[0]  # the barrier behind the first loads
        if not sites.collector.collect(body[:gate]).stores_to_shared():
            continue
        for cut in (c for c in cuts if c > gate):
            end = _end_of_loads(sites, body, cut + 1)
            if end is not None and _may_come_earlier(sites, loop, gate, cut + 1, end):
                return _together(sites, body, gate, cut, end)
    return None


def _end_of_loads(sites: Sites, body: Body, start: int) -> int | None:
    """Behind the last of the statements from ``start`` on that copy global to shared memory and do nothing else."""
    filled = False
    at = start
    while at < len(body) and not is_barrier(body[at]):
        stmt = body[at]
        effects = sites.collector.collect([stmt])
        targets = effects.stores_to_shared()
        odd = effects.unknown or effects.barriers or effects.other_barriers or effects.jumps or effects.asynchronous
        kept = effects.writes - effects.declared
        shared = {s for s in effects.reads if sites.kernel.symbols[s].kind == "shared"}
        if odd or kept or shared - targets or any(s.place.symbol not in targets for s in effects.stores):
            break
        if not isinstance(stmt, ir.Declare | ir.Nothing) and not (targets and _reads_memory(sites, (stmt,))):
            break
        filled |= bool(targets)
        at += 1
    return at if filled else None


def _may_come_earlier(sites: Sites, loop: ir.For | ir.While, gate: int, start: int, end: int) -> bool:
    collect, body = sites.collector.collect, statements(loop.body)
    loads, between = collect(body[start:end]), collect(body[gate:start])
    first = collect(body[:gate])
    arrays = loads.stores_to_shared()
    touched = first.reads | between.reads | first.stores_to_shared() | between.stores_to_shared()
    inside = range(loop.span.start, loop.span.end)
    if any(n.span.start not in inside for a in arrays for n in sites.uses(a)):
        return False  # an address from outside may be used in between
    if arrays & touched or any(s.place.symbol is None for s in (*first.stores, *between.stores)):
        return False
    if between.unknown or (between.jumps and any(isinstance(s, ir.Jump) for s in body[gate:start])):
        return False
    return not loads.reads & (between.writes | between.declared)


def _together(sites: Sites, body: Body, gate: int, cut: int, end: int) -> Change:
    """The loads behind barrier ``cut`` put in front of barrier ``gate``, and one of two barriers that meet left out."""
    text = sites.text
    start = line_end(text, body[cut].span.end)
    if sites.bare[body[cut].span.end : start].strip() or body[end - 1].span.end < start:
        start = body[cut].span.end
    stop = line_end(text, body[end - 1].span.end)
    if sites.bare[body[end - 1].span.end : stop].strip():
        stop = body[end - 1].span.end
    moved = text[start:stop].decode()
    at = body[gate].span.start
    fresh = at if sites.bare[line_start(text, at) : at].strip() else line_start(text, at)
    edits = [Edit(fresh, fresh, moved.strip("\n") + "\n" if fresh != at else f"{moved}\n"), Edit(start, stop, "")]
    if end < len(body) and is_barrier(body[end]):
        edits.append(_deleted(sites, body[end].span))
    what = "the second load phase of an iteration put beside the first: nothing in between touches its arrays"
    return Change(tuple(edits), what, sites.line(body[cut + 1]))
