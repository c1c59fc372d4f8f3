"""A quarter of an SM: what is bound by which pipe, and what hides what."""

from __future__ import annotations

import pytest

from tilewright.plan.compiled import load_model
from tilewright.plan.pipes import cycles_per_trip
from tilewright.sass.schedule import Schedule, Slot

RATES = load_model().rates
FMA = Slot("fma", 1, weight=1)


def trip(*slots: Slot, others: tuple[Slot, ...] = (), in_flight: float = 0.0) -> Schedule:
    return Schedule(slots, others, sum(slot.weight for slot in slots), 0, 0, "FFMA", in_flight)


def cycles(schedule: Schedule, warps: int = 4, blocks: int = 1) -> float:
    return cycles_per_trip(schedule, warps, blocks, RATES)


@pytest.mark.parametrize(("warps", "blocks"), [(4, 1), (16, 1), (4, 4), (8, 2)])
def test_a_scheduler_issues_one_instruction_a_cycle(warps: int, blocks: int) -> None:
    found = cycles(trip(*[FMA] * 100), warps, blocks)
    assert found == pytest.approx(100 * warps * blocks / 4, rel=0.05)


def test_other_warps_fill_stalls_and_nothing_else_does() -> None:
    slow = trip(*[FMA._replace(stall=4)] * 100)
    assert cycles(slow) == pytest.approx(400, rel=0.05)
    assert cycles(slow, blocks=4) == pytest.approx(400, rel=0.05)
    assert cycles(slow, blocks=8) == pytest.approx(800, rel=0.05)


def test_a_pipe_of_half_the_rate_takes_twice_as_long() -> None:
    busy = trip(*[Slot("alu", 1)] * 50, FMA)
    assert cycles(busy, blocks=4) == pytest.approx(4 * 50 * RATES.alu_cycles, rel=0.1)


def test_bank_conflicts_take_the_whole_sms_pipe() -> None:
    free = trip(*[Slot("shared", 1, wavefronts=1, words=1)] * 20, FMA)
    crowded = trip(*[Slot("shared", 1, wavefronts=8, words=8)] * 20, FMA)
    assert cycles(free, blocks=4) == pytest.approx(4 * 4 * 20 * RATES.pass_cycles, rel=0.1)
    assert cycles(crowded, blocks=4) == pytest.approx(8 * cycles(free, blocks=4), rel=0.1)


def load(board: int = 0) -> Slot:
    return Slot("global", 1, write=board, lines=4, sectors=16)


def test_a_load_that_is_waited_for_at_once_costs_its_latency_unless_other_blocks_hide_it() -> None:
    waited = trip(load(), FMA._replace(waits=1), *[FMA] * 100)
    late = trip(load(), *[FMA] * 100, FMA._replace(waits=1))
    assert cycles(waited) > RATES.global_latency + 100
    assert cycles(late) < cycles(waited) - 80
    assert cycles(waited, blocks=8) / 8 < 0.4 * cycles(waited)


def ring(leaves: int) -> Schedule:
    copy = Slot("async", 1, lines=4, sectors=16, wavefronts=4)
    return trip(copy, Slot("issue", 1, commits=True), Slot("issue", 1, leaves=leaves), *[FMA] * 400)


def test_a_ring_overlaps_and_one_that_waits_at_once_does_not() -> None:
    at_once, two, three = (cycles(ring(leaves)) for leaves in (0, 1, 2))
    assert at_once > RATES.async_latency + 400
    assert two == pytest.approx(max(400.0, RATES.async_latency), rel=0.25)
    assert three == pytest.approx(max(400.0, RATES.async_latency / 2), rel=0.25)


def test_a_barrier_holds_the_fast_warps_of_a_block() -> None:
    joined = trip(Slot("issue", 1, joins=True), *[FMA] * 50)
    loose = trip(Slot("issue", 1), *[FMA] * 50)
    assert cycles(loose) < cycles(joined) < cycles(loose) + 2 * RATES.barrier_cycles


def test_bulk_copies_keep_the_others_waiting_until_they_have_landed() -> None:
    wait, copy = Slot("issue", 1, phase=True), Slot("issue", 1, bulk_bytes=4096)
    work = [FMA] * 200

    def at(ahead: int) -> float:
        return cycles(trip(wait, copy, *work, others=(wait, *work), in_flight=ahead), 8)

    assert at(1) > RATES.bulk_latency
    assert at(3) < 0.6 * at(1)
    assert at(3) >= 2 * 200  # two warps of the quarter


def test_many_small_bulk_copies_are_bound_by_their_unit() -> None:
    wait, copy = Slot("issue", 1, phase=True), Slot("issue", 1, bulk_bytes=32)
    one = trip(wait, copy, FMA, in_flight=3)
    many = trip(wait, *[copy] * 200, FMA, in_flight=3)
    assert cycles(many) > 200 * (RATES.bulk_cycles + RATES.row_cycles) > cycles(one)
