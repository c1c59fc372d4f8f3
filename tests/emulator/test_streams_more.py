"""More load phases that are taken as a whole: all variants, registers only, one buffer only."""

from __future__ import annotations

from pathlib import Path

import pytest
from stream_runs import check
from whole_kernels import ALL, REGISTERS, SINGLE

OTHERS = list(ALL)[len(ALL) // 2 :]


@pytest.mark.parametrize("name", OTHERS)
def test_every_variant_keeps_the_bits(name: str, tmp_path: Path) -> None:
    check(tmp_path, ALL[name], {})


@pytest.mark.parametrize("name", REGISTERS)
def test_registers_compute_on_the_way(name: str, tmp_path: Path) -> None:
    check(tmp_path, REGISTERS[name], {"cp_async": "converts_type"})


@pytest.mark.parametrize("name", SINGLE)
def test_one_buffer_keeps_what_a_tile_leaves_out(name: str, tmp_path: Path) -> None:
    without = dict.fromkeys(("ldg_early", "cp_async"), "loop_carried_shared")
    check(tmp_path, SINGLE[name], without, {"ldg": "loop_carried_shared"})
