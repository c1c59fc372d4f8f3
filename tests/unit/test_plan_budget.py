"""The stage table: golden rows, the cliff and its proposals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arch.arch import known_archs, load_arch
from tilewright.arch.occupancy import smem_cliff
from tilewright.plan.budget import budget

KIB = 1024


def test_the_int8_example_on_sm_86() -> None:
    found = budget(load_arch("sm_86"), threads=128, registers=64, smem_single_bytes=4096, staged_bytes=4096)
    assert [row.blocks_per_sm for row in found.rows[:4]] == [8, 8, 7, 5]
    assert [row.smem_bytes for row in found.rows[:4]] == [4096, 8192, 12288, 16384]
    assert [row.limiter for row in found.rows[:4]] == ["registers", "registers", "shared", "shared"]
    assert [row.crosses_cliff for row in found.rows[:4]] == [False, False, True, True]
    assert [row.warps_per_sm for row in found.rows[:4]] == [32, 32, 28, 20]
    assert found.cliff is not None
    assert (found.cliff.blocks, found.cliff.smem_bytes) == (8, int(11.5 * KIB))
    assert "11.5 KiB" in found.cliff_text
    assert "3 stages cross it" in found.cliff_text
    assert found.doubling_keeps_two
    assert not found.proposals


def test_28_kib_doubled_crosses_and_proposes() -> None:
    found = budget(load_arch("sm_86"), threads=256, registers=64, smem_single_bytes=28 * KIB, staged_bytes=28 * KIB)
    assert [row.blocks_per_sm for row in found.rows[:4]] == [3, 1, 1, 0]
    assert [(cliff.blocks, cliff.smem_bytes) for cliff in found.cliffs] == [(3, 33024), (2, 50176), (1, 99 * KIB)]
    assert found.rows[1].crosses_cliff
    assert found.rows[1].needs_opt_in
    assert not found.rows[3].fits
    assert not found.doubling_keeps_two
    by_kind = {proposal.kind: proposal for proposal in found.proposals}
    assert by_kind.keys() == {"retile", "ldg_single", "fewer_stages"}
    assert by_kind["retile"].blocks_per_sm == 3
    # 28 KiB over 256 threads are 28 registers: 92 in all, and two blocks.
    assert by_kind["ldg_single"].blocks_per_sm == 2
    assert "28 more registers" in by_kind["ldg_single"].cost


def test_the_reserved_kib_decides_the_row() -> None:
    arch = load_arch("sm_86")
    shape = {"threads": 128, "registers": 32, "smem_single_bytes": 25 * KIB, "staged_bytes": 25 * KIB}
    assert [row.blocks_per_sm for row in budget(arch, **shape).rows[:2]] == [3, 1]
    mutant = replace(arch, smem_reserved_bytes=0)
    assert [row.blocks_per_sm for row in budget(mutant, **shape).rows[:2]] == [4, 2]


def test_arrays_that_are_not_staged_are_counted_once() -> None:
    found = budget(load_arch("sm_90a"), threads=128, registers=72, smem_single_bytes=14848, staged_bytes=9728)
    assert [row.smem_bytes for row in found.rows[:3]] == [14848, 24576, 34304]


def test_static_arrays_end_at_48_kib() -> None:
    found = budget(load_arch("sm_90a"), threads=256, registers=102, smem_single_bytes=18944, staged_bytes=18944)
    assert [row.needs_opt_in for row in found.rows[:3]] == [False, False, True]
    assert found.rows[2].fits
    assert not found.rows[2].crosses_cliff


def test_a_kernel_that_does_not_fit() -> None:
    found = budget(load_arch("sm_86"), threads=128, registers=32, smem_single_bytes=120 * KIB, staged_bytes=KIB)
    assert found.cliff is None
    assert not any(row.fits or row.crosses_cliff for row in found.rows)
    assert "Not one block fits" in found.cliff_text


def test_rows_by_number_of_stages() -> None:
    found = budget(
        load_arch("sm_86"), threads=128, registers=64, smem_single_bytes=4096, staged_bytes=4096, max_stages=3
    )
    assert len(found.rows) == 3
    third = found.row(3)
    assert third is not None
    assert third.stages == 3
    assert found.row(0) is None
    assert found.row(4) is None


@pytest.mark.parametrize("name", known_archs())
@settings(max_examples=30, deadline=None)
@given(
    threads=st.integers(1, 32).map(lambda warps: warps * 32),
    registers=st.integers(16, 255),
    staged=st.integers(16, 64 * KIB),
    other=st.integers(0, 16 * KIB),
)
def test_rows_are_consistent(name: str, threads: int, registers: int, staged: int, other: int) -> None:
    arch = load_arch(name)
    found = budget(arch, threads=threads, registers=registers, smem_single_bytes=staged + other, staged_bytes=staged)
    single = found.rows[0].blocks_per_sm
    for before, after in zip(found.rows, found.rows[1:], strict=False):
        assert after.blocks_per_sm <= before.blocks_per_sm
        assert after.smem_bytes - before.smem_bytes == staged
    for row in found.rows:
        assert row.fits == (row.blocks_per_sm >= 1)
        if single:
            cliff = smem_cliff(arch, threads, registers, single)
            assert cliff is not None
            assert row.crosses_cliff == (row.smem_bytes > cliff)
        else:
            assert not row.crosses_cliff
