"""wgmma.mma_async, an instruction at a time: element types, signs, scales; and accumulators that are read too early."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_harness import Done, run

from tilewright.emulator.lower.accumulators import suspects
from tilewright.emulator.lower.compile import parse
from tilewright.emulator.tensor.descriptors import encode

M, N, K_BYTES = 64, 8, 32
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
FILL = """
    @%p15 mbarrier.init.shared.b64 [bars], 1;
    bar.sync 0;
    @%p15 mbarrier.arrive.expect_tx.shared.b64 _, [bars], 2304;
    @%p15 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r61], [%d60], 2304, [bars];
LOOP:
    mbarrier.try_wait.parity.shared.b64 %p1, [bars], 0;
    @!%p1 bra LOOP;
"""
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
COMMIT = "wgmma.commit_group.sync.aligned;\n"


def cores(matrix: np.ndarray) -> bytes:
    """K-major without a swizzle: 8 rows by 16 bytes, the two along K 128 bytes apart, groups of rows 256."""
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(len(matrix) // 8, 8, 2, 16)
    return raw.transpose(0, 2, 1, 3).tobytes()


def operands(types: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    made = []
    for rows, element in zip((M, N), types, strict=True):
        dtype = np.dtype(DTYPES[element])
        low = 0 if element == "u8" else -4
        made.append(random.integers(low, 5, (rows, K_BYTES // dtype.itemsize)).astype(dtype))
    raw = cores(made[0]) + cores(made[1])
    return made[0], made[1], np.frombuffer(raw, np.int32)


def body(types: tuple[str, str, str], scale: str, more: str, between: str = COMMIT + WAIT, start: int = 3) -> str:
    base = 0x400  # where smem lies
    descriptors = [encode(base, 128, 256, "none"), encode(base + 2048, 128, 256, "none")]
    k = K_BYTES // np.dtype(DTYPES[types[1]]).itemsize
    name = f"wgmma.mma_async.sync.aligned.m64n8k{k}.{'.'.join(types)}"
    registers = {"f32": ["%f1", "%f2", "%f3", "%f4"], "s32": ["%r1", "%r2", "%r3", "%r4"], "f16": ["%r1", "%r2"]}[
        types[0]
    ]
    value = {"f32": f"0f{np.float32(start).view(np.uint32):08X}", "s32": str(start),
             "f16": str(int(np.array([start, start], np.float16).view(np.int32)[0]))}[types[0]]  # fmt: skip
    lines = [f"mov.b32 {r}, {value};" for r in registers]
    lines += [f"mov.b64 %d{i + 1}, {d};" for i, d in enumerate(descriptors)]
    lines += ["wgmma.fence.sync.aligned;", f"{name} {{{', '.join(registers)}}}, %d1, %d2, {scale}{more};", between]
    lines += [f"mad.lo.u32 %r10, %r60, {4 * len(registers)}, 0;", "cvt.u64.u32 %d3, %r10;", "add.u64 %d4, %d61, %d3;"]
    lines += [f"st.global.b32 [%d4+{4 * i}], {r};" for i, r in enumerate(registers)]
    return "\n".join(lines)


def matrix_of(done: Done, element: str) -> np.ndarray:
    """D of the accumulators, [64, 8]."""
    dtype = {"f32": np.float32, "s32": np.int32, "f16": np.float16}[element]
    values = done.out.view(dtype).reshape(4, 8, 4, 2, 2)  # warp, row, pair of columns, half of rows, column
    return values.transpose(0, 3, 1, 2, 4).reshape(M, N).astype(np.float64)


@pytest.mark.parametrize(
    ("types", "more"),
    [
        (("f32", "f16", "f16"), ", 1, 1, 0, 0"),
        (("f16", "f16", "f16"), ", 1, 1, 0, 0"),
        (("f32", "bf16", "bf16"), ", 1, 1, 0, 0"),
        (("f32", "tf32", "tf32"), ", 1, 1"),
        (("f32", "e4m3", "e5m2"), ", 1, 1"),
        (("f16", "e5m2", "e4m3"), ", 1, 1"),
        (("s32", "s8", "u8"), ""),
        (("s32", "u8", "s8"), ""),
    ],
)
@pytest.mark.parametrize("scale", ["1", "0"])
def test_products(types: tuple[str, str, str], more: str, scale: str) -> None:
    a, b, raw = operands(types[1:])
    done = run(FILL + body(types, scale, more), raw, 128 * (2 if types[0] == "f16" else 4), threads=128)
    want = a.astype(np.float64) @ b.astype(np.float64).T + 3 * int(scale)
    assert done.emulation.hazards == ()
    assert np.array_equal(matrix_of(done, types[0]), want)


@pytest.mark.parametrize(("signs", "sign"), [(", -1, 1, 0, 0", -1), (", 1, -1, 0, 0", -1), (", -1, -1, 0, 0", 1)])
def test_signs(signs: str, sign: int) -> None:
    a, b, raw = operands(("f16", "f16"))
    done = run(FILL + body(("f32", "f16", "f16"), "1", signs), raw, 512, threads=128)
    assert np.array_equal(matrix_of(done, "f32"), sign * (a.astype(np.float64) @ b.astype(np.float64).T) + 3)


BF16 = ("f32", "bf16", "bf16")


@pytest.mark.parametrize("between", ["", COMMIT, WAIT, COMMIT + "wgmma.wait_group.sync.aligned 1;\n"])
def test_accumulators_that_are_read_too_early(between: str) -> None:
    done = run(FILL + body(BF16, "1", ", 1, 1, 0, 0", between), operands(BF16[1:])[2], 512, threads=128)
    assert done.kinds == {"async_read_in_flight"}
    assert "add wgmma.wait_group before" in done.words


def test_a_copy_of_an_accumulator_is_no_use_but_stays_an_accumulator() -> None:
    moves = "mov.f32 %f10, %f1;\nmov.f32 %f1, %f10;\n"
    raw = operands(BF16[1:])[2]
    good = run(FILL + body(BF16, "1", ", 1, 1, 0, 0", COMMIT + moves + WAIT), raw, 512, threads=128)
    assert good.emulation.hazards == ()
    bad = run(FILL + body(BF16, "1", ", 1, 1, 0, 0", COMMIT + moves), raw, 512, threads=128)
    assert bad.kinds == {"async_read_in_flight"}


def test_a_path_that_nobody_takes_is_no_finding() -> None:
    """The wait stands under a condition that always holds: the analysis cannot know, the run does."""
    skipped = "setp.gt.u32 %p2, %r60, 500;\n@%p2 bra PAST;\n" + COMMIT + WAIT + "PAST:\n"
    text = FILL + body(BF16, "1", ", 1, 1, 0, 0", skipped)
    assert run(text, operands(BF16[1:])[2], 512, threads=128).emulation.hazards == ()


def test_groups_are_counted() -> None:
    text = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p){
    .reg .f32 %f<16>;
    .reg .b64 %d<4>;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d0, %d1, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f4, %f5, %f6, %f7}, %d0, %d1, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    add.f32 %f8, %f0, %f0;
    add.f32 %f9, %f4, %f4;
    ret;
}
"""
    assert suspects(parse(text, "k").graph) == {6: (2,)}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("wgmma.fence", "setp.gt.u32 %p2, %r60, 95;\n@%p2 ret;\nwgmma.fence", "warp_divergence"),
        ("mov.b64 %d1", "mov.b64 %d7, 0;\nmov.b64 %d1", "clean"),
        ("wgmma.fence", "cvt.u64.u32 %d7, %r60;\nadd.u64 %d1, %d1, %d7;\nwgmma.fence", "warp_divergence"),
        ("wgmma.fence", "add.u64 %d1, %d1, 256;\nwgmma.fence", "out_of_bounds_read"),
    ],
)
def test_broken_calls(old: str, new: str, kind: str) -> None:
    text = FILL + body(BF16, "1", ", 1, 1, 0, 0")
    assert text.count(old) == 1
    done = run(text.replace(old, new), operands(BF16[1:])[2], 512, threads=128)
    assert kind == "clean" if not done.kinds else kind in done.kinds


def test_operands_that_a_thread_wrote_need_a_proxy_fence() -> None:
    write = "add.u32 %r20, %r61, %r59;\nld.shared.u32 %r21, [%r20];\nst.shared.u32 [%r20], %r21;\n"
    fence = "fence.proxy.async.shared::cta;\n"
    text, raw = body(BF16, "1", ", 1, 1, 0, 0"), operands(BF16[1:])[2]
    done = run(FILL + write + "bar.sync 0;\n" + text, raw, 512, threads=128)
    assert done.kinds == {"missing_proxy_fence"}
    assert run(FILL + write + fence + "bar.sync 0;\n" + text, raw, 512, threads=128).emulation.hazards == ()
