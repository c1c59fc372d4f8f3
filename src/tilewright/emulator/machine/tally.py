"""Memory traffic by instruction while a kernel runs, as the machine code would make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.emulator.compiled import CompiledKernel
from tilewright.emulator.counters.fragments import Transfer, transfer_of
from tilewright.emulator.counters.groups import access_sizes, space_of
from tilewright.emulator.counters.mix import Counters, CounterSheet, LineTraffic
from tilewright.emulator.counters.operations import classify
from tilewright.emulator.counters.sectors import SECTOR_BYTES
from tilewright.emulator.machine.addresses import OFFSET_BITS, PARAM_ID
from tilewright.emulator.machine.chunk import WARP, Active, Array
from tilewright.ptx.module import Immediate, Instruction


class Tally:
    """Counts the accesses of a launch by their instruction's index (site).

    Neighbouring accesses that the assembler makes into one count once, with the size of all (``counters.groups``).
    ldmatrix and stmatrix come as their rows of 16 bytes, a phase of shared memory for eight of them; wmma transfers are
    taken apart as ptxas does (``counters.fragments``). cp.async counts as a load from global memory and as a store to
    shared memory; a copy of part of its bytes, as a request of its own. A bulk or tensor copy is one request to global
    memory. Atomics count as stores, however many threads collide.

    Constants, parameters and local memory do not count, nor what wgmma and bulk copies do to shared memory.
    """

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        self._sheet = CounterSheet()
        self._sites = kernel.graph.instructions
        self._sizes = access_sizes(kernel.module, kernel.graph)
        self._transfers = {site: found for site, i in enumerate(self._sites) if (found := transfer_of(i)) is not None}
        self._uncounted = {site for site, i in enumerate(self._sites) if space_of(i) in ("const", "param")}

    def shared(self, active: Active, linear: Array, size: int, site: int, what: str) -> None:
        """An access to shared memory. ``linear``: int64 per thread, bytes from the chunk's start."""
        size = self._sizes.get(site, size)
        if not size:
            return
        offsets = linear % active.chunk.geometry.smem_bytes
        transfer = self._transfers.get(site)
        if transfer is not None:
            for threads, where, each in _taken_apart(transfer, active, offsets, True):
                self._sheet.shared_access(site, threads, where, each)
        else:
            is_load = what == "read" and self._sites[site].opcode == "ld"
            self._sheet.shared_access(site, active.threads, offsets, size, is_load=is_load)

    def globe(self, active: Active, address: Any, size: int, site: int, what: str) -> None:
        """An access to global memory. ``address``: int64, per thread or one for all."""
        size = self._sizes.get(site, size)
        address = active.spread(address)
        if not size or site in self._uncounted or not len(address) or int(address[0]) >> OFFSET_BITS == PARAM_ID:
            return
        is_write = what == "write"
        transfer = self._transfers.get(site)
        if transfer is not None:
            for threads, where, each in _taken_apart(transfer, active, address, False):
                self._sheet.global_access(site, threads, where, each, is_write)
        elif size == 1 and self._sites[site].opcode == "cp":
            self._part_of_copy(active, address, site)
        elif "bulk" in self._sites[site].modifiers:
            self._bulk(active, address, size, site, is_write)
        else:
            self._sheet.global_access(site, active.threads, address, size, is_write)

    def boxes(self, start: Array, span: Array, site: int, is_write: bool) -> None:
        """Tensor copies. ``start``, ``span``: int64[n, rows], of the part of each row inside the tensor."""
        last = np.where(span > 0, start + span - 1, start - SECTOR_BYTES)
        touched = last // SECTOR_BYTES - start // SECTOR_BYTES + 1
        ideal = -(-span.sum(axis=1) // SECTOR_BYTES)
        traffic = LineTraffic(len(start), int(touched.sum()), int(ideal.sum()), bytes=int(span.sum()))
        self._sheet.bulk_access(site, traffic, is_write)

    def _bulk(self, active: Active, address: Array, size: int, site: int, is_write: bool) -> None:
        """The chunks of each thread's copy come in a row, ascending."""
        is_first = np.diff(active.threads, prepend=-1) != 0
        first = np.flatnonzero(is_first)
        touched = is_first | (np.diff(address // SECTOR_BYTES, prepend=-1) != 0)
        ideal = -(-np.diff(np.append(first, len(address))) * size // SECTOR_BYTES)
        traffic = LineTraffic(len(first), int(touched.sum()), int(ideal.sum()), bytes=len(address) * size)
        self._sheet.bulk_access(site, traffic, is_write)

    def _part_of_copy(self, active: Active, address: Array, site: int) -> None:
        """One byte of each cp.async that reads less than it writes: the first of them stands for the request."""
        size = self._sites[site].operands[2]
        is_first = address % (size.value if isinstance(size, Immediate) else 1) == 0
        if is_first.any():
            self._sheet.global_access(site, active.threads[is_first], address[is_first], 1, is_write=False)
        self._sheet.global_bytes(site, int((~is_first).sum()), is_write=False)

    def counters(self, threads_of_block: Mapping[int, int], line_of: Callable[[int], int | None]) -> Counters:
        """What was gathered.

        Args:
            threads_of_block: basic block → how often a thread ran it. line_of: the source line of a site.
        """
        for block, threads in threads_of_block.items():
            self._sheet.executed(self._kernel.graph.blocks[block].instructions, threads)
        return self._sheet.counters(lambda site: None if site is None else line_of(site))

    def by_class(self) -> dict[str, LineTraffic]:
        """The traffic of each class of instructions (``load_global``, ``copy``): ``copy_out`` leaves shared memory."""
        found: dict[str, LineTraffic] = {}
        for site, traffic in self._sheet.counters().lines.items():
            if site is not None:
                name = _class_of(self._sites[site])
                found[name] = found.get(name, LineTraffic()).plus(traffic)
        return found


def _class_of(instruction: Instruction) -> str:
    """Its class; copies by their direction, which the first space that they name tells."""
    name = classify(instruction)
    first = next((m for m in instruction.modifiers if m.startswith(("shared", "global"))), "")
    return "copy_out" if name == "copy" and first == "global" and "bulk" in instruction.modifiers else name


def _taken_apart(transfer: Transfer, active: Active, pieces: Array, is_shared: bool) -> list[tuple[Array, Array, int]]:
    """(threads, addresses, bytes) of the accesses of a wmma transfer, whose 16-byte pieces come warp by warp."""
    per_warp = transfer.pieces
    first = active.threads.reshape(-1, per_warp)[:, :1] // WARP * WARP
    return [
        ((first + lanes).reshape(-1), where.reshape(-1), size)
        for lanes, where, size in transfer.accesses(pieces.reshape(-1, per_warp), is_shared)
    ]
