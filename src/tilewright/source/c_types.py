"""Sizes of the C and CUDA types that tiles are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass

# CUDA C++ Programming Guide, "Built-in Vector Types"; the scalar sizes are those of the LP64 device ABI.
_SCALARS: dict[str, int] = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1, "uchar": 1,
    "__nv_fp8_e4m3": 1, "__nv_fp8_e5m2": 1, "std::int8_t": 1, "std::uint8_t": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2, "ushort": 2, "half": 2, "__half": 2,
    "__nv_bfloat16": 2, "nv_bfloat16": 2, "bf16": 2,
    "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "uint": 4, "float": 4,
    "half2": 4, "__half2": 4, "__nv_bfloat162": 4, "nv_bfloat162": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "long int": 8, "int64_t": 8,
    "uint64_t": 8, "size_t": 8, "std::size_t": 8, "double": 8, "ptrdiff_t": 8,
}  # fmt: skip
_INTEGER_WORDS = {"signed", "unsigned", "char", "short", "int", "long"}
_VECTOR_BASES = {"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4, "long": 8,
                 "ulong": 8, "longlong": 8, "ulonglong": 8, "double": 8}  # fmt: skip
_VECTOR = re.compile(r"^([a-z]+?)([1234])$")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|constexpr|static|register|__restrict__|__restrict|extern|__shared__)\b")
LANES = ("x", "y", "z", "w")
_INTEGERS = frozenset(
    k for k in _SCALARS if k not in {"float", "double", "half", "__half", "half2", "__half2"} and "bf" not in k
    and "fp8" not in k
)  # fmt: skip
_UNSIGNED = re.compile(r"^(?:unsigned|uint|uchar|ushort|size_t|std::size_t|std::uint|bool$)")


def plain(type_text: str) -> str:
    """The type without qualifiers and with single spaces: ``const signed  char`` → ``signed char``."""
    words = _QUALIFIERS.sub(" ", type_text).split()
    return _integer_name(words) if words and set(words) <= _INTEGER_WORDS else " ".join(words)


def _integer_name(words: list[str]) -> str:
    """One spelling for the built-in integer types: ``long unsigned int`` → ``unsigned long``."""
    size = "char" if "char" in words else "short" if "short" in words else " ".join(w for w in words if w == "long")
    if size == "char":
        sign = next((w for w in words if w in ("signed", "unsigned")), "")
        return f"{sign} char".strip()
    return " ".join(x for x in ("unsigned" if "unsigned" in words else "", size or "int") if x)


def size_of(type_text: str, aliases: dict[str, str] | None = None) -> int | None:
    """Bytes of a scalar or built-in vector type, through the file's aliases; None when unknown."""
    name = resolve(type_text, aliases)
    if name in _SCALARS:
        return _SCALARS[name]
    m = _VECTOR.match(name)
    if m and m[1] in _VECTOR_BASES:
        return _VECTOR_BASES[m[1]] * int(m[2])
    return None


def resolve(type_text: str, aliases: dict[str, str] | None = None) -> str:
    """Follow ``using`` and ``typedef`` to the built-in name."""
    name, seen = plain(type_text), set()
    while aliases and name in aliases and name not in seen:
        seen.add(name)
        name = plain(aliases[name])
    return name


def is_volatile(type_text: str, aliases: dict[str, str] | None = None) -> bool:
    """Whether a type is volatile, or a ``typedef`` that it names."""
    seen: set[str] = set()
    while aliases and (name := plain(type_text.replace("*", " ").replace("&", " "))) in aliases and name not in seen:
        if "volatile" in type_text.split():
            return True
        seen.add(name)
        type_text = aliases[name]
    return re.search(r"\bvolatile\b", type_text) is not None


def vector_lanes(type_text: str) -> int | None:
    """Lanes of a built-in vector type: 4 for ``float4``; None for anything else."""
    m = _VECTOR.match(plain(type_text))
    return int(m[2]) if m and m[1] in _VECTOR_BASES else None


def is_integer(type_text: str, aliases: dict[str, str] | None = None) -> bool:
    return resolve(type_text, aliases) in _INTEGERS


@dataclass(frozen=True)
class IntKind:
    """An integer type: ``bits`` (1 for bool) and whether it wraps."""

    bits: int
    unsigned: bool

    def promoted(self) -> IntKind:
        return IntKind(32, False) if self.bits < 32 else self

    def wrap(self, number: int) -> int:
        """The number as the type holds it, modulo a power of two."""
        low = number & ((1 << self.bits) - 1)
        return low - (1 << self.bits) if not self.unsigned and low >> (self.bits - 1) else low


def common(a: IntKind, b: IntKind) -> IntKind:
    """The usual arithmetic conversions (C++17 [expr.arith]) on a 64-bit target."""
    a, b = a.promoted(), b.promoted()
    if a.unsigned == b.unsigned:
        return a if a.bits >= b.bits else b
    unsigned, signed = (a, b) if a.unsigned else (b, a)
    return unsigned if unsigned.bits >= signed.bits else signed


def int_kind(type_text: str, aliases: dict[str, str] | None = None) -> IntKind | None:
    """The integer type of that name, or None for any other type."""
    name = resolve(type_text, aliases)
    if name not in _INTEGERS:
        return None
    return IntKind(1 if name == "bool" else 8 * _SCALARS[name], bool(_UNSIGNED.match(name)))
