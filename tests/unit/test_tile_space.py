"""What the legal space holds compiles without spills, and what it rejects cannot be built or launched."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from tilewright.arch.arch import load_arch
from tilewright.arch.devices import find_device
from tilewright.arch.occupancy import occupancy
from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.settings import Settings
from tilewright.skeleton.elements import GemmDType
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda, why_no_gemm
from tilewright.tile import resources, space
from tilewright.tile.ops import Gemm, skeleton_dtype

ARCH = load_arch("sm_90a")
# All of them: TILEWRIGHT_TILES=1000 pytest tests/unit/test_tile_space.py
SAMPLES = int(os.environ.get("TILEWRIGHT_TILES", "6"))


def h200():  # type: ignore[no-untyped-def]
    device = find_device("h200")
    assert device is not None
    return device


def compiled(
    tile: GemmTile, arch_name: str = "sm_90a", dtype: GemmDType = "fp16", vectors: Vectors | None = None
) -> Artifact:
    made = gemm_cuda(tile, dtype, load_arch(arch_name), vectors=vectors)
    artifact = build(BuildRequest(made.text, "gemm.cu", arch_name, made.kernel), Settings.from_environment())
    assert isinstance(artifact, Artifact), artifact
    return artifact


def sampled(tiles: list[GemmTile]) -> list[GemmTile]:
    return random.Random(11).sample(tiles, min(SAMPLES, len(tiles)))


def test_every_tile_of_the_axes_is_sorted_once() -> None:
    found = space.tiles("float16", ARCH)
    assert len(found.legal) + len(found.rejected) == len(list(space._axes("float16")))
    assert not {*found.legal} & {row.tile for row in found.rejected}
    assert set(Counter(row.why.code for row in found.rejected)) == {"warp_m", "warp_n", "smem", "registers"}


@pytest.mark.parametrize("tile", sampled(list(space.tiles("float16", ARCH).legal)), ids=str)
def test_a_legal_tile_compiles_without_spills_and_fits(tile: GemmTile) -> None:
    found = compiled(tile)
    assert found.resources.spill_bytes == 0
    smem = resources.smem_bytes(tile, "float16")
    assert occupancy(ARCH, resources.threads(tile, ARCH), found.resources.registers, smem).blocks_per_sm >= 1


def test_a_tile_rejected_for_its_registers_spills_or_uses_them_all() -> None:
    rejected = [row.tile for row in space.tiles("float16", ARCH).rejected if row.why.code == "registers"]
    buildable = [tile for tile in rejected if not why_no_gemm(tile, "fp16", ARCH)]
    assert buildable
    for tile in random.Random(5).sample(buildable, min(max(SAMPLES // 3, 2), len(buildable))):
        found = compiled(tile).resources
        assert found.spill_bytes > 0 or found.registers >= ARCH.max_registers_per_thread - 1, (tile, found)


@pytest.mark.parametrize("code", ["warp_m", "warp_n", "smem"])
def test_what_else_is_rejected_has_no_kernel_or_fits_on_no_sm(code: str) -> None:
    rejected = [row for row in space.tiles("float16", ARCH).rejected if row.why.code == code]
    assert rejected
    for row in rejected:
        assert why_no_gemm(row.tile, "fp16", ARCH), row
        assert any(character.isdigit() for character in row.why.reason)


@pytest.mark.parametrize(
    ("tile", "dtype", "arch"),
    [
        (GemmTile(256, 128, 32, 2, 4, 2, 1, 1), "float16", "sm_90a"),  # 24 B
        (GemmTile(256, 128, 32, 2, 4, 3, 1, 1), "float16", "sm_80"),  # 32 B
        (GemmTile(128, 128, 32, 2, 2, 2, 1, 1), "float32", "sm_86"),  # 56 B
        (GemmTile(256, 128, 32, 4, 2, 3, 1, 1), "float32", "sm_90a"),  # 16 B
        (GemmTile(128, 128, 16, 2, 2, 4, 1, 1), "float32", "sm_86"),  # 8 B
        (GemmTile(128, 128, 128, 2, 2, 2, 1, 1), "int8", "sm_86"),  # 104 B
        (GemmTile(256, 128, 128, 4, 2, 4, 1, 1), "int8", "sm_90a"),  # 40 B
    ],
    ids=str,
)
def test_tiles_that_were_found_to_spill_are_not_legal(tile: GemmTile, dtype: str, arch: str) -> None:
    why = space.rejection(tile, dtype, load_arch(arch))
    assert why is not None
    assert why.code == "registers"


def test_rows_too_narrow_for_copies_need_more_registers() -> None:
    tile = GemmTile(128, 128, 64, 2, 2, 2, 1, 1)  # 8 B spill with vectors of one element
    assert compiled(tile, vectors=Vectors(1, 1, 1)).resources.spill_bytes > 0
    assert tile in space.legal_space(Gemm(4096, 4096, 4096), ARCH, h200())
    assert tile not in space.legal_space(Gemm(4096, 4096, 4095), ARCH, h200())
    assert tile not in space.legal_space(Gemm(4096, 4095, 4096), ARCH, h200())


@pytest.mark.parametrize(
    ("tile", "dtype", "arch"),
    [
        (GemmTile(32, 256, 64, 1, 4, 4, 1, 1), "int8", "sm_86"),  # 24 B without a bound of one block
        (GemmTile(64, 128, 32, 4, 2, 4, 1, 1), "float32", "sm_90a"),  # 8 B
    ],
    ids=str,
)
def test_nothing_is_spilled_for_the_sake_of_more_blocks(tile: GemmTile, dtype: str, arch: str) -> None:
    assert tile in space.tiles(dtype, load_arch(arch)).legal
    assert compiled(tile, arch, skeleton_dtype(dtype)).resources.spill_bytes == 0


def test_a_broken_rule_would_let_a_tile_through_that_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "NEEDED_BASE", 0)
    tile = GemmTile(64, 256, 64, 2, 2, 2, 1, 1)
    assert tile in space.tiles.__wrapped__("float16", ARCH).legal
    assert compiled(tile).resources.spill_bytes > 0


def test_without_asynchronous_copies_nothing_is_legal_and_the_reason_says_so() -> None:
    found = space.tiles("float16", load_arch("sm_75"))
    assert not found.legal
    assert any("cp.async" in row.why.reason or "asynchronous" in row.why.reason for row in found.rejected)


def test_smaller_shared_memory_leaves_fewer_tiles() -> None:
    large, small = (set(space.tiles("float16", load_arch(name)).legal) for name in ("sm_90a", "sm_86"))
    assert small < large
    assert all(resources.smem_bytes(t, "float16") > load_arch("sm_86").smem_optin_max_bytes for t in large - small)


def test_k_is_split_only_while_sms_would_be_idle_and_every_part_keeps_its_ring_full() -> None:
    device = h200()
    assert {t.split_k for t in space.legal_space(Gemm(8192, 8192, 8192), ARCH, device)} == {1}
    for tile in space.legal_space(Gemm(256, 256, 16384), ARCH, device):
        blocks = -(-256 // tile.bm) * -(-256 // tile.bn)
        assert tile.split_k == 1 or blocks * tile.split_k // 2 < space.SPLIT_BLOCKS_PER_SM * device.sms
        assert tile.split_k == 1 or 16384 // tile.bk // tile.split_k >= tile.stages


def test_the_walk_in_groups_is_offered_where_there_is_a_second_wave() -> None:
    device = h200()
    small = space.legal_space(Gemm(256, 256, 256), ARCH, device)
    assert {t.group_m for t in small} == {1}
    large = space.legal_space(Gemm(8192, 8192, 512), ARCH, device)
    assert {t.group_m for t in large} == {1, *space.GROUPS}
    assert len(large) == len(set(large))
    assert {replace(t, group_m=1) for t in large} == set(space.tiles("float16", ARCH).legal)
