"""The class of an instruction, and the arithmetic that one thread of it does."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.ptx.module import Instruction

_MEMORY = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_SPACES = ("global", "shared", "local", "const", "param")
_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("wmma", "mma", "wgmma", "tcgen05"), "tensor"),
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), "matrix_move"),
    **dict.fromkeys(("cp", "prefetch", "prefetchu", "discard", "applypriority"), "copy"),
    **dict.fromkeys(("bar", "barrier", "mbarrier", "fence", "membar", "griddepcontrol"), "synchronise"),
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit", "trap", "brkpt", "nanosleep"), "control"),
    **dict.fromkeys(("shfl", "vote", "match", "redux", "elect", "activemask"), "warp"),
    **dict.fromkeys(("cvt", "cvta"), "convert"),
    **dict.fromkeys(("mov", "selp", "prmt", "mapa", "isspacep", "setmaxnreg", "getctarank"), "move"),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt"), "special"),
}
_FLOATS: Mapping[str, tuple[str, int]] = {
    "f64": ("fp64", 1),
    "f32": ("fp32", 1),
    "f32x2": ("fp32", 2),
    "f16": ("fp16", 1),
    "f16x2": ("fp16", 2),
    "bf16": ("bf16", 1),
    "bf16x2": ("bf16", 2),
}
_PER_ELEMENT = {
    **dict.fromkeys(("fma", "mad"), 2),
    **dict.fromkeys(("add", "sub", "mul", "div", "min", "max", "abs", "neg"), 1),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt"), 1),
}
_SHAPE = re.compile(r"^m(\d+)n(\d+)k(\d+)$")
_TENSOR_TYPES = frozenset(
    {"f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8", "s4", "u4", "b1", "s32"}
)


def classify(instruction: Instruction) -> str:
    """Its class, for an instruction mix."""
    root, modifiers = instruction.opcode, instruction.modifiers
    if root in _MEMORY:
        space = next((m.partition("::")[0] for m in modifiers if m.partition("::")[0] in _SPACES), "generic")
        return f"{_MEMORY[root]}_{space}"
    if root in ("wmma", "wgmma") and not _multiplies(instruction):
        return "matrix_move" if root == "wmma" else "synchronise"
    if root in _CLASSES:
        return _CLASSES[root]
    kinds = [_FLOATS[m][0] for m in modifiers if m in _FLOATS]
    return kinds[-1] if kinds else "integer"


def operations(instruction: Instruction) -> Mapping[str, int]:
    """Floating-point operations of one thread by kind, or integer ones of tensor cores; a multiply-add is two.

    Tensor instructions belong to a warp or a warpgroup: a thread does a part of them.
    """
    if _CLASSES.get(instruction.opcode) == "tensor":
        return _tensor(instruction) if _multiplies(instruction) else {}
    each = _PER_ELEMENT.get(instruction.opcode)
    kinds = [_FLOATS[m] for m in instruction.modifiers if m in _FLOATS]
    if each is None or not kinds:
        return {}
    kind, elements = kinds[-1]
    return {kind: each * elements}


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode not in ("wmma", "wgmma") or instruction.modifiers[:1] in (("mma",), ("mma_async",))


def _tensor(instruction: Instruction) -> Mapping[str, int]:
    """``.mMnNkK``, and the type of A among ``.dtype.atype.btype.ctype``."""
    shape = next((found for m in instruction.modifiers if (found := _SHAPE.match(m))), None)
    if shape is None:
        return {}
    m, n, k = (int(size) for size in shape.groups())
    types = [each for each in instruction.modifiers if each in _TENSOR_TYPES]
    kind = _operand_type(instruction, types)
    threads = 128 if instruction.opcode == "wgmma" else 32
    return {f"tensor_{kind}": 2 * m * n * k // threads}


def _operand_type(instruction: Instruction, types: list[str]) -> str:
    # wmma of halves names D and C only: ``wmma.mma.sync.….m16n16k16.f32.f32``.
    if instruction.opcode == "wmma" and len(types) == 2:
        return "f16"
    return types[1] if len(types) > 1 else (types[0] if types else "unknown")
