"""An arrival that another order of events would count in the phase before, in the place of somebody else's."""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import run

from tilewright.emulator.options import EmulatorOptions

NUMBERS = np.arange(64, dtype=np.int32)
READY = "@%p15 mbarrier.init.shared::cta.b64 [bars], 2;\nbar.sync 0;\n"
ARRIVE = """
    and.b32 %r20, %r60, 31;
    setp.eq.u32 %p2, %r20, 0;
    @%p2 mbarrier.arrive.release.cta.shared::cta.b64 _, [bars];
"""
LAST = """
LAST:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [bars], 1;
    @!%p1 bra LAST;
"""
FIRST = LAST.replace("LAST", "FIRST").replace(", 1;", ", 0;")
POLL = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [bars], 0;\n"  # and on, whatever it says


def kinds(between: str, schedule: str) -> set[str]:
    options = EmulatorOptions(schedule=schedule, max_seconds=10)  # type: ignore[arg-type]
    done = run(READY + ARRIVE + between + ARRIVE + LAST, NUMBERS, 64, threads=64, options=options)
    assert done.emulation.error is None
    return done.kinds


@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_of_two_warps_each_arrives_twice_and_nothing_is_between(schedule: str) -> None:
    assert kinds("", schedule) == {"mbarrier_misuse"}
    assert kinds("bar.warp.sync -1;\n", schedule) == {"mbarrier_misuse"}


RELAXED = FIRST.replace(
    ".acquire", ".relaxed"
)  # who has seen a phase complete arrives in the next, whatever else it knows


@pytest.mark.parametrize("between", [FIRST, RELAXED, "bar.sync 0;\n", "bar.sync 0;\n" + POLL])
@pytest.mark.parametrize("schedule", ["lockstep", "warp_serial", "random"])
def test_a_wait_or_a_barrier_keeps_the_phases_apart(between: str, schedule: str) -> None:
    assert kinds(between, schedule) == set()


# Two blocks. Warp 0 of the first arrives, then at the other block, which waits and arrives back; warp 1 of the first
# waits for that, and arrives in the next phase: what orders the two arrivals has gone through the other block.
THROUGH_THE_OTHER = """
@%p15 mbarrier.init.shared::cta.b64 [bars], 1;
@%p15 mbarrier.init.shared::cta.b64 [bars+8], 1;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
and.b32 %r20, %r60, 31;
setp.eq.u32 %p2, %r20, 0;
setp.gt.u32 %p4, %r60, 31;
xor.b32 %r30, %r63, 1;
mov.u32 %r31, bars;
add.u32 %r31, %r31, 8;
mapa.shared::cluster.u32 %r32, %r31, %r30;
setp.eq.u32 %p6, %r63, 1;
@%p6 bra OTHER;
@%p4 bra SECOND;
@%p2 mbarrier.arrive.release.cta.shared::cta.b64 _, [bars];
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r32];
bra END;
SECOND:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bars+8], 0;
@!%p1 bra SECOND;
@%p2 mbarrier.arrive.release.cta.shared::cta.b64 _, [bars];
bra END;
OTHER:
@%p4 bra END;
AGAIN:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bars+8], 0;
@!%p1 bra AGAIN;
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r32];
END:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""


def test_order_that_came_through_another_block_is_not_doubted() -> None:
    options = EmulatorOptions(schedule="random", max_seconds=10)
    done = run(THROUGH_THE_OTHER, NUMBERS, 256, threads=64, blocks=2, cluster=2, options=options)
    assert done.emulation.error is None
    assert done.kinds == set()
