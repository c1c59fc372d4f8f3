"""Loads through registers: the next tile waits in registers while the current one is computed.

``ldg`` stores it to a second shared buffer (one barrier a tile), ``ldg_single`` to the same one (two barriers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.rewrite.context import Context
from tilewright.rewrite.edits import Edit, apply, reindent, unified_diff
from tilewright.rewrite.ldg_halves import Halves
from tilewright.rewrite.result import Remedy, RewrittenSource
from tilewright.source import ir
from tilewright.source.kernel import Copy, CopyLoop, Fetch, LaneStore, LoadItem, Pure, Refusal, TiledKernel


def rewrite(
    kernel: TiledKernel, single: bool, static_limit_bytes: int, remedy: Remedy | None = None
) -> RewrittenSource | Refusal:
    """The kernel with the next tile's loads in registers; ``single``: one shared buffer instead of two.

    ``static_limit_bytes``: what a block may declare statically (48 KiB); a larger ring becomes dynamic.
    """
    context = Context(kernel, 1 if single else 2, remedy or Remedy(), static_limit_bytes)
    writer = _Writer(context, single)
    refused = writer.refusal()
    if refused is not None:
        return refused
    text = writer.file()
    name = "ldg_single" if single else "ldg"
    diff = unified_diff(kernel.text.decode(), text, kernel.file, f"{kernel.file} ({name})")
    return RewrittenSource(
        "ldg_single" if single else "ldg",
        context.stages,
        text,
        diff,
        2 if single else 1,
        context.dynamic_bytes,
        context.remedy,
    )


class _Writer:
    def __init__(self, context: Context, single: bool) -> None:
        self.c = context
        self.single = single
        self.h = Halves(context, single)

    # -- refusals -----------------------------------------------------------------------------------
    def refusal(self) -> Refusal | None:
        kernel = self.c.kernel
        if kernel.elsewhere is not None and not self.single:
            return Refusal(
                "loop_carried_shared",
                "a tile's array is also used outside the K-loop",
                kernel.elsewhere,
                "the ldg_single variant keeps the arrays in place",
            )
        for array in kernel.staged:
            refused = self.c.misaligned(array, ring=not self.single)
            if refused is not None:
                return refused
        refused = None if self.single else self.c.undividable()
        if refused is not None:
            return refused
        for item in kernel.loads:
            refused = self._item_refusal(item)
            if refused is not None:
                return refused
        return self._store_refusal()

    def _item_refusal(self, item: LoadItem) -> Refusal | None:
        if isinstance(item, CopyLoop):
            here = self.c.kernel.text.count(b"\n", 0, item.stmt.span.start) + 1
            if item.trips is None:
                return Refusal(
                    "not_understood",
                    "the trip count of a copy loop is not constant, so registers cannot hold its loads",
                    here,
                    "make the tile size and the thread count constants",
                )
            if item.first_value is not None and (item.stride_value or 0) <= 0:
                return Refusal("not_understood", "a copy loop does not count upwards", here)
            if any(isinstance(i, Fetch | LaneStore) for i in item.body):
                return Refusal("not_understood", "registers are filled inside a copy loop: not understood yet", here)
        return None

    def _store_refusal(self) -> Refusal | None:
        """What is needed when a tile is stored must not have moved on since it was fetched."""
        kernel = self.c.kernel
        for item in kernel.loads:
            inner: Iterable[LoadItem] = item.body if isinstance(item, CopyLoop) else (item,)
            pures = [i for i in inner if isinstance(i, Pure)]
            for entry in inner:
                if isinstance(entry, Copy | LaneStore):
                    moved = self.h.needs(entry, pures, whole=False) & self.h.moved()
                    if moved:
                        line = kernel.text.count(b"\n", 0, entry.stmt.span.start) + 1
                        return Refusal(
                            "not_understood",
                            f"where a tile is stored depends on "
                            f"`{kernel.symbols[min(moved)].name}`, which moves with the loads",
                            line,
                        )
        return None

    # -- the file -------------------------------------------------------------------------------------
    def file(self) -> str:
        kernel = self.c.kernel
        edits = self.c.declarations(ring=not self.single)
        edits.append(Edit(kernel.loop.insert_at, kernel.loop.stmt.span.end, self._loop()))
        return apply(kernel.text, ir.Span(0, len(kernel.text)), edits)

    # -- the loop -------------------------------------------------------------------------------------------
    def _loop(self) -> str:
        c = self.c
        loop = c.kernel.loop
        var, kind = loop.var.name, c.var_type
        i1, i2, u = c.outer, c.inner, c.unit
        fetch_k = c.uses_var(c.reads([x.stmt for x in c.kernel.loads] + [b.stmt for b in loop.bumps_after]))
        store_k = c.uses_var(self.h.store_reads())
        fetch_params = f"{kind} {var}" if fetch_k else ""
        stage_param = [] if self.single else [f"int {self.h.stage}"]
        store_params = ", ".join([*([f"{kind} {var}"] if store_k else []), *stage_param])

        def fetch(k: str) -> str:
            return f"{self.h.fetch_tile}({k if fetch_k else ''});"

        def store(k: str, stage: str) -> str:
            arguments = [*([k] if store_k else []), *([] if self.single else [stage])]
            return f"{self.h.store_tile}({', '.join(arguments)});"

        views = [] if self.single else c.views(self.h.stage)
        step = "1" if loop.step_value == 1 else c.operand(loop.step)
        head = [
            f"{i1}// Software pipeline: the loads of the next tile wait in registers while this tile is computed.",
            *(i1 + r for r in self.h.register_lines()),
            f"{i1}auto {self.h.fetch_tile} = [&]({fetch_params}) {{",
            self.h.fetch_text(),
            f"{i1}}};",
            f"{i1}auto {self.h.store_tile} = [&]({store_params}) {{",
            *(i2 + v for v in views),
            *(reindent(x, i2) for x in self.h.store_lines()),
            f"{i1}}};",
            "",
            f"{i1}{{  // Prologue: the first tile.",
            f"{i2}{kind} {var} = {c.source(loop.first)};",
            f"{i2}if ({c.in_range(var)}) {{",
            f"{i2}{u}{fetch(var)}",
            f"{i2}{u}{store(var, '0')}",
            f"{i2}}}",
            f"{i1}}}",
        ]
        ahead = [
            f"{i2}const {kind} {self.h.next_k} = {var} + {step};",
            f"{i2}const bool {self.h.more} = {c.in_range(self.h.next_k)};",
            f"{i2}if ({self.h.more}) {fetch(self.h.next_k)}",
            *(i2 + f for f in c.fence()),
        ]
        return "\n".join([*head, *self._steady(ahead, store)])

    def _steady(self, ahead: list[str], store: Callable[[str, str], str]) -> list[str]:
        """The steady state: issue the next tile's loads, compute, store them.

        Usually the loads are issued behind the barrier. With the remedy ``early_loads`` they stand in front of it,
        where ptxas cannot sink them below the compute phase; that can cost registers.
        """
        c, h = self.c, self.h
        i1, i2 = c.outer, c.inner
        body = ["", *(i2 + v for v in ([] if self.single else c.views(h.stage))), c.compute().rstrip("\n"), ""]
        early = c.remedy.early_loads
        if self.single:
            arrived = f"{i2}__syncthreads();  // this tile is in shared memory"
            issue = [*ahead, arrived] if early else [arrived, *ahead]
            free = f"{i2}__syncthreads();  // nobody reads it any more"
            last = f"{i2}if ({h.more}) {store(h.next_k, '0')}"
            return [f"{c.loop_header()} {{", *issue, *body, free, last, f"{i1}}}"]
        move = f"{i2}if ({h.more}) {store(h.next_k, f'{h.stage} ^ 1')}"
        toggle = f"{i2}{h.stage} ^= 1;"
        start = ["", f"{i1}int {h.stage} = 0;", f"{c.loop_header()} {{"]
        if early:
            arrived = (
                f"{i2}__syncthreads();  // this tile is in shared memory, nobody reads the other stage any more"
            )
            return [*start, *ahead, arrived, *body, move, toggle, f"{i1}}}"]
        arrived = f"{i2}__syncthreads();  // the next tile is in shared memory, and nobody reads this one any more"
        return [f"{i1}__syncthreads();", *start, *ahead, *body, move, arrived, toggle, f"{i1}}}"]
