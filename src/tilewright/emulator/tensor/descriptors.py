"""Matrix descriptors of wgmma: where the 16-byte chunks of an operand lie in shared memory.

PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout": "Matrix Descriptor Format" (fields), "Strides" and
"Canonical Layouts". With T the elements of 16 bytes and W the chunks of a swizzle's row (1, 2, 4, 8), in chunks:

==========  ========  =============================  =========================================
major       swizzle   rows (M or N)                  K
==========  ========  =============================  =========================================
K           none      8 rows by 1, groups by SBO     chunk after chunk by LBO
K           32-128B   8 rows by W, groups by SBO     chunk after chunk by 1 (LBO is not used)
M or N      none      chunk after chunk by SBO       8 k by 1, groups by LBO
M or N      32-128B   W chunks by 1, groups by LBO   8 k by W, groups by SBO
==========  ========  =============================  =========================================

The swizzle then acts on the absolute address, so that a descriptor may point inside a pattern (K advanced by 32 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.tensor.swizzles import CHUNK_BYTES, LINE_SHIFT, SWIZZLES, Ints
from tilewright.errors import TilewrightError

# By the two top bits of a descriptor.
SWIZZLE_MODES = ("none", "128B", "64B", "32B")
_WIDTH_BYTES = np.array([SWIZZLES[name].width_bytes for name in SWIZZLE_MODES], np.int64)
_LINE_MASK = np.array([SWIZZLES[name].line_mask for name in SWIZZLE_MODES], np.int64)

_FIELD_MASK = 0x3FFF


@dataclass(frozen=True)
class Descriptors:
    """The fields of D descriptors, each int64[D].

    Attributes:
        start_bytes: absolute shared address of the operand.
        leading_bytes, stride_bytes: "leading dimension byte offset" and "stride dimension byte offset" (LBO, SBO).
        base_offset: 0 where the swizzle's pattern starts on its natural boundary; else bits 7-9 of where it starts.
        mode: index into ``SWIZZLE_MODES``.
    """

    start_bytes: Ints
    leading_bytes: Ints
    stride_bytes: Ints
    base_offset: Ints
    mode: Ints


def decode(descriptors: np.ndarray[Any, np.dtype[Any]] | np.generic | int) -> Descriptors:
    """Read 64-bit descriptors: int64 or uint64, an array [D] or one scalar (D = 1)."""
    bits = np.atleast_1d(np.asarray(descriptors)).astype(np.uint64, copy=False)

    def field(shift: int, mask: int) -> Ints:
        return ((bits >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)

    # Start and offsets are encoded as (x & 0x3FFFF) >> 4.
    start, leading, stride = (field(shift, _FIELD_MASK) << 4 for shift in (0, 16, 32))
    return Descriptors(start, leading, stride, field(49, 7), field(62, 3))


def encode(start_bytes: int, leading_bytes: int, stride_bytes: int, swizzle: str, base_offset: int = 0) -> int:
    """The 64 bits of one descriptor, unsigned. The inverse of ``decode``."""
    start, leading, stride = ((value & 0x3FFFF) >> 4 for value in (start_bytes, leading_bytes, stride_bytes))
    return start | leading << 16 | stride << 32 | base_offset << 49 | SWIZZLE_MODES.index(swizzle) << 62


def chunk_addresses(fields: Descriptors, rows: int, k_bytes: int, element_bytes: int, k_major: bool) -> Ints:
    """Absolute shared addresses of the 16-byte chunks of operands.

    Args:
        rows: M (64) or N (8 to 256).
        k_bytes: bytes of one row along K: 32 (64 for the dense operand of a sparse product).
        element_bytes: 1, 2 or 4.
        k_major: False for an operand that is transposed (``imm-trans-a``, ``imm-trans-b`` 1).

    Returns:
        int64[D, rows, k_bytes // 16] K-major; int64[D, k, rows * element_bytes // 16] M- or N-major. ``assemble`` makes
        a matrix of what lies there.

    Raises:
        TilewrightError: ``emulator/descriptor``, for an operand that wgmma does not have.
    """
    _check(rows, k_bytes, element_bytes, k_major)
    fields = _shared(fields)
    lead, stride, width = (_column(x) for x in (fields.leading_bytes, fields.stride_bytes, _WIDTH_BYTES[fields.mode]))
    plain = _column(fields.mode) == 0
    if k_major:
        row, chunk = np.arange(rows)[:, None], np.arange(k_bytes // CHUNK_BYTES)
        offsets = row // 8 * stride + row % 8 * width + chunk * np.where(plain, lead, CHUNK_BYTES)
    else:
        k, chunk = np.arange(k_bytes // element_bytes)[:, None], np.arange(rows * element_bytes // CHUNK_BYTES)
        per_row = width // CHUNK_BYTES
        offsets = k // 8 * np.where(plain, lead, stride) + k % 8 * width
        offsets = offsets + chunk // per_row * np.where(plain, stride, lead) + chunk % per_row * CHUNK_BYTES
    return _swizzled(_column(fields.start_bytes) + offsets, fields)


def assemble(
    chunks: np.ndarray[Any, np.dtype[np.uint8]], element_bytes: int, k_major: bool
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Make matrices of the chunks at ``chunk_addresses``.

    Args:
        chunks: uint8[D, rows, k_chunks, 16] K-major; uint8[D, k, row_chunks, 16] M- or N-major.

    Returns:
        uint8[D, rows, k_bytes]: element (row, k) at byte ``k * element_bytes`` of the row. A K-major one may be a view.
    """
    flat = chunks.reshape(*chunks.shape[:2], -1)
    if k_major:
        return flat
    elements = flat.reshape(*flat.shape[:2], -1, element_bytes)
    return np.ascontiguousarray(elements.transpose(0, 2, 1, 3)).reshape(len(flat), elements.shape[2], -1)


def _check(rows: int, k_bytes: int, element_bytes: int, k_major: bool) -> None:
    if not k_major and element_bytes != 2:
        message = f"An operand that is M- or N-major needs elements of 2 bytes; have {element_bytes}."
        raise TilewrightError("emulator/descriptor", message)
    if rows % 8 or not 8 <= rows <= 256 or k_bytes % 32:
        message = f"An operand needs 8, 16, … 256 rows and K in multiples of 32 bytes; have {rows} and {k_bytes}."
        raise TilewrightError("emulator/descriptor", message)


def _column(values: Ints) -> Ints:
    return values[:, None, None]


def _shared(fields: Descriptors) -> Descriptors:
    """Fields that are the same in all descriptors, but for the start, as one entry: offsets are then computed once."""
    others = (fields.leading_bytes, fields.stride_bytes, fields.base_offset, fields.mode)
    if all(np.all(x == x[:1]) for x in others):
        return Descriptors(fields.start_bytes, *(x[:1] for x in others))
    return fields


def _swizzled(address: Ints, fields: Descriptors) -> Ints:
    mask = _column(_LINE_MASK[fields.mode])
    if not mask.any():
        return address
    # A pattern that starts off its boundary says so in base_offset: its first line is then line 0 of the pattern.
    line = (address >> LINE_SHIFT) - _column(fields.base_offset)
    return address ^ ((line & mask) * CHUNK_BYTES)
