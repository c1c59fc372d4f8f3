"""The reductions of bulk copies: ``cp.reduce.async.bulk`` and ``cp.reduce.async.bulk.tensor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.errors import TilewrightError

Array = np.ndarray[Any, np.dtype[Any]]

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")

_BITS = ("uint32", "int32", "uint64", "int64", "float32", "float64", "float32_ftz")
_ORDERED = ("uint32", "int32", "uint64", "int64", "float16", "bfloat16")
# PTX ISA, "cp.reduce.async.bulk.tensor": the valid combinations of operation and element type.
TENSOR: Mapping[str, tuple[str, ...]] = {
    "add": ("uint32", "int32", "uint64", "float32", "float32_ftz", "float16", "bfloat16"),
    "min": _ORDERED, "max": _ORDERED,
    "inc": ("uint32",), "dec": ("uint32",),
    "and": _BITS, "or": _BITS, "xor": _BITS,
}  # fmt: skip
# PTX ISA, "cp.reduce.async.bulk", destination in global memory. Its add.f32 flushes subnormals: element float32_ftz.
BULK_GLOBAL: Mapping[str, tuple[str, ...]] = {
    **TENSOR,
    "add": ("uint32", "int32", "uint64", "float32_ftz", "float64", "float16", "bfloat16"),
}
# The same, destination in the shared memory of the cluster.
BULK_SHARED: Mapping[str, tuple[str, ...]] = {
    "add": ("uint32", "int32", "uint64"),
    "min": ("uint32", "int32"), "max": ("uint32", "int32"),
    "inc": ("uint32",), "dec": ("uint32",),
    "and": ("uint32", "int32"), "or": ("uint32", "int32"), "xor": ("uint32", "int32"),
}  # fmt: skip

_STORAGE = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float32_ftz": np.dtype(np.float32)}
_SIMPLE: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def check(operation: str, element: str, allowed: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a reduction that the instruction does not have.

    Raises:
        TilewrightError: ``emulator/reduction``.
    """
    elements = allowed.get(operation, ())
    if element not in elements:
        message = f"Reduction {operation} needs an element out of {', '.join(elements) or 'none'}; have {element}."
        raise TilewrightError("emulator/reduction", message, {"operation": operation, "element": element})


def combine(old: Array, new: Array, operation: str, element: str) -> Array:
    """Both operands as bytes -> the result as bytes.

    Args:
        old: uint8[…, bytes], what is in the destination.
        new: uint8 of the same shape, what is added, compared, …
        operation: one of ``OPERATIONS``; ``inc`` and ``dec`` wrap at ``new``.
        element: a name as ``TensorMap`` has them.

    Sums of floats round to nearest even; 16-bit ones are exact sums rounded once. ``min`` and ``max`` of a NaN and a
    number give the number, as the instructions ``min`` and ``max`` do.
    """
    if operation in ("and", "or", "xor"):
        return _SIMPLE[operation](old, new)
    dtype = _STORAGE[element] if element in _STORAGE else np.dtype(element)
    a, b = (np.ascontiguousarray(side).view(dtype) for side in (old, new))
    return np.ascontiguousarray(_arithmetic(a, b, operation, element)).view(np.uint8)


def _arithmetic(old: Array, new: Array, operation: str, element: str) -> Array:
    if operation == "inc":
        return np.where(old >= new, np.uint32(0), old + np.uint32(1))
    if operation == "dec":
        return np.where((old == 0) | (old > new), new, old - np.uint32(1))
    with np.errstate(all="ignore"):
        if element in ("float16", "bfloat16"):
            # Exact in binary32 up to one rounding that does no harm: 24 >= 2 * 11 + 2 bits.
            wide = {"add": np.add, "min": np.fmin, "max": np.fmax}[operation]
            return wide(old.astype(np.float32), new.astype(np.float32)).astype(old.dtype)
        if element == "float32_ftz":
            return _flushed(_flushed(old) + _flushed(new))
        return _SIMPLE[operation](old, new)


def _flushed(values: Array) -> Array:
    """Subnormal float32 become zeros of their sign."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)
