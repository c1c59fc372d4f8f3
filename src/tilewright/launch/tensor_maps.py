"""Tensor maps and flags that a variant appends to its kernel's signature: what the host has to make at every launch.

``TensorMapArg`` and ``FlagArg`` are what a rewriter asks for, in expressions over the launch's scalars, sizes and
constants. ``bound_maps`` evaluates them for one launch. The rules are those of CUDA Driver API, "Tensor Map Object
Management", ``cuTensorMapEncodeTiled``, for tiled maps without interleave or element strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.launch.dtypes import DTYPES, DType
from tilewright.launch.expressions import FLAG_FUNCTIONS, Binary, Call, Name, Node, Unary, parse

if TYPE_CHECKING:
    from tilewright.launch.bind import BoundArray
    from tilewright.launch.spec import LaunchSpec

MAP_BYTES = 128
FLAG_DTYPE = DTYPES["int32"]
# CUDA Driver API, cuTensorMapEncodeTiled, for interleave and swizzle "none".
ALIGN_BYTES = 16  # of the tensor's address, of every pitch, and of the bytes of a row of the box
MAX_RANK = 5
MAX_EXTENT = 1 << 32
PITCH_END_BYTES = 1 << 40
MAX_BOX = 256
SWIZZLES_BYTES = (0, 32, 64, 128)
# What has no type of its own there travels as unsigned integers of its width: a copy moves bytes.
_TRAVELS_AS = {
    "bool": "uint8", "int8": "uint8", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "int16": "uint16",
}  # fmt: skip


@dataclass(frozen=True)
class TensorMapArg:
    """A tensor map, passed by value behind the parameters that the kernel has: 128 bytes, aligned to 64.

    Attributes:
        name: of the parameter.
        array: the pointer argument whose buffer it describes.
        dtype: of an element, a NumPy name.
        dims: extents in elements, innermost first: expressions over the launch's scalars, sizes and constants.
        pitches: bytes from one index to the next of dims 1, 2, …: expressions, one fewer than ``dims``.
        box: elements that one copy moves along each dimension, innermost first.
        offset: elements of ``dtype`` from the array's start to the tensor's: an expression.
        swizzle_bytes: 32, 64 or 128: the width in which chunks of 16 bytes change places in shared memory; 0 for none.
    """

    name: str
    array: str
    dtype: str
    dims: tuple[str, ...]
    pitches: tuple[str, ...]
    box: tuple[int, ...]
    offset: str = "0"
    swizzle_bytes: int = 0

    @property
    def declaration(self) -> str:
        """The parameter as C, with what it describes in a comment."""
        dims, pitches, box = (", ".join(map(str, each)) for each in (self.dims, self.pitches, self.box))
        start = "" if self.offset == "0" else f" from element {self.offset}"
        steps = f"; pitches {pitches} bytes" if pitches else ""
        return f"const CUtensorMap {self.name} /* {self.array}{start} as {self.dtype}: dims {dims}{steps}; box {box} */"


@dataclass(frozen=True)
class FlagArg:
    """An ``int`` parameter behind the tensor maps: 1 where the condition is not 0, else 0.

    Attributes:
        condition: an expression, with comparisons (``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` give 1 or 0) and the
            function ``encodable(map, …)``: 1 where every map named can be made for this launch.
    """

    name: str
    condition: str

    @property
    def declaration(self) -> str:
        """The parameter as C, with its condition in a comment."""
        return f"int {self.name} /* {self.condition} */"


@dataclass(frozen=True)
class BoundTensorMap:
    """A tensor map of one launch: all but the address of its array's buffer.

    Attributes:
        owner: the argument whose buffer the tensor lies in.
        offset_bytes: from the buffer's start to the tensor's.
        dims: elements, innermost first. pitches: bytes, of dims 1, 2, …. box: elements.
        obstacle: why no map can be made at these sizes, and 128 bytes of zeros are passed; "" where one is.
        swizzle_bytes: as in ``TensorMapArg``.
    """

    name: str
    owner: str
    dtype: DType
    dims: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, ...]
    offset_bytes: int = 0
    obstacle: str = ""
    swizzle_bytes: int = 0

    @property
    def param_bytes(self) -> int:
        """Bytes of the kernel's parameter."""
        return MAP_BYTES

    @property
    def element(self) -> str:
        """The element's type as ``CUtensorMapDataType`` has it, in lower case: ``uint8`` for int8 and 8-bit floats."""
        return element_of(self.dtype)


def element_of(dtype: DType) -> str:
    """What elements of a type are called where maps are made: see ``BoundTensorMap.element``."""
    return _TRAVELS_AS.get(dtype.name, dtype.name)


def bound_maps(
    spec: LaunchSpec,
    maps: tuple[TensorMapArg, ...],
    flags: tuple[FlagArg, ...],
    arrays: Mapping[str, BoundArray],
    names: Mapping[str, int | float],
) -> tuple[tuple[BoundTensorMap, ...], dict[str, int]]:
    """Evaluate the maps and flags of one launch: maps in order, flags by name (1 or 0).

    A map that cannot be made is passed as zeros where a flag that asks ``encodable`` about it is 0: the kernel then
    takes its other way.

    Args:
        names: what expressions may use: scalars, sizes, constants.

    Raises:
        TilewrightError: ``launch/tensor_map``, where a map cannot be made and no flag says so, or reaches beyond its
            array.
    """
    bound = tuple(_bound_map(spec, arg, arrays, names) for arg in maps)
    usable = {each.name: int(not each.obstacle) for each in bound}
    values: dict[str, int] = {}
    excused: set[str] = set()
    for flag in flags:
        condition = parse(flag.condition, spec.place(), FLAG_FUNCTIONS)
        values[flag.name] = int(condition.evaluate({**names, **usable}) != 0)
        if not values[flag.name]:
            excused |= asked_about(condition.root)
    for each in bound:
        if each.obstacle and each.name not in excused:
            hint = "Take another variant at these sizes, or give the kernel a flag with encodable() and another way."
            raise spec.error((), "tensor_map", f"the tensor map '{each.name}' cannot be made: {each.obstacle}.", hint)
    return bound, values


def _bound_map(
    spec: LaunchSpec, arg: TensorMapArg, arrays: Mapping[str, BoundArray], names: Mapping[str, int | float]
) -> BoundTensorMap:
    array = arrays.get(arg.array)
    if array is None:
        known = ", ".join(arrays)
        raise spec.error((), "tensor_map", f"the tensor map '{arg.name}' is of '{arg.array}'; arrays are {known}.")
    dtype = DTYPES[arg.dtype]
    dims, pitches = (tuple(_whole(spec, text, names) for text in texts) for texts in (arg.dims, arg.pitches))
    offset = _whole(spec, arg.offset, names)
    start = array.offset * array.dtype.item_bytes + offset * dtype.item_bytes
    swizzle = arg.swizzle_bytes
    bound = BoundTensorMap(arg.name, array.owner, dtype, dims, pitches, arg.box, start, swizzle_bytes=swizzle)
    obstacle = _obstacle(bound)
    if not obstacle:
        end = (offset + 1) * dtype.item_bytes
        end += sum((extent - 1) * step for extent, step in zip(dims, (dtype.item_bytes, *pitches), strict=True))
        have = array.storage_elements * array.dtype.item_bytes
        if offset < 0 or end > have:
            message = f"the tensor map '{arg.name}' reaches byte {end:,} of '{arg.array}', which has {have:,}."
            raise spec.error((), "tensor_map", message, "Its dims, pitches and offset must stay inside the array.")
    return replace(bound, obstacle=obstacle)


def _whole(spec: LaunchSpec, text: str, names: Mapping[str, int | float]) -> int:
    return parse(text, spec.place()).evaluate_int(names)


def _obstacle(bound: BoundTensorMap) -> str:
    """Why ``cuTensorMapEncodeTiled`` would refuse the map, as need and have; "" where it takes it."""
    rank = len(bound.dims)
    if not 1 <= rank <= MAX_RANK or len(bound.pitches) != rank - 1 or len(bound.box) != rank:
        have = f"{rank}, {len(bound.pitches)} and {len(bound.box)}"
        return f"it needs 1 to {MAX_RANK} dims, one pitch fewer and a box of as many; it has {have}"
    if bound.offset_bytes % ALIGN_BYTES:
        return f"its tensor must begin at a multiple of {ALIGN_BYTES} bytes; it begins at byte {bound.offset_bytes:,}"
    for axis, extent in enumerate(bound.dims):
        if not 1 <= extent <= MAX_EXTENT:
            return f"dims[{axis}] must be 1 to 2**32; it is {extent:,}"
    for axis, pitch in enumerate(bound.pitches):
        if pitch % ALIGN_BYTES or not 0 < pitch < PITCH_END_BYTES:
            return (
                f"pitches[{axis}] must be a multiple of {ALIGN_BYTES} bytes, above 0 and below 2**40; it is {pitch:,}"
            )
    for axis, extent in enumerate(bound.box):
        if not 1 <= extent <= MAX_BOX:
            return f"box[{axis}] must be 1 to {MAX_BOX} elements; it is {extent:,}"
    row_bytes = bound.box[0] * bound.dtype.item_bytes
    if row_bytes % ALIGN_BYTES:
        return f"a row of the box must be a multiple of {ALIGN_BYTES} bytes; it has {row_bytes}"
    if bound.swizzle_bytes not in SWIZZLES_BYTES:
        return f"its swizzle must be of 0, 32, 64 or 128 bytes; it is of {bound.swizzle_bytes}"
    if bound.swizzle_bytes and row_bytes > bound.swizzle_bytes:
        return f"a row of the box must fit into the swizzle's {bound.swizzle_bytes} bytes; it has {row_bytes}"
    return ""


def asked_about(node: Node) -> set[str]:
    """The maps that a flag's condition asks ``encodable`` about."""
    match node:
        case Unary(_, operand):
            return asked_about(operand)
        case Binary(_, left, right):
            return asked_about(left) | asked_about(right)
        case Call(function, arguments):
            if function == "encodable":
                return {argument.name for argument in arguments if isinstance(argument, Name)}
            return set().union(*(asked_about(argument) for argument in arguments))
    return set()
