"""Tensor copies, tiled mode: which bytes of a buffer a box is, and where its 16-byte chunks lie in shared memory.

PTX ISA, "Tiled Mode" (bounding box, traversal stride, out of boundary access) and "Swizzling Modes"; CUDA C++
Programming Guide, "Using TMA to transfer multi-dimensional arrays" (alignment, padding of narrow rows).

A box travels as ``uint8[n, box_bytes]``: n copies at once, dimension 0 innermost, without padding and unswizzled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.tensor import reductions
from tilewright.emulator.tensor.maps import TensorMap
from tilewright.emulator.tensor.swizzles import CHUNK_BYTES, SWIZZLES, Ints
from tilewright.errors import TilewrightError

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

SHARED_ALIGNMENT_BYTES = 128
# What "OOB-NaN" is in bits is not documented; this is what others saw on the hardware, in every 16 bits of an element.
_OOB_NAN = np.uint16(0x7FF7)


@dataclass(frozen=True)
class Rows:
    """The rows of boxes, in a buffer.

    Attributes:
        offset_bytes: int64[n, rows], of the row's first byte that is inside the tensor, from the start of the buffer.
        skipped_bytes: int64[n, rows], bytes of the row that lie in front of the tensor.
        span_bytes: int64[n, rows], bytes inside the tensor; 0 for a row outside.
    """

    offset_bytes: Ints
    skipped_bytes: Ints
    span_bytes: Ints


def check_mode(mode: str) -> None:
    """Refuse the load modes that are not modelled: all but ``tile``.

    Raises:
        TilewrightError: ``emulator/not_modelled``.
    """
    if mode != "tile":
        raise _not_modelled(f"tensor copies in mode {mode}")


def rows_of(tensor: TensorMap, coordinates: Ints) -> Rows:
    """Where the rows of boxes lie: for copies, and for the checks of global memory.

    Args:
        coordinates: int[n, rank], of each box's first element; negative and beyond the end are fine.
    """
    if tensor.interleave != "none":
        raise _not_modelled(f"interleave {tensor.interleave}")
    start = np.asarray(coordinates, np.int64)
    if start.ndim != 2 or start.shape[1] != tensor.rank:
        message = f"A box of rank {tensor.rank} needs coordinates [n, {tensor.rank}]; have shape {start.shape}."
        raise TilewrightError("emulator/coordinates", message)
    rows, inside = np.full((len(start), 1), tensor.offset_bytes, np.int64), np.ones((len(start), 1), np.bool_)
    for axis in range(1, tensor.rank):
        along = start[:, axis, None] + np.arange(tensor.counts[axis]) * tensor.steps[axis]
        valid = (along >= 0) & (along < tensor.dims[axis])
        # This dimension varies slower than the rows so far.
        rows = (rows[:, None, :] + (along * tensor.strides_bytes[axis - 1])[:, :, None]).reshape(len(start), -1)
        inside = (inside[:, None, :] & valid[:, :, None]).reshape(len(start), -1)
    first, size = start[:, :1], tensor.element_bytes
    low = np.clip(-first, 0, tensor.counts[0])
    high = np.clip(tensor.dims[0] - first, low, tensor.counts[0])
    span = np.where(inside, (high - low) * size, 0)
    skipped = np.broadcast_to(low * size, span.shape)
    return Rows(np.where(span > 0, rows + (first + low) * size, 0), np.where(span > 0, skipped, 0), span)


def gather(tensor: TensorMap, buffer: Bytes, coordinates: Ints) -> Bytes:
    """Load boxes: ``uint8[n, box_bytes]``, elements outside the tensor filled.

    Elements of a tfloat32 tensor are rounded to 10 mantissa bits, to nearest even, as the copy engine does.

    Args:
        buffer: uint8[…], the whole buffer that ``tensor.address`` lies in.
        coordinates: int[n, rank].

    Raises:
        TilewrightError: ``emulator/tensor_beyond_buffer`` where elements *inside* the tensor are outside the buffer.
    """
    rows = rows_of(tensor, coordinates)
    _check_buffer(rows, len(buffer))
    boxes = np.zeros((*rows.span_bytes.shape, tensor.inner_bytes), np.uint8)
    if tensor.oob_fill == "nan":
        boxes.view(np.uint16)[...] = _OOB_NAN
    whole, partial, index, inside = _parts(tensor, rows)
    if whole.any():
        boxes[whole] = _windows(buffer, tensor.inner_bytes)[rows.offset_bytes[whole]]
    if len(index):
        boxes[partial] = np.where(inside, buffer[index], boxes[partial])
    if tensor.element.startswith("tfloat32"):
        # What was filled stays as it is: zeros, or a NaN.
        boxes = _as_tf32(boxes)
    return boxes.reshape(len(boxes), -1)


def scatter(tensor: TensorMap, buffer: Bytes, coordinates: Ints, boxes: Bytes) -> None:
    """Store boxes into ``buffer``, which changes; elements outside the tensor are skipped. Later copies win.

    Args:
        buffer, coordinates: as for ``gather``. For stores the Programming Guide forbids negative coordinates: see
            ``negative_corners``.
        boxes: uint8[n, box_bytes].
    """
    rows = rows_of(tensor, coordinates)
    _check_buffer(rows, len(buffer))
    data = np.asarray(boxes, np.uint8).reshape(*rows.span_bytes.shape, tensor.inner_bytes)
    whole, partial, index, inside = _parts(tensor, rows)
    if whole.any():
        _windows(buffer, tensor.inner_bytes)[rows.offset_bytes[whole]] = data[whole]
    if len(index):
        buffer[index[inside]] = data[partial][inside]


def reduce(tensor: TensorMap, buffer: Bytes, coordinates: Ints, boxes: Bytes, operation: str) -> None:
    """``cp.reduce.async.bulk.tensor``: combine boxes with what is in ``buffer``, which changes. One copy after another.

    Args:
        operation: one of ``reductions.OPERATIONS``.

    Raises:
        TilewrightError: ``emulator/reduction`` for an element type that the operation does not have.
    """
    reductions.check(operation, tensor.element, reductions.TENSOR)
    if any(stride == 0 and count > 1 for stride, count in zip(tensor.strides_bytes, tensor.counts[1:], strict=True)):
        raise _not_modelled("reductions into a tensor with a stride of 0")
    for k, start in enumerate(np.asarray(coordinates, np.int64)):
        # Read, combine, write: what lies outside the tensor is combined too, and dropped.
        old = gather(tensor, buffer, start[None])
        scatter(tensor, buffer, start[None], reductions.combine(old, boxes[k : k + 1], operation, tensor.element))


def negative_corners(coordinates: Ints) -> Bools:
    """bool[n]: stores that start at a negative coordinate, which the Programming Guide forbids."""
    return np.asarray(np.any(np.asarray(coordinates) < 0, axis=1), np.bool_)


def row_pitch_bytes(tensor: TensorMap) -> int:
    """From one row to the next in shared memory: a row narrower than the swizzle takes the swizzle's full width."""
    return (
        max(tensor.inner_bytes, SWIZZLES[tensor.swizzle].width_bytes)
        if tensor.swizzle != "none"
        else tensor.inner_bytes
    )


