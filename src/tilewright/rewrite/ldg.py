"""Loads through registers: the next tile waits in registers while the current one is computed.

``ldg`` stores it to a second shared buffer (one barrier a tile), ``ldg_single`` to the same one (two barriers).
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.kloop.kernel import Copy, CopyLoop, LaneStore, LoadItem, Pure, Refusal, TiledKernel
from tilewright.rewrite.context import LAST_BARRIER, Context
from tilewright.rewrite.ldg_halves import Halves
from tilewright.rewrite.load_halves import LoadHalves, cut_at_loads
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.rewrite.stream_halves import StreamHalves
from tilewright.source.edits import finish, indented, unified_diff


def rewrite(
    kernel: TiledKernel, single: bool, static_limit_bytes: int, remedy: Remedy | None = None
) -> RewrittenSource | Refusal:
    """The kernel with the next tile's loads in registers; ``single``: one shared buffer instead of two.

    ``static_limit_bytes``: what a block may declare statically (48 KiB); a larger ring becomes dynamic.
    """
    remedy = remedy or Remedy()
    if remedy.at_loads:
        kernel = cut_at_loads(kernel)
    context = Context(kernel, 1 if single else 2, remedy, static_limit_bytes)
    writer = _Writer(context, single)
    refused = writer.refusal()
    if refused is not None:
        return refused
    text = writer.file()
    name = "ldg_single" if single else "ldg"
    diff = unified_diff(kernel.handed_in, text, kernel.file, f"{kernel.file} ({name})")
    barriers = 2 if single else 1
    return RewrittenSource(
        "ldg_single" if single else "ldg",
        context.stages,
        text,
        diff,
        barriers,
        context.launch_bytes,
        context.remedy,
    )


class _Writer:
    def __init__(self, context: Context, single: bool) -> None:
        self.c = context
        self.single = single
        text = context.stream_text
        self.h: Halves | StreamHalves | LoadHalves
        if text is None:
            self.h = Halves(context, single)
        elif context.remedy.at_loads and text.stream.split is not None:
            self.h = LoadHalves(context, text.stream, text.stream.split, text)
        else:
            self.h = StreamHalves(context, text.stream, text)

    # -- refusals -----------------------------------------------------------------------------------
    def refusal(self) -> Refusal | None:
        refused = self.c.unusable(ring=not self.single)
        if refused is not None:
            return refused
        if not isinstance(self.h, Halves):
            unring = None if self.single else self.h.stream.unring
            return unring or self.h.refusal()
        for item in self.c.kernel.loads:
            refused = self._item_refusal(item) or self._store_refusal(item, self.h)
            if refused is not None:
                return refused
        return None

    def _line(self, offset: int) -> int:
        return self.c.kernel.line_of(offset)

    def _item_refusal(self, item: LoadItem) -> Refusal | None:
        if not isinstance(item, CopyLoop):
            return None
        here = self._line(item.stmt.span.start)
        if item.trips is None:
            what = "the trip count of a copy loop is not constant, so registers cannot hold its loads"
            return Refusal("not_understood", what, here, "make the tile size and the thread count constants")
        if item.trips == 0:
            return Refusal("not_understood", "a copy loop copies nothing", here)
        if item.first_value is not None and (item.stride_value or 0) <= 0:
            return Refusal("not_understood", "a copy loop does not count upwards", here)
        return None

    def _store_refusal(self, item: LoadItem, halves: Halves) -> Refusal | None:
        """What is needed when a tile is stored must not have moved on since it was fetched."""
        inner: Iterable[LoadItem] = item.body if isinstance(item, CopyLoop) else (item,)
        pures = [i for i in inner if isinstance(i, Pure)]
        for entry in inner:
            if isinstance(entry, Copy | LaneStore):
                moved = halves.needs(entry, pures, whole=False) & halves.moved()
                if moved:
                    name = self.c.kernel.symbols[min(moved)].name
                    what = f"where a tile is stored depends on `{name}`, which moves with the loads"
                    return Refusal("not_understood", what, self._line(entry.stmt.span.start))
        return None

    # -- the file -------------------------------------------------------------------------------------
    def file(self) -> str:
        # With its loads in front, the two-buffer loop ends without a barrier.
        open_ended = self.c.remedy.early_loads and not self.single
        edits = self.c.declarations(ring=not self.single)
        edits += self.c.loop_edit(self._loop(), self._behind(open_ended))
        return finish(self.c.kernel.text, edits)

    def _behind(self, open_ended: bool) -> list[str]:
        """What follows the K-loop: a barrier where its last tile was not followed by one, and names of that tile."""
        views = [] if self.single else self.c.last_views(f"{self.h.stage} ^ 1")
        return [*([LAST_BARRIER] if open_ended else []), *views]

    def _fetch(self, k: str) -> str:
        return f"{self.h.fetch_tile}({k if self.c.loads_use_var() else ''});"

    def _store(self, k: str, stage: str) -> str:
        arguments = [*([k] if self._store_uses_var() else []), *([] if self.single else [stage])]
        return f"{self.h.store_tile}({', '.join(arguments)});"

    def _store_uses_var(self) -> bool:
        return self.c.uses_var(self.h.store_reads())

    def _loop(self) -> list[str]:
        c, h = self.c, self.h
        i1 = c.outer
        return [
            f"{i1}// Software pipeline: the loads of the next tile wait in registers while this tile is computed.",
            *indented(h.register_lines(), i1),
            *self._lambdas(),
            "",
            *self._prologue(),
            *self._steady(),
            f"{i1}}}",
        ]

    def _lambdas(self) -> list[str]:
        c, h = self.c, self.h
        k = f"{c.var_type} {c.kernel.loop.var.name}"
        stage = [] if self.single else [f"int {h.stage}"]
        store_params = ", ".join([*([k] if self._store_uses_var() else []), *stage])
        return [
            f"{c.outer}auto {h.fetch_tile} = [&]({k if c.loads_use_var() else ''}) {{",
            *h.fetch_lines(),
            f"{c.outer}}};",
            f"{c.outer}auto {h.store_tile} = [&]({store_params}) {{",
            *indented([] if self.single else c.views(h.stage), c.inner),
            *indented(h.store_lines(), c.inner),
            f"{c.outer}}};",
        ]

    def _prologue(self) -> list[str]:
        c, var = self.c, self.c.kernel.loop.var.name
        lines = [
            f"{c.var_type} {var} = {c.source(c.kernel.loop.first)};",
            f"if ({c.in_range(var)}) {{",
            f"{c.unit}{self._fetch(var)}",
            f"{c.unit}{self._store(var, '0')}",
            "}",
        ]
        # Early loads are issued before any barrier of the loop; a ring in dynamic memory may lie over other arrays.
        moved = c.pool is not None and not self.single
        barrier = c.first_barrier() if c.remedy.early_loads or c.kernel.loop.leading or moved else []
        return [*barrier, f"{c.outer}{{  // Prologue: the first tile.", *indented(lines, c.inner), f"{c.outer}}}"]

    def _fetch_next(self) -> list[str]:
        c, h = self.c, self.h
        step = "1" if c.kernel.loop.step.span.within else c.operand(c.kernel.loop.step)
        lines = [
            f"const {c.var_type} {h.next_k} = {c.kernel.loop.var.name} + {step};",
            f"const bool {h.more} = {c.in_range(h.next_k)};",
            f"if ({h.more}) {self._fetch(h.next_k)}",
            *c.fence(),
        ]
        return indented(lines, c.inner)

    def _steady(self) -> list[str]:
        """The steady state: issue the next tile's loads, compute, store them.

        Usually the loads are issued behind the barrier. With the remedy ``early_loads`` they stand in front of it,
        where ptxas cannot sink them below the compute phase; that can cost registers.
        """
        c, h, i2 = self.c, self.h, self.c.inner
        views = [] if self.single else indented(c.views(h.stage), i2)
        ahead, compute = self._fetch_next(), ["", *views, *c.compute_lines(), ""]
        if self.single:
            arrived = f"{i2}__syncthreads();  // this tile is in shared memory"
            issue = [*ahead, arrived] if c.remedy.early_loads else [arrived, *ahead]
            free = f"{i2}__syncthreads();  // nobody reads it any more"
            return [c.loop_header(), *issue, *compute, free, f"{i2}if ({h.more}) {self._store(h.next_k, '0')}"]
        start = ["", f"{c.outer}int {h.stage} = 0;", c.loop_header()]
        move = f"{i2}if ({h.more}) {self._store(h.next_k, f'{h.stage} ^ 1')}"
        toggle = f"{i2}{h.stage} ^= 1;"
        if c.remedy.early_loads:
            arrived = f"{i2}__syncthreads();  // this tile is in shared memory, nobody reads the other stage any more"
            return [*start, *ahead, arrived, *compute, move, toggle]
        arrived = f"{i2}__syncthreads();  // the next tile is in shared memory, and nobody reads this one any more"
        return [f"{c.outer}__syncthreads();", *start, *ahead, *compute, move, arrived, toggle]
