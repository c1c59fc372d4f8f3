"""A sidecar and one size set → grid, block, shapes and scalars: ``BoundLaunch``, with its ranges checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.launch.dtypes import DTYPES, DType
from tilewright.launch.expressions import Expression
from tilewright.launch.spec import ArgSpec, LaunchSpec, Role, Triple
from tilewright.launch.structs import BoundStruct, grouped, struct_of
from tilewright.launch.tensor_maps import FLAG_DTYPE, BoundTensorMap, FlagArg, TensorMapArg, bound_maps

if TYPE_CHECKING:
    import numpy as np

MAX_ARRAY_BYTES = 1 << 46  # beyond any card's memory: a typing error in a size, reported before anything is allocated


@dataclass(frozen=True)
class LaunchLimits:
    """What a launch may ask for, on any architecture (``limits.toml`` names the source)."""

    max_grid: tuple[int, int, int]
    max_block: tuple[int, int, int]
    max_threads: int

    @staticmethod
    def load() -> LaunchLimits:
        data = tomllib.loads(Path(__file__).with_name("limits.toml").read_text("utf-8"))
        return LaunchLimits(tuple(data["max_grid"]), tuple(data["max_block"]), data["max_threads"])


@dataclass(frozen=True)
class LaunchChange:
    """What a variant changes for its caller.

    Attributes:
        shared_bytes: dynamic shared memory per block instead of the sidecar's; None leaves it.
        constants: constants of the file with other values, such as a halved BM: grid and block follow them.
        tensor_maps: parameters appended to the kernel's own, in this order.
        flags: ``int`` parameters behind the tensor maps.
    """

    shared_bytes: int | None = None
    constants: Mapping[str, int | float] = field(default_factory=dict)
    tensor_maps: tuple[TensorMapArg, ...] = ()
    flags: tuple[FlagArg, ...] = ()


@dataclass(frozen=True)
class BoundScalar:
    """A scalar argument with its value, in range of its type."""

    name: str
    dtype: DType
    value: int | float

    @property
    def param_bytes(self) -> int:
        """Bytes of the kernel's parameter."""
        return self.dtype.item_bytes

    def raw(self) -> bytes:
        """The value as the kernel's parameter holds it: ``dtype.item_bytes`` bytes."""
        import numpy as np

        return np.asarray(self.value).astype(self.dtype.numpy()).tobytes()


@dataclass(frozen=True)
class BoundFill:
    """How an array gets its values: ``randint`` [low, high), ``uniform`` low, high, ``normal`` mean, deviation, …"""

    function: str
    values: tuple[int | float, ...] = ()


@dataclass(frozen=True)
class BoundArray:
    """An array argument with its extents.

    Attributes:
        shape: elements per dimension.
        strides: elements, not bytes.
        storage_elements: elements from the first to the last one, gaps included; 0 where a dimension is 0.
        role: in, out or inout, as in the sidecar.
        fill: the first values of a buffer that is read.
        alias_of: the argument that owns the buffer, or None where this one does.
        offset: elements from the owner's start.
        is_written: the kernel may write this buffer, through this argument or through an alias.
        is_read_first: its initial values matter: they are filled, not poisoned.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage_elements: int
    role: Role
    fill: BoundFill
    alias_of: str | None = None
    offset: int = 0
    is_written: bool = False
    is_read_first: bool = True

    @property
    def param_bytes(self) -> int:
        """Bytes of the kernel's parameter, an address."""
        return 8

    @property
    def owner(self) -> str:
        """The argument whose buffer this is: the key of its storage."""
        return self.alias_of or self.name


BoundArgument = BoundScalar | BoundArray | BoundStruct | BoundTensorMap


