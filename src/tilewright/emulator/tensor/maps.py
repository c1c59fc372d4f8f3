"""Tensor maps: what ``cuTensorMapEncodeTiled`` makes of a tensor and a box, and 128 bytes of the emulator's own for it.

The layout of ``CUtensorMap`` on the hardware is not documented, so a map is encoded in a format of the emulator's own:
a kernel only passes the 128 bytes around (a ``__grid_constant__`` parameter, or global memory), and never looks inside.
The requirements are those of CUDA Driver API, "Tensor Map Object Management", ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilewright.emulator.tensor.swizzles import SWIZZLES
from tilewright.errors import TilewrightError

MAP_BYTES = 128
ADDRESS_SHIFT = 40

# In the order of CUtensorMapDataType. 8-bit floats travel as uint8, as the driver has no type for them.
ELEMENT_BYTES: Mapping[str, int] = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float16": 2, "float32": 4, "float64": 8,
    "bfloat16": 2, "float32_ftz": 4, "tfloat32": 4, "tfloat32_ftz": 4,
}  # fmt: skip
# In the order of CUtensorMapInterleave, CUtensorMapSwizzle and CUtensorMapFloatOOBfill.
INTERLEAVES = ("none", "16B", "32B")
SWIZZLE_NAMES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
OOB_FILLS = ("zeros", "nan")

_MAGIC = b"TWTENSOR"
# magic, five enumerations and the rank, address, dims - 1, strides, box, element strides
_LAYOUT = struct.Struct("<8s5B3xQ5I4Q5H5B")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that one copy moves. Dimension 0 is the innermost one.

    Attributes:
        element: a name of ``ELEMENT_BYTES``.
        address: of the element with all coordinates 0: ``buffer_id << 40 | offset_bytes``.
        dims: elements along each of 1 to 5 dimensions.
        strides_bytes: from one element to the next along dimensions 1, 2, …: one fewer than ``dims``.
        box: elements that are *passed over* along each dimension; with a step, fewer are copied.
        element_strides: the step along each dimension ("traversal stride"). The first is ignored unless interleaved.
        interleave: none, 16B or 32B.
        swizzle: a name of ``SWIZZLE_NAMES``.
        oob_fill: what a load puts where the box leaves the tensor.

    Raises:
        TilewrightError: ``emulator/tensor_map``, where the driver would refuse the map.
    """

    element: str
    address: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: str = "none"
    swizzle: str = "none"
    oob_fill: str = "zeros"

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        _check_names(self)
        _check_tensor(self)
        _check_box(self)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element]

    @property
    def is_float(self) -> bool:
        return "float" in self.element

    @property
    def buffer_id(self) -> int:
        return self.address >> ADDRESS_SHIFT

    @property
    def offset_bytes(self) -> int:
        """Where the tensor starts in its buffer."""
        return self.address & ((1 << ADDRESS_SHIFT) - 1)

    @property
    def steps(self) -> tuple[int, ...]:
        """``element_strides`` as they act: without interleaving there is no step along dimension 0."""
        return self.element_strides if self.interleave != "none" else (1, *self.element_strides[1:])

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that are copied along each dimension: ceil(box / step)."""
        return tuple(-(-box // step) for box, step in zip(self.box, self.steps, strict=True))

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row of the box."""
        return self.counts[0] * self.element_bytes

    @property
    def rows(self) -> int:
        """Rows of the box."""
        return prod(self.counts[1:])

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves. A load adds that many to an mbarrier's count, elements outside included."""
        return self.inner_bytes * self.rows

    def encode(self) -> bytes:
        """128 bytes that ``decode`` reads. Own format: see the module."""
        body = _LAYOUT.pack(
            _MAGIC,
            self.rank,
            list(ELEMENT_BYTES).index(self.element),
            INTERLEAVES.index(self.interleave),
            SWIZZLE_NAMES.index(self.swizzle),
            OOB_FILLS.index(self.oob_fill),
            self.address,
            # A dimension may be 2**32 itself.
            *_padded([size - 1 for size in self.dims], 5),
            *_padded(self.strides_bytes, 4),
            *_padded(self.box, 5),
            *_padded(self.element_strides, 5),
        )
        return (body + _CHECKSUM.pack(zlib.crc32(body))).ljust(MAP_BYTES, b"\0")


