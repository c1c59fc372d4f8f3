"""What a build is predicted from."""

from __future__ import annotations

import pytest

from tilewright.workflow.built import warps_math


@pytest.mark.parametrize(
    ("side", "threads", "math"),
    [
        ("", 256, 64.0),  # the same tile and block
        ("BK", 256, 64.0),  # half as deep, twice as many tiles
        ("BM", 256, 32.0),  # half of the rows by as many threads
        ("BM", 128, 64.0),  # the block follows the rows: each warp has as much as before
    ],
)
def test_a_warps_math_follows_tile_and_block(side: str, threads: int, math: float) -> None:
    assert warps_math(64.0, side, 256, threads) == math
