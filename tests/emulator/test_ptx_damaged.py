"""PTX text that is damaged or hostile: one clear error, and soon."""

from __future__ import annotations

import random
import time

import pytest
from ptx_samples import HEAD, compiled

from tilewright.build.nvrtc import toolchain
from tilewright.errors import TilewrightError
from tilewright.ptx.cfg import build_graph
from tilewright.ptx.inline import inline_calls
from tilewright.ptx.parse import parse_ptx

needs_nvrtc = pytest.mark.skipif(toolchain() is None, reason="NVRTC is not installed")


def outcome(text: str) -> TilewrightError | None:
    """None where the text can be read and split; the one expected error where not. Anything else is a failure."""
    try:
        for name, function in (module := parse_ptx(text)).functions.items():
            build_graph(function)
            if function.is_entry:
                build_graph(inline_calls(module, name))
    except TilewrightError as error:
        return error
    return None


@needs_nvrtc
def test_text_cut_off_anywhere() -> None:
    text = compiled("calls")
    begin, end = text.index(".visible .entry"), text.rindex("\n}", 0, text.index(".file")) + 1
    for at in range(0, begin, 50):
        outcome(text[:at])
    results = [outcome(text[:at]) for at in range(begin + 10, end, 50)]
    assert None not in results
    assert all("PTX line" in str(error) for error in results if error is not None and error.code == "ptx/not_ptx")
    assert outcome(text) is None


@needs_nvrtc
def test_damaged_text_never_breaks_the_parser() -> None:
    text, rng = compiled("calls"), random.Random(3)
    lines = text.split("\n")
    refused = 0
    for index in range(0, len(lines), 4):
        error = outcome("\n".join(lines[:index] + lines[index + 1 :]))
        refused += error is not None
        assert error is None or error.code in ("ptx/not_ptx", "ptx/unsupported_call")
    for _ in range(150):
        data = bytearray(text.encode())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        refused += outcome(data.decode("latin-1")) is not None
    for _ in range(60):
        begin, at = rng.randrange(len(text)), rng.randrange(len(text))
        refused += outcome(text[:at] + text[begin : begin + rng.randint(1, 200)] + text[at:]) is not None
    assert refused > 150


BODY = f"{HEAD}.entry k() {{\n.reg .b32 %r<5>;\n"
HOSTILE = [
    "{" * 100_000, "mov.b32 %r1, " + "(" * 100_000 + ";", "mov.b32 %r1, " + "{" * 50_000 + "}" * 50_000 + ";",
    "mov.b32 %r1, " + "-" * 100_000 + "1;", "mov.b32 %r1, " + "9" * 100_000 + ";", "a" * 300_000, "@" * 100_000,
    "ld.b32 %r1, " + "[" * 100_000 + "]" * 100_000 + ";", " " * 300_000, "mov.b32 %r1, " + "%r1," * 50_000 + ";",
    "\n" * 100_000 + "!", "L:" * 10_000, "." * 100_000, ".reg .b32 " + "a," * 20_000, "a.b" * 100_000, "/" * 100_000,
    '"' * 100_000, "/*" * 100_000, "%r" * 100_000, "add" + ".x" * 100_000 + " " * 1000, ".reg .b32 %q<99999999999>;",
    ".loc 1 1 1, function_name x, inlined_at 1 1 1\n" * 5_000, "mov.b32 %r1, 0x" + "f" * 70 + ";",
    "mov.b32 %r1, " + "((1)+" * 5_000 + ";", ".loc " + "9" * 5_000 + " 1 1\n",
]  # fmt: skip
HOSTILE_VARIABLES = [
    "[4] = {" + "{" * 100_000, "[2]" * 100_000, "[99999999999] = {1};", "[1000000000] = {{1}};", " = " + "(" * 100_000,
    " = 1<<63<<63<<63;", "[-1];", "[99999999999999];", "[] = {" + "1," * 1000, " = 0xFF(", "[][2] = {{1,2},{3,4,5}};",
]  # fmt: skip


@pytest.mark.parametrize(
    "text", [BODY + tail for tail in HOSTILE] + [f"{HEAD}.global .b8 x{t}" for t in HOSTILE_VARIABLES]
)
def test_hostile_text_is_refused_soon(text: str) -> None:
    begin = time.perf_counter()
    assert outcome(text) is not None
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, ".version"),
        ("\n\nhello", 3, ".version"),
        ("\x7fELF\x02\x01", 1, ".version"),
        (".version 8.7\n.target sm_80\n.entry k {\n  add.s32 %r1, 1, 2;\n}", 4, "declared register"),
        (".version 8.7\n.target sm_80\n.entry k {\n  .reg .b32 %r<3>;\n  add.s32 %r1, 1 2;\n}", 5, '","'),
        (".version 8.7\n.target sm_80\n.entry k {\n  bra L;\n", 5, '"}"'),
        (".version 8.7\n.target sm_80\n.entry k {\n  bra L;\n}", 4, "label L"),
        (".version 8.7\n.target sm_80\n.entry k {\n  .foo;\n}", 4, "directive"),
        (".version 8.7\n.target sm_80\n.address_size 32\n", 3, ".address_size 64"),
    ],
)
def test_errors_name_line_and_what_was_expected(text: str, line: int, expected: str) -> None:
    error = outcome(text)
    assert error is not None
    assert error.facts["ptx_line"] in (line, line - 1 if text.endswith("\n") else line)
    assert expected in error.message
    assert f"PTX line {error.facts['ptx_line']}" in error.message
    assert error.hint
