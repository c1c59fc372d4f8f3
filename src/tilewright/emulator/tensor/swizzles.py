"""The swizzles of shared memory: which address bits are exchanged.

PTX ISA, "Swizzling Modes" (tensors) and "Canonical Layouts" (wgmma, ``Swizzle<B, 4, 3>``): the bits from 7 upwards, the
number of the 128-byte line, are XORed into the number of the atom inside the line. The bits are those of the *absolute*
shared address: a buffer that does not start where the pattern starts is shifted against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

LINE_SHIFT = 7
CHUNK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Swizzle:
    """One mode.

    Attributes:
        width_bytes: of a row of the pattern; a box of a tensor copy has rows of at most that many bytes.
        atom_bytes: bytes that stay together.
        line_mask: the bits of the line number that are XORed into the atom number.
    """

    width_bytes: int
    atom_bytes: int
    line_mask: int

    @property
    def period_bytes(self) -> int:
        """After how many bytes the pattern repeats."""
        return (self.line_mask + 1) << LINE_SHIFT

    def apply(self, address: Ints) -> Ints:
        """Absolute shared addresses of any shape, before the swizzle -> where the bytes are. Its own inverse."""
        if self.line_mask == 0:
            return address
        return address ^ (((address >> LINE_SHIFT) & self.line_mask) * self.atom_bytes)


# The names are those of CUtensorMapSwizzle.
SWIZZLES: Mapping[str, Swizzle] = {
    "none": Swizzle(CHUNK_BYTES, 16, 0),
    "32B": Swizzle(32, 16, 1),
    "64B": Swizzle(64, 16, 3),
    "128B": Swizzle(128, 16, 7),
    "128B_ATOM_32B": Swizzle(128, 32, 3),
    "128B_ATOM_64B": Swizzle(128, 64, 1),
}
