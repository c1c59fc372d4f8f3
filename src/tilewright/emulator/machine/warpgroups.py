"""wgmma: products of whole warpgroups, whose reads of shared memory and accumulators last until a wait.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.faults import Fault
from tilewright.emulator.machine.bulk_copies import UNIT, Tokens
from tilewright.emulator.machine.chunk import WARP, Active, Array, Chunk
from tilewright.emulator.machine.shared_memory import SharedMemory
from tilewright.emulator.machine.warps import Stuck, Warps
from tilewright.emulator.machine.watch import Watch
from tilewright.emulator.matrix.elements import decode, element_bits
from tilewright.emulator.matrix.wgmma import wgmma
from tilewright.emulator.tensor import descriptors
from tilewright.errors import TilewrightError

WARPS = 4
THREADS = WARPS * WARP
M = 64
K_BYTES = 32


@dataclass(frozen=True)
class Product:
    """What an instruction computes.

    Attributes:
        types: of D, A and B. k_major_a, k_major_b: not transposed.
    """

    n: int
    types: tuple[str, str, str]
    negate_a: bool = False
    negate_b: bool = False
    k_major_a: bool = True
    k_major_b: bool = True
    saturate: bool = False


@dataclass
class _Running:
    """A product that no wait has finished: warps of the chunk, the group of each, and the token of its reads."""

    warps: Array
    group: Array
    site: int
    token: int


class Warpgroups:
    def __init__(self, chunk: Chunk, shared: SharedMemory, watch: Watch, tokens: Tokens, warps: Warps) -> None:
        self.chunk = chunk
        self.warps = warps
        self.shared = shared
        self.watch = watch
        self.tokens = tokens
        self.running: list[_Running] = []
        self._committed = np.zeros(chunk.threads // WARP, np.int64)  # groups of each warp

    # -- instructions ------------------------------------------------------------------------------------

    def multiply(
        self, active: Active, product: Product, d: tuple[Any, ...], a: Any, b: Any, scale_d: Any, site: int
    ) -> tuple[Array, ...]:
        """``a``: four registers, or a descriptor; ``b``: a descriptor. What D will be, once it is waited for."""
        first = self._first_threads(active, site)
        self.watch.converge(active)
        token = self.tokens.new()
        numbers = self._b(active, first, product, b, token, site)
        if isinstance(a, tuple):
            left: Any = [active.spread(x) for x in a]
        else:
            left = self._a(active, first, product, a, token, site)
        registers = [active.spread(x) for x in d]
        warps = active.threads[::WARP] >> 5
        self.running.append(_Running(warps, self._committed[warps], site, token))
        try:
            return wgmma(
                product.n,
                product.types,
                registers,
                left,
                numbers,
                scale_d if getattr(scale_d, "ndim", 0) else bool(scale_d),
                product.negate_a,
                product.negate_b,
                product.saturate,
            )
        except TilewrightError as error:
            raise Fault("not_modelled", error.message.rstrip("."), site) from error

    def fence(self, active: Active) -> None:
        self.watch.converge(active)

    def commit(self, active: Active) -> None:
        self.watch.converge(active)
        self._committed[np.unique(active.threads >> 5)] += 1

    def wait(self, active: Active, newest: int) -> None:
        """At most ``newest`` groups of these warps go on."""
        self.watch.converge(active)
        here = np.zeros(len(self._committed), bool)
        here[active.threads >> 5] = True
        kept: list[_Running] = []
        for run in self.running:
            done = here[run.warps] & (run.group < self._committed[run.warps] - newest)
            if done.any() and self.watch.shadow is not None:
                self.watch.shadow.retire([run.token], run.warps[done] * WARP)
            if not done.all():
                kept.append(_Running(run.warps[~done], run.group[~done], run.site, run.token))
        self.running = kept
        self._join(active)

    def check_use(self, active: Active, sites: tuple[int, ...], site: int) -> None:
        """An instruction reads registers that the products at ``sites`` may still be writing."""
        for run in self.running:
            if run.site not in sites:
                continue
            warps = np.zeros(len(self._committed), bool)
            warps[run.warps] = True
            busy = warps[active.threads >> 5]
            if busy.any():
                self.watch.report("async_read_in_flight", site, active, int(np.argmax(busy)), "", 0, 0, "", run.site)

    # -- operands ----------------------------------------------------------------------------------------

    def _first_threads(self, active: Active, site: int) -> Array:
        """The first thread of each warpgroup. Raises Fault where a warpgroup is not complete."""
        threads = active.threads
        if len(threads) % THREADS == 0:
            rows = threads.reshape(-1, THREADS)
            first = rows[:, 0]
            if (rows[:, -1] - first == THREADS - 1).all() and not (self.chunk.tid[first] % THREADS).any():
                return first
        if self.warps.is_stuck:
            raise Stuck
        text = "wgmma.mma_async is not executed by all four warps of a warpgroup together"
        raise Fault("warp_divergence", text, site)

    def _a(self, active: Active, first: Array, product: Product, descriptor: Any, token: int, site: int) -> Array:
        element, k_major = product.types[1], product.k_major_a
        chunks = self._chunks(active, descriptor, M, element, k_major, site)
        # Each warp reads its own sixteen rows.
        warp = np.arange(chunks.shape[1])[:, None] // 16 if k_major else np.arange(chunks.shape[2]) // 2
        owner = np.broadcast_to(first[:, None, None] + warp * WARP, chunks.shape)
        return self._numbers(chunks, owner, element, k_major, token, site)

    def _b(self, active: Active, first: Array, product: Product, descriptor: Any, token: int, site: int) -> Array:
        """All four warps read it; the first stands for them (see ``_join``)."""
        element, k_major = product.types[2], product.k_major_b
        chunks = self._chunks(active, descriptor, product.n, element, k_major, site)
        owner = np.broadcast_to(first[:, None, None], chunks.shape)
        return self._numbers(chunks, owner, element, k_major, token, site)

    def _chunks(self, active: Active, descriptor: Any, rows: int, element: str, k_major: bool, site: int) -> Array:
        """Shared addresses of an operand's 16-byte chunks, one matrix per warpgroup."""
        each = active.spread(descriptor).reshape(-1, THREADS)
        if (each != each[:, :1]).any():
            raise Fault("warp_divergence", "the threads of a warpgroup have different descriptors", site)
        fields = descriptors.decode(each[:, 0])
        try:
            return descriptors.chunk_addresses(fields, rows, K_BYTES, element_bits(element) // 8, k_major)
        except TilewrightError as error:
            raise Fault("not_modelled", error.message.rstrip("."), site) from error

    def _numbers(self, chunks: Array, owner: Array, element: str, k_major: bool, token: int, site: int) -> Array:
        part = Active(self.chunk, owner.reshape(-1))
        linear = self.shared.linear(part, chunks.reshape(-1), UNIT, site, "read")
        if self.watch.shadow is not None:
            self.watch.shadow.async_read(part.threads, linear, UNIT, site, token)
        raw = self.shared.read_rows(linear, UNIT).reshape(*chunks.shape, UNIT)
        whole = descriptors.assemble(raw, element_bits(element) // 8, k_major)
        return decode(np.ascontiguousarray(whole), element)

    def _join(self, active: Active) -> None:
        """A group is finished for all four warps at once: what one of them has seen end, all have."""
        shadow = self.watch.shadow
        if shadow is None:
            return
        group = self.chunk.warp_of[active.threads] // WARPS
        for number in np.unique(group):
            shadow.barrier(active.threads if (group == number).all() else active.threads[group == number])
