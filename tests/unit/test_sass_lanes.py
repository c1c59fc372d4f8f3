"""What a warp's accesses cost, followed lane by lane; held against the emulator's counters on random addresses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sass_inputs.nvrtc import listing_of

from tilewright.emulator.counters.banks import bank_conflicts
from tilewright.sass.flow import flow_of
from tilewright.sass.kloop import find_k_loops, work_of
from tilewright.sass.lanes import conflicts, follow, merged
from tilewright.sass.schedule import Schedule, schedule_of


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_conflicts_are_those_that_the_emulator_counts(width: int) -> None:
    rng = random.Random(width)
    for _ in range(60):
        pitch, spread = rng.choice([1, 2, 4, 17, 32, 33, 64]), rng.choice([1, 2, 8, 32])
        lanes = [(lane % spread * pitch + lane // spread) * width for lane in range(32)]
        if rng.random() < 0.3:
            rng.shuffle(lanes)
        active = np.array([[rng.random() < 0.9 for _ in lanes]])
        wanted = [address if here else None for address, here in zip(lanes, active[0], strict=True)]
        counted = bank_conflicts(np.array([lanes]), active, width)[0][0]
        assert conflicts(wanted, width) == counted
        assert merged(wanted, width) <= counted or width < 4


def test_one_word_for_all_is_one_pass_if_quarters_share() -> None:
    assert conflicts([64] * 32, 16) == 4
    assert merged([64] * 32, 16) == 1
    assert conflicts(list(range(0, 128, 4)), 4) == merged(list(range(0, 128, 4)), 4) == 1
    assert conflicts(list(range(0, 4096, 128)), 4) == merged(list(range(0, 4096, 128)), 4) == 32


def made(kernel: str, engine: str = "int8.cu", arch: str = "sm_90a") -> Schedule:
    function = next(f for f in listing_of(engine, arch).functions if kernel in f.name)
    found = schedule_of(function, (128, 1, 1))
    assert found is not None
    return found


def test_the_first_warp_is_followed_round_the_loop() -> None:
    function = next(f for f in listing_of("int8.cu", "sm_90a").functions if "ring_s3" in f.name)
    flow, work = flow_of(function), work_of(function)
    loop = flow.loops[find_k_loops(function, flow, work)[0]]
    seen = follow(function, flow, loop, (128, 1, 1))
    assert any(step.active and step.at in work.math for step in seen.trip)
    memory = [s.at for s in seen.trip if s.active and function.instructions[s.at].opcode in ("LDGSTS", "LDS", "LDSM")]
    assert memory
    assert set(memory) <= seen.accesses.keys()
    for at in memory:
        cost = seen.accesses[at]
        assert 1 <= cost.wavefronts <= 32
        assert cost.lanes == 32


def test_a_schedule_holds_the_loops_copies_waits_and_math() -> None:
    base, ring = made("baseline"), made("ring_s3")
    assert {slot.pipe for slot in ring.trip} >= {"matrix", "async", "shared"}
    assert not any(slot.pipe == "async" for slot in base.trip)
    assert any(slot.pipe == "global" and slot.write >= 0 for slot in base.trip)
    waits = [slot.leaves for slot in ring.trip if slot.leaves >= 0]
    assert set(waits) == {1}
    assert sum(slot.commits for slot in ring.trip) == len(waits)  # the compiler unrolls: one of each per tile
    assert sum(slot.joins for slot in ring.trip) >= len(waits)
    assert sum(slot.macs > 0 for slot in ring.trip) == ring.math_per_trip
    assert ring.before > 0
    assert ring.after > 0


@pytest.mark.parametrize(("kernel", "leaves"), [("waits_s3_n1", 1), ("waits_s3_n0", 0)])
def test_waiting_for_more_groups_than_needed_shows(kernel: str, leaves: int) -> None:
    assert {slot.leaves for slot in made(kernel).trip if slot.leaves >= 0} == {leaves}
