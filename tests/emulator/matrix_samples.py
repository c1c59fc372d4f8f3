"""Layouts of matrix fragments, written as PTX ISA writes them, and registers built from them one element at a time."""

from __future__ import annotations

import ml_dtypes
import numpy as np


def _t(lane):
    return lane % 4


def _g(lane):
    return lane >> 2


def _low(i, step):
    """PTX ISA's "0 <= i < step || 2 * step <= i < 3 * step"."""
    return i < step or 2 * step <= i < 3 * step


# (shape, elements, which): (elements a lane, row(lane, i), col(lane, i)); text of "Matrix Fragments for mma.m…".
ISA = {
    ("m8n8k4", "f64", "a"): (1, lambda ln, i: _g(ln), lambda ln, i: _t(ln)),
    ("m8n8k4", "f64", "b"): (1, lambda ln, i: _t(ln), lambda ln, i: _g(ln)),
    ("m8n8k16", "s8 u8", "a"): (4, lambda ln, i: _g(ln), lambda ln, i: _t(ln) * 4 + i),
    ("m8n8k16", "s8 u8", "b"): (4, lambda ln, i: _t(ln) * 4 + i, lambda ln, i: _g(ln)),
    ("m8n8k32", "s4 u4", "a"): (8, lambda ln, i: _g(ln), lambda ln, i: _t(ln) * 8 + i),
    ("m8n8k32", "s4 u4", "b"): (8, lambda ln, i: _t(ln) * 8 + i, lambda ln, i: _g(ln)),
    ("m8n8k128", "b1", "a"): (32, lambda ln, i: _g(ln), lambda ln, i: _t(ln) * 32 + i),
    ("m8n8k128", "b1", "b"): (32, lambda ln, i: _t(ln) * 32 + i, lambda ln, i: _g(ln)),
    ("m16n8k4", "tf32", "a"): (2, lambda ln, i: _g(ln) if i == 0 else _g(ln) + 8, lambda ln, i: _t(ln)),
    ("m16n8k4", "tf32", "b"): (1, lambda ln, i: _t(ln), lambda ln, i: _g(ln)),
    ("m16n8k4", "f64", "a"): (2, lambda ln, i: _g(ln) if i == 0 else _g(ln) + 8, lambda ln, i: _t(ln)),
    ("m16n8k4", "f64", "b"): (1, lambda ln, i: _t(ln), lambda ln, i: _g(ln)),
    ("m16n8k8", "f16 bf16", "a"): (
        4, lambda ln, i: _g(ln) if i < 2 else _g(ln) + 8, lambda ln, i: _t(ln) * 2 + (i & 1)),
    ("m16n8k8", "f16 bf16", "b"): (2, lambda ln, i: _t(ln) * 2 + i, lambda ln, i: _g(ln)),
    ("m16n8k8", "tf32 f64", "a"): (
        4, lambda ln, i: _g(ln) if i in (0, 2) else _g(ln) + 8, lambda ln, i: _t(ln) if i < 2 else _t(ln) + 4),
    ("m16n8k8", "tf32 f64", "b"): (2, lambda ln, i: _t(ln) if i == 0 else _t(ln) + 4, lambda ln, i: _g(ln)),
    ("m16n8k16", "f16 bf16", "a"): (
        8, lambda ln, i: _g(ln) if 0 <= i < 2 or 4 <= i < 6 else _g(ln) + 8,
        lambda ln, i: _t(ln) * 2 + (i & 1) if i < 4 else _t(ln) * 2 + (i & 1) + 8),
    ("m16n8k16", "f16 bf16", "b"): (
        4, lambda ln, i: _t(ln) * 2 + (i & 1) if i < 2 else _t(ln) * 2 + (i & 1) + 8, lambda ln, i: _g(ln)),
    ("m16n8k16", "f64", "a"): (
        8, lambda ln, i: _g(ln) if i % 2 == 0 else _g(ln) + 8,
        lambda ln, i: i * 2 + _t(ln) if i % 2 == 0 else i * 2 - 2 + _t(ln)),
    ("m16n8k16", "f64", "b"): (4, lambda ln, i: _t(ln) + i * 4, lambda ln, i: _g(ln)),
    ("m16n8k16", "s8 u8 e4m3 e5m2", "a"): (
        8, lambda ln, i: _g(ln) if i < 4 else _g(ln) + 8, lambda ln, i: _t(ln) * 4 + (i & 3)),
    ("m16n8k16", "s8 u8 e4m3 e5m2", "b"): (4, lambda ln, i: _t(ln) * 4 + i, lambda ln, i: _g(ln)),
    ("m16n8k32", "s4 u4", "a"): (
        16, lambda ln, i: _g(ln) if i < 8 else _g(ln) + 8, lambda ln, i: _t(ln) * 8 + (i & 7)),
    ("m16n8k32", "s4 u4", "b"): (8, lambda ln, i: _t(ln) * 8 + i, lambda ln, i: _g(ln)),
    ("m16n8k32", "s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1_in_byte", "a"): (
        16, lambda ln, i: _g(ln) if _low(i, 4) else _g(ln) + 8,
        lambda ln, i: _t(ln) * 4 + (i & 3) if i < 8 else _t(ln) * 4 + (i & 3) + 16),
    ("m16n8k32", "s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1_in_byte", "b"): (
        8, lambda ln, i: _t(ln) * 4 + (i & 3) if i < 4 else _t(ln) * 4 + (i & 3) + 16, lambda ln, i: _g(ln)),
    ("m16n8k64", "s4 u4 e2m1", "a"): (
        32, lambda ln, i: _g(ln) if _low(i, 8) else _g(ln) + 8,
        lambda ln, i: _t(ln) * 8 + (i & 7) if i < 16 else _t(ln) * 8 + (i & 7) + 32),
    ("m16n8k64", "s4 u4 e2m1", "b"): (
        16, lambda ln, i: _t(ln) * 8 + (i & 7) if i < 8 else _t(ln) * 8 + (i & 7) + 32, lambda ln, i: _g(ln)),
    ("m16n8k128", "b1", "a"): (
        64, lambda ln, i: _g(ln) if i < 32 else _g(ln) + 8, lambda ln, i: _t(ln) * 32 + (i & 0x1F)),
    ("m16n8k128", "b1", "b"): (32, lambda ln, i: _t(ln) * 32 + i, lambda ln, i: _g(ln)),
    ("m16n8k256", "b1", "a"): (
        128, lambda ln, i: _g(ln) if _low(i, 32) else _g(ln) + 8,
        lambda ln, i: _t(ln) * 32 + (i & 0x1F) if i < 64 else _t(ln) * 32 + (i & 0x1F) + 128),
    ("m16n8k256", "b1", "b"): (
        64, lambda ln, i: _t(ln) * 32 + (i & 0x1F) if i < 32 else _t(ln) * 32 + (i & 0x1F) + 128, lambda ln, i: _g(ln)),
}  # fmt: skip
ACCUMULATORS = {
    "m8n8": (2, lambda ln, i: _g(ln), lambda ln, i: _t(ln) * 2 + (i & 1)),
    "m16n8": (4, lambda ln, i: _g(ln) if i < 2 else _g(ln) + 8, lambda ln, i: _t(ln) * 2 + (i & 1)),
}


