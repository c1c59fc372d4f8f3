"""Loops with one barrier an iteration: a ring by hand, or a race."""

from __future__ import annotations

from tilewright.kloop.kernel import Refusal
from tilewright.source import ir
from tilewright.source.effects import Collector
from tilewright.source.places import root
from tilewright.source.reader import OpenKernel

_PROVE = "`tilewright prove` says whether its copies overlap"


class OneBarrier:
    """Judges one such loop; it is never rewritten."""

    def __init__(self, kernel: OpenKernel, collector: Collector) -> None:
        self._kernel = kernel
        self._collector = collector

    def judge(self, loop: ir.For, body: tuple[ir.Stmt, ...], cut: int, changing: set[int]) -> Refusal:
        """Args:
        cut: which statement of the body is the barrier. changing: names that differ between iterations.
        """
        here = self._kernel.source.line(body[cut].span.start)
        for node in ir.walk(ir.Block(loop.span, body)):
            if isinstance(node, ir.Assign) and (name := root(node.left)) is not None:
                symbol = self._kernel.symbols.get(name.symbol) if name.symbol is not None else None
                if symbol is None or symbol.kind != "shared":
                    continue
                if any(isinstance(n, ir.Name) and n.symbol in changing for n in ir.walk(node.left)):
                    what = "one barrier an iteration and a buffer that changes with it: a ring by hand"
                    return Refusal("already_pipelined", what, here, _PROVE)
        load, compute = self._collector.collect(body[:cut]), self._collector.collect(body[cut + 1 :])
        filled = load.stores_to_shared()
        meets = bool(compute.barriers) or bool(load.barriers) or "__syncwarp" in load.calls | compute.calls
        if filled & compute.reads and not filled & compute.stores_to_shared() and not meets:
            return Refusal(
                "baseline_race",
                "one barrier an iteration: a warp may refill the tile while another still reads it",
                here,
                "add a second __syncthreads() at the end of the loop",
            )
        return Refusal("not_understood", "the K-loop has one barrier; two are understood", here)
