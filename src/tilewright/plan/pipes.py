"""One quarter of an SM, simulated: its warps issue the K-loop's instructions to the pipes, and wait for one another.

A quarter has one scheduler, which issues an instruction a cycle, and its own math pipes; the load/store pipe, the share
of L2 and the unit for bulk copies are the SM's, so a request occupies them four times as long, as the other quarters do
the same meanwhile. What holds a warp back is what its control bits say: stall counts, scoreboards, barriers, groups of
asynchronous copies. Latencies and rates are `Rates`; nothing here is fitted to a kernel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heappushpop
from typing import NamedTuple

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
# What instructions occupy, by number; `_NONE` for those that occupy nothing.
_NONE = -1
_PIPES = ("fma", "half", "multiply", "alu", "special", "uniform", "matrix")
_STORE, _L2, _BULK = len(_PIPES), len(_PIPES) + 1, len(_PIPES) + 2


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


class _Step(NamedTuple):
    """A slot, and what it costs at these rates: worked out once, since every warp issues it in every trip.

    Attributes:
        pipe: number of what it occupies. slack: how long before that is free it may issue.
        busy, extra: cycles that it occupies it, added one after the other. l2: cycles of L2; 0 for none.
        boards: scoreboards that have to be clear. clears: whether it clears any.
        from_end: whether latencies count from the end of what it occupies, not from its issue.
        result, read: latencies. is_async: its data belong to the open group of copies.
        is_plain: all that it does is to issue and to keep a math pipe busy: no wait, no effect on others.
    """

    slot: Slot
    stall: int
    pipe: int
    slack: float
    busy: float
    extra: float
    l2: float
    boards: tuple[int, ...]
    clears: bool
    from_end: bool
    result: float
    read: float
    is_async: bool
    is_plain: bool


@dataclass(slots=True)
class _Warp:
    """A warp: where it is, what it waits for, and its groups of asynchronous copies, by the time they land."""

    block: int
    steps: tuple[_Step, ...]
    copies: bool
    ready: float
    at: int = 0
    trip: int = 0
    boards: list[float] = field(default_factory=lambda: [0.0] * _SCOREBOARDS)
    groups: deque[float] = field(default_factory=deque)
    open_group: float = 0.0


@dataclass(slots=True)
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
        self.rates = rates
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
        known: dict[Slot, _Step] = {}  # a trip says the same again and again
        trip = tuple(known.get(slot) or known.setdefault(slot, self._step(slot)) for slot in schedule.trip)
        others = tuple(known.get(slot) or known.setdefault(slot, self._step(slot)) for slot in schedule.others)
        for i in range(count):
            block, is_first = i // per_block, i % per_block == 0
            leads = i % per_block < (leading if schedule.leading < 1 else 1)
            self.warps.append(_Warp(block, trip if leads or not others else others, is_first, block * apart))
            self.blocks[block].warps += 1
        self.trips = max(2, min(_WARM_TRIPS + _MEASURED_TRIPS, _MOST_ISSUES // max(len(schedule.trip) * count, 1)))
        self.free = [0.0] * (_BULK + 1)  # when each pipe is, by its number
        self.in_flight, self.ahead = schedule.in_flight, max(1, round(schedule.in_flight))

    def run(self) -> float:
        """Issue until enough trips are over; time per trip of a warp, times the warps that share the quarter."""
        warps, free, issue, earliest = self.warps, self.free, self._issue, self._earliest
        queue = [(warp.ready, warp.ready, i) for i, warp in enumerate(warps)]
        heapify(queue)
        first, last = min(_WARM_TRIPS, self.trips // 2) * len(warps), self.trips * len(warps)
        over, began, port = 0, 0.0, 0.0
        time, since, i = heappop(queue)
        while True:
            warp = warps[i]
            step = warp.steps[warp.at]
            begin = port if port > time else time
            pipe = step.pipe
            if not step.is_plain:
                begin = earliest(warp, step, begin)
            elif pipe != _NONE and free[pipe] - 1 > begin:
                begin = free[pipe] - 1
            if begin > time and queue and begin > queue[0][0] and begin != _NEVER:
                time, since, i = heappushpop(queue, (begin, since, i))
                continue
            awake: list[int] = []
            if begin == _NEVER:
                self.blocks[warp.block].asleep.append(i)
            else:
                port = begin + 1
                if not step.is_plain:
                    issue(warp, step, begin)
                elif pipe != _NONE:
                    end = free[pipe]
                    free[pipe] = (end if end > begin else begin) + step.busy + step.extra
                warp.ready = ready = begin + step.stall
                warp.at += 1
                if warp.at == len(warp.steps):
                    warp.at, warp.trip, over = 0, warp.trip + 1, over + 1
                    if over == first:
                        began = ready
                    elif over == last:
                        return (ready - began) / (last - first) * len(warps)
                if step.is_plain or not (step.slot.joins or step.slot.bulk_bytes):
                    time, since, i = heappushpop(queue, (ready, ready, i))
                    continue
                awake = self._wakes(i, step.slot, begin)
            for j in awake:
                heappush(queue, (warps[j].ready, warps[j].ready, j))
            if not queue:
                return _NEVER
            time, since, i = heappop(queue)

    def _wakes(self, i: int, slot: Slot, begin: float) -> list[int]:
        """The warps that may go on once a warp has come to a barrier, or has issued a bulk copy."""
        block, awake = self.blocks[self.warps[i].block], [i]
        if slot.joins:
            block.arrived.append(i)
            awake = []
            if len(block.arrived) == block.warps:
                awake, block.arrived = block.arrived, []
                for j in awake:
                    self.warps[j].ready = max(self.warps[j].ready, begin + self.rates.barrier_cycles)
        if slot.bulk_bytes:
            for j in block.asleep:
                self.warps[j].ready = begin + 1
            awake, block.asleep = awake + block.asleep, []
        return awake

    def _earliest(self, warp: _Warp, step: _Step, time: float) -> float:
        """When the step may issue; never, as far as is known, where a bulk copy has not been issued yet."""
        for board in step.boards:
            clear = warp.boards[board]
            if clear > time:
                time = clear
        if step.pipe != _NONE:
            free = self.free[step.pipe] - step.slack
            return free if free > time else time
        slot = step.slot
        if slot.leaves >= 0:
            groups = warp.groups
            while len(groups) > slot.leaves:
                time = max(time, groups.popleft())
        elif slot.phase and self.in_flight and warp.trip >= self.ahead:
            landed = self.blocks[warp.block].landed.get(warp.trip - self.ahead)
            if landed is None:
                return time if warp.copies else _NEVER
            return max(time, landed)
        return time

    def _issue(self, warp: _Warp, step: _Step, time: float) -> None:
        """Occupy what the step needs from then on, and note when its scoreboards are cleared."""
        done = read = time
        pipe = step.pipe
        if pipe != _NONE:
            free = self.free
            end = free[pipe]
            end = (end if end > time else time) + step.busy + step.extra
            free[pipe] = end
            if step.from_end:
                done = read = end
                if step.l2:
                    done = free[_L2]
                    free[_L2] = done = (done if done > end else end) + step.l2
                if step.is_async:
                    warp.open_group = max(warp.open_group, free[_L2] + self.rates.async_latency)
                    done = end
        else:
            slot = step.slot
            if slot.commits:
                warp.groups.append(warp.open_group)
                warp.open_group = 0.0
            if slot.bulk_bytes:
                self._bulk(warp, slot, time)
        if step.clears:
            boards, write, reads = warp.boards, step.slot.write, step.slot.read
            if write >= 0:
                boards[write] = max(boards[write], done + step.result)
            if reads >= 0:
                boards[reads] = max(boards[reads], read + step.read)

    def _step(self, slot: Slot) -> _Step:
        rates, extra, l2, from_end, slack = self.rates, 0.0, 0.0, True, 1.0
        if slot.pipe == "issue":
            pipe, busy, from_end = _NONE, 0.0, False
            result, read = float(_RESULT_CYCLES), float(_READ_CYCLES)
        elif slot.pipe == "shared":
            pipe, slack = _STORE, rates.backlog_cycles
            strict, shared = max(1.0, slot.wavefronts), max(1.0, slot.words)
            work = rates.strictness * strict + (1 - rates.strictness) * shared
            work *= self.own_share if slot.own else 1.0
            busy, result, read = self.share * work * rates.pass_cycles, rates.shared_latency, rates.store_latency
        elif slot.pipe in ("global", "async"):
            pipe, slack, read = _STORE, rates.backlog_cycles, float(_READ_CYCLES)
            busy, l2 = self._fetch(slot)
            result = read if slot.pipe == "async" else rates.global_latency if l2 else rates.cache_latency
        elif slot.pipe == "matrix":
            pipe, busy = _PIPES.index("matrix"), slot.macs / rates.matrix_macs_per_cycle
            result = read = rates.matrix_latency
        else:
            pipe, busy, from_end = _PIPES.index(slot.pipe), float(getattr(rates, f"{slot.pipe}_cycles")), False
            extra = rates.clash_cycles if slot.clash else 0.0
            result = read = float(_RESULT_CYCLES)
        boards = tuple(board for board in range(_SCOREBOARDS) if slot.waits >> board & 1)
        clears = slot.write >= 0 or slot.read >= 0
        acts = slot.commits or slot.bulk_bytes or slot.joins or slot.phase or slot.leaves >= 0
        is_plain = not ((from_end and pipe != _NONE) or boards or clears or acts)
        is_async = slot.pipe == "async"
        return _Step(
            slot, slot.stall, pipe, slack, busy, extra, l2, boards, clears, from_end, result, read, is_async, is_plain
        )

    def _fetch(self, slot: Slot) -> tuple[float, float]:
        """Cycles of the load/store pipe and of L2 for a load or an asynchronous copy."""
        rates, weight = self.rates, self.own_share if slot.own else 1.0
        moved = slot.sectors * SECTOR_BYTES * weight
        work = slot.lines * rates.line_cycles * weight
        if slot.pipe == "async":
            work += weight * (rates.async_cycles + slot.wavefronts * rates.async_pass_cycles)
            work += weight * slot.sectors * rates.async_sector_cycles
        else:
            work += moved / LINE_BYTES * rates.return_cycles
        return self.share * max(1.0, work), self.share * moved / rates.l2_bytes_per_cycle

    def _bulk(self, warp: _Warp, slot: Slot, time: float) -> None:
        rates, free = self.rates, self.free
        free[_BULK] = max(free[_BULK], time) + rates.bulk_cycles + slot.bulk_rows * rates.row_cycles
        free[_L2] = max(free[_L2], free[_BULK]) + slot.bulk_bytes / rates.l2_bytes_per_cycle
        landed = self.blocks[warp.block].landed
        landed[warp.trip] = max(landed.get(warp.trip, 0.0), free[_L2] + rates.bulk_latency)
