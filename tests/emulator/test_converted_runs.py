"""Converting copies loaded by 16 bytes: the bits of the baseline on ragged and misaligned rows, and broken twins."""

from __future__ import annotations

from pathlib import Path

import pytest
from converting_kernels import WIDENED, sidecar
from trap_bench import Bench, bench

from tilewright.rewrite import widen
from tilewright.rewrite.result import RewrittenSource

# Rows that are whole vectors; rows that are not, of which some begin at a multiple of 16 bytes all the same.
SIZES = ({"M": 18, "N": 32, "K": 48}, {"M": 5, "N": 21, "K": 37})


def widened(folder: Path, name: str) -> tuple[Bench, str]:
    dtype, _, text = WIDENED[name]
    one = bench(folder, text, sidecar(dtype))
    written = widen.rewrite(one.kernel)
    assert isinstance(written, RewrittenSource), written
    return one, written.text


@pytest.mark.parametrize("name", WIDENED)
def test_the_bits_stay(name: str, tmp_path: Path) -> None:
    one, text = widened(tmp_path, name)
    for sizes in SIZES:
        assert not one.baseline(tuple(sorted(sizes.items()))).hazards
        assert one.differs(text, sizes) == set()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        # The guard asked of the first element only: past the end of A.
        ("float to half", "k0 + c + 3 < K", "k0 + c < K"),
        # Elements in another order, or one for all.
        ("float to half", "(As_loaded[lane]);", "(As_loaded[3 - lane]);"),
        ("half to float", "(Bs_loaded[lane]);", "(Bs_loaded[0]);"),
        # Half of what became wider than it was loaded is left out, or is not where it belongs.
        ("half to float", "(&As[i])[1] = ", "(&As[i])[0] = "),
        # Another rounding.
        ("float to half", "= __float2half(As_loaded", "= __float2half_rd(As_loaded"),
    ],
)
def test_a_broken_twin_is_caught(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    one, text = widened(tmp_path, name)
    assert text.count(right) == 1, text
    assert any(one.differs(text.replace(right, wrong), sizes) for sizes in SIZES)
