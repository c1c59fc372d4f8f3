"""Macros: an expansion counts as one operand only where the preprocessor makes one operand of it."""

# ruff: noqa: E501  (a line of C++ stays on one line)

from __future__ import annotations

import pytest
from source_samples import opened

from tilewright.source import ir, lexical


def expression(macros: str, text: str) -> tuple[ir.Expr, list[str]]:
    """The value that ``text`` has as an initialiser in a kernel, and what could not be read."""
    kernel = opened(f"{macros}\n__global__ void k(int *p, int x, int y) {{ int v = {text}; }}\n")
    statement = kernel.body.body[0]
    assert isinstance(statement, ir.Declare)
    init = statement.symbols[0].init
    assert init is not None
    return init, [what for what, _ in kernel.errors]


@pytest.mark.parametrize(
    ("body", "use"),
    [("4", "x / N"), ("(4 + y)", "x * N"), ("y", "x / N"), ("f(y)", "x / N"), ("p[y]", "x * N"), ("4 + y", "N"),
     ("4 + y", "f(N)"), ("4 + y", "p[N]"), ("4 + y", "(N) * 2"), ("-y", "x * N"), ("(int)y", "x * N"), ("y ? 1 : 2", "N")],
)  # fmt: skip
def test_closed_or_alone_is_understood(body: str, use: str) -> None:
    _, faults = expression(f"#define N {body}", use)
    assert faults == []


@pytest.mark.parametrize(
    ("body", "use"),
    [("4 + y", "x / N"), ("y / 2", "x / N"), ("y ? 1 : 2", "x + N"), ("-y", "N[p]"), ("y, 2", "N"), ("4 + y", "-N"),
     ("4 + y", "(int)N"), ("4 +", "N"), ("M", "x / N")],
)  # fmt: skip
def test_open_macros_are_not(body: str, use: str) -> None:
    _, faults = expression(f"#define M y + 1\n#define N {body}", use)
    assert faults


def test_arguments_are_replaced_as_text() -> None:
    value, faults = expression("#define TWICE(a) (2 * a)", "TWICE(x + y)")
    assert faults == []
    assert isinstance(value, ir.Binary)
    assert value.op == "+"  # 2 * x + y, as the preprocessor has it


def test_only_the_use_as_a_whole_can_be_quoted() -> None:
    value, _ = expression("#define PICK(i) (p[(i) * 2] + 1)", "PICK(x)")
    assert not value.span.within
    assert all(n.span.within for n in ir.walk(value) if n is not value)


@pytest.mark.parametrize(
    "macros",
    [
        "#define N f(1)\n#ifdef X\n#undef N\n#define N f(2)\n#endif",
        "#if X\n#define N f(1)\n#else\n#define N f(2)\n#endif",
        "#define N f(1)\n#if X\n#undef N\n#endif",
    ],
)
def test_a_macro_of_several_definitions_is_not_understood(macros: str) -> None:
    _, faults = expression(macros, "N")
    assert faults


def test_one_definition_twice_is_one() -> None:
    found = lexical.macros(b"#ifndef N\n#define N 4\n#endif\n#define N 4\n")
    assert found["N"].settled


def test_pasting_and_strings_are_not_expanded() -> None:
    for body in ("a ## b", "#a"):
        _, faults = expression(f"#define N(a) {body}", "N(x)")
        assert faults


def test_a_variable_with_a_macros_name_is_not_understood() -> None:
    kernel = opened("#define tid threadIdx.x\n__global__ void k(int *p) { int q = tid; p[q] = 0; }\n")
    assert kernel.errors == ()
    broken = opened("#define q threadIdx.x\n__global__ void k(int *p) { int q = 0; p[q] = 0; }\n")
    assert broken.errors


def test_a_statement_macro_keeps_its_statements() -> None:
    kernel = opened("#define BOTH(a, b) a = 0; b = 0;\n__global__ void k(int *p, int *q) { BOTH(p[0], q[0]); }\n")
    block = kernel.body.body[0]
    assert isinstance(block, ir.Block)
    assert [type(s) for s in block.body] == [ir.Do, ir.Do]


def test_of_several_definitions_the_probable_one_is_read() -> None:
    text = b"#ifndef SMALL\n#define SMALL 1\n#endif\n#if SMALL\n#define STEP 4\n#else\n#define STEP 8\n#endif\n"
    found = lexical.macros(text)["STEP"]
    assert found.body == "4"
    assert not found.settled  # so the compiler is asked
    assert lexical.macros(text.replace(b"#if SMALL", b"#if !SMALL"))["STEP"].body == "8"
