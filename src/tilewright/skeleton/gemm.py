"""Matrix products with mma.sync: C = A * B, row-major, batched, split along K or persistent where asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.skeleton.elements import ELEMENTS, Element, GemmDType, vector_of
from tilewright.skeleton.references import gemm_reference
from tilewright.skeleton.sidecars import Array, Scalar, sidecar
from tilewright.skeleton.skeleton import Formula, Pass, Skeleton, filled, finished, refusal

Form = Literal["plain", "persistent", "split", "conv"]

REDUCE_THREADS = 256
WARP_SUMS_MAX = 128  # of a thread: with the fragments and addresses, more spill from the 255 registers
SIZES = {"default": (4096, 4096, 4096), "small": (512, 512, 512)}


@dataclass(frozen=True)
class GemmTile:
    """How a matrix product is cut up.

    Attributes:
        bm, bn: rows and columns of C that one block makes.
        bk: depth of a tile.
        warps_m, warps_n: warps of a block, down and across its tile.
        stages: buffers of the ring.
        split_k: blocks that share the K-loop of one tile; 1: none.
        group_m: row blocks that are walked together, column by column, for their reuse in L2.
    """

    bm: int
    bn: int
    bk: int
    warps_m: int
    warps_n: int
    stages: int
    split_k: int = 1
    group_m: int = 8

    @property
    def threads(self) -> int:
        return self.warps_m * self.warps_n * 32


@dataclass(frozen=True)
class Vectors:
    """Elements that are read or written at once: of a row of A (along K), of B and of C (along N). 1 fits any shape."""

    a: int
    b: int
    c: int

    @staticmethod
    def of(n: int, k: int, dtype: GemmDType) -> Vectors:
        """The widest that rows of ``k`` (A) and ``n`` (B, C) elements allow, with buffers that are 16-byte aligned."""
        element = ELEMENTS[dtype]
        return Vectors(
            _widest(k, element.item_bytes), _widest(n, element.item_bytes), _widest(n, element.output_item_bytes)
        )

    @staticmethod
    def full(dtype: GemmDType) -> Vectors:
        """16 bytes each."""
        element = ELEMENTS[dtype]
        return Vectors(16 // element.item_bytes, 16 // element.item_bytes, 16 // element.output_item_bytes)


def why_no_gemm(tile: GemmTile, dtype: GemmDType, arch: Arch) -> str:
    """Why no kernel is made of these parameters, one sentence; "" where one is."""
    element = ELEMENTS[dtype]
    if not arch.has_cp_async:
        return f"{arch.name} has no asynchronous copies and no mma.sync of this shape: sm_80 and later have."
    if min(tile.bm, tile.bn, tile.bk, tile.warps_m, tile.warps_n, tile.split_k, tile.group_m) < 1 or tile.stages < 2:
        return "every parameter is 1 or more, stages 2 or more."
    if tile.bm % (element.warp_rows * tile.warps_m) or tile.bn % (element.warp_columns * tile.warps_n):
        piece = f"{element.warp_rows} x {element.warp_columns}"
        return f"a warp makes whole pieces of {piece}, and this tile does not divide into them."
    if tile.bk % element.k_step:
        return f"bk = {tile.bk} is no multiple of {element.k_step}."
    for name, count in (("bk", tile.bk), ("bn", tile.bn)):
        row_bytes = count * element.item_bytes
        if row_bytes not in (32, 64) and row_bytes % 128:
            return f"{name} = {count} makes rows of {row_bytes} bytes; the swizzle takes 32, 64 and multiples of 128."
        if tile.threads % (row_bytes // 16):
            return (
                f"{tile.threads} threads do not copy whole rows of {row_bytes} bytes, 16 bytes each ({name} = {count})."
            )
    if tile.threads > arch.max_threads_per_block:
        return f"{tile.threads} threads; a block has at most {arch.max_threads_per_block}."
    sums = _sums(tile)
    if sums > WARP_SUMS_MAX:
        return f"{sums} sums a thread leave no registers for the rest; {WARP_SUMS_MAX} do."
    smem = gemm_smem_bytes(tile, dtype)
    if smem > arch.smem_optin_max_bytes:
        return f"{smem:,} bytes of shared memory; a block of {arch.name} gets {arch.smem_optin_max_bytes:,}."
    return ""


def gemm_smem_bytes(tile: GemmTile, dtype: GemmDType) -> int:
    """Dynamic shared memory of a block: the ring; at the end, the strips that the result leaves through."""
    element = ELEMENTS[dtype]
    ring = tile.stages * (tile.bm * tile.bk + tile.bk * tile.bn) * element.item_bytes
    strips = tile.warps_m * 16 * tile.bn * 2 if element.output_item_bytes == 2 and tile.split_k == 1 else 0
    return max(ring, strips)


def gemm_registers(tile: GemmTile) -> int:
    """Registers per thread, estimated: the sums, two sets of fragments, and what addresses and counters take."""
    fragments = 2 * (tile.bm // tile.warps_m // 16 * 4 + tile.bn // tile.warps_n // 8 * 2)
    return min(_sums(tile) + fragments + 44, 255)


def gemm_cuda(
    tile: GemmTile,
    dtype: GemmDType,
    arch: Arch,
    *,
    vectors: Vectors | None = None,
    mode: Literal["plain", "persistent"] = "plain",
    persistent_blocks: int = 0,
) -> Skeleton:
    """A matrix product in CUDA C++.

    Args:
        vectors: what the rows allow (`Vectors.of`); 16 bytes by default. The kernel traps where they do not fit.
        mode: one block per tile, or a fixed number of blocks that share the tiles among them.
        persistent_blocks: of the latter: SMs times blocks per SM.

    Raises:
        TilewrightError: ``skeleton/no_gemm`` (exit 4) where `why_no_gemm` has a reason.
    """
    why = why_no_gemm(tile, dtype, arch)
    if not why and mode == "persistent" and (tile.split_k > 1 or persistent_blocks < 1):
        why = "a persistent kernel needs its number of blocks, and does not split K."
    if why:
        raise refusal("no_gemm", why, "Take another tile.", dtype=dtype, arch=arch.name)
    element = ELEMENTS[dtype]
    vectors = vectors or Vectors.full(dtype)
    name = f"gemm_{dtype}"
    text, constants = gemm_text(name, dtype, tile, vectors, "split" if tile.split_k > 1 else mode)
    tiles = "ceil_div(M, BM) * ceil_div(N, BN)"
    depth = "BATCH" if tile.split_k == 1 else "BATCH * SPLIT_K"
    grid = (tiles if mode == "plain" else str(persistent_blocks), "1", depth)
    smem = gemm_smem_bytes(tile, dtype)
    return Skeleton(
        text=text,
        kernel=name,
        sidecar=_sidecar(name, grid, tile, element, vectors, smem),
        grid=grid,
        block_threads=tile.threads,
        smem_bytes=smem,
        registers_estimate=gemm_registers(tile),
        constants=constants,
        second=_second(name, element, vectors) if tile.split_k > 1 else None,
        reference=gemm_reference(name) if tile.split_k == 1 else "",
    )


def _widest(count: int, item_bytes: int) -> int:
    """As `vector_of`; 1 where it is less than the 4 bytes of the narrowest asynchronous copy."""
    width = vector_of(count, item_bytes)
    return width if width * item_bytes >= 4 else 1


def _sums(tile: GemmTile) -> int:
    return tile.bm * tile.bn // tile.threads


def gemm_text(
    name: str,
    dtype: GemmDType,
    tile: GemmTile,
    vectors: Vectors,
    form: Form,
    extra: Mapping[str, str | int] | None = None,
) -> tuple[str, dict[str, int]]:
    """The source, and what stands at its top.

    Args:
        form: which load phase and kernel: a product's, or a convolution's (then ``extra`` holds its taps).
    """
    element = ELEMENTS[dtype]
    constants = {name.upper(): value for name, value in asdict(tile).items()}
    constants |= {f"VEC_{operand.upper()}": value for operand, value in asdict(vectors).items()}
    is_conv = form == "conv"
    values: dict[str, str | int] = {key.lower(): value for key, value in constants.items()}
    values |= {"name": name, "title": element.title, "includes": element.include, "to_one": element.to_one}
    values |= {"element": element.element, "accumulator": element.accumulator, "output": element.output}
    values |= {"piece": element.piece, "piece_value": element.piece_value, "bounds": element.bounds}
    values |= {**element.words, **(extra or {})}
    values |= {"sums_shape": "[MT][NT][4]" if element.kind == "mma" else "[TM][TN / 4][4]"}
    values |= {"b_row": "BK" if is_conv else "BN"}
    values |= {"b_swizzled": "swizzled_b" if element.b_swizzle else "swizzled<B_ROW_BYTES>"}
    through_strips = element.output_item_bytes == 2 and form != "split"
    values["store_call"] = "store(sums, smem," if through_strips else "store_sums(sums,"
    parts = {
        "b_swizzle": element.b_swizzle,
        "shape_constants": f"gemm_{element.kind}_constants.cu",
        "helpers": "" if is_conv else element.helpers,
        "load_b": "gemm_bt16.cu" if is_conv else element.load_b,
        "swizzle": "swizzle.cu",
        "async": "async.cu",
        "copy_chunk": "copy_chunk.cu",
        "head": "conv_head.cu" if is_conv else "gemm_head.cu",
        "kernel": "conv_kernel.cu" if is_conv else f"gemm_kernel_{form}.cu",
        "loader": "conv_loader.cu" if is_conv else "gemm_loader.cu",
    }
    if element.kind == "mma":
        parts |= {"ldmatrix": "ldmatrix.cu", "multiply": "multiply.cu"}
    for part, file in parts.items():
        values[part] = filled(file, values) if file else ""
        if part not in ("helpers", "load_b", "b_swizzle"):
            values[part] = str(values[part]).rstrip()
    values["store"] = _store(element, values, through_strips).rstrip()
    values["compute"] = filled(f"gemm_{element.kind}.cu", values).rstrip()
    return finished(filled("gemm.cu", values)), constants


def _store(element: Element, values: Mapping[str, str | int], through_strips: bool) -> str:
    if through_strips:
        return filled("gemm_store_chunk.cu", values) + "\n" + filled("gemm_store16.cu", values)
    sums = "gemm_store32.cu" if element.kind == "mma" else "gemm_simt_store.cu"
    return filled("gemm_store_vector.cu", values) + filled(sums, values)


def _sizes(vectors: Vectors) -> dict[str, dict[str, int]]:
    """Size sets; the ragged one is no multiple of anything but the vectors."""
    sizes = {name: {"M": m, "N": n, "K": k, "BATCH": 1} for name, (m, n, k) in SIZES.items()}
    along_n = max(vectors.b, vectors.c)
    sizes["ragged"] = {"M": 203, "N": 17 * along_n, "K": 9 * vectors.a, "BATCH": 2}
    return sizes


def _sidecar(name: str, grid: Formula, tile: GemmTile, element: Element, vectors: Vectors, smem: int) -> str:
    out = (
        Array("C", element.output_dtype, ("BATCH", "M", "N"), "out")
        if tile.split_k == 1
        else Array("W", element.accumulator_dtype, ("SPLIT_K", "BATCH", "M", "N"), "out")
    )
    args: list[Array | Scalar] = [
        Array("A", element.dtype, ("BATCH", "M", "K"), fill=element.fill),
        Array("B", element.dtype, ("BATCH", "K", "N"), fill=element.fill),
        out,
        *(Scalar(size, size) for size in ("M", "N", "K")),
    ]
    note = f"K: multiples of {vectors.a}; N: of {max(vectors.b, vectors.c)}"
    return sidecar(name, grid, tile.threads, smem, _sizes(vectors), args, note)


def _second(name: str, element: Element, vectors: Vectors) -> Pass:
    grid = (f"ceil_div(BATCH * M * N, {REDUCE_THREADS})", "1", "1")
    args: list[Array | Scalar] = [
        Array("W", element.accumulator_dtype, ("SPLIT_K", "BATCH", "M", "N"), fill=element.fill),
        Array("C", element.output_dtype, ("BATCH", "M", "N"), "out"),
        Scalar("count", "BATCH * M * N", "int64"),
    ]
    kernel = f"{name}_reduce"
    text = sidecar(kernel, grid, REDUCE_THREADS, 0, _sizes(vectors), args)
    return Pass(kernel, grid, REDUCE_THREADS, 0, text)
