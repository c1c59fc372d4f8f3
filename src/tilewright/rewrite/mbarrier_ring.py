"""The ring that asynchronous bulk copies fill: the loop around it, the same for rows (bulk) and boxes (tma).

Every tile ends exactly one phase of its stage's mbarrier, whichever way it was copied: with the bytes of the copies
expected, or, where all threads copied it as the original does, with a plain arrival. So the parity to wait for depends
on the round of the ring alone, and a tile that cannot go the fast way costs nobody else anything.
"""

from __future__ import annotations

from typing import Protocol

from tilewright.kloop.kernel import Bump, Refusal
from tilewright.rewrite.context import LAST_BARRIER, Context
from tilewright.rewrite.mbarrier import Functions
from tilewright.source.edits import Edit, indented


class Filler(Protocol):
    """What a variant adds: when a tile goes the fast way, and how."""

    def condition(self) -> list[str]:
        """Lines that declare ``whole``, the same for all threads of the block."""
        ...

    def issue(self) -> list[str]:
        """Lines that announce the tile's bytes and issue its copies."""
        ...


def refusal(context: Context, issued: str) -> Refusal | None:
    """What stands against a ring of mbarriers in this kernel, whatever fills it."""
    kernel = context.kernel
    refused = context.unusable(ring=True)
    if refused is not None:
        return refused
    stream = kernel.stream
    if stream is not None and stream.unring is not None:
        return stream.unring
    if stream is not None and (stream.carried or stream.bumped):
        symbol = min([*stream.carried, *(b.symbol for b in stream.bumped)])
        what = f"the load phase advances `{kernel.symbols[symbol].name}` for every thread by itself"
        return Refusal("not_contiguous", what, kernel.line_of(stream.body[0].span.start))
    if kernel.divergent_return is not None:
        why = f"some threads leave the kernel in front of the K-loop; one of them might be one that issues {issued}"
        return Refusal("divergent_barrier", why, kernel.divergent_return, "let all threads of a block reach the loop")
    if (kernel.tile.threads or 0) < 1:
        return Refusal("not_understood", "the threads of a block are not known", kernel.line, "a sidecar says how many")
    return None


