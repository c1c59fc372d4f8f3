"""The roofline: how fast a kernel could run, from its operations, its bytes at each memory level and the card.

What an operation takes in operations and unique bytes is in ``arch.work``. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.arch.arch import Arch
from tilewright.arch.devices import Device

Level = Literal["dram", "l2", "shared"]
LEVELS: tuple[Level, ...] = ("dram", "l2", "shared")


@dataclass(frozen=True)
class Roof:
    """What the card lets a kernel reach, and which side holds it.

    Attributes:
        attainable_ops_per_s: the least of the peak and of what each level's bytes allow.
        bound: ``compute``, or the memory level that is the least.
        peak_ops_per_s: of the precision.
        by_level: operations per second that each level alone would allow.
        ridges: operations per byte at which each level stops being the limit.
        estimated: levels whose rate is an estimate of the architecture's table.
    """

    attainable_ops_per_s: float
    bound: Literal["compute", "dram", "l2", "shared"]
    peak_ops_per_s: float
    by_level: dict[Level, float]
    ridges: dict[Level, float]
    estimated: tuple[Level, ...]


def gemm_flops(m: int, n: int, k: int) -> float:
    """Operations of C[m, n] = A[m, k] @ B[k, n]: a multiply and an add for each product."""
    return 2.0 * m * n * k


def gemm_bytes(m: int, n: int, k: int, input_bytes: float, output_bytes: float) -> float:
    """Unique DRAM bytes of a matrix product: both inputs read once, the output written once."""
    return (m * k + k * n) * input_bytes + m * n * output_bytes


def ridge_point(peak_ops_per_s: float, bytes_per_s: float) -> float:
    """Operations per byte above which the peak, not the memory, is the limit."""
    return peak_ops_per_s / bytes_per_s


def attainable(peak_ops_per_s: float, bytes_per_s: float, ops: float, dram_bytes: float) -> float:
    """Operations per second that the roofline allows: ``min(peak, intensity * bandwidth)``."""
    return min(peak_ops_per_s, ops / dram_bytes * bytes_per_s)


def bytes_per_s(device: Device, arch: Arch) -> dict[Level, float]:
    """What each memory level moves at the boost clock: DRAM of the datasheet, L2 to all SMs, shared memory of all SMs.

    Args:
        arch: the device's own.
    """
    cycles_per_s = device.sms * device.boost_clock_hz
    return {
        "dram": device.dram_bytes_per_s,
        "l2": arch.l2_bytes_per_cycle * cycles_per_s,
        "shared": arch.smem_bytes_per_cycle * cycles_per_s,
    }


def ridges(device: Device, arch: Arch) -> dict[str, dict[Level, float]]:
    """Operations per byte at the ridge, by precision and memory level."""
    rates = bytes_per_s(device, arch)
    return {
        precision: {level: ridge_point(peak, rate) for level, rate in rates.items()}
        for precision, peak in device.peaks.items()
    }


def roof(device: Device, arch: Arch, precision: str, ops: float, moved: Mapping[Level, float]) -> Roof | None:
    """The roof over a launch; None when the card's table lacks the precision.

    Args:
        precision: a key of `Device.peaks`.
        ops: operations of the whole launch.
        moved: bytes of the whole launch at each level that is known; DRAM's are the unique ones, output included.
    """
    if precision not in device.peaks:
        return None
    peak, rates = device.peaks[precision], bytes_per_s(device, arch)
    by_level: dict[Level, float] = {level: ops / moved[level] * rates[level] for level in LEVELS if moved.get(level)}
    slowest = min(by_level, key=lambda level: by_level[level], default=None)
    bound: Literal["compute", "dram", "l2", "shared"] = "compute"
    if slowest is not None and by_level[slowest] < peak:
        bound = slowest
    kinds = {"l2": arch.kinds["l2_bytes_per_cycle"], "shared": arch.kinds["smem_bytes_per_cycle"]}
    return Roof(
        attainable_ops_per_s=min([peak, *by_level.values()]),
        bound=bound,
        peak_ops_per_s=peak,
        by_level=by_level,
        ridges={level: ridge_point(peak, rates[level]) for level in by_level},
        estimated=tuple(level for level in by_level if kinds.get(level) == "estimate"),
    )


def roofline_share(device: Device, precision: str, ops: float, dram_bytes: float, seconds: float) -> float | None:
    """Measured rate over what the roofline allows, 0 to 1; None when the card's table lacks the precision.

    Args:
        precision: a key of `Device.peaks`.
        ops: operations of the whole launch.
        dram_bytes: unique bytes, outputs included.
        seconds: measured time of the launch.
    """
    if precision not in device.peaks:
        return None
    return ops / seconds / attainable(device.peaks[precision], device.dram_bytes_per_s, ops, dram_bytes)
