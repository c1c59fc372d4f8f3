"""2D convolutions as implicit matrix products: the GEMM's ring and compute phase, another load phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.skeleton.elements import ELEMENTS, vector_of
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_registers, gemm_smem_bytes, gemm_text, why_no_gemm
from tilewright.skeleton.references import conv_reference
from tilewright.skeleton.sidecars import Array, Scalar, sidecar
from tilewright.skeleton.skeleton import Formula, Skeleton, refusal

ITEM_BYTES = 2
EXTENT_MAX = 1 << 14  # rows and columns of an image travel in 16 bits, with a sign
PLACE_MAX = (1 << 15) - 1
PIXEL_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class ConvShape:
    """What of a convolution is compiled in: ``r`` x ``s`` taps, stride and padding the same both ways."""

    r: int
    s: int
    stride: int = 1
    pad: int = 0


def conv_vectors(c: int, filters: int) -> Vectors:
    """The widest that pixels of ``c`` channels and output pixels of ``filters`` allow."""
    width = vector_of(c, ITEM_BYTES)
    return Vectors(width, width, vector_of(filters, ITEM_BYTES))


def why_no_conv(tile: GemmTile, shape: ConvShape, dtype: Literal["fp16", "bf16"], arch: Arch) -> str:
    """Why no kernel is made of these parameters; "" where one is."""
    if min(shape.r, shape.s, shape.stride) < 1 or shape.pad < 0 or max(shape.r, shape.s, shape.pad) > EXTENT_MAX:
        return "taps and stride are 1 or more, padding 0 or more."
    if tile.split_k != 1:
        return "K is not split: take smaller tiles."
    return why_no_gemm(tile, dtype, arch)


def why_no_image(images: int, h: int, w: int, shape: ConvShape) -> str:
    """Why the kernel stops at these extents (it traps rather than count wrong); "" where it does not."""
    if h > PLACE_MAX - shape.r or w > PLACE_MAX - shape.s:
        return f"an image of {h} x {w} pixels; the kernel counts rows and columns up to {PLACE_MAX}, taps included."
    if images * h * w > PIXEL_MAX:
        return f"{images * h * w:,} pixels; the kernel counts up to {PIXEL_MAX:,}."
    return ""


def conv_cuda(
    tile: GemmTile,
    shape: ConvShape,
    dtype: Literal["fp16", "bf16"],
    arch: Arch,
    *,
    vectors: Vectors | None = None,
) -> Skeleton:
    """A convolution in CUDA C++: X[images, H, W, C] and F[filters, R, S, C] to Y[images, P, Q, filters].

    Args:
        vectors: what channels and filters allow (`conv_vectors`); 16 bytes by default. The kernel traps where they do
            not fit.

    Raises:
        TilewrightError: ``skeleton/no_conv`` (exit 4) where `why_no_conv` has a reason.
    """
    why = why_no_conv(tile, shape, dtype, arch)
    if why:
        raise refusal("no_conv", why, "Take other parameters.", dtype=dtype, arch=arch.name)
    vectors = vectors or Vectors.full(dtype)
    name = f"conv_{dtype}"
    taps = {"r": shape.r, "s": shape.s, "stride": shape.stride, "pad": shape.pad}
    text, constants = gemm_text(name, dtype, tile, vectors, "conv", {**taps, "type_words": dtype.upper()})
    constants = {**constants, **{key.upper(): value for key, value in taps.items()}}
    pixels = "NB * ((H + 2 * PAD - R) // STRIDE + 1) * ((W + 2 * PAD - S) // STRIDE + 1)"
    grid: Formula = (f"ceil_div({pixels}, BM) * ceil_div(KF, BN)", "1", "1")
    smem = gemm_smem_bytes(tile, dtype)
    return Skeleton(
        text=text,
        kernel=name,
        sidecar=_sidecar(name, grid, tile, ELEMENTS[dtype].dtype, smem, vectors),
        grid=grid,
        block_threads=tile.threads,
        smem_bytes=smem,
        registers_estimate=gemm_registers(tile),
        constants=constants,
        reference=conv_reference(name, shape.stride, shape.pad),
    )


def _sidecar(name: str, grid: Formula, tile: GemmTile, dtype: str, smem: int, vectors: Vectors) -> str:
    p, q = "(H + 2 * PAD - R) // STRIDE + 1", "(W + 2 * PAD - S) // STRIDE + 1"
    args: list[Array | Scalar] = [
        Array("X", dtype, ("NB", "H", "W", "C"), fill="normal(0, 1)"),
        Array("F", dtype, ("KF", "R", "S", "C"), fill="normal(0, 1)"),
        Array("Y", dtype, ("NB", p, q, "KF"), "out"),
        *(Scalar(c_name, size) for c_name, size in (("images", "NB"), ("H", "H"), ("W", "W"), ("C", "C"))),
        Scalar("filters", "KF"),
    ]
    sizes = {
        "default": {"NB": 32, "H": 56, "W": 56, "C": 64, "KF": 64},
        "small": {"NB": 1, "H": 16, "W": 16, "C": 32, "KF": 32},
        "ragged": {"NB": 2, "H": 13, "W": 11, "C": 3 * vectors.a, "KF": 5 * vectors.c},
    }
    note = f"C: multiples of {vectors.a}; KF: of {vectors.c}"
    return sidecar(name, grid, tile.threads, smem, sizes, args, note)
