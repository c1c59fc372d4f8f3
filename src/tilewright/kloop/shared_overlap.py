"""Arrays that lie over each other in dynamic shared memory: the K-loop's tiles over an epilogue's buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.kloop.kernel import Refusal, SharedArray
from tilewright.source import ir
from tilewright.source.expr_types import Types
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel


def holders(kernel: OpenKernel, symbols: Iterable[int]) -> set[int]:
    """Some names, and every variable that holds an address made from them; data that is read there is none."""
    out = set(symbols)
    types = Types(kernel.symbols, kernel.constants.aliases)
    size = 0
    while size != len(out):
        size = len(out)
        for node in ir.walk(kernel.body):
            if isinstance(node, ir.Declare):
                out |= {s.id for s in node.symbols if s.init is not None and carries(s.init, out, types)}
            elif isinstance(node, ir.Assign) and isinstance(node.left, ir.Name) and carries(node.right, out, types):
                out |= {node.left.symbol} if node.left.symbol is not None else set()
    return out


def carries(expr: ir.Expr, symbols: set[int], types: Types) -> bool:
    """Whether the value of an expression may be an address made from some names."""
    if isinstance(expr, ir.Name):
        return expr.symbol in symbols
    if isinstance(expr, ir.Index | ir.Member) or (isinstance(expr, ir.Unary) and expr.op == "*"):
        kind = types.of(expr)
        if kind is not None and not kind.rank and not kind.pointers:
            return False
    if isinstance(expr, ir.Unary) and expr.op == "&":
        return any(isinstance(n, ir.Name) and n.symbol in symbols for n in ir.walk(expr.operand))
    return any(carries(c, symbols, types) for c in ir.children(expr) if isinstance(c, ir.Expr))


def overlaps(
    kernel: OpenKernel, loop: ir.For, shared: Mapping[int, SharedArray], staged: set[int]
) -> Refusal | tuple[str, ...]:
    """What rings take for granted of arrays that lie over the tiles, or why there can be none.

    Other arrays may lie over a tile where the K-loop leaves them alone: then they and the tiles are used in turns. That
    neither finds anything of the other's is taken for granted, and shows in the emulator where it is not so.
    """
    out: list[str] = []
    for tile in (a for a in shared.values() if a.symbol in staged and a.pool is not None):
        for other in shared.values():
            if other.symbol == tile.symbol or not _share_bytes(tile, other):
                continue
            if other.symbol in staged:
                what = f"`{tile.name}` and `{other.name}` are filled in the same iteration and share bytes"
                return Refusal("loop_carried_shared", what, other.line)
            inside = holders(kernel, {other.symbol})
            used = next((n for n in ir.walk(loop.body) if isinstance(n, ir.Name) and n.symbol in inside), None)
            if used is not None:
                what = f"the K-loop uses `{used.id}`, which shares bytes with `{tile.name}`"
                return Refusal("loop_carried_shared", what, kernel.source.line(used.span.start))
            if _prepared(kernel, loop, inside) and _conditional(loop, tile.symbol):
                what = f"`{other.name}`, used in front of the K-loop, lies over `{tile.name}`, filled under an `if`"
                return Refusal("loop_carried_shared", what, tile.line, "fill the rest with zeros")
            out.append(
                f"`{tile.name}` and `{other.name}` share bytes in turns: the K-loop reads only what its own loads have "
                f"stored, and the code around it only what it has stored itself"
            )
    return tuple(out)


def _share_bytes(a: SharedArray, b: SharedArray) -> bool:
    if a.pool is None or a.pool != b.pool:
        return False
    return a.offset_bytes < b.offset_bytes + b.total_bytes and b.offset_bytes < a.offset_bytes + a.total_bytes


def _prepared(kernel: OpenKernel, loop: ir.For, names: set[int]) -> bool:
    """Whether something may have been stored by some names when the K-loop begins."""
    around = any(
        isinstance(n, ir.For | ir.While) and n is not loop and n.span.start <= loop.span.start < n.span.end
        for n in ir.walk(kernel.body)
    )
    return around or any(
        isinstance(n, ir.Name) and n.symbol in names and n.span.start < loop.span.start for n in ir.walk(kernel.body)
    )


def _conditional(loop: ir.For, tile: int) -> bool:
    """Whether the K-loop stores to a tile inside an ``if``: where that fills nothing, what was there before stays."""
    return any(
        isinstance(n, ir.Assign) and (name := root(n.left)) is not None and name.symbol == tile
        for branch in ir.walk(loop.body)
        if isinstance(branch, ir.If)
        for n in ir.walk(branch)
    )
