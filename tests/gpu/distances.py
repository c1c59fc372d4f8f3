"""How far results are apart, in units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# bits, bits of the mantissa
FLOATS = {"f32": (32, 23), "f64": (64, 52), "f16": (16, 10), "bf16": (16, 7), "e4m3": (8, 3), "e5m2": (8, 2)}


def compare(type_: str, got: Array, want: Array) -> dict[str, Any]:
    """Two buffers of bytes.

    Returns:
        count, differ (elements, NaNs of any payload being the same), and of a float type: ``nan_payloads`` (NaNs with
        other bits), ``ulp`` (the largest distance between numbers in units in the last place, infinities being the
        next after the largest number), ``special`` (NaN or infinity on one side alone), ``of_largest`` (the largest
        distance in units of eps times the largest finite magnitude of the 128 elements around), ``first``: index, got,
        want in hexadecimal.
    """
    one = type_.removesuffix("x2")
    bits = FLOATS[one][0] if one in FLOATS else 8 * max(width_bytes(type_), 1)
    left, right = got.view(f"u{bits // 8}"), want.view(f"u{bits // 8}")
    differs = left != right
    out: dict[str, Any] = {"count": int(left.size), "differ": int(differs.sum())}
    if one in FLOATS:
        out |= _floats(one, left, right, differs)
        differs &= ~(is_nan(one, left) & is_nan(one, right))
        out["differ"] = int(differs.sum())
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        out["first"] = [at, hex(int(left[at])), hex(int(right[at]))]
    return out


def width_bytes(type_: str) -> int:
    digits = "".join(c for c in type_ if c.isdigit())
    return 1 if type_ == "pred" else int(digits) // 8


def is_nan(type_: str, bits: Array) -> Array:
    size, mantissa = FLOATS[type_]
    magnitude = bits & bits.dtype.type((1 << (size - 1)) - 1)
    if type_ == "e4m3":
        return magnitude == 0x7F
    infinity = ((1 << (size - 1 - mantissa)) - 1) << mantissa
    return magnitude > infinity


def ordered(type_: str, bits: Array) -> Array:
    """Integers that count the numbers of a format upwards from zero."""
    size = FLOATS[type_][0]
    magnitude = (bits & bits.dtype.type((1 << (size - 1)) - 1)).astype(np.int64)
    return np.where(bits >> bits.dtype.type(size - 1) != 0, -magnitude, magnitude)


def values(type_: str, bits: Array) -> Array:
    """float64, of f16, bf16, f32 and f64."""
    if type_ == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(f"f{bits.dtype.itemsize}").astype(np.float64)


def _floats(type_: str, left: Array, right: Array, differs: Array) -> dict[str, Any]:
    nans = is_nan(type_, left), is_nan(type_, right)
    numbers = ~(nans[0] | nans[1])
    ulp = np.abs(ordered(type_, left) - ordered(type_, right))[numbers]
    out: dict[str, Any] = {
        "nan_payloads": int((differs & nans[0] & nans[1]).sum()),
        "special": int((nans[0] != nans[1]).sum()),
        "ulp": int(ulp.max(initial=0)),
    }
    if type_ in ("f32", "f64", "f16", "bf16"):
        out["of_largest"] = _of_largest(type_, left, right)
    return out


def _of_largest(type_: str, left: Array, right: Array) -> float:
    with np.errstate(all="ignore"):
        a, b = values(type_, left), values(type_, right)
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
        if a.size % 128:
            a, b = (np.pad(x, (0, -x.size % 128)) for x in (a, b))
        rows, wants = a.reshape(-1, 128), b.reshape(-1, 128)
        largest = np.abs(wants).max(axis=1, keepdims=True)
        relative = np.abs(rows - wants) / np.where(largest > 0, largest, 1.0)
    return float(relative.max(initial=0.0) * 2.0 ** FLOATS[type_][1])
