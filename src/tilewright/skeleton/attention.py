"""Attention, forward: a block keeps its queries and walks the keys in tiles, with mma.sync and an online softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.skeleton.elements import ELEMENTS
from tilewright.skeleton.references import attention_reference
from tilewright.skeleton.sidecars import Array, Scalar, sidecar
from tilewright.skeleton.skeleton import Formula, Skeleton, filled, finished, refusal

ITEM_BYTES = 2
ROWS_OF_A_WARP = 16
THREAD_SUMS_MAX = 192  # output sums and scores of a thread: the rest of the 255 registers holds addresses and fragments


@dataclass(frozen=True)
class AttentionTile:
    """How attention is cut up.

    Attributes:
        bm: queries that a block keeps. bn: keys of a tile.
        warps: of a block; each has its own queries.
        stages: buffers of the ring of keys and values; 1: a tile is waited for.
    """

    bm: int = 128
    bn: int = 64
    warps: int = 8
    stages: int = 2


def attention_smem_bytes(tile: AttentionTile, d: int) -> int:
    """Dynamic shared memory of a block: the queries, and ``stages`` tiles of keys and of values."""
    return (tile.bm + 2 * tile.stages * tile.bn) * d * ITEM_BYTES


def attention_registers(tile: AttentionTile, d: int) -> int:
    """Registers per thread, estimated: output sums, scores, and what fragments and addresses take."""
    return min(_sums(tile, d) + 48, 255)


def why_no_attention(tile: AttentionTile, d: int, arch: Arch) -> str:
    """Why no kernel is made of these parameters; "" where one is."""
    if not arch.has_cp_async:
        return f"{arch.name} has no asynchronous copies and no mma.sync of this shape: sm_80 and later have."
    if min(tile.bm, tile.bn, tile.warps, tile.stages) < 1:
        return "every parameter is 1 or more."
    if tile.bm % (tile.warps * ROWS_OF_A_WARP) or tile.bn % 16:
        return f"a warp keeps whole pieces of {ROWS_OF_A_WARP} queries, and keys come in pieces of 16."
    if d not in (16, 32) and d % 64:
        return f"a head of {d} does not fit the swizzle, which takes 16, 32 and multiples of 64: pad it."
    if tile.warps * arch.warp_size > arch.max_threads_per_block:
        return f"{tile.warps} warps; a block has at most {arch.max_threads_per_block} threads."
    if _sums(tile, d) > THREAD_SUMS_MAX:
        return f"{_sums(tile, d)} sums and scores a thread leave no registers for the rest; {THREAD_SUMS_MAX} do."
    smem = attention_smem_bytes(tile, d)
    if smem > arch.smem_optin_max_bytes:
        return f"{smem:,} bytes of shared memory; a block of {arch.name} gets {arch.smem_optin_max_bytes:,}."
    return ""


def attention_cuda(
    tile: AttentionTile, dtype: Literal["fp16", "bf16"], arch: Arch, *, d: int = 128, causal: bool = False
) -> Skeleton:
    """Attention in CUDA C++ for heads of ``d`` columns.

    Raises:
        TilewrightError: ``skeleton/no_attention`` (exit 4) where `why_no_attention` has a reason.
    """
    why = why_no_attention(tile, d, arch)
    if why:
        raise refusal("no_attention", why, "Take another tile.", dtype=dtype, arch=arch.name)
    element = ELEMENTS[dtype]
    name = f"attention_{dtype}"
    constants = {"BM": tile.bm, "BN": tile.bn, "D": d, "WARPS": tile.warps, "STAGES": tile.stages}
    values: dict[str, str | int] = {key.lower(): value for key, value in constants.items()}
    values |= {"name": name, "causal": "true" if causal else "false", "includes": element.include}
    values |= {"element": element.element, "accumulator": element.accumulator, **element.words}
    values |= {"type_words": dtype.upper()}
    for part in ("swizzle", "async", "ldmatrix", "ldmatrix_trans", "multiply"):
        values[part] = filled(f"{part}.cu", values).rstrip() + "\n"
    grid: Formula = ("ceil_div(N, BM)", "B * H", "1")
    smem = attention_smem_bytes(tile, d)
    return Skeleton(
        text=finished(filled("attention.cu", values)),
        kernel=name,
        sidecar=_sidecar(name, grid, tile, element.dtype, smem, d),
        grid=grid,
        block_threads=tile.warps * arch.warp_size,
        smem_bytes=smem,
        registers_estimate=attention_registers(tile, d),
        constants=constants,
        reference=attention_reference(name, causal),
    )


def _sums(tile: AttentionTile, d: int) -> int:
    return tile.bm * (d + tile.bn) // (tile.warps * 32)


def _sidecar(name: str, grid: Formula, tile: AttentionTile, dtype: str, smem: int, d: int) -> str:
    shape = ("B", "H", "N", "D")
    args: list[Array | Scalar] = [Array(x, dtype, shape, fill="normal(0, 1)") for x in "QKV"]
    args += [Array("O", dtype, shape, "out"), Scalar("N", "N"), Scalar("scale", f"{d**-0.5:.9f}", "float32")]
    sizes = {
        "default": {"B": 1, "H": 32, "N": 8192},
        "small": {"B": 1, "H": 2, "N": 256},
        "ragged": {"B": 2, "H": 1, "N": 201},
    }
    return sidecar(name, grid, tile.warps * 32, smem, sizes, args)
