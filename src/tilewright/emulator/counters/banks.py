"""How often a warp's access to shared memory has to be replayed: 32 banks of 4 bytes, one word each per wavefront."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BANKS = 32
WORD_BYTES = 4


def bank_conflicts(addresses: IntArray, active: Mask, size: int) -> tuple[IntArray, IntArray]:
    """Wavefronts of each warp request.

    Lanes that want the same word share it. Accesses of 8 bytes go by half-warps, those of 16 bytes by quarter-warps
    (CUDA C++ Programming Guide, "Shared Memory").

    Args:
        addresses: int64[W, 32], bytes from the start of shared memory, multiples of ``size``. active: bool[W, 32].
        size: bytes of each lane's access: 1, 2, 4, 8 or 16.

    Returns:
        int64[W] each: wavefronts, and those of the same lanes without conflicts.
    """
    words_each = max(1, size // WORD_BYTES)
    lanes = 32 // words_each
    words = (addresses // WORD_BYTES).reshape(-1, lanes)
    takes_part = active.reshape(-1, lanes)
    if words_each > 1:
        words = (words[:, :, None] + np.arange(words_each)).reshape(len(words), -1)
        takes_part = np.repeat(takes_part, words_each, axis=1)
    ideal = takes_part.any(axis=1).astype(np.int64)
    degree = _most_in_a_bank(words, takes_part)
    crowded = np.flatnonzero(degree > 1)
    if len(crowded):
        degree[crowded] = _most_in_a_bank(*_distinct(words[crowded], takes_part[crowded]))
    return degree.reshape(len(addresses), -1).sum(axis=1), ideal.reshape(len(addresses), -1).sum(axis=1)


def _most_in_a_bank(words: IntArray, takes_part: Mask) -> IntArray:
    """For each row, the largest number of its words in one bank."""
    bank = (np.arange(len(words)) * BANKS)[:, None] + words % BANKS
    counts = np.bincount(bank[takes_part], minlength=len(words) * BANKS)
    most: IntArray = counts.reshape(-1, BANKS).max(axis=1, initial=0)
    return most


def _distinct(words: IntArray, takes_part: Mask) -> tuple[IntArray, Mask]:
    """Each row's words, every one once."""
    some = np.take_along_axis(words, takes_part.argmax(axis=1)[:, None], axis=1)
    ordered = np.sort(np.where(takes_part, words, some), axis=1)
    first = np.ones(ordered.shape, np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first[~np.asarray(takes_part.any(axis=1))] = False
    return ordered, first
