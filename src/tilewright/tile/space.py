"""The legal space of GEMM tiles: what can be built and launched at all, and for the rest the reason why not.

Two steps. `tiles` walks the axes below and keeps what compiles and fits a block on an SM; no shape is part of it.
`legal_space` then adds, for one op on one card, the ways to share out the work: split-K where the blocks would not fill
the card, and the rasterisation order where there is more than one row of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.arch.occupancy import occupancy
from tilewright.skeleton.gemm import GemmTile, Vectors, why_no_gemm
from tilewright.tile import resources
from tilewright.tile.ops import Gemm, element, skeleton_dtype

TILE_EDGES = (32, 64, 128, 256)
K_BYTES = (64, 128)  # bytes of a row of A's tile: half a cache line or a whole one
WARP_GRIDS = ((2, 2), (1, 4), (4, 1), (2, 4), (4, 2))
STAGES = (2, 3, 4, 5)
SPLITS = (2, 4, 8, 16, 32)
GROUPS = (8,)
# Splitting pays only while SMs would be idle: more blocks than this per SM are never split further.
SPLIT_BLOCKS_PER_SM = 2


@dataclass(frozen=True)
class Rejection:
    """Why a tile is not legal: a stable code, and the sentence with what it needs and what there is."""

    code: str
    reason: str


@dataclass(frozen=True)
class Rejected:
    """A tile of the axes that is not legal."""

    tile: GemmTile
    why: Rejection


@dataclass(frozen=True)
class Space:
    """The axes, sorted into what is legal and what is not."""

    legal: tuple[GemmTile, ...]
    rejected: tuple[Rejected, ...]


@lru_cache(maxsize=32)
def tiles(dtype: str, arch: Arch) -> Space:
    """Every tile of the axes without split-K, in the order of the axes."""
    legal: list[GemmTile] = []
    rejected: list[Rejected] = []
    for tile in _axes(dtype):
        why = rejection(tile, dtype, arch)
        if why is None:
            legal.append(tile)
        else:
            rejected.append(Rejected(tile, why))
    return Space(tuple(legal), tuple(rejected))


def legal_space(op: Gemm, arch: Arch, device: Device) -> tuple[GemmTile, ...]:
    """What may be built for an op on a card, ways to share out the work included."""
    vectors = Vectors.of(op.n, op.k, skeleton_dtype(op.dtype))
    most = arch.max_registers_per_thread - (resources.NEEDED_BY_NARROW_ROWS if 1 in (vectors.a, vectors.b) else 0)
    legal = (t for t in tiles(op.dtype, arch).legal if resources.registers_needed(t, op.dtype, arch) <= most)
    return tuple(spread for tile in legal for spread in spreads(tile, op, device))


def spreads(tile: GemmTile, op: Gemm, device: Device) -> Iterator[GemmTile]:
    """A tile with every rasterisation order and split of K that makes a difference for the op."""
    rows, columns = -(-op.m // tile.bm), -(-op.n // tile.bn)
    steps = -(-op.k // tile.bk)
    blocks = rows * columns * op.batch
    yield _spread(tile, 1, 1)
    # Side by side in one wave, blocks meet in L2 in any order.
    if rows > 1 and columns > 1 and blocks > device.sms:
        for group in GROUPS:
            yield _spread(tile, 1, group)
    for split in SPLITS:
        # Every part needs at least as many steps as the ring has stages, or it never leaves its prologue.
        idle = blocks * split // 2 < SPLIT_BLOCKS_PER_SM * device.sms
        if op.batch == 1 and idle and steps // split >= tile.stages:
            yield _spread(tile, split, 1)


@lru_cache(maxsize=8192)
def _spread(tile: GemmTile, split_k: int, group_m: int) -> GemmTile:
    return replace(tile, split_k=split_k, group_m=group_m)


def rejection(tile: GemmTile, dtype: str, arch: Arch) -> Rejection | None:
    """Why a tile cannot be built or launched, or None."""
    why = _not_divided(tile, dtype) or _too_large(tile, dtype, arch)
    if why is None and (unbuilt := why_no_gemm(tile, skeleton_dtype(dtype), arch)):
        return Rejection("skeleton", unbuilt if unbuilt.startswith(arch.name) else unbuilt[0].upper() + unbuilt[1:])
    return why


def _not_divided(tile: GemmTile, dtype: str) -> Rejection | None:
    item_bytes = element(dtype).item_bytes
    if tile.bm % (tile.warps_m * resources.MMA_M):
        rows = resources.MMA_M * tile.warps_m
        return Rejection("warp_m", f"{tile.warps_m} rows of warps need a multiple of {rows} rows, have {tile.bm}.")
    if tile.bn % (tile.warps_n * resources.LDMATRIX_N):
        columns = resources.LDMATRIX_N * tile.warps_n
        return Rejection(
            "warp_n", f"{tile.warps_n} columns of warps need a multiple of {columns} columns, have {tile.bn}."
        )
    if tile.bk * item_bytes % resources.MMA_K_BYTES:
        return Rejection("mma_k", f"A matrix instruction takes 32 bytes of K; {tile.bk} {dtype} are no multiple.")
    steps = tile.bk * item_bytes // resources.MMA_K_BYTES
    if steps % 2:
        return Rejection("fragments", f"Fragments alternate between two sets of registers; {steps} steps are odd.")
    return None


def _too_large(tile: GemmTile, dtype: str, arch: Arch) -> Rejection | None:
    if tile.stages > 2 and not arch.has_cp_async:
        return Rejection("needs_arch", f"More than 2 stages need cp.async, which {arch.name} lacks.")
    count = resources.threads(tile, arch)
    if count > arch.max_threads_per_block:
        return Rejection("threads", f"{count} threads per block; {arch.max_threads_per_block} is the most.")
    smem = resources.smem_bytes(tile, dtype)
    if smem > arch.smem_optin_max_bytes:
        return Rejection(
            "smem", f"{smem} B of shared memory per block; {arch.smem_optin_max_bytes} B is the most, opted in."
        )
    needed = resources.registers_needed(tile, dtype, arch)
    if needed > arch.max_registers_per_thread:
        return Rejection(
            "registers",
            f"It needs about {needed} registers per thread; beyond {arch.max_registers_per_thread} it spills.",
        )
    registers = resources.registers_estimate(tile, dtype, arch)
    if occupancy(arch, count, registers, smem).blocks_per_sm < 1:
        return Rejection("register_file", f"{count} threads of about {registers} registers do not fit on one SM.")
    return None


def _axes(dtype: str) -> Iterator[GemmTile]:
    item_bytes = element(dtype).item_bytes
    for bm in TILE_EDGES:
        for bn in TILE_EDGES:
            for k_bytes in K_BYTES:
                for warps_m, warps_n in WARP_GRIDS:
                    for stages in STAGES:
                        yield GemmTile(bm, bn, k_bytes // item_bytes, warps_m, warps_n, stages, 1, 1)
