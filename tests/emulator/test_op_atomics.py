"""Atomic operations through PTX text."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from op_harness import encode, samples, signed, to_f32
from test_op_memory import kernel, run


def increment(old: int, limit: int) -> int:
    return 0 if old >= limit else old + 1


def decrement(old: int, limit: int) -> int:
    return limit if old == 0 or old > limit else old - 1


def serial(cells: dict[int, int], where: np.ndarray, values: np.ndarray, step: Callable[[int, int], int]) -> list[int]:
    old = []
    for cell, value in zip(where.tolist(), values.tolist(), strict=True):
        old.append(cells[cell])
        cells[cell] = step(cells[cell], value)
    return old


INTEGER_ATOMICS = [
    *itertools.product(("add", "min", "max"), ("u32", "s32", "u64", "s64")),
    *itertools.product(("and", "or", "xor", "exch"), ("b32", "b64")),
    ("inc", "u32"), ("dec", "u32"),
]  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize(("operation", "type_"), INTEGER_ATOMICS)
def test_integer_atomics(operation: str, type_: str, space: str) -> None:
    """Threads in ascending order, as the emulator without a random order has it: old values and the last ones."""
    bits = int(type_[1:])
    mask = (1 << bits) - 1
    is_signed = type_[0] == "s"

    def number(x: int) -> int:
        return signed(x, bits) if is_signed else x

    steps: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: (a + b) & mask,
        "min": lambda a, b: min(number(a), number(b)) & mask,
        "max": lambda a, b: max(number(a), number(b)) & mask,
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "exch": lambda a, b: b,
        "inc": increment, "dec": decrement,
    }  # fmt: skip
    rng = np.random.default_rng(4)
    values = samples(rng, type_, 64)
    if operation in ("inc", "dec"):
        values = rng.integers(0, 5, 64, dtype=np.uint32)
    where = rng.integers(0, 7, 64, dtype=np.uint32)
    start = samples(rng, type_, 8)
    name = "" if space == "generic" else f".{space}"
    r = "r" if bits == 32 else "d"
    size = bits // 8
    base = "mov.b64 %d20, %d1;" if space != "shared" else "mov.u64 %d20, s;"
    fill = f"@%p0 st.shared.b{bits} [%d8], %{r}31;" if space == "shared" else ""
    empty = f"@%p0 ld.shared.b{bits} %{r}31, [%d8]; @%p0 st.global.b{bits} [%d9], %{r}31;" if fill else ""
    ptx = kernel(
        f"""
    .shared .align 8 .b8 s[64];
    mul.wide.u32 %d2, %r0, {size}; ld.param.u64 %d3, [v]; add.s64 %d3, %d3, %d2; ld.global.b{bits} %{r}30, [%d3];
    mul.wide.u32 %d4, %r0, 4; add.s64 %d5, %d0, %d4; ld.global.u32 %r5, [%d5]; mul.wide.u32 %d6, %r5, {size};
    {base} add.s64 %d7, %d20, %d6; setp.lt.u32 %p0, %r0, 8; add.s64 %d8, %d20, %d2; add.s64 %d9, %d1, %d2;
    @%p0 ld.global.b{bits} %{r}31, [%d9]; {fill}
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 13; mov.b{bits} %{r}32, 0;
    @%p1 atom.relaxed.cta{name}.{operation}.{type_} %{r}32, [%d7], %{r}30;
    bar.sync 0;
    {empty}
    st.global.b{bits} [%d3], %{r}32;
    """,
        ".param .u64 a, .param .u64 b, .param .u64 v",
    )
    cells = dict(enumerate(start.tolist()))
    rows = np.arange(64) != 13
    wanted = serial(cells, where[rows], values[rows], steps[operation])
    data = [where.copy(), start.copy(), values.copy()]
    run(ptx, data)
    assert data[1].tolist() == list(cells.values())
    assert data[2][rows].tolist() == wanted
    assert data[2][13] == 0
    # red does the same to memory.
    if operation != "exch":
        again = [where.copy(), start.copy(), values.copy()]
        run(ptx.replace("atom.", "red.").replace(f" %{r}32, [%d7]", " [%d7]"), again)
        assert (again[1] == data[1]).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap(bits: int) -> None:
    """A lock-free counter: every thread adds once, by trying until nobody came between."""
    r = {16: "h", 32: "r", 64: "d"}[bits]
    add = "s16" if bits == 16 else f"s{bits}"
    ptx = kernel(
        f"""
    ld.global.b{bits} %{r}20, [%d1];
