"""One instruction as a kernel: operands from global arrays, results stored; in every form that an operand can take.

Values are bit patterns: unsigned NumPy arrays, and Python integers in oracles.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np

from tilewright.emulator.compiled import CompiledKernel
from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.chunk import Active, Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.machine.registers import Registers
from tilewright.emulator.options import EmulatorOptions, Schedule
from tilewright.emulator.run import Emulation, emulate
from tilewright.ptx.module import TYPE_BYTES

Array = np.ndarray[Any, Any]
Oracle = Callable[..., int]
HEAD = ".version 8.7\n.target {target}\n.address_size 64\n"
SCRATCH = """
    .reg .pred %p<32>;
    .reg .b16 %h<64>;
    .reg .b32 %r<64>;
    .reg .f32 %f<64>;
    .reg .b64 %d<64>;
    .reg .f64 %e<64>;
"""
SIZES = {**TYPE_BYTES, "e2m1x2": 1, "e2m3x2": 2, "e3m2x2": 2, "ue8m0x2": 2}


def width(type_: str) -> int:
    """Bits of a type in memory; a predicate is a byte."""
    return 8 * SIZES[type_]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def to_f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def to_f64(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def to_f16(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def to_bf16(bits: int) -> float:
    return to_f32(bits << 16)


DECODE: dict[str, Callable[[int], float]] = {"f32": to_f32, "f64": to_f64, "f16": to_f16, "bf16": to_bf16}


def encode(type_: str, value: float) -> int:
    """Bits of a float that the type can hold; every NaN is the canonical one."""
    if value != value:
        return {"f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000, "f16": 0x7FFF, "bf16": 0x7FFF}[type_]
    if type_ == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if type_ == "f16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    if type_ == "f32":
        return bits
    assert bits & 0xFFFF == 0, "not a bfloat16"
    return bits >> 16


def samples(rng: np.random.Generator, type_: str, count: int) -> Array:
    """Bit patterns: edges of integers and of every float format, shift counts, and whatever comes."""
    bits = width(type_)
    dtype = np.dtype(f"u{bits // 8}")
    if type_ == "pred":
        return rng.integers(0, 2, count, dtype=np.uint8)
    small = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256]
    top = 1 << (bits - 1)
    edges = [*small, *(-x for x in small), top, top - 1, top + 1, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA]
    if type_ in DECODE or type_.endswith("x2"):
        one = "bf16" if type_.startswith("bf16") else "f16" if type_ in ("f16", "f16x2") else type_
        edges = _float_edges(one if one in DECODE else "f16")
        if type_ in ("f16x2", "bf16x2"):
            edges = [a | int(rng.choice(np.array(edges))) << 16 for a in edges for _ in range(3)]
    table = np.array([x & ((1 << bits) - 1) for x in edges], np.uint64).astype(dtype)
    whole = rng.integers(0, (1 << bits) - 1, count, dtype=dtype, endpoint=True)
    if type_ in ("f32", "f64"):
        near = (rng.integers(-40, 41, count) * np.exp2(rng.integers(-9, 10, count).astype(float))).astype(
            f"f{bits // 8}"
        )
        whole = np.where(rng.random(count) < 0.5, near.view(dtype), whole)
    return np.where(rng.random(count) < 0.5, rng.choice(table, count), whole)


def _float_edges(type_: str) -> list[int]:
    mantissa, bits = {"f32": (23, 32), "f64": (52, 64), "f16": (10, 16), "bf16": (7, 16)}[type_]
    infinity = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    one = infinity >> 1 & infinity
    sizes = [
        *(0, 1, 2, 3, 1 << (mantissa - 1), (1 << mantissa) - 1, 1 << mantissa, (1 << mantissa) + 1),
        *(one, one + 1, one - 1, one - (1 << mantissa), one + (1 << mantissa), one + (3 << (mantissa - 1))),
        *(infinity - 1, infinity, infinity + 1, infinity + (1 << (mantissa - 1)), 2 * infinity - 1 & infinity),
    ]
    return [*sizes, *(x | 1 << (bits - 1) for x in sizes)]


def register_type(type_: str) -> str:
    if type_ == "pred":
        return "pred"
    if type_ in ("f32", "f64"):
        return type_
    return f"b{max(width(type_), 16)}"


@dataclass
class Program:
    """A kernel of ``threads`` threads with one array per input and per output.

    Inputs are in ``%i0``, ``%i1``, …; what the body leaves in ``%o0``, ``%o1``, … is stored. ``%t`` is the thread's
    number, as u32. Registers of all kinds (SCRATCH) are there to use.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    body: str
    target: str = "sm_100a"
    declarations: str = ""
    locals: str = ""
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        names = [*(f"in{k}" for k in range(len(self.inputs))), *(f"out{k}" for k in range(len(self.outputs)))]
        params = ", ".join(f".param .u64 {name}" for name in names)
        out = [
            HEAD.format(target=self.target),
            self.declarations,
            f".visible .entry k({params})\n{{",
            SCRATCH,
            self.locals,
        ]
        out.append("    .reg .b32 %t, %n, %cta; .reg .b64 %at, %base;")
        out += [f"    .reg .{register_type(t)} %i{k};" for k, t in enumerate(self.inputs)]
        out += [f"    .reg .{register_type(t)} %o{k};" for k, t in enumerate(self.outputs)]
        out.append("    mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %cta, %ctaid.x; mad.lo.u32 %t, %cta, %n, %t;")
        for k, type_ in enumerate(self.inputs):
            out.append(_address(f"in{k}", type_))
            out.append(
                f"    ld.global.u8 %h63, [%at]; setp.ne.u16 %i{k}, %h63, 0;"
                if type_ == "pred"
                else f"    ld.global.b{width(type_)} %i{k}, [%at];"
            )
        out.append(self.body)
        for k, type_ in enumerate(self.outputs):
            out.append(_address(f"out{k}", type_))
            out.append(
                f"    selp.u16 %h63, 1, 0, %o{k}; st.global.u8 [%at], %h63;"
                if type_ == "pred"
                else f"    st.global.b{width(type_)} [%at], %o{k};"
            )
        return "\n".join([*out, "    ret;\n}\n"])

    def run(
        self, inputs: Sequence[Array], threads: int, block: int = 64, schedule: Schedule = "lockstep", seed: int = 0
    ) -> list[Array]:
        assert threads % block == 0, "whole blocks"
        data = [np.ascontiguousarray(a).view(np.uint8).copy() for a in inputs]
        data += [np.full(threads * SIZES[t], 0xEE, np.uint8) for t in self.outputs]
        done = launch(self.text(), data, (threads // block, 1, 1), (block, 1, 1), schedule=schedule, seed=seed)
        assert done.error is None, done.error
        assert not done.hazards, done.hazards
        return [d.view(f"u{SIZES[t]}") for d, t in zip(data[len(inputs) :], self.outputs, strict=True)]


def _address(name: str, type_: str) -> str:
    return f"    ld.param.u64 %base, [{name}]; mul.wide.u32 %at, %t, {SIZES[type_]}; add.s64 %at, %base, %at;"


@lru_cache(maxsize=4)
def compiled(ptx: str, dynamic_bytes: int) -> CompiledKernel:
    """Kernel ``k``: the same text runs with blocks of several sizes."""
    return compile_kernel(parse(ptx, "k"), dynamic_bytes)


def launch(
    ptx: str,
    data: Sequence[Array],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    *,
    schedule: Schedule = "lockstep",
    seed: int = 0,
    chunk_threads: int = 16384,
    dynamic_bytes: int = 0,
    scalars: bytes = b"",
    checks: bool = True,
    max_seconds: float | None = 60.0,
) -> Emulation:
    """Run kernel ``k``: parameters are pointers to ``data`` (changed in place), then ``scalars``."""
    kernel = compiled(ptx, dynamic_bytes)
    geometry = Geometry(grid, block, (1, 1, 1), kernel.layout.smem_bytes, dynamic_bytes)
    params = b"".join(struct.pack("<q", (k + 1) << 40) for k in range(len(data))) + scalars
    buffers = [Buffer(f"array{k}", d) for k, d in enumerate(data)]
    options = EmulatorOptions(schedule, checks, seed=seed, chunk_threads=chunk_threads, max_seconds=max_seconds)
    with mock.patch.object(Registers, "write", _checked_write):
        return emulate(kernel, geometry, buffers, params, options)


_write = Registers.write


def _checked_write(self: Registers, active: Active, numbers: tuple[int, ...], results: tuple[Any, ...]) -> None:
    """Every result has the type that its register is kept in, and one value per active thread."""
    for number, result in zip(numbers, results, strict=True):
        assert result.dtype == self.values[number].dtype, (result.dtype, self.values[number].dtype)
        assert result.shape in ((), (active.count,)), result.shape
    _write(self, active, numbers, results)


def immediate(type_: str, bits: int) -> str:
    if type_ == "f32":
        return f"0f{bits:08X}"
    if type_ == "f64":
        return f"0d{bits:016X}"
    if type_.startswith("s"):
        return str(signed(bits, width(type_)))
    return f"0x{bits:x}"


def check(
    name: str,
    result: str,
    operands: Sequence[str],
    oracle: Oracle,
    *,
    seed: int = 0,
    threads: int = 576,
    immediates: Sequence[int] | None = None,
    constants: Sequence[str] = (),
    given: Sequence[Array] | None = None,
    is_same: Callable[[int, int], bool] | None = None,
) -> None:
    """Compare an instruction with an oracle of Python integers.

    Args:
        operands: their types. immediates: positions that may be constants; None: all but predicates and half floats.
        constants: operands that always follow, as text; the oracle does not see them.
        given: operand arrays instead of random ones. is_same: (got, wanted) where equality of bits is too much.
    """
    rng = np.random.default_rng([seed, *name.encode()])
    arrays = [samples(rng, t, threads) for t in operands] if given is None else list(given)
    old, guard = samples(rng, result, threads), samples(rng, "pred", threads)
    if immediates is None:
        immediates = [k for k, t in enumerate(operands) if t != "pred" and "f16" not in t and "x2" not in t]
    inputs = [*operands, result, "pred"]
    forms = _forms(name, operands, result, arrays, immediates, constants, rng)
    program = Program(inputs, [result] * len(forms), "\n".join(form.text(k) for k, form in enumerate(forms)))
    outputs = program.run([*arrays, old, guard], threads)
    for block in (48, 1):
        if block == 1 and threads > 192:
            continue
        again = program.run([*arrays, old, guard], threads, block)
        assert all((a == b).all() for a, b in zip(outputs, again, strict=True)), f"{name} with {block} threads a block"
    known: dict[tuple[int, ...], int] = {}
    for form, got in zip(forms, outputs, strict=True):
        rows = zip(*(form.values(k, arrays[k]) for k in range(len(operands))), strict=True)
        keeps = form.keeps(guard)
        for at, row in enumerate(rows):
            row = tuple(int(x) for x in row)
            if keeps[at]:
                wanted, actual = int(old[at]), int(got[at])
                assert actual == wanted, f"{form.line}: a guarded thread changed"
                continue
            if row not in known:
                known[row] = oracle(*row)
            wanted, actual = known[row], int(got[at])
            if actual != wanted and not (is_same and is_same(actual, wanted)):
                shown = ", ".join(f"{t} {x:#x}" for t, x in zip(operands, row, strict=True))
                raise AssertionError(f"{form.line} of {shown}: got {actual:#x}, want {wanted:#x}")


@dataclass
class _Form:
    line: str
    result: str
    guard: str
    fixed: dict[int, int]

    def text(self, number: int) -> str:
        old = "%i" + self.result.split()[0]
        move = f"mov.{self.result.split()[1]} %o{number}, {old};"
        return f"    {move} {self.guard} {self.line.replace('%out', f'%o{number}')}"

    def values(self, position: int, array: Array) -> Iterable[int]:
        return [self.fixed[position]] * len(array) if position in self.fixed else array.tolist()

    def keeps(self, guard: Array) -> list[bool]:
        count = len(guard)
        by_guard = {"": [False] * count, "@%p31": [False] * count, "@!%p31": [True] * count}
        return by_guard.get(self.guard) or [bool(g) == self.guard.startswith("@!") for g in guard]


def _forms(
    name: str,
    operands: Sequence[str],
    result: str,
    arrays: Sequence[Array],
    immediates: Sequence[int],
    constants: Sequence[str],
    rng: np.random.Generator,
) -> list[_Form]:
    count = len(operands)
    wide = max(width(result), 16)
    mover = "pred" if result == "pred" else result if result in ("f32", "f64") else f"b{wide}"
    kept = f"{count} {mover}"
    guard = f"%i{count + 1}"

    def line(texts: Sequence[str]) -> str:
        return f"{name} {', '.join(['%out', *texts, *constants])};"

    plain = [f"%i{k}" for k in range(count)]
    forms = [_Form(line(plain), kept, g, {}) for g in ("", f"@{guard}", f"@!{guard}")]
    # Uniform registers: loaded from an address that all threads share.
    uniform, fixed = [], {}
    before = []
    for k, type_ in enumerate(operands):
        value = int(arrays[k][int(rng.integers(len(arrays[k])))])
        register = {"pred": f"%p{k}", "f32": f"%f{k}", "f64": f"%e{k}"}.get(
            type_, f"%{'h' if width(type_) <= 16 else 'r' if width(type_) == 32 else 'd'}{k}"
        )
        fixed[k] = value
        uniform.append(register)
        if type_ == "pred":
            before.append(f"setp.ne.u32 {register}, {value}, 0;")
        else:
            text = immediate(type_ if type_ in ("f32", "f64") else f"b{width(type_)}", value)
            before.append(
                f"mov.{type_ if type_ in ('f32', 'f64') else f'b{max(width(type_), 16)}'} {register}, {text};"
            )
    setup = " ".join([*before, "setp.eq.u32 %p31, 0, 0;"])
    forms[0] = _Form(f"{line(plain)} {setup}", kept, "", {})
    forms.append(_Form(line(uniform), kept, "", fixed))
    forms.append(_Form(line(uniform), kept, f"@{guard}", fixed))
    forms.append(_Form(line(uniform), kept, "@%p31", fixed))
    forms.append(_Form(line(plain), kept, "@!%p31", {}))
    for k in range(count):
        mixed = [uniform[j] if j == k else plain[j] for j in range(count)]
        forms.append(_Form(line(mixed), kept, "", {k: fixed[k]}))
        if k in immediates:
            value = int(arrays[k][int(rng.integers(len(arrays[k])))])
            mixed = [immediate(operands[k], value) if j == k else plain[j] for j in range(count)]
            forms.append(_Form(line(mixed), kept, f"@!{guard}" if k % 2 else "", {k: value}))
    return forms
