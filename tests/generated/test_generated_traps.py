"""Random kernels with a trap in them: nothing is offered."""

from __future__ import annotations

import pytest
from cases import TRAP_SEEDS, judged


@pytest.mark.parametrize("seed", TRAP_SEEDS)
def test_nothing_is_offered(seed: int) -> None:
    result = judged(seed, "trap")
    assert result.trap
    assert not result.error, result
    assert not result.offered, result
