"""Occupancy against the toolkit's own rules, and the cliffs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arch.arch import known_archs, load_arch
from tilewright.arch.occupancy import occupancy, register_cliff, smem_cliff

KIB = 1024
# Computed with cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13's cuda_occupancy.h, largest carve-out, opted in:
# threads, registers, shared bytes, blocks. 60,000 such rows of all targets agreed; these are a sample.
TOOLKIT_ROWS = {
    "sm_80": [
        (352, 105, 63488, 1),
        (160, 136, 140288, 1),
        (480, 72, 150528, 1),
        (64, 120, 109568, 1),
        (96, 56, 2048, 12),
        (896, 65, 14337, 1),
        (96, 209, 0, 2),
        (64, 192, 7168, 4),
        (800, 41, 3073, 1),
        (416, 232, 132097, 0),
        (128, 49, 167937, 0),
    ],
    "sm_86": [
        (64, 249, 80897, 1),
        (352, 113, 2048, 1),
        (64, 161, 29697, 3),
        (192, 153, 50177, 1),
        (96, 40, 37888, 2),
        (544, 80, 24577, 1),
        (64, 104, 29697, 3),
        (576, 73, 34817, 1),
        (320, 224, 162817, 0),
        (512, 208, 12288, 0),
    ],
    "sm_90a": [
        (640, 89, 214017, 1),
        (544, 64, 3072, 1),
        (576, 24, 39937, 3),
        (320, 40, 27648, 4),
        (64, 33, 145408, 1),
        (64, 17, 150528, 1),
        (928, 152, 0, 0),
        (480, 249, 60417, 0),
    ],
    "sm_120a": [
        (224, 185, 78848, 1),
        (352, 120, 32768, 1),
        (128, 97, 3072, 4),
        (96, 192, 9217, 2),
        (608, 24, 1025, 2),
        (256, 56, 3072, 4),
        (160, 64, 0, 6),
        (288, 169, 50177, 0),
        (448, 200, 219137, 0),
    ],
    "sm_75": [
        (32, 88, 1025, 16),
        (32, 200, 0, 8),
        (128, 153, 19457, 3),
        (160, 112, 9217, 3),
        (64, 89, 53248, 1),
        (32, 216, 2049, 8),
        (1024, 24, 58368, 1),
        (576, 192, 104448, 0),
        (512, 160, 1024, 0),
    ],
    "sm_87": [
        (64, 24, 1024, 16),
        (128, 57, 17408, 8),
        (32, 233, 73728, 2),
        (160, 96, 43008, 3),
        (160, 136, 152577, 1),
        (32, 129, 50177, 3),
        (800, 49, 101377, 1),
        (608, 65, 171008, 0),
        (896, 185, 4097, 0),
    ],
    "sm_89": [
        (32, 24, 1, 24),
        (32, 161, 3072, 12),
        (64, 56, 37888, 2),
        (160, 41, 12288, 7),
        (288, 80, 96257, 1),
        (32, 169, 45057, 2),
        (992, 64, 48128, 1),
        (192, 64, 106497, 0),
        (672, 209, 2049, 0),
    ],
    "sm_100a": [
        (64, 25, 1, 32),
        (128, 16, 2048, 16),
        (320, 49, 50177, 3),
        (32, 160, 19457, 11),
        (992, 33, 198657, 1),
        (192, 152, 0, 2),
        (928, 33, 145408, 1),
        (416, 233, 4097, 0),
    ],
    "sm_103a": [
        (32, 33, 3072, 32),
        (32, 97, 9217, 16),
        (288, 64, 7168, 3),
        (64, 81, 70657, 3),
        (288, 89, 206848, 1),
        (128, 161, 58368, 3),
        (832, 48, 201728, 1),
        (1024, 177, 1025, 0),
    ],
    "sm_110a": [
        (32, 33, 2049, 24),
        (128, 17, 17408, 12),
        (128, 153, 4097, 3),
        (384, 40, 65537, 3),
        (192, 57, 219137, 1),
        (32, 225, 96257, 2),
        (992, 56, 43008, 1),
        (640, 152, 4097, 0),
    ],
    "sm_121a": [
        (32, 57, 3073, 24),
        (32, 136, 4097, 12),
        (352, 49, 14337, 3),
        (256, 16, 9217, 6),
        (64, 65, 91137, 1),
        (192, 112, 3072, 2),
        (800, 56, 27648, 1),
        (864, 16, 137217, 0),
        (672, 105, 4096, 0),
    ],
}


@pytest.mark.parametrize("name", TOOLKIT_ROWS)
def test_blocks_per_sm_as_the_toolkit_counts_them(name: str) -> None:
    arch = load_arch(name)
    for threads, registers, smem_bytes, blocks in TOOLKIT_ROWS[name]:
        assert occupancy(arch, threads, registers, smem_bytes).blocks_per_sm == blocks, (threads, registers, smem_bytes)


@pytest.mark.parametrize(
    "mutant",
    [
        {"register_partitions": 1},
        {"register_granularity": 1024},
        {"smem_reserved_bytes": 8192},
        {"max_warps_per_sm": 32},
        {"max_blocks_per_sm": 8},
    ],
)
def test_the_rows_notice_a_broken_rule(mutant: dict[str, int]) -> None:
    seen = False
    for name, rows in TOOLKIT_ROWS.items():
        arch = replace(load_arch(name), **mutant)
        seen = seen or any(occupancy(arch, t, r, s).blocks_per_sm != blocks for t, r, s, blocks in rows)
    assert seen


def test_sm_86_loses_the_second_block_above_49_kib() -> None:
    arch = load_arch("sm_86")
    assert smem_cliff(arch, 128, 32, 2) == 49 * KIB == 50176
    assert occupancy(arch, 128, 32, 50176).blocks_per_sm == 2
    assert occupancy(arch, 128, 32, 50177).blocks_per_sm == 1
    # The folk figure of 50 KiB comes of forgetting the reserved KiB.
    assert smem_cliff(replace(arch, smem_reserved_bytes=0), 128, 32, 2) == 50 * KIB


def test_28_kib_doubled_falls_from_three_blocks_to_one() -> None:
    arch = load_arch("sm_86")
    assert occupancy(arch, 128, 32, 28 * KIB).blocks_per_sm == 3
    assert occupancy(arch, 128, 32, 56 * KIB).blocks_per_sm == 1


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("sm_75", 64),
        ("sm_80", 163),
        ("sm_86", 99),
        ("sm_87", 163),
        ("sm_89", 99),
        ("sm_90a", 227),
        ("sm_100a", 227),
        ("sm_103a", 227),
        ("sm_110a", 227),
        ("sm_120a", 99),
        ("sm_121a", 99),
    ],
)
def test_the_most_that_one_block_gets(name: str, most: int) -> None:
    arch = load_arch(name)
    assert occupancy(arch, 128, 32, most * KIB).blocks_per_sm == 1
    assert occupancy(arch, 128, 32, most * KIB + 1).blocks_per_sm == 0
    assert smem_cliff(arch, 128, 32, 1) == most * KIB


def test_64_registers_and_256_threads_are_four_blocks() -> None:
    for name in known_archs():
        found = occupancy(load_arch(name), 256, 64, 0)
        assert (found.blocks_per_sm, found.warps_per_sm, found.limiter) == (4, 32, "registers")
    assert register_cliff(load_arch("sm_86"), 256, 4) == 64


def test_the_limiter_names_what_stops_the_next_block() -> None:
    arch = load_arch("sm_86")
    assert occupancy(arch, 32, 16, 0).limiter == "blocks"
    assert occupancy(arch, 1024, 32, 0).limiter == "warps"
    assert occupancy(arch, 256, 128, 0).limiter == "registers"
    assert occupancy(arch, 128, 32, 40 * KIB).limiter == "shared"


def test_opting_in_begins_above_48_kib() -> None:
    arch = load_arch("sm_90a")
    assert not occupancy(arch, 128, 32, 48 * KIB).needs_opt_in
    assert occupancy(arch, 128, 32, 48 * KIB + 1).needs_opt_in


def test_what_cannot_be_launched_has_no_blocks() -> None:
    arch = load_arch("sm_90a")
    assert occupancy(arch, 1056, 16, 0).blocks_per_sm == 0
    assert occupancy(arch, 32, 256, 0).blocks_per_sm == 0
    # 512 threads of 200 registers want 106,496 registers.
    assert occupancy(arch, 512, 200, 0).blocks_per_sm == 0


shapes = st.tuples(st.sampled_from(known_archs()), st.integers(1, 1024), st.integers(1, 255), st.integers(0, 240 * KIB))


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_more_of_anything_never_gives_more_blocks(shape: tuple[str, int, int, int]) -> None:
    name, threads, registers, smem_bytes = shape
    arch = load_arch(name)
    blocks = occupancy(arch, threads, registers, smem_bytes).blocks_per_sm
    assert occupancy(arch, min(threads + 32, 1024), registers, smem_bytes).blocks_per_sm <= blocks
    assert occupancy(arch, threads, min(registers + 8, 255), smem_bytes).blocks_per_sm <= blocks
    assert occupancy(arch, threads, registers, smem_bytes + 128).blocks_per_sm <= blocks
    assert blocks * threads <= arch.max_threads_per_sm


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(1, 32))
def test_the_cliff_is_the_last_byte_that_keeps_the_blocks(shape: tuple[str, int, int, int], blocks: int) -> None:
    name, threads, registers, _ = shape
    arch = load_arch(name)
    cliff = smem_cliff(arch, threads, registers, blocks)
    if cliff is None:
        assert occupancy(arch, threads, registers, 0).blocks_per_sm < blocks
    else:
        assert occupancy(arch, threads, registers, cliff).blocks_per_sm >= blocks
        assert occupancy(arch, threads, registers, cliff + 1).blocks_per_sm < blocks
