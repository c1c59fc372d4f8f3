"""A whole space of tiles as numpy columns, one row per candidate: the model is evaluated on all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def columns(tiles: Sequence[GemmTile], dtype: str, arch: Arch, registers: Sequence[int] | None = None) -> Columns:
    """The columns of some legal tiles; ``registers`` are the compiled ones, else they are estimated."""
    taken = registers or [resources.registers_estimate(tile, dtype, arch) for tile in tiles]
    fits = [
        occupancy(arch, resources.threads(t, arch), r, resources.smem_bytes(t, dtype)).blocks_per_sm
        for t, r in zip(tiles, taken, strict=True)
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
