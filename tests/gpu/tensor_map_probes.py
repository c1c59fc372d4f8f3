"""Probes of bulk tensor loads: one box into poisoned shared memory, which is then written out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from probes import TARGET
from replays import POINTER, TENSOR_MAP, Array, Param

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import emulate
from tilewright.emulator.tensor.maps import TensorMap

THREADS = 128
ADDRESS = 1 << OFFSET_BITS  # of the tensor's buffer


@dataclass(frozen=True)
class MapProbe:
    """One load.

    Attributes:
        shared_bytes: that are poisoned before, and written out after.
        note: what is uncertain.
    """

    name: str
    tensor: TensorMap
    at: tuple[int, ...]
    shared_bytes: int
    note: str = ""

    @property
    def param(self) -> Param:
        t = self.tensor
        return Param(
            TENSOR_MAP, 0, "", t.element.upper(), t.dims, t.strides_bytes, t.box, t.swizzle.upper(),
            "NONE" if t.oob_fill == "zeros" else "NAN_REQUEST_ZERO_FMA", t.element_strides,
        )  # fmt: skip

    @property
    def params(self) -> tuple[Param, ...]:
        return self.param, Param(POINTER, 1)

    def inputs(self) -> tuple[Array, Array]:
        """The tensor's buffer, random bytes; and what is written."""
        t = self.tensor
        last = sum((d - 1) * s for d, s in zip(t.dims, (t.element_bytes, *t.strides_bytes), strict=True))
        data = np.random.default_rng(12).integers(0, 120, last + t.element_bytes, dtype=np.uint8)
        return data, np.zeros(self.shared_bytes, np.uint8)

    def ptx(self) -> str:
        rank = self.tensor.rank
        where = "{" + ", ".join(f"%c{k}" for k in range(rank)) + "}"
        coordinates = " ".join(f"mov.b32 %c{k}, {x};" for k, x in enumerate(self.at))
        count = self.shared_bytes // (4 * THREADS)
        poison = "\n".join(f"st.shared.b32 [%at+{4 * THREADS * k}], 0xEEEEEEEE;" for k in range(count))
        out = "\n".join(
            f"ld.shared.b32 %r2, [%at+{4 * THREADS * k}]; st.global.b32 [%d3+{4 * THREADS * k}], %r2;"
            for k in range(count)
        )
        copy = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        return f"""
.version 8.7
.target {TARGET}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{
.shared .align 1024 .b8 box[{self.shared_bytes}];
.shared .align 8 .b8 bar[8];
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b32 %c<8>; .reg .b32 %at; .reg .b64 %d<8>;
mov.u32 %r0, box; mov.u32 %r1, %tid.x; mad.lo.u32 %at, %r1, 4, %r0; mov.u32 %r3, bar; {coordinates}
mov.b64 %d0, map; cvta.param.u64 %d1, %d0; ld.param.u64 %d2, [out];
mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d3, %d2;
{poison}
setp.ne.u32 %p0, %r1, 0;
fence.proxy.async.shared::cta; bar.sync 0;
@%p0 bra WAIT;
mbarrier.init.shared::cta.b64 [%r3], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {self.tensor.box_bytes};
{copy} [%r0], [%d1, {where}], [%r3];
WAIT:
bar.sync 0;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;
@!%p1 bra AGAIN;
{out}
ret;
}}
"""

    def emulated(self) -> Array:
        """What the emulator writes out.

        Raises:
            RuntimeError: it cannot.
        """
        kernel = compile_kernel(parse(self.ptx(), "k"), 0)
        data, out = self.inputs()
        geometry = Geometry((1, 1, 1), (THREADS, 1, 1), (1, 1, 1), kernel.layout.smem_bytes, 0)
        buffers = [Buffer("tensor", data, False), Buffer("out", out)]
        params = self.tensor.encode() + struct.pack("<q", 2 << OFFSET_BITS)
        done = emulate(kernel, geometry, buffers, params, EmulatorOptions(max_seconds=20))
        if done.error is not None:
            raise RuntimeError(done.error)
        return out


def probes() -> Iterator[MapProbe]:
    yield from _swizzles()
    yield from _outside()
    yield from _ranks()


def _plane(element: str, size: int, box: tuple[int, int], **more: object) -> TensorMap:
    """40 rows of 100 elements, 400 (or so) bytes apart."""
    pitch = -(-100 * size // 32) * 32
    return TensorMap(element, ADDRESS, (100, 40), (pitch,), box, **more)  # type: ignore[arg-type]


def _swizzles() -> Iterator[MapProbe]:
    for swizzle in ("none", "32B", "64B", "128B"):
        for inner in (16, 32, 64, 128):
            if swizzle != "none" and inner > int(swizzle[:-1]):
                continue
            tensor = _plane("uint8", 1, (inner, 24), swizzle=swizzle)
            note = "padding of rows narrower than the swizzle"
            yield MapProbe(f"box of {inner} B x 24, swizzle {swizzle}", tensor, (-16, 2), 4096, note)


def _outside() -> Iterator[MapProbe]:
    for element, size in (("float32", 4), ("float16", 2), ("bfloat16", 2), ("float64", 8), ("tfloat32", 4)):
        for fill in ("zeros", "nan"):
            tensor = _plane(element, size, (32 // size * 2, 16), oob_fill=fill)
            # Along dimension 0 whatever begins at no multiple of 16 bytes is an illegal instruction.
            for at in ((-16 // size, -2), (96, 30)):
                yield MapProbe(f"{element} at {at} filled with {fill}", tensor, at, 2048, "bits of OOB-NaN")
    for element in ("float32_ftz", "tfloat32_ftz", "tfloat32"):
        yield MapProbe(f"{element} inside", _plane(element, 4, (16, 16)), (4, 2), 2048, "conversion of elements")


def _ranks() -> Iterator[MapProbe]:
    yield MapProbe("rank 1", TensorMap("uint16", ADDRESS, (300,), (), (128,)), (216,), 512)
    three = TensorMap("uint16", ADDRESS, (20, 6, 5), (48, 320), (16, 4, 3), swizzle="32B")
    yield MapProbe("rank 3", three, (-8, 3, 1), 1024)
    four = TensorMap("int32", ADDRESS, (12, 5, 4, 3), (48, 256, 1056), (8, 3, 2, 2))
    yield MapProbe("rank 4", four, (8, -1, 3, 0), 1024)
    five = TensorMap("uint8", ADDRESS, (24, 3, 3, 3, 3), (32, 96, 288, 864), (16, 2, 2, 2, 2))
    yield MapProbe("rank 5", five, (16, 0, 2, -1, 1), 1024)
    steps = TensorMap("uint32", ADDRESS, (32, 30), (128,), (8, 16), (1, 3))
    yield MapProbe("a step of 3 along rows", steps, (4, 20), 1024, "rows that are copied, and bytes that are counted")
    inner = TensorMap("uint32", ADDRESS, (32, 30), (128,), (8, 4), (2, 1))
    yield MapProbe("a step of 2 along the innermost", inner, (4, 20), 1024, "is ignored")
