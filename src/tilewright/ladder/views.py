"""Arrays of other libraries as addresses on a card, and the sizes that a family's shapes give them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ladder.family import Family
from tilewright.launch.bind import BoundLaunch, bind
from tilewright.launch.expressions import Expression, Name
from tilewright.launch.spec import LaunchSpec

_IN_HOST_MEMORY = 1  # DLPack's kDLCPU


@dataclass(frozen=True)
class DeviceView:
    """An array on a card.

    Attributes:
        pointer: its address. shape, strides: elements. dtype: NumPy's or ml_dtypes' name.
        device: the card's ordinal. owner: what keeps the memory.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    owner: Any


def device_view_of(name: str, array: Any, stream: int) -> DeviceView:
    """A PyTorch tensor, or anything with DLPack or ``__cuda_array_interface__`` (CuPy, JAX, Numba, cuda-core).

    Args:
        name: the argument's, for messages.
        stream: handle of the stream on which the array will be used: its maker orders its own work before that.

    Raises:
        TilewrightError: ``ladder/not_on_a_card``, ``ladder/no_array``.
    """
    if hasattr(array, "data_ptr") and hasattr(array, "is_cuda"):  # PyTorch, without importing it
        if not array.is_cuda:
            raise _not_on_a_card(name)
        if array.is_neg():  # a view that PyTorch negates whenever it reads it: memory holds the opposite
            hint = "Give tensor.resolve_neg()."
            raise TilewrightError("ladder/no_array", f"'{name}' is a negated view of its memory.", {}, hint)
        dtype = str(array.dtype).removeprefix("torch.")
        return DeviceView(array.data_ptr(), tuple(array.shape), array.stride(), dtype, array.device.index, array)
    if hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) == _IN_HOST_MEMORY:
        raise _not_on_a_card(name)
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_any_interface(array, stream_ptr=stream)
    except Exception as error:  # each library raises its own for what it does not export
        message = f"'{name}' is a {type(array).__name__}, which gives no array: {error}."
        hint = "Give a tensor, or something with __dlpack__ or __cuda_array_interface__."
        raise TilewrightError("ladder/no_array", message, {}, hint) from None
    if not view.is_device_accessible:
        raise _not_on_a_card(name)
    shape = tuple(view.shape)
    strides = tuple(view.strides) if view.strides is not None else row_major(shape)
    return DeviceView(int(view.ptr), shape, strides, str(view.dtype), int(view.device_id), view)


def _not_on_a_card(name: str) -> TilewrightError:
    return TilewrightError("ladder/not_on_a_card", f"'{name}' lies in the host's memory.", {}, "Copy it to the GPU.")


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def flattened(family: Family, views: Mapping[str, DeviceView]) -> dict[str, DeviceView]:
    """Arrays that a family takes in any rank (``Family.flat``), their first dimensions as one; the others as given.

    Raises:
        TilewrightError: ``ladder/strides`` for elements that lie in no line; ``ladder/shape`` where the first
            dimensions of two of them differ.
    """
    ranks = {arg["name"]: len(arg["shape"]) for arg in family.args if arg["name"] in family.flat}
    first = {name: len(views[name].shape) - rank + 1 for name, rank in ranks.items() if name in views}
    first = {name: count for name, count in first.items() if count >= 0}  # what lacks a dimension is refused later
    leading = {name: views[name].shape[:count] for name, count in first.items()}
    if len(set(leading.values())) > 1:
        shapes = ", ".join(f"'{name}' {views[name].shape}" for name in leading)
        message = f"the arrays of {family.name} have to agree in their first dimensions: {shapes}."
        raise TilewrightError("ladder/shape", message, {}, "Expand them, and give contiguous copies.")
    # Where all lie in memory the same way, elements match in whatever order they are taken.
    is_alike = len({tuple(_axes(views[name])) for name in first}) == 1
    lines = {name: _line(family, name, views[name], count, is_alike) for name, count in first.items()}
    return {**views, **lines}


def _axes(view: DeviceView) -> list[tuple[int, int]]:
    """(stride, extent) of the dimensions that have any."""
    return [(stride, extent) for stride, extent in zip(view.strides, view.shape, strict=True) if extent != 1]


