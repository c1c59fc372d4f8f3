"""What differs between the element types of a matrix product: names, the instruction, how fragments are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FloatDType = Literal["fp16", "bf16", "fp32"]
GemmDType = Literal["fp16", "bf16", "fp32", "int8", "tf32"]
Kind = Literal["mma", "simt"]


@dataclass(frozen=True)
class FloatElement:
    """An element type of what memory decides: computed in FP32, read and written as this."""

    include: str
    element: str
    dtype: str
    item_bytes: int


FLOATS: Mapping[FloatDType, FloatElement] = {
    "fp16": FloatElement("#include <cuda_fp16.h>", "__half", "float16", 2),
    "bf16": FloatElement("#include <cuda_bf16.h>", "__nv_bfloat16", "bfloat16", 2),
    "fp32": FloatElement("", "float", "float32", 4),
}


def vector_of(count: int, item_bytes: int) -> int:
    """Elements of the widest vector, at most 16 bytes, that divides a row of ``count``: every row begins aligned."""
    width = 16 // item_bytes
    while count % width:
        width //= 2
    return width


@dataclass(frozen=True)
class Element:
    """One element type.

    Attributes:
        title: for the head of the file.
        include: the header that it needs, or "".
        element, accumulator, output: as C++ types.
        dtype, accumulator_dtype, output_dtype: as sidecars name them.
        item_bytes, output_item_bytes: of an input and of an output.
        kind: matrix instructions, or fused multiply-adds of single threads.
        k_step: what bk is a multiple of: two steps of the matrix instruction.
        warp_rows, warp_columns: the smallest piece that a warp makes.
        words: what else the texts ask for: ``mma``, ``mma_k``, ``constraint``, ``piece``, ``to_pair``, …
        load_b, helpers, b_swizzle: texts.
        fill: of the inputs, in the sidecar.
        bounds: of the launch. Left alone, ptxas aims at more resident blocks and spills a little for it, of INT8 and
            TF32; told that one block is enough, it does not.
    """

    title: str
    include: str
    element: str
    accumulator: str
    output: str
    dtype: str
    accumulator_dtype: str
    output_dtype: str
    item_bytes: int
    output_item_bytes: int
    k_step: int
    words: Mapping[str, str | int]
    kind: Kind = "mma"
    warp_rows: int = 16
    warp_columns: int = 16
    load_b: str = ""
    helpers: str = ""
    b_swizzle: str = ""
    fill: str = "normal(0, 1)"
    bounds: str = "THREADS"
    piece: int = 2
    piece_value: str = "sums[m][n][half * 2 + i]"
    to_one: str = field(default="")


def _sixteen(name: str, header: str, element: str, ptx: str, dtype: str, words: tuple[str, str, str]) -> Element:
    pair, to_pair, to_one = words
    return Element(
        title=f"Matrix product, {name} in and out, sums in FP32, with mma.sync.",
        include=f"#include <{header}>",
        element=element,
        accumulator="float",
        output=element,
        dtype=dtype,
        accumulator_dtype="float32",
        output_dtype=dtype,
        item_bytes=2,
        output_item_bytes=2,
        k_step=32,
        words={
            "mma": f"mma.sync.aligned.m16n8k16.row.col.f32.{ptx}.{ptx}.f32",
            "mma_k": 16,
            "constraint": "f",
            "pair": pair,
            "to_pair": to_pair,
        },
        load_b="gemm_b16.cu",
        helpers="ldmatrix_trans.cu",
        to_one=to_one,
    )


_FP16 = ("__half2", "__floats2half2_rn", "__float2half_rn")
_BF16 = ("__nv_bfloat162", "__floats2bfloat162_rn", "__float2bfloat16_rn")

_INT8 = Element(
    title="Matrix product, INT8 in, INT32 sums and out, with mma.sync.",
    include="",
    element="signed char",
    accumulator="int",
    output="int",
    dtype="int8",
    accumulator_dtype="int32",
    output_dtype="int32",
    item_bytes=1,
    output_item_bytes=4,
    k_step=64,
    words={"mma": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "mma_k": 32, "constraint": "r"},
    load_b="gemm_b8.cu",
    helpers="ldmatrix_trans.cu",
    b_swizzle="gemm_swizzle8.cu",
    fill="randint(-20, 20)",
    bounds="THREADS, 1",
    piece=4,
    piece_value="sums[m][n + i % 2][half * 2 + i / 2]",
)

_TF32 = Element(
    title="Matrix product, FP32 in and out, multiplied as TF32, sums in FP32, with mma.sync.",
    include="",
    element="float",
    accumulator="float",
    output="float",
    dtype="float32",
    accumulator_dtype="float32",
    output_dtype="float32",
    item_bytes=4,
    output_item_bytes=4,
    k_step=16,
    words={"mma": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "mma_k": 8, "constraint": "f"},
    load_b="gemm_b32.cu",
    helpers="gemm_round32.cu",
    b_swizzle="gemm_swizzle32.cu",
    bounds="THREADS, 1",
)

_FP32 = Element(
    title="Matrix product in FP32, with fused multiply-adds.",
    include="",
    element="float",
    accumulator="float",
    output="float",
    dtype="float32",
    accumulator_dtype="float32",
    output_dtype="float32",
    item_bytes=4,
    output_item_bytes=4,
    k_step=4,
    words={},
    kind="simt",
    warp_rows=4,
    warp_columns=32,
)

ELEMENTS: Mapping[GemmDType, Element] = {
    "fp16": _sixteen("FP16", "cuda_fp16.h", "__half", "f16", "float16", _FP16),
    "bf16": _sixteen("BF16", "cuda_bf16.h", "__nv_bfloat16", "bf16", "bfloat16", _BF16),
    "fp32": _FP32,
    "int8": _INT8,
    "tf32": _TF32,
}