class RingWriter:
    """Writes the K-loop around a ring of stages with one mbarrier each."""

    def __init__(self, context: Context, tensor: bool) -> None:
        self.c = context
        n = context.names
        self.f = Functions(n, tensor)
        self.full = n.fresh("tile_full")
        self.thread = n.fresh("copy_thread")
        self.copy_tile = n.fresh("copy_tile")
        self.whole = n.fresh("whole")
        self.stage = n.fresh("stage")
        self.read_stage = n.fresh("read_stage")
        self.write_stage = n.fresh("write_stage")
        self.parity = n.fresh("parity")
        self.next_k = n.fresh(f"{context.kernel.loop.var.name}_ahead")

    def edits(self, filler: Filler) -> list[Edit]:
        c, kernel = self.c, self.c.kernel
        last = f"({self.read_stage} == 0 ? {c.stages_name} : {self.read_stage}) - 1"
        behind = [
            LAST_BARRIER,
            f"if ({self.thread} == 0) {{  // the barriers' memory is free again, also for the next time around",
            f"{c.unit}for (int {self.stage} = 0; {self.stage} < {c.stages_name}; ++{self.stage}) "
            f"{self.f['inval']}(&{self.full}[{self.stage}]);",
            "}",
            *c.last_views(last),
        ]
        edits = c.declarations(ring=True)
        edits += c.loop_edit(self._loop(filler), behind)
        edits.append(self.f.edit(kernel.text, kernel.loop.insert_at))
        return edits

    def _loop(self, filler: Filler) -> list[str]:
        c = self.c
        i1, i2 = c.outer, c.inner
        ahead = f"{c.stages_name} - 1"
        landed = f"{self.f['wait']}(&{self.full}[{self.read_stage}], {self.parity});"
        return [
            f"{i1}// Software pipeline: while a tile is computed, the copies of the next {ahead} tiles are in flight.",
            *indented(self._barriers(), i1),
            "",
            *self._copy_tile(filler),
            "",
            *self._prologue(ahead),
            "",
            f"{i1}int {self.read_stage} = 0;",
            f"{i1}int {self.write_stage} = {ahead};",
            f"{i1}unsigned {self.parity} = 0;  // of the phase that ends when the tile in the stage has landed",
            c.loop_header(),
            f"{i2}{landed}  // what was copied asynchronously has landed",
            f"{i2}__syncthreads();  // what threads copied, too; and nobody still reads the stage that is filled next",
            *indented(self._copy_next(ahead), i2),
            *indented(c.fence(), i2),
            "",
            *indented(c.views(self.read_stage), i2),
            *c.compute_lines(),
            "",
            f"{i2}{self.read_stage} = {self.read_stage} + 1 == {c.stages_name} ? 0 : {self.read_stage} + 1;",
            f"{i2}{self.write_stage} = {self.write_stage} + 1 == {c.stages_name} ? 0 : {self.write_stage} + 1;",
            f"{i2}{self.parity} ^= {self.read_stage} == 0;  // the next round of the ring",
            f"{i1}}}",
        ]

    def _barriers(self) -> list[str]:
        c = self.c
        # Copies read global memory through another proxy than stores in front of the loop wrote it.
        stored = ['asm volatile("fence.proxy.async;" ::: "memory");  // what was stored before, in front of the copies']
        linear = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
        return [
            f"__shared__ __align__(8) unsigned long long {self.full}[{c.stages_name}];",
            f"const int {self.thread} = {linear};",
            f"if ({self.thread} == 0) {{",
            f"{c.unit}for (int {self.stage} = 0; {self.stage} < {c.stages_name}; ++{self.stage}) "
            f"{self.f['init']}(&{self.full}[{self.stage}]);",
            f"{c.unit}{self.f['init_fence']}();",
            "}",
            *(stored if c.kernel.stores_before else []),
            "__syncthreads();  // the barriers are there, and what was written before, for every thread",
        ]

    def _call(self, k: str, stage: str) -> str:
        return f"{self.copy_tile}({f'{k}, ' if self.c.loads_use_var() else ''}{stage});"

    def _copy_tile(self, filler: Filler) -> list[str]:
        c = self.c
        k = f"{c.var_type} {c.kernel.loop.var.name}, " if c.loads_use_var() else ""
        inside = c.inner + c.unit
        bumps = [c.source(i.stmt) for i in (*c.kernel.loads, *c.kernel.loop.bumps_after) if isinstance(i, Bump)]
        return [
            f"{c.outer}auto {self.copy_tile} = [&]({k}int {self.stage}) {{",
            *indented(c.views(self.stage), c.inner),
            *indented(filler.condition(), c.inner),
            f"{c.inner}if ({self.whole}) {{",
            *indented([*filler.issue(), *bumps], inside),
            f"{c.inner}}} else {{",
            *(c.unit + line if line.strip() and not line.startswith("#") else line for line in c.load_lines([])),
            *indented([f"if ({self.thread} == 0) {self.f['arrive']}(&{self.full}[{self.stage}]);"], inside),
            f"{c.inner}}}",
            f"{c.outer}}};",
        ]

    def _prologue(self, ahead: str) -> list[str]:
        c, var = self.c, self.c.kernel.loop.var.name
        i1, i2 = c.outer, c.inner
        return [
            f"{i1}// Prologue: fill all stages but one.",
            f"{i1}for (int {self.stage} = 0; {self.stage} < {ahead}; ++{self.stage}) {{",
            *indented([f"{c.var_type} {var} = {c.tile_index(self.stage)};"], i2),
            *indented([f"if ({c.in_range(var)}) {self._call(var, self.stage)}"], i2),
            f"{i1}}}",
        ]

    def _copy_next(self, ahead: str) -> list[str]:
        c = self.c
        return [
            f"const {c.var_type} {self.next_k} = {c.kernel.loop.var.name} + {c.times(ahead)};",
            f"if ({c.in_range(self.next_k)}) {self._call(self.next_k, self.write_stage)}",
        ]
