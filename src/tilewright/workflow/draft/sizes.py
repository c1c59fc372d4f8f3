"""Values for the sizes of a draft: small and distinct for the first run, ragged, and the set that is timed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

BATCH = re.compile(r"(?i)(b|bs|batch\w*|nh|h|num_?heads?|n_?heads?|heads?|groups?|blocks_[xyz])")
WIDTH = re.compile(r"(?i)(d|head_?dim\w*|d_?head|hd|hs|head_?size)")
REDUCTION = re.compile(r"(?i)(k|k_?dim|dim_?k|ic|c|in_?channels?|wa)")
DEFAULT_EXTENT = 1024
HEAD_WIDTH = 64
SMALLEST_UNIT, LARGEST_UNIT = 16, 256


def unit_of(multipliers: Sequence[int]) -> int:
    """What extents have to be multiples of: the largest step of a block index, within reason."""
    return min(max([SMALLEST_UNIT, *(m for m in multipliers if m <= LARGEST_UNIT)]), LARGEST_UNIT)


def first_sizes(names: Sequence[str], unit: int) -> dict[str, int]:
    """Distinct values whose products tell the sizes apart, as small as a few tiles allow."""
    out: dict[str, int] = {}
    extents = iter((2 * unit, 3 * unit, 5 * unit, 7 * unit, 11 * unit, 13 * unit))
    batches = iter((2, 3, 5, 7, 11, 13))
    for name in names:
        if BATCH.fullmatch(name) and len(names) > 1 and not _is_matrix(names):
            out[name] = next(batches, 2)
        elif WIDTH.fullmatch(name):
            out[name] = HEAD_WIDTH
        elif REDUCTION.fullmatch(name) and len(names) > 1:
            out[name] = max(unit, 64) if max(unit, 64) not in out.values() else 4 * max(unit, 64)
        else:
            out[name] = next(extents, 17 * unit)
    return out


def other_sizes(first: Mapping[str, int], unit: int) -> dict[str, int]:
    """Other values of the same kind, so that a product that fits both runs fits by no coincidence."""
    kinds = {n: "batch" if v < SMALLEST_UNIT else "fixed" if WIDTH.fullmatch(n) else "extent" for n, v in first.items()}
    batches = [n for n in first if kinds[n] == "batch"]
    extents = [n for n in first if kinds[n] == "extent"]
    out = dict(first)
    for index, name in enumerate(batches):
        out[name] = first[batches[(index + 1) % len(batches)]] + (len(batches) == 1)
    for index, name in enumerate(extents):
        other = first[extents[(index + 1) % len(extents)]]
        out[name] = other if other % unit == 0 and len(extents) > 1 else first[name] + 3 * unit
    return out


def _is_matrix(names: Sequence[str]) -> bool:
    """``h``, ``w`` and the like beside M, N, K are extents; alone they count heads."""
    return {"w"} <= {n.lower() for n in names}


def ragged_sizes(first: Mapping[str, int], guarded: Sequence[str], off: int) -> dict[str, int]:
    """The sizes that the kernel guards, ``off`` below their multiple; the others as they are."""
    return {name: max(1, value - off) if name in guarded else value for name, value in first.items()}


def default_sizes(first: Mapping[str, int], unit: int) -> dict[str, int]:
    """The set that is timed: extents near 1,024, in the multiples that the first run had."""
    out: dict[str, int] = {}
    wide = [n for n, v in first.items() if v >= unit and not WIDTH.fullmatch(n)]
    most = DEFAULT_EXTENT if len(wide) <= 3 else DEFAULT_EXTENT // 4
    for name, value in first.items():
        out[name] = value if name not in wide else max(value, most // unit * unit)
    return out


def guarded_names(names: Sequence[str], body: str) -> list[str]:
    """Sizes that something is compared with outside the heads of loops."""
    plain = re.sub(r"\bfor\s*\((?:[^()]|\([^()]*\))*\)", "for ()", body)
    return [
        n for n in names if re.search(rf"[<>]=?\s*(?:\(\s*\w+\s*\)\s*)?{re.escape(n)}\b|\b{re.escape(n)}\s*[<>]", plain)
    ]
