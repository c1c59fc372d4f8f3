"""Random kernels, the first half: nothing wrong is offered."""

from __future__ import annotations

import pytest
from cases import SEEDS, judged


@pytest.mark.parametrize("seed", [s for s in SEEDS if s % 2 == 0])
def test_nothing_wrong_is_offered(seed: int) -> None:
    result = judged(seed)
    assert result.baseline == "passed", result
    assert not result.error, result
    assert not result.wrong, result
    assert not result.unjudged, result
    assert not result.failed, result


def test_most_are_accepted() -> None:
    """Refusing everything would pass the tests above; of kernels that are legal, at least 80 % must be taken."""
    results = [judged(s) for s in SEEDS if s % 2 == 0]
    taken = sum(bool(r.offered) for r in results)
    assert taken >= 0.8 * len(results), [(r.seed, r.refused[:1]) for r in results if not r.offered]
