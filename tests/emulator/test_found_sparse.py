"""``mma.sp`` in a kernel: found in published sparse GEMMs, which no lowering knew."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation, emulate

PTX = """
.version 8.7
.target sm_86
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 e, .param .u64 d)
{{
    .reg .b32 %r<16>;
    .reg .f32 %f<8>;
    .reg .b64 %d<16>;
    ld.param.u64 %d0, [a];
    ld.param.u64 %d1, [b];
    ld.param.u64 %d2, [e];
    ld.param.u64 %d3, [d];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d4, %r0, 8;
    mul.wide.u32 %d5, %r0, 4;
    mul.wide.u32 %d6, %r0, 16;
    add.s64 %d0, %d0, %d4;
    add.s64 %d1, %d1, %d4;
    add.s64 %d2, %d2, %d5;
    add.s64 %d3, %d3, %d6;
    ld.global.v2.b32 {{%r1, %r2}}, [%d0];
    ld.global.v2.b32 {{%r3, %r4}}, [%d1];
    ld.global.b32 %r5, [%d2];
    mov.f32 %f0, 0f3F800000;
    mma.{name}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {{%f1, %f2, %f3, %f4}}, {{%r1, %r2}}, {{%r3, %r4}}, {{%f0, %f0, %f0, %f0}}, %r5, {selector};
    st.global.v4.f32 [%d3], {{%f1, %f2, %f3, %f4}};
    ret;
}}
"""
# Lane and register of an element; PTX ISA, "Matrix Fragments for sparse mma.m16n8k16 with .f16 and .bf16 types".
LANES = np.arange(32)
GROUP, IN_GROUP = LANES // 4, LANES % 4


def run(kept: np.ndarray, b: np.ndarray, metadata: int, name: str, selector: int = 0) -> tuple[Emulation, np.ndarray]:
    """D, float32[16, 8], of C = 1; kept: float16[16, 8], b: float16[16, 8], the same metadata in every lane."""
    a_regs = np.zeros((32, 2, 2), np.float16)
    b_regs = np.zeros((32, 2, 2), np.float16)
    for half in range(2):
        for e in range(2):
            a_regs[:, half, e] = kept[GROUP + 8 * half, 2 * IN_GROUP + e]
            b_regs[:, half, e] = b[2 * IN_GROUP + 8 * half + e, GROUP]
    data = [a_regs.reshape(-1), b_regs.reshape(-1), np.full(32, metadata, np.uint32), np.zeros(128, np.float32)]
    parsed = parse(PTX.format(name=name, selector=selector), "k")
    kernel = compile_kernel(parsed, 0)
    buffers = [Buffer(n, x.view(np.uint8).copy(), n == "d") for n, x in zip("abed", data, strict=True)]
    params = b"".join(np.int64((n + 1) << 40).tobytes() for n in range(4))
    done = emulate(kernel, Geometry((1, 1, 1), (32, 1, 1), (1, 1, 1), 0, 0), buffers, params, EmulatorOptions())
    d_regs = buffers[3].data.view(np.float32).reshape(32, 2, 2)
    d = np.zeros((16, 8), np.float32)
    for half in range(2):
        for e in range(2):
            d[GROUP + 8 * half, 2 * IN_GROUP + e] = d_regs[:, half, e]
    return done, d


def dense(kept: np.ndarray, first: int, second: int) -> np.ndarray:
    """float64[16, 16]: every chunk of four columns keeps the same two."""
    whole = np.zeros((16, 4, 4))
    whole[:, :, first] = kept.reshape(16, 4, 2)[:, :, 0]
    whole[:, :, second] = kept.reshape(16, 4, 2)[:, :, 1]
    return whole.reshape(16, 16)


@pytest.mark.parametrize("name", ["sp", "sp::ordered_metadata"])
@pytest.mark.parametrize("code", [0x4, 0x8, 0x9, 0xC, 0xD, 0xE])
def test_the_metadata_say_which_columns_are_kept(code: int, name: str) -> None:
    random = np.random.default_rng(3)
    kept = random.integers(-4, 5, (16, 8)).astype(np.float16)
    b = random.integers(-4, 5, (16, 8)).astype(np.float16)
    done, d = run(kept, b, code * 0x11111111, name)
    assert done.error is None
    assert not done.hazards
    expected = dense(kept, code & 3, code >> 2) @ b.astype(np.float64) + 1
    np.testing.assert_array_equal(d, expected)
    other = 0x4 if code != 0x4 else 0xE  # the broken twin: other columns, another product
    assert (dense(kept, other & 3, other >> 2) @ b.astype(np.float64) + 1 != expected).any()


def test_a_selector_of_lanes_that_there_are_not_is_named() -> None:
    done, _ = run(np.zeros((16, 8), np.float16), np.zeros((16, 8), np.float16), 0x44444444, "sp", selector=7)
    assert done.error is not None
    assert "selector" in done.error