def footprint_bytes(tensor: TensorMap) -> int:
    """Bytes of shared memory that a box may touch, from its address on: the padding of narrow rows included."""
    return row_pitch_bytes(tensor) * tensor.rows


def misplaced(tensor: TensorMap, coordinates: Ints) -> Bools:
    """bool[n]: boxes that do not begin at a multiple of 16 bytes along dimension 0, which an H200 refuses as an illegal
    instruction (elements in front of the tensor and beyond it count too)."""
    first = np.asarray(coordinates, np.int64)[:, 0]
    return np.asarray(first * tensor.element_bytes % CHUNK_BYTES != 0, np.bool_)


def misaligned(shared_address: Ints) -> Bools:
    """bool[n]: absolute shared addresses that no tensor copy may have; they must be aligned to 128 bytes."""
    return np.asarray(np.asarray(shared_address) % SHARED_ALIGNMENT_BYTES != 0, np.bool_)


def shared_addresses(tensor: TensorMap, shared_address: Ints) -> Ints:
    """int64[n, box_bytes // 16]: the absolute shared address of each 16-byte chunk of a box, swizzled.

    Args:
        shared_address: int[n] or one int: the absolute shared address of each box (not an offset into some array: the
            swizzle takes its bits).
    """
    if tensor.swizzle not in SWIZZLES:
        raise _not_modelled(f"swizzle {tensor.swizzle}")
    row = np.arange(tensor.rows, dtype=np.int64)[:, None] * row_pitch_bytes(tensor)
    chunks = (row + np.arange(0, tensor.inner_bytes, CHUNK_BYTES, dtype=np.int64)).reshape(-1)
    start = np.atleast_1d(np.asarray(shared_address, np.int64))
    return SWIZZLES[tensor.swizzle].apply(start[:, None] + chunks)


def _not_modelled(what: str) -> TilewrightError:
    return TilewrightError("emulator/not_modelled", f"The emulator does not model {what}.", {"what": what})


def _check_buffer(rows: Rows, buffer_bytes: int) -> None:
    touched = rows.span_bytes > 0
    low = np.min(rows.offset_bytes, where=touched, initial=0)
    high = np.max(rows.offset_bytes + rows.span_bytes, where=touched, initial=0)
    if low < 0 or high > buffer_bytes:
        message = (
            f"A tensor map needs its tensor inside the buffer of {buffer_bytes} bytes; a copy reaches byte {high}."
        )
        raise TilewrightError(
            "emulator/tensor_beyond_buffer", message, {"have_bytes": buffer_bytes, "need_bytes": int(high)}
        )


def _windows(buffer: Bytes, width_bytes: int) -> Bytes:
    """uint8[start, width_bytes]: a view of ``buffer`` from every start, so that one index picks a whole row."""
    shape, strides = (len(buffer) - width_bytes + 1, width_bytes), (buffer.strides[0],) * 2
    return np.lib.stride_tricks.as_strided(buffer, shape, strides)


def _parts(tensor: TensorMap, rows: Rows) -> tuple[Bools, Bools, Ints, Bools]:
    """Rows that are whole, rows that are cut; of the cut ones, int64[cut, inner_bytes] indices and which count."""
    whole = rows.span_bytes == tensor.inner_bytes
    partial = ~whole & (rows.span_bytes > 0)
    place = np.arange(tensor.inner_bytes, dtype=np.int64)
    skipped, span = rows.skipped_bytes[partial][:, None], rows.span_bytes[partial][:, None]
    inside = (place >= skipped) & (place < skipped + span)
    index = np.where(inside, rows.offset_bytes[partial][:, None] - skipped + place, 0)
    return whole, partial, index, inside


def _as_tf32(boxes: Bytes) -> Bytes:
    """float32 as bytes, rounded to tf32; infinities and NaN stay."""
    bits = boxes.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where((bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000), bits, rounded).view(np.uint8)