@dataclass(frozen=True)
class BoundLaunch:
    """One launch, ready but for its arrays.

    Attributes:
        grid, block: blocks and threads per dimension.
        shared_bytes: dynamic shared memory per block.
        arguments: in the order of the signature; what a variant appends stands behind.
        sizes: the size set it was bound to.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[BoundArgument, ...]
    sizes: Mapping[str, int]

    @property
    def scalars(self) -> dict[str, int | float]:
        return {arg.name: arg.value for arg in self.leaves if isinstance(arg, BoundScalar)}

    @property
    def leaves(self) -> tuple[BoundScalar | BoundArray | BoundTensorMap, ...]:
        """The arguments, with the members of structures in their places."""
        out: list[BoundScalar | BoundArray | BoundTensorMap] = []
        for arg in self.arguments:
            out += arg.members if isinstance(arg, BoundStruct) else (arg,)
        return tuple(out)

    @property
    def arrays(self) -> tuple[BoundArray, ...]:
        """The array arguments, aliases included."""
        return tuple(arg for arg in self.leaves if isinstance(arg, BoundArray))

    @property
    def buffers(self) -> tuple[BoundArray, ...]:
        """The array arguments that own a buffer: the keys of every mapping of arrays."""
        return tuple(arg for arg in self.arrays if arg.alias_of is None)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {arg.name: arg.shape for arg in self.arrays}

    def view(self, name: str, storages: Mapping[str, np.ndarray]) -> np.ndarray:
        """The array ``name`` with its shape and strides, as a read-only view of its buffer's storage.

        A storage of another dtype than the buffer's (a mask) is shaped all the same.
        """
        import numpy as np

        array = self._array(name)
        storage = storages[array.owner]
        if array.alias_of and storage.dtype == self._array(array.owner).dtype.numpy():
            storage = storage.view(array.dtype.numpy())
        item_bytes = storage.dtype.itemsize
        strides = [stride * item_bytes for stride in array.strides]
        # As integers and back: NumPy cannot stride over the 8-bit floats of ml_dtypes.
        raw = storage[array.offset :].view(f"u{item_bytes}")
        shaped = np.lib.stride_tricks.as_strided(raw, array.shape, strides, writeable=False)
        return shaped.view(storage.dtype)

    def _array(self, name: str) -> BoundArray:
        return next(arg for arg in self.arrays if arg.name == name)


def bind(
    spec: LaunchSpec,
    size_set: str | Mapping[str, int],
    constants: Mapping[str, int | float],
    change: LaunchChange | None = None,
    limits: LaunchLimits | None = None,
) -> BoundLaunch:
    """Evaluate a sidecar for one size set.

    Args:
        size_set: the name of one of the sidecar's sets, or the sizes themselves.
        constants: every constant of the file; a size of the same name wins.
        change: what a variant changes.
        limits: of a launch; those of ``limits.toml`` by default.

    Raises:
        TilewrightError: an unknown name, a value out of range; with the line.
    """
    sizes = spec.sizes[size_set] if isinstance(size_set, str) else size_set
    change = change or LaunchChange()
    names = {**constants, **change.constants, **sizes}
    limits = limits or LaunchLimits.load()
    shared_bytes = spec.shared_bytes.evaluate_int(names) if change.shared_bytes is None else change.shared_bytes
    if shared_bytes < 0:
        raise spec.error(("launch", "shared_bytes"), "out_of_range", f"shared_bytes is {shared_bytes}.")
    arguments = _arguments(spec, names)
    return BoundLaunch(
        grid=_extents(spec, "grid", spec.grid, names, limits.max_grid),
        block=_block(spec, names, limits),
        shared_bytes=shared_bytes,
        arguments=(*_in_structs(arguments), *_appended(spec, change, arguments, names)),
        sizes=dict(sizes),
    )


def _extents(
    spec: LaunchSpec, key: str, triple: Triple, names: Mapping[str, int | float], most: tuple[int, int, int]
) -> tuple[int, int, int]:
    values: list[int] = []
    for axis, expression, limit in zip("xyz", triple, most, strict=True):
        value = expression.evaluate_int(names)
        if not 1 <= value <= limit:
            message = f"{key}.{axis} = {expression.text} is {value}; a launch takes 1 to {limit:,}."
            raise spec.error(("launch", key, "xyz".index(axis)), "out_of_range", message)
        values.append(value)
    return values[0], values[1], values[2]


def _block(spec: LaunchSpec, names: Mapping[str, int | float], limits: LaunchLimits) -> tuple[int, int, int]:
    block = _extents(spec, "block", spec.block, names, limits.max_block)
    threads = math.prod(block)
    if threads > limits.max_threads:
        message = f"a block of {' x '.join(map(str, block))} has {threads} threads; at most {limits.max_threads} fit."
        raise spec.error(("launch", "block"), "out_of_range", message)
    return block


def _arguments(spec: LaunchSpec, names: Mapping[str, int | float]) -> tuple[BoundScalar | BoundArray, ...]:
    bound: list[BoundScalar | BoundArray] = []
    for index, arg in enumerate(spec.args):
        if arg.value is not None:
            bound.append(_scalar(spec, index, arg, arg.value, names))
        else:
            bound.append(_array(spec, index, arg, names))
    owners = {arg.name: arg for arg in bound if isinstance(arg, BoundArray)}
    for index, array in enumerate(bound):
        if isinstance(array, BoundArray) and array.alias_of is not None:
            owner = owners[array.alias_of]
            if array.offset + array.storage_elements > owner.storage_elements:
                message = (
                    f"'{array.name}' needs elements {array.offset:,} to {array.offset + array.storage_elements:,} "
                    f"of '{owner.name}', which has {owner.storage_elements:,}."
                )
                raise spec.error(("args", index), "out_of_range", message)
    return tuple(bound)


def _in_structs(
    arguments: tuple[BoundScalar | BoundArray, ...],
) -> tuple[BoundScalar | BoundArray | BoundStruct, ...]:
    """One argument for each parameter."""
    out: list[BoundScalar | BoundArray | BoundStruct] = []
    for name, indices in grouped([arg.name for arg in arguments]):
        members = tuple(arguments[index] for index in indices)
        out.append(BoundStruct(name, members) if struct_of(members[0].name) else members[0])
    return tuple(out)


def _appended(
    spec: LaunchSpec,
    change: LaunchChange,
    arguments: tuple[BoundScalar | BoundArray, ...],
    names: Mapping[str, int | float],
) -> tuple[BoundTensorMap | BoundScalar, ...]:
    """Tensor maps and flags; a scalar argument wins over a size or a constant of its name."""
    if not (change.tensor_maps or change.flags):
        return ()
    arrays = {arg.name: arg for arg in arguments if isinstance(arg, BoundArray)}
    scalars = {arg.name: arg.value for arg in arguments if isinstance(arg, BoundScalar)}
    maps, flags = bound_maps(spec, change.tensor_maps, change.flags, arrays, {**names, **scalars})
    return (*maps, *(BoundScalar(name, FLAG_DTYPE, value) for name, value in flags.items()))


def _scalar(
    spec: LaunchSpec, index: int, arg: ArgSpec, value: Expression, names: Mapping[str, int | float]
) -> BoundScalar:
    if arg.dtype.kind == "float":
        real = value.evaluate(names)
        if not _holds(arg.dtype, real):
            message = f"'{arg.name}' = {value.text} is more than {arg.dtype.name} can hold."
            raise spec.error(("args", index, "value"), "out_of_range", message)
        return BoundScalar(arg.name, arg.dtype, float(real))
    number = value.evaluate_int(names)
    if not arg.dtype.low <= number <= arg.dtype.high:
        message = f"'{arg.name}' = {value.text} is {number:,}, which {arg.dtype.name} cannot hold."
        raise spec.error(("args", index, "value"), "out_of_range", message)
    return BoundScalar(arg.name, arg.dtype, number)


def _holds(dtype: DType, value: int | float) -> bool:
    """Whether a number is still a finite one as a float of some type."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.float64(value).astype(dtype.numpy()).astype(np.float64)))
    except OverflowError:
        return False


