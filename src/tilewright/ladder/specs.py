"""A rung with an element type → sidecars, so that everything that reads one works on rungs; and launches from them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ladder.family import KERNELS, Family, KernelLaunch, Rung
from tilewright.ladder.family_file import ELEMENT
from tilewright.launch.bind import BoundArray, BoundLaunch, LaunchChange, bind
from tilewright.launch.dtypes import DTYPES
from tilewright.launch.expressions import parse
from tilewright.launch.sidecar import parse_sidecar
from tilewright.launch.spec import LaunchSpec
from tilewright.launch.tensor_maps import FlagArg, TensorMapArg

INCLUDE = KERNELS / "include"
# NumPy's name → the type's in CUDA.
CUDA_NAMES = {
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float64": "double",
    "int8": "signed char",
    "int32": "int",
    "uint8": "unsigned char",
}


@dataclass(frozen=True)
class RungSpec:
    """A rung for one element type: a sidecar for each of its kernels, in the order in which they are launched."""

    family: Family
    rung: Rung
    dtype: str
    specs: tuple[LaunchSpec, ...]
    texts: tuple[str, ...]


def rung_spec(family: Family, rung: Rung, dtype: str) -> RungSpec:
    """The sidecars of a rung.

    Raises:
        TilewrightError: ``ladder/no_dtype``; ``ladder/bad_value`` where the rung's table makes no valid sidecar.
    """
    if dtype not in rung.dtypes:
        message = f"{family.name}/{rung.name} does not take {dtype}."
        raise TilewrightError("ladder/no_dtype", message, {}, f"It takes: {', '.join(rung.dtypes)}.")
    texts = tuple(sidecar_text(family, rung, launch, dtype) for launch in rung.launches)
    path = rung.file.with_suffix(".toml")
    try:
        specs = tuple(parse_sidecar(text, path) for text in texts)
    except TilewrightError as error:
        facts = {"file": str(family.file), "line": rung.line}
        message = f"{rung.name} makes no sidecar: {error.message}"
        raise TilewrightError("ladder/bad_value", message, facts, error.hint) from None
    return RungSpec(family, rung, dtype, specs, texts)


def defines_of(rung: Rung, dtype: str) -> dict[str, str | int | float]:
    """Macros of a rung: its own, and the element type's."""
    return {"TW_T": CUDA_NAMES[dtype], "TW_T_BYTES": DTYPES[dtype].item_bytes, **rung.defines}


def sidecar_text(
    family: Family, rung: Rung, launch: KernelLaunch, dtype: str, include: str = "../include", reference: str = ""
) -> str:
    """One kernel's sidecar, to lie beside the rung's file. See docs/sidecar.md.

    Args:
        include: the folder of the shared headers. reference: the file of the reference; "" for none.
    """
    lines = [f"kernel = {_toml(launch.kernel)}"]
    if rung.min_arch:
        lines.append(f"arch = {_toml(rung.min_arch)}")
    lines += ["", "[build]", f"defines = {_toml(defines_of(rung, dtype))}"]
    lines += [f"include = {_toml([include])}"]
    if rung.flags:
        lines.append(f"flags = {_toml(list(rung.flags))}")
    lines += ["", "[launch]", f"grid = {_toml(list(launch.grid))}", f"block = {_toml(list(launch.block))}"]
    lines += [f"shared_bytes = {_toml(launch.shared_bytes)}", "", "[sizes]"]
    lines += [f"{name} = {_toml(dict(sizes))}" for name, sizes in _sets(family, rung).items()]
    for arg in launch.args:
        table = {**arg, "dtype": dtype if arg["dtype"] == ELEMENT else arg["dtype"]}
        lines += ["", "[[args]]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    if reference:
        lines += ["", "[reference]", f"file = {_toml(reference)}"]
    return "\n".join((*lines, "", "[assume]", "no_alias = true", ""))


def operation_spec(family: Family, dtype: str) -> LaunchSpec:
    """The family's own arguments as a sidecar: it launches nothing."""
    bare = Rung("operation", family.file, "", "", (), family.dtypes)
    text = sidecar_text(family, bare, KernelLaunch("operation", (1,), (1,), 0, family.args), dtype)
    return parse_sidecar(text, family.file)


def _sets(family: Family, rung: Rung) -> dict[str, Mapping[str, int]]:
    """The sets that a rung takes. Where ``default`` is none of them, the largest one stands in for it."""
    taken = {name: sizes for name, sizes in family.sizes.items() if not rung.misfit(sizes)}
    if "default" in taken:
        return taken
    largest = max(taken.values(), key=lambda sizes: math.prod(sizes.values()), default=family.sizes["default"])
    return {"default": largest, **taken}


def bound_launches(spec: RungSpec, sizes: Mapping[str, int], constants: Mapping[str, int | float]) -> list[BoundLaunch]:
    """The launches of a rung at sizes.

    Raises:
        TilewrightError: ``ladder/limit`` where the rung does not take them; what `bind` raises.
    """
    why = spec.rung.misfit(sizes)
    if why:
        raise TilewrightError("ladder/limit", f"{why}.", {"sizes": dict(sizes)}, "Take another rung, or other sizes.")
    return [
        bind(one, sizes, constants, _with_maps(one, launch, constants))
        for one, launch in zip(spec.specs, spec.rung.launches, strict=True)
    ]


def _with_maps(spec: LaunchSpec, launch: KernelLaunch, constants: Mapping[str, int | float]) -> LaunchChange | None:
    """The tensor maps of a kernel, as a launch has them: what a variant of `tilewright pipeline` changes, too."""
    if not launch.maps:
        return None
    widths = {arg.name: arg.dtype.item_bytes for arg in spec.args}
    maps = tuple(
        TensorMapArg(
            each.name,
            each.array,
            f"uint{8 * widths[each.array]}",
            each.dims,
            each.pitches,
            tuple(parse(text, spec.place()).evaluate_int(constants) for text in each.box),
            swizzle_bytes=each.swizzle_bytes,
        )
        for each in launch.maps
    )
    condition = " * ".join(f"encodable({each.name})" for each in maps)
    flags = (FlagArg(launch.map_flag, condition),) if launch.map_flag else ()
    return LaunchChange(tensor_maps=maps, flags=flags)


def cleared_before(launches: Sequence[BoundLaunch], inputs: Collection[str]) -> list[tuple[BoundArray, ...]]:
    """For each launch, the arrays that have to be zero before it: ``inout`` from ``zeros()``, at their first mention.

    Args:
        inputs: names of the family's own inputs, which nobody clears.
    """
    seen = set(inputs)
    out: list[tuple[BoundArray, ...]] = []
    for launch in launches:
        fresh = [b for b in launch.buffers if b.name not in seen]
        out.append(tuple(b for b in fresh if b.role == "inout" and b.fill.function == "zeros"))
        seen |= {b.name for b in launch.buffers}
    return out


def figure(text: str, family: Family, sizes: Mapping[str, int], dtype: str) -> float:
    """An expression of the family's (``bytes``, ``flops``, ``length``) at sizes."""
    names = {**sizes, "item_bytes": DTYPES[dtype].item_bytes}
    try:
        return float(parse(text).evaluate(names))
    except TilewrightError as error:
        facts = {"file": str(family.file)}
        raise TilewrightError("ladder/bad_value", f"'{text}': {error.message}", facts, error.hint) from None


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
