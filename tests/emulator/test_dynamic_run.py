"""Carve-ups of dynamic shared memory: the same values as arrays and as rings, with the launch's new bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trap_bench import bench

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # its small kernels

from dynamic_kernels import READ, READS_THE_TILE, Carve

SIZES = {"M": 16, "N": 16, "K": 64}


@pytest.mark.parametrize("carve", READ, ids=lambda c: c.name)
def test_arrays_and_rings_keep_the_meaning(carve: Carve, tmp_path: Path) -> None:
    made = bench(tmp_path, carve.text, carve.sidecar)
    before = made.run(None, SIZES)
    assert not before.hazards
    assert made.run(made.kernel.text.decode(), SIZES) == before
    for variant in ("ldg", "ldg_single", "cp_async3"):
        made.same(variant, SIZES)
    assert made.written("cp_async3").launch.shared_bytes == carve.launch


def test_too_few_bytes_at_the_launch_are_seen(tmp_path: Path) -> None:
    made = bench(tmp_path, READ[0].text, READ[0].sidecar)
    assert made.differs(made.written("cp_async3").text, SIZES)


def test_an_epilogue_that_reads_the_last_tile_by_another_name_is_caught(tmp_path: Path) -> None:
    """What is taken for granted of bytes that are used in turns is not so here."""
    made = bench(tmp_path, READS_THE_TILE.text, READS_THE_TILE.sidecar)
    assert any("share bytes in turns" in a for a in made.kernel.assumptions)
    written = made.written("cp_async3")
    for k in (32, 48, 64, 80):  # the last tile is in every stage once
        sizes = {**SIZES, "K": k}
        if made.differs(written.text, sizes, written.launch):
            return
    pytest.fail("no size shows that the tile is missing")
