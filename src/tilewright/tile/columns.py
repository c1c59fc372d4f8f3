"""A whole space of tiles as numpy columns, one row per candidate: the model is evaluated on all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilewright.arch.arch import Arch
from tilewright.arch.occupancy import occupancy
from tilewright.skeleton.gemm import GemmTile
from tilewright.tile import resources

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Float64 columns.

    Attributes:
        bm, bn, bk: the block's tile, elements.
        wm, wn: the warp's tile, elements.
        warps: per block.
        fit: blocks that fit on an SM by shared memory, registers and warps; at least 1.
        registers: per thread, estimated or compiled.
    """

    bm: Numbers
    bn: Numbers
    bk: Numbers
    wm: Numbers
    wn: Numbers
    warps: Numbers
    stages: Numbers
    split_k: Numbers
    group_m: Numbers
    fit: Numbers
    registers: Numbers


@lru_cache(maxsize=4096)
def _takes(tile: GemmTile, dtype: str, arch: Arch) -> tuple[int, int]:
    """(registers per thread, estimated; blocks per SM)."""
    registers = resources.registers_estimate(tile, dtype, arch)
    return registers, _fit(tile, dtype, arch, registers)


def _fit(tile: GemmTile, dtype: str, arch: Arch, registers: int) -> int:
    return occupancy(arch, resources.threads(tile, arch), registers, resources.smem_bytes(tile, dtype)).blocks_per_sm


def columns(tiles: Sequence[GemmTile], dtype: str, arch: Arch, registers: Sequence[int] | None = None) -> Columns:
    """The columns of some legal tiles; ``registers`` are the compiled ones, else they are estimated."""
    # Neither depends on how the work is shared out, but for a split, whose sums leave without strips.
    shapes = [GemmTile(t.bm, t.bn, t.bk, t.warps_m, t.warps_n, t.stages, min(t.split_k, 2), group_m=1) for t in tiles]
    taken = registers or [_takes(shape, dtype, arch)[0] for shape in shapes]
    fits = [
        _fit(shape, dtype, arch, r) if registers else _takes(shape, dtype, arch)[1]
        for shape, r in zip(shapes, taken, strict=True)
    ]
    table = np.array(
        [[t.bm, t.bn, t.bk, t.warps_m, t.warps_n, t.stages, t.split_k, t.group_m] for t in tiles], dtype=np.float64
    ).reshape(len(tiles), 8)
    bm, bn, bk, warps_m, warps_n, stages, split_k, group_m = table.T
    return Columns(
        bm=bm,
        bn=bn,
        bk=bk,
        wm=bm / warps_m,
        wn=bn / warps_n,
        warps=warps_m * warps_n,
        stages=stages,
        split_k=split_k,
        group_m=group_m,
        fit=np.maximum(np.array(fits, dtype=np.float64), 1.0),
        registers=np.array(taken, dtype=np.float64),
    )
