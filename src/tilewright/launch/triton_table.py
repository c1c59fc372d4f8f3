"""The sidecar's ``[triton]`` table: what a launch of a Triton kernel says besides its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.launch.expressions import Expression, Number
from tilewright.launch.spec import Constant, Triple, TritonSpec
from tilewright.launch.toml_table import Table

WARP_THREADS = 32
MAX_WARPS = 32
# Keys of other tables that say what Triton itself decides.
_OF_CUDA = ("template", "build")


def read_triton(root: Table) -> TritonSpec | None:
    """The table, or None where the sidecar has none: then it is for a CUDA kernel.

    Raises:
        TilewrightError: a wrong key or type, or a key that is for CUDA kernels only.
    """
    if root.get("triton") is None:
        return None
    for key in _OF_CUDA:
        if key in root.data:
            raise root.place(key).error("bad_value", f"{key} is for CUDA kernels; this sidecar has a [triton] table.")
    launch = root.table("launch")
    if "shared_bytes" in launch.data:
        message = "launch.shared_bytes is Triton's to decide."
        raise launch.place("shared_bytes").error("bad_value", message, "Leave it out.")
    table = root.table("triton").only("constants", "num_warps", "num_stages", "options")
    num_warps = _whole(table, "num_warps", 4)
    if num_warps not in (1, 2, 4, 8, 16, MAX_WARPS):
        message = f"triton.num_warps is {num_warps}; Triton takes a power of two, {MAX_WARPS} at most."
        raise table.place("num_warps").error("bad_value", message)
    num_stages = _whole(table, "num_stages", None)
    return TritonSpec(_constants(table.table("constants")), num_warps, num_stages, _constants(table.table("options")))


def block_of(triton: TritonSpec) -> Triple:
    """The block of a launch: one-dimensional, ``num_warps`` warps."""
    threads = triton.num_warps * WARP_THREADS
    one = Expression("1", Number(1))
    return Expression(str(threads), Number(threads)), one, one


def _whole(table: Table, key: str, default: int | None) -> int | None:
    value = table.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise table.wrong_type("an integer", value, key)
    if value < 1:
        raise table.place(key).error("bad_value", f"triton.{key} is {value}; 1 or more is needed.")
    return value


def _constants(table: Table) -> Mapping[str, Constant]:
    for key, value in table.data.items():
        if not isinstance(value, bool | int | float | str):
            raise table.wrong_type("a number, a boolean or a text", value, key)
    return dict(table.data)
