"""What differs between the element types of a matrix product: names, the matrix instruction, how fragments are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GemmDType = Literal["fp16", "bf16", "fp32", "int8", "tf32"]


@dataclass(frozen=True)
class Element:
    """One element type.

    Attributes:
        dtype, output_dtype, accumulator_dtype: as sidecars name them.
        mma: the instruction, PTX. mma_k: its depth.
        warp_columns: columns that one read of B's fragments brings.
        fragments, store, b_swizzle: texts.
        pair, to_pair, to_one: two outputs in 32 bits, and how sums become outputs.
        fill: of the inputs, in the sidecar.
    """

    title: str
    includes: str
    element: str
    accumulator: str
    output: str
    dtype: str
    accumulator_dtype: str
    output_dtype: str
    item_bytes: int
    output_item_bytes: int
    mma: str
    mma_k: int
    constraint: str
    warp_columns: int
    fragments: str
    store: str
    b_swizzle: str
    pair: str
    to_pair: str
    to_one: str
    fill: str

    def words(self) -> dict[str, str | int]:
        """What the texts call ``$title``, ``$element`` and so on."""
        names: tuple[str, ...] = ("title", "includes", "element", "accumulator", "output", "mma", "mma_k", "constraint")
        names += ("pair", "to_pair", "to_one")
        found: dict[str, str | int] = {name: getattr(self, name) for name in names}
        return found | {"b_swizzled": "swizzled_b" if self.b_swizzle else "swizzled<B_ROW_BYTES>"}


def _sixteen(name: str, header: str, element: str, ptx: str, dtype: str, to_pair: str, to_one: str) -> Element:
    return Element(
        title=f"Matrix product, {name} in and out, sums in FP32, with mma.sync.",
        includes=f"#include <{header}>",
        element=element,
        accumulator="float",
        output=element,
        dtype=dtype,
        accumulator_dtype="float32",
        output_dtype=dtype,
        item_bytes=2,
        output_item_bytes=2,
        mma=f"mma.sync.aligned.m16n8k16.row.col.f32.{ptx}.{ptx}.f32",
        mma_k=16,
        constraint="f",
        warp_columns=16,
        fragments="gemm_fragments16.cu",
        store="gemm_store16.cu",
        b_swizzle="",
        pair=f"{element}2" if element == "__half" else "__nv_bfloat162",
        to_pair=to_pair,
        to_one=to_one,
        fill="normal(0, 1)",
    )


ELEMENTS: Mapping[GemmDType, Element] = {
    "fp16": _sixteen("FP16", "cuda_fp16.h", "__half", "f16", "float16", "__floats2half2_rn", "__float2half_rn"),
    "bf16": _sixteen(
        "BF16", "cuda_bf16.h", "__nv_bfloat16", "bf16", "bfloat16", "__floats2bfloat162_rn", "__float2bfloat16_rn"
    ),
}
