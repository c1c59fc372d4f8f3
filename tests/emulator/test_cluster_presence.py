"""A block's shared memory is used by others of its cluster only while it is there; arrivals and waits come in pairs."""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import Done, run

NOTHING = np.zeros(32, np.int32)
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;\n", "barrier.cluster.wait.aligned;\n"
SYNC = ARRIVE + WAIT
THERE = (
    "xor.b32 %r20, %r63, 1;\nmapa.shared::cluster.u32 %r21, %r61, %r20;\nmapa.shared::cluster.u32 %r22, %r62, %r20;\n"
)
FILL = "add.u32 %r3, %r61, %r59;\nst.shared.u32 [%r3], %r59;\n"
READ = "ld.shared::cluster.u32 %r4, [%r21];\n"
USES = {
    "load": READ,
    "vector": "ld.shared::cluster.v2.u32 {%r4, %r5}, [%r21];\n",
    "store": "@%p15 st.shared::cluster.u32 [%r21+512], %r59;\n",
    "atomic": "atom.shared::cluster.add.u32 %r4, [%r21+512], 1;\n",
    "generic": "cvta.shared.u64 %d20, smem;\nmapa.u64 %d21, %d20, %r20;\nld.u32 %r4, [%d21];\n",
}


def told(body: str, threads: int = 32) -> Done:
    done = run(FILL + THERE + body, NOTHING, 256, blocks=2, cluster=2, threads=threads)
    assert done.emulation.error is None
    return done


@pytest.mark.parametrize("use", USES)
def test_another_block_is_there_between_two_barriers_of_the_cluster(use: str) -> None:
    fills = "@%p15 st.shared.u32 [%r61+512], %r59;\n"
    assert told(fills + SYNC + USES[use] + SYNC).kinds == set()
    early = told(fills + ARRIVE + USES[use] + WAIT + SYNC)
    assert "remote_too_early" in early.kinds
    assert "may not have begun" in early.words
    late = told(fills + SYNC + USES[use])
    assert late.kinds == {"remote_too_late"}
    assert "may have ended" in late.words
    assert told(fills + SYNC + USES[use] + ARRIVE).kinds == {"remote_too_late"}


def test_what_a_block_does_to_itself_is_no_matter() -> None:
    assert told("bar.sync 0;\n" + READ.replace("%r21", "%r61")).kinds == set()
    assert told("mapa.shared::cluster.u32 %r21, %r61, %r63;\nbar.sync 0;\n" + READ).kinds == set()


FIRST_WARP = "setp.lt.u32 %p2, %r60, 32;\n"
BARS = "@%p15 mbarrier.init.shared::cta.b64 [bars], 32;\nbar.sync 0;\n"
TELLS = """
    @!%p2 bra LOOK;
    mbarrier.arrive.shared::cta.b64 %d20, [bars];
LOOK:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bars], 0;
    @!%p1 bra LOOK;
"""


@pytest.mark.parametrize("tells", ["bar.sync 0;\n", TELLS])
def test_one_warp_may_wait_and_tell_the_others(tells: str) -> None:
    """All arrive, the first warp waits; the second ends, and has its arrival behind it."""
    waits = f"{BARS}{FIRST_WARP}{ARRIVE}@!%p2 bra ON;\n{WAIT}ON:\n"
    ends = f"@!%p2 bra OUT;\n{SYNC}OUT:\n"
    assert told(waits + tells + READ + ends, 64).kinds == set()
    assert "remote_too_early" in told(waits + READ + ends, 64).kinds


def test_blocks_may_tell_each_other_in_global_memory() -> None:
    word = "mul.wide.u32 %d20, %r63, 4;\nadd.u64 %d20, %d61, %d20;\n"
    word += "mul.wide.u32 %d21, %r20, 4;\nadd.u64 %d21, %d61, %d21;\n"
    says = "mov.u32 %r6, 1;\n@%p15 st.relaxed.gpu.global.u32 [%d20], %r6;\n"
    hears = "AGAIN:\nld.relaxed.gpu.global.u32 %r7, [%d21];\nsetp.eq.u32 %p1, %r7, 0;\n@%p1 bra AGAIN;\n"
    assert told(word + says + hears + READ + SYNC).kinds == set()
    assert told(word + says + READ + SYNC).kinds == {"remote_too_early"}


def test_an_arrival_that_the_other_block_waits_for_ends_the_use_of_its_memory() -> None:
    ready = "@%p15 mbarrier.init.shared::cta.b64 [bars], 32;\n" + SYNC
    arrives = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];\n"
    waits = "LOOK:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bars], 0;\n@!%p1 bra LOOK;\n"
    assert told(ready + READ + arrives + waits).kinds == set()
    assert told(ready + arrives + READ + waits).kinds == {"remote_too_late"}


def test_each_arrival_has_its_wait() -> None:
    assert told(SYNC + SYNC).kinds == set()
    assert told(SYNC + ARRIVE).kinds == set()  # who has ended is not waited for
    again = told(ARRIVE + ARRIVE + WAIT)
    assert again.kinds == {"cluster_barrier_misuse"}
    assert "has not waited since its arrival" in again.words
    alone = told(SYNC + WAIT)
    assert alone.kinds == {"cluster_barrier_misuse"}
    assert "without an arrival of its own" in alone.words
