"""A block of a cluster must not end before the arrivals of others at its mbarriers."""

from __future__ import annotations

import numpy as np
import pytest
from async_harness import run

NUMBERS = np.arange(32, dtype=np.int32)
SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
ARRIVE_ONLY = "barrier.cluster.arrive.release.aligned;\n"
READY = "@%p15 mbarrier.init.shared::cta.b64 [bars], 1;\n" + SYNC
ARRIVE = """
    xor.b32 %r20, %r63, 1;
    mapa.shared::cluster.u32 %r22, %r62, %r20;
    @%p15 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
"""
WAIT = """
AGAIN:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bars], 0;
    @!%p1 bra AGAIN;
"""
HOME = "@%p15 mbarrier.arrive.shared::cta.b64 %d20, [bars];\n"


def kinds(body: str) -> set[str]:
    done = run(READY + body, NUMBERS, 64, blocks=2, cluster=2)
    assert done.emulation.error is None
    return done.kinds


@pytest.mark.parametrize("ends", [WAIT, SYNC, WAIT + SYNC, SYNC + WAIT])
def test_a_wait_or_a_barrier_of_the_cluster_keeps_the_block(ends: str) -> None:
    assert kinds(ARRIVE + ends) == set()


@pytest.mark.parametrize("body", [ARRIVE, SYNC + ARRIVE, ARRIVE + ARRIVE_ONLY, ARRIVE + WAIT + ARRIVE])
def test_without_it_the_last_arrival_comes_too_late(body: str) -> None:
    assert kinds(body) == {"mbarrier_misuse"}


def test_an_arrival_at_home_needs_neither() -> None:
    assert kinds(HOME) == set()
