"""When not to write a kernel at all, and the rules that hold for what is written."""

from __future__ import annotations

from tilewright.arch.roofline import ridge_point
from tilewright.tile.candidate import Candidate
from tilewright.tile.machine import Machine
from tilewright.tile.ops import Attention, Convolution, Elementwise, Gemm, Op, RowReduction, element

# Below this many operations a launch takes longer than the work, on any card of the tables.
TINY_FLOPS = 2.0 * 128**3
# An op whose bytes take DRAM less than this is over before a tile matters.
TINY_US = 3.0


def advice(op: Op, machine: Machine) -> tuple[str, ...]:
    """Reasons not to write this kernel; empty where there is none."""
    lines: list[str] = []
    dram_us = op_bytes(op) / machine.device.dram_bytes_per_s * 1e6
    matrix = isinstance(op, Gemm | Convolution | Attention)
    if op_flops(op) <= TINY_FLOPS if matrix else dram_us < TINY_US:
        lines.append("Tiny: the launch takes longer than the work. Fuse it with its neighbours, or batch it.")
    if isinstance(op, Elementwise):
        lines.append(
            "Pure streaming: every byte is used once, so tiling brings nothing. Wide loads and enough of them do."
        )
    if isinstance(op, Convolution):
        lines.append("A library serves: cuDNN. Write your own for a fusion or a layout that it lacks.")
    elif isinstance(op, Gemm):
        lines.append(
            "A library serves: cuBLAS. Write your own for a fusion, a layout or an element type that it lacks."
        )
    elif isinstance(op, Attention):
        lines.append(
            "A library serves: cuDNN's or FlashAttention's. Write your own for a mask or score that they lack."
        )
    return tuple(lines)


def rules(op: Op, chosen: Candidate, machine: Machine, target: str) -> tuple[str, ...]:
    """The rules behind the table, with this op's and this card's figures."""
    arch, device = machine.arch, machine.device
    lines = [
        f"Shared memory: {arch.smem_static_max_bytes // 1024} KiB per block as it comes, {arch.smem_optin_max_bytes} B "
        "after cudaFuncSetAttribute; beyond that no launch succeeds.",
    ]
    if isinstance(op, Gemm | Convolution | Attention):
        peak = 2 * machine.mac_per_cycle(op.dtype) * device.sms * machine.clock_hz
        ridge = ridge_point(peak, device.dram_bytes_per_s)
        intensity = op_flops(op) / op_bytes(op)
        side = "matrix instructions" if intensity > ridge else "memory"
        lines.append(
            f"{intensity:.0f} operations per unique byte against the ridge at {ridge:.0f}: {side} should decide at "
            "this size."
        )
        lines.append(
            "Low occupancy is accepted for matrix kernels: independent sums and the ring's stages hide latency."
        )
    else:
        lines.append("Occupancy: 50 % to start with, below 25 % a warning, more than 75 % is rarely worth more.")
    if isinstance(op, RowReduction):
        lines.append("Powers of two where warps reduce; the innermost width in multiples of 32 lanes.")
    if chosen.blocks < device.sms:
        what = "At least as many blocks as SMs" + (", or split-K" if isinstance(op, Gemm) else "")
        lines.append(
            f"{what}: here {chosen.blocks} for {device.sms} SMs, because filling "
            "the card with smaller parts is predicted to be slower, or is not legal."
        )
    if target == "triton":
        memory = "1-2" if not isinstance(op, Gemm | Convolution | Attention) else "4-8"
        lines.append(
            f"Triton: num_warps {memory} for this kind of kernel (4-8 compute-bound, 1-2 memory-bound); num_stages 3-5 "
            "where cp.async is there (sm_80 and later), each with its own shared memory: see the column by stages."
        )
    return tuple(lines)


def op_flops(op: Op) -> float:
    """Operations of any op; a convolution's are its implicit GEMM's."""
    return op.as_gemm().flops if isinstance(op, Convolution) else op.flops


def op_bytes(op: Op) -> float:
    """Unique bytes of any op. A convolution reads its image, not the gathered matrix."""
    if not isinstance(op, Convolution):
        return op.unique_bytes
    item_bytes = element(op.dtype).item_bytes
    image = op.n * op.h * op.w * op.c
    return float(item_bytes * (image + op.k * op.r * op.s * op.c + op.n * op.p * op.q * op.k))
