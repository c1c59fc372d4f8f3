"""Calls put in place: the kernel does what it did, its names are its own, and what cannot be inlined is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from ptx_interpreter import run_kernel
from ptx_samples import HEAD, instructions, module_of

from tilewright.build.artifact import Artifact, BuildRequest
from tilewright.build.build import build
from tilewright.build.nvrtc import toolchain
from tilewright.errors import EXIT_BAD_INPUT, TilewrightError
from tilewright.ptx.cfg import build_graph
from tilewright.ptx.inline import inline_calls
from tilewright.ptx.module import Function, Label, Module, Place, Symbol
from tilewright.ptx.parse import parse_ptx
from tilewright.ptx.places import user_line
from tilewright.settings import Settings

needs_nvrtc = pytest.mark.skipif(toolchain() is None, reason="NVRTC is not installed")

MODULE = (
    HEAD
    + """
.extern .func (.param .b32 r) vprintf (.param .b32 a);
.global .b32 counter = 5;
.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16], .param .b32 k)
{
    .local .align 4 .b8 depot[8];
    .shared .align 4 .b32 total;
    .reg .b64 %SPL;
    .reg .b32 %r<9>;
    .reg .pred %p<2>;
    .loc 1 10 1
    mov.u64 %SPL, depot;
    ld.param.v2.u32 {%r1, %r2}, [in];
    ld.param.u32 %r3, [in+8];
    ld.param.s8 %r4, [k];
    ld.shared.u32 %r7, [total];
    add.s32 %r7, %r7, %r4;
    st.shared.u32 [total], %r7;
    st.local.u32 [%SPL+4], %r1;
    setp.lt.s32 %p1, %r4, 0;
    st.param.v2.b32 [out+0], {%r2, %r3};
    @%p1 bra $NEG;
    ld.local.u32 %r5, [%SPL+4];
    st.param.b32 [out+8], %r5;
    ret;
$NEG:
    .loc 2 7 1, function_name $L__info_string0, inlined_at 1 10 1
    mov.u32 %r5, -1;
    st.param.b32 [out+8], %r5;
    st.param.b32 [out+12], %r4;
    ret;
}
.func (.param .b32 out) twice(.param .b32 x)
{
    .reg .b32 %r<9>;
    .reg .pred %p<3>;
    ld.param.u32 %r1, [x];
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
AGAIN:
    {
    .param .align 8 .b8 a[16];
    .param .b32 b;
    .param .align 8 .b8 c[16];
    st.param.v2.b32 [a], {%r1, %r3};
    st.param.b32 [a+8], 9;
    st.param.b32 [b], %r4;
    .loc 1 21 1
    call.uni (c), swap, (a, b);
    ld.param.b32 %r5, [c+8];
    }
    {
    .param .b32 a; .param .b32 c;
    st.param.b32 [a], %r5;
    call.uni (c), vprintf, (a);
    }
    add.s32 %r3, %r3, %r5;
    sub.s32 %r4, %r4, 100;
    setp.gt.s32 %p1, %r4, -250;
    @%p1 bra AGAIN;
    setp.eq.s32 %p2, %r1, 3;
    @!%p2 st.param.b32 [out], %r3;
    @!%p2 ret;
    st.param.b32 [out], 77;
}
.visible .entry k(.param .u64 pointer, .param .b32 n)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<5>;
    .reg .pred %p<4>;
    .shared .b32 total;
    ld.param.u64 %rd1, [pointer];
    ld.param.u32 %r1, [n];
    st.shared.u32 [total], 1000;
    setp.lt.s32 %p1, %r1, 5;
    {
    .param .b32 a; .param .b32 c;
    st.param.b32 [a], %r1;
    st.param.b32 [c], 4;
    .loc 1 30 1
    @%p1 call (c), twice, (a);
    ld.param.b32 %r2, [c];
    }
    {
    .param .b32 a; .param .b32 c;
    st.param.b32 [a], 3;
    call (c), twice, (a);
    ld.param.b32 %r3, [c];
    }
    st.global.v2.u32 [%rd1], {%r2, %r3};
    ld.shared.u32 %r4, [total];
    st.global.u32 [%rd1+8], %r4;
    ret;
}
.file 1 "/src/k.cu"
.file 2 "/cuda/header.hpp"
"""
)


def module() -> Module:
    # Both functions have a shared variable of this name: they are two. Zeros, so that its sum is known.
    found = parse_ptx(MODULE)
    swap = found.functions["swap"]
    zeros = tuple(replace(v, name="swap_total", initial=bytes(4)) for v in swap.shared)
    text = MODULE.replace("[total], %r7", "[swap_total], %r7").replace("%r7, [total]", "%r7, [swap_total]")
    found = parse_ptx(text.replace(".shared .align 4 .b32 total;", ".shared .align 4 .b32 swap_total;"))
    return replace(found, functions={**found.functions, "swap": replace(found.functions["swap"], shared=zeros)})


@pytest.mark.parametrize("n", [0, 3, 4, 5, 100])
def test_the_kernel_does_what_it_did(n: int) -> None:
    original = module()
    arguments = {"n": struct.pack("<i", n)}
    expected = run_kernel(original, original.functions["k"], arguments)
    inlined = inline_calls(original, "k")
    assert all(i.operands[1] == Symbol("vprintf") for i in instructions(inlined) if i.opcode == "call")
    assert run_kernel(original, inlined, arguments) == expected
    assert struct.unpack_from("<3i", expected[0])[1] == 77
    assert len(expected[1]) == (6 if n < 5 else 3)


def test_a_broken_inliner_is_noticed() -> None:
    """The comparison above can fail: with one instruction less of the inlined code it does."""
    original = module()
    arguments = {"n": struct.pack("<i", 4)}
    expected = run_kernel(original, original.functions["k"], arguments)
    inlined = inline_calls(original, "k")
    stores = [i for i in instructions(inlined) if i.full_name in ("st.local.b32", "st.local.v2.b32", "st.shared.u32")]
    noticed = 0
    for store in stores:
        broken = replace(inlined, body=tuple(item for item in inlined.body if item is not store))
        noticed += run_kernel(original, broken, arguments) != expected
    assert noticed >= 6


def test_names_and_variables() -> None:
    found = inline_calls(module(), "k")
    labels = [item.name for item in found.body if isinstance(item, Label)]
    assert len(labels) == len(set(labels))
    assert [v.name for v in found.shared] == ["total", "swap_total"], "shared variables exist once"
    names = [v.name for v in (*found.local, *found.call_params, *found.shared)]
    assert len(names) == len(set(names))
    assert sum(v.name.startswith("depot") for v in found.local) == 2, "one for each call of swap"
    assert len(found.call_params) == 4, "those of the two calls of vprintf"
    graph = build_graph(found)
    assert graph.blocks[0].live_in == frozenset()
    for instruction in graph.instructions:
        for operand in instruction.operands:
            if hasattr(operand, "negated"):
                assert found.type_of(operand.name)
        is_param = "param" in instruction.modifiers
        assert (
            not is_param
            or str(instruction.operands).count("pointer") + str(instruction.operands).count("'n'")
            or any(v.name in str(instruction.operands) for v in found.call_params)
        )


def test_a_function_without_calls_stays_as_it_is() -> None:
    found = parse_ptx(HEAD + ".entry k() { ret; }")
    assert inline_calls(found, "k") is found.functions["k"]


def test_shared_variables_of_the_same_name_stay_two() -> None:
    found = inline_calls(parse_ptx(MODULE), "k")
    assert [v.name for v in found.shared] == ["total", "total_"]
    bases = {str(i.operands) for i in instructions(found) if i.full_name == "st.shared.u32"}
    assert sum("'total_'" in base for base in bases) >= 1


def test_places_say_where_the_call_was() -> None:
    found = inline_calls(module(), "k")
    header = [i.place for i in instructions(found) if i.place is not None and i.place.file == "/cuda/header.hpp"]
    in_swap = Place("/src/k.cu", 10, Place("/src/k.cu", 21, Place("/src/k.cu", 30)))
    assert header[0] == Place("/cuda/header.hpp", 7, in_swap)
    assert user_line(header[0], "k.cu") == 10
    assert user_line(header[0], None) == 30


def refused(text: str, name: str = "k") -> TilewrightError:
    with pytest.raises(TilewrightError) as caught:
        inline_calls(parse_ptx(HEAD + text), name)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return caught.value


ENTRY = ".entry k() { .reg .b64 %rd<3>; .param .b32 p; .param .b32 q;\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (".func f { call f; ret; }" + ENTRY + "call f; }", "a recursive call of f"),
        (".func g;.func f { call g; ret; } .func g { call f; ret; }" + ENTRY + "call f; }", "recursive"),
        (".func f { ret; }" + ENTRY + "mov.u64 %rd1, f; P: .callprototype _ (); call %rd1, (), P; }", "pointer"),
        (".func f(.param .b32 a) { ret; }" + ENTRY + "call f; }", "0 values where it has 1"),
        (".func f(.param .b32 a) { ret; }" + ENTRY + "call f, (5); }", "not .param variables"),
        (
            ".func g(.param .b32 a);.func f(.param .b32 a) { ret; }" + ENTRY + "call f, (p);\ncall g, (p); }",
            "both kinds",
        ),
    ],
)
def test_calls_that_cannot_be_inlined(text: str, what: str) -> None:
    error = refused(text)
    assert error.code == "ptx/unsupported_call"
    assert what in error.message
    assert f"PTX line {error.facts['ptx_line']}" in error.message


def test_long_chains_and_floods_of_calls_end() -> None:
    chain = ".func f0 { ret; }" + "".join(f".func f{i} {{ call f{i - 1}; ret; }}" for i in range(1, 200))
    assert refused(chain + ".entry k() { call f199; }").code == "ptx/unsupported_call"
    assert refused(ENTRY + "}", "other").code == "ptx/no_kernel"


CUDA = r"""
struct Pair { int a; long long b; short c[3]; char d; };
struct Nested { Pair p; int tail; };
__device__ __noinline__ Pair flip(Pair x, char by, bool up) {
  Pair y = x;
  y.a = up ? x.a + by : x.a - by;
  y.b = x.b * 3 - by;
  y.c[by & 1] = x.c[2] ^ (short)x.a;
  if (by < 0) { y.d = by; return y; }
  y.c[2] = 5;
  return y;
}
__device__ __noinline__ Nested deep(Nested n, int k) {
  for (int i = 0; i < 3; ++i) n.p = flip(n.p, (char)(k - i), i & 1);
  n.tail += n.p.c[1];
  return n;
}
__device__ __noinline__ void through(int* p, unsigned short v) { *p += v; }
extern "C" __global__ void k(long long* out, Nested n, int k) {
  Nested r = deep(n, k);
  int local[2] = {k, 7};
  through(&local[k & 1], 0xFFF0);
  out[0] = r.p.a; out[1] = r.p.b; out[2] = r.p.c[0]; out[3] = r.p.c[1]; out[4] = r.p.c[2]; out[5] = r.p.d;
  out[6] = r.tail; out[7] = local[0] * 1000 + local[1];
}
"""


@cache
def compiled_module(folder: Path) -> Module:
    made = build(BuildRequest(CUDA, "k.cu", "sm_80", "k"), Settings(folder))
    assert isinstance(made, Artifact), made
    return parse_ptx(made.ptx)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@needs_nvrtc
@pytest.mark.parametrize("k", [-3, 0, 1, 2, 5])
def test_structs_by_value_as_a_compiler_passes_them(k: int, folder: Path) -> None:
    original = compiled_module(folder)
    kernel = original.functions["k"]
    assert sum(i.opcode == "call" for f in original.functions.values() for i in instructions(f)) >= 3
    names = [parameter.name for parameter in kernel.params]
    values = struct.pack("<ixxxxqhhhbxi4x", 100, 1 << 40, 1, -2, 3, 4, 900)
    arguments = {names[1]: values, names[2]: struct.pack("<i", k)}
    expected = run_kernel(original, kernel, arguments)
    inlined = inline_calls(original, "k")
    assert not any(i.opcode == "call" for i in instructions(inlined))
    assert run_kernel(original, inlined, arguments) == expected
    assert expected[0] == by_hand(k)


def by_hand(k: int) -> bytes:
    a, b, c, d, tail = 100, 1 << 40, [1, -2, 3], 4, 900
    for i in range(3):
        by = k - i
        old = a
        a = a + by if i & 1 else a - by
        b = b * 3 - by
        c[by & 1] = c[2] ^ old
        if by < 0:
            d = by
        else:
            c[2] = 5
    local = [k, 7]
    local[k & 1] += 0xFFF0
    return struct.pack("<8q", a, b, *c, d, tail + c[1], local[0] * 1000 + local[1])


@needs_nvrtc
def test_prints_and_asserts_keep_their_calls() -> None:
    found: Function = inline_calls(module_of("calls"), "calls")
    called = {i.operands[-2].name for i in instructions(found) if i.opcode == "call"}  # type: ignore[union-attr]
    assert called == {"vprintf", "__assertfail"}
    assert len([v for v in found.shared if v.name.endswith("1s")]) == 1
    assert build_graph(found).blocks[0].live_in == frozenset()
