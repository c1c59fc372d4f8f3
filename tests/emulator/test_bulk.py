"""The bulk variant in the emulator: the bits of its baseline at every trip count, whichever way a tile goes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mbarrier_harness import check, check_variant, refused, tiled
from mbarrier_kernels import SIBLINGS, UNBOXED

from tilewright.rewrite import bulk
from tilewright.rewrite.result import RewrittenSource

Sizes = Mapping[str, int]


def trips(m: int, n: int, step: int, rest: int, counts: tuple[int, ...]) -> dict[str, Sizes]:
    """Size sets with so many whole tiles, and ``rest`` of another one."""
    return {f"{t} tiles": {"M": m, "N": n, "K": t * step + rest} for t in counts}


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_ring_fills_goes_round_and_drains(stages: int) -> None:
    counts = (0, 1, stages - 1, stages, stages + 1)
    found = check_variant("square", "bulk", stages, trips(16, 16, 16, 0, counts))
    assert found.is_clean, found


SHAPES: Mapping[str, Sizes] = {
    "whole": {"M": 32, "N": 32, "K": 64},
    "edges, rows aligned": {"M": 20, "N": 40, "K": 40},
    "rows not aligned": {"M": 17, "N": 21, "K": 37},
    "one of the matrices aligned": {"M": 17, "N": 24, "K": 35},
}


def test_tiles_that_leave_the_matrices_or_are_not_aligned() -> None:
    found = check_variant("square", "bulk", 3, SHAPES)
    assert found.is_clean, found


def test_copy_loops_and_padded_rows() -> None:
    found = check_variant("halves", "bulk", 2, {name: SHAPES[name] for name in list(SHAPES)[1:3]})
    assert found.is_clean, found


@pytest.mark.parametrize("variant", ["bulk", "tma"])
def test_a_load_phase_that_is_taken_as_a_whole(variant: str) -> None:
    assert tiled("nested").stream is not None
    found = check_variant("nested", variant, 3, SHAPES)
    assert found.is_clean, found


def test_pointers_that_move_along() -> None:
    found = check_variant("moving", "bulk", 2, trips(64, 64, 16, 0, (3,)))
    assert found.is_clean, found


def test_a_block_that_goes_around_more_than_once() -> None:
    found = check_variant("persistent", "bulk", 3, trips(40, 48, 16, 8, (0, 1, 4)))
    assert found.is_clean, found


def test_a_dynamic_ring() -> None:
    written = bulk.rewrite(tiled("square"), 3, 4096)
    assert isinstance(written, RewrittenSource)
    assert written.launch.shared_bytes == 3 * 2 * 16 * 16 * 4
    found = check("square", written.text, written.launch, trips(16, 24, 16, 4, (1, 4)))
    assert found.is_clean, found


@pytest.mark.parametrize("name", UNBOXED)
def test_what_only_tma_refuses(name: str) -> None:
    assert check_variant(name, "bulk", 2, {"one": {"M": 32, "N": 16, "K": 40}}).is_clean


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings_are_refused(name: str) -> None:
    codes = {"leaving": "divergent_barrier", "scaled": "converts_type"}
    assert refused(name, "bulk").code == codes.get(name, "not_contiguous")
