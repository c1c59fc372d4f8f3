"""How often a warp's access to shared memory has to be replayed: 32 banks of 4 bytes, one word each per wavefront."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.layout.banks import shared_memory

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BANKS = 32
WORD_BYTES = 4


def bank_conflicts(addresses: IntArray, active: Mask, size: int, is_load: bool = False) -> tuple[IntArray, IntArray]:
    """Wavefronts of each warp request.

    Lanes that want the same word share it. Accesses of 8 bytes go by half-warps, those of 16 bytes by quarter-warps
    (CUDA C++ Programming Guide, "Shared Memory"), two such phases at once where a load's lanes share in pairs: the rule
    and its sources are those of `tilewright.layout.banks`, here for many requests together.

    Args:
        addresses: int64[W, 32], bytes from the start of shared memory, multiples of ``size``. active: bool[W, 32].
        size: bytes of each lane's access: 1, 2, 4, 8 or 16.
        is_load: an ordinary load; not a store, an atomic, or a matrix load.

    Returns:
        int64[W] each: wavefronts, and those of the same lanes without conflicts.
    """
    wavefronts, ideal = _in_phases(addresses, active, size, 1)
    if is_load and size in shared_memory()["sharing"]["widths_bytes"]:
        pairs = np.flatnonzero(_share_in_pairs(addresses, active))
        if len(pairs):
            wavefronts[pairs], ideal[pairs] = _in_phases(addresses[pairs], active[pairs], size, 2)
    return wavefronts, ideal


def _share_in_pairs(addresses: IntArray, active: Mask) -> Mask:
    """bool[W]: each active lane's partner is active, too, and has its address."""
    partner = np.arange(addresses.shape[1]) ^ int(shared_memory()["sharing"]["partner"])
    alike: Mask = (addresses == addresses[:, partner]) | ~active
    return np.asarray((alike & (active == active[:, partner])).all(axis=1))


def _in_phases(addresses: IntArray, active: Mask, size: int, merged: int) -> tuple[IntArray, IntArray]:
    """As `bank_conflicts`, with so many phases at once."""
    # An aligned access of 8 or 16 bytes takes 2 or 4 banks whole: count in such units.
    unit_bytes = max(WORD_BYTES, size)
    banks = BANKS * WORD_BYTES // unit_bytes
    lanes = 32 * WORD_BYTES // unit_bytes * merged
    units = (addresses // unit_bytes).reshape(-1, lanes)
    takes_part = active.reshape(-1, lanes)
    ideal = takes_part.any(axis=1).astype(np.int64)
    degree = _most_in_a_bank(units, takes_part, banks)
    crowded = np.flatnonzero(degree > 1)
    if len(crowded):
        degree[crowded] = _most_in_a_bank(*_distinct(units[crowded], takes_part[crowded]), banks)
    return degree.reshape(len(addresses), -1).sum(axis=1), ideal.reshape(len(addresses), -1).sum(axis=1)


def _most_in_a_bank(units: IntArray, takes_part: Mask, banks: int) -> IntArray:
    """For each row, the largest number of its units in one bank."""
    bank = (np.arange(len(units)) * banks)[:, None] + units % banks
    counts = np.bincount(bank.reshape(-1) if takes_part.all() else bank[takes_part], minlength=len(units) * banks)
    most: IntArray = counts.reshape(-1, banks).max(axis=1, initial=0)
    return most


def _distinct(units: IntArray, takes_part: Mask) -> tuple[IntArray, Mask]:
    """Each row's units, every one once."""
    some = np.take_along_axis(units, takes_part.argmax(axis=1)[:, None], axis=1)
    ordered = np.sort(np.where(takes_part, units, some), axis=1)
    first = np.ones(ordered.shape, np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first[~np.asarray(takes_part.any(axis=1))] = False
    return ordered, first
