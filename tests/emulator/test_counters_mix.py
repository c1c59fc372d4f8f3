"""Classes, FLOPs, and the sheet that gathers counters."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.emulator.counters.mix import Counters, CounterSheet, LineTraffic
from tilewright.emulator.counters.operations import classify, operations
from tilewright.ptx.module import Instruction


def instruction(name: str) -> Instruction:
    root, *modifiers = name.split(".")
    return Instruction(root, tuple(modifiers), ())


@pytest.mark.parametrize(
    ("name", "kind", "arithmetic"),
    [
        ("fma.rn.f32", "fp32", {"fp32": 2}),
        ("add.f32", "fp32", {"fp32": 1}),
        ("fma.rn.f16x2", "fp16", {"fp16": 4}),
        ("add.rn.bf16x2", "bf16", {"bf16": 2}),
        ("mul.f64", "fp64", {"fp64": 1}),
        ("mad.lo.s32", "integer", {}),
        ("setp.lt.f32", "fp32", {}),
        ("ex2.approx.ftz.f32", "special", {"fp32": 1}),
        ("cvt.rn.f16.f32", "convert", {}),
        ("ld.global.nc.L1::no_allocate.v4.f32", "load_global", {}),
        ("st.shared::cta.u32", "store_shared", {}),
        ("ld.u8", "load_generic", {}),
        ("atom.shared.add.u32", "atomic_shared", {}),
        ("red.global.add.f32", "atomic_global", {}),
        ("cp.async.cg.shared.global.L2::128B", "copy", {}),
        ("bar.sync", "synchronise", {}),
        ("shfl.sync.bfly.b32", "warp", {}),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "matrix_move", {}),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.s8", "matrix_move", {}),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "tensor", {"tensor_f16": 256}),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32", "tensor", {"tensor_s8": 256}),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor", {"tensor_bf16": 128}),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "tensor", {"tensor_u8": 256}),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "tensor", {"tensor_f16": 2048}),
        ("wgmma.commit_group.sync.aligned", "synchronise", {}),
        ("bra.uni", "control", {}),
        ("and.b32", "integer", {}),
    ],
)
def test_classes_and_operations(name: str, kind: str, arithmetic: dict[str, int]) -> None:
    assert classify(instruction(name)) == kind
    assert operations(instruction(name)) == arithmetic


def test_a_tiled_product_adds_up() -> None:
    """The mma of one warp over a 16 × 8 × 64 product: 2·M·N·K operations."""
    sheet = CounterSheet()
    sheet.executed([instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")], threads=32 * 4)
    assert sheet.counters().flops == 2 * 16 * 8 * 64


def test_sheet() -> None:
    sheet = CounterSheet()
    lanes = np.arange(64)
    sheet.global_access(10, lanes, lanes * 4, 4, is_write=False)
    sheet.global_access(10, lanes[:8], lanes[:8] * 64, 4, is_write=True, copies=2)
    sheet.shared_access(11, lanes, lanes * 8, 4)
    sheet.executed([instruction("fma.rn.f32"), instruction("bar.sync")], 64)
    sheet.executed([instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")], 64)
    counters = sheet.counters()
    assert counters.lines[10] == LineTraffic(requests=4, sectors=8 + 16, ideal_sectors=8 + 2, bytes=256 + 64)
    assert counters.lines[11] == LineTraffic(wavefronts=4, ideal_wavefronts=2, bytes=256)
    assert (counters.global_bytes_read, counters.global_bytes_written, counters.shared_bytes) == (256, 64, 256)
    assert counters.thread_instructions == 192
    assert counters.mix == {"fp32": 64, "synchronise": 64, "tensor": 64}
    assert counters.flops == 128  # integer products are no FLOPs
    assert sheet.counters(lambda key: None).lines[None].bytes == 576
    share = counters.per_tile(4)
    assert share.lines[10].sectors == 6
    assert (share.thread_instructions, share.flops, share.shared_bytes) == (48, 32, 64)
    assert share.times(4) == counters
    with pytest.raises(ValueError, match="0 tiles"):
        counters.per_tile(0)
    assert Counters().flops == 0
