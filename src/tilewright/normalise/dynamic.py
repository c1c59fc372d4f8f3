"""Dynamic shared memory and its carve-up → arrays of known extents at known places of the launch's buffer.

``float *B = raw + 1024;`` becomes ``auto &B = *reinterpret_cast<float (*)[1024]>(raw_bytes + 4096);``: what is said of
B is then said of an array, and the rings of a variant can be laid out in the same buffer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tilewright.kloop.kernel import Refusal
from tilewright.kloop.ranges import Interval
from tilewright.kloop.shared_overlap import holders
from tilewright.normalise.dynamic_pieces import Piece, Pieces, Use
from tilewright.normalise.loop_sites import Loop, Sites
from tilewright.normalise.result import Change, Situation
from tilewright.source import ir, lexical
from tilewright.source.edits import Edit
from tilewright.source.shared_views import is_view

ALIGNMENT_BYTES = 128  # what TMA asks of shared addresses, and more than any copy here
_EXTERN = re.compile(rb"\bextern\b[^;{}]*\b__shared__\b")
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class View:
    """A piece with its extent: bytes ``start`` to ``end`` of the buffer."""

    piece: Piece
    uses: tuple[Use, ...]
    start: int
    end: int

    @property
    def inside(self) -> bool:
        """The K-loop uses it."""
        return any(u.inside for u in self.uses)


def dynamic(situation: Situation) -> Change | Refusal | None:
    """Pieces of the launch's shared memory as arrays."""
    sites = situation.sites
    buffers = [s for s in sites.kernel.symbols.values() if s.kind == "shared" and s.extern]
    if not buffers or any(is_view(s) for s in sites.kernel.symbols.values()):
        return None
    buffer = buffers[0]
    line = sites.kernel.source.line(buffer.span.start)

    def no(what: str, hint: str = "declare the tiles as static arrays") -> Refusal:
        return Refusal("not_understood", what, line, hint)

    if len(buffers) > 1:
        return no("the kernel names its dynamic shared memory twice", "give it one name")
    if situation.shared_bytes is None or situation.shared_bytes <= 0:
        what = f"how many bytes `{buffer.name}` has does not follow from the launch, or hangs on a size"
        return no(
            what,
            "say `shared_bytes` in the sidecar, as a number or by constants, or declare the tiles as static arrays",
        )
    if _named_elsewhere(sites):
        return no("a __device__ function of the file names dynamic shared memory as well")
    loop = _k_loop(sites, buffer)
    owner = _declaration(sites, buffer)
    if loop is None or owner is None or buffer.span.within or sites.has_comment(owner.span):
        return None
    pieces = Pieces(sites, buffer, loop, situation.block)
    found = pieces.find()
    if isinstance(found, str):
        return no(found)
    odd = _odd_use(sites, buffer, found)
    if odd is not None:
        return odd
    views = _views(sites, pieces, found, situation.shared_bytes)
    return views if isinstance(views, Refusal) else _change(sites, owner, loop, found, views, situation.shared_bytes)


def _named_elsewhere(sites: Sites) -> bool:
    """Whether code outside kernels declares dynamic shared memory: it would be the same bytes."""
    text = lexical.without_comments(sites.text)
    spans = [k.span for k in sites.kernel.source.kernels]
    return any(not any(s.start <= m.start() < s.end for s in spans) for m in _EXTERN.finditer(text))


def _k_loop(sites: Sites, buffer: ir.Symbol) -> Loop | None:
    """The loop that fills shared memory between barriers, where there is one."""
    kept = holders(sites.kernel, {buffer.id})

    def fills(loop: Loop) -> bool:
        effects = sites.collector.collect([loop.body])
        through = any(s.place.space == "unknown" for s in effects.stores)
        return bool(effects.stores_to_shared()) or (through and bool(effects.reads & kept))

    filling = [x for x in sites.tile_loops() if fills(x)]
    inner = [x for x in filling if not any(y is not x and x.span.start <= y.span.start < x.span.end for y in filling)]
    return inner[0] if len(inner) == 1 else None


def _declaration(sites: Sites, symbol: ir.Symbol) -> ir.Declare | None:
    for node in ir.walk(sites.kernel.body):
        if isinstance(node, ir.Declare) and symbol in node.symbols:
            return node if len(node.symbols) == 1 else None
    return None


