"""One quarter of an SM, simulated: its warps issue the K-loop's instructions to the pipes, and wait for one another.

A quarter has one scheduler, which issues an instruction a cycle, and its own math pipes; the load/store pipe, the share
of L2 and the unit for bulk copies are the SM's, so a request occupies them four times as long, as the other quarters do
the same meanwhile. What holds a warp back is what its control bits say: stall counts, scoreboards, barriers, groups of
asynchronous copies. Latencies and rates are `Rates`; nothing here is fitted to a kernel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from tilewright.sass.lanes import LINE_BYTES, SECTOR_BYTES
from tilewright.sass.schedule import Schedule, Slot

QUARTERS = 4
_WARM_TRIPS = 4
_MEASURED_TRIPS = 4
_MOST_ISSUES = 8_000
_SCOREBOARDS = 6
_RESULT_CYCLES = 24  # of what has no latency of its own here, to its scoreboard
_READ_CYCLES = 10  # until the operands of a memory access have been read
_NEVER = float("inf")


@dataclass(frozen=True)
class Rates:
    """Cycles that things take; ``rates.toml`` says which are documented and which are calibrated.

    Attributes:
        global_latency, async_latency, bulk_latency: from the request at L2 to the data, for loads, asynchronous and
            bulk copies.
        cache_latency: of a load that finds its data in L1.
        shared_latency, store_latency: of reads and writes of shared memory. matrix_latency: of matrix instructions.
        line_cycles: of the load/store pipe, per 128-byte line that a global access touches.
        pass_cycles: per wavefront of shared memory.
        strictness: 1 where lanes of different quarters of a warp never share a wavefront, 0 where they always do.
        return_cycles: per 128 bytes that come back to registers.
        async_cycles, async_pass_cycles, async_sector_cycles: per asynchronous copy, beside its lines; per wavefront
            and per sector that it writes to shared memory.
        barrier_cycles: from the last arrival to the first instruction behind a barrier.
        matrix_macs_per_cycle: 16-bit multiply-adds of a quarter.
        l2_bytes_per_cycle: what an SM takes in.
        bulk_cycles, row_cycles: of the unit for bulk copies, per copy and per row of a box.
        fma_cycles, multiply_cycles, ...: of a quarter's pipe, per instruction.
        clash_cycles: lost where three operands come from one bank of registers.
        backlog_cycles: work that the load/store pipe takes in before it holds warps back.
    """

    global_latency: float
    async_latency: float
    bulk_latency: float
    cache_latency: float
    shared_latency: float
    store_latency: float
    matrix_latency: float
    line_cycles: float
    pass_cycles: float
    strictness: float
    return_cycles: float
    async_cycles: float
    async_pass_cycles: float
    async_sector_cycles: float
    barrier_cycles: float
    matrix_macs_per_cycle: float
    l2_bytes_per_cycle: float
    bulk_cycles: float
    row_cycles: float
    fma_cycles: float
    half_cycles: float
    multiply_cycles: float
    alu_cycles: float
    special_cycles: float
    uniform_cycles: float
    clash_cycles: float
    backlog_cycles: float


@dataclass
class _Warp:
    """A warp: where it is, what it waits for, and its groups of asynchronous copies, by the time they land."""

    block: int
    slots: tuple[Slot, ...]
    copies: bool
    ready: float
    at: int = 0
    trip: int = 0
    boards: list[float] = field(default_factory=lambda: [0.0] * _SCOREBOARDS)
    groups: deque[float] = field(default_factory=deque)
    open_group: float = 0.0


@dataclass
class _Block:
    """A block's part of the quarter: warps at its barrier, warps that sleep, and its bulk copies by trip."""

    warps: int = 0
    arrived: list[int] = field(default_factory=list)
    asleep: list[int] = field(default_factory=list)
    landed: dict[int, float] = field(default_factory=dict)


def cycles_per_trip(schedule: Schedule, warps_per_block: int, blocks: int, rates: Rates) -> float:
    """Cycles in which each of ``blocks`` resident blocks goes round the K-loop once, in the steady state."""
    return _Quarter(schedule, warps_per_block, blocks, rates).run()


