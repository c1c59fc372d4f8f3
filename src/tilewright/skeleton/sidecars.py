"""Sidecars of skeletons, as TOML text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.skeleton.skeleton import Formula


@dataclass(frozen=True)
class Array:
    """An array argument: ``shape`` in expressions, ``role`` in or out, ``fill`` of an input."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    role: str = "in"
    fill: str = ""

    def lines(self) -> list[str]:
        shape = ", ".join(f'"{extent}"' for extent in self.shape)
        out = [f'name  = "{self.name}"', f'dtype = "{self.dtype}"', f"shape = [{shape}]"]
        if self.role != "in":
            out.append(f'role  = "{self.role}"')
        if self.fill:
            out.append(f'fill  = "{self.fill}"')
        return out


@dataclass(frozen=True)
class Scalar:
    """A scalar argument: ``value`` is an expression of the sizes, or a number."""

    name: str
    value: str
    dtype: str = "int32"

    def lines(self) -> list[str]:
        return [f'name  = "{self.name}"', f'dtype = "{self.dtype}"', f'value = "{self.value}"']


def sidecar(
    kernel: str,
    grid: Formula,
    block_threads: int,
    smem_bytes: int,
    sizes: Mapping[str, Mapping[str, int]],
    args: Sequence[Array | Scalar],
    note: str = "",
) -> str:
    """The sidecar of a kernel; ``note`` is a comment behind the sizes' heading."""
    lines = [f'kernel = "{kernel}"', "", *_launch(grid), f"block = [{block_threads}, 1, 1]"]
    if smem_bytes:
        lines.append(f"shared_bytes = {smem_bytes}")
    return "\n".join(lines + _sizes_and_args(sizes, args, note)) + "\n"


def triton_sidecar(
    kernel: str,
    grid: Formula,
    constants: Mapping[str, int],
    num_warps: int,
    num_stages: int,
    sizes: Mapping[str, Mapping[str, int]],
    args: Sequence[Array | Scalar],
) -> str:
    """The sidecar of a Triton kernel: its block and its shared memory are Triton's to decide."""
    row = ", ".join(f"{key} = {value}" for key, value in constants.items())
    lines = [f'kernel = "{kernel}"', "", "[triton]", f"constants = {{ {row} }}"]
    lines += [f"num_warps = {num_warps}", f"num_stages = {num_stages}", "", *_launch(grid)]
    return "\n".join(lines + _sizes_and_args(sizes, args, "")) + "\n"


def _launch(grid: Formula) -> list[str]:
    extents = ", ".join(f'"{axis}"' for axis in grid)
    return ["[launch]", f"grid  = [{extents}]"]


def _sizes_and_args(sizes: Mapping[str, Mapping[str, int]], args: Sequence[Array | Scalar], note: str) -> list[str]:
    lines = ["", "[sizes]" + (f"  # {note}" if note else "")]
    for name, values in sizes.items():
        row = ", ".join(f"{key} = {value}" for key, value in values.items())
        lines.append(f"{name} = {{ {row} }}")
    for arg in args:
        lines += ["", "[[args]]", *arg.lines()]
    return lines
