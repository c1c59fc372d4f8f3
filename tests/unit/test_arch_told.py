"""A card's own answers win over the tables, and differences are told."""

from __future__ import annotations

import pytest

from tilewright.arch.arch import load_arch
from tilewright.arch.occupancy import occupancy, preferred_carveout
from tilewright.arch.told import SOURCE, Difference, corrected
from tilewright.errors import TilewrightError

KIB = 1024


def test_a_card_that_agrees_changes_nothing() -> None:
    arch = load_arch("sm_90a")
    told = {"smem_per_sm_bytes": 228 * KIB, "smem_optin_max_bytes": 227 * KIB, "max_blocks_per_sm": 32}
    assert corrected(arch, told) == (arch, ())


def test_a_card_wins_and_the_difference_is_told() -> None:
    arch = load_arch("sm_86")
    told = {
        "max_threads_per_sm": 1024,
        "smem_per_sm_bytes": 64 * KIB,
        "smem_optin_max_bytes": 63 * KIB,
        "warp_size": 32,
    }
    card, found = corrected(arch, told)
    assert found == (
        Difference("max_threads_per_sm", 1536, 1024),
        Difference("smem_per_sm_bytes", 100 * KIB, 64 * KIB),
        Difference("smem_optin_max_bytes", 99 * KIB, 63 * KIB),
    )
    assert found[0].text == "max_threads_per_sm: the card says 1,024, the table 1,536"
    assert card.max_warps_per_sm == 32
    assert card.smem_carveouts_bytes == (0, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
    assert (card.kinds["smem_per_sm_bytes"], card.sources["smem_per_sm_bytes"]) == ("measured", SOURCE)
    assert card.kinds["registers_per_sm"] == "documented"
    assert occupancy(card, 128, 32, 20 * KIB).blocks_per_sm == 3
    assert preferred_carveout(card, 100) == 64 * KIB


def test_what_no_driver_tells_is_refused() -> None:
    with pytest.raises(TilewrightError) as caught:
        corrected(load_arch("sm_86"), {"register_granularity": 512})
    assert caught.value.code == "arch/bad_data"
