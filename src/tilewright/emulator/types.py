"""NumPy types behind PTX's: how a register is kept, and what a value of a type looks like while it is computed with."""

from __future__ import annotations

import numpy as np

from tilewright.ptx.module import TYPE_BYTES

# How an instruction of a type sees its operands. 8-bit and 4-bit floats travel as their bits.
NATURAL: dict[str, str] = {
    "pred": "?", "b8": "u1", "u8": "u1", "s8": "i1", "e4m3": "u1", "e5m2": "u1",
    "b16": "u2", "u16": "u2", "s16": "i2", "f16": "f2", "bf16": "u2", "e4m3x2": "u2", "e5m2x2": "u2",
    "b32": "i4", "u32": "u4", "s32": "i4", "f32": "f4", "tf32": "i4",
    "f16x2": "i4", "bf16x2": "i4", "u16x2": "i4", "s16x2": "i4",
    "b64": "i8", "u64": "u8", "s64": "i8", "f64": "f8", "f32x2": "i8",
}  # fmt: skip


def storage(type_: str) -> str:
    """NumPy type that a register of a PTX type is kept in."""
    if type_ == "pred":
        return "?"
    if type_ in ("f32", "f64"):
        return NATURAL[type_]
    return {1: "u2", 2: "u2", 4: "i4", 8: "i8", 16: "V16"}[TYPE_BYTES[type_]]


def item_bytes(dtype: str) -> int:
    return 1 if dtype == "?" else int(dtype[1:])


def scalar(value: int, dtype: str) -> np.generic:
    """An integer of any size as a NumPy scalar, wrapped to the type's width; floats take the number."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.bool_(value)
    if kind.kind == "f":
        return kind.type(value)  # type: ignore[no-any-return]
    return np.array([value & ((1 << 8 * kind.itemsize) - 1)], f"u{kind.itemsize}").view(kind)[0]  # type: ignore[no-any-return]


def from_bits(bits: int, dtype: str) -> np.generic:
    """A float from its bit pattern."""
    kind = np.dtype(dtype)
    return np.array([bits], f"u{kind.itemsize}").view(kind)[0]  # type: ignore[no-any-return]
