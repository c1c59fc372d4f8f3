"""The roofline's worked values."""

from __future__ import annotations

import pytest

from tilewright.arch.devices import find_device
from tilewright.arch.roofline import attainable, gemm_bytes, gemm_flops, ridge_point, roofline_share


def test_intensity_of_a_square_fp32_product_is_k_over_6() -> None:
    for k in (6, 512, 4096):
        assert gemm_flops(k, k, k) / gemm_bytes(k, k, k, 4, 4) == pytest.approx(k / 6)
    assert gemm_flops(4096, 4096, 4096) / gemm_bytes(4096, 4096, 4096, 4, 4) == pytest.approx(682.67, abs=0.005)
    # Forgetting the output would give K/4.
    assert gemm_flops(6, 6, 6) / gemm_bytes(6, 6, 6, 4, 0) == pytest.approx(6 / 4)


def test_intensity_of_a_matrix_vector_product_tends_to_a_half() -> None:
    assert gemm_flops(10**6, 1, 10**6) / gemm_bytes(10**6, 1, 10**6, 4, 4) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("peak", "bandwidth", "ridge"),
    [
        (989e12, 3.35e12, 295),
        (67e12, 3.35e12, 20),
        (66.9e12, 1344e9, 49.8),
        (21.7e12, 608e9, 35.7),
        (174e12, 608e9, 286.2),
        (696e12, 608e9, 1144.7),
    ],
)
def test_ridge_points(peak: float, bandwidth: float, ridge: float) -> None:
    assert ridge_point(peak, bandwidth) == pytest.approx(ridge, rel=2e-3)


def test_the_roof_is_memory_below_the_ridge_and_the_peak_above() -> None:
    assert attainable(100.0, 10.0, ops=50.0, dram_bytes=10.0) == 50.0
    assert attainable(100.0, 10.0, ops=500.0, dram_bytes=10.0) == 100.0


def test_share_of_the_roofline() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    ops, moved = gemm_flops(4096, 4096, 4096), gemm_bytes(4096, 4096, 4096, 1, 4)
    # 52.3 TOPS of 1979.
    share = roofline_share(device, "int8", ops, moved, ops / 52.3e12)
    assert share == pytest.approx(52.3 / 1979)
    assert roofline_share(device, "fp4", ops, moved, 1.0) is None
