"""cvt and cvt.pack."""

from __future__ import annotations

from tilewright.emulator.arithmetic import convert, rounding, small
from tilewright.emulator.lower.floats import ROUNDINGS, flags
from tilewright.emulator.lower.writer import BlockWriter
from tilewright.emulator.types import NATURAL
from tilewright.ptx.module import Instruction

INTEGERS = frozenset({"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"})
TO_INTEGRAL = frozenset({"rni", "rzi", "rmi", "rpi"})
FLOATS = {"f16": "np.float16", "f32": "np.float32", "f64": "np.float64"}
SMALL = frozenset({"e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2"})


def cvt(w: BlockWriter, i: Instruction) -> None:
    if i.modifiers[0] == "pack":
        _pack(w, i)
        return
    to, source = i.modifiers[-2], i.modifiers[-1]
    if to in SMALL or source in SMALL:
        _small(w, i, to, source)
        return
    if to in ("f16x2", "bf16x2"):
        if source != "f32":
            raise w.not_modelled(i.full_name)
        a, b = w.read(i.operands[1], "f32"), w.read(i.operands[2], "f32")
        expression = f"convert.pack_{to}({a}, {b}, {_mode(i)!r}{flags(i, 'relu', 'satfinite')})"
    elif to == "tf32":
        mode = "rna" if "rna" in i.modifiers else _mode(i)
        value = w.read(i.operands[1], "f32")
        expression = f"convert.to_tf32({value}, {mode!r}{flags(i, 'relu', 'satfinite')}).view('i4')"
    elif source in INTEGERS:
        expression = _from_integer(w, i, to, source)
    else:
        expression = _from_float(w, i, to, source)
    with w.selecting(i.guard):
        w.write(i.operands[0], to, expression)


def _mode(i: Instruction) -> str:
    return next((m for m in i.modifiers if m in ROUNDINGS), "rn")


def _from_integer(w: BlockWriter, i: Instruction, to: str, source: str) -> str:
    value = w.read(i.operands[1], source)
    if to in INTEGERS:
        if "sat" in i.modifiers:
            return f"convert.int_to_int({value}, np.{_numpy(to)}, True)"
        return value if to == source else f"{value}.astype({NATURAL[to]!r})"
    if to == "bf16":
        return f"convert.int_to_bf16({value}, {_mode(i)!r})"
    return f"convert.int_to_float({value}, {FLOATS[to]}, {_mode(i)!r}{flags(i, 'sat')})"


def _from_float(w: BlockWriter, i: Instruction, to: str, source: str) -> str:
    value = w.read(i.operands[1], source)
    is_bf16 = source == "bf16"
    if is_bf16:
        value, source = f"rounding.bf16_to_f32({value})", "f32"
    integral = next((m for m in i.modifiers if m in TO_INTEGRAL), None)
    if to in INTEGERS:
        return f"convert.float_to_int({value}, np.{_numpy(to)}, {integral or 'rzi'!r}{flags(i, 'ftz')})"
    if to == "bf16" and is_bf16 and integral is not None:
        return f"convert.to_bf16(convert.round_integral({value}, {integral!r}))"
    if to == source and integral is not None:
        return f"convert.round_integral({value}, {integral!r}{flags(i, 'ftz', 'sat')})"
    mode = f", {_mode(i)!r}" if to != "f64" else ""
    more = flags(i, "relu", "satfinite") if to in ("f16", "bf16") else ""
    return f"convert.to_{to}({value}{mode}{flags(i, 'ftz', 'sat')}{more})"


def _numpy(type_: str) -> str:
    return {"u": "uint", "s": "int"}[type_[0]] + type_[1:]


def _pack(w: BlockWriter, i: Instruction) -> None:
    """cvt.pack.sat.<to>.s32 d, a, b{, c}."""
    to = i.modifiers[2]
    a, b = w.read(i.operands[1], "s32"), w.read(i.operands[2], "s32")
    c = w.read(i.operands[3], "b32") if len(i.operands) > 3 else "None"
    with w.selecting(i.guard):
        w.write(i.operands[0], "b32", f"convert.cvt_pack({a}, {b}, {c}, {int(to[1:])}, {to[0] == 's'})")


def _small(w: BlockWriter, i: Instruction, to: str, source: str) -> None:
    """Packed pairs of 8, 6 and 4 bits; e2m1x2 fills 8 bits, the others 16."""
    small_type = "b8" if "e2m1x2" in (to, source) else "b16"
    name = (to if to in SMALL else source).removesuffix("x2")
    if name == "ue8m0":
        _scales(w, i, to, source)
        return
    relu = flags(i, "relu")
    if to == "f16x2":
        expression, result = f"small.unpack_small({name!r}, {w.read(i.operands[1], small_type)}{relu})", "f16x2"
    elif source == "f32":
        a, b = w.read(i.operands[1], "f32"), w.read(i.operands[2], "f32")
        expression, result = f"small.pack_small({name!r}, {a}, {b}{relu})", small_type
    elif source == "f16x2":
        expression, result = f"small.pack_small_halves({name!r}, {w.read(i.operands[1], 'f16x2')}{relu})", small_type
    else:
        raise w.not_modelled(i.full_name)
    with w.selecting(i.guard):
        w.write(i.operands[0], result, expression)


def _scales(w: BlockWriter, i: Instruction, to: str, source: str) -> None:
    """ue8m0x2: powers of two."""
    how = f"{_mode(i)!r}{flags(i, 'satfinite')}"
    if to == "bf16x2":
        expression, result = f"small.unpack_ue8m0({w.read(i.operands[1], 'b16')})", "bf16x2"
    elif source == "f32":
        a, b = w.read(i.operands[1], "f32"), w.read(i.operands[2], "f32")
        expression, result = f"small.pack_ue8m0({a}, {b}, {how})", "b16"
    elif source == "bf16x2":
        expression, result = f"small.pack_ue8m0_halves({w.read(i.operands[1], 'bf16x2')}, {how})", "b16"
    else:
        raise w.not_modelled(i.full_name)
    with w.selecting(i.guard):
        w.write(i.operands[0], result, expression)


MODULES = {"convert": convert, "rounding": rounding, "small": small}
