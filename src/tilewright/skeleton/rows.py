"""Row ops: sums, softmax, LayerNorm. A warp or a block per row; long rows are streamed, few rows are split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.skeleton.elements import FLOATS, FloatDType, FloatElement, vector_of
from tilewright.skeleton.references import rows_reference
from tilewright.skeleton.sidecars import Array, Scalar, sidecar
from tilewright.skeleton.skeleton import Formula, Pass, Skeleton, filled, finished, refusal

RowOp = Literal["sum", "softmax", "layernorm"]
WARP = 32
GRID_Y_MAX = 65535
STATE_FLOATS: Mapping[RowOp, int] = {"sum": 1, "softmax": 2, "layernorm": 3}
_TITLES: Mapping[RowOp, str] = {
    "sum": "Sums of rows, gathered in FP32.",
    "softmax": "Softmax of rows, safe and in one reading: the running sum is rescaled when a larger element appears.",
    "layernorm": "LayerNorm of rows with scale and shift.",
}
_RESULTS: Mapping[RowOp, str] = {
    "sum": "",
    "softmax": "__expf(x - state.largest) / state.sum",
    "layernorm": "(x - state.mean) * rsqrtf(state.squares / state.count + epsilon)\n"
    "                                    * scale[at + j] + shift[at + j]",
}


@dataclass(frozen=True)
class RowTile:
    """How rows are shared out.

    Attributes:
        threads: per block.
        rows: that a block makes: 1, or a warp's each (threads / 32).
        loads: vectors that a thread has under way.
        split: blocks that share a row; more than 1 makes a second pass.
    """

    threads: int
    rows: int = 1
    loads: int = 4
    split: int = 1


def why_no_rows(tile: RowTile, arch: Arch) -> str:
    """Why no kernel is made of these parameters; "" where one is."""
    if tile.threads < WARP or tile.threads % WARP or tile.threads > arch.max_threads_per_block:
        return f"{tile.threads} threads; whole warps are needed, and at most {arch.max_threads_per_block} threads."
    if tile.rows not in (1, tile.threads // WARP):
        return f"a row is one block's or one warp's: 1 or {tile.threads // WARP} rows, not {tile.rows}."
    if not 1 <= tile.loads <= 16 or not 1 <= tile.split <= GRID_Y_MAX:
        return "loads are 1 to 16, split 1 to 65535."
    return ""


def rows_cuda(
    op: RowOp, tile: RowTile, dtype: FloatDType, arch: Arch, *, columns: int = 4096, vector: int | None = None
) -> Skeleton:
    """A row op in CUDA C++; sums come out in FP32, the others as they went in.

    Args:
        columns: of the sidecar's default size, and what ``vector`` follows from.
        vector: elements read at once; the kernel traps where rows do not fit.

    Raises:
        TilewrightError: ``skeleton/no_rows`` (exit 4) where `why_no_rows` has a reason.
    """
    why = why_no_rows(tile, arch)
    if why:
        raise refusal("no_rows", why, "Take another tile.", op=op, arch=arch.name)
    element = FLOATS[dtype]
    width = vector or vector_of(columns, element.item_bytes)
    name = f"row_{op}_{dtype}"
    constants = {"THREADS": tile.threads, "ROWS": tile.rows, "LOADS": tile.loads, "SPLIT": tile.split, "VEC": width}
    grid: Formula = ("ceil_div(R, ROWS)", "SPLIT", "1")
    return Skeleton(
        text=_text(name, op, tile, element, constants),
        kernel=name,
        sidecar=_first_sidecar(name, op, tile, element, grid, columns, width),
        grid=grid,
        block_threads=tile.threads,
        smem_bytes=0,
        registers_estimate=24 + 2 * tile.loads * width * element.item_bytes // 4,
        constants=constants,
        second=_second(name, op, tile, element, grid, columns, width) if tile.split > 1 else None,
        reference=rows_reference(name, op) if tile.split == 1 else "",
    )


def _text(name: str, op: RowOp, tile: RowTile, element: FloatElement, constants: Mapping[str, int]) -> str:
    values: dict[str, str | int] = {key.lower(): value for key, value in constants.items()}
    values |= {"name": name, "title": _TITLES[op], "includes": element.include, "element": element.element}
    values["output"] = "float" if op == "sum" else element.element
    values["grid_words"] = "Grid: ROWS rows a block (x), parts of a row (y)."
    values["reread"] = (
        "Every element is read once." if op == "sum" else "Results need the whole row: what is not held is read again."
    )
    is_norm = op == "layernorm"
    values["extra_parameters"] = ", const float* scale, const float* shift, float epsilon" if is_norm else ""
    values["extra_arguments"] = values["extra_arguments_all"] = ", scale, shift, epsilon" if is_norm else ""
    # Where a line is full, they begin another one.
    values["extra_own_line"] = str(values["extra_parameters"]).replace(", const", f",\n{' ' * 42}const", 1)
    values["extra_kernel_parameters"] = (
        "\n    const float* __restrict__ scale, const float* __restrict__ shift, float epsilon," if is_norm else ""
    )
    values["result"] = _RESULTS[op]
    values["aligned_y"] = "" if op == "sum" else " || (size_t)Y % sizeof(Vector)"
    values["finish"] = (
        "if (threadIdx.x % WORKERS == 0) {\n        Y[row] = state.sum;\n    }"
        if op == "sum"
        else f"write_row(values, state, X + row * C, Y + row * C, 0, C{values['extra_arguments']});"
    )
    values["state"] = filled(f"rows_state_{op}.cu", values).rstrip()
    values["write"] = "" if op == "sum" else filled("rows_write.cu", values)
    values["second"] = ""
    if tile.split > 1:
        values["saved"] = filled(f"rows_saved_{op}.cu", values).rstrip()
        values["second"] = filled("rows_second_sum.cu" if op == "sum" else "rows_second_apply.cu", values)
    values["kernels"] = filled("rows_kernel_split.cu" if tile.split > 1 else "rows_kernel_whole.cu", values).rstrip()
    return finished(filled("rows.cu", values))


def _sizes(columns: int, width: int) -> dict[str, dict[str, int]]:
    return {
        "default": {"R": 8192, "C": columns},
        "small": {"R": 37, "C": 512},
        "ragged": {"R": 5, "C": 139 * width},
    }


def _extra(op: RowOp) -> list[Array | Scalar]:
    if op != "layernorm":
        return []
    return [
        Array("scale", "float32", ("C",), fill="normal(1, 0.1)"),
        Array("shift", "float32", ("C",), fill="normal(0, 0.1)"),
        Scalar("epsilon", "0.00001", "float32"),
    ]


def _result(op: RowOp, element: FloatElement) -> Array:
    return Array("Y", "float32", ("R",), "out") if op == "sum" else Array("Y", element.dtype, ("R", "C"), "out")


def _states(op: RowOp, role: str) -> Array:
    # States that somebody could have written: counts and sums of exponentials are above 0.
    fill = "uniform(1, 2)" if role == "in" else ""
    return Array("W", "float32", ("SPLIT", "R", str(STATE_FLOATS[op])), role, fill)


def _first_sidecar(
    name: str, op: RowOp, tile: RowTile, element: FloatElement, grid: Formula, columns: int, width: int
) -> str:
    args: list[Array | Scalar] = [Array("X", element.dtype, ("R", "C"), fill="normal(0, 1)")]
    args += [_states(op, "out")] if tile.split > 1 else [*_extra(op), _result(op, element)]
    args += [Scalar("R", "R"), Scalar("C", "C")]
    return sidecar(name, grid, tile.threads, 0, _sizes(columns, width), args, f"C: multiples of {width}")


def _second(
    name: str, op: RowOp, tile: RowTile, element: FloatElement, grid: Formula, columns: int, width: int
) -> Pass:
    kernel = f"{name}_apply"
    if op == "sum":
        grid = ("ceil_div(R, THREADS)", "1", "1")
        args: list[Array | Scalar] = [_states(op, "in"), _result(op, element), Scalar("R", "R")]
    else:
        rows = Array("X", element.dtype, ("R", "C"), fill="normal(0, 1)")
        args = [rows, _states(op, "in"), *_extra(op), _result(op, element), Scalar("R", "R"), Scalar("C", "C")]
    text = sidecar(kernel, grid, tile.threads, 0, _sizes(columns, width), args)
    return Pass(kernel, grid, tile.threads, 0, text)
