"""Tensor maps and flags that a variant appends to its kernel's signature: what the host has to make at every launch.

``TensorMapArg`` and ``FlagArg`` are what a rewriter asks for, in expressions over the launch's scalars, sizes and
constants. ``bound_maps`` evaluates them for one launch. The rules are those of CUDA Driver API, "Tensor Map Object
Management", ``cuTensorMapEncodeTiled``, for tiled maps without interleave, swizzle or element strides.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorMapArg:
    """A tensor map, passed by value behind the parameters that the kernel has: 128 bytes, aligned to 64.

    Attributes:
        name: of the parameter.
        array: the pointer argument whose buffer it describes.
        dtype: of an element, a NumPy name.
        dims: extents in elements, innermost first: expressions over the launch's scalars, sizes and constants.
        pitches: bytes from one index to the next of dims 1, 2, …: expressions, one fewer than ``dims``.
        box: elements that one copy moves along each dimension, innermost first.
        offset: elements from the array's start to the tensor's: an expression.
    """

    name: str
    array: str
    dtype: str
    dims: tuple[str, ...]
    pitches: tuple[str, ...]
    box: tuple[int, ...]
    offset: str = "0"


@dataclass(frozen=True)
class FlagArg:
    """An ``int`` parameter behind the tensor maps: 1 where the condition is not 0, else 0.

    Attributes:
        condition: an expression, with comparisons (``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` give 1 or 0) and the
            function ``encodable(map, …)``: 1 where every map named can be made for this launch.
    """

    name: str
    condition: str
