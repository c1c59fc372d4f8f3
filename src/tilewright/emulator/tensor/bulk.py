"""Bulk copies without a tensor map: what they require, and whom a multicast reaches.

PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch": addresses are aligned to 16 bytes and the
size is a multiple of 16. Anything else is undefined, so it is reported, not emulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]] | np.generic | int
Bools = np.ndarray[Any, np.dtype[np.bool_]]

UNIT_BYTES = 16
MASK_BITS = 16


@dataclass(frozen=True)
class CopyFaults:
    """Which of n copies break a rule, each bool[n].

    Attributes:
        size: not a multiple of 16 bytes.
        destination, source: not aligned to 16 bytes.
    """

    size: Bools
    destination: Bools
    source: Bools

    @property
    def any(self) -> Bools:
        """bool[n]: copies with any fault."""
        return np.asarray(self.size | self.destination | self.source, np.bool_)

    def describe(self, copy: int) -> str:
        """What is wrong with one copy; "" where nothing is."""
        rules = (
            (self.size, "a size that is a multiple of 16 bytes"),
            (self.destination, "a destination aligned to 16 bytes"),
            (self.source, "a source aligned to 16 bytes"),
        )
        return "; ".join(f"a bulk copy needs {rule}" for faults, rule in rules if faults[copy])


@dataclass(frozen=True)
class Multicast:
    """Whom a copy with ``.multicast::cluster`` reaches.

    Attributes:
        ranks: ``%cluster_ctarank`` of the destination blocks, ascending. Data and the mbarrier's signal land at the
            same offsets in the shared memory of each.
        strays: ranks that the mask names and that the cluster does not have.
    """

    ranks: tuple[int, ...]
    strays: tuple[int, ...]


def copy_faults(destination: Array, source: Array, size_bytes: Array) -> CopyFaults:
    """Check n copies. Arguments: int[n] or one value for all; addresses as the kernel has them."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(value)) for value in (size_bytes, destination, source)))
    return CopyFaults(*(np.asarray(value % UNIT_BYTES != 0, np.bool_) for value in arrays))


def prefetch_faults(source: Array, size_bytes: Array) -> CopyFaults:
    """Check n prefetches (``cp.async.bulk.prefetch.L2``), which otherwise change nothing that a kernel can see."""
    return copy_faults(0, source, size_bytes)


def multicast(cta_mask: int, cluster_blocks: int) -> Multicast:
    """Read a 16-bit ``ctaMask``: bit k is the block with ``%cluster_ctarank`` k."""
    ranks = [rank for rank in range(MASK_BITS) if int(cta_mask) >> rank & 1]
    return Multicast(tuple(r for r in ranks if r < cluster_blocks), tuple(r for r in ranks if r >= cluster_blocks))
