"""Bulk copies without a tensor map: alignment, sizes, multicast."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.tensor import bulk


def test_copies_that_break_a_rule_are_named() -> None:
    faults = bulk.copy_faults(np.array([0, 8, 16, 32]), np.array([16, 16, 4, 0]), np.array([16, 16, 16, 24]))
    assert faults.any.tolist() == [False, True, True, True]
    assert faults.describe(0) == ""
    assert "destination" in faults.describe(1)
    assert "source" in faults.describe(2)
    assert "size" in faults.describe(3)


def test_one_value_serves_all_copies() -> None:
    assert bulk.copy_faults(np.array([0, 16]), 0, np.int32(8)).size.tolist() == [True, True]
    assert bulk.copy_faults(0, 0, 0).any.tolist() == [False]


def test_prefetches_have_no_destination() -> None:
    faults = bulk.prefetch_faults(np.array([4, 16]), 32)
    assert faults.any.tolist() == [True, False]
    assert not faults.destination.any()


def test_a_mask_names_ranks() -> None:
    assert bulk.multicast(0b1011, 4) == bulk.Multicast((0, 1, 3), ())
    assert bulk.multicast(0b10100, 4) == bulk.Multicast((2,), (4,))
    assert bulk.multicast(np.int32(0), 2).ranks == ()  # type: ignore[arg-type]
    # The register has 16 bits, whatever holds it.
    assert bulk.multicast(0x1_0001, 4) == bulk.Multicast((0,), ())
