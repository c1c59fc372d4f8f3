"""Arrays that lie over each other in dynamic shared memory: the K-loop's tiles over an epilogue's buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.source import ir
from tilewright.source.kernel import Refusal, SharedArray
from tilewright.source.reader import OpenKernel


def holders(body: ir.Stmt, symbols: Iterable[int]) -> set[int]:
    """Some names, and every variable that is set to something made from them."""
    out = set(symbols)
    size = 0
    while size != len(out):
        size = len(out)
        for node in ir.walk(body):
            if isinstance(node, ir.Declare):
                out |= {s.id for s in node.symbols if s.init is not None and _names(s.init) & out}
            elif isinstance(node, ir.Assign) and isinstance(node.left, ir.Name) and _names(node.right) & out:
                out |= _names(node.left)
    return out


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
            inside = holders(kernel.body, {other.symbol})
            used = next((n for n in ir.walk(loop.body) if isinstance(n, ir.Name) and n.symbol in inside), None)
            if used is not None:
                what = f"the K-loop uses `{used.id}`, which shares bytes with `{tile.name}`"
                return Refusal("loop_carried_shared", what, kernel.source.line(used.span.start))
            out.append(
                f"`{tile.name}` and `{other.name}` share bytes in turns: the K-loop reads only what its own loads have "
                f"stored, and the code around it only what it has stored itself"
            )
    return tuple(out)


def _share_bytes(a: SharedArray, b: SharedArray) -> bool:
    if a.pool is None or a.pool != b.pool:
        return False
    return a.offset_bytes < b.offset_bytes + b.total_bytes and b.offset_bytes < a.offset_bytes + a.total_bytes


def _names(expr: ir.Expr) -> set[int]:
    return {n.symbol for n in ir.walk(expr) if isinstance(n, ir.Name) and n.symbol is not None}