def _array(spec: LaunchSpec, index: int, arg: ArgSpec, names: Mapping[str, int | float]) -> BoundArray:
    assert arg.shape is not None
    shape = _counts(spec, index, "shape", arg, arg.shape, names)
    strides = _row_major(shape) if arg.strides is None else _counts(spec, index, "strides", arg, arg.strides, names)
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    storage_elements = 0 if 0 in shape else last + 1
    if storage_elements * arg.dtype.item_bytes > MAX_ARRAY_BYTES:
        message = f"'{arg.name}' has {storage_elements:,} elements: more than any card holds."
        raise spec.error(("args", index, "shape"), "out_of_range", message)
    offset = arg.offset.evaluate_int(names) if arg.offset is not None else 0
    if offset < 0:
        raise spec.error(("args", index, "offset"), "out_of_range", f"the offset of '{arg.name}' is {offset}.")
    roles = {arg.role} | {other.role for other in spec.args if other.alias_of == arg.name}
    return BoundArray(
        name=arg.name,
        dtype=arg.dtype,
        shape=shape,
        strides=strides,
        storage_elements=storage_elements,
        role=arg.role,
        fill=_fill(spec, index, arg, names),
        alias_of=arg.alias_of,
        offset=offset,
        is_written=roles != {"in"},
        is_read_first=arg.role != "out" or "inout" in roles,
    )