def tables(count, row, col):
    """int64[32, count] of rows and of columns."""
    return tuple(np.array([[f(lane, i) for i in range(count)] for lane in range(32)]) for f in (row, col))


def isa_tables(shape, element, which):
    """As the ISA gives them for an operand of ``mma.sync``."""
    if which in ("c", "d"):
        return tables(*ACCUMULATORS[shape.split("k")[0]])
    for (name, elements, operand), text in ISA.items():
        if (name, operand) == (shape, which) and element in elements.split():
            return tables(*text)
    raise KeyError((shape, element, which))


def pack(codes, rows, cols, bits):
    """Registers of [W, rows, cols] codes (unsigned integers of ``bits``; float64 where 64)."""
    held = codes[:, rows, cols].reshape(-1, rows.shape[1])
    if bits == 64:
        return tuple(np.ascontiguousarray(held[:, i]) for i in range(held.shape[1]))
    per = 32 // bits
    words = []
    for start in range(0, held.shape[1], per):
        word = np.zeros(len(held), np.uint64)
        for i in range(per):
            word |= held[:, start + i].astype(np.uint64) << np.uint64(i * bits)
        words.append(word.astype(np.uint32).view(np.int32))
    return tuple(words)


def unpack(registers, rows, cols, shape):
    """[W, m, n] of accumulator registers; int32 registers of halves are told by their number."""
    if len(registers) * 2 == rows.shape[1]:
        held = np.stack([r.view(np.float16).reshape(-1, 2) for r in registers], axis=1).reshape(-1, 32, rows.shape[1])
    else:
        held = np.stack(registers, axis=-1).reshape(-1, 32, rows.shape[1])
    out = np.zeros((len(held), *shape), held.dtype)
    out[:, rows, cols] = held
    return out


_FLOATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


def sample(generator, element, shape):
    """(codes as they lie in registers, the numbers they mean in float64 or int64)."""
    if element in ("s8", "u8", "s4", "u4", "b1"):
        bits = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[element]
        codes = generator.integers(0, 1 << bits, shape)
        return codes, codes - ((codes >> (bits - 1)) << bits) if element[0] == "s" else codes
    numbers = generator.standard_normal(shape)
    if element == "f64":
        return numbers, numbers
    if element == "tf32":
        codes = numbers.astype(np.float32).view(np.uint32)
        return codes, (codes & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    name = element.removesuffix("_in_byte")
    values = (numbers * (1 if name[0] in "fb" else 2)).astype(np.float32).astype(_FLOATS[name])
    codes = values.view(np.uint16 if name in ("f16", "bf16") else np.uint8).astype(np.int64)
    return codes << 2 if element != name else codes, values.astype(np.float64)
