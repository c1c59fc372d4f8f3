"""Loads, stores, atomics and state spaces through PTX text."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from op_harness import HEAD, Program, launch, samples, signed

N = 192


def kernel(
    body: str, params: str = ".param .u64 a, .param .u64 b", declarations: str = "", target: str = "sm_100a"
) -> str:
    registers = """
    .reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<64>; .reg .f32 %f<32>; .reg .b64 %d<64>; .reg .f64 %e<16>;
    """
    begin = "ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; mov.u32 %r0, %tid.x;" if params else ""
    head = f"{HEAD.format(target=target)}{declarations}\n.visible .entry k({params})"
    return f"{head}\n{{{registers}{begin}\n{body}\nret;\n}}\n"


def run(ptx: str, data: list[np.ndarray], threads: int = 64, grid: int = 1, **options: object) -> None:
    done = launch(ptx, [d.view(np.uint8).reshape(-1) for d in data], (grid, 1, 1), (threads, 1, 1), **options)  # type: ignore[arg-type]
    assert done.error is None, done.error
    assert not done.hazards, done.hazards


@pytest.mark.parametrize("space", ["global", "shared", "local", "generic", "generic_shared", "generic_local"])
@pytest.mark.parametrize("is_guarded", [False, True])
def test_narrow_types(space: str, is_guarded: bool) -> None:
    """Every width into a wider register and back, signs and zeros extended; some threads only."""
    before = {
        "global": f"add.s64 %d2, %d2, %d1; add.s64 %d2, %d2, {8 * N};",
        "generic": f"add.s64 %d2, %d2, %d1; add.s64 %d2, %d2, {8 * N};",
        "shared": "mov.u64 %d3, s; add.s64 %d2, %d2, %d3;",
        "generic_shared": "mov.u64 %d3, s; cvta.shared.u64 %d3, %d3; add.s64 %d2, %d2, %d3;",
        "local": "mov.u64 %d2, l;",
        "generic_local": "mov.u64 %d2, l; cvta.local.u64 %d2, %d2;",
    }[space]
    name = "" if space.startswith("generic") else f".{space}"
    guard = "@%i1" if is_guarded else ""
    body = f"""
    mul.wide.u32 %d2, %t, 16; rem.u32 %r9, %t, 64; mul.wide.u32 %d4, %r9, 16;
    ld.param.u64 %d1, [in2]; {"mov.b64 %d2, %d4;" if "shared" in space else ""} {before}
    cvt.u32.u64 %r1, %i0; cvt.u16.u64 %h1, %i0;
    mov.u64 %d9, 0; st{name}.u64 [%d2], %d9; st{name}.b64 [%d2+8], %d9;
    st{name}.u8 [%d2], %r1; st{name}.u8 [%d2+1], %h1; st{name}.u8 [%d2+2], %i0;
    {guard} st{name}.u16 [%d2+4], %r1; {guard} st{name}.b16 [%d2+6], %h1; {guard} st{name}.u32 [%d2+8], %i0;
    {guard} st{name}.s8 [%d2+12], 200;
    mov.b32 %o0, -5; mov.b32 %o1, -5; mov.b64 %o2, -5; mov.b32 %o3, -5; mov.b32 %o4, -5; mov.b64 %o5, -5;
    mov.b16 %o6, -5;
    mov.b64 %o7, -5; mov.b16 %o8, -5; mov.b32 %o9, -5;
    {guard} ld{name}.u8 %o0, [%d2]; {guard} ld{name}.s8 %o1, [%d2+1]; {guard} ld{name}.s8 %o2, [%d2+2];
    {guard} ld{name}.u16 %o3, [%d2+4]; {guard} ld{name}.s16 %o4, [%d2+6]; {guard} ld{name}.s32 %o5, [%d2+8];
    {guard} ld{name}.s8 %o6, [%d2]; {guard} ld{name}.b32 %o7, [%d2+8]; {guard} ld{name}.b8 %o8, [%d2+12];
    {guard} ld{name}.s8 %o9, [%d2+12];
    """
    outputs = ["b32", "b32", "b64", "b32", "b32", "b64", "b16", "b64", "b16", "b32"]
    program = Program(
        ["b64", "pred", "b64"], outputs, body, locals=".shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[16];"
    )
    rng = np.random.default_rng(0)
    data, guards = samples(rng, "b64", N), samples(rng, "pred", N)
    for block in (64, 48):
        got = program.run([data, guards, np.zeros(3 * N, np.uint64)], N, block)
        for at, x in enumerate(int(v) for v in data):
            s8 = signed(x, 8)
            wanted = [x & 0xFF, s8, s8, x & 0xFFFF, signed(x, 16), signed(x, 32), s8, x & 0xFFFFFFFF, 200, -56]
            if is_guarded and not guards[at]:
                wanted = [-5] * 10
            for k, want in enumerate(wanted):
                bits = {"b16": 16, "b32": 32, "b64": 64}[outputs[k]]
                assert int(got[k][at]) == want & ((1 << bits) - 1), (k, at, block)


@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
@pytest.mark.parametrize(
    "form", ["v2.b8", "v4.u8", "v2.u16", "v4.b16", "v2.f32", "v4.u32", "v2.f64", "v2.b64", "v4.s8"]
)
def test_vectors(space: str, form: str) -> None:
    count, type_ = int(form[1]), form.split(".")[1]
    size = int(type_[1:]) // 8
    register = {1: "h", 2: "h", 4: "r", 8: "d"}[size]
    register = {"f32": "f", "f64": "e"}.get(type_, register)
    items = ", ".join(f"%{register}{k + 10}" for k in range(count))
    back = ", ".join(f"%{register}{k + 10}" for k in reversed(range(count)))
    other = {
        "global": "mov.b64 %d5, %d3;", "generic": "mov.b64 %d5, %d3;",
        "shared": f"mov.u64 %d5, s; mul.wide.u32 %d6, %r0, {size * count}; add.s64 %d5, %d5, %d6;",
        "local": "mov.u64 %d5, l;",
    }[space]  # fmt: skip
    name = "" if space == "generic" else f".{space}"
    ptx = kernel(
        f"""
    .shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[16];
    mul.wide.u32 %d2, %r0, {size * count}; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2; {other}
    ld.global.{form} {{{items}}}, [%d3];
    setp.lt.u32 %p0, %r0, 50;
    st{name}.{form} [%d5], {{{items}}};
    @%p0 st{name}.{form} [%d5], {{{back}}};
    ld{name}.{form} {{{items}}}, [%d5];
    @!%p0 ld{name}.{form} {{{back}}}, [%d5];
    st.global.{form} [%d4], {{{items}}};
    """
    )
    a = np.random.default_rng(1).integers(0, 256, 64 * size * count, dtype=np.uint8)
    if type_ in ("f32", "f64"):
        a[:] = a & 0x3F
    original, b = a.copy(), np.zeros_like(a)
    run(ptx, [a, b])
    elements = original.view(f"V{size}").reshape(64, count)
    wanted = elements[:, ::-1].copy()  # once turned round by the store, or by the load
    assert (b.view(f"V{size}").reshape(64, count) == wanted).all()


@pytest.mark.parametrize("form", ["v8.b32", "v8.f32", "v4.b64", "v4.f64"])
def test_32_bytes(form: str) -> None:
    count, register = int(form[1]), {"b32": "r", "f32": "f", "b64": "d", "f64": "e"}[form.split(".")[1]]
    items = ", ".join(f"%{register}{k + 10}" for k in range(count))
    ptx = kernel(
        f"mul.wide.u32 %d2, %r0, 32; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;"
        f"ld.global.nc.L1::evict_last.L2::128B.{form} {{{items}}}, [%d3]; st.global.{form} [%d4], {{{items}}};"
    )
    a = np.random.default_rng(1).integers(0, 63, 64 * 32, dtype=np.uint8)
    b = np.zeros_like(a)
    run(ptx, [a, b])
    assert (a == b).all()


def test_uniform_addresses() -> None:
    """One address for all threads: one value for all, and the last store wins as any may."""
    ptx = kernel(
        """
    ld.global.u32 %r1, [%d0]; ld.global.v2.u32 {%r2, %r3}, [%d0+8]; add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3;
    mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d1, %d2; st.global.u32 [%d2+16], %r1;
    st.global.u32 [%d1], 7; st.global.u32 [%d1+4], %r0; st.global.v2.u32 [%d1+8], {%r1, 5};
    """
    )
    a, b = np.arange(10, 20, dtype=np.uint32), np.zeros(68, np.uint32)
    run(ptx, [a, b])
    assert (b[4:] == 10 + 12 + 13).all()
    assert b[0] == 7
    assert b[1] in range(64)
    assert list(b[2:4]) == [35, 5]


def test_caching_and_ordering_modifiers() -> None:
    ptx = kernel(
        """
    mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
    createpolicy.fractional.L2::evict_last.b64 %d9, 1.0;
    prefetch.global.L2 [%d3]; prefetch.global.L1 [%d3];
    ld.global.L1::no_allocate.L2::256B.u32 %r1, [%d3]; ld.volatile.global.u32 %r2, [%d3];
    ld.relaxed.gpu.global.u32 %r3, [%d3]; ld.acquire.sys.u32 %r4, [%d3]; ldu.global.u32 %r5, [%d3];
    ld.global.L2::cache_hint.u32 %r6, [%d3], %d9; ld.global.cg.u32 %r7, [%d3];
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    add.u32 %r1, %r1, %r6; add.u32 %r1, %r1, %r7; membar.gl; membar.cta;
    st.release.gpu.global.u32 [%d4], %r1; st.global.wt.u32 [%d4], %r1; st.volatile.global.u32 [%d4], %r1;
    st.global.L2::cache_hint.u32 [%d4], %r1, %d9;
    """
    )
    a, b = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    run(ptx, [a, b])
    assert (b == 7 * a).all()


def test_spaces_and_windows() -> None:
    """cvta there and back, isspacep, and generic accesses whose threads go to different spaces."""
    declarations = ".global .align 4 .b8 g[256]; .const .align 4 .u32 c[4] = {11, 22, 33, 44};"
    ptx = kernel(
        """
    .shared .align 16 .b8 s[256]; .local .align 16 .b8 l[32];
    mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; mul.wide.u32 %d30, %r0, 32; add.s64 %d4, %d1, %d30;
    mov.u64 %d5, s; cvta.shared.u64 %d6, %d5; add.s64 %d6, %d6, %d2;
    mov.u64 %d7, l; cvta.local.u64 %d8, %d7;
    mov.u64 %d9, g; cvta.global.u64 %d10, %d9; add.s64 %d10, %d10, %d2;
    cvta.to.shared.u64 %d11, %d6; cvta.to.local.u64 %d12, %d8; cvta.to.global.u64 %d13, %d10;
    cvta.shared.u64 %d14, s; setp.eq.s64 %p0, %d14, %d6; cvta.const.u64 %d15, c;
    st.u32 [%d6], 100; st.u32 [%d8], 200; st.u32 [%d10], 300;
    ld.shared.u32 %r1, [%d11]; ld.local.u32 %r2, [%d12]; ld.global.u32 %r3, [%d13];
    rem.u32 %r4, %r0, 4; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1; setp.eq.u32 %p3, %r4, 2;
    mov.b64 %d16, %d3; @%p1 mov.b64 %d16, %d6; @%p2 mov.b64 %d16, %d8; @%p3 mov.b64 %d16, %d10;
    ld.u32 %r5, [%d16]; add.u32 %r6, %r5, 1; st.u32 [%d16], %r6; ld.u32 %r7, [%d16];
    @!%p2 atom.add.u32 %r20, [%d16], 10; @!%p2 ld.u32 %r7, [%d16];
    isspacep.shared %p4, %d16; isspacep.local %p5, %d16; isspacep.global %p6, %d16; isspacep.shared::cta %p7, %d6;
    selp.u32 %r8, 1, 0, %p4; selp.u32 %r9, 2, 0, %p5; selp.u32 %r10, 4, 0, %p6; or.b32 %r8, %r8, %r9;
    or.b32 %r8, %r8, %r10;
    selp.u32 %r9, 8, 0, %p7; or.b32 %r8, %r8, %r9; cvta.to.const.u64 %d17, %d15; ld.const.u32 %r11, [%d17+8];
    ld.u32 %r12, [%d15+12];
    st.global.v4.u32 [%d4], {%r1, %r2, %r3, %r5}; st.global.v4.u32 [%d4+16], {%r7, %r8, %r11, %r12};
    """,
        declarations=declarations,
    )
    a, b = np.arange(1000, 1064, dtype=np.uint32), np.zeros((64, 8), np.uint32)
    run(ptx, [a, b])
    which = np.arange(64) % 4
    first = np.choose(which, [100, 200, 300, np.arange(1000, 1064)])
    assert (b[:, :3] == [100, 200, 300]).all()
    assert (b[:, 3] == first).all()
    assert (b[:, 4] == first + 1 + 10 * (which != 1)).all()
    assert (b[:, 5] == np.choose(which, [1, 2, 4, 4]) + 8).all()
    assert (b[:, 6:] == [33, 44]).all()


def test_module_variables() -> None:
    """Initialisers, pointers in them, and stores that stay from block to block."""
    declarations = """
    .global .align 4 .u32 table[5] = {1, 2, 3, 0xFFFFFFFF};
    .global .align 4 .f32 numbers[2] = {0f3F800000, 2.5};
    .global .align 8 .u64 inside[2] = {table+8, generic(numbers)};
    .const .align 2 .s16 small[3] = {-1, 7, 300};
    .global .align 4 .u32 total;
    """
    ptx = kernel(
        """
    mov.u32 %r9, %ctaid.x; mad.lo.u32 %r0, %r9, 64, %r0; mul.wide.u32 %d2, %r0, 16; add.s64 %d4, %d1, %d2;
    ld.global.u64 %d5, [inside]; ld.global.u32 %r1, [%d5+4]; ld.global.u64 %d6, [inside+8]; ld.f32 %f1, [%d6+4];
    ld.global.u32 %r2, [table+16]; ld.const.s16 %r3, [small]; mov.u64 %d7, small; ld.const.u16 %r4, [%d7+4];
    add.s32 %r3, %r3, %r4; add.s32 %r3, %r3, %r2; atom.global.add.u32 %r5, [total], 1;
    cvt.rzi.s32.f32 %r6, %f1; st.global.v4.u32 [%d4], {%r1, %r6, %r3, %r5};
    """,
        declarations=declarations,
    )
    a, b = np.zeros(1, np.uint32), np.zeros((192, 4), np.uint32)
    run(ptx, [a, b], grid=3, chunk_threads=64)
    assert (b[:, :3] == [0xFFFFFFFF, 2, 299]).all()
    assert sorted(b[:, 3]) == list(range(192))


def test_parameters() -> None:
    params = ".param .u64 a, .param .u64 b, .param .s8 c, .param .f32 f, .param .align 8 .b8 big[24], .param .u16 h"
    ptx = kernel(
        """
    mul.wide.u32 %d2, %r0, 32; add.s64 %d4, %d1, %d2;
    ld.param.s8 %r1, [c]; ld.param.f32 %f1, [f]; ld.param.v2.u32 {%r2, %r3}, [big]; ld.param.u16 %r4, [h];
    mov.b64 %d5, big; cvta.param.u64 %d5, %d5; rem.u32 %r5, %r0, 6; mul.wide.u32 %d6, %r5, 4; add.s64 %d5, %d5, %d6;
    ld.u32 %r6, [%d5]; setp.lt.u32 %p0, %r0, 10; mov.u32 %r7, 5; @%p0 ld.param.u32 %r7, [big+20]; mov.b64 %d7, big;
    add.s64 %d7, %d7, %d6; ld.param.u32 %r8, [%d7]; mov.b32 %r9, %f1; isspacep.param %p1, %d5; selp.u32 %r10, 1, 0, %p1;
    add.u32 %r8, %r8, %r10;
    st.global.v4.u32 [%d4], {%r1, %r9, %r2, %r3}; st.global.v4.u32 [%d4+16], {%r4, %r6, %r7, %r8};
    """,
        params,
    )
    scalars = struct.pack("<bxxxf6IH", -3, 1.5, *range(70, 76), 65000)
    a, b = np.zeros(1, np.uint32), np.zeros((64, 8), np.uint32)
    run(ptx, [a, b], scalars=scalars)
    at = np.arange(64)
    assert (b[:, :5] == [0xFFFFFFFD, 0x3FC00000, 70, 71, 65000]).all()
    assert (b[:, 5] == 70 + at % 6).all()
    assert (b[:, 6] == np.where(at < 10, 75, 5)).all()
    assert (b[:, 7] == 71 + at % 6).all()


def test_out_of_bounds_is_reported_not_written() -> None:
    ptx = kernel(
        "mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r0;atom.global.add.u32 %r1, [%d3+4], 1;"
    )
    b = np.zeros(32 * 4, np.uint8)
    done = launch(ptx, [np.zeros(4, np.uint8), b], (1, 1, 1), (64, 1, 1))
    assert {h.kind for h in done.hazards} == {"out_of_bounds_write"}
    assert (b.view(np.uint32) == np.arange(32) + (np.arange(32) > 0)).all()


def test_vectors_of_several_spaces() -> None:
    """One generic access whose threads go to shared, local and global memory."""
    ptx = kernel(
        """
    .shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[16];
    mul.wide.u32 %d2, %r0, 16; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
    mov.u64 %d5, s; cvta.shared.u64 %d5, %d5; add.s64 %d5, %d5, %d2; mov.u64 %d6, l; cvta.local.u64 %d6, %d6;
    rem.u32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1;
    mov.b64 %d7, %d4; @%p1 mov.b64 %d7, %d5; @%p2 mov.b64 %d7, %d6;
    ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%d3]; st.v4.u32 [%d7], {%r5, %r6, %r7, %r8};
    ld.v4.u32 {%r9, %r10, %r11, %r12}, [%d7]; ld.v2.u32 {_, %r13}, [%d7+8];
    st.global.v4.u32 [%d4], {%r13, %r11, %r10, %r9};
    """
    )
    a, b = np.arange(256, dtype=np.uint32), np.zeros((64, 4), np.uint32)
    run(ptx, [a, b])
    assert (b == a.reshape(64, 4)[:, ::-1]).all()
