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
PACKED_SMALL = frozenset({"e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2"})


def cvt(w: BlockWriter, i: Instruction) -> None:
    if i.modifiers[0] == "pack":
        _pack(w, i)
        return
    to, source = i.modifiers[-2], i.modifiers[-1]
    if to in PACKED_SMALL or source in PACKED_SMALL:
        _small(w, i, to, source)
        return
    if to in ("f16x2", "bf16x2"):
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
    if source == "bf16":
        value, source = f"rounding.bf16_to_f32({value})", "f32"
    integral = next((m for m in i.modifiers if m in TO_INTEGRAL), None)
    if to in INTEGERS:
        return f"convert.float_to_int({value}, np.{_numpy(to)}, {integral or 'rzi'!r}{flags(i, 'ftz')})"
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
    raise w.not_modelled(i.full_name)


MODULES = {"convert": convert, "rounding": rounding, "small": small}
