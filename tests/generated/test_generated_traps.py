"""Random kernels with a trap in them: nothing is offered that falls into it."""

from __future__ import annotations

import pytest
from cases import TRAP_SEEDS, judged
from choices import TRAPS


@pytest.mark.parametrize("seed", TRAP_SEEDS)
def test_nothing_is_offered(seed: int) -> None:
    result = judged(seed, "trap")
    assert result.trap
    assert not result.error, result
    assert not result.rash, result
    assert not result.wrong, result
    assert not result.failed, result


def test_every_kind_is_met() -> None:
    assert len({judged(s, "trap").trap for s in TRAP_SEEDS}) == len(TRAPS)
