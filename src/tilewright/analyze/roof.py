"""The roofline of a launch: its work, its unique bytes, and what each memory level lets the card reach."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.analyze.hot_loop import HotLoop
from tilewright.analyze.record import Count, Roofline, RoofRow
from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device
from tilewright.arch.roofline import LEVELS, Level, attainable, bytes_per_s, ridge_point

# The emulator's kinds of arithmetic → the card's peaks. Half-precision arithmetic of threads has no peak of its own.
PRECISIONS = {
    "tensor_f16": "fp16", "tensor_bf16": "bf16", "tensor_tf32": "tf32", "tensor_f64": "fp64_tensor",
    "tensor_s8": "int8", "tensor_u8": "int8", "tensor_e4m3": "fp8", "tensor_e5m2": "fp8", "fp32": "fp32",
    "fp64": "fp64",
}  # fmt: skip
_OF_OPCODE = {"IMMA": "int8", "QMMA": "fp8", "QGMMA": "fp8", "IGMMA": "int8", "DMMA": "fp64_tensor", "FFMA": "fp32",
              "FFMA2": "fp32", "FADD": "fp32", "FMUL": "fp32", "DFMA": "fp64"}  # fmt: skip
# A kind of arithmetic with less than this share of the work has no row.
SMALL_SHARE = 0.05
_LEVEL_NAMES: dict[Level, str] = {"dram": "DRAM", "l2": "L2", "shared": "shared"}


def precision_of(loop: HotLoop) -> str | None:
    """Of the math that the hot loop has most of; matrix instructions before all others."""
    matrix = [i for i in loop.trip if i.opcode.endswith("MMA")]
    if matrix:
        opcode, modifiers = matrix[0].opcode, matrix[0].modifiers
        if opcode[0] == "H":
            return "tf32" if "TF32" in modifiers else "bf16" if "BF16" in modifiers else "fp16"
        return _OF_OPCODE.get(opcode)
    counts: dict[str, int] = {}
    for i in loop.trip:
        if i.opcode in _OF_OPCODE:
            counts[_OF_OPCODE[i.opcode]] = counts.get(_OF_OPCODE[i.opcode], 0) + 1
    return max(counts, key=lambda name: counts[name]) if counts else None


def roofline(
    flops: Count,
    dram_bytes: Count,
    operations: Mapping[str, float],
    moved: Mapping[Level, float],
    arch: Arch,
    device: Device | None,
    seconds: float | None,
) -> Roofline:
    """Rows for every precision that does a fair share of the work, at every memory level that is known.

    Args:
        operations: by precision, a key of the card's peaks.
        moved: bytes of the launch at the other levels: between L2 and the SMs, and those of shared memory.
    """
    missing = [name for name, count in (("operations", flops), ("unique bytes", dram_bytes)) if not count.value]
    if device is None:
        missing.append("the card")
    if missing or device is None or not flops.value or not dram_bytes.value:
        reason = f"no roofline: {' and '.join(missing)} not known"
        return Roofline(flops, dram_bytes, dict(operations), reason=reason)
    total = sum(operations.values()) or flops.value
    named = {k: v for k, v in operations.items() if k in device.peaks and v > SMALL_SHARE * total}
    rates = bytes_per_s(device, arch)
    sizes: dict[Level, float] = {"dram": dram_bytes.value, **moved}
    levels = [(level, sizes[level], rates[level]) for level in LEVELS if sizes.get(level)]
    rows = tuple(
        _row(level, precision, ops, size, speed, device.peaks[precision], seconds)
        for precision, ops in sorted(named.items(), key=lambda item: -item[1])
        for level, size, speed in levels
    )
    times = [dram_bytes.value / device.dram_bytes_per_s, *(v / device.peaks[k] for k, v in named.items())]
    reason = "" if rows else f"{device.name} has no peak for {', '.join(operations) or 'this arithmetic'}"
    return Roofline(flops, dram_bytes, dict(operations), rows, max(times) * 1e6, reason)


def _row(
    level: Level, precision: str, ops: float, size: float, speed: float, peak: float, seconds: float | None
) -> RoofRow:
    reach = attainable(peak, speed, ops, size)
    ridge = ridge_point(peak, speed)
    share = ops / seconds / reach if seconds else None
    return RoofRow(_LEVEL_NAMES[level], precision, ops / size, peak, speed, ridge, reach, ops / size < ridge, share)