def decode(encoded: bytes) -> TensorMap | None:
    """Read what ``TensorMap.encode`` wrote; None where the 128 bytes are no such map, or were changed."""
    body, end = encoded[: _LAYOUT.size], _LAYOUT.size + _CHECKSUM.size
    if (
        len(encoded) != MAP_BYTES
        or body[:8] != _MAGIC
        or encoded[_LAYOUT.size : end] != _CHECKSUM.pack(zlib.crc32(body))
    ):
        return None
    _, rank, element, interleave, swizzle, oob_fill, address, *rest = _LAYOUT.unpack(body)
    return TensorMap(
        element=list(ELEMENT_BYTES)[element],
        address=address,
        dims=tuple(size + 1 for size in rest[:rank]),
        strides_bytes=tuple(rest[5 : 4 + rank]),
        box=tuple(rest[9 : 9 + rank]),
        element_strides=tuple(rest[14 : 14 + rank]),
        interleave=INTERLEAVES[interleave],
        swizzle=SWIZZLE_NAMES[swizzle],
        oob_fill=OOB_FILLS[oob_fill],
    )


def _padded(values: list[int] | tuple[int, ...], length: int) -> list[int]:
    return [*values, *[0] * (length - len(values))]


def _refuse(field: str, need: str, have: object) -> TilewrightError:
    message = f"A tensor map needs {field} {need}; have {have}."
    return TilewrightError("emulator/tensor_map", message, {"field": field, "need": need, "have": have})


def _check_names(tensor: TensorMap) -> None:
    choices = (
        ("element", tensor.element, tuple(ELEMENT_BYTES)),
        ("interleave", tensor.interleave, INTERLEAVES),
        ("swizzle", tensor.swizzle, SWIZZLE_NAMES),
        ("oob_fill", tensor.oob_fill, OOB_FILLS),
    )
    for field, have, allowed in choices:
        if have not in allowed:
            raise _refuse(field, f"out of {', '.join(allowed)}", have)
    if tensor.oob_fill == "nan" and not tensor.is_float:
        raise _refuse("oob_fill", "zeros for an integer element", f"nan for {tensor.element}")
    if tensor.interleave == "32B" and tensor.swizzle != "32B":
        raise _refuse("swizzle", "32B with interleave 32B", tensor.swizzle)


def _check_tensor(tensor: TensorMap) -> None:
    least = 1 if tensor.interleave == "none" else 3
    if not least <= tensor.rank <= 5:
        raise _refuse("rank", f"{least} to 5 with interleave {tensor.interleave}", tensor.rank)
    for field, length in (("strides_bytes", tensor.rank - 1), ("box", tensor.rank), ("element_strides", tensor.rank)):
        if len(getattr(tensor, field)) != length:
            raise _refuse(field, f"with {length} entries for rank {tensor.rank}", getattr(tensor, field))
    unit = 32 if tensor.interleave == "32B" else 16
    if tensor.address % unit or not 0 <= tensor.address < 1 << 64:
        raise _refuse("address", f"aligned to {unit} bytes", hex(tensor.address))
    if not all(1 <= size <= 1 << 32 for size in tensor.dims):
        raise _refuse("dims", "from 1 to 2**32", tensor.dims)
    if not all(0 <= stride < 1 << 40 and stride % unit == 0 for stride in tensor.strides_bytes):
        raise _refuse("strides_bytes", f"in multiples of {unit} below 2**40", tensor.strides_bytes)


def _check_box(tensor: TensorMap) -> None:
    if not all(1 <= size <= 256 for size in tensor.box):
        raise _refuse("box", "from 1 to 256", tensor.box)
    if not all(1 <= step <= 8 for step in tensor.element_strides):
        raise _refuse("element_strides", "from 1 to 8", tensor.element_strides)
    if tensor.interleave != "none":
        return
    if tensor.inner_bytes % 16:
        raise _refuse("box[0]", "of a multiple of 16 bytes", f"{tensor.inner_bytes} bytes")
    width_bytes = SWIZZLES[tensor.swizzle].width_bytes if tensor.swizzle in SWIZZLES else 128
    if tensor.swizzle != "none" and tensor.inner_bytes > width_bytes:
        raise _refuse(
            "box[0]", f"of at most {width_bytes} bytes with swizzle {tensor.swizzle}", f"{tensor.inner_bytes} bytes"
        )