def _line(family: Family, name: str, view: DeviceView, first: int, is_alike: bool) -> DeviceView:
    """The first dimensions as one."""
    rest_shape, rest_strides = view.shape[first:], view.strides[first:]
    axes = _axes(replace(view, shape=view.shape[:first], strides=view.strides[:first]))
    count = math.prod(view.shape[:first])
    if not count or not axes:
        packed = row_major((count, *rest_shape))[0]
        return replace(view, shape=(count, *rest_shape), strides=(packed, *rest_strides))
    if is_alike:
        axes.sort(key=lambda axis: -abs(axis[0]))
    for (outer, _), (inner, extent) in pairwise(axes):
        if outer != inner * extent:
            message = f"'{name}' of {family.name} has the shape {view.shape} and the strides {view.strides}; "
            message += "its elements have to lie at one distance from each other."
            raise TilewrightError("ladder/strides", message, {}, "Give a contiguous copy.")
    return replace(view, shape=(count, *rest_shape), strides=(axes[-1][0], *rest_strides))


def sizes_of(
    family: Family, spec: LaunchSpec, views: Mapping[str, DeviceView], given: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that shapes and strides stand for.

    Args:
        spec: the family's own arguments, as `operation_spec` makes them.
        given: sizes that no shape gives.

    Raises:
        TilewrightError: ``ladder/missing_array``, ``ladder/unknown_array``, ``ladder/shape``, ``ladder/missing_size``.
    """
    unknown = set(views) - {arg.name for arg in spec.args if arg.is_pointer}
    if unknown:
        raise TilewrightError("ladder/unknown_array", f"{family.name} has no array '{min(unknown)}': {family.op}.")
    names = family.sizes["default"]
    found = dict(given)
    strides: list[tuple[str, int]] = []
    for arg in spec.args:
        if arg.shape is None:
            continue
        if arg.name not in views:
            raise TilewrightError("ladder/missing_array", f"{family.name} needs '{arg.name}': {family.op}.")
        view = views[arg.name]
        if len(view.shape) != len(arg.shape):
            raise _misfit(family, arg.name, view, f"needs {len(arg.shape)} dimensions")
        for expression, extent in zip(arg.shape, view.shape, strict=True):
            name = _bare(expression)
            if name in names and found.setdefault(name, extent) != extent:
                raise _misfit(family, arg.name, view, f"needs {name} = {found[name]}")
        packed = row_major(view.shape)
        for axis, expression in enumerate(arg.strides or ()):
            name = _bare(expression)
            if name in names:
                # Where there is one row only, PyTorch may say anything of how far the next one would be.
                strides.append((name, view.strides[axis] if view.shape[axis] > 1 else packed[axis]))
    for name, stride in strides:
        found.setdefault(name, stride)
    missing = [name for name in names if name not in found]
    if missing:
        message = f"{family.name} needs the size '{missing[0]}', which no shape gives."
        raise TilewrightError("ladder/missing_size", message, {}, "Give it with sizes.")
    return found


def check_views(family: Family, launch: BoundLaunch, views: Mapping[str, DeviceView]) -> None:
    """Compare shapes, strides and dtypes with what a launch needs.

    Raises:
        TilewrightError: ``ladder/shape``, ``ladder/strides``, ``ladder/dtype``, ``ladder/devices``.
    """
    for array in launch.arrays:
        view = views[array.name]
        if view.dtype != array.dtype.name:
            message = f"'{array.name}' of {family.name} is {view.dtype}; {array.dtype.name} is needed."
            raise TilewrightError("ladder/dtype", message)
        if view.shape != array.shape:
            raise _misfit(family, array.name, view, f"needs {array.shape}")
        for extent, stride, need in zip(array.shape, view.strides, array.strides, strict=True):
            if extent > 1 and stride != need:
                message = f"'{array.name}' of {family.name} has strides {view.strides}; {array.strides} are needed."
                raise TilewrightError("ladder/strides", message, {}, "Give a contiguous copy.")
    if len({view.device for view in views.values()}) > 1:
        raise TilewrightError("ladder/devices", f"the arrays of {family.name} lie on several cards.")


def bound_operation(
    family: Family, spec: LaunchSpec, views: Mapping[str, DeviceView], given: Mapping[str, int] | None = None
) -> BoundLaunch:
    """The family's arguments at the sizes of arrays that are given, all checked.

    Raises:
        TilewrightError: as `sizes_of` and `check_views`.
    """
    launch = bind(spec, sizes_of(family, spec, views, given or {}), {})
    check_views(family, launch, views)
    return launch


def _bare(expression: Expression) -> str:
    return expression.root.name if isinstance(expression.root, Name) else ""


def _misfit(family: Family, name: str, view: DeviceView, need: str) -> TilewrightError:
    return TilewrightError("ladder/shape", f"'{name}' of {family.name} has the shape {view.shape}; it {need}.")
