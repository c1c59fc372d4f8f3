"""From single copies to tiles: how many are outstanding while one is computed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass

from tilewright.sass.inflight import Copy, Moment, Run

# Tiles in flight, averaged over the math, from which on the verdict is `overlap`. By Little's law it is also the math,
# in tiles, that lies between issue and wait of the average copy.
# Why not "any": ptxas moves a little math across waits and copies. Over the 490 kernels of the test inputs (three
# engines, four architectures) the figure is at most 0.19 where the source's order forbids overlap (a tail of the math
# sunk below the next copy; 0.25 was seen where ptxas hoisted one of two loads), and at least 0.50 where copies are in
# flight by design (stores hoisted into the middle of the math). Between lie loads through registers that ptxas has sunk
# below most of the math, up to 0.31: too late to overlap much.
LEAST_IN_FLIGHT = 0.4


@dataclass(frozen=True)
class Overlap:
    """What one trip of the K-loop shows in its steady state.

    Attributes:
        mean_in_flight: tiles whose copies are outstanding, averaged over the math; a tile counts by its bytes.
        share: of the math, how much runs while (the bytes of) a whole tile are outstanding.
        math_per_trip: math of a trip.
        tiles_per_trip: tiles that arrive in a trip; more than one where the compiler unrolled the K-loop.
        barriers_between: block barriers between a copy's issue and its wait, most often.
        wait: the wait that retires most copies.
        turn: the trip that was judged.
        in_flight: tiles outstanding at each math instruction of the trip, by time.
        idle_copies: copies of the trip that are retired before any math runs.
        copies: copies of the trip to shared memory.
    """

    mean_in_flight: float
    share: float
    math_per_trip: int
    tiles_per_trip: int
    barriers_between: int
    wait: Moment
    turn: int
    in_flight: dict[int, float]
    idle_copies: int
    copies: tuple[Copy, ...]


def overlap_of(run: Run, turn: int) -> Overlap | str:
    """Judge one trip; a text says why it cannot be judged."""
    staged = [copy for copy in run.copies if copy.is_staged]
    mine = [copy for copy in staged if copy.turn == turn]
    if not mine:
        return "On the steady-state path no copy reaches shared memory."
    waits = [copy.retired for copy in mine if copy.retired is not None]
    if len(waits) < len(mine):
        return "Nothing on the steady-state path waits for the copies: where they are retired cannot be told."
    began, ended = turn * run.steps, (turn + 1) * run.steps
    counted = [copy for copy in staged if copy.is_async] or staged  # where both kinds fill a tile, waits tell more
    landed = [tile[0].arrived for tile in arrivals(run, counted)]
    if not any(math.turn == turn for math in run.math):
        return "On the steady-state path there is no math."
    tiles = sum(arrived is not None and began < arrived.time <= ended for arrived in landed)
    if not tiles:
        return "On the steady-state path no tile arrives in shared memory."
    in_flight = _in_flight(run, staged, turn, tiles)
    if list(in_flight.values()) != list(_in_flight(run, staged, turn + 1, tiles).values()):
        return "Two successive trips differ: the path settles into no steady state."
    weights = {math.time: math.weight for math in run.math if math.turn == turn}
    total = sum(weights.values())
    return Overlap(
        mean_in_flight=sum(in_flight[time] * weight for time, weight in weights.items()) / total,
        share=sum(min(1.0, in_flight[time]) * weight for time, weight in weights.items()) / total,
        math_per_trip=total,
        tiles_per_trip=tiles,
        barriers_between=_most_common([w.barriers - c.issued.barriers for w, c in zip(waits, mine, strict=True)]),
        wait=waits[_most_common_place([w.index for w in waits])],
        turn=turn,
        in_flight=in_flight,
        idle_copies=_idle(run, mine),
        copies=tuple(mine),
    )


def arrivals(run: Run, copies: list[Copy]) -> list[list[Copy]]:
    """Copies of a run by tile, in the order of arrival.

    What one wait retires (asynchronous copies), or what is stored between two barriers (loads), arrives together. Two
    arrivals with no read of shared memory between them belong to one tile (A and B waited for one after the other), and
    so do two with no math between them (A read into registers before B comes).
    """
    math_times = [math.time for math in run.math]
    landed = [(arrived, copy) for copy in copies if (arrived := copy.arrived) is not None]
    landed.sort(key=lambda entry: entry[0].time)
    reads_tell = len({arrived.shared_reads for arrived, _ in landed}) > 1
    barriers_tell = len({arrived.barriers for arrived, _ in landed}) > 1
    tiles: list[list[Copy]] = []
    before: tuple[Moment, Copy] | None = None
    for arrived, copy in landed:
        if before is None:
            together = False
        elif reads_tell and (
            before[0].shared_reads == arrived.shared_reads
            or bisect_left(math_times, before[0].time) == bisect_left(math_times, arrived.time)
        ):
            together = True
        elif copy.is_async or before[1].is_async:
            together = before[0].time == arrived.time
        elif barriers_tell:
            together = before[0].barriers == arrived.barriers
        else:  # a warp of its own
            together = before[1].turn == copy.turn
        if together:
            tiles[-1].append(copy)
        else:
            tiles.append([copy])
        before = (arrived, copy)
    return tiles


def _in_flight(run: Run, staged: list[Copy], turn: int, tiles: int) -> dict[int, float]:
    """Tiles outstanding at each math instruction of a trip: bytes outstanding over the bytes of a tile.

    Math that runs on (of a warp group) counts with the most that is outstanding before it is waited for.
    """
    tile_bytes = sum(copy.size for copy in staged if copy.turn == turn) / tiles
    events = [(copy.issued.time, copy.size) for copy in staged]
    events += [(copy.retired.time, -copy.size) for copy in staged if copy.retired is not None]
    events.sort()
    outstanding, at = 0, 0
    found = {}
    for math in run.math:
        while at < len(events) and events[at][0] <= math.time:
            outstanding += events[at][1]
            at += 1
        if math.turn == turn:
            most, later = outstanding, outstanding
            for time, size in events[at:] if math.end > math.time else ():
                if time >= math.end:
                    break
                later += size
                most = max(most, later)
            found[math.time] = most / tile_bytes
    return found


def _idle(run: Run, copies: list[Copy]) -> int:
    times = [math.time for math in run.math]
    ends = [(copy.issued.time, copy.retired.time) for copy in copies if copy.retired is not None]
    return sum(bisect_right(times, issued) == bisect_left(times, retired) for issued, retired in ends)


def _most_common(values: list[int]) -> int:
    return Counter(values).most_common(1)[0][0]


def _most_common_place(values: list[int]) -> int:
    return values.index(_most_common(values))
