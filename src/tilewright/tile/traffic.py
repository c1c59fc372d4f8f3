"""What the rasterisation order costs: bytes that blocks ask of L2, and bytes that L2 has to fetch from DRAM.

A wave's blocks run side by side. With groups of ``group_m`` rows of tiles walked column by column, a wave covers a
patch of ``rows`` by ``columns`` tiles, and fetches that many rows of A and columns of B once. What an earlier wave left
in L2 is found there as far as L2 holds it. All arguments may be numpy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.tile.columns import Columns, Numbers
from tilewright.tile.ops import Gemm, element


@dataclass(frozen=True)
class Traffic:
    """Bytes of one launch: ``l2_bytes`` asked of L2 by all blocks; ``dram_bytes`` fetched for inputs, and written.

    ``first_wave_bytes`` of those move while the first blocks run, which find nothing in L2.
    """

    l2_bytes: Numbers
    dram_bytes: Numbers
    first_wave_bytes: Numbers


def traffic(op: Gemm, columns: Columns, resident: Numbers, l2_usable_bytes: float) -> Traffic:
    """L2 and DRAM bytes of every candidate.

    Args:
        resident: blocks that run at once on the card.
        l2_usable_bytes: of L2, for inputs that a later wave reads again.
    """
    item_bytes, out_bytes = element(op.dtype).item_bytes, element(op.out_dtype).item_bytes
    rows, cols = np.ceil(op.m / columns.bm), np.ceil(op.n / columns.bn)
    tiles = rows * cols
    inputs = op.batch * (op.m * op.k + op.k * op.n) * item_bytes
    output = op.batch * op.m * op.n * out_bytes
    asked = op.batch * tiles * (columns.bm + columns.bn) * op.k * item_bytes

    wave = np.minimum(tiles, np.maximum(resident / columns.split_k, 1.0))
    height = np.minimum(columns.group_m, rows)
    width = np.minimum(np.ceil(wave / height), cols)
    patch_rows = np.minimum(np.ceil(wave / (height * cols)) * height, rows)
    waves = np.maximum(tiles / wave, 1.0)
    per_wave = (np.minimum(patch_rows * columns.bm, op.m) + np.minimum(width * columns.bn, op.n)) * op.k * item_bytes
    fetched = np.minimum(op.batch * waves * per_wave, asked)
    one_matrix = inputs / op.batch
    kept = np.minimum(1.0, l2_usable_bytes / one_matrix)
    again = np.maximum(fetched - inputs, 0.0) * (1.0 - kept)
    matrices = np.minimum(np.maximum(resident / columns.split_k / tiles, 1.0), op.batch)
    first = np.minimum(matrices * per_wave, inputs) + output * np.minimum(
        resident / (op.batch * tiles * columns.split_k), 1
    )
    return Traffic(l2_bytes=asked, dram_bytes=inputs + again + output, first_wave_bytes=first)