class _Quarter:
    def __init__(self, schedule: Schedule, warps_per_block: int, blocks: int, rates: Rates) -> None:
        self.schedule, self.rates = schedule, rates
        per_block = max(1, -(-warps_per_block // QUARTERS))
        count = per_block * blocks if warps_per_block >= QUARTERS else -(-warps_per_block * blocks // QUARTERS)
        self.share = float(min(QUARTERS, warps_per_block * blocks))
        self.blocks = [_Block() for _ in range((count - 1) // per_block + 1)]
        # Blocks do not run in step: they begin a part of a trip apart.
        apart = len(schedule.trip) / len(self.blocks)
        self.warps: list[_Warp] = []
        # Of a block's warps here so many go the first one's way; what only these do is weighed by how many there are.
        leading = max(1, round(schedule.leading * per_block)) if schedule.others else per_block
        self.own_share = schedule.leading * per_block / leading
        for i in range(count):
            block, is_first = i // per_block, i % per_block == 0
            leads = i % per_block < (leading if schedule.leading < 1 else 1)
            slots = schedule.trip if leads or not schedule.others else schedule.others
            self.warps.append(_Warp(block, slots, is_first, block * apart))
            self.blocks[block].warps += 1
        self.trips = max(2, min(_WARM_TRIPS + _MEASURED_TRIPS, _MOST_ISSUES // max(len(schedule.trip) * count, 1)))
        self.free = dict.fromkeys(("fma", "half", "multiply", "alu", "special", "uniform", "matrix"), 0.0)
        self.busy = {
            "fma": rates.fma_cycles,
            "half": rates.half_cycles,
            "multiply": rates.multiply_cycles,
            "alu": rates.alu_cycles,
            "special": rates.special_cycles,
            "uniform": rates.uniform_cycles,
        }
        self.store_free = self.l2_free = self.bulk_free = 0.0
        self.ahead = max(1, round(schedule.in_flight))

    def run(self) -> float:
        """Issue until enough trips are over; time per trip of a warp, times the warps that share the quarter."""
        warps, blocks = self.warps, self.blocks
        queue = [(warp.ready, warp.ready, i) for i, warp in enumerate(warps)]
        heapify(queue)
        first, last = min(_WARM_TRIPS, self.trips // 2) * len(warps), self.trips * len(warps)
        over, began, port = 0, 0.0, 0.0
        while queue:
            time, since, i = heappop(queue)
            warp = warps[i]
            block, slot = blocks[warp.block], warp.slots[warp.at]
            begin = self._earliest(warp, slot, max(time, port))
            if begin == _NEVER:
                block.asleep.append(i)
                continue
            if queue and begin > queue[0][0] and begin > time:
                heappush(queue, (begin, since, i))
                continue
            port = begin + 1
            self._issue(warp, slot, begin)
            warp.ready = begin + slot.stall
            warp.at += 1
            if warp.at == len(warp.slots):
                warp.at, warp.trip, over = 0, warp.trip + 1, over + 1
                if over == first:
                    began = warp.ready
                elif over == last:
                    return (warp.ready - began) / (last - first) * len(warps)
            awake = [i]
            if slot.joins:
                block.arrived.append(i)
                awake = []
                if len(block.arrived) == block.warps:
                    awake, block.arrived = block.arrived, []
                    for j in awake:
                        warps[j].ready = max(warps[j].ready, begin + self.rates.barrier_cycles)
            if slot.bulk_bytes:
                for j in block.asleep:
                    warps[j].ready = begin + 1
                awake, block.asleep = awake + block.asleep, []
            for j in awake:
                heappush(queue, (warps[j].ready, warps[j].ready, j))
        return _NEVER

    def _earliest(self, warp: _Warp, slot: Slot, time: float) -> float:
        """When the slot may issue; never, as far as is known, where a bulk copy has not been issued yet."""
        if slot.waits:
            boards = warp.boards
            for board in range(_SCOREBOARDS):
                if slot.waits >> board & 1 and boards[board] > time:
                    time = boards[board]
        pipe = slot.pipe
        if pipe in ("shared", "global", "async"):
            return max(time, self.store_free - self.rates.backlog_cycles)
        if pipe != "issue":
            return max(time, self.free[pipe] - 1)
        if slot.leaves >= 0:
            groups = warp.groups
            while len(groups) > slot.leaves:
                time = max(time, groups.popleft())
        elif slot.phase and self.schedule.in_flight and warp.trip >= self.ahead:
            landed = self.blocks[warp.block].landed.get(warp.trip - self.ahead)
            if landed is None:
                return time if warp.copies else _NEVER
            return max(time, landed)
        return time

    def _issue(self, warp: _Warp, slot: Slot, time: float) -> None:
        rates, pipe = self.rates, slot.pipe
        if pipe == "issue":
            if slot.commits:
                warp.groups.append(warp.open_group)
                warp.open_group = 0.0
            if slot.bulk_bytes:
                self._bulk(warp, slot, time)
            done, read = time + _RESULT_CYCLES, time + _READ_CYCLES
        elif pipe == "shared":
            strict, shared = max(1.0, slot.wavefronts), max(1.0, slot.words)
            work = rates.strictness * strict + (1 - rates.strictness) * shared
            work *= self.own_share if slot.own else 1.0
            self.store_free = max(time, self.store_free) + self.share * work * rates.pass_cycles
            done, read = self.store_free + rates.shared_latency, self.store_free + rates.store_latency
        elif pipe in ("global", "async"):
            done, read = self._fetch(warp, slot, time)
        elif pipe == "matrix":
            self.free[pipe] = max(self.free[pipe], time) + slot.macs / rates.matrix_macs_per_cycle
            done = read = self.free[pipe] + rates.matrix_latency
        else:
            clash = rates.clash_cycles if slot.clash else 0.0
            self.free[pipe] = max(self.free[pipe], time) + self.busy[pipe] + clash
            done = read = time + _RESULT_CYCLES
        if slot.write >= 0:
            warp.boards[slot.write] = max(warp.boards[slot.write], done)
        if slot.read >= 0:
            warp.boards[slot.read] = max(warp.boards[slot.read], read)

    def _fetch(self, warp: _Warp, slot: Slot, time: float) -> tuple[float, float]:
        """A load or an asynchronous copy: when its scoreboards are cleared, of the result and of the operands."""
        rates, weight = self.rates, self.own_share if slot.own else 1.0
        moved = slot.sectors * SECTOR_BYTES * weight
        work = slot.lines * rates.line_cycles * weight
        if slot.pipe == "async":
            work += weight * (rates.async_cycles + slot.wavefronts * rates.async_pass_cycles)
            work += weight * slot.sectors * rates.async_sector_cycles
        else:
            work += moved / LINE_BYTES * rates.return_cycles
        self.store_free = max(time, self.store_free) + self.share * max(1.0, work)
        if moved:
            self.l2_free = max(self.store_free, self.l2_free) + self.share * moved / rates.l2_bytes_per_cycle
        read = self.store_free + _READ_CYCLES
        if slot.pipe == "global":
            return (self.l2_free + rates.global_latency if moved else self.store_free + rates.cache_latency), read
        warp.open_group = max(warp.open_group, self.l2_free + rates.async_latency)
        return read, read

    def _bulk(self, warp: _Warp, slot: Slot, time: float) -> None:
        rates = self.rates
        self.bulk_free = max(self.bulk_free, time) + rates.bulk_cycles + slot.bulk_rows * rates.row_cycles
        self.l2_free = max(self.l2_free, self.bulk_free) + slot.bulk_bytes / rates.l2_bytes_per_cycle
        landed = self.blocks[warp.block].landed
        landed[warp.trip] = max(landed.get(warp.trip, 0.0), self.l2_free + rates.bulk_latency)
