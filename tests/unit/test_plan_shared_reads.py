"""Bank conflicts from fragment layouts."""

from __future__ import annotations

import pytest

from tilewright.plan.shared_reads import (
    gathered_fragment_wavefronts,
    ldmatrix_wavefronts,
    row_fragment_wavefronts,
    shared_read_wavefronts,
    wavefronts,
)


def test_equal_words_are_served_once_and_equal_banks_one_after_the_other() -> None:
    assert wavefronts([0] * 32, 4) == 1
    assert wavefronts(range(0, 128, 4), 4) == 1
    assert wavefronts(range(0, 32 * 128, 128), 4) == 32
    assert wavefronts([0, 1, 2, 3], 1) == 1
    assert wavefronts([], 4) == 0


@pytest.mark.parametrize(("pitch_bytes", "passes"), [(128, 8), (64, 4), (32, 2), (16, 1), (80, 1), (144, 1), (272, 1)])
def test_padding_takes_the_conflicts_out_of_ldmatrix(pitch_bytes: int, passes: int) -> None:
    assert ldmatrix_wavefronts(1, pitch_bytes) == passes
    assert ldmatrix_wavefronts(4, pitch_bytes) == 4 * passes


def test_a_row_fragment() -> None:
    assert row_fragment_wavefronts(128) == 8
    assert row_fragment_wavefronts(32) == 2
    assert row_fragment_wavefronts(80) == 1


def test_bytes_gathered_across_rows_of_64_conflict_four_ways() -> None:
    # Lanes 0 to 3 want k = 0, 4, 8, 12: 256 bytes apart, the same bank.
    assert gathered_fragment_wavefronts(1, 64) == 4
    assert gathered_fragment_wavefronts(1, 64 + 16) < 4


def test_the_int8_wmma_tile() -> None:
    loads = {"LDS.U8": 32.0, "LDSM.16.M88.2": 4.0}
    assert shared_read_wavefronts(loads, 1, 32, 64, matrix=True) == 32 * 4 + 4 * 2 * 2
    # A transposed ldmatrix reads B, so B's pitch counts.
    assert shared_read_wavefronts({"LDSM.16.MT88.4": 1.0}, 2, 128, 80, matrix=True) == 4
    assert shared_read_wavefronts({"LDSM.16.M88.4": 1.0}, 2, 128, 80, matrix=True) == 32
    assert shared_read_wavefronts({"LDS.128": 3.0, "LDS": 1.0}, 4, 512, 512, matrix=False) == 7