def _odd_use(sites: Sites, buffer: ir.Symbol, pieces: list[Piece]) -> Refusal | None:
    """A piece that cannot become an array, or a part of the buffer that is no piece."""
    names = {p.symbol.name for p in pieces} | {buffer.name}
    for node in ir.walk(sites.kernel.body):
        if isinstance(node, ir.Opaque | ir.OpaqueStmt | ir.SizeOf):
            said = next((n for n in sorted(names) if sites.says(node.span, n)), None)
            if said is not None and not (isinstance(node, ir.Opaque) and node.what == "unsized"):
                what = f"`{said}` is used in a way that is not understood"
                return Refusal("not_understood", what, sites.line(node), "declare the tiles as static arrays")
        if isinstance(node, ir.Declare):
            for s in node.symbols:
                refused = _unsized(sites, s, pieces, buffer)
                if refused is not None:
                    return refused
    return None


def _unsized(sites: Sites, symbol: ir.Symbol, pieces: list[Piece], buffer: ir.Symbol) -> Refusal | None:
    """A pointer into the buffer whose place is the same for all threads, but no constant."""
    if symbol.pointers != 1 or symbol.init is None or any(p.symbol is symbol for p in pieces):
        return None
    known = {p.symbol.id for p in pieces} | {buffer.id}
    named = [n for n in ir.walk(symbol.init) if isinstance(n, ir.Name) and n.symbol in known]
    if not named or symbol.depth != 1:
        return None
    builtin = any(isinstance(n, ir.Name) and n.id in ("threadIdx", "blockIdx") for n in ir.walk(symbol.init))
    locals_ = [sites.kernel.symbols[n.symbol] for n in ir.walk(symbol.init) if isinstance(n, ir.Name) and n.symbol]
    sized = [s for s in locals_ if s.id not in known and _from_parameters(sites, s, 0)]
    if builtin or not sized:
        return None
    what = f"where `{symbol.name}` begins depends on `{sized[0].name}`, which is known at run time only"
    hint = "make the tile's sizes constants, or template parameters"
    return Refusal("not_understood", what, sites.kernel.source.line(symbol.span.start), hint)


def _from_parameters(sites: Sites, symbol: ir.Symbol, depth: int) -> bool:
    """Whether a value is computed from the kernel's parameters alone."""
    if symbol.kind == "param":
        return True
    if symbol.init is None or depth > 8 or any(isinstance(n, ir.Member) for n in ir.walk(symbol.init)):
        return False
    inner = [sites.kernel.symbols[n.symbol] for n in ir.walk(symbol.init) if isinstance(n, ir.Name) and n.symbol]
    return bool(inner) and all(_from_parameters(sites, s, depth + 1) for s in inner)


# -- extents ------------------------------------------------------------------------------------------


def _views(sites: Sites, pieces: Pieces, found: list[Piece], total: int) -> list[View] | Refusal:
    """The pieces with their extents. What the K-loop uses must lie side by side; the rest may lie over it."""
    uses = {p.symbol.id: tuple(pieces.uses(p, found)) for p in found}
    used = [p for p in found if uses[p.symbol.id]]
    inside = sorted((p for p in used if any(u.inside for u in uses[p.symbol.id])), key=lambda p: p.offset)
    out: list[View] = []
    for p in used:
        here = uses[p.symbol.id]
        line = sites.kernel.source.line(p.symbol.span.start)
        others = inside if p in inside else used
        starts = [q.offset for q in others if q is not p and q.offset > p.offset]
        if any(q is not p and q.offset == p.offset for q in inside) and p in inside:
            what = f"the K-loop uses the bytes of `{p.symbol.name}` under another name as well"
            return Refusal("not_understood", what, line, "declare the tiles as static arrays")
        end = min([total, *starts])
        known = [u.extent for u in here if u.extent is not None]
        reach = max((k.high + 1 for k in known), default=p.offset)
        if p not in inside and (reach > end or len(known) != len(here)):
            end = total  # an epilogue's use of the whole buffer, over what the K-loop is done with
        if end <= p.offset or p.offset % p.size:
            what = f"`{p.symbol.name}` begins where the launch's {total} bytes have ended, or between two elements"
            return Refusal("not_understood", what, line)
        if any(k.low < p.offset or k.high >= end for k in known):
            what = f"`{p.symbol.name}` may be used beyond its {end - p.offset} bytes of the dynamic shared memory"
            return Refusal("not_understood", what, line, "declare the tiles as static arrays")
        end = _trimmed(p, here, end, total)
        out.append(View(p, here, p.offset, end))
    return out


