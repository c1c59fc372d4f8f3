"""Every way in which the bulk variant's text can be broken is found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mbarrier_harness import check, check_variant, rewritten

Sizes = Mapping[str, int]

# A mutation of the text of square's ring of three: what is there once, what is there instead; one of what must
# find it (nothing: wrong values, or a copy that the machine refuses).
WAIT = "tile_barrier_wait(&tile_full[read_stage], parity);"
BARRIER = "__syncthreads();  // what threads copied, too"
AHEAD = "copy_tile(t_ahead, write_stage);"
MUTANTS: Mapping[str, tuple[str, str, set[str]]] = {
    "no wait": (WAIT, "", {"read_in_flight"}),
    "wrong parity": ("unsigned parity = 0;", "unsigned parity = 1;", {"read_in_flight", "deadlock"}),
    "parity stands still": ("parity ^= read_stage == 0;", "", {"read_in_flight", "deadlock"}),
    "parity turns too often": ("parity ^= read_stage == 0;", "parity ^= 1;", {"read_in_flight", "deadlock"}),
    "too few bytes": ("16 * 64 + 16 * 64", "16 * 64", {"read_in_flight"}),
    "too many bytes": ("16 * 64 + 16 * 64", "16 * 64 + 17 * 64", {"deadlock"}),
    "one row is not copied": ("copy_thread < 16) tile_copy(&As", "copy_thread < 15) tile_copy(&As", {"deadlock"}),
    "rows too short": ("As_source(copy_thread), 64,", "As_source(copy_thread), 48,", {"deadlock"}),
    "another row": ("As_source(copy_thread)", "As_source(copy_thread ^ 1)", set()),
    "another stage": (AHEAD, AHEAD.replace("write", "read"), {"deadlock"}),
    "another stage's copy": ("auto &As = As_ring[stage];", "auto &As = As_ring[stage == 0];", set()),
    "no barrier in front of the refill": (BARRIER, "//", {"race_write_after_read"}),
    "the last tile is skipped": ("if (t_ahead < ", "if (t_ahead + 1 < ", {"deadlock"}),
    "no arrival for threads' copies": (
        "if (copy_thread == 0) tile_barrier_arrive(&tile_full[stage]);", "", {"deadlock"}
    ),
    "no bounds": ("t * TILE + 15 < K", "true", set()),
    "rows not aligned": ("reinterpret_cast<size_t>(As_source(1)) % 16 == 0", "true", set()),
    "no barriers are made": ("tile_barrier_init(&tile_full[stage]);", ";", {"mbarrier_misuse"}),
    "nobody waits until they are": (
        "__syncthreads();  // the barriers are there, and what was written before, for every thread",
        "",
        set(),
    ),
}  # fmt: skip
MUTANT_SIZES: Mapping[str, Sizes] = {
    "whole, then ragged": {"M": 16, "N": 16, "K": 16 * 5 + 4},
    "not aligned": {"M": 16, "N": 16, "K": 16 * 4 + 2},
}


def test_the_text_that_is_mutated_is_clean() -> None:
    assert check_variant("square", "bulk", 3, MUTANT_SIZES).is_clean


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    old, new, kinds = MUTANTS[name]
    written = rewritten("square", "bulk", 3)
    assert old in written.text
    found = check("square", written.text.replace(old, new), written.launch, MUTANT_SIZES)
    assert not found.is_clean
    assert not kinds or kinds & found.kinds, found


def test_barriers_that_are_made_twice() -> None:
    written = rewritten("persistent", "bulk", 2)
    text = written.text.replace("tile_barrier_inval(&tile_full[stage]);", ";")
    assert text != written.text
    found = check("persistent", text, written.launch, {"one": {"M": 32, "N": 32, "K": 32}})
    assert "mbarrier_misuse" in found.kinds