LOOP:
    add.{add} %{r}21, %{r}20, 3; atom.global.cas.b{bits} %{r}22, [%d1], %{r}20, %{r}21;
    setp.eq.{add} %p0, %{r}22, %{r}20; mov.b{bits} %{r}20, %{r}22; @!%p0 bra LOOP;
    """
    )
    for schedule in ("lockstep", "warp_serial", "random"):
        a, b = np.zeros(8, np.uint8), np.array([5, 0, 0, 0], f"u{bits // 8}")
        run(ptx, [a, b], schedule=schedule)
        assert b[0] == 5 + 3 * 64


def test_float_atomics() -> None:
    """Sums in some order: small integers are exact in all of these types; f64 and f32 old values are partial sums."""
    body = """
    rem.u32 %r1, %r0, 3; mul.wide.u32 %d2, %r1, 8; add.s64 %d3, %d1, %d2; cvt.rn.f32.u32 %f1, %r0; cvt.f64.f32 %e1, %f1;
    atom.global.add.f32 %f2, [%d3], %f1; atom.global.add.f64 %e2, [%d3+24], %e1;
    and.b32 %r2, %r0, 3; cvt.rn.f16.u32 %h1, %r2; mov.b32 %r3, {%h1, %h1}; cvt.rn.bf16.u32 %h2, %r2;
    mov.b32 %r4, {%h2, %h2};
    atom.global.add.noftz.f16x2 %r5, [%d3+48], %r3; atom.global.add.noftz.bf16x2 %r6, [%d3+72], %r4;
    atom.global.add.noftz.f16 %h3, [%d3+96], %h1; atom.global.add.noftz.bf16 %h4, [%d3+120], %h2;
    red.global.add.f32 [%d3+144], %f1; red.global.add.noftz.f16x2 [%d3+168], %r3;
    atom.global.min.noftz.f16x2 %r7, [%d3+192], %r3; atom.global.max.noftz.bf16x2 %r8, [%d3+216], %r4;
    red.global.add.noftz.v2.f16x2 [%d3+240], {%r3, %r3}; atom.global.add.v2.f32 {%f8, %f9}, [%d3+264], {%f1, 1.0};
    mul.wide.u32 %d5, %r0, 4; add.s64 %d6, %d0, %d5; st.global.f32 [%d6], %f2;
    """
    a, b = np.zeros(64, np.float32), np.zeros((12, 3, 8), np.uint8)
    run(kernel(body), [a, b])
    threads = np.arange(64)
    for cell in range(3):
        mine = threads[threads % 3 == cell]
        assert b[0, cell].view(np.float32)[0] == mine.sum()
        assert b[1, cell].view(np.float64)[0] == mine.sum()
        low = (mine & 3).sum()
        assert (b[2, cell].view(np.float16)[:2] == low).all()
        assert (b[3, cell].view(ml_dtypes.bfloat16)[:2].astype(float) == low).all()
        assert (b[4, cell].view(np.float16)[:2] == [low, 0]).all()
        assert (b[5, cell].view(ml_dtypes.bfloat16)[:2].astype(float) == [low, 0]).all()
        assert b[6, cell].view(np.float32)[0] == mine.sum()
        assert (b[7, cell].view(np.float16)[:2] == low).all()
        assert (b[8, cell].view(np.float16)[:2] == 0).all()
        assert (b[9, cell].view(ml_dtypes.bfloat16)[:2].astype(float) == 3).all()
        assert (b[10, cell].view(np.float16) == low).all()
        assert (b[11, cell].view(np.float32) == [mine.sum(), len(mine)]).all()
        # Old values: each is a sum of the others in some order, so they ascend with the order.
        sums = np.concatenate([[0.0], np.cumsum(mine)])[:-1]
        assert sorted(a[mine]) == list(sums)


def test_random_order_of_atomics() -> None:
    """Another seed, another order within a warp: the sum is the same, who saw which old value is not."""
    ptx = kernel(
        "atom.global.add.u32 %r1, [%d1], 1; mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; st.global.u32 [%d3], %r1;"
    )
    seen = []
    for seed in range(3):
        a, b = np.zeros(32, np.uint32), np.zeros(1, np.uint32)
        run(ptx, [a, b], threads=32, schedule="random", seed=seed)
        assert b[0] == 32
        assert sorted(a) == list(range(32))
        seen.append(tuple(a))
    assert len(set(seen)) == 3


def test_atomics_round_as_their_type_does() -> None:
    ptx = kernel(
        "mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; ld.global.f32 %f1, [%d3]; red.global.add.f32 [%d1], %f1;"
    )
    a = samples(np.random.default_rng(0), "f32", 64)
    a = np.where((a & 0x7F800000) == 0x7F800000, np.uint32(1), a)
    b = np.zeros(1, np.uint32)
    run(ptx, [a.copy(), b])
    total = np.float32(0)
    with np.errstate(all="ignore"):
        for x in a.view(np.float32):
            total = total + x
    assert b[0] == encode("f32", float(total))
    assert to_f32(int(b[0])) == total
