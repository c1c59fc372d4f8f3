"""The kernel that a chosen tile is written as, for every op and both languages, with the asked shape in its sidecar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.launch.bind import bind
from tilewright.launch.sidecar import parse_sidecar
from tilewright.receipt.tile_report import TileSkeleton
from tilewright.skeleton.attention import AttentionTile, attention_cuda
from tilewright.skeleton.conv import ConvShape, conv_cuda, conv_vectors, why_no_image
from tilewright.skeleton.elements import FloatDType
from tilewright.skeleton.elementwise import ElementwiseTile, elementwise_cuda
from tilewright.skeleton.gemm import GemmTile, Vectors, gemm_cuda
from tilewright.skeleton.rows import RowOp, RowTile, rows_cuda
from tilewright.skeleton.skeleton import Skeleton
from tilewright.skeleton.triton_kernels import (
    TritonSkeleton,
    attention_triton,
    elementwise_triton,
    gemm_triton,
    rows_triton,
)
from tilewright.tile.candidate import Candidate
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, RowReduction, Target, skeleton_dtype

HalfDType = Literal["fp16", "bf16"]
TILE_FIELDS = ("bm", "bn", "bk", "warps_m", "warps_n", "stages", "split_k", "group_m")
_FLOATS: Mapping[str, FloatDType] = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def gemm_tile(chosen: Candidate) -> GemmTile:
    """The tile that a candidate of a matrix product stands for."""
    return GemmTile(**{name: chosen.parameters[name] for name in TILE_FIELDS})


def skeleton_of(op: Op, chosen: Candidate, machine: Machine, target: Target) -> TileSkeleton:
    """The skeleton with its sidecar; where there is none, the reason."""
    try:
        made = _cuda(op, chosen, machine) if target == "cuda" else _triton(op, chosen)
    except TilewrightError as error:
        if error.exit_code != EXIT_REFUSED:
            raise
        return TileSkeleton(refusal=error.message)
    if why := _why_no_launch(_asked(made.sidecar, op, machine), made.constants):
        return TileSkeleton(refusal=why)
    second = made.second if isinstance(made, Skeleton) else None
    named = f'\n[reference]\nfile = "{made.kernel}_reference.py"\n' if made.reference else ""
    return TileSkeleton(
        reference=made.reference,
        kernel=made.kernel,
        second_kernel=second.kernel if second is not None else "",
        suffix=".cu" if target == "cuda" else ".py",
        source=made.text,
        sidecar=_asked(made.sidecar, op, machine) + named,
        second_sidecar=_asked(second.sidecar, op, machine) if second is not None else "",
    )


def _why_no_launch(sidecar: str, constants: Mapping[str, int]) -> str:
    """Why no card can launch the asked shape in one piece; "" where one can."""
    try:
        bind(parse_sidecar(sidecar, Path("sidecar.toml")), "default", constants)
    except TilewrightError as error:
        return f"One launch does not hold this shape: {error.message} Launch it in parts."
    return ""


def _cuda(op: Op, chosen: Candidate, machine: Machine) -> Skeleton:
    arch, tile = machine.arch, chosen.parameters
    if isinstance(op, Gemm):
        dtype = skeleton_dtype(op.dtype)
        return gemm_cuda(gemm_tile(chosen), dtype, arch, vectors=Vectors.of(op.n, op.k, dtype))
    if isinstance(op, Convolution):
        shape = ConvShape(op.r, op.s, op.stride, op.pad)
        if why := why_no_image(op.n, op.h, op.w, shape):
            raise TilewrightError("tile/no_skeleton", why, {"op": op.name}, "", EXIT_REFUSED)
        return conv_cuda(gemm_tile(chosen), shape, _half(op.dtype), arch, vectors=conv_vectors(op.c, op.k))
    if isinstance(op, Attention):
        attention = AttentionTile(tile["bm"], tile["bn"], tile["warps"], tile["stages"])
        return attention_cuda(attention, _half(op.dtype), arch, d=op.d, causal=op.causal)
    if isinstance(op, RowReduction):
        rows = RowTile(tile["threads"], tile["rows"], tile["loads"], tile["split"])
        return rows_cuda(_row_op(op), rows, _float(op.dtype), arch, columns=op.c)
    flat = ElementwiseTile(tile["threads"], tile["loads"])
    return elementwise_cuda(flat, _float(op.dtype), arch, inputs=op.inputs)


def _triton(op: Op, chosen: Candidate) -> TritonSkeleton:
    tile = chosen.parameters
    if isinstance(op, Gemm):
        extents = {name: tile[name] for name in ("bm", "bn", "bk", "group_m", "stages")}
        return gemm_triton(skeleton_dtype(op.dtype), warps=tile["num_warps"], **extents)
    if isinstance(op, Attention):
        return attention_triton(_half(op.dtype), d=op.d, causal=op.causal, **dict(tile))
    if isinstance(op, Convolution):
        raise _missing("Triton skeleton of a convolution")
    warps = tile["threads"] // 32
    if isinstance(op, Elementwise):
        block = tile["threads"] * tile["loads"] * chosen.vector_bytes["x"] // _item_bytes(op.dtype)
        return elementwise_triton(_float(op.dtype), inputs=op.inputs, block=block, warps=warps)
    block = tile["threads"] * tile["loads"] * chosen.vector_bytes["x"] // _item_bytes(op.dtype)
    return rows_triton(_row_op(op), _float(op.dtype), block_c=block, warps=warps)


def _row_op(op: RowReduction) -> RowOp:
    """Rows that are written are a softmax's: what a user replaces is one function of the skeleton."""
    return "softmax" if op.writes_rows else "sum"


def _half(dtype: str) -> HalfDType:
    short = _float(dtype)
    if short == "fp32":
        raise _missing("attention or convolution of float32")
    return short


def _float(dtype: str) -> FloatDType:
    if dtype not in _FLOATS:
        raise _missing(f"skeleton of {dtype}")
    return _FLOATS[dtype]


def _item_bytes(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def _missing(what: str) -> TilewrightError:
    return TilewrightError(
        "tile/no_skeleton", f"There is no {what} here.", {"floats": get_args(FloatDType)}, "", EXIT_REFUSED
    )


_SIZES: Mapping[type, Callable[..., Mapping[str, int]]] = {
    Gemm: lambda op: {"M": op.m, "N": op.n, "K": op.k, "BATCH": op.batch},
    Attention: lambda op: {"B": op.b, "H": op.h, "N": op.n},
    RowReduction: lambda op: {"R": op.r, "C": op.c},
    Elementwise: lambda op: {"n": op.n},
    Convolution: lambda op: {"NB": op.n, "H": op.h, "W": op.w, "C": op.c, "KF": op.k},
}


def _asked(sidecar: str, op: Op, machine: Machine) -> str:
    """The sidecar with the shape that was asked for as its default sizes, and the card's architecture."""
    row = ", ".join(f"{name} = {value}" for name, value in _SIZES[type(op)](op).items())
    sized = re.sub(r"^default = .*$", f"default = {{ {row} }}", sidecar, count=1, flags=re.MULTILINE)
    return re.sub(r"^kernel = .*$", rf'\g<0>\narch = "{machine.arch.name}"', sized, count=1, flags=re.MULTILINE)
