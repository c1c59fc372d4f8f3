"""Constants: what is evaluated here is what the compiler makes of the same text."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

import random
from pathlib import Path

import pytest
from source_samples import opened

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.settings import Settings
from tilewright.source.constants import Constants

HEAD = """
#define PLAIN 12
#define SUM 3 + 4
#define NEGATIVE (-5)
constexpr int A = 7, B = A * 2;
const unsigned U = 9;
constexpr unsigned char SMALL = 300;
constexpr bool FLAG = 42;
constexpr auto AUTO = 5u;
constexpr long long BIG = 1ll << 40;
enum { FIRST, SECOND = 6, THIRD };
enum Color : unsigned { RED = 2 };
using Word = unsigned short;
typedef double Wide;
"""
KERNEL = "__global__ void k(int *out) { constexpr int LOCAL = A + 1; out[0] = LOCAL; }\n"
NAMES = ["PLAIN", "SUM", "NEGATIVE", "A", "B", "U", "SMALL", "FLAG", "AUTO", "BIG", "FIRST", "SECOND", "THIRD", "RED"]


def constants(extra: str = "") -> Constants:
    return opened(HEAD + extra + KERNEL).constants


def value_of(expression: str) -> int | None:
    """The value of an expression, as the initialiser of a constant."""
    return opened(f"{HEAD}#define PROBE ({expression})\n{KERNEL}").constants.by_name("PROBE")


def compiles(asserts: list[str], cache: Path) -> Artifact | CompileFailure:
    text = HEAD + "".join(f'static_assert({a}, "");\n' for a in asserts) + KERNEL
    request = BuildRequest(text, "k.cu", "sm_80", "k")
    return build(request, Settings(cache_dir=cache), use_cache=False)


def test_names_have_the_compilers_values(tmp_path: Path) -> None:
    known = constants().names()
    assert {n: known[n] for n in NAMES} == {
        "PLAIN": 12, "SUM": 7, "NEGATIVE": -5, "A": 7, "B": 14, "U": 9, "SMALL": 44, "FLAG": 1, "AUTO": 5,
        "BIG": 1 << 40, "FIRST": 0, "SECOND": 6, "THIRD": 7, "RED": 2,
    }  # fmt: skip
    outcome = compiles([f"({n}) == {v}" for n, v in known.items()], tmp_path)
    assert isinstance(outcome, Artifact), outcome


EXPRESSIONS = [
    "7 / 2", "-7 / 2", "-7 % 3", "7 % -3", "1 << 10", "-1 >> 1", "~0u >> 28", "0u - 1", "~0", "!5", "5 & 6 | 8 ^ 3",
    "1 ? 2 : 3", "0x10 + 010 + 0b11 + 1'000", "sizeof(float4) * 2", "sizeof(Word)", "sizeof(Wide)", "(unsigned char)300",
    "(signed char)200", "int(7)", "-1 < 0u", "-1 < 0", "2147483647u + 1", "(long long)2147483647 + 1", "true + true",
    "A > 3 && B", "0 || 0", "SMALL + 300", "(Word)70000", "AUTO - 6 > 0", "3 * (4 + 5) - 6", "+A", "-U > 0", "'a' + 1",
]  # fmt: skip


def test_expressions_are_evaluated_as_cpp_does(tmp_path: Path) -> None:
    values = {e: value_of(e) for e in EXPRESSIONS}
    assert values["'a' + 1"] is None  # not understood, so no value
    asserts = [f"({e}) == {v}" for e, v in values.items() if v is not None]
    assert len(asserts) == len(EXPRESSIONS) - 1
    outcome = compiles(asserts, tmp_path)
    assert isinstance(outcome, Artifact), outcome


@pytest.mark.parametrize(
    "expression",
    ["2147483647 + 1", "1 / 0", "1 % 0", "1 << 40", "1.5 * 2", "UNKNOWN + 1", "A ? 1.0 : 2", "-2147483647 - 2", "f(3)"],
)
def test_what_overflows_or_is_no_integer_has_no_value(expression: str) -> None:
    assert value_of(expression) is None


def test_a_wrong_value_is_noticed_by_the_compiler(tmp_path: Path) -> None:
    assert isinstance(compiles(["(A) == 8"], tmp_path), CompileFailure)


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NAMES, "1", "2u", "3", "5l", "7ul", "0x1f", "100"])
    left, right = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    match rng.randrange(8):
        case 0:
            return f"(-{left})"
        case 1:
            return f"(~{left})"
        case 2:
            return f"({left} {rng.choice(['<', '<=', '==', '!=', '>', '>='])} {right})"
        case 3:
            return f"(({left}) {rng.choice(['<<', '>>'])} {rng.randrange(5)})"
        case 4:
            return f"({left} ? {right} : {random_expression(rng, depth - 1)})"
        case 5:
            return f"(({rng.choice(['int', 'unsigned', 'unsigned char', 'short', 'long long', 'bool'])}){left})"
    return f"({left} {rng.choice(['+', '-', '*', '/', '%', '&', '|', '^', '&&', '||'])} {right})"


def test_random_expressions_have_the_compilers_values(tmp_path: Path) -> None:
    rng = random.Random(3)
    asserts: list[str] = []
    macros = ""
    expressions = [random_expression(rng, 4) for _ in range(300)]
    for i, e in enumerate(expressions):
        macros += f"#define PROBE_{i} {e}\n"
    known = constants(macros)
    for i, e in enumerate(expressions):
        value = known.by_name(f"PROBE_{i}")
        if value is not None:
            asserts.append(f"({e}) == ({value if value > -(1 << 63) else 0}) && ({e} < 0) == {str(value < 0).lower()}")
    assert len(asserts) > 150
    outcome = compiles(asserts, tmp_path)
    assert isinstance(outcome, Artifact), outcome


def test_what_may_change_is_no_constant() -> None:
    known = constants(
        "int host = 3; __constant__ const int table = 4; __device__ int mutable_ = 5; const float F = 2;\n"
    )
    assert not {"host", "table", "mutable_", "F"} & known.names().keys()


def test_members_of_structs_are_not_the_files_constants() -> None:
    assert "INSIDE" not in constants("struct S { static constexpr int INSIDE = 3; };\n").names()


def test_a_name_that_the_kernel_declares_too_has_no_value() -> None:
    kernel = opened("constexpr int N = 3;\n__global__ void k(int *out) { out[N] = 0; { int N = 4; out[N] = 1; } }\n")
    assert kernel.constants.names() == {"N": 3}
    index = next(n for s in kernel.body.body for n in [s])
    assert index is not None
    assert kernel.constants.used == set()


def test_used_names_are_recorded() -> None:
    known = constants()
    assert known.used == set()
    known.by_name("B")
    assert known.used == {"B"}  # A only matters inside B
