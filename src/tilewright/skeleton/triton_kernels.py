"""Skeletons in Triton: text and sidecar; Triton itself is not imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.skeleton.elements import ELEMENTS, FLOATS, FloatDType, GemmDType
from tilewright.skeleton.elementwise import NAMES
from tilewright.skeleton.references import attention_reference, gemm_reference, rows_reference, sum_reference
from tilewright.skeleton.rows import RowOp
from tilewright.skeleton.sidecars import Array, Scalar, triton_sidecar
from tilewright.skeleton.skeleton import Formula, filled, finished, refusal

WARPS = (1, 2, 4, 8, 16, 32)
DOT_LEAST = 16  # tl.dot takes no smaller extent


@dataclass(frozen=True)
class TritonSkeleton:
    """A Triton kernel with everything that it takes to compile, launch and verify it.

    Attributes:
        text: a Python file; its ``META`` are the launch's keyword arguments.
        kernel: the ``@triton.jit`` function.
        sidecar: TOML text.
        grid: programs in x, y and z, in the sidecar's expressions.
        constants: of the kernel's ``tl.constexpr`` parameters.
        reference: a Python file with ``reference(**inputs)`` in float64; "" for an expression that the caller gave.
    """

    text: str
    kernel: str
    sidecar: str
    grid: Formula
    constants: Mapping[str, int]
    num_warps: int
    num_stages: int
    reference: str = ""


def gemm_triton(
    dtype: GemmDType, *, bm: int = 128, bn: int = 128, bk: int = 32, group_m: int = 8, warps: int = 4, stages: int = 3
) -> TritonSkeleton:
    """A matrix product, batched; FP32 as it is, or as TF32.

    Raises:
        TilewrightError: ``skeleton/no_triton`` (exit 4): an extent that Triton does not take.
    """
    _check(warps, {"bm": bm, "bn": bn, "bk": bk}, DOT_LEAST)
    element = ELEMENTS[dtype]
    precision = {"tf32": 'input_precision="tf32"', "fp32": 'input_precision="ieee"', "int8": "out_dtype=tl.int32"}
    options = precision.get(dtype, "out_dtype=tl.float32")
    constants = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group_m}
    words: dict[str, str | int] = {
        "bm": bm,
        "bn": bn,
        "bk": bk,
        "group_m": group_m,
        "accumulator": element.accumulator_dtype,
    }
    words |= {"dot_options": options}
    args: list[Array | Scalar] = [
        Array("A", element.dtype, ("BATCH", "M", "K"), fill=element.fill),
        Array("B", element.dtype, ("BATCH", "K", "N"), fill=element.fill),
        Array("C", element.output_dtype, ("BATCH", "M", "N"), "out"),
        *(Scalar(size, size) for size in ("M", "N", "K")),
    ]
    sizes = {
        "default": {"M": 4096, "N": 4096, "K": 4096, "BATCH": 1},
        "ragged": {"M": 77, "N": 93, "K": 101, "BATCH": 2},
    }
    grid: Formula = ("ceil_div(M, BLOCK_M) * ceil_div(N, BLOCK_N)", "BATCH", "1")
    return _made(
        "gemm", "gemm_kernel", words, grid, constants, warps, stages, sizes, args, gemm_reference("gemm_kernel")
    )


def attention_triton(
    dtype: Literal["fp16", "bf16"],
    *,
    d: int = 128,
    causal: bool = False,
    bm: int = 128,
    bn: int = 64,
    warps: int = 8,
    stages: int = 3,
) -> TritonSkeleton:
    """Attention, forward.

    Raises:
        TilewrightError: ``skeleton/no_triton`` (exit 4): an extent that Triton does not take.
    """
    _check(warps, {"bm": bm, "bn": bn, "d": d}, DOT_LEAST)
    constants = {"BLOCK_M": bm, "BLOCK_N": bn, "D": d, "CAUSAL": int(causal)}
    words: dict[str, str | int] = {"bm": bm, "bn": bn, "d": d, "causal": str(causal)}
    shape = ("B", "H", "N", "D")
    args: list[Array | Scalar] = [Array(x, ELEMENTS[dtype].dtype, shape, fill="normal(0, 1)") for x in "QKV"]
    args += [Array("O", ELEMENTS[dtype].dtype, shape, "out"), Scalar("N", "N")]
    args.append(Scalar("scale", f"{d**-0.5:.9f}", "float32"))
    sizes = {"default": {"B": 1, "H": 32, "N": 8192}, "ragged": {"B": 1, "H": 2, "N": 109}}
    grid: Formula = ("ceil_div(N, BLOCK_M)", "B * H", "1")
    told = attention_reference("attention_kernel", causal)
    return _made("attention", "attention_kernel", words, grid, constants, warps, stages, sizes, args, told)


def rows_triton(
    op: RowOp, dtype: FloatDType, *, block_c: int = 1024, warps: int = 4, stages: int = 2
) -> TritonSkeleton:
    """Sums, softmax or LayerNorm of rows.

    Raises:
        TilewrightError: ``skeleton/no_triton`` (exit 4): an extent that Triton does not take.
    """
    _check(warps, {"block_c": block_c}, 1)
    element = FLOATS[dtype]
    args: list[Array | Scalar] = [Array("X", element.dtype, ("R", "C"), fill="normal(0, 1)")]
    if op == "layernorm":
        args += [Array("scale", "float32", ("C",), fill="normal(1, 0.1)")]
        args += [Array("shift", "float32", ("C",), fill="normal(0, 0.1)"), Scalar("epsilon", "0.00001", "float32")]
    result = Array("Y", "float32", ("R",), "out") if op == "sum" else Array("Y", element.dtype, ("R", "C"), "out")
    args += [result, Scalar("C", "C")]
    sizes = {"default": {"R": 8192, "C": 4096}, "ragged": {"R": 3, "C": 1429}}
    words = {"block_c": block_c}
    told = rows_reference(f"{op}_kernel", op)
    return _made(op, f"{op}_kernel", words, ("R", "1", "1"), {"BLOCK_C": block_c}, warps, stages, sizes, args, told)


def elementwise_triton(
    dtype: FloatDType, *, inputs: int = 2, expression: str = "", block: int = 1024, warps: int = 4
) -> TritonSkeleton:
    """An elementwise op; ``expression`` in Python of the inputs' names a, b, c, …, their sum by default.

    Raises:
        TilewrightError: ``skeleton/no_triton`` (exit 4): an extent that Triton does not take.
    """
    _check(warps, {"block": block}, 1)
    if not 1 <= inputs <= len(NAMES):
        raise refusal("no_triton", f"{inputs} inputs; 1 to {len(NAMES)} are made.", "Take fewer inputs.")
    names = NAMES[:inputs]
    pointers = [f"{x.upper()}_" for x in names]
    loads = [
        f"    {x} = tl.load({pointer} + at, mask=at < n).to(tl.float32)"
        for x, pointer in zip(names, pointers, strict=True)
    ]
    words: dict[str, str | int] = {"block": block, "arguments": ", ".join(pointers), "loads": "\n".join(loads)}
    words |= {"expression": expression or " + ".join(names)}
    element = FLOATS[dtype]
    args: list[Array | Scalar] = [Array(pointer, element.dtype, ("n",), fill="normal(0, 1)") for pointer in pointers]
    args += [Array("Y", element.dtype, ("n",), "out"), Scalar("n", "n")]
    sizes = {"default": {"n": 1 << 26}, "ragged": {"n": 70001}}
    grid: Formula = ("ceil_div(n, BLOCK)", "1", "1")
    told = "" if expression else sum_reference("elementwise_kernel", tuple(pointers))
    return _made("elementwise", "elementwise_kernel", words, grid, {"BLOCK": block}, warps, 1, sizes, args, told)


def _check(warps: int, extents: Mapping[str, int], least: int) -> None:
    for name, extent in extents.items():
        if extent < least or extent & (extent - 1):
            message = f"{name} is {extent}; Triton's blocks are powers of two, here of {least} at least."
            raise refusal("no_triton", message, "Take the next power of two: what lies beyond is masked.")
    if warps not in WARPS:
        raise refusal("no_triton", f"num_warps is {warps}; Triton takes {', '.join(map(str, WARPS))}.", "Take 4 or 8.")


def _made(
    text: str,
    kernel: str,
    words: Mapping[str, str | int],
    grid: Formula,
    constants: Mapping[str, int],
    warps: int,
    stages: int,
    sizes: Mapping[str, Mapping[str, int]],
    args: Sequence[Array | Scalar],
    reference: str,
) -> TritonSkeleton:
    source = finished(filled(f"triton_{text}.py.txt", {**words, "num_warps": warps, "num_stages": stages}))
    told = triton_sidecar(kernel, grid, constants, warps, stages, sizes, args)
    return TritonSkeleton(source, kernel, told, grid, constants, warps, stages, reference)
