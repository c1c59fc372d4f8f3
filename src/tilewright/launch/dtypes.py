"""The element types that a sidecar can name, and the C types that they fit. NumPy is loaded only by ``DType.numpy``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: its NumPy or ml_dtypes name.
        kind: bool, int, uint or float.
        item_bytes: bytes of an element.
        epsilon: distance from 1.0 to the next larger value; 0.0 for integers.
        low, high: least and greatest integer value (integers only; 0, 0 for floats).
    """

    name: str
    kind: Kind
    item_bytes: int
    epsilon: float = 0.0
    low: int = 0
    high: int = 0

    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype; loads ml_dtypes for the types that NumPy lacks."""
        import numpy as np

        if self.name in _ML_DTYPES:
            import ml_dtypes

            dtype: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, self.name))
            return dtype
        return np.dtype(self.name)


def _integers() -> list[DType]:
    signed = [DType(f"int{8 * n}", "int", n, low=-(2 ** (8 * n - 1)), high=2 ** (8 * n - 1) - 1) for n in (1, 2, 4, 8)]
    unsigned = [DType(f"uint{8 * n}", "uint", n, low=0, high=2 ** (8 * n) - 1) for n in (1, 2, 4, 8)]
    return [*signed, *unsigned]


# epsilon = 2**-(explicit mantissa bits): IEEE 754 for 16, 32 and 64 bits; the OCP 8-bit Floating Point Specification
# 1.0 for fp8.
_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", "bool", 1, low=0, high=1),
        *_integers(),
        DType("float16", "float", 2, 2.0**-10),
        DType("float32", "float", 4, 2.0**-23),
        DType("float64", "float", 8, 2.0**-52),
        DType("bfloat16", "float", 2, 2.0**-7),
        DType("float8_e4m3fn", "float", 1, 2.0**-3),
        DType("float8_e5m2", "float", 1, 2.0**-2),
    )
}

# C and CUDA type names (qualifiers and pointer marks removed) -> NumPy names. LP64, as NVRTC and nvcc on Linux have it.
C_TYPES: Mapping[str, str] = {
    "bool": "bool",
    **dict.fromkeys(("char", "signed char", "int8_t"), "int8"),
    **dict.fromkeys(("unsigned char", "uint8_t", "uchar"), "uint8"),
    **dict.fromkeys(("short", "signed short", "short int", "int16_t"), "int16"),
    **dict.fromkeys(("unsigned short", "unsigned short int", "uint16_t", "ushort"), "uint16"),
    **dict.fromkeys(("int", "signed", "signed int", "int32_t"), "int32"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint32_t", "uint"), "uint32"),
    **dict.fromkeys(("long", "long int", "signed long", "long long", "long long int", "int64_t", "ptrdiff_t"), "int64"),
    **dict.fromkeys(
        ("unsigned long", "unsigned long int", "unsigned long long", "unsigned long long int", "uint64_t", "size_t"),
        "uint64",
    ),
    **dict.fromkeys(("half", "__half"), "float16"),
    **dict.fromkeys(("nv_bfloat16", "__nv_bfloat16"), "bfloat16"),
    "__nv_fp8_storage_t": "uint8",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "float": "float32",
    "double": "float64",
}

_DROPPED = re.compile(r"\b(?:const|volatile|register|__restrict__|__restrict|restrict|__grid_constant__|struct)\b")


@dataclass(frozen=True)
class CType:
    """A parameter's type, as far as it matters for a launch.

    Attributes:
        text: as written in the source.
        is_pointer: it ends in ``*`` or ``[]``.
        dtype: the NumPy name of the scalar or of what is pointed to; None where it is not a type known here.
    """

    text: str
    is_pointer: bool
    dtype: str | None


def read_c_type(text: str) -> CType:
    """Read a parameter's type: ``const int8_t* __restrict__`` → a pointer to int8. ``std::`` is dropped."""
    bare = _DROPPED.sub(" ", text)
    marks = bare.count("*") + bare.count("[")
    base = " ".join(re.sub(r"\[[^\]]*\]|[*&]", " ", bare).split()).removeprefix("std::").removeprefix("::")
    return CType(text, marks > 0, C_TYPES.get(base) if marks <= 1 else None)


def contradiction(c_type: CType, dtype: DType) -> str:
    """Why an argument of ``dtype`` cannot be passed as ``c_type``, or "" where it can (or where it is not known).

    A scalar must have the very type. A pointer to integers is taken as storage of elements of the same width (fp8 in
    ``uint8_t``, half in ``unsigned short``); one to a floating type must match, for a kernel reads the bits as that
    type. ``void*``, vectors and types of the file's own are not known here.
    """
    if c_type.dtype is None:
        return ""
    declared = DTYPES[c_type.dtype]
    if declared.name == dtype.name:
        return ""
    shown = " ".join(c_type.text.split())
    if not c_type.is_pointer:
        return f"the parameter is '{shown}' ({declared.name}), the argument is {dtype.name}"
    storage = declared.kind in ("int", "uint", "bool") and declared.item_bytes == dtype.item_bytes
    return "" if storage else f"the parameter is '{shown}' (to {declared.name}), the array is {dtype.name}"
