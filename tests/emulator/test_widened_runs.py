"""Half-precision tiles copied by 16 bytes: ragged rows, rows that are not aligned, and their siblings."""

from __future__ import annotations

from pathlib import Path

import pytest
from trap_bench import VARIANTS, bench
from wide_kernels import MIXED, NARROW, SIDECAR, WIDENED

# Rows that are whole vectors, and rows that are not.
SIZES = ({"M": 19, "N": 24, "K": 40}, {"M": 17, "N": 11, "K": 37})


@pytest.mark.parametrize("name", WIDENED)
def test_every_variant_keeps_the_bits(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, WIDENED[name], SIDECAR)
    for variant in VARIANTS:
        if not variant.startswith("bulk"):
            for sizes in SIZES:
                one.same(variant, sizes)


@pytest.mark.parametrize("name", NARROW)
def test_registers_move_its_siblings(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, NARROW[name], SIDECAR)
    for sizes in SIZES:
        one.same("ldg", sizes)


@pytest.mark.parametrize("name", MIXED)
def test_a_loop_of_a_stream_is_widened_by_itself(name: str, tmp_path: Path) -> None:
    one = bench(tmp_path, MIXED[name], SIDECAR)
    for variant in ("ldg", "cp_async3"):
        one.same(variant, {"M": 19, "N": 32, "K": 48})