def _fill(spec: LaunchSpec, index: int, arg: ArgSpec, names: Mapping[str, int | float]) -> BoundFill:
    """The fill with its numbers. The default: values with signs, small enough that 8-bit products do not overflow."""
    dtype = arg.dtype
    if arg.fill is None:
        if dtype.kind == "float":
            return BoundFill("normal", (0.0, 1.0))
        return BoundFill("randint", (max(-20, dtype.low), min(20, dtype.high + 1)))
    values = tuple(expression.evaluate(names) for expression in arg.fill.arguments)
    if not all(_holds(dtype if dtype.kind == "float" else DTYPES["float64"], v) for v in values):
        message = f"{arg.fill.function} of '{arg.name}' is given a number beyond the range of {dtype.name}."
        raise spec.error(("args", index, "fill"), "bad_fill", message)
    if arg.fill.function == "normal" and not values:
        return BoundFill("normal", (0.0, 1.0))
    if arg.fill.function == "randint":
        low, high = values
        why = ""
        if low != int(low) or high != int(high):
            why = "needs whole numbers"
        elif low >= high:
            why = "is empty: its first number is drawn, its second is not"
        elif dtype.kind != "float" and not (dtype.low <= low and high - 1 <= dtype.high):
            why = f"leaves the range of {dtype.name}, {dtype.low:,} to {dtype.high:,}"
        elif dtype.kind == "float" and max(abs(low), abs(high)) > 2**31:
            why = "leaves the range of int32, which a float array draws from"
        if why:
            message = f"randint({low:g}, {high:g}) of '{arg.name}' {why}."
            raise spec.error(("args", index, "fill"), "bad_fill", message)
    return BoundFill(arg.fill.function, values)


def _counts(
    spec: LaunchSpec,
    index: int,
    key: str,
    arg: ArgSpec,
    expressions: tuple[Expression, ...],
    names: Mapping[str, int | float],
) -> tuple[int, ...]:
    values = tuple(expression.evaluate_int(names) for expression in expressions)
    for axis, value in enumerate(values):
        if value < 0:
            message = f"{key}[{axis}] of '{arg.name}' = {expressions[axis].text} is {value}; 0 or more is needed."
            raise spec.error(("args", index, key, axis), "out_of_range", message)
    return values


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
