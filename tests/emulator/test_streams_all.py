"""Load phases that are taken as a whole: every variant keeps the bits of the original."""

from __future__ import annotations

from pathlib import Path

import pytest
from stream_runs import check
from whole_kernels import ALL

HALF = list(ALL)[: len(ALL) // 2]


@pytest.mark.parametrize("name", HALF)
def test_every_variant_keeps_the_bits(name: str, tmp_path: Path) -> None:
    check(tmp_path, ALL[name], {})
