"""Elementwise ops: a vectorised loop whose grid strides over the array, with a masked tail."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.arch import Arch
from tilewright.skeleton.elements import FLOATS, FloatDType
from tilewright.skeleton.references import sum_reference
from tilewright.skeleton.sidecars import Array, Scalar, sidecar
from tilewright.skeleton.skeleton import Formula, Skeleton, filled, finished, refusal

NAMES = "abcdefgh"


@dataclass(frozen=True)
class ElementwiseTile:
    """How an array is shared out.

    Attributes:
        threads: per block.
        loads: vectors of each input that a thread has under way.
        blocks_max: the grid stops growing there and strides instead; 0: one round each, however many blocks that takes.
    """

    threads: int = 256
    loads: int = 4
    blocks_max: int = 0


def why_no_elementwise(tile: ElementwiseTile, inputs: int, arch: Arch) -> str:
    """Why no kernel is made of these parameters; "" where one is."""
    warp = arch.warp_size
    if tile.threads < warp or tile.threads % warp or tile.threads > arch.max_threads_per_block:
        return f"{tile.threads} threads; whole warps are needed, and at most {arch.max_threads_per_block} threads."
    if not 1 <= tile.loads <= 16:
        return f"{tile.loads} loads; 1 to 16 are made."
    if not 1 <= inputs <= len(NAMES):
        return f"{inputs} inputs; 1 to {len(NAMES)} are made."
    return ""


def elementwise_cuda(
    tile: ElementwiseTile,
    dtype: FloatDType,
    arch: Arch,
    *,
    inputs: int = 2,
    expression: str = "",
    vector: int | None = None,
) -> Skeleton:
    """An elementwise op in CUDA C++, computed in FP32.

    Args:
        expression: C++ of the inputs' names a, b, c, …; their sum by default.
        vector: elements of a vector, 16 bytes by default. Any n works with it; pointers must be as well aligned.

    Raises:
        TilewrightError: ``skeleton/no_elementwise`` (exit 4) where `why_no_elementwise` has a reason.
    """
    why = why_no_elementwise(tile, inputs, arch)
    if why:
        raise refusal("no_elementwise", why, "Take other parameters.", arch=arch.name)
    element, names = FLOATS[dtype], NAMES[:inputs]
    width = vector or 16 // element.item_bytes
    name = f"elementwise_{dtype}"
    constants = {"THREADS": tile.threads, "LOADS": tile.loads, "VEC": width}
    blocks = "ceil_div(n, THREADS * LOADS * VEC)"
    grid: Formula = (f"min({blocks}, {tile.blocks_max})" if tile.blocks_max else blocks, "1", "1")
    text = filled(
        "elementwise.cu",
        {key.lower(): value for key, value in constants.items()}
        | {
            "name": name,
            "title": "An elementwise op: memory decides how long it takes.",
            "includes": element.include,
            "element": element.element,
            "expression": expression or " + ".join(names),
            "combine_list": ", ".join(f"{x.upper()}_[i]" for x in names),
            "combine_parameters": ", ".join(f"float {x}" for x in names),
            "kernel_parameters": "\n    ".join(f"const T* __restrict__ {x.upper()}_," for x in names),
            "addresses": "".join(f"(size_t){x.upper()}_ | " for x in names),
            "declare": "\n".join(f"        Vector {x}[LOADS];" for x in names),
            "load": "\n".join(
                f"                {x}[i] = reinterpret_cast<const Vector*>({x.upper()}_)[at];" for x in names
            ),
            "vector_items": ", ".join(f"{x}[i].items[j]" for x in names),
            "scalar_items": ", ".join(f"{x.upper()}_[left]" for x in names),
        },
    )
    args: list[Array | Scalar] = [Array(f"{x.upper()}_", element.dtype, ("n",), fill="normal(0, 1)") for x in names]
    args += [Array("Y", element.dtype, ("n",), "out"), Scalar("n", "n", "int64")]
    sizes = {"default": {"n": 1 << 26}, "small": {"n": 1 << 16}, "ragged": {"n": 70001}}
    return Skeleton(
        text=finished(text),
        kernel=name,
        sidecar=sidecar(name, grid, tile.threads, 0, sizes, args),
        grid=grid,
        block_threads=tile.threads,
        smem_bytes=0,
        registers_estimate=24 + (inputs + 1) * tile.loads * width * element.item_bytes // 4,
        constants=constants,
        reference="" if expression else sum_reference(name, tuple(f"{x.upper()}_" for x in names)),
    )
