"""Short kernels written in PTX: ``in`` and ``out`` are int32 arrays, ``smem`` and ``bars`` shared ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.emulator.lower.compile import compile_kernel, parse
from tilewright.emulator.machine.addresses import OFFSET_BITS
from tilewright.emulator.machine.chunk import Geometry
from tilewright.emulator.machine.global_memory import Buffer
from tilewright.emulator.options import EmulatorOptions
from tilewright.emulator.run import Emulation, emulate
from tilewright.emulator.tensor.maps import TensorMap

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_in, .param .u64 k_out, .param .align 64 .b8 k_map[128]){cluster}
{{
    .reg .pred %p<16>;
    .reg .b32 %r<64>;
    .reg .f32 %f<64>;
    .reg .b64 %d<64>;
    .shared .align 1024 .b8 smem[{smem}];
    .shared .align 8 .b64 bars[4];
    ld.param.u64 %d60, [k_in];
    ld.param.u64 %d61, [k_out];
    mov.b64 %d62, k_map;
    mov.u32 %r60, %tid.x;
    mov.u32 %r61, smem;
    mov.u32 %r62, bars;
    mov.u32 %r63, %cluster_ctarank;
    setp.eq.u32 %p15, %r60, 0;
    shl.b32 %r59, %r60, 2;
    cvt.u64.u32 %d59, %r59;
    add.u64 %d58, %d61, %d59;
    mul.wide.u32 %d57, %r63, {block_bytes};
    add.u64 %d58, %d58, %d57;
{body}
    ret;
}}
"""


@dataclass(frozen=True)
class Done:
    out: np.ndarray
    emulation: Emulation

    @property
    def kinds(self) -> set[str]:
        return {hazard.kind for hazard in self.emulation.hazards}

    @property
    def words(self) -> str:
        return "\n".join(hazard.message for hazard in self.emulation.hazards)


def run(
    body: str,
    values: np.ndarray,
    out_size: int,
    *,
    threads: int = 32,
    blocks: int = 1,
    cluster: int = 1,
    tensor: TensorMap | None = None,
    smem: int = 4096,
    options: EmulatorOptions | None = None,
) -> Done:
    """Run a body. %p15: thread 0; %r59: 4 * thread; %r61: smem; %r62: bars; %r63: rank; %d60, %d61: in, out;
    %d58: this thread's place in out; %d62: the tensor map.
    """
    shape = f" .reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    parsed = parse(HEAD.format(body=body, cluster=shape, smem=smem, block_bytes=4 * threads), "k")
    kernel = compile_kernel(parsed, 0)
    out = np.zeros(out_size, np.int32)
    buffers = [
        Buffer("in", values.copy().view(np.uint8), False),
        Buffer("out", out.view(np.uint8), True),
    ]
    params = np.array([1 << OFFSET_BITS, 2 << OFFSET_BITS], np.int64).tobytes()
    params += tensor.encode() if tensor is not None else bytes(128)
    params = params[:16].ljust(parsed.param_offsets["k_map"], b"\0") + params[16:]
    geometry = Geometry((blocks, 1, 1), (threads, 1, 1), (cluster, 1, 1), kernel.layout.smem_bytes, 0)
    done = emulate(kernel, geometry, buffers, params, options or EmulatorOptions(max_seconds=10))
    return Done(out, done)
