"""The roofline: how fast a kernel could run, from its operations, its unique DRAM bytes and the card. All pure."""

from __future__ import annotations

from tilewright.arch.devices import Device


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
