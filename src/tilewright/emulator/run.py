"""One launch, chunk by chunk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.emulator.checks.block_order import BlockOrder, can_order_blocks
from tilewright.emulator.checks.reports import Reporter
from tilewright.emulator.checks.shared_shadow import SharedShadow, bytes_needed
from tilewright.emulator.checks.wording import describe_all
from tilewright.emulator.compiled import CompiledKernel
from tilewright.emulator.counters.mix import Counters, LineTraffic
from tilewright.emulator.faults import Fault
from tilewright.emulator.lower.compile import initial_bytes, variable_address
from tilewright.emulator.machine.addresses import OFFSET_BITS, PARAM_ID
from tilewright.emulator.machine.chunk import Chunk, Geometry
from tilewright.emulator.machine.global_memory import Buffer, GlobalMemory
from tilewright.emulator.machine.local_memory import LOCAL_POISONS
from tilewright.emulator.machine.machine import Machine
from tilewright.emulator.machine.schedule import Scheduler
from tilewright.emulator.machine.standstill import Standstill
from tilewright.emulator.machine.tally import Tally
from tilewright.emulator.machine.watch import Watch
from tilewright.emulator.options import EmulatorOptions, chosen_blocks
from tilewright.launch.executor import Hazard
from tilewright.ptx.cfg import Graph
from tilewright.ptx.places import user_line

# Larger buffers are not watched for blocks that meet in them: the notes would take as much memory again.
MAX_WATCHED_BYTES = 256 << 20


@dataclass(frozen=True)
class Emulation:
    """What a launch did. Buffers have been written in place.

    Attributes:
        error: why it ended early, or None.
        blocks: thread blocks that ran. counts: threads that ran each basic block.
        thread_instructions: instructions times threads.
        counters: instructions and memory traffic, where they were asked for and the launch came to its end.
        traffic: the same traffic by class of instruction (``load_global``, ``store_shared``, …).
        is_unsupported: it ended at something that is not modelled.
    """

    hazards: tuple[Hazard, ...]
    error: str | None
    counts: Counter[int] = field(default_factory=Counter)
    thread_instructions: int = 0
    counters: Counters | None = None
    is_unsupported: bool = False
    blocks: int = 0
    traffic: Mapping[str, LineTraffic] = field(default_factory=dict)


def emulate(
    kernel: CompiledKernel,
    geometry: Geometry,
    buffers: Sequence[Buffer],
    params: bytes,
    options: EmulatorOptions,
    main_file: str | None = None,
) -> Emulation:
    """Run a launch.

    Args:
        geometry: with ``smem_bytes`` of the kernel's layout.
        buffers: the n-th has the address ``(n + 1) << 40``.
        params: the parameter block.
        main_file: name of the source whose lines hazards name; None: the outermost of each place.
    """
    _keep_freed_memory()
    launch = _Launch(kernel, geometry, buffers, params, options)
    error: str | None = None
    unknown = False
    try:
        with np.errstate(all="ignore"):
            launch.run()
    except Fault as fault:
        error = text_of(fault, kernel.graph, main_file)
        is_limit = fault.kind in ("not_modelled", "waits_for_others")
        unknown = is_limit or launch.may_wait_for_others(fault)
        if unknown and not is_limit:
            error += f"; only {launch.blocks:,} of {geometry.blocks:,} blocks ran, and it may wait for one that did not"
        if not is_limit and fault.kind not in ("too_long", "trap", "deadlocked"):
            launch.faults.append(Hazard(fault.kind, _line(kernel.graph, fault.site, main_file), fault.message))
    hazards = (*_hazards(launch.reporter, kernel, main_file), *launch.faults)
    total = sum(n * kernel.blocks[b].instructions for b, n in launch.counts.items())
    counters, traffic = None, {}
    if launch.tally is not None and error is None:
        traffic = launch.tally.by_class()
        counters = launch.tally.counters(launch.counts, lambda site: _line(kernel.graph, site, main_file))
    return Emulation(hazards, error, launch.counts, total, counters, unknown, launch.blocks, traffic)


def _keep_freed_memory() -> None:
    """Make glibc keep what is freed, instead of handing it back to the kernel and faulting it in again for every array.

    It raises its threshold when a block above it is freed; an array is 64 to 256 KiB, and the threshold begins at 128.
    Without this, an operation on 16,384 threads takes up to fifteen times as long.
    """
    np.empty(31 << 20, np.uint8)


class _Launch:
    def __init__(
        self,
        kernel: CompiledKernel,
        geometry: Geometry,
        buffers: Sequence[Buffer],
        params: bytes,
        options: EmulatorOptions,
    ) -> None:
        self.kernel = kernel
        self.geometry = geometry
        self.buffers = buffers
        self.params = params
        self.options = options
        self.reporter = Reporter()
        self.tally = Tally(kernel) if options.counters else None
        self.counts: Counter[int] = Counter()
        self.blocks = 0
        self.faults: list[Hazard] = []
        self.random = np.random.default_rng(options.seed) if options.schedule == "random" else None
        limit = options.max_seconds
        self.deadline = None if limit is None else time.monotonic() + limit

    def run(self) -> None:
        variables = self._variables()
        self._watch_blocks()
        blocks = _in_clusters(chosen_blocks(self.geometry.grid, self.options.blocks), self.geometry)
        self.blocks = len(blocks)
        step = self._slots()
        for start in range(0, len(blocks), step):
            behind = len(blocks) - start - step  # blocks that come later
            self._run_chunk(self._ordered(blocks[start : start + step]), variables, max(behind, 0))

    def may_wait_for_others(self, fault: Fault) -> bool:
        """A launch of some of its blocks hangs, and the kernel has what it takes to wait for another block."""
        if fault.kind not in ("too_long", "deadlocked") or self.blocks == self.geometry.blocks:
            return False
        return can_order_blocks(instruction.full_name for instruction in self.kernel.graph.instructions)

    def _watch_blocks(self) -> None:
        """Where all blocks run and nothing can order them, it is noted which of them read and write what."""
        if not self.options.checks or self.options.blocks != "all" or self.geometry.cluster_size > 1:
            return
        if can_order_blocks(instruction.full_name for instruction in self.kernel.graph.instructions):
            return
        for buffer in self.buffers:
            if buffer.is_writable and buffer.data.size <= MAX_WATCHED_BYTES:
                buffer.order = BlockOrder(buffer.data.size, buffer.item_bytes)

    def _local_poison(self) -> int:
        return LOCAL_POISONS[self.options.is_repeat]

    def _ordered(self, blocks: list[int]) -> np.ndarray[Any, Any]:
        """The blocks of a batch. Where they follow each other backwards, clusters stay whole."""
        ids = np.array(blocks)
        size = self.geometry.cluster_size
        return ids.reshape(-1, size)[::-1].reshape(-1) if self.options.is_repeat else ids

    def _variables(self) -> list[tuple[int, Buffer]]:
        """Module variables live as long as the launch."""
        module = [v for v in self.kernel.module.variables if v.space in ("global", "const")]
        addresses = {v.name: variable_address(k) for k, v in enumerate(module)}
        data = initial_bytes(self.kernel.module, addresses)
        return [(addresses[v.name] >> OFFSET_BITS, Buffer(v.name, data[v.name], v.space == "global")) for v in module]

    def _slots(self) -> int:
        """Blocks that run at once: whole clusters, bounded by threads and by memory."""
        g, size = self.geometry, self.geometry.cluster_size
        one = g.smem_bytes + 1
        if self.options.checks:
            one += bytes_needed(1, g.warps, g.smem_bytes, self.kernel.shared_granule)
        slots = min(self.options.chunk_threads // (g.warps * 32), self.options.shadow_bytes // one)
        return max(slots // size, 1) * size

    def _run_chunk(self, block_ids: np.ndarray[Any, Any], variables: list[tuple[int, Buffer]], behind: int) -> None:
        chunk = Chunk(self.geometry, block_ids)
        shadow = self._shadow(chunk) if self.options.checks else None
        watch = Watch(chunk, self.reporter, shadow, self.tally)
        globe = GlobalMemory(watch)
        for number, buffer in enumerate(self.buffers):
            globe.add(buffer, number + 1)
        for number, buffer in variables:
            globe.add(buffer, number)
        globe.add(Buffer("parameters", np.frombuffer(self.params, np.uint8).copy(), False), PARAM_ID)
        machine = Machine(
            self.kernel, chunk, globe, self.params, watch, self.options.lands, self.random, self._local_poison()
        )
        scheduler = Scheduler(machine, self.options.schedule or "lockstep", self.options.seed, self.deadline)
        try:
            scheduler.run()
            machine.finish()
        finally:
            self.counts.update(scheduler.counts)
        found = scheduler.lookout.found
        if found is not None:
            self._stand_still(found, watch, behind)
        if machine.is_deadlocked or found is not None:
            raise Fault("deadlocked", "the kernel hangs")

    def _stand_still(self, found: Standstill, watch: Watch, behind: int) -> None:
        """A deadlock where all blocks have run or do; else no more than a limit of this run, and a Fault says so."""
        left_out = self.geometry.blocks - self.blocks
        if not left_out and not behind:
            watch.standstill(found.site, found.thread, found.count)
            return
        what = f"{watch.told(found.thread, found.count)} for what only another block can write"
        if left_out:
            ran = (
                f"{self.blocks:,} of {self.geometry.blocks:,} blocks ran, corners and middle, and it is none of theirs"
            )
            advice = "all blocks run at each size set but default: give [sizes] one that is small enough"
        else:
            ran = f"{behind:,} blocks have not begun: the emulator runs {watch.chunk.slots:,} of this launch at once"
            advice = "give a size set of fewer blocks"
        raise Fault("waits_for_others", f"{what}; {ran}; {advice}", found.site)

    def _shadow(self, chunk: Chunk) -> SharedShadow:
        symbols = [(s.name, s.offset, s.size_bytes) for s in self.kernel.layout.shared.symbols]
        numbers = [int(b) for b in chunk.block_ids]
        g = self.geometry
        return SharedShadow(
            chunk.slots, chunk.warps, g.smem_bytes, self.kernel.shared_granule, symbols, self.reporter, numbers
        )


def _in_clusters(blocks: list[int], g: Geometry) -> list[int]:
    """Whole clusters, the blocks of each next to one another by rank."""
    if g.cluster_size == 1:
        return blocks
    (gx, gy, _), (cx, cy, cz) = g.grid, g.cluster
    out: dict[tuple[int, int, int], None] = {}
    for b in blocks:
        out[b % gx // cx, b // gx % gy // cy, b // (gx * gy) // cz] = None
    return [
        ((z * cz + k) * gy + y * cy + j) * gx + x * cx + i
        for x, y, z in out
        for k in range(cz)
        for j in range(cy)
        for i in range(cx)
    ]


def _hazards(reporter: Reporter, kernel: CompiledKernel, main_file: str | None) -> list[Hazard]:
    """In words; what an access out of bounds brought with it is left out."""
    outside = {f.site for f in reporter.findings if f.kind.startswith("out_of_bounds")}
    findings = [f for f in reporter.findings if f.kind.startswith("out_of_bounds") or f.site not in outside]
    names = kernel.graph.instructions
    return list(
        describe_all(findings, lambda site: _line(kernel.graph, site, main_file), lambda site: names[site].full_name)
    )


def _line(graph: Graph, site: int, main_file: str | None) -> int | None:
    if not 0 <= site < len(graph.instructions):
        return None
    return user_line(graph.instructions[site].place, main_file)


def text_of(fault: Fault, graph: Graph, main_file: str | None) -> str:
    """A fault in words: the line of the source, what is wrong, the instruction and its line in the PTX."""
    if fault.kind == "deadlocked":
        return fault.message
    line = _line(graph, fault.site, main_file)
    at = f"line {line}: " if line is not None else ""
    if 0 <= fault.site < len(graph.instructions):
        instruction = graph.instructions[fault.site]
        return f"{at}{fault.message} ({instruction.full_name}, PTX line {instruction.ptx_line})"
    return f"{at}{fault.message}"
