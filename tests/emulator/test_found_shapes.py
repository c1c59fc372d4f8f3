"""Shapes of matrix instructions that are not emulated: an outcome of the run, with its line, never an exception."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation, emulate

PTX = """
.version 8.7
.target sm_86
.address_size 64
.visible .entry k(.param .u64 d)
{{
    .reg .b32 %r<4>;
    .reg .f32 %f<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [d];
    mov.b32 %r0, 0;
    mov.b32 %r1, 0;
    mov.f32 %f0, 0f00000000;
    {instruction}
    st.global.f32 [%d0], %f0;
    ret;
}}
"""
LEGACY = """mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32
        {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%r0, %r1}, {%r0, %r1}, {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};"""
KNOWN = """mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
        {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r0}, {%f0, %f0, %f0, %f0};"""


def run(instruction: str) -> Emulation:
    kernel = compile_kernel(parse(PTX.format(instruction=instruction), "k"), 0)
    buffers = [Buffer("d", np.zeros(4, np.uint8), True)]
    geometry = Geometry((1, 1, 1), (32, 1, 1), (1, 1, 1), 0, 0)
    return emulate(kernel, geometry, buffers, np.int64(1 << 40).tobytes(), EmulatorOptions())


def test_a_shape_that_is_not_emulated_is_named_with_its_instruction() -> None:
    done = run(LEGACY)
    assert done.error is not None
    assert "m8n8k4" in done.error
    assert "PTX line" in done.error
    assert not done.hazards  # of the kernel, nothing was found


def test_a_known_shape_runs() -> None:
    assert run(KNOWN).error is None
