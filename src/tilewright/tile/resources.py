"""What a GEMM tile takes per block and per thread: shared bytes exactly, registers as an estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.arch.arch import Arch
from tilewright.skeleton.gemm import GemmTile, gemm_smem_bytes
from tilewright.tile.ops import element, skeleton_dtype

# m, n of one matrix instruction; its k is 32 bytes of A: 16 halves, 32 bytes (PTX ISA, mma.sync, m16n8k16 and
# m16n8k32).
MMA_M = 16
MMA_N = 8
MMA_K_BYTES = 32
# ldmatrix.x4 takes four 8x8 matrices: 16 rows of A, or 16 columns of B.
LDMATRIX_N = 16
COPY_BYTES = 16
REGISTER_BYTES = 4
# Fitted to what ptxas (NVRTC 13.5) gave 420 FP16 tiles on sm_90a, every warp grid and both depths among them, and 500
# tiles of all types on sm_80 to sm_120a. The first three separate those that spill from those that do not, without
# letting one through that does; with the others the resident blocks come out as compiled for 96 % of the tiles.
NEEDED_BASE = 45
NEEDED_PER_COPY_B = 1.5
# Fragments as they were read stand beside those that are rounded (TF32), or sorted into bytes (INT8).
NEEDED_PER_STEP = {"tf32": 7, "int8": 7}
NEEDED_BY_NARROW_ROWS = 8  # rows of less than 4-byte vectors pass through registers
FRAGMENT_WEIGHT = 1.2
COPY_A_WEIGHT = 0.5
COPY_B_WEIGHT = 1.5
STEP_WEIGHT = 4
BASE_REGISTERS = 12


@dataclass(frozen=True)
class WarpTile:
    """What one warp computes of the block's tile, in elements of C."""

    m: int
    n: int


def warp_tile(tile: GemmTile) -> WarpTile:
    """The block's tile over its grid of warps; only meaningful where it divides."""
    return WarpTile(tile.bm // tile.warps_m, tile.bn // tile.warps_n)


def threads(tile: GemmTile, arch: Arch) -> int:
    """Threads per block."""
    return tile.warps_m * tile.warps_n * arch.warp_size


def stage_bytes(tile: GemmTile, dtype: str) -> int:
    """Shared bytes of one stage: a tile of A and one of B. Swizzled, so without padding."""
    return (tile.bm + tile.bn) * tile.bk * element(dtype).item_bytes


def smem_bytes(tile: GemmTile, dtype: str) -> int:
    """Shared bytes per block as launched: the ring, or the strips the result leaves through where they are larger."""
    return gemm_smem_bytes(tile, skeleton_dtype(dtype))


def smem_of(tile: GemmTile, dtype: str, stages: int) -> int:
    """The same for another depth of the ring."""
    return smem_bytes(replace(tile, stages=stages), dtype)


def accumulators(tile: GemmTile, arch: Arch) -> int:
    """32-bit sums per thread: they cannot be spilled without losing the point of the tile."""
    part = warp_tile(tile)
    return part.m * part.n // arch.warp_size


def fragments(tile: GemmTile, arch: Arch) -> int:
    """Registers per thread of A's and B's fragments: two sets, one is read while the other is multiplied."""
    part = warp_tile(tile)
    return 2 * (part.m + part.n) * MMA_K_BYTES // REGISTER_BYTES // arch.warp_size


def registers_needed(tile: GemmTile, dtype: str, arch: Arch) -> int:
    """Registers per thread that a tile cannot do without: above the architecture's most, ptxas spills."""
    beside = NEEDED_BASE + NEEDED_PER_COPY_B * _copies(tile.bn, tile, dtype, arch)
    beside += NEEDED_PER_STEP.get(skeleton_dtype(dtype), 0) * _steps(tile, dtype)
    return accumulators(tile, arch) + fragments(tile, arch) + math.ceil(beside)


def registers_estimate(tile: GemmTile, dtype: str, arch: Arch) -> int:
    """Registers per thread as ptxas would give them where it has enough; it decides in the end."""
    figures = (
        accumulators(tile, arch),
        FRAGMENT_WEIGHT * fragments(tile, arch),
        COPY_A_WEIGHT * _copies(tile.bm, tile, dtype, arch),
        COPY_B_WEIGHT * _copies(tile.bn, tile, dtype, arch),
        STEP_WEIGHT * _steps(tile, dtype),
        BASE_REGISTERS,
    )
    return min(math.ceil(sum(figures)), arch.max_registers_per_thread)


def _steps(tile: GemmTile, dtype: str) -> int:
    """Matrix instructions along K in one tile."""
    return tile.bk * element(dtype).item_bytes // MMA_K_BYTES


def _copies(edge: int, tile: GemmTile, dtype: str, arch: Arch) -> float:
    """Copies of 16 bytes per thread for one operand's tile."""
    return edge * tile.bk * element(dtype).item_bytes / COPY_BYTES / threads(tile, arch)