def _trimmed(piece: Piece, uses: tuple[Use, ...], end: int, total: int) -> int:
    """A piece that nothing follows ends with what is used of it; where that is not all known, with what is filled."""
    known = [u.extent.high + 1 for u in uses if u.extent is not None]
    filled = [u.extent.high + 1 for u in uses if u.extent is not None and u.stores]
    inside = all(u.inside for u in uses)
    if end != total or not known or not (len(known) == len(uses) or (inside and filled)):
        return end
    return piece.offset + _whole(piece, max(known) - piece.offset, end - piece.offset)


def _whole(piece: Piece, size: int, most: int) -> int:
    """Bytes of a piece in whole rows, and where there is room in multiples of what tiles are aligned to."""
    row = piece.size
    for d in piece.dims:
        row *= d
    sizes = [-(-size // unit) * unit for a in (ALIGNMENT_BYTES, _VECTOR_BYTES, 1) if (unit := _common_multiple(row, a))]
    return next((s for s in sizes if s <= most), most)


def _tile(sites: Sites, view: View, loop: Loop) -> View | None:
    """The part of a piece that the K-loop fills and reads, where the code around it stores to the piece as well.

    What the loop reads must be what it fills: anything else in there would have to be in every stage.
    """
    around = [u for u in view.uses if not u.inside]
    within = [u for u in view.uses if u.inside]
    extents = [u.extent for u in within if u.extent is not None]
    if not around or not within or len(extents) != len(within) or not _stored_around(sites, view, loop):
        return None
    body = [u for u in within if loop.span.start <= u.name.span.start < loop.span.end]
    filled = _merged([u.extent for u in body if u.stores and u.extent is not None])
    if _prepared(sites, around, loop) and any(_conditional(loop, u) for u in body if u.stores):
        return None  # where nothing is stored, the loop may read what was there before
    if len(body) != len(within) or not all(any(f.low <= e.low and e.high <= f.high for f in filled) for e in extents):
        return None
    end = view.start + _whole(view.piece, max(e.high for e in extents) + 1 - view.start, view.end - view.start)
    return replace(view, end=end, uses=tuple(within))


def _prepared(sites: Sites, around: list[Use], loop: Loop) -> bool:
    """Whether something may be there when the K-loop begins."""
    return bool(sites.around(loop)) or any(u.name.span.start < loop.span.start for u in around)


def _conditional(loop: Loop, use: Use) -> bool:
    at = use.name.span.start
    return any(isinstance(n, ir.If) and n.span.start <= at < n.span.end for n in ir.walk(loop.body))


def _merged(extents: list[Interval]) -> list[Interval]:
    """Intervals of bytes, those that touch each other as one."""
    out: list[Interval] = []
    for e in sorted(extents, key=lambda e: e.low):
        if out and e.low <= out[-1].high + 1:
            out[-1] = out[-1].union(e)
        else:
            out.append(e)
    return out


def _stored_around(sites: Sites, view: View, loop: Loop) -> bool:
    """Whether shared memory is stored to outside the K-loop through the piece or what is made from it."""
    kept = holders(sites.kernel, {view.piece.symbol.id})
    for node in ir.walk(sites.kernel.body):
        if loop.span.start <= node.span.start < loop.span.end:
            continue
        target = node.left if isinstance(node, ir.Assign) else None
        if isinstance(node, ir.Call) and node.callee.endswith("store_matrix_sync") and node.args:
            target = node.args[0]
        elif isinstance(node, ir.Call) and not isinstance(target, ir.Expr):
            # A function may store through what it is given.
            known = node.callee.split("::")[-1] in ("load_matrix_sync", "__cvta_generic_to_shared")
            if not known and any(ir.names([a]) & kept for a in node.args):
                return True
        if target is not None and not isinstance(target, ir.Name) and ir.names([target]) & kept:
            return True
    return False


def _common_multiple(a: int, b: int) -> int:
    x, y = a, b
    while y:
        x, y = y, x % y
    return a // x * b


# -- edits --------------------------------------------------------------------------------------------


def _change(
    sites: Sites, owner: ir.Declare, loop: Loop, pieces: list[Piece], views: list[View], total: int
) -> Change | Refusal | None:
    line = sites.line(owner)
    pool = sites.fresh(f"{owner.symbols[0].name}_bytes")
    edits: list[Edit] = []
    aligned = _alignment(sites, owner)
    if aligned is None:
        what = f"the alignment of `{owner.symbols[0].name}` is no constant that is understood"
        return Refusal("not_understood", what, line)
    own: list[str] = [f"extern __shared__ __align__({aligned}) unsigned char {pool}[];"]
    assumptions: list[str] = []
    by_owner: dict[int, list[str]] = {}
    owners: dict[int, ir.Declare] = {}
    for view in views:
        lines, more = _declared(sites, view, loop, pool)
        if more is None:
            return None
        edits += more
        assumptions += _assumed(view)
        if view.piece.owner is None:
            own += lines
        else:
            owners[id(view.piece.owner)] = view.piece.owner
            by_owner.setdefault(id(view.piece.owner), []).extend(lines)
    for key, lines in by_owner.items():
        stmt = owners[key]
        if any(all(p.symbol is not s for p in pieces) for s in stmt.symbols) or sites.has_comment(stmt.span):
            what = "a pointer into the dynamic shared memory is declared beside other things"
            return Refusal("not_understood", what, sites.line(stmt), "declare it in a statement of its own")
        edits.append(sites.replaced(stmt, lines))
    gone = {id(p.owner): p.owner for p in _unused(views, pieces) if p.owner is not None}
    edits += [sites.removed(o) for key, o in gone.items() if key not in by_owner and len(o.symbols) == 1]
    start = sites.statement_start(owner)
    edits.append(Edit(start, owner.span.end, sites.joined(owner, own)))
    names = ", ".join(f"`{v.piece.symbol.name}`" for v in views)
    what = f"{names} declared as arrays in the {total} bytes of dynamic shared memory"
    return Change(tuple(edits), what, line, total, tuple(assumptions), measured=True)


def _alignment(sites: Sites, owner: ir.Declare) -> int | None:
    """What the buffer is aligned to: what its declaration asks for, or more."""
    start = sites.statement_start(owner)
    asked = [text.strip() for at, text in sites.kernel.source.alignments if start <= at < owner.span.end]
    known = [int(x) if x.isdigit() else sites.kernel.constants.by_name(x) for x in asked]
    return None if None in known else max([ALIGNMENT_BYTES, *(k for k in known if k is not None)])


def _declared(sites: Sites, view: View, loop: Loop, pool: str) -> tuple[list[str], list[Edit] | None]:
    """The declaration of a view; of its part that the K-loop uses too, where the rest is used around it."""
    lines = [_view_text(view, view.piece.symbol.name, pool)]
    tile = _tile(sites, view, loop)
    if tile is None:
        return lines, []
    name = sites.fresh(f"{view.piece.symbol.name}_tile")
    edits: list[Edit] = []
    for use in tile.uses:
        if use.name.span.within:
            return lines, None
        edits.append(Edit(use.name.span.start, use.name.span.end, name))
    return [*lines, f"{_view_text(tile, name, pool)}  // what the K-loop fills"], edits


def _view_text(view: View, name: str, pool: str) -> str:
    p = view.piece
    row = p.size
    for d in p.dims:
        row *= d
    dims = "".join(f"[{d}]" for d in ((view.end - view.start) // row, *p.dims))
    at = f" + {view.start}" if view.start else ""
    return f"auto &{name} = *reinterpret_cast<{p.element} (*){dims}>({pool}{at});"


def _assumed(view: View) -> list[str]:
    if all(u.extent is not None for u in view.uses):
        return []
    size = view.end - view.start
    return [f"nothing reaches past the {size} bytes of `{view.piece.symbol.name}` in the dynamic shared memory"]


def _unused(views: list[View], pieces: list[Piece]) -> list[Piece]:
    """Pieces that nothing uses but other pieces."""
    kept = {v.piece.symbol.id for v in views}
    return [p for p in pieces if p.owner is not None and p.symbol.id not in kept]
