"""Which modifiers the scalar lowerings know. One that nobody looks at would change a result without a word."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ptx.module import Instruction

_TYPES = frozenset(
    [
        "pred",
        "b8",
        "b16",
        "b32",
        "b64",
        "u8",
        "u16",
        "u32",
        "u64",
        "s8",
        "s16",
        "s32",
        "s64",
        "f16",
        "f16x2",
        "bf16",
        "bf16x2",
        "f32",
        "f64",
        "f32x2",
        "s16x2",
        "u16x2",
        "tf32",
        "e4m3x2",
        "e5m2x2",
        "e2m1x2",
        "e2m3x2",
        "e3m2x2",
        "ue8m0x2",
    ]
)
_ROUND = "rn rz rm rp"
_COMPARE = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz"
_SPACES = "global shared shared::cta shared::cluster local const param param::entry param::func"
_MEMORY = (
    f"{_SPACES} weak volatile relaxed acquire release acq_rel mmio cta cluster gpu sys v2 v4 v8"
    " ca cg cs lu cv wb wt nc L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
    " L2::cache_hint L2::64B L2::128B L2::256B L2::evict_last L2::evict_normal L2::evict_first unified"
)
# By opcode: how many types (the least, the most), and what else may stand there.
_KNOWN: Mapping[str, tuple[int, int, str]] = {
    "add": (1, 2, f"sat cc ftz {_ROUND}"),
    "sub": (1, 2, f"sat cc ftz {_ROUND}"),
    "addc": (1, 1, "cc"),
    "subc": (1, 1, "cc"),
    "mul": (1, 1, f"lo hi wide ftz sat {_ROUND}"),
    "mad": (1, 1, f"lo hi wide cc ftz sat {_ROUND}"),
    "madc": (1, 1, "lo hi cc"),
    "fma": (1, 2, f"ftz sat relu {_ROUND}"),
    "mul24": (1, 1, "lo hi"),
    "mad24": (1, 1, "lo hi sat"),
    "div": (1, 1, f"approx full ftz {_ROUND}"),
    "rem": (1, 1, ""),
    "rcp": (1, 1, f"approx ftz {_ROUND}"),
    "sqrt": (1, 1, f"approx ftz {_ROUND}"),
    **dict.fromkeys(("rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), (1, 1, "approx ftz")),
    "abs": (1, 1, "ftz"),
    "neg": (1, 1, "ftz"),
    "min": (1, 1, "ftz NaN xorsign abs relu"),
    "max": (1, 1, "ftz NaN xorsign abs relu"),
    **dict.fromkeys(("and", "xor", "not", "shl", "shr", "popc", "clz", "brev", "cnot", "bfe", "bfi"), (1, 1, "")),
    **dict.fromkeys(("or", "sad", "fns", "copysign", "selp", "mov"), (1, 1, "")),
    "bfind": (1, 1, "shiftamt"),
    "prmt": (1, 1, "f4e b4e rc8 ecl ecr rc16"),
    "lop3": (1, 1, "and or xor"),
    "shf": (1, 1, "l r wrap clamp"),
    "bmsk": (1, 1, "wrap clamp"),
    "szext": (1, 1, "wrap clamp"),
    "dp4a": (2, 2, ""),
    "dp2a": (2, 2, "lo hi"),
    "setp": (1, 1, _COMPARE),
    "set": (2, 2, _COMPARE),
    "slct": (2, 2, "ftz"),
    "testp": (1, 1, "finite infinite number notanumber normal subnormal"),
    "cvt": (2, 2, f"ftz sat relu satfinite rna rni rzi rmi rpi {_ROUND}"),
    "ld": (1, 1, _MEMORY),
    "ldu": (1, 1, _MEMORY),
    "st": (1, 1, _MEMORY),
    "atom": (1, 1, f"{_MEMORY} noftz add min max and or xor exch cas inc dec"),
    "red": (1, 1, f"{_MEMORY} noftz add min max and or xor inc dec"),
    "cvta": (1, 1, f"{_SPACES} to"),
    "isspacep": (0, 0, _SPACES),
    "shfl": (1, 1, "sync up down bfly idx"),
    "vote": (1, 1, "sync all any uni ballot"),
    "match": (1, 1, "sync all any"),
    "redux": (1, 1, "sync add min max and or xor"),
    "elect": (0, 0, "sync"),
    "activemask": (1, 1, ""),
    "bra": (0, 0, "uni"),
    "brx": (0, 0, "idx uni"),
}
_FLAGS = {opcode: frozenset(flags.split()) for opcode, (_, _, flags) in _KNOWN.items()}


def is_known(instruction: Instruction) -> bool:
    """Whether every modifier is one that the opcode's lowering looks at, or that changes nothing here."""
    known = _KNOWN.get(instruction.opcode)
    if known is None or instruction.modifiers[:1] == ("pack",):
        return True
    flags = _FLAGS[instruction.opcode]
    types = [m for m in instruction.modifiers if m not in flags]
    return known[0] <= len(types) <= known[1] and _TYPES.issuperset(types)
